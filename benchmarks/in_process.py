"""The engine's host in this process, for scripts that must reach into the loop."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from localspec.engine import messages as m
from localspec.engine.host import Host, Pipe
from localspec.llama.context import AbortFlag
from localspec.records import LoadSettings, ModelInfo


class NoPipe:
    """A host in this process has nobody at the other end."""

    def __init__(self) -> None:
        self.abort = AbortFlag()

    def send(self, message: m.Message) -> None:
        pass

    def running(self, request: int | None) -> None:
        self.abort.clear()


def host_of(path: Path) -> tuple[Host, ModelInfo]:
    """A host that has loaded ``path``."""
    host = Host(cast(Pipe, NoPipe()))
    loaded = host.answer(m.Load(1, str(path), LoadSettings()))
    assert isinstance(loaded, m.Loaded)
    return host, loaded.model
