"""A dialog of fields, one below the other, each with its name before it and a word after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.validation import Integer, Number
from textual.widget import Widget
from textual.widgets import Button, Input, Label, Select, Static

from localspec.tui.screens.base import Dialog

Result = TypeVar("Result")


class Form(Dialog[Result | None]):
    """None when given up."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Cancel"),
        Binding("ctrl+s", "save", "Save", priority=True),
    ]
    DEFAULT_CSS = """
    Form {
        Grid {
            grid-size: 3; grid-rows: 1; grid-gutter: 0 1; height: auto;
            Input, Select { width: 1fr; }
            .dim { text-wrap: nowrap; text-overflow: ellipsis; }
        }
        Input.-invalid { color: $error; }
    }
    """

    def action_save(self) -> None:
        """Dismiss with what the fields say, or complain of one."""
        raise NotImplementedError

    def unset(self) -> None:
        """What stands in the fields when nothing is given."""
        for field in self.query(Input):
            field.value = ""

    def line(self, title: str, field: Widget, about: str) -> Iterator[Widget]:
        """A row of a ``Grid``."""
        yield Label(title)
        yield field
        yield Static(about, classes="dim")

    def buttons(self) -> ComposeResult:
        with Horizontal(classes="buttons"):
            yield Button("Save", variant="primary", id="save")
            yield Button("As usual", id="unset")
            yield Button("Cancel", id="cancel")

    def text(self, name: str) -> str:
        return self.query_one(f"#{name}", Input).value.strip()

    def choice(self, name: str) -> str:
        return str(self.query_one(f"#{name}", Select).value)

    def complain(self, name: str, text: str) -> None:
        self.query_one(f"#{name}").focus()
        self.query_one(".dialog").border_subtitle = Content.styled(text, "$text-error")

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        match event.button.id:
            case "save":
                self.action_save()
            case "unset":
                self.unset()
            case "cancel":
                self.dismiss(None)


def number(value: str, placeholder: str, name: str, *, whole: bool = True) -> Input:
    """``value`` is "" where nothing is given; ``placeholder`` then says what is taken. Whatever is
    typed stands there, and is refused as a whole: of Textual's types of input "1e9" would become
    19."""
    return Input(
        value,
        placeholder=placeholder,
        validators=Integer() if whole else Number(),
        id=name,
        compact=True,
    )


def select(options: list[tuple[str, str]], value: str, name: str) -> Select[str]:
    """``options``: what is shown and what it is, one of which is taken."""
    return Select(options, value=value, allow_blank=False, id=name, compact=True)
