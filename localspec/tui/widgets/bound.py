"""Text with blanks at which no line ends: a key and its word stay together."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.cells import cell_len
from textual.content import Content
from textual.css.styles import RulesMap
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual

NO_BREAK = "\u00a0"
_WORD = re.compile(r"[^ ]+ *")


def hint(key: str, words: str) -> Content:
    """``key`` and what it does, in one piece."""
    return Content.assemble((key, "bold $accent"), NO_BREAK, words.replace(" ", NO_BREAK))


class Bound(Visual):
    """``content``, whose no-break spaces are kept to. (Textual wraps with rich, to which they are
    spaces as any other.)"""

    def __init__(self, content: Content) -> None:
        self.content = content

    def __str__(self) -> str:
        return self.content.plain

    def wrapped(self, width: int) -> Content:
        return Content("\n").join(
            part for line in self.content.split(allow_blank=True) for part in _parts(line, width)
        )

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        return self.content.get_optimal_width(rules, container_width)

    def get_height(self, rules: RulesMap, width: int) -> int:
        return self.wrapped(width).get_height(rules, width)

    def render_strips(
        self, width: int, height: int | None, style: Style, options: RenderOptions
    ) -> list[Strip]:
        return self.wrapped(width).render_strips(width, height, style, options)


def _parts(line: Content, width: int) -> Iterator[Content]:
    """``line`` in pieces that end at spaces and are no wider than ``width``, as far as words go."""
    plain, start, room = line.plain, 0, width
    for word in _WORD.finditer(plain):
        if cell_len(word[0].rstrip(" ")) > room and word.start() > start:
            yield line[start : word.start()].rstrip()
            start, room = word.start(), width
        room -= cell_len(word[0])
    yield line[start:]
