"""What a terminal sends as pasted, taken as it is.

Textual's parser looks for escape sequences inside of it: one in the text is typed as keys before
the rest, without up to 32 characters; and a pause of 0.1 s within the sequence that ends a paste,
as a slow connection makes, swallows all of it and what is typed after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from textual import events
from textual._xterm_parser import XTermParser
from textual.message import Message

START, END = "\x1b[200~", "\x1b[201~"
_UNSEEN = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # a control sequence, such as a colour
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # a title, a link
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f]"  # a lone control character
)


class PastingParser(XTermParser):
    """Textual's, which gets to see what stands outside of pastes alone."""

    def __init__(self, debug: bool = False) -> None:
        self._pasted: list[str] | None = None
        self._held = ""
        """The end of what came, where it may be the beginning of START or END."""
        self._begun = ""
        """So much of START Textual's parser has: it may as well be the Escape key."""
        super().__init__(debug)

    def feed(self, data: str) -> Iterable[Message]:
        if not data:
            yield from super().feed(data)
            return
        data, self._held = self._held + data, ""
        while data:
            if self._pasted is None:
                begun, self._begun = self._begun, ""
                if begun and data.startswith(START[len(begun) :]):
                    data = data[len(START) - len(begun) :]
                    # it is to forget what it has of START: an empty paste
                    rest = super().feed(START[len(begun) :] + END)
                    yield from (e for e in rest if not (isinstance(e, events.Paste) and not e.text))
                    self._pasted = []
                    continue
                before, start, data = data.partition(START)
                if start:
                    self._pasted = []
                else:
                    kept = _beginning(before, START)
                    if len(kept) > len("\x1b["):  # no key begins so and ends there
                        before, self._held = before[: -len(kept)], kept
                    else:
                        self._begun = kept
                if before:
                    yield from super().feed(before)
            else:
                text, end, data = data.partition(END)
                if end:
                    whole = "".join([*self._pasted, text])
                    self._pasted = None
                    yield events.Paste(_UNSEEN.sub("", whole))
                else:
                    self._held = _beginning(text, END)
                    self._pasted.append(text.removesuffix(self._held))


def _beginning(text: str, sequence: str) -> str:
    """The end of ``text`` that ``sequence`` begins with."""
    for length in range(min(len(text), len(sequence) - 1), 0, -1):
        if text.endswith(sequence[:length]):
            return sequence[:length]
    return ""
