"""What the progress displays of downloads and of benchmarks have in common, on stderr."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from rich.console import Console, RenderableType
from rich.constrain import Constrain
from rich.progress import Progress, ProgressColumn

PLAIN_EVERY = 10.0
"""Seconds between plain progress lines."""


class Display:
    """Entered while the work goes on; by itself it shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Bars(Progress):
    """Drawn only when told to: the engine needs the cores, and no thread draws beside it."""

    def __init__(self, console: Console, *columns: ProgressColumn, **options: Any) -> None:
        self._on = console  # asked for before Progress has a console of its own
        super().__init__(*columns, console=console, auto_refresh=False, **options)

    def get_renderables(self) -> Iterable[RenderableType]:
        # A terminal echoes Ctrl-C as two characters at the end of the last line: they must not
        # make a line of their own, or the bars are drawn one too low.
        yield Constrain(self.make_tasks_table(self.tasks), self._on.width - 2)
