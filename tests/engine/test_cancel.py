"""Stopping a generation, and what the session is worth afterwards."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from engine.conftest import NGRAM, PLAIN, StartEngine, context
from tiny_models import BOS

from localspec.engine import messages as m
from localspec.engine.client import Engine
from localspec.errors import ContextTooSmall, EngineFailed
from localspec.records import ContextSettings, DrafterSettings, SamplerSettings

PROMPT = (BOS, 5, 6, 7, 8, 5, 6)
LONG = (BOS, *(4 + (i * i) % 8 for i in range(2000)))


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory, slow_model: Path) -> Iterator[Engine]:
    with Engine(log_file=tmp_path_factory.mktemp("log") / "engine.log") as engine:
        engine.load(slow_model)
        yield engine


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Ctrl-C in what is done inside; without the collector, for Python only reports what is raised
    in what that calls (hypothesis has it call something)."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    gc.disable()
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        with suppress(KeyboardInterrupt):  # it comes late: what is inside was over before
            timer.join()
        gc.enable()


def drafter_of(name: str, tiny_draft: Path) -> DrafterSettings:
    if name == "draft-model":
        return DrafterSettings("draft-model", "d", str(tiny_draft), n_max=4)
    return NGRAM if name == "ngram" else PLAIN


def like_fresh(
    engine: Engine,
    session: str,
    prompt: tuple[int, ...],
    settings: DrafterSettings,
    size: ContextSettings,
) -> int:
    """Going on with what is held equals a new session's answer; how many tokens were held."""
    kept = engine.generate(session, prompt, max_tokens=25, ignore_eos=True, reuse=True)
    engine.open("fresh", settings, size)
    fresh = engine.generate("fresh", prompt, max_tokens=25, ignore_eos=True)
    engine.close_session("fresh")
    assert kept.tokens == fresh.tokens
    return kept.cached_tokens


@pytest.mark.parametrize("drafter", ["none", "ngram", "draft-model"])
def test_a_running_generation_stops_and_can_be_gone_on_with(
    start_engine: StartEngine, tiny_target: Path, tiny_draft: Path, drafter: str
) -> None:
    engine = start_engine(tiny_target)
    settings, size = drafter_of(drafter, tiny_draft), context(4096)
    engine.open("s", settings, size)
    stream = engine.stream("s", PROMPT, max_tokens=4000, ignore_eos=True, interval=0)
    for event in stream:
        if isinstance(event, m.Chunk) and event.tokens > 20:
            engine.cancel()
            break
    run = stream.drain()
    assert run.stop == "cancelled"
    assert 20 < len(run.tokens) < 4000
    assert run.counts.decode_tokens == len(run.tokens) - 1
    prompt = (*PROMPT, *run.tokens[:150])  # attention over more than 256 cells rounds differently
    assert like_fresh(engine, "s", prompt, settings, size) == len(prompt) - 1


@pytest.mark.parametrize("drafter", ["none", "ngram", "draft-model"])
def test_a_decode_is_stopped_in_its_middle(
    slow: Engine, tiny_draft: Path, drafter: str, slow_model: Path
) -> None:
    """A step takes long here: the flag, not the loop, stops it."""
    settings = drafter_of(drafter, slow_model)
    slow.open("s", settings, context(4096))
    for events in range(2, 6):
        stream = slow.stream("s", PROMPT, max_tokens=4000, ignore_eos=True, interval=0)
        for _ in range(events):
            next(stream)
        slow.cancel()
        run = stream.drain()
        assert run.stop == "cancelled"
        assert len(run.tokens) < 4000
        # attention over more than 256 cells rounds differently
        like_fresh(slow, "s", (*PROMPT, *run.tokens[:150]), settings, context(4096))
    slow.close_session("s")


@pytest.mark.parametrize("drafter", ["none", "draft-model"])
def test_a_long_prefill_stops_and_what_it_did_is_kept(
    slow: Engine, slow_model: Path, drafter: str
) -> None:
    settings, size = drafter_of(drafter, slow_model), context(2048, n_batch=32)
    slow.open("s", settings, size)
    prompt = LONG[:200]
    stream = slow.stream("s", LONG, max_tokens=10)
    done = 0
    for event in stream:
        assert isinstance(event, m.Prefill)
        done = event.done
        slow.cancel()
    run = stream.result
    assert (run.stop, run.tokens, run.text) == ("cancelled", (), "")
    assert done < len(LONG), "it went on to the end"
    assert run.decode_tps is None
    cached = like_fresh(slow, "s", prompt, settings, size)
    assert cached == min(done, len(prompt) - 1)
    slow.close_session("s")


def test_a_prefill_of_one_batch_is_stopped_in_its_middle(slow: Engine) -> None:
    size = context(2048, n_batch=2048)
    slow.open("s", PLAIN, size)
    stream = slow.stream("s", LONG, max_tokens=10)
    time.sleep(0.3)
    slow.cancel()
    assert list(stream) == [], "not even one chunk was finished"
    assert stream.result.stop == "cancelled"
    assert like_fresh(slow, "s", LONG[:100], PLAIN, size) == 0
    slow.close_session("s")


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_a_recurrent_memory_survives_a_cancel(
    start_engine: StartEngine, tiny_mamba: Path, steps: int
) -> None:
    """What a cancelled decode did to its state cannot be taken back, so it must not be reused."""
    engine = start_engine(tiny_mamba)
    size = context(4096, n_batch=16)
    engine.open("s", PLAIN, size)
    prompt = LONG[:300]
    stream = engine.stream("s", prompt, max_tokens=3000, ignore_eos=True, interval=0)
    for event in stream:
        if isinstance(event, m.Chunk if steps else m.Prefill):
            steps -= 1
            if steps <= 0:
                engine.cancel()
                break
    run = stream.drain()
    assert run.stop == "cancelled"
    like_fresh(engine, "s", (*prompt, *run.tokens), PLAIN, size)


ABORT_LATER = """if True:
    import localspec.llama
    from localspec.llama.context import Context
    original, state = Context.decode, {"left": -1}
    def decode(self, batch):
        # the flag is up before the decode number N of the generation: stopped half way, surely
        if self.abort is not None and state["left"] >= 0:
            if state["left"] == 0:
                self.abort.set()
            state["left"] -= 1
        original(self, batch)
    Context.decode = decode
    from localspec.decoding.loop import Session
    generate = Session.generate
    def counted(self, request, listener):
        state["left"] = request.sampler.seed if request.sampler.seed else -1
        return generate(self, request, listener)
    Session.generate = counted
    """


@pytest.mark.parametrize(
    ("model", "drafter"),
    [
        ("tiny_target", "none"),
        ("tiny_target", "ngram"),
        ("tiny_target", "draft-model"),
        ("tiny_mamba", "none"),
    ],
)
def test_whichever_decode_is_aborted_the_session_is_right(
    start_engine: StartEngine,
    patch_engine: Callable[[str], None],
    request: pytest.FixtureRequest,
    tiny_draft: Path,
    model: str,
    drafter: str,
) -> None:
    """Every decode of target and drafter, in prefill and steps, is the one that is aborted."""
    patch_engine(ABORT_LATER)
    engine = start_engine(request.getfixturevalue(model))
    settings, size = drafter_of(drafter, tiny_draft), context(n_batch=16)
    engine.open("s", settings, size)
    prompt = LONG[:40]
    stopped = set()
    for decode in range(1, 20):
        run = engine.generate(
            "s", prompt, sampler=SamplerSettings(seed=decode), max_tokens=150, ignore_eos=True
        )
        stopped.add((run.stop, len(run.tokens) > 0))
        assert run.stop == "cancelled"
        like_fresh(engine, "s", (*prompt, *run.tokens), settings, size)
    assert stopped == {("cancelled", False), ("cancelled", True)}


def test_a_cancel_that_comes_first_still_counts(
    start_engine: StartEngine, tiny_target: Path
) -> None:
    engine = start_engine(tiny_target)
    engine.open("s", PLAIN, context())
    expected = engine.generate("s", PROMPT, max_tokens=5).tokens
    following = next(engine._ids) + 1
    engine._send(m.Cancel(following))
    run = engine.generate("s", PROMPT, max_tokens=200, ignore_eos=True)
    assert (run.stop, run.tokens) == ("cancelled", ())
    assert engine.generate("s", PROMPT, max_tokens=5, reuse=True).tokens == expected


def test_a_cancel_that_comes_too_late_stops_nothing_else(
    start_engine: StartEngine, tiny_target: Path
) -> None:
    engine = start_engine(tiny_target)
    engine.open("s", NGRAM, context())
    for _ in range(20):
        stream = engine.stream("s", PROMPT, max_tokens=3, ignore_eos=True)
        engine._send(m.Cancel(stream._id))  # somewhere around its end
        stream.drain()
        assert engine.probe("s", PROMPT, (1, 2)).equal == {1: True, 2: True}
        assert engine.generate("s", PROMPT, max_tokens=9, ignore_eos=True).stop == "length"
    stream.cancel()  # done: nothing is sent
    engine.cancel()
    assert engine.generate("s", PROMPT, max_tokens=9, ignore_eos=True).stop == "length"


def test_ctrl_c_while_waiting_leaves_the_stream_usable(slow: Engine) -> None:
    slow.open("s", PLAIN, context(2048, n_batch=2048))
    stream = slow.stream("s", LONG, max_tokens=10)
    with interrupted_after(0.3):
        stream.drain()
    stream.cancel()
    assert stream.drain().stop == "cancelled"
    assert slow.generate("s", PROMPT, max_tokens=3, ignore_eos=True).stop == "length"
    slow.close_session("s")


def test_an_interrupted_request_is_passed_over(slow: Engine) -> None:
    slow.open("s", PLAIN, context(2048, n_batch=2048))
    with interrupted_after(0.3):
        slow.probe("s", LONG, (1,))
    assert slow.tokenize("ab", bos=False)
    assert slow.generate("s", PROMPT, max_tokens=3, ignore_eos=True).stop == "length"
    slow.close_session("s")


def test_an_interrupted_opening_leaves_nothing_open(slow: Engine) -> None:
    slow.open("s", PLAIN, context(2048))
    expected = slow.generate("s", PROMPT, max_tokens=3, ignore_eos=True).tokens
    with interrupted_after(0.1):  # the costs of auto are measured for longer than that
        slow.open("new", replace(NGRAM, auto=True, n_max=16), context(2048), "s")
    with pytest.raises(EngineFailed, match="No session 'new'"):
        slow.generate("new", PROMPT)
    again = slow.generate("s", PROMPT, max_tokens=3, ignore_eos=True, reuse=True)
    assert again.tokens == expected
    assert again.cached_tokens > 0
    slow.open("new", NGRAM, context(2048))
    assert slow.generate("new", PROMPT, max_tokens=3, ignore_eos=True).tokens == expected
    slow.close_session("new")
    slow.close_session("s")


def test_a_cancelled_opening_is_given_up_in_its_middle(slow: Engine) -> None:
    request = m.Open(10**6, "new", replace(NGRAM, auto=True, n_max=16), context(2048))
    slow._settle()
    slow._send(request)
    slow._send(m.Cancel(request.id))
    with pytest.raises(EngineFailed, match="cancelled"):
        slow._expect(m.Opened, request.id)


def test_an_abandoned_stream_does_not_disturb_what_follows(
    start_engine: StartEngine, tiny_target: Path
) -> None:
    engine = start_engine(tiny_target)
    engine.open("s", PLAIN, context())
    expected = engine.generate("s", PROMPT, max_tokens=5).tokens
    engine.stream("s", PROMPT, max_tokens=100, ignore_eos=True, interval=0)
    assert engine.generate("s", PROMPT, max_tokens=5).tokens == expected
    engine.stream("s", [5] * 300)  # type: ignore[arg-type]  # fails, and nobody asks why
    assert engine.tokenize("ab", bos=False)
    engine.stream("nowhere", PROMPT)
    assert engine.generate("s", PROMPT, max_tokens=5).tokens == expected


def test_a_failed_stream_raises_where_it_is_read(
    start_engine: StartEngine, tiny_target: Path
) -> None:
    engine = start_engine(tiny_target)
    engine.open("s", PLAIN, context())
    stream = engine.stream("s", (5,) * 300)
    with pytest.raises(ContextTooSmall):
        next(stream)
    with pytest.raises(StopIteration):
        next(stream)
    with pytest.raises(EngineFailed):
        engine.generate("nowhere", PROMPT)
    engine.cancel()
