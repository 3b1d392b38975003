"""The engine died: how, the end of its log, and a fresh start at one key."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar, Literal

from rich.cells import chop_cells
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Log, Static

from localspec.errors import EngineDied
from localspec.tui.screens.base import Dialog
from localspec.tui.widgets.footer import Footer

Choice = Literal["restart", "close"]


class EngineLostScreen(Dialog[Choice]):
    AUTO_FOCUS = "#restart"
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
            box.border_title = Content(f"The engine process died ({self._error.how})")
            yield Static("Conversations and finished runs are kept.")
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
    """The end of the engine's log, long lines folded. It is read in another thread, and only what
    is in sight is laid out."""

    AUTO_FOCUS = "Log"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "Close", key_display="esc")
    ]
    DEFAULT_CSS = """
    LogScreen Log {
        height: 1fr; overflow: hidden scroll; background: transparent;
        &:focus { background-tint: transparent; }
    }
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def compose(self) -> ComposeResult:
        with Vertical(id="whole-log", classes="dialog") as box:
            box.border_title = Content(str(self._path))
            yield Log()
        yield Footer(show_command_palette=False)

    def on_resize(self) -> None:
        self.call_after_refresh(self._show)  # when the log is as wide as it will be

    @work(exclusive=True, group="look")
    async def _show(self) -> None:
        log = self.query_one(Log)
        width = log.scrollable_content_region.width
        text = await asyncio.to_thread(_end_of, self._path, width)
        log.clear()
        log.write_lines([text])


def _end_of(path: Path, width: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - LOG_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError as error:
        return f"The log cannot be read: {error.strerror or error}."
    lines = (line.expandtabs() for line in text.splitlines())
    return "\n".join(part for line in lines for part in chop_cells(line, max(width, 1)) or [""])
