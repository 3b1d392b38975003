"""History: past benchmarks; one opened, or two against each other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from textual import on, work
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.reactive import var
from textual.widget import Widget
from textual.widgets import DataTable, Input, Static

from localspec.bench.comparison import compare_results
from localspec.bench.past_table import fitting, whole
from localspec.errors import LocalspecError
from localspec.store import Changes
from localspec.tui.screens.base import ModeScreen
from localspec.tui.screens.dialogs import Confirm
from localspec.tui.screens.export import export
from localspec.tui.widgets.comparison_view import ComparisonView
from localspec.tui.widgets.report_view import PADDING, Figures, Hidden, ReportView

if TYPE_CHECKING:
    from localspec.bench.history import Past

Json = dict[str, Any]
State = Literal["list", "report", "comparison"]
MARK = "● "
LOOK_SECONDS = 2.0
"""How often it is asked whether another process has written, while the list is shown."""


class Runs(Figures):
    """The list."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select_cursor", "Open", tooltip="Open this benchmark: table and plots"),
    ]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "select_cursor" or self.row_count > 0


class HistoryScreen(ModeScreen):
    MODE = "history"
    AUTO_FOCUS = "#list Figures"
    EXPLAINS: ClassVar[tuple[str, ...]] = (
        "tok/s of a bench",
        "baseline of a bench",
        "speedup of a bench",
        "verdict",
        "output",
        "accept length",
        "coverage",
        "acceptance rate",
        "reach",
        "ttft",
        "shares",
        "draft length",
        "temp",
        "runs",
        "bases",
    )
    EXPLAINS_COMPARED: ClassVar[tuple[str, ...]] = (
        "tok/s of a comparison",
        "change",
        "speedup of a comparison",
        "draft length",
        "temp",
        "base of a comparison",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "escape",
            "back",
            "Back",
            tooltip="Back to the list; in the filter: clear it, then leave it",
        ),
        Binding("space", "mark", "Mark", tooltip="Mark one of two to compare"),
        Binding("c", "compare", "Compare", tooltip="Compare the two marked, the earlier first"),
        Binding("r", "resume", "Go on", tooltip="Make the runs that an interrupted bench lacks"),
        Binding("slash", "filter", "Filter", key_display="/", tooltip="Words to look for"),
        Binding("e", "export", "Export", tooltip="Write the result as JSON, CSV or Markdown"),
        Binding("delete", "remove", "Delete", tooltip="Remove it from the history"),
    ]
    DEFAULT_CSS = """
    HistoryScreen {
        #list { height: 1fr; padding: 0 1; }
        #list Figures { height: 1fr; scrollbar-size-vertical: 1; scrollbar-gutter: stable; }
        #list Hidden { padding: 0; }
        #said { height: auto; color: $text-muted; &.-problem { color: $text-error; } }
    }
    """

    state: var[State] = var[State]("list", bindings=True)

    def __init__(self) -> None:
        super().__init__()
        self._past: list[Past] = []
        self._marked: list[Past] = []
        self._result: Json | None = None
        self._changes = Changes()
        self._words: list[str] = []
        self._problem = ""
        """Why it cannot be read."""
        self._hides = False
        """Is there a column that the list has no room for?"""

    def body(self) -> Iterable[Widget]:
        with Vertical(id="list"):
            yield Input(placeholder="filter: words of target, drafter, workload, day", compact=True)
            yield Runs()
            yield Hidden()
            yield Static(id="said")
        yield ReportView()
        yield ComparisonView()

    @property
    def explained(self) -> tuple[str, ...]:
        return self.EXPLAINS_COMPARED if self.state == "comparison" else self.EXPLAINS

    def on_mount(self) -> None:
        self._looking = self.set_interval(LOOK_SECONDS, self._look)
        self.watch(self.app, "last_kept", self._kept, init=False)

    def on_screen_resume(self) -> None:
        self._looking.resume()
        self._read()

    def on_screen_suspend(self) -> None:
        self._looking.pause()
        self._changes.close()

    def on_unmount(self) -> None:
        self._changes.close()

    def _kept(self, _number: int | None) -> None:
        self._read()

    def _look(self) -> None:
        """What another process has written meanwhile."""
        if self._changes.any():
            self._read()

    def on_resize(self) -> None:
        if self._past:
            self.call_after_refresh(self._draw)  # when the list is as wide as it will be

    def watch_state(self, state: State) -> None:
        self.query_one("#list").display = state == "list"
        self.query_one(ReportView).display = state == "report"
        self.query_one(ComparisonView).display = state == "comparison"
        where = {"list": "#list Figures", "report": "ReportView", "comparison": "ComparisonView"}
        self.query_one(where[state]).focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "back":
            words = self.query("#list Input").results(Input)
            return self.state != "list" or any(w.has_focus or w.value for w in words)
        if action == "filter":
            return self.state == "list" and not isinstance(self.focused, Input)
        if action in ("mark", "remove"):
            return self.state == "list" and self._chosen is not None
        if action == "compare":
            return self.state == "list" and len(self._marked) == 2
        if action == "export":
            return self.state == "report"
        if action == "resume":
            past = self._chosen if self.state != "comparison" else None
            return past is not None and past.status == "interrupted"
        return True

    # ---- the list -----------------------------------------------------------------------------

    @work(exclusive=True, group="read")
    async def _read(self) -> None:
        words = self.query_one("#list Input", Input).value.split()

        def past() -> list[Past]:
            from localspec.bench import history  # it brings much, which no frame is to wait for

            return history.past(words)

        self._changes.any()  # from here on
        try:
            found = await asyncio.to_thread(past)
        except LocalspecError as error:
            found, self._problem = [], str(error)
        else:
            self._problem = ""
        if not (self.query("#list Figures") and self.query("#said")):
            return  # the app is closing
        at, self._past = self._chosen, found
        if not words:
            self._marked = [p for p in self._marked if p in found]
        self._draw()
        if at in found:
            self.query_one("#list Figures", Figures).move_cursor(row=found.index(at))
        self._words = words
        self._say()

    def _draw(self) -> None:
        table = self.query_one("#list Figures", Figures)
        no, *others = fitting(self._past, table.room - len(MARK), 2 * PADDING)
        marked = replace(no, cell=lambda p, signs: self._mark(p) + no.cell(p, signs))
        table.fill((marked, *others), self._past)
        self.refresh_bindings()

    def _say(self) -> None:
        """Why the list is empty; else what of the line under the cursor it has no room for."""
        said = ""
        if not self._past:
            none = "Nothing has these words." if self._words else "No benchmark yet: F5 makes one."
            said = self._problem or none
        elif self._hides and (chosen := self._chosen):
            said = whole(chosen)
        place = self.query_one("#said", Static)
        place.set_class(bool(self._problem), "-problem")
        place.update(Content(said))

    @on(Figures.Shown)  # the pages keep theirs to themselves
    def _columns_shown(self, message: Figures.Shown) -> None:
        self.query_one("#list Hidden", Hidden).say(message)
        self._hides = bool(message.before or message.after)
        self._say()

    @on(DataTable.RowHighlighted, "#list Figures")
    def _line_changed(self) -> None:
        self._say()
        self.refresh_bindings()

    def _mark(self, past: Past) -> str:
        return MARK if past in self._marked else " " * len(MARK)

    @property
    def _chosen(self) -> Past | None:
        at = self.query_one("#list Figures", Figures).cursor_row
        return self._past[at] if 0 <= at < len(self._past) else None  # up goes above an empty list

    @on(Input.Changed)
    def _filtered(self) -> None:
        self._read()

    @on(Input.Submitted)
    def _to_list(self) -> None:
        self.query_one("#list Figures").focus()

    def action_filter(self) -> None:
        self.query_one("#list Input").focus()

    def action_mark(self) -> None:
        if (past := self._chosen) is None:
            return
        if past in self._marked:
            self._marked.remove(past)
        else:
            self._marked = [*self._marked[-1:], past]
        self._draw()

    @work(group="remove")
    async def action_remove(self) -> None:
        from localspec.store import Store

        past = self._chosen
        if past is None or not await self.app.push_screen_wait(
            Confirm("Delete the benchmark?", f"{past.id}: {past.target}, {past.day}", "Delete")
        ):
            return
        try:
            await asyncio.to_thread(Store().delete_bench, past.id)
        except LocalspecError as error:
            self.tell(error)
        self._marked = [p for p in self._marked if p != past]
        self._read()

    # ---- one, or two --------------------------------------------------------------------------

    @on(DataTable.RowSelected, "#list Figures")
    @work(group="open", exclusive=True)
    async def _open(self) -> None:
        if (past := self._chosen) is None:
            return
        if result := await self._load(past.id):
            self._result = result
            self.query_one(ReportView).show(result)
            self.state = "report"

    @work(group="open", exclusive=True)
    async def action_compare(self) -> None:
        first, second = sorted(self._marked, key=lambda p: (p.created, p.id))
        before, after = await self._load(first.id), await self._load(second.id)
        if before and after:
            compared = await asyncio.to_thread(compare_results, before, after)
            self.query_one(ComparisonView).show(
                compared, *(f"{past.id} ({past.day})" for past in (first, second))
            )
            self.state = "comparison"

    @work(group="open", exclusive=True)
    async def action_resume(self) -> None:
        """In Bench, where it is seen how it goes."""
        past = self._chosen
        if past is not None and (result := await self._load(past.id)):
            self.localspec.go_on_with(result)

    async def _load(self, number: int) -> Json | None:
        def read() -> Json:
            from localspec.bench import history

            return history.read(str(number))

        try:
            return await asyncio.to_thread(read)
        except LocalspecError as error:
            self.tell(error)
            return None

    def action_back(self) -> None:
        words = self.query_one("#list Input", Input)
        if self.state != "list":
            self.state = "list"
        elif words.value:
            words.value = ""
        elif words.has_focus:
            self._to_list()

    @work(group="export")
    async def action_export(self) -> None:
        assert self._result is not None
        await export(self, self._result)
