"""The engine died: how, the end of its log, and a fresh start at one key."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Static

from localspec.errors import EngineDied
from localspec.tui.screens.base import Dialog
from localspec.tui.widgets.footer import Footer

Choice = Literal["restart", "close"]


class EngineLostScreen(Dialog[Choice]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "choose('restart')", "Restart"),
        Binding("l", "log", "Whole log"),
        Binding("escape", "choose('close')", "Close"),
    ]

    def __init__(self, error: EngineDied) -> None:
        super().__init__()
        self._error = error

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -error") as box:
            box.border_title = f"The engine process died ({self._error.how})"
            yield Static("Nothing else is lost: conversations and finished runs are kept.")
            with VerticalScroll(id="log-tail"):
                yield Static(Content("\n".join(self._error.log_tail) or "Its log is empty."))
            if self._error.log_file:
                yield Static(Content(self._error.log_file), classes="dim")
            with Horizontal(classes="buttons"):
                yield Button("Restart", variant="primary", id="restart")
                yield Button("Whole log", id="log")
                yield Button("Close", id="close")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one("#log-tail").scroll_end(animate=False)
        self.query_one("#restart").focus()

    @on(Button.Pressed, "#restart")
    def _restart(self) -> None:
        self.dismiss("restart")

    @on(Button.Pressed, "#close")
    def _close(self) -> None:
        self.dismiss("close")

    @on(Button.Pressed, "#log")
    def action_log(self) -> None:
        self.app.push_screen(LogScreen(Path(self._error.log_file)))

    def action_choose(self, choice: Choice) -> None:
        self.dismiss(choice)


LOG_BYTES = 256 * 1024
"""Of a log, so much of its end is shown."""


class LogScreen(Dialog[None]):
    """The end of the engine's log."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss", "Close")]

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="whole-log", classes="dialog") as box:
            box.border_title = Content(str(self._path))
            yield Static(Content(self._text()))
        yield Footer(show_command_palette=False)

    def _text(self) -> str:
        try:
            with self._path.open("rb") as file:
                file.seek(max(0, file.seek(0, 2) - LOG_BYTES))
                return file.read().decode("utf-8", "replace")
        except OSError as error:
            return f"The log cannot be read: {error.strerror or error}."

    def on_mount(self) -> None:
        box = self.query_one("#whole-log")
        box.focus()
        box.scroll_end(animate=False)
