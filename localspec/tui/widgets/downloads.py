"""The files on their way: a bar for each, with bytes, speed and time left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.content import Content
from textual.widgets import Static

from localspec.tui.pulls import Pull
from localspec.units import of_size, shortened

if TYPE_CHECKING:
    from localspec.hub.download import FileProgress

STATUS = 34
"""Columns for bytes, speed and time left."""


def bar(done: float, width: int) -> tuple[str, str]:
    """The drawn and the open part of a bar: heavy and light, so that it needs no colour. ``done``
    is a share of 1."""
    full = round(max(0.0, min(1.0, done)) * width)
    return "━" * full, "─" * (width - full)


def share_of(pull: Pull) -> float:
    progress = pull.progress
    return progress.done / progress.size if progress is not None and progress.size else 0.0


class Downloads(Static):
    """What is on its way and what was left undone, one line a file."""

    DEFAULT_CSS = """
    Downloads {
        height: auto; padding: 0 1; background: $surface; border-top: hkey $border-blurred;
        display: none;
        &.-some { display: block; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._shown = Content()

    def show(self, pulls: Sequence[Pull]) -> None:
        """Of what is done only the table tells."""
        lines = [line for pull in pulls if pull.state != "done" for line in self._lines(pull)]
        room = max(3, self.app.size.height // 3)
        if len(lines) > room:
            more = len(lines) - room + 1
            lines = [*lines[: room - 1], Content.styled(f"and {more} more", "$text-muted")]
        text = Content("\n").join(lines)
        if text != self._shown:  # a new layout of the screen only where the number of lines changes
            several = len(lines) != len(self._shown.split("\n")) or not self._shown
            self._shown = text
            self.set_class(bool(lines), "-some")
            self.update(text, layout=several)

    def _lines(self, pull: Pull) -> list[Content]:
        progress = pull.progress
        if progress is None:
            words = {
                "asking": "asking the Hub for its files",
                "cancelled": "cancelled before anything arrived",
            }.get(pull.state, pull.error.message if pull.error else pull.state)
            return [Content.assemble(f"{pull.name}  ", (words, "$text-muted"))]
        if pull.state in ("asking", "cancelled", "failed") and len(progress.files) > 1:
            return [self._whole(pull)]
        return [self._line(file, pull) for file in progress.files]

    def _whole(self, pull: Pull) -> Content:
        assert pull.progress is not None
        kept = of_size(pull.progress.done, pull.progress.size)
        word = "asking again" if pull.state == "asking" else f"{pull.state}, kept"
        return self._drawn(pull.name, share_of(pull), f"{word} {kept}", pull)

    def _line(self, file: FileProgress, pull: Pull) -> Content:
        from localspec.hub.progress import status  # its modules were imported by the download

        share = (file.checked if file.state == "verifying" else file.done) / max(1, file.size)
        return self._drawn(file.path.rsplit("/", 1)[-1], share, status(file), pull)

    def _drawn(self, name: str, share: float, status: str, pull: Pull) -> Content:
        width = max(40, self.app.size.width - 2)
        names = max(16, min(44, width - STATUS - 18))
        style = "$text-error" if pull.state == "failed" else "$text-muted"
        long = width - names - STATUS - 10
        drawn, rest = bar(share, max(4, min(40, long)))
        return Content.assemble(
            shortened(name, names).ljust(names),
            "  ",
            (drawn, "$accent"),
            (rest, "$text-disabled"),
            f" {100 * share:3.0f} %  ",
            (status[: width - names - 13], style),
        )
