"""A benchmark's result on the screen: the tables and sentences of the headless bench, and plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import le
from typing import Any, ClassVar

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.coordinate import Coordinate
from textual.message import Message
from textual.widgets import DataTable, Static

from localspec.bench.table import (
    UNICODE,
    Column,
    alarms,
    by_workload,
    columns,
    conclusions,
    heading,
    live_columns,
    notes,
    shows_workloads,
)
from localspec.tui.widgets.plots import ReachPlot, SpeedPlot
from localspec.tui.wording import in_app
from localspec.units import many

Json = dict[str, Any]
WORDS = {
    "faster": "text-success",
    "better": "text-success",
    "slower": "text-warning",
    "REGRESSION": "text-error",
    "MISMATCH": "text-error",
    "crashed": "text-error",
    "refused": "text-error",
}
"""Colours of cells that begin with, or hold, such a word: the word says it too."""

MISFIT = 2
"""Of the rules of ``bench.advice``, the one about drafters that belong to something else."""
ALONE = {UNICODE.down: "text-error"}
"""Colours of cells that are nothing but such a sign."""
PADDING = 1
"""Of a cell, on either side."""
SCROLLBAR = 2
SIDE_BY_SIDE = 96
"""From this width on the plots stand beside each other."""


class Figures(DataTable[Text]):
    """A table of ``Column``s; cells are changed in place as long as its columns stay. Of more than
    there is room for it shows as many as fit whole, and the arrows go on to the next."""

    class Shown(Message):
        """``before`` and ``after``: how many columns there is no room for, on either side."""

        def __init__(self, before: int, after: int) -> None:
            self.before, self.after = before, after
            super().__init__()

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "sideways(-1)", "Columns before", show=False),
        Binding("right", "sideways(1)", "Columns after", show=False),
    ]

    DEFAULT_CSS = """
    Figures {
        height: auto;
        background: $background;
        scrollbar-size-horizontal: 1;
        &> .datatable--fixed, &> .datatable--fixed-cursor { background: $background; }
        &> .datatable--cursor { background: $boost; color: $foreground; }
        &:focus > .datatable--cursor, &:focus > .datatable--fixed-cursor {
            background: $line-cursor;
            color: $line-cursor-text;
        }
    }
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(cursor_type="row", cell_padding=PADDING, **given)
        self._given: tuple[Column, ...] = ()
        self._items: Sequence[Any] = ()
        self._wanted_from = 0
        """Of those that are no head; where there is room for columns before it, they stay."""
        self._colours: dict[str, str] = {}
        self._hidden = 0, 0
        self._shown: tuple[tuple[Any, ...], ...] = ()
        self._widths: list[int] = []

    def fill(self, chosen: Sequence[Column], items: Sequence[Any]) -> None:
        if [c.title for c in chosen] != [c.title for c in self._given]:
            self._wanted_from = 0
        self._given, self._items = tuple(chosen), items
        self._draw()

    def on_resize(self) -> None:
        if self._given:
            self._draw()

    def action_sideways(self, way: int) -> None:
        if self._hidden[way > 0]:
            self._wanted_from = self._hidden[0] + way
            self._draw()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self._given and self._colours != self._colours_now():
            self._draw()

    @property
    def room(self) -> int:
        """Columns of the terminal; before it is laid out, as many as there will be at least."""
        return self.scrollable_content_region.width or self.app.size.width - 2 - SCROLLBAR

    def _colours_now(self) -> dict[str, str]:
        """By name. "auto 87%" is a mixture that only a style sheet can resolve."""
        variables = self.app.theme_variables
        names = (*WORDS.values(), *ALONE.values())
        return {n: colour for n in names if (colour := variables.get(n, "")).startswith("#")}

    def _draw(self) -> None:
        self._colours = self._colours_now()
        cells = {c: [self._cell(c, c.cell(it, UNICODE)) for it in self._items] for c in self._given}
        # given, not found by the table: it would paint once before it has measured its cells
        wide = {
            c: max([*map(len, c.title.split("\n")), *(cell.cell_len for cell in cells[c])])
            for c in self._given
        }
        head = [c for c in self._given if c.head]
        others = [c for c in self._given if not c.head]

        def together(columns: Sequence[Column]) -> int:
            return sum(wide[c] + 2 * PADDING for c in columns)

        room = self.room - together(head)
        first = self._wanted_from
        while first and together(others[first - 1 :]) <= room:
            first -= 1
        rest = others[first:]
        fit = next((n for n in range(len(rest), 1, -1) if together(rest[:n]) <= room), 1)
        self._hidden = first, max(0, len(rest) - fit)
        self.post_message(self.Shown(*self._hidden))
        self._put((*head, *rest[:fit]), cells, wide)

    def _put(
        self,
        shown: Sequence[Column],
        cells: Mapping[Column, Sequence[Text]],
        wide: Mapping[Column, int],
    ) -> None:
        named, widths = tuple((c.title, c.right, c.head) for c in shown), [wide[c] for c in shown]
        rows = list(zip(*(cells[c] for c in shown), strict=True))
        roomy = len(widths) == len(self._widths) and all(map(le, widths, self._widths))
        if named == self._shown and len(rows) == self.row_count and roomy:
            for y, line in enumerate(rows):
                for x, cell in enumerate(line):
                    place = Coordinate(y, x)
                    drawn = self.get_cell_at(place)
                    if (drawn, drawn.style) != (cell, cell.style):
                        self.update_cell_at(place, cell)
            return
        row, scrolled = self.cursor_row, self.scroll_offset.y
        self.clear(columns=True)
        self._shown, self._widths = named, widths
        self.header_height = 1 + max((c.title.count("\n") for c in shown), default=0)
        for column, width in zip(shown, widths, strict=True):
            label = Text(column.title, justify="right" if column.right else "left")
            self.add_column(label, width=width)
        self.fixed_columns = sum(c.head for c in shown)
        for line in rows:
            self.add_row(*line)
        if scrolled:
            self.call_after_refresh(self.scroll_to, y=scrolled, animate=False)
        self.move_cursor(row=min(row, max(0, len(rows) - 1)))

    def _cell(self, column: Column, text: str) -> Text:
        colour = ALONE.get(text) or next((c for word, c in WORDS.items() if word in text), None)
        style = self._colours.get(colour or "", "")
        return Text(text, style, justify="right" if column.right else "left")


class Hidden(Static):
    """Says that a table has more columns than there is room for."""

    DEFAULT_CSS = """
    Hidden { height: auto; color: $text-muted; padding: 0 1; }
    """

    def on_mount(self) -> None:
        self.display = False

    def say(self, shown: Figures.Shown) -> None:
        parts = [f"← {many(shown.before, 'column')}"] if shown.before else []
        parts += [f"→ {many(shown.after, 'more column')}"] if shown.after else []
        self.update("   ".join(parts))
        self.display = bool(parts)


class Page(VerticalScroll):
    """A page with a table that may be wider than it: the arrows move it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "sideways(-1)", "Table left", show=False),
        Binding("right", "sideways(1)", "Table right", show=False),
    ]

    def action_sideways(self, way: int) -> None:
        self.query_one(Figures).action_sideways(way)

    @on(Figures.Shown)
    def _say_what_is_hidden(self, message: Figures.Shown) -> None:
        message.stop()
        self.query_one(Hidden).say(message)


class ReportView(Page):
    """``show`` a result, whole or while it is measured."""

    DEFAULT_CSS = """
    ReportView {
        height: 1fr;
        padding: 0 1;
        Static { height: auto; }
        #heading { text-style: bold; }
        #alarms { color: $text-error; text-style: bold; }
        #answer { text-style: bold; color: $accent; }
        #alarms, #answer, #parts { margin-top: 1; }
        #advice {
            margin-top: 1;
            padding: 0 1;
            border: round $border-blurred;
            border-title-color: $foreground;
        }
        #notes { color: $text-muted; }
        #plots { height: auto; margin-top: 1; &.-narrow { layout: vertical; } }
        scrollbar-size-vertical: 1;
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._result: Json | None = None
        self._live = False

    def compose(self) -> ComposeResult:
        yield Static(id="heading")
        yield Figures()
        yield Hidden()
        yield Static(id="alarms")
        yield Static(id="answer")
        yield Static(id="advice")
        with Horizontal(id="plots"):
            yield SpeedPlot()
            yield ReachPlot()
        yield Static(id="parts")
        yield Static(id="notes")

    def on_mount(self) -> None:
        if self._result is not None:
            self.show(self._result, live=self._live)
        else:
            self.clear()

    def on_resize(self) -> None:
        self.query_one("#plots").set_class(self.size.width < SIDE_BY_SIDE, "-narrow")
        self.call_after_refresh(self._show_parts)

    def show(self, result: Json, *, live: bool = False) -> None:
        """``live``: more runs will come, so nothing is concluded yet."""
        self._result, self._live = result, live
        if not self.is_mounted:
            return
        self.query_one("#heading").display = self.query_one(Figures).display = True
        self.query_one("#plots").display = True
        self._say("#heading", [heading(result, self.size.width - 2)])
        chosen = live_columns(result) if live else columns(result)
        self.query_one(Figures).fill(chosen, result["candidates"])
        self._say("#alarms", alarms(result))
        self._say("#answer", [] if live else conclusions(result))
        self._show_advice(result)
        self._say("#notes", [] if live else notes(result, parts=shows_workloads(result)))
        self.query_one(SpeedPlot).show(result)
        self.query_one(ReachPlot).show(result)
        self.query_one("#parts").display = False
        if not live:  # after the rest is painted: they take as long, and stand far below
            self.call_after_refresh(self._show_parts)

    def clear(self) -> None:
        """Nothing is measured yet."""
        self._result = None
        for child in self.children:
            child.display = False

    def _show_advice(self, result: Json) -> None:
        """While it is measured, only that a drafter does not fit: the counts of a part of the runs
        say that, and it saves the rest of them; all else needs all runs."""
        given = [a for a in result["advice"] if not self._live or a["rule"] == MISFIT]
        table = Table.grid(padding=(0, 1))
        for said in given:
            table.add_row("•", Text(said["text"]))  # a str would be markup
            table.add_row("→", Text(in_app(said["next"], "bench")))
        place = self.query_one("#advice", Static)
        place.border_title = "Advice so far" if self._live else "Advice"
        place.display = bool(given)
        place.update(table)

    def _show_parts(self) -> None:
        if self._result is None or self._live:
            return
        console = Console(width=max(40, self.size.width - 4))
        tables = by_workload(self._result, UNICODE, console)
        parts = self.query_one("#parts", Static)
        parts.display = bool(tables)
        parts.update(Group(*(part for table in tables for part in (table, ""))))

    def _say(self, where: str, lines: Sequence[str]) -> None:
        place = self.query_one(where, Static)
        place.display = bool(lines)
        place.update(Content("\n".join(lines)))
