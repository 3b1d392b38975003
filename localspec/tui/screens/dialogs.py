"""Small dialogs: a sentence to confirm, a line to write, one of several to choose."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.events import Resize
from textual.widgets import Button, Input, OptionList, Static
from textual.widgets.option_list import Option

from localspec.tui.screens.base import Dialog
from localspec.tui.widgets.footer import Footer


class Confirm(Dialog[bool]):
    """``await app.push_screen_wait(Confirm("Delete?", "...", "Delete"))`` is True for yes."""

    AUTO_FOCUS = "#yes"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,n", "answer(False)", "No", key_display="esc"),
        Binding("y", "answer(True)", "Yes"),
    ]

    def __init__(self, title: str, text: str, yes: str) -> None:
        super().__init__()
        self._title, self._text, self._yes = title, text, yes

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = Content(self._title)
            yield Static(Content(self._text))
            with Horizontal(classes="buttons"):
                yield Button(Content(self._yes), variant="primary", id="yes")
                yield Button("Cancel", id="no")
        yield Footer(show_command_palette=False)

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)


class Line(Input):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "submit", "Done")]


class Ask(Dialog[str | None]):
    """One line of text; None when given up."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Cancel")]

    def __init__(self, title: str, value: str = "", *, note: str = "", kind: str = "text") -> None:
        super().__init__()
        self._title, self._value, self._note = title, value, note
        self._whole = kind == "integer"

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = Content(self._title)
            yield Line(self._value, type="integer" if self._whole else "text")
            if self._note:
                yield Static(Content(self._note), classes="dim")
        yield Footer(show_command_palette=False)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        if event.value.strip():
            self.dismiss(event.value.strip())
        else:
            self.notify("Nothing is written here. Esc leaves it as it was.")


class NotedOptions(OptionList):
    """Options (mark and name, a note about it): the notes stand in a column of their own, however
    many lines they take."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select", "Choose")]
    DEFAULT_CSS = """
    NotedOptions { scrollbar-gutter: stable; scrollbar-size: 0 1; }
    """
    NARROWEST = 24
    """Columns that a note needs; where there are fewer it stands below its name."""

    def __init__(self, options: Sequence[tuple[str, str, str]]) -> None:
        self._noted = [(value, Content(name), note) for value, name, note in options]
        self._indent = max((name.cell_length for _, name, _ in self._noted), default=0) + 2
        super().__init__(*(Option(self._line(*o[1:], 0), id=f"v-{o[0]}") for o in self._noted))

    def on_resize(self, _event: Resize) -> None:
        for i, (_, name, note) in enumerate(self._noted):
            self.replace_option_prompt_at_index(
                i, self._line(name, note, self.scrollable_content_region.width - 2)
            )

    def _line(self, name: Content, note: str, width: int) -> Content:
        indent, between = self._indent, " " * (self._indent - name.cell_length)
        if width and width - indent < self.NARROWEST:
            indent, between = 4, "\n    "
        lines = textwrap.wrap(note, width - indent) if width else [note]
        if not lines:
            return name
        folded = f"\n{' ' * indent}".join(lines)
        return Content.assemble(name, between, (folded, "$text-muted"))


class Choose(Dialog[str | None]):
    """One of ``choices`` (value, what is shown, a word about it); None when given up."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Cancel")]

    def __init__(
        self, title: str, choices: Sequence[tuple[str, str, str]], current: str = ""
    ) -> None:
        super().__init__()
        self._title, self._choices, self._current = title, choices, current

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = Content(self._title)
            yield NotedOptions(
                [
                    (value, f"{'●' if value == self._current else ' '} {name}", about)
                    for value, name, about in self._choices
                ]
            )
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        values = [value for value, _, _ in self._choices]
        choices = self.query_one(OptionList)
        choices.highlighted = values.index(self._current) if self._current in values else 0
        choices.focus()

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._choices[event.option_index][0])
