"""``?``: what each number on the screen means, and the keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.table import Table
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from localspec.terms import TERMS
from localspec.tui.widgets.footer import Footer


class ExplainScreen(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,f1,q", "dismiss", "Close", key_display="esc"),
    ]

    def __init__(self, title: str, terms: Sequence[str], keys: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._title = title
        self._terms = terms
        self._keys = keys

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="explain", classes="dialog") as box:
            box.border_title = f"{self._title}: what the numbers mean"
            for key in self._terms:
                term = TERMS[key]
                yield Static(
                    Content.assemble((term.name, "bold $accent"), "\n", term.means),
                    classes="term",
                )
            yield Static("Keys", classes="heading")
            table = Table.grid(padding=(0, 2))
            for key, what in self._keys:
                table.add_row(key, what)
            yield Static(table)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one("#explain").focus()
