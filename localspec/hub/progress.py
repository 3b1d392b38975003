"""Shows files on their way, on stderr: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.table import Column

from localspec.hub.download import FileProgress, Progress
from localspec.progress import PLAIN_EVERY, Bars, Display
from localspec.units import duration, file_size, of_size, shortened

_STATUS = 38
"""Columns for bytes, speed and time left."""


def status(file: FileProgress) -> str:
    """What becomes of a file just now."""
    match file.state:
        case "downloading" if not file.note:
            words = [of_size(file.done, file.size)]
            if file.speed:
                words.append(f"{file_size(file.speed)}/s")
                words.append(duration((file.size - file.done) / file.speed))
            return "  ".join(words)
        case "downloading":
            return file.note
        case "verifying":
            return f"verifying, {100 * file.checked // max(1, file.size)} %"
        case "waiting":
            return file.note or "waiting"
        case "done":
            return file_size(file.size)
        case state:
            kept = f", {of_size(file.done, file.size)} kept" if file.done else ""
            return f"{state}{kept}"


def total(progress: Progress) -> str:
    words = [of_size(progress.done, progress.size)]
    moving = any(f.state == "downloading" for f in progress.files)
    if moving and progress.speed and progress.eta:
        words += [f"{file_size(progress.speed)}/s", duration(progress.eta)]
    return "  ".join(words)


class Quiet(Display):
    """Shows nothing."""

    def __call__(self, progress: Progress) -> None: ...


class Lines(Quiet):
    """For a pipe or a log file: each change of state, and the total now and then."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = time.monotonic()
        self._said: dict[int, tuple[str, str]] = {}

    def __call__(self, progress: Progress) -> None:
        failed = [f for f in progress.files if f.state == "failed"]
        for i, file in enumerate(progress.files):
            if failed and file is failed[0]:
                continue  # its error ends the command, which says it
            now = (file.state, file.note)
            if self._said.get(i, ("waiting", "")) != now:
                self._said[i] = now
                if file.state == "downloading" and not file.note:
                    done = f", {of_size(file.kept, file.size)} here" if file.kept else ""
                    self._say(f"{file.path}: downloading {file_size(file.size)}{done}")
                elif file.state == "verifying":
                    self._say(f"{file.path}: verifying")
                else:
                    self._say(f"{file.path}: {file.state if not file.note else file.note}")
        if time.monotonic() - self._last >= PLAIN_EVERY and progress.done < progress.size:
            left = f", {duration(progress.eta)} left" if progress.eta else ""
            speed = f" at {file_size(progress.speed)}/s" if progress.speed else ""
            self._say(f"{of_size(progress.done, progress.size)}{speed}{left}")
            self._last = time.monotonic()

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class Live(Quiet):
    """A bar for each file, and one for all where there are several."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = Bars(
            console,
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=6)),
            TextColumn(
                "{task.fields[status]}",
                markup=False,
                table_column=Column(width=_STATUS, no_wrap=True, overflow="ellipsis"),
            ),
            expand=True,
        )
        self._tasks: list[TaskID] = []
        self._drawn = 0.0

    def __enter__(self) -> Live:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.refresh()
        self._bars.stop()

    def __call__(self, progress: Progress) -> None:
        files = progress.files
        if not self._tasks:
            names = [shortened(f.path.rsplit("/", 1)[-1], self._name_width) for f in files]
            names += ["in all"] * (len(files) > 1)
            self._tasks = [self._bars.add_task(name, status="") for name in names]
        for task, file in zip(self._tasks, files, strict=False):
            done = file.checked if file.state == "verifying" else file.done
            self._bars.update(task, completed=done, total=file.size, status=status(file))
        if len(files) > 1:
            self._bars.update(
                self._tasks[-1],
                completed=progress.done,
                total=progress.size,
                status=total(progress),
            )
        settled = all(f.state in ("done", "failed", "cancelled") for f in files)
        if settled or time.monotonic() - self._drawn >= 0.1:
            self._bars.refresh()
            self._drawn = time.monotonic()

    @property
    def _name_width(self) -> int:
        return max(16, self._console.width - _STATUS - 18)


def display(console: Console, *, quiet: bool) -> Quiet:
    if quiet:
        return Quiet()
    return Live(console) if console.is_terminal else Lines(console)
