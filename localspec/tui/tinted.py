"""What is seen of a screen below a dialog.

Textual mixes the colours of every piece of text on it, and splits it all into lines again: most of
the time that the first paint of a dialog takes. There are few styles on a screen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.color import Color
from textual.geometry import Size
from textual.strip import Strip
from textual.visual import RenderOptions, Visual

if TYPE_CHECKING:
    from textual.css.styles import RulesMap
    from textual.screen import Screen
    from textual.style import Style


class Tinted(Visual):
    """``screen`` with ``colour`` over it, without its links."""

    def __init__(self, screen: Screen[object], colour: Color) -> None:
        self._screen, self._colour = screen, colour

    def render_strips(
        self, width: int, height: int | None, style: Style, options: RenderOptions
    ) -> list[Strip]:
        base, found = style.rich_style, dict[RichStyle | None, RichStyle]()

        def tinted(segment: Segment) -> Segment:
            own = segment.style
            if own not in found:
                found[own] = base + self._mixed(own or RichStyle())
            return Segment(segment.text, found[own])

        below = self._screen._compositor.render_strips(Size(width, height or 0))
        return [Strip(map(tinted, strip), strip.cell_length) for strip in below[:height]]

    def _mixed(self, style: RichStyle) -> RichStyle:
        style = style.clear_meta_and_links()
        text, ground = (
            c and (Color.from_rich_color(c) + self._colour).rich_color
            for c in (style.color, style.bgcolor)
        )
        return style + RichStyle.from_color(text, ground)

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        return container_width

    def get_height(self, rules: RulesMap, width: int) -> int:
        return self._screen.size.height
