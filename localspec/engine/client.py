"""The engine seen from outside: starts the child process, talks to it, reports its death.

One generation at a time (concurrency 1). Blocking calls for one thread; ``cancel`` may be called
from any thread. Never imports llama_cpp or numpy.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from localspec.engine.messages import Chunk, Opened, Prefill, Probed, Replayed
from localspec.records import (
    BuildInfo,
    ContextSettings,
    DrafterSettings,
    Generation,
    LoadSettings,
    ModelInfo,
    SamplerSettings,
)


class Engine:
    """``with Engine() as engine: engine.load(path); engine.open("plain", ...)``.

    Raises ``EngineDied`` from any call when the process ends by itself, and the ``LocalspecError``
    that the engine reports otherwise.
    """

    build: BuildInfo
    model: ModelInfo
    pid: int
    log_file: Path

    def __init__(self, *, log_file: Path | None = None) -> None: ...
    def __enter__(self) -> Engine: ...
    def __exit__(self, *exc: object) -> None: ...
    def close(self) -> None: ...
    @property
    def alive(self) -> bool: ...
    def load(self, path: str | Path, settings: LoadSettings = ...) -> ModelInfo: ...
    def open(
        self,
        session: str,
        drafter: DrafterSettings,
        context: ContextSettings,
        copy_from: str | None = None,
    ) -> Opened: ...
    def close_session(self, session: str) -> None: ...
    def tokenize(self, *segments: str, bos: bool = True) -> tuple[int, ...]: ...
    def stream(
        self,
        session: str,
        prompt: tuple[int, ...],
        *,
        sampler: SamplerSettings = ...,
        max_tokens: int = 128,
        stop: tuple[str, ...] = (),
        ignore_eos: bool = False,
        reuse: bool = False,
        record: bool = False,
        interval: float = 0.05,
    ) -> Stream: ...
    def generate(self, session: str, prompt: tuple[int, ...], **options) -> Generation: ...  # drains stream()
    def cancel(self) -> None: ...
    def probe(self, session: str, tokens: tuple[int, ...], sizes: tuple[int, ...]) -> Probed: ...
    def replay(self, session: str, plain_session: str, prompt: tuple[int, ...], run: Generation, index: int, sampler: SamplerSettings) -> Replayed: ...


class Stream(Iterator[Prefill | Chunk]):
    """Events of one generation. Survives a KeyboardInterrupt raised while waiting: call ``cancel``
    and go on iterating; ``result`` is set when iteration ends."""

    result: Generation

    def cancel(self) -> None: ...
