"""Shows a benchmark while it runs, on stderr: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    TaskID,
    TextColumn,
)

from localspec.bench.report import Report
from localspec.bench.runner import (
    Comparing,
    Event,
    Notice,
    Ran,
    Running,
    Starting,
    WarmingUp,
)
from localspec.progress import PLAIN_EVERY, Bars, Display
from localspec.units import duration

PHASES = {
    "main": "measuring",
    "repeat": "again, what was disturbed or crashed",
    "confirm": "measuring the winner again",
}


def starting(event: Starting) -> str:
    plural = "s" if event.prompts != 1 else ""
    what = f"{event.rows} runs on {event.prompts} prompt{plural}, about {duration(event.seconds)}"
    if event.kept:
        what += f" ({event.kept} runs are there from before)"
    if event.again:
        what += f"; a winner is then measured again, about {duration(event.again)}"
    return what if event.phase == "main" else f"{PHASES[event.phase]}: {what}"


def warming_up(event: WarmingUp) -> str:
    left = f", about {duration(event.seconds)} to go" if event.seconds is not None else ""
    return f"warm-up {event.number}/{event.total}: {event.session}{left}"


def comparing(event: Comparing) -> str:
    return f"classing differences: {event.candidate.key}, about {duration(event.eta)} left"


class Quiet(Display):
    """Shows nothing; what matters stands in the table."""

    def say(self, text: str) -> None: ...

    def follow(self, so_far: Callable[[], Report]) -> None:
        """``so_far`` gives the report of the runs that are made; to be called on events only."""

    def __call__(self, event: Event) -> None: ...


class Lines(Quiet):
    """For a pipe or a log file: a line now and then, never a control character."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = time.monotonic()

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def __call__(self, event: Event) -> None:
        match event:
            case WarmingUp():
                self.say(warming_up(event))
            case Starting():
                self.say(starting(event))
                self._last = time.monotonic()
            case Comparing():
                self.say(comparing(event))
            case Notice():
                self.say(event.text)
            case Ran() if event.done == event.total or self._due():
                tps = event.row.generation.decode_tps if event.row.generation else None
                speed = f", {tps:.1f} tok/s" if tps else ""
                self.say(f"{event.done}/{event.total} runs{speed}, {duration(event.eta)} left")
                self._last = time.monotonic()

    def _due(self) -> bool:
        return time.monotonic() - self._last >= PLAIN_EVERY


class Live(Quiet):
    """One line at the bottom of a terminal. It is drawn only when something happened, never by a
    thread of its own: the engine needs the cores."""

    def __init__(self, console: Console, *counter: ProgressColumn) -> None:
        """``counter``: how what is done is told beside the bar; as a number of runs, if not given
        otherwise."""
        self._progress = Bars(
            console,
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            *(counter or (MofNCompleteColumn(),)),
            TextColumn("{task.fields[speed]:>11}", markup=False),
            TextColumn("{task.fields[eta]:>12}", markup=False),
            transient=True,
        )
        self._task: TaskID = self._progress.add_task("loading", total=None, speed="", eta="")

    def __enter__(self) -> Live:
        self._progress.start()
        self._progress.refresh()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)

    def __call__(self, event: Event) -> None:
        match event:
            case WarmingUp():
                eta = duration(event.seconds) if event.seconds is not None else ""
                self._show(f"warm-up: {event.session}", event.number - 1, event.total, eta=eta)
            case Starting():
                self.say(starting(event))
                self._show(PHASES[event.phase], 0, event.rows, eta=duration(event.seconds))
            case Running():
                speed = f"{event.tps:.1f} tok/s" if event.tps else ""
                what = f"{event.slot.prompt.prompt.id}: {event.slot.candidate.key}"
                self._show(what, event.done, event.total, speed, duration(event.eta))
            case Ran():
                tps = event.row.generation.decode_tps if event.row.generation else None
                speed = f"{tps:.1f} tok/s" if tps else ""
                what = f"{event.row.slot.prompt.prompt.id}: {event.row.slot.candidate.key}"
                self._show(what, event.done, event.total, speed, duration(event.eta))
            case Comparing():
                self._show(f"classing: {event.candidate.key}", 1, 1, eta=duration(event.eta))
            case Notice():
                self.say(event.text)

    def _show(self, what: str, done: int, total: int, speed: str = "", eta: str = "") -> None:
        self._progress.update(
            self._task, description=what, completed=done, total=total, speed=speed, eta=eta
        )
        self._progress.refresh()


def display(console: Console, *, quiet: bool) -> Quiet:
    if quiet:
        return Quiet()
    return Live(console) if console.is_terminal else Lines(console)
