"""Markdown that streams in, as one widget that draws the lines which can be seen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from itertools import islice

from rich.segment import Segment
from textual.content import Content
from textual.geometry import Region, Size
from textual.reactive import reactive
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.widget import Widget

from localspec.tui.markdown import Document, Line, add_lines
from localspec.tui.polite import PAUSE
from localspec.tui.widgets.growing import Growing

AT_ONCE = 12
"""Closed blocks that are wrapped in one go; more take turns with the event loop."""
WRAP_SECONDS = 0.005
"""So long texts are wrapped anew in one go."""
PART = 400
"""Characters of a kept text that are parsed in one go."""
SHOW_SECONDS = 0.3
"""A kept text is shown at most so often while it is parsed: a layout takes as long as a part."""
PAINT_PAUSE = 0.03
"""So long nothing is parsed then: a screen is painted up to 17 ms later, and not in the same turn
of the event loop as a part is parsed."""


class MarkdownView(Growing, Widget):
    KEEPS = True
    COMPONENT_CLASSES = {  # noqa: RUF012  Textual's own form
        "heading",
        "subheading",
        "strong",
        "em",
        "strike",
        "code",
        "code-inline",
        "mark",
        "faint",
        "drafted",
    }
    DEFAULT_CSS = """
    MarkdownView {
        height: auto;
        & > .heading { text-style: bold underline; color: $primary; }
        & > .subheading { text-style: bold; color: $primary; }
        & > .strong { text-style: bold; }
        & > .em { text-style: italic; }
        & > .strike { text-style: strike; }
        & > .code { background: $surface; }
        & > .code-inline { color: $warning; }
        & > .mark { color: $secondary; }
        & > .faint { color: $text-disabled; }
        & > .drafted { background: $accent 22%; }
        &.-thinking { color: $text-muted; }
    }
    """
    ALLOW_SELECT = True
    tinted: reactive[bool] = reactive(True)
    """Show which text was drafted."""

    def __init__(self, *, classes: str | None = None) -> None:
        super().__init__(classes=classes)
        self.document = Document()
        self._width = 0
        self._closed_lines: list[Line] = []
        self._shown = 0  # lines when it was laid out
        self._wrapped = 0  # closed blocks in those lines
        self._open_lines: list[Line] = []
        self._lent: Line | None = None  # the last closed line, if the open ones go on with it
        self._strips: dict[int, Strip] = {}
        self._rewrapping = False
        self._changed = 0  # the first line that may have changed since it was shown

    # ---- text ---------------------------------------------------------------------------------

    def append(self, text: str, *, drafted: bool = False) -> None:
        """Takes effect with the next ``flush``."""
        self.document.append(text, drafted=drafted)

    def flush(self) -> None:
        """Show what was appended."""
        self._take_in()
        lines = len(self._closed_lines) + len(self._open_lines)
        end = max(lines, self._shown)
        changed = Region(0, self._changed, self.size.width, max(end - self._changed, 0))
        self.refresh(changed, layout=lines != self._shown)
        self._shown, self._changed = lines, lines

    def _take_in(self) -> None:
        self.document.parse()
        if not self._width or self._rewrapping:
            return
        first = max(len(self._closed_lines) - 1, 0)  # the last one may be gone on with
        before = [*self._closed_lines[first:], *self._open_lines]
        self._wrap_new()
        end = first + len(before)
        for line in before:
            if not line.is_same(self._line(first)):
                break
            first += 1
        for y in range(first, end):
            self._strips.pop(y, None)
        self._changed = min(self._changed, first)

    async def fill(self, runs: Iterable[tuple[str, bool]]) -> None:
        """A whole text, as (text, was it drafted) in turn; the event loop goes on meanwhile."""
        waiting = 0
        shown = time.monotonic() - SHOW_SECONDS
        for text, drafted in runs:
            for start in range(0, len(text), PART):
                part = text[start : start + PART]
                self.append(part, drafted=drafted)
                waiting += len(part)
                if waiting < PART:
                    continue
                waiting = 0
                for _ in self.document.parsing():
                    await asyncio.sleep(PAUSE)
                if time.monotonic() - shown < SHOW_SECONDS:
                    self._take_in()
                    await asyncio.sleep(PAUSE)
                else:
                    shown = time.monotonic()
                    self.flush()
                    await asyncio.sleep(PAINT_PAUSE)
        self.flush()

    # ---- lines --------------------------------------------------------------------------------

    def _wrap_new(self) -> None:
        """Bring the lines up to the blocks."""
        if self._lent:
            self._closed_lines.append(self._lent)
        for block in islice(self.document.closed, self._wrapped, None):
            add_lines(self._closed_lines, block, self._width)
            self._wrapped += 1
        # where the open blocks begin depends on the closed line before them
        before = self._closed_lines[-1:]
        lines = list(before)
        for block in self.document.open:
            add_lines(lines, block, self._width)
        joined = bool(before and self.document.open and self.document.open[0].joint is not None)
        self._lent = self._closed_lines.pop() if joined else None
        self._open_lines = lines if joined else lines[len(before) :]

    def _set_width(self, width: int) -> None:
        if width == self._width or width < 1:
            return
        first = not self._width
        self._width = width
        if first or len(self.document.closed) <= AT_ONCE:
            self._closed_lines, self._wrapped, self._lent = [], 0, None
            self._wrap_new()
            self._strips.clear()
        else:
            self._rewrapping = True
            self.run_worker(self._rewrap(width), exclusive=True, group="rewrap")

    async def _rewrap(self, width: int) -> None:
        """Long texts to another width, bit by bit; the old lines stand until that is done."""
        closed: list[Line] = []
        done = 0
        while done < len(self.document.closed):
            until = time.monotonic() + WRAP_SECONDS
            for block in islice(self.document.closed, done, None):
                add_lines(closed, block, self._width)
                done += 1
                if time.monotonic() > until:
                    break
            await asyncio.sleep(PAUSE)
            if width != self._width:
                return
        self._closed_lines, self._wrapped, self._rewrapping = closed, done, False
        self._lent = None
        self._wrap_new()
        self._strips.clear()
        self.refresh(layout=True)

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        self._set_width(width)
        self._shown = len(self._closed_lines) + len(self._open_lines)
        return self._shown

    # ---- drawing ------------------------------------------------------------------------------

    def watch_tinted(self) -> None:
        self._strips.clear()
        self.refresh()

    def notify_style_update(self) -> None:
        self._strips.clear()
        super().notify_style_update()

    def _line(self, y: int) -> Line:
        if y < len(self._closed_lines):
            return self._closed_lines[y]
        y -= len(self._closed_lines)
        return self._open_lines[y] if y < len(self._open_lines) else Line(Content())

    def render_line(self, y: int) -> Strip:
        selected = self.text_selection
        if selected is None and (known := self._strips.get(y)) is not None:
            return known
        content, fill = self._line(y)
        if not self.tinted:
            content = Content(
                content.plain, [span for span in content.spans if span.style != ".drafted"]
            )
        style = self.get_visual_style(fill) if fill else self.visual_style
        if selected is not None and (span := selected.get_span(y)) is not None:
            start, end = span
            marked = Style.from_styles(self.screen.get_component_styles("screen--selection"))
            content = content.stylize(marked, start, len(content) if end < 0 else end)
        width = self.content_size.width or self._width
        # it is wrapped already: Content's own strips cost twice as much
        pieces = content.render(style, end="", parse_style=self._span_style)
        drawn = Strip([Segment(text, look.rich_style) for text, look in pieces])
        strip = drawn.adjust_cell_length(width, style.rich_style).apply_offsets(0, y)
        if selected is None:
            self._strips[y] = strip
        return strip

    def _span_style(self, style: Style | str) -> Style:
        """Textual darkens a background of less than 100 % twice: of a tint too little is left for
        256 colours, which is what SSH passes on of a terminal's."""
        if style != ".drafted":
            return self._get_style(style)
        own = self.get_component_styles("drafted")
        return Style(background=own.background, underline=own.text_style.underline)

    # ---- selection ----------------------------------------------------------------------------

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        lines = (line.content.plain.rstrip() for line in (*self._closed_lines, *self._open_lines))
        return selection.extract("\n".join(lines)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self._strips.clear()
        self.refresh()

    def action_link(self, target: str) -> None:
        self.app.open_url(target)
