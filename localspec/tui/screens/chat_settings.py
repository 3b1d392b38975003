"""How answers are made: system message, thinking, token budget, the whole sampler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid, Horizontal, VerticalScroll
from textual.widgets import Button, Input, Label, Select, Static, TextArea

from localspec.tui.screens.base import Dialog
from localspec.tui.widgets.footer import Footer

# name in SamplerSettings, what is shown, what it does (in 28 cells, for 80 columns), the least and
# the most that make sense
SAMPLER = (
    ("temperature", "Temperature", "0: always the likeliest", 0.0, 5.0),
    ("top_k", "Top k", "only the k likeliest; 0: off", 0.0, 1e6),
    ("top_p", "Top p", "likeliest up to sum; 1: off", 0.0, 1.0),
    ("min_p", "Min p", "share of likeliest's; 0: off", 0.0, 1.0),
    ("repeat_penalty", "Repeat penalty", "1: off", 0.1, 10.0),
    ("presence_penalty", "Presence penalty", "0: off", -10.0, 10.0),
    ("frequency_penalty", "Frequency penalty", "0: off", -10.0, 10.0),
    ("seed", "Seed", "empty: another one each time", 0.0, 2**31),
)
WHOLE = {"top_k", "seed"}
THINKING = (("by itself", ""), ("on", "on"), ("off", "off"))


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """What the dialog sets; None and what is missing from ``sampler``: as the model recommends."""

    system: str | None
    thinking: bool | None
    max_tokens: int | None
    sampler: dict[str, float]


class ChatSettingsScreen(Dialog[ChatSettings | None]):
    """``effective``: the sampler's values as they are now, shown where nothing was given."""

    AUTO_FOCUS = "#temperature"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Cancel"),
        Binding("ctrl+s", "save", "Save", priority=True),
    ]
    DEFAULT_CSS = """
    ChatSettingsScreen {
        .dialog { height: 90%; }
        TextArea { height: 5; }
        Grid {
            grid-size: 3; grid-columns: 18 16 1fr; grid-rows: 1; height: auto; margin: 1 0;
            grid-gutter: 0 1;
        }
        Grid .dim { text-wrap: nowrap; text-overflow: ellipsis; }
        Input, Select { width: 1fr; }
        Input.-invalid { color: $error; }
    }
    """

    def __init__(self, given: ChatSettings, effective: Mapping[str, float], system: str) -> None:
        super().__init__()
        self._given, self._effective, self._system = given, effective, system

    def compose(self) -> ComposeResult:
        given = self._given
        with VerticalScroll(classes="dialog") as box:
            box.border_title = "How answers are made (from the next one on)"
            yield Label("System message (empty: the model's own)")
            yield TextArea(given.system or "", id="system", tab_behavior="focus")
            with Grid():
                yield Label("Thinking")
                switch = {None: "", True: "on", False: "off"}[given.thinking]
                yield Select(THINKING, value=switch, allow_blank=False, id="thinking", compact=True)
                yield Static("if the model has a switch", classes="dim")
                yield Label("Token budget")
                yield Input(
                    "" if given.max_tokens is None else str(given.max_tokens),
                    placeholder="no limit",
                    type="integer",
                    id="max_tokens",
                    compact=True,
                )
                yield Static("the most tokens of an answer", classes="dim")
                for name, title, what, _, _ in SAMPLER:
                    value = given.sampler.get(name)
                    now = self._effective.get(name) if value is None else None
                    yield Label(title)
                    yield Input(
                        "" if value is None else f"{value:g}",
                        placeholder="" if now is None or name == "seed" else f"{now:g}",
                        type="integer" if name in WHOLE else "number",
                        id=name,
                        compact=True,
                    )
                    yield Static(what, classes="dim")
            words = "Grey values are" if self._effective else "What is left empty is"
            yield Static(f"{words} what the model's makers recommend.", classes="dim")
            with Horizontal(classes="buttons"):
                yield Button("Save", variant="primary", id="save")
                yield Button("As recommended", id="reset")
                yield Button("Cancel", id="cancel")
        yield Footer(show_command_palette=False)

    @on(Button.Pressed, "#save")
    def action_save(self) -> None:
        sampler: dict[str, float] = {}
        for name, title, _, least, most in SAMPLER:
            text = self.query_one(f"#{name}", Input).value.strip()
            if not text:
                continue
            try:
                value = float(text)
            except ValueError:
                value = least - 1
            if not least <= value <= most:
                self._complain(name, f"{title} lies between {least:g} and {most:g}.")
                return
            sampler[name] = value
        budget = self.query_one("#max_tokens", Input).value.strip()
        if budget and not (budget.isdigit() and int(budget) > 0):
            self._complain("max_tokens", "The token budget is 1 or more.")
            return
        thinking = self.query_one("#thinking", Select).value
        self.dismiss(
            ChatSettings(
                self.query_one("#system", TextArea).text.strip() or None,
                None if thinking == "" else thinking == "on",
                int(budget) if budget else None,
                sampler,
            )
        )

    def _complain(self, name: str, text: str) -> None:
        field = self.query_one(f"#{name}", Input)
        field.focus()
        self.notify(text, severity="error", markup=False)

    @on(Button.Pressed, "#reset")
    def _reset(self) -> None:
        for field in self.query(Input):
            field.value = ""
        self.query_one("#thinking", Select).value = ""

    @on(Button.Pressed, "#cancel")
    def _cancel(self) -> None:
        self.dismiss(None)
