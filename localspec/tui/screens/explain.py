"""``?``: what each number on the screen means, and the keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from localspec.terms import TERMS
from localspec.tui.screens.base import Dialog
from localspec.tui.widgets.footer import Footer


class ExplainScreen(Dialog[None]):
    AUTO_FOCUS = "#explain"
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
            # one widget: a hundred lines are laid out at once
            yield Static(Content("\n").join([*self._numbers(), Content(), *self._key_lines()]))
        yield Footer(show_command_palette=False)

    def _numbers(self) -> Iterator[Content]:
        for term in (TERMS[key] for key in self._terms):
            yield Content.assemble((term.name, "bold $accent"), "\n", term.means, "\n")

    def _key_lines(self) -> Iterator[Content]:
        yield Content.styled("Keys", "bold")
        width = max((cell_len(shown) for shown, _ in self._keys), default=0)
        for shown, what in self._keys:
            yield Content(f"{shown}{' ' * (width - cell_len(shown))}  {what}")
