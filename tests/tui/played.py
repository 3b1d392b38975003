"""An engine that plays answers a test wrote, with steps, drafts and times that are always the same.

A text is given as ``"the [drafted and] accepted [parts|rejected] in brackets"``: every bracket with
the word after it is one decode step, and so is every other word.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from chat.scripted import ScriptedEngine, model_info
from patience import FOREVER

from localspec.engine.messages import Chunk, Opened, Prefill, Replayed
from localspec.errors import EngineDied, LocalspecError
from localspec.records import (
    BuildInfo,
    Generation,
    LoadSettings,
    ModelInfo,
    Scores,
    Span,
    Step,
    StopReason,
    Times,
    count,
)

MS = 1e-3
WORD = re.compile(r"\s*\S+(?:\s+$)?|\s+$")


class Vocabulary:
    """Numbers words as they come."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def of(self, text: str) -> list[int]:
        return [self.ids.setdefault(w, len(self.ids)) for w in WORD.findall(text)]

    def text(self, token: int) -> str:
        return next(w for w, i in self.ids.items() if i == token)


WORDS = Vocabulary()


def answer(text: str, *, stop: StopReason = "eog", speed: float = 1.0) -> Generation:
    """``speed`` 2: every step takes half of its 12 ms (10 without a draft)."""
    spans: list[Span] = []
    steps: list[Step] = []
    drafts: list[tuple[int, ...]] = []
    tokens: list[int] = []
    pending: list[int] = []
    rejected: list[int] = []
    for part in re.split(r"(\[[^\]]*\])", text):
        if part.startswith("["):
            kept, _, wrong = part[1:-1].partition("|")
            pending, rejected = WORDS.of(kept), WORDS.of(wrong)
            if kept:
                spans.append(Span(kept, True, len(pending)))
            tokens += pending
            continue
        for word in WORD.findall(part):
            draft = (*pending, *rejected)
            spans.append(Span(word, False, 1))
            if tokens:  # the first token comes from the prefill
                verify = (11 if draft else 9.5) * MS / speed
                drafting, whole = (0.8 if draft else 0.0) * MS / speed, verify + 1.0 * MS / speed
                steps.append(
                    Step(
                        len(pending) + 1,
                        len(draft),
                        len(pending),
                        len(draft),
                        1,
                        drafting,
                        verify,
                        0.1 * MS,
                        0.0,
                        whole,
                    )
                )
                drafts.append(draft)
            tokens += WORDS.of(word)
            pending, rejected = [], []
    seconds = sum(s.t_step for s in steps)
    times = Times(
        ttft=84 * MS,
        decode=seconds,
        draft=sum(s.t_draft for s in steps),
        verify=sum(s.t_verify for s in steps),
        step=seconds,
    )
    return Generation(
        "".join(s.text for s in spans),
        tuple(tokens),
        stop,
        40,
        0,
        count(steps),
        times,
        tuple(spans),
        tuple(steps),
        tuple(drafts),
        ((),) * len(drafts),
    )


def plain(run: Generation, speed: float = 1.0) -> Generation:
    """The same tokens without a drafter."""
    verify = 9.5 * MS / speed
    step = Step(1, 0, 0, 0, 1, 0.0, verify, 0.1 * MS, 0.0, verify + 1.0 * MS / speed)
    steps = (step,) * (len(run.tokens) - 1)
    seconds = len(steps) * step.t_step
    times = replace(run.times, decode=seconds, draft=0.0, verify=len(steps) * verify, step=seconds)
    return replace(
        run,
        times=times,
        steps=steps,
        counts=count(steps),
        spans=(Span(run.text, False, len(run.tokens)),),
        drafts=((),) * len(steps),
        parents=((),) * len(steps),
    )


def scored(run: Generation) -> Generation:
    scores = []
    for step, draft in zip(run.steps, run.drafts, strict=True):
        p = tuple(
            0.9 if i < step.accepted else 0.05 if i == step.accepted else None
            for i in range(len(draft))
        )
        q = tuple(0.8 / (i + 1) for i in range(len(draft)))
        scores.append(Scores(p, q, (0.9,) * step.accepted + (0.7,)))
    return replace(run, scores=tuple(scores))


class PlayedStream:
    def __init__(self, engine: Player, run: Generation | tuple[str, LocalspecError]) -> None:
        self._engine = engine
        self._run, self._error = run if isinstance(run, tuple) else (run, None)
        if isinstance(self._run, str):
            self._run = answer(self._run)
        self._events = self._play()

    def _play(self) -> Iterator[Prefill | Chunk]:
        engine, run = self._engine, self._run
        yield Prefill(1, 20, 40, 0)
        steps = list(run.steps)
        shown: list[Span] = []
        elapsed = run.times.ttft
        for i, span in enumerate(run.spans):
            if engine.hold_after is not None and i == engine.hold_after:
                engine.holding.set()
                engine.go_on.wait(FOREVER)
            if engine.cancelled.is_set():
                break
            shown.append(span)
            done = (steps.pop(0),) if steps and not span.drafted and i else ()
            elapsed += sum(step.t_step for step in done)
            yield Chunk(1, (span,), done, sum(s.tokens for s in shown), elapsed)
        if self._error is not None:
            engine.alive = False
            raise self._error
        if engine.cancelled.is_set():
            run = replace(
                run,
                text="".join(s.text for s in shown),
                spans=tuple(shown),
                stop="cancelled",
                tokens=run.tokens[: sum(s.tokens for s in shown)],
            )
        self.result = run

    def __iter__(self) -> PlayedStream:
        return self

    def __next__(self) -> Prefill | Chunk:
        return next(self._events)

    def drain(self) -> Generation:
        for _ in self:
            pass
        return self.result

    def cancel(self) -> None:
        self._engine.cancel()


class Player(ScriptedEngine):
    """Plays ``script`` in turn; the baseline's session is played from ``baselines``."""

    log_file = Path("/logs/engine.log")
    pid = os.getpid()

    def __init__(self, *script: Any, **facts: Any) -> None:
        facts = {"quant": "Q4_1", **facts}
        super().__init__(*script, **facts)
        self.build = BuildInfo("0.3.36", "b1", ("CPU",), (), "")
        self.baselines: list[Generation] = []
        self.hold_after: int | None = None
        self.holding, self.go_on, self.cancelled = (threading.Event() for _ in range(3))
        self.sessions: list[str] = []
        self.last: Generation | None = None
        self.replays: list[Replayed | LocalspecError] = []

    def launch(self, _log: Path | None) -> Player:
        self.starts += 1
        self.alive = True
        return self

    def load(self, path: str | Path, settings: LoadSettings) -> ModelInfo:
        self.model = model_info(path=str(path), **self.facts)
        return self.model

    def stream(self, session: str, prompt: tuple[int, ...], **options: Any) -> Any:
        self.cancelled.clear()
        self.sessions.append(session)
        self.prompts.append(prompt)
        self.samplers.append(options["sampler"])
        self.max_tokens.append(options["max_tokens"])
        if options.get("scores"):
            return PlayedStream(self, scored(self.last or self.script.pop(0)))
        source = self.baselines if session == "chat-baseline" else self.script
        run = source.pop(0)
        if isinstance(run, str):
            run = answer(run)
        if isinstance(run, Generation) and source is self.script:
            self.last = run
        return PlayedStream(self, run)

    def replay(self, *_asked: Any) -> Replayed:
        found = self.replays.pop(0)
        if isinstance(found, LocalspecError):
            raise found
        return found

    def cancel(self) -> None:
        self.cancelled.set()
        self.go_on.set()

    def open(self, session: str, *rest: Any) -> Opened:
        opened = super().open(session, *rest)
        return Opened(opened.id, session, opened.settings | {"threads": 2})

    def pieces(self, tokens: tuple[int, ...]) -> tuple[bytes, ...]:
        return tuple(WORDS.text(token).encode() for token in tokens)

    def death(self) -> Any:
        return EngineDied("signal SIGKILL", [])
