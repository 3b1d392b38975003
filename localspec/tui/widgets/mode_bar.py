"""The top line of every mode: the modes to click or choose by number, and what the engine does."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.widgets import Label

if TYPE_CHECKING:
    from localspec.tui.app import Setup
    from localspec.tui.engine import Status

STATES = {
    "off": ("○", "engine off"),
    "starting": ("◌", "starting"),
    "loading": ("◌", "loading"),
    "ready": ("●", "ready"),
    "busy": ("◉", "busy"),
    "dead": ("✗", "engine died"),
}
"""Sign and word of each engine state: never colour alone."""
LEAST_SETTINGS = 8
"""Cells; in fewer nothing of them can be read."""


class ModeTab(Label):
    class Chosen(Message):
        def __init__(self, mode: str) -> None:
            self.mode = mode
            super().__init__()

    def __init__(self, number: int, mode: str, title: str) -> None:
        super().__init__(id=f"mode-{mode}")
        self.mode = mode
        self._number, self._title = number, title
        self.show(opening=False)

    def show(self, *, opening: bool) -> None:
        self.update(f"[b]{'…' if opening else self._number}[/b] {self._title}")

    def on_click(self, _event: Click) -> None:
        self.post_message(self.Chosen(self.mode))


class EngineBadge(Label):
    """Says in a word what the engine does, and before that how it runs, where not as usual."""

    _told = Content()
    _settings = ""

    def show(self, status: Status) -> None:
        sign, word = STATES[status.state]
        if status.state == "busy":
            word = status.what.lower()
        elif status.state == "loading":
            word += f" {status.what}"
        self._told = Content(f"{sign} {word}")
        self._write()
        self.set_classes(f"-{status.state}")

    def show_settings(self, settings: str) -> None:
        if settings != self._settings:
            self._settings = settings
            self._write()

    def on_resize(self) -> None:
        if self._settings:
            self._write()

    def _write(self) -> None:
        room = self.content_size.width - self._told.cell_length - 2
        settings = Content()
        if self._settings and room >= LEAST_SETTINGS:
            settings = Content.styled(self._settings, "$text-muted").truncate(room, ellipsis=True)
            settings += "  "
        self.update(settings + self._told)


class ModeBar(Horizontal):
    MODES: ClassVar[dict[str, str]] = {
        "models": "Models",
        "chat": "Chat",
        "ab": "A/B",
        "bench": "Bench",
        "history": "History",
    }

    def __init__(self, current: str) -> None:
        super().__init__()
        self._current = current

    def compose(self) -> ComposeResult:
        yield Label("localspec", id="brand")
        for number, (mode, title) in enumerate(self.MODES.items(), 1):
            tab = ModeTab(number, mode, title)
            tab.set_class(mode == self._current, "-current")
            yield tab
        yield EngineBadge()

    def on_mount(self) -> None:
        self.watch(self.app, "engine_status", self._status_changed)
        self.watch(self.app, "setup", self._setup_changed)
        self.watch(self.app, "opening", self._opening, init=False)

    def _opening(self, mode: str | None) -> None:
        for tab in self.query(ModeTab):
            tab.show(opening=tab.mode == mode)

    def _setup_changed(self, setup: Setup) -> None:
        self.query_one(EngineBadge).show_settings(str(setup.engine))

    def _status_changed(self, status: Status) -> None:
        self.query_one(EngineBadge).show(status)
