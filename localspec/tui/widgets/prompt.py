"""Where a question is written: grows with its text, Enter sends, a pasted page stays one text."""

from __future__ import annotations

from typing import ClassVar

from textual import events, on
from textual.binding import Binding, BindingType
from textual.message import Message

from localspec.tui.widgets.writing import Writing

LONG, LONG_LINE = 500, 4_000
"""A text of more lines, or with a line of more characters, is not wrapped: wrapping it anew at each
key takes longer than a person waits for."""


def is_long(text: str) -> bool:
    lines = text.split("\n")
    return len(lines) > LONG or max(map(len, lines)) > LONG_LINE


class Prompt(Writing):
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
        Binding("enter", "send", "Send", show=False),
        Binding(
            "ctrl+j,shift+enter,alt+enter",
            "newline",
            "New line",
            show=False,
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
        self.asked: list[str] = []
        """Earlier questions, the oldest first: up and down at the edges of the text reach them."""
        self._back = 0  # how far back in the history; 0: what is being written
        self._unsent = ""

    def action_send(self) -> None:
        self.post_message(self.Sent(self.text))

    def write(self, text: str) -> None:
        """Put ``text`` in place of what is there, the cursor at its end."""
        long = is_long(text)
        if long:
            self.soft_wrap = False
        self.load_text(text)
        if not long:
            self.soft_wrap = True
        self.move_cursor(self.document.end)

    def action_cursor_up(self, select: bool = False) -> None:
        if select or not self.cursor_at_first_line or self._back >= len(self.asked):
            super().action_cursor_up(select)
            return
        if not self._back:
            self._unsent = self.text
        self._recall(self._back + 1)

    def action_cursor_down(self, select: bool = False) -> None:
        if select or not self.cursor_at_last_line or not self._back:
            super().action_cursor_down(select)
            return
        self._recall(self._back - 1)

    def _recall(self, back: int) -> None:
        self._back = back
        self.write(self.asked[-back] if back else self._unsent)

    def remember(self, text: str) -> None:
        """``text`` was sent: the newest of the history."""
        self.asked = [*(t for t in self.asked if t != text), text]
        self._back, self._unsent = 0, ""

    async def _on_paste(self, event: events.Paste) -> None:
        """What is pasted is put in afterwards, by the class above."""
        if is_long(self.text + event.text):
            self.soft_wrap = False

    @on(events.Resize)
    def _stays_as_it_is(self, event: events.Resize) -> None:
        if not self.soft_wrap:  # Textual wraps it anew all the same
            event.prevent_default()

    def action_newline(self) -> None:
        self.insert("\n")

    async def _on_key(self, event: events.Key) -> None:
        # Here, in the order of typing: a priority binding would overtake the letters before it.
        if event.key == "enter":
            action = self.action_send
        elif event.key in ("ctrl+j", "shift+enter", "alt+enter"):
            action = self.action_newline
        else:
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()
        action()
