"""Models: the catalogue, and what of it is here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.widget import Widget
from textual.widgets import DataTable

from localspec.errors import LocalspecError
from localspec.tui.screens.base import ModeScreen

if TYPE_CHECKING:
    from localspec.catalog import Listing


class ModelsScreen(ModeScreen):
    MODE = "models"
    EXPLAINS: ClassVar[tuple[str, ...]] = ("fit",)

    def body(self) -> Iterable[Widget]:
        table: DataTable[str] = DataTable(cursor_type="row")
        table.add_columns("model", "title", "drafters", "here")
        yield table

    def on_mount(self) -> None:
        self._read()

    @work(thread=True)
    def _read(self) -> None:
        from localspec.catalog import Catalogue

        try:
            self.app.call_from_thread(self._show, Catalogue.load().listings())
        except LocalspecError as error:
            self.app.call_from_thread(self.tell, error)

    def _show(self, listings: list[Listing]) -> None:
        table = self.query_one(DataTable)
        for line in listings:
            drafters = " ".join(d.name + ("★" if d.recommended else "") for d in line.drafters)
            table.add_row(line.name, line.title, drafters, "✓" if line.path else "·", key=line.name)

    @on(DataTable.RowSelected)
    def _chosen(self, event: DataTable.RowSelected) -> None:
        self.localspec.use(model=event.row_key.value)
        self.localspec.action_mode("chat")
