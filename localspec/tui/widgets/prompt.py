"""Where a question is written: grows with its text, Enter sends, a pasted page stays one text."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea


class Prompt(TextArea):
    DEFAULT_CSS = """
    Prompt {
        height: auto;
        min-height: 3;
        max-height: 10;
        border: round $border-blurred;
        background: $background;
        padding: 0 1;
        &:focus { border: round $border; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "send", "Send", priority=True),
        Binding(
            "ctrl+j,shift+enter,alt+enter",
            "newline",
            "New line",
            show=False,
            priority=True,
            tooltip="A new line in the question",
        ),
    ]

    class Sent(Message):
        def __init__(self, text: str) -> None:
            self.text = text
            super().__init__()

    def __init__(self) -> None:
        super().__init__(
            soft_wrap=True, show_line_numbers=False, tab_behavior="focus", compact=False
        )

    def action_send(self) -> None:
        if self.text.strip():
            self.post_message(self.Sent(self.text))

    def action_newline(self) -> None:
        self.insert("\n")

    async def _on_key(self, event: events.Key) -> None:
        # The bindings above have had their say; TextArea would make newlines of them.
        if event.key != "enter":
            await super()._on_key(event)
