"""Text drawn as the blocks in which the target's passes gave it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual.content import Content, Span
from textual.events import Resize

from localspec.tui.widgets.steady import Steady

BLOCK = "on $primary 25% underline"
"""Every second block: tinted, and underlined for terminals and eyes without colours."""
PARTED = "$text-error reverse bold"


def block_text(texts: Sequence[str], *, first: int = 0, parted: int | None = None) -> Content:
    """Neighbouring passes look different; ``first`` is the number of the first one given, and
    ``parted`` the pass from which on the text is another than the other side's."""
    spans = []
    place = 0
    shown = [_visible(text) for text in texts]
    for number, text in enumerate(shown, first):
        end = place + len(text)
        if number == parted:
            spans.append(Span(place, end, PARTED))
        elif number % 2 and text:
            spans.append(Span(place, end, BLOCK))
        place = end
    return Content("".join(shown), spans=spans)


def _visible(text: str) -> str:
    """A model may write control characters; a terminal must not obey them."""
    text = text.expandtabs(4)
    if text.isprintable():
        return text
    return "".join(c if c == "\n" or c.isprintable() else "\ufffd" for c in text)


class PassText(Steady):
    """Whole, or only as much of its end as fits ``rows``: two texts that grow at different speeds
    then show both their ends."""

    DEFAULT_CSS = """
    PassText { width: 1fr; height: auto; padding: 0 1; }
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._texts: Sequence[str] = ()
        self._rows: int | None = None
        self._parted: int | None = None
        self.blocks = True

    def show(
        self, texts: Sequence[str], *, rows: int | None = None, parted: int | None = None
    ) -> None:
        if (texts, rows, parted) != (self._texts, self._rows, self._parted):
            self._texts, self._rows, self._parted = texts, rows, parted
            self.draw()

    def on_resize(self, event: Resize) -> None:
        if self._rows is not None:
            self.draw()

    def draw(self) -> None:
        width = self.content_size.width
        if self._rows is None or width < 1:
            self.update(self._content(0))
            return
        self.update(Content("\n").join(self._last_rows(self._rows, width)))

    def _last_rows(self, rows: int, width: int) -> list[Content]:
        """The ends of the whole text's rows. A row depends on what is before it as far as the last
        newline: only from one of those on is it wrapped, and a long text costs no more than a
        short one."""
        first, room = len(self._texts), rows * width
        while True:
            while first > 0 and room > 0:
                first -= 1
                room -= len(self._texts[first])
            content = self._content(first)
            start = content.plain.find("\n") + 1 if first else 0
            lines = content[start:].wrap(width) if start or not first else []
            if not first or len(lines) >= rows:
                return lines[-rows:]
            room = len(content)  # twice as far back

    def _content(self, first: int) -> Content:
        content = block_text(self._texts[first:], first=first, parted=self._parted)
        return content if self.blocks else Content(content.plain)
