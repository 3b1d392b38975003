"""The host without its process: what it allocates, it frees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from engine.conftest import NGRAM, PLAIN, context
from tiny_drafters import tiny_dflash
from tiny_models import BOS, tiny_llama

from localspec.decoding.loop import Session
from localspec.engine import messages as m
from localspec.engine.host import Host, Pipe
from localspec.errors import LocalspecError
from localspec.llama.context import AbortFlag
from localspec.llama.library import L
from localspec.records import ContextSettings, DrafterSettings, LoadSettings, SamplerSettings

PROMPT = (BOS, 5, 6, 7, 8, 5, 6)


class NoPipe:
    """Takes the events and has nobody at its other end."""

    def __init__(self) -> None:
        self.abort = AbortFlag()
        self.sent: list[m.Message] = []

    def send(self, message: m.Message) -> None:
        self.sent.append(message)

    def running(self, request: int | None) -> None:
        self.abort.clear()


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many native objects exist, by kind."""
    counts: Counter[str] = Counter()

    def watch(kind: str, make: str, free: str) -> None:
        made, freed = getattr(L, make), getattr(L, free)

        def counted_make(*args: Any) -> Any:
            handle = made(*args)
            counts[kind] += 1 if handle else 0
            return handle

        def counted_free(handle: Any) -> None:
            counts[kind] -= 1
            freed(handle)

        monkeypatch.setattr(L, make, counted_make)
        monkeypatch.setattr(L, free, counted_free)

    watch("model", "llama_model_load_from_file", "llama_model_free")
    watch("context", "llama_init_from_model", "llama_free")
    watch("batch", "llama_batch_init", "llama_batch_free")
    return counts


@pytest.fixture
def host(live: Counter[str]) -> Iterator[Host]:
    host = Host(cast(Pipe, NoPipe()))
    yield host
    for name in list(host.sessions):
        host.close(name)
    for model in (*host.models.values(), *([host.target] if host.target else ())):
        model.close()
    assert +live == Counter()


def load(host: Host, path: Path) -> None:
    host.answer(m.Load(1, str(path), LoadSettings()))


def draft_model(path: Path) -> DrafterSettings:
    return DrafterSettings("draft-model", "d", str(path), n_max=4)


def generate(host: Host, session: str) -> tuple[int, ...]:
    request = m.Generate(9, session, PROMPT, SamplerSettings(), 10)
    return cast(m.Finished, host.answer(request)).generation.tokens


def test_sessions_are_freed_when_closed_replaced_or_their_model_goes(
    host: Host, live: Counter[str], tiny_target: Path, tiny_draft: Path
) -> None:
    load(host, tiny_target)
    host.answer(m.Open(2, "s", draft_model(tiny_draft), context()))
    opened = live.copy()
    assert opened["context"] == 2
    host.answer(m.Open(3, "s", draft_model(tiny_draft), context()))
    assert live == opened
    host.answer(m.Close(4, "s"))
    assert (live["context"], live["batch"]) == (0, 0)
    host.answer(m.Open(5, "s", draft_model(tiny_draft), context()))
    host.answer(m.Open(6, "t", NGRAM, context(), "s"))
    load(host, tiny_target)
    assert +live == Counter({"model": 1})


def test_a_drafters_model_is_loaded_once(
    host: Host, live: Counter[str], tiny_target: Path, tiny_draft: Path
) -> None:
    load(host, tiny_target)
    for name in ("a", "b"):
        host.answer(m.Open(2, name, draft_model(tiny_draft), context()))
    assert live["model"] == 2


@pytest.mark.parametrize(
    "fault", ["stranger", "recurrent draft", "cache", "draft cache", "length", "warm-up", "state"]
)
def test_a_failed_open_frees_what_it_made(
    host: Host,
    live: Counter[str],
    monkeypatch: pytest.MonkeyPatch,
    tiny_target: Path,
    tiny_draft: Path,
    tiny_stranger: Path,
    tiny_mamba: Path,
    fault: str,
) -> None:
    load(host, tiny_target)
    host.answer(m.Open(2, "kept", PLAIN, context(512)))
    expected = generate(host, "kept")
    drafter, settings, source = draft_model(tiny_draft), context(), None
    if fault == "stranger":
        drafter = draft_model(tiny_stranger)
    elif fault == "recurrent draft":
        drafter = draft_model(tiny_mamba)
    elif fault == "cache":
        settings = ContextSettings(256, 1, kv_type="q8_0")  # heads of 16 do not divide into it
    elif fault == "draft cache":
        settings = ContextSettings(256, 1, draft_kv_type="q8_0")
    elif fault == "length":
        settings = context(3)
    elif fault == "state":
        long = m.Generate(3, "kept", (5,) * 400, SamplerSettings(), 1)
        host.answer(long)
        source = "kept"
    else:
        monkeypatch.setattr(Session, "warm_up", lambda self: 1 // 0)
    before = live.copy()
    with pytest.raises((LocalspecError, ZeroDivisionError)):
        host.answer(m.Open(4, "new", drafter, settings, source))
    assert live == before
    assert list(host.sessions) == ["kept"]
    assert generate(host, "kept") == expected


def test_a_recurrent_drafter_that_is_refused_frees_what_was_made(
    host: Host, live: Counter[str], tiny_target: Path, tiny_mamba: Path
) -> None:
    load(host, tiny_target)
    before = live.copy()
    with pytest.raises(LocalspecError, match="recurrent"):
        host.answer(m.Open(2, "s", draft_model(tiny_mamba), context()))
    assert live == before


def test_a_failed_load_leaves_no_model(
    host: Host, live: Counter[str], tiny_target: Path, tmp_path: Path
) -> None:
    load(host, tiny_target)
    with pytest.raises(LocalspecError):
        load(host, tmp_path / "none.gguf")
    assert +live == Counter()
    load(host, tiny_target)


@pytest.mark.parametrize("method", ["dflash", "ngram+dflash", "dflash tree"])
def test_a_draft_longer_than_the_trained_block_is_said_to_be_cut(models: Path, method: str) -> None:
    """The block of 6 drafts 5 tokens."""
    host = Host(cast(Pipe, NoPipe()))
    target = tiny_llama(models / "block-target.gguf", n_layer=4)
    drafter = tiny_dflash(models / "block-drafter.gguf", block_size=6)
    host.answer(m.Load(1, str(target), LoadSettings()))
    family, _, tree = method.partition(" ")
    asked = [(16, False, True), (6, False, True), (5, False, False)]
    for n_max, auto, said in asked if tree else [*asked, (16, True, False)]:
        settings = DrafterSettings(
            family, "mine", str(drafter), n_max=n_max, auto=auto, tree=8 if tree else 0
        )
        opened = cast(m.Opened, host.answer(m.Open(1, "s", settings, context())))
        assert opened.settings["n_max"] == min(n_max, 5)
        note = f"mine, n_max {n_max}: the drafter's trained block allows 5, and it drafts no more."
        assert [n for n in opened.notes if "n_max" in n] == [note] * said
    opened = cast(m.Opened, host.answer(m.Open(1, "s", NGRAM, context())))
    assert opened.notes == ()
    host.answer(m.Close(1, "s"))
