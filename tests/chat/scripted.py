"""An engine that says what the test wrote, over a tokenizer one can read: a character is its code
point, a special token a small number, and ids from 2,000,000 on are what only a model would write
(``odd``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from localspec import machine
from localspec.engine.messages import Chunk, Opened, Prefill
from localspec.errors import LocalspecError
from localspec.records import (
    ContextSettings,
    Counts,
    DrafterSettings,
    Generation,
    LoadSettings,
    ModelInfo,
    SamplerSettings,
    Span,
    StopReason,
    Times,
)

SPECIAL = ("<|im_start|>", "<|im_end|>", "<think>", "</think>")
END = SPECIAL.index("<|im_end|>")
ODD = 2_000_000


def tokenize(segments: tuple[str, ...], _bos: bool = True) -> tuple[int, ...]:
    ids: list[int] = []
    for segment in segments:
        at = 0
        while at < len(segment):
            found = next((s for s in SPECIAL if segment.startswith(s, at)), None)
            ids.append(SPECIAL.index(found) if found else ord(segment[at]))
            at += len(found) if found else 1
    return tuple(ids)


def odd(text: str) -> tuple[int, ...]:
    """Ids for ``text`` that tokenising the text does not give."""
    return tuple(ODD + ord(c) for c in text)


def said(
    text: str,
    *,
    stop: StopReason = "eog",
    tokens: tuple[int, ...] | None = None,
    prompt_tokens: int = 0,
    cached: int = 0,
) -> Generation:
    ids = odd(text) if tokens is None else tokens
    if stop == "eog":
        ids = (*ids, END)
    counts = Counts(steps=len(ids), target_calls=len(ids), decode_tokens=len(ids))
    times = Times(ttft=0.5, decode=1.0)
    return Generation(text, ids, stop, prompt_tokens, cached, counts, times)


def model_info(**changes: object) -> ModelInfo:
    facts: dict[str, object] = {
        "path": "/models/scripted.gguf",
        "arch": "llama",
        "description": "scripted",
        "quant": "Q4_1",
        "size_bytes": 1,
        "n_params": 1,
        "n_ctx_train": 2048,
        "n_vocab": 3 * 10**6,
        "n_layer": 1,
        "template": None,
        "bos": "<|im_start|>",
        "eos": "<|im_end|>",
        "add_bos": False,
        "special_tokens": SPECIAL,
    }
    return ModelInfo(**{**facts, **changes})  # type: ignore[arg-type]


class ScriptedStream:
    def __init__(self, run: Generation, dies: LocalspecError | None) -> None:
        self.run, self.dies = run, dies
        self._events = self._play()

    def _play(self) -> Iterator[Prefill | Chunk]:
        yield Prefill(1, 1, 1, 0)
        for character in self.run.text:
            yield Chunk(1, (Span(character, False, 1),), (), 1, 0.0)
        if self.dies is not None:
            raise self.dies
        self.result = self.run

    def __iter__(self) -> ScriptedStream:
        return self

    def __next__(self) -> Prefill | Chunk:
        return next(self._events)

    def drain(self) -> Generation:
        for _ in self:
            pass
        return self.run

    def cancel(self) -> None:
        pass


class ScriptedEngine:
    """Answers with ``script`` in turn: a Generation, or a (text, error) that breaks it off."""

    def __init__(self, *script: Generation | tuple[str, LocalspecError], **facts: object) -> None:
        self.script = list(script)
        self.facts = facts
        self.refuse_open: list[LocalspecError] = []
        self.starts = 0
        self.alive = False
        self.loaded: LoadSettings | None = None
        self.opened: list[tuple[str, DrafterSettings, str | None]] = []
        self.closed: list[str] = []
        self.prompts: list[tuple[int, ...]] = []
        self.samplers: list[SamplerSettings] = []
        self.max_tokens: list[int] = []
        self.stops: list[tuple[str, ...]] = []

    def connect(
        self,
        target: Path,
        settings: LoadSettings,
        log_file: Path | None = None,
        choose: object = None,
    ) -> ScriptedEngine:
        self.starts += 1
        self.alive = True
        self.load(target, settings)
        return self

    def close(self) -> None:
        self.alive = False

    def load(self, path: str | Path, settings: LoadSettings) -> ModelInfo:
        self.model = model_info(**self.facts)
        return self.model

    def free_memory(self) -> machine.Memory:
        return machine.memory()

    def open(
        self,
        session: str,
        drafter: DrafterSettings,
        context: ContextSettings,
        copy_from: str | None = None,
    ) -> Opened:
        if self.refuse_open:
            raise self.refuse_open.pop(0)
        self.opened.append((session, drafter, copy_from))
        return Opened(1, session, {"n_ctx": context.n_ctx})

    def close_session(self, session: str) -> None:
        self.closed.append(session)

    def tokenize(self, *segments: str, bos: bool = True) -> tuple[int, ...]:
        return tokenize(segments, bos)

    def stream(
        self,
        session: str,
        prompt: tuple[int, ...],
        *,
        sampler: SamplerSettings,
        max_tokens: int,
        stop: tuple[str, ...],
        reuse: bool,
        record: bool = False,
        scores: bool = False,
    ) -> ScriptedStream:
        assert reuse
        self.prompts.append(prompt)
        self.samplers.append(sampler)
        self.max_tokens.append(max_tokens)
        self.stops.append(stop)
        scripted = self.script.pop(0)
        if isinstance(scripted, Generation):
            return ScriptedStream(scripted, None)
        text, error = scripted
        self.alive = False
        return ScriptedStream(said(text), error)
