"""Frames."""

from __future__ import annotations

import io

import msgspec
import pytest

from localspec.engine import messages as m
from localspec.records import (
    ContextSettings,
    Counts,
    Device,
    DrafterSettings,
    Generation,
    LoadSettings,
    SamplerSettings,
    Span,
    Step,
    Times,
    Use,
)

STEP = Step(3, 4, 2, 4, 1, 0.1, 0.2, 0.3, 0.4, 1.0, 0.5, 3)
REQUESTS: list[m.Request] = [
    m.Load(1, "/models/模型 1.gguf", LoadSettings(gpu_layers=3)),
    m.Open(2, "s", DrafterSettings("ngram", "n", n_max=8), ContextSettings(256, 2), "other"),
    m.Close(3, "s"),
    m.Tokenize(4, ("a", "", "\x00"), bos=False),
    m.Generate(5, "s", (1, 2), SamplerSettings(temperature=0.7, seed=-3), 10, ("x",), reuse=True),
    m.Cancel(6),
    m.Probe(7, "s", (1, 2, 3), (1, 2)),
    m.Replay(8, "s", "p", (1,), (2, 3), ((3, 4), ()), ((-1, -1), ()), (1, 1), 1, SamplerSettings()),
    m.Devices(9),
    m.Measure(10, "/m.gguf", LoadSettings(), DrafterSettings(), ContextSettings(256, 2)),
    m.MeasureSession(11, "s"),
]
ANSWERS: list[m.Answer] = [
    m.Ok(1),
    m.Opened(2, "s", {"n_ctx": 256, "kv_type": "f16", "x": 0.5, "y": True}, ("note",)),
    m.Chunk(3, (Span("é", True, 2),), (STEP,), 5, 0.25),
    m.Finished(
        4,
        Generation("é", (1, 2), "eog", 3, 0, Counts(reached=(1,)), Times(ttft=0.1), steps=(STEP,)),
    ),
    m.Probed(5, {1: True, 8: False}, {1: 0.0, 8: 0.5}),
    m.Found(6, (Device("CUDA0", "a card", "gpu", 24 << 30, 23 << 30),)),
    m.Measured(7, (Use("CPU", "target", 1 << 40, 2, 3),)),
    m.Failed(8, "UsageError", "wrong", "right"),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: type(r).__name__)
def test_requests_go_round(request_: m.Request) -> None:
    body = m.read_frame(io.BytesIO(m.frame(request_)))
    assert body is not None
    assert m.decode_request(body) == request_


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda r: type(r).__name__)
def test_answers_go_round(answer: m.Answer) -> None:
    body = m.read_frame(io.BytesIO(m.frame(answer)))
    assert body is not None
    assert m.decode_answer(body) == answer


def test_frames_follow_one_another() -> None:
    stream = io.BytesIO(b"".join(m.frame(r) for r in REQUESTS))
    read = []
    while (body := m.read_frame(stream)) is not None:
        read.append(m.decode_request(body))
    assert read == REQUESTS


def test_an_end_inside_a_frame_is_an_end() -> None:
    data = m.frame(REQUESTS[0])
    for cut in range(len(data)):
        assert m.read_frame(io.BytesIO(data[:cut])) is None


def test_the_id_of_a_request_that_is_not_understood_can_be_read() -> None:
    strange = m.Open(9, "s", DrafterSettings(), ContextSettings(256, 1, flash_attn="yes"))  # type: ignore[arg-type]
    body = m.frame(strange)[4:]
    with pytest.raises(msgspec.ValidationError, match="flash_attn"):
        m.decode_request(body)
    assert m.decode_envelope(body).id == 9
