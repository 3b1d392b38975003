"""The table of the Models screen: groups under headings that the cursor steps over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from textwrap import shorten
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.coordinate import Coordinate
from textual.widgets import DataTable

from localspec.tui.model_rows import Row, verdict_words
from localspec.tui.pulls import Pull
from localspec.tui.widgets.downloads import bar, share_of
from localspec.units import file_size, shortened

MOST = 300
"""Lines that are shown; more are found with the filter."""
WIDE = 100
"""Columns from which on there is room for titles."""
BAR = 6
_HEADING = "heading "


class ModelTable(DataTable[Text]):
    """``show`` fills it, ``state`` redraws one line's state."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter",
            "select_cursor",
            "Use",
            tooltip="Choose this model and its drafter; downloads it where it is not here",
        ),
        Binding("home", "scroll_top", show=False),  # the table's own are for columns
        Binding("end", "scroll_bottom", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(cursor_type="row", zebra_stripes=False)
        self._columns_for = 0

    def show(self, rows: Iterable[Row], fits: Mapping[str, str]) -> None:
        """The rows by their groups; the cursor stays on its line, else goes to the first."""
        at = self.key
        line = self.cursor_row
        self._make_columns()
        self.clear()
        count = 0
        for group, members in groupby(rows, key=lambda row: row.group):
            lines = list(members)
            self.add_row(
                Text(f"{group}", style=f"bold {self.app.current_theme.primary}"),
                key=_HEADING + group,
            )
            for row in lines:
                count += 1
                if count <= MOST:
                    self.add_row(*self._cells(row, fits.get(row.key)), key=row.key)
            if count > MOST:
                self.add_row(Text("more: filter with /", style="dim"), key=_HEADING + "more")
                break
        if at is not None and at in self.rows:
            line = self.get_row_index(at)
        self._go(min(max(line, 1), max(self.row_count - 1, 0)))

    @property
    def key(self) -> str | None:
        """That of the line under the cursor; None on a heading."""
        return self._key_of(self.cursor_row)

    def _key_of(self, line: int) -> str | None:
        if not self.is_valid_row_index(line):
            return None
        value = self.coordinate_to_cell_key(Coordinate(line, 0)).row_key.value
        return None if value is None or value.startswith(_HEADING) else value

    def state(self, row: Row) -> None:
        if row.key in self.rows:
            self.update_cell(row.key, "state", self._state(row))

    def go_to(self, key: str) -> None:
        """The cursor, to a line that is shown; elsewhere it stays."""
        if key in self.rows:
            self.move_cursor(row=self.get_row_index(key))

    # ---- what it looks like -------------------------------------------------------------------

    @property
    def _is_wide(self) -> bool:
        return self.app.size.width >= WIDE

    def _widths(self) -> dict[str, int]:
        whole = self.app.size.width - 2  # the scrollbar
        fixed = {"model": 22, "size": 8, "fits": 11, "state": 15}
        if self._is_wide:
            fixed = {"model": 24, "title": 0, "size": 9, "fits": 13, "state": 22}
        room = whole - sum(fixed.values()) - 2 * (len(fixed) + 1)
        if "title" in fixed:
            fixed["title"] = max(12, room * 8 // 15)
            room -= fixed["title"]
        return fixed | {"drafters": max(9, room)}

    def _make_columns(self) -> None:
        width = self.app.size.width
        if width == self._columns_for:
            return
        self._columns_for = width
        self.clear(columns=True)
        self._width = self._widths()
        for name, columns in self._width.items():
            label = Text(name, justify="right") if name == "size" else Text(name)
            self.add_column(label, width=columns, key=name)

    def _cells(self, row: Row, fit: str | None) -> list[Text]:
        title = []
        if self._is_wide:
            title = [Text(shortened(row.title, self._width["title"]), style="dim")]
        faint = "dim" if row.kind == "broken" else ""
        name = Text("  " + shortened(row.name, self._width["model"] - 2), style=faint)
        return [name, *title, _size(row), self._fit(fit), self._state(row), self._drafters(row)]

    def _fit(self, verdict: str | None) -> Text:
        """None: not known yet."""
        if verdict is None:
            return Text("...", style="dim")
        words = verdict_words(verdict)
        colour = self.app.current_theme.error if words.startswith("✗") else None
        return Text(words, style=colour or "")

    def _state(self, row: Row) -> Text:
        theme, pull = self.app.current_theme, row.pull
        if pull is not None and (pull.active or (row.kind == "pull" and pull.state == "done")):
            return self._bar(pull)
        if row.path is not None and row.kind != "broken":
            owner = row.owner if self._is_wide and row.owner else ""
            return Text(f"✓ {owner or 'here'}", style=theme.success or "")
        if pull is not None and pull.unfinished:
            word = "failed" if pull.state == "failed" else "kept"
            style = theme.error if pull.state == "failed" else theme.warning
            return Text(f"‖ {100 * share_of(pull):.0f} % {word}", style=style or "")
        if row.kept:
            return Text(f"‖ {file_size(row.kept)} kept", style=theme.warning or "")
        if row.problem:
            return Text("✗ see i" if row.kind == "broken" else "· to install", style="dim")
        return Text("·", style="dim")

    def _bar(self, pull: Pull) -> Text:
        if pull.progress is None:
            return Text("asking ...", style="dim")
        share = share_of(pull)
        drawn, rest = bar(share, BAR)
        text = Text(drawn, style=self.app.current_theme.accent or "")
        text.append(rest, style="dim")
        text.append(f" {100 * share:.0f} %", style="bold")
        if self._is_wide and pull.progress.speed:
            text.append(f" {file_size(pull.progress.speed)}/s", style="dim")
        return text

    def _drafters(self, row: Row) -> Text:
        if row.about:
            return Text(shorten(row.about, self._width["drafters"], placeholder=" …"), "dim")
        text = Text(no_wrap=True, overflow="ellipsis")
        ranked = sorted(row.drafters, key=lambda d: not d.recommended)
        for at, drafter in enumerate(ranked):
            name = Text()
            if drafter.recommended:
                name.append("★", style=self.app.current_theme.accent or "")
            name.append(drafter.name, style="dim" if drafter.absent else "")
            left = len(ranked) - at
            more = f" +{left - 1}" if left > 1 else ""
            if at and text.cell_len + 1 + name.cell_len + len(more) > self._width["drafters"]:
                text.append(f" +{left}", style="dim")  # whole names alone: enter lists them all
                break
            text.append_text(Text(" ") if at else Text()).append_text(name)
        return text

    # ---- the cursor ---------------------------------------------------------------------------

    def _go(self, line: int) -> None:
        self.move_cursor(row=line)
        self._off_heading(1)

    def _off_heading(self, step: int) -> None:
        """From a heading to the next line in that direction, else back."""
        at = self.cursor_row
        if self.key is None:
            lines = [line for line in (at + step, at - step) if self._key_of(line)]
            if lines:
                self.move_cursor(row=lines[0])
        if self.cursor_row == 1:  # the first heading comes into sight with its first line
            self.scroll_to(y=0, animate=False)

    def _then(self, move: Callable[[], None], step: int) -> None:
        move()
        self._off_heading(step)

    def action_cursor_up(self) -> None:
        self._then(super().action_cursor_up, -1)

    def action_cursor_down(self) -> None:
        self._then(super().action_cursor_down, 1)

    def action_page_up(self) -> None:
        self._then(super().action_page_up, -1)

    def action_page_down(self) -> None:
        self._then(super().action_page_down, 1)

    def action_scroll_top(self) -> None:
        self._then(super().action_scroll_top, 1)

    def action_scroll_bottom(self) -> None:
        self._then(super().action_scroll_bottom, -1)


def _size(row: Row) -> Text:
    return Text(file_size(row.size) if row.size is not None else "", justify="right")
