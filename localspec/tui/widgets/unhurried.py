"""Widgets of many lines are painted part by part, so that keys are heard in between."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from textual.geometry import Region
from textual.strip import Strip

if TYPE_CHECKING:
    from textual.widget import Widget as _Base
else:
    _Base = object  # style sheets follow the first base that is a widget

PAINT_SECONDS = 0.012
"""So long a widget paints in one go; the lines that are left come right after."""


class Unhurried(_Base):
    """A base before that of a widget whose ``render_line`` takes long."""

    _until = 0.0
    _first = True
    _left = 0, 0  # first and last line that were left out

    def render_lines(self, crop: Region) -> list[Strip]:
        self._until = time.perf_counter() + PAINT_SECONDS
        self._left = 0, 0
        self._first = True  # there is always one line more
        strips = super().render_lines(crop)
        first, end = self._left
        if end:
            self.call_next(self.refresh, Region(0, first, self.size.width, end - first))
        return strips

    def render_line(self, y: int) -> Strip:
        if self._first or time.perf_counter() <= self._until:
            self._first = False
            return super().render_line(y)
        first, end = self._left
        self._left = (min(first, y), max(end, y + 1)) if end else (y, y + 1)
        return Strip.blank(self.size.width, self.rich_style)
