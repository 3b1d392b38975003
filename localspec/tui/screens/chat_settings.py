"""How answers are made: system message, thinking, token budget, the whole sampler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import Grid, VerticalScroll
from textual.content import Content
from textual.widgets import Label, Select, Static

from localspec.tui.screens.form import Form, number, select
from localspec.tui.widgets.footer import Footer
from localspec.tui.widgets.writing import Writing
from localspec.units import exact

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
THINKING = [("by itself", ""), ("on", "on"), ("off", "off")]


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """What the dialog sets; None and what is missing from ``sampler``: as the model recommends."""

    system: str | None
    thinking: bool | None
    max_tokens: int | None
    sampler: dict[str, float]


class ChatSettingsScreen(Form[ChatSettings]):
    """``effective``: the sampler's values as they are now, and ``system``: the model's own message,
    shown where nothing was given."""

    AUTO_FOCUS = "#temperature"
    DEFAULT_CSS = """
    ChatSettingsScreen {
        .dialog { height: 90%; }
        Writing { height: 5; }
        Grid { grid-columns: 18 16 1fr; margin: 1 0; }
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
            own = Content(self._system)
            yield Writing(given.system or "", id="system", placeholder=own)
            with Grid():
                switch = {None: "", True: "on", False: "off"}[given.thinking]
                thinking = select(THINKING, switch, "thinking")
                yield from self.line("Thinking", thinking, "if the model has a switch")
                budget = "" if given.max_tokens is None else str(given.max_tokens)
                field = number(budget, "no limit", "max_tokens")
                yield from self.line("Token budget", field, "the most tokens of an answer")
                for name, title, what, _, _ in SAMPLER:
                    value = given.sampler.get(name)
                    now = self._effective.get(name) if value is None else None
                    field = number(
                        "" if value is None else exact(value),
                        "" if now is None or name == "seed" else _recommended(now),
                        name,
                        whole=name in WHOLE,
                    )
                    yield from self.line(title, field, what)
            yield Static(
                "What is left empty is as the model's makers recommend; where they say nothing, as "
                "llama.cpp has it.",
                classes="dim",
            )
            yield from self.buttons()
        yield Footer(show_command_palette=False)

    def action_save(self) -> None:
        sampler: dict[str, float] = {}
        for name, title, _, least, most in SAMPLER:
            if not (text := self.text(name)):
                continue
            try:
                value = int(text) if name in WHOLE else float(text)
            except ValueError:
                value = least - 1
            if not least <= value <= most:
                kind = "is a whole number" if name in WHOLE else "lies"
                self.complain(name, f"{title} {kind} between {exact(least)} and {exact(most)}.")
                return
            sampler[name] = float(value)
        budget = self.text("max_tokens")
        if budget and not (budget.isdecimal() and int(budget) > 0):
            self.complain("max_tokens", "The token budget is a whole number from 1 on.")
            return
        thinking = self.choice("thinking")
        self.dismiss(
            ChatSettings(
                self.query_one("#system", Writing).text.strip() or None,
                None if thinking == "" else thinking == "on",
                int(budget) if budget else None,
                sampler,
            )
        )

    def unset(self) -> None:
        super().unset()
        self.query_one("#thinking", Select).value = ""


def _recommended(value: float) -> str:
    """A file has it in single precision, which nobody wrote to its last digit."""
    return exact(value) if float(value).is_integer() else f"{value:g}"
