"""A benchmark's result on the screen: the tables and sentences of the headless bench, and plots."""

from __future__ import annotations

from collections.abc import Sequence
from operator import le
from typing import Any, ClassVar

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.coordinate import Coordinate
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
)
from localspec.tui.widgets.plots import ReachPlot, SpeedPlot
from localspec.tui.widgets.unhurried import Unhurried
from localspec.tui.wording import in_app

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
SIDEWAYS = 12
"""Columns by which an arrow moves the table."""
SIDE_BY_SIDE = 96
"""From this width on the plots stand beside each other."""


class Figures(Unhurried, DataTable[Text]):
    """A table of ``Column``s; cells are changed in place as long as its columns stay."""

    DEFAULT_CSS = """
    Figures {
        height: auto;
        background: $background;
        scrollbar-size-horizontal: 1;
        &> .datatable--fixed, &> .datatable--fixed-cursor { background: $background; }
        &> .datatable--cursor { background: $boost; color: $foreground; }
        &:focus > .datatable--cursor, &:focus > .datatable--fixed-cursor {
            background: $line-cursor;
        }
    }
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(cursor_type="row", cell_padding=1, **given)
        self._shown: tuple[Column, ...] = ()
        self._widths: list[int] = []

    def fill(self, chosen: Sequence[Column], items: Sequence[Any]) -> None:
        rows = [[self._cell(c, c.cell(item, UNICODE)) for c in chosen] for item in items]
        # given, not found by the table: it would paint once before it has measured its cells
        widths = [
            max([*map(len, column.title.split("\n")), *(row[at].cell_len for row in rows)])
            for at, column in enumerate(chosen)
        ]
        roomy = len(widths) == len(self._widths) and all(map(le, widths, self._widths))
        if tuple(chosen) == self._shown and len(rows) == self.row_count and roomy:
            for y, cells in enumerate(rows):
                for x, cell in enumerate(cells):
                    place = Coordinate(y, x)
                    if self.get_cell_at(place) != cell:
                        self.update_cell_at(place, cell)
            return
        row = self.cursor_row
        self.clear(columns=True)
        self._shown, self._widths = tuple(chosen), widths
        self.header_height = 1 + max((c.title.count("\n") for c in chosen), default=0)
        for column, width in zip(chosen, widths, strict=True):
            label = Text(column.title, justify="right" if column.right else "left")
            self.add_column(label, width=width)
        self.fixed_columns = sum(c.head for c in chosen)
        for cells in rows:
            self.add_row(*cells)
        self.move_cursor(row=min(row, max(0, len(rows) - 1)))

    def _cell(self, column: Column, text: str) -> Text:
        colour = next((name for word, name in WORDS.items() if word in text), None)
        style = self.app.theme_variables.get(colour, "") if colour else ""
        # "auto 87%" is a mixture that only a style sheet can resolve
        style = style if style.startswith("#") else ""
        return Text(text, style, justify="right" if column.right else "left")


class Page(VerticalScroll):
    """A page with a table that may be wider than it: the arrows move it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "sideways(-1)", "Table left", show=False),
        Binding("right", "sideways(1)", "Table right", show=False),
    ]

    def action_sideways(self, way: int) -> None:
        self.query_one(Figures).scroll_relative(x=way * SIDEWAYS, animate=False)


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
        #plots { height: auto; margin-top: 1; }
        &.-narrow #plots { layout: vertical; }
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
        self.set_class(self.size.width < SIDE_BY_SIDE, "-narrow")
        if self._result is not None and not self._live:
            self._show_parts(self._result)

    def show(self, result: Json, *, live: bool = False) -> None:
        """``live``: more runs will come, so nothing is concluded yet."""
        self._result, self._live = result, live
        if not self.is_mounted:
            return
        for child in self.children:
            child.display = True
        self._say("#heading", [heading(result, self.size.width - 2)])
        chosen = live_columns(result) if live else columns(result)
        self.query_one(Figures).fill(chosen, result["candidates"])
        self._say("#alarms", alarms(result))
        self._say("#answer", [] if live else conclusions(result))
        self._show_advice(result)
        self._say("#notes", [] if live else notes(result))
        self.query_one(SpeedPlot).show(result)
        self.query_one(ReachPlot).show(result)
        if live:
            self.query_one("#parts").display = False
        else:
            self._show_parts(result)

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
            table.add_row("•", said["text"])
            table.add_row("→", in_app(said["next"], "bench"))
        place = self.query_one("#advice", Static)
        place.border_title = "Advice so far" if self._live else "Advice"
        place.display = bool(given)
        place.update(table)

    def _show_parts(self, result: Json) -> None:
        console = Console(width=max(40, self.size.width - 4))
        tables = by_workload(result, UNICODE, console)
        parts = self.query_one("#parts", Static)
        parts.display = bool(tables)
        parts.update(Group(*(part for table in tables for part in (table, ""))))

    def _say(self, where: str, lines: Sequence[str]) -> None:
        place = self.query_one(where, Static)
        place.display = bool(lines)
        place.update(Content("\n".join(lines)))
