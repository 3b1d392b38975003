"""What a benchmark is to measure: target, drafters, workloads, draft lengths."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from rich.segment import Segment
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Button, Checkbox, Input, Label, Select, SelectionList, Static
from textual.widgets.selection_list import Selection

from localspec.errors import UsageError
from localspec.tui.polite import PAUSE
from localspec.tui.wording import in_app

if TYPE_CHECKING:
    from pathlib import Path

    from localspec.catalog import Target
    from localspec.records import BenchOptions
    from localspec.tui.app import Setup

AUTO: Literal["auto"] = "auto"


class Ticks(SelectionList[str]):
    """What is not chosen has an empty box: Textual's differs by its colour alone, which terminals
    of few colours and some eyes do not show."""

    def on_focus(self) -> None:
        if self.highlighted is None:  # space would do nothing
            self.action_first()

    def render_line(self, y: int) -> Strip:
        line = super().render_line(y)
        index = self.scroll_offset.y + y
        if index >= self.option_count or self.get_option_at_index(index).value in self.selected:
            return line
        left, inner, *rest = line
        return Strip([left, Segment(" ", inner.style), *rest])


class Tick(Checkbox):
    """So has this."""

    BUTTON_INNER = " "

    def watch_value(self) -> None:
        self.BUTTON_INNER = "X" if self.value else " "
        super().watch_value()


@dataclass(frozen=True, slots=True)
class Here:
    """A model on this machine; ``words`` are what --model takes."""

    name: str
    words: str
    path: Path


class Targets(Select[str]):
    """Which model. What there is is asked for when it gets the focus: it is read from the disk."""

    NONE: ClassVar[Mapping[str, str]] = {"": "none is chosen"}

    class Asked(Message):
        """The person is about to choose."""

    def __init__(self) -> None:
        none = [(text, value) for value, text in self.NONE.items()]
        super().__init__(none, id="models", allow_blank=False, compact=True)

    def on_focus(self) -> None:
        self.post_message(self.Asked())

    def show(self, models: Mapping[str, str], chosen: str | None) -> None:
        """``models``: names by value; ``chosen`` is one of the values, if any is. Names come from
        files, and are no markup."""
        if chosen is None:
            models = {**self.NONE, **models}
        with self.prevent(Select.Changed):
            self.set_options([(Content(name), value) for value, name in models.items()])
            self.value = chosen or ""


class BenchSetup(VerticalScroll):
    """``options(model)`` are what is chosen; ``Changed`` is sent whenever that is another, and
    ``TargetChosen`` for another target, which the whole app works with."""

    DEFAULT_CSS = """
    BenchSetup {
        height: 1fr;
        padding: 0 1;
        #target { height: 1; padding: 0 1; }
        #target Label { width: auto; margin-right: 1; }
        #target Targets { width: 40%; margin-right: 1; }
        Targets > SelectOverlay.-textual-compact {
            border: round $border !important;
            background: $background;
        }
        #title { width: 1fr; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; }
        #choices { height: auto; }
        #choices Vertical { width: 1fr; height: auto; }
        #drafters { width: 1fr; max-height: 14; }
        SelectionList, Input {
            height: auto;
            border: round $border-blurred;
            border-title-color: $text-muted;
            border-subtitle-color: $text-muted;
            background: $background;
            padding: 0 1;
            &:focus { border: round $border; border-title-color: $foreground; }
        }
        Checkbox {
            border: none; height: 1; padding: 0 1; background: $background;
            &:focus { border: none; }
        }
        #estimate { height: auto; margin: 1 1; }
        #estimate.-problem { color: $text-error; }
    }
    """

    class Changed(Message):
        """Something else is chosen."""

    class TargetChosen(Message):
        def __init__(self, words: str) -> None:
            self.words = words
            super().__init__()

    _target: Path | None = None
    """Whose drafters are shown."""
    _shown: Here | None = None
    _here: Sequence[Here] = ()

    def compose(self) -> ComposeResult:
        with Horizontal(id="target"):
            yield Label("Target")
            yield Targets()
            yield Static(id="title")
        with Horizontal(id="choices"):
            drafters = Ticks(id="drafters")
            drafters.border_title = "Drafters"
            yield drafters
            with Vertical():
                workloads = Ticks(id="workloads")
                workloads.border_title = "Workloads"
                yield workloads
                file = Input(placeholder="a file or folder of your own", id="file")
                file.border_title = "File of prompts"
                file.border_subtitle = "in a folder a .txt is one prompt"
                yield file
                lengths = Input(placeholder="as recommended; else 3,5,8 or auto", id="lengths")
                lengths.border_title = "Draft lengths n"
                yield lengths
        yield Tick("quick: about a minute, fewer prompts", id="quick")
        yield Static(id="estimate")
        yield Button("Start", variant="primary", id="start")

    async def mount_composed_widgets(self, widgets: list[Widget]) -> None:
        """One by one: each brings others with it, and all in a row take long."""
        for widget in widgets:
            await super().mount_composed_widgets([widget])
            await asyncio.sleep(PAUSE)

    def offer_workloads(self, names: Iterable[str], chosen: Collection[str]) -> None:
        self.query_one("#workloads", SelectionList).add_options(
            Selection(Content(name), name, name in chosen) for name in names
        )

    def offer_targets(self, here: Sequence[Here]) -> None:
        self._here = here
        self._show_targets()

    def choose_target(self) -> None:
        self.query_one(Targets).action_show_overlay()

    def _show_targets(self) -> None:
        """In the order in which they are listed; the one that is shown is called as the person has
        called it."""
        shown = self._shown
        models = {
            shown.words if shown and here.path == shown.path else here.words: here.name
            for here in self._here
        }
        if shown is not None and shown.words not in models:
            models = {shown.words: shown.name, **models}
        self.query_one(Targets).show(models, shown.words if shown else None)

    def offer(self, target: Target, words: str) -> None:
        """Show ``target``, which --model takes as ``words``, and its drafters; those whose files
        are not here cannot be chosen. All others are chosen to begin with; what was unticked of
        the same target stays so."""
        self._shown = Here(target.name, words, target.path)
        self._show_targets()
        self.query_one("#title", Static).update(Content(target.title))
        choices = self.query_one("#drafters", SelectionList)
        offered = [choices.get_option_at_index(i) for i in range(choices.option_count)]
        unticked = {o.value for o in offered if not o.disabled} - set(choices.selected)
        if self._target != target.path:
            unticked = set()
        self._target = target.path
        at = choices.highlighted
        choices.clear_options()
        choices.add_options(
            Selection(
                Content.assemble(
                    d.name + (" ★" if d.recommended else ""),
                    ("  not here: F2, then d, gets it" if d.absent else "", "$text-muted"),
                ),
                d.name,
                not d.absent and d.name not in unticked,
                disabled=bool(d.absent),
            )
            for d in target.drafters
        )
        if choices.option_count and (at is not None or choices.has_focus):
            choices.highlighted = min(at or 0, choices.option_count - 1)

    def say(self, text: str, *, problem: bool = False) -> None:
        """The estimate, or why there is none."""
        for place in self.query("#estimate").results(Static):  # none: the app is closing
            place.set_class(problem, "-problem")
            place.update(Content(in_app(text, "bench")))

    def options(self, setup: Setup) -> BenchOptions:
        """Raises ``UsageError`` for what was written wrongly."""
        from localspec.records import BenchOptions

        workloads = list(self.query_one("#workloads", SelectionList).selected)
        if file := self.query_one("#file", Input).value.strip():
            workloads.append(file)
        if not workloads:
            raise UsageError("No workload is chosen.", "Choose one, or name a file of prompts.")
        assert setup.model is not None
        return BenchOptions(
            model=setup.model,
            engine=setup.engine.measuring(),
            drafters=tuple(self.query_one("#drafters", SelectionList).selected) or ("none",),
            workloads=tuple(workloads),
            n_max=lengths_of(self.query_one("#lengths", Input).value),
            quick=self.query_one("#quick", Checkbox).value,
        )

    @on(Select.Changed)
    def _target_changed(self, event: Select.Changed) -> None:
        event.stop()
        if isinstance(event.value, str) and event.value:
            self.post_message(self.TargetChosen(event.value))

    @on(SelectionList.SelectedChanged)
    @on(Input.Changed)
    @on(Checkbox.Changed)
    def _changed(self, event: Message) -> None:
        event.stop()
        self.post_message(self.Changed())


def lengths_of(text: str) -> tuple[int | Literal["auto"], ...]:
    """ "3, 5, auto" as what --n-max holds; nothing: as recommended."""
    from localspec.limits import LONGEST_DRAFT

    found: dict[int | Literal["auto"], None] = {}
    for word in _words(text):
        if word == AUTO:
            found[AUTO] = None
        elif word.isdecimal() and 1 <= int(word) <= LONGEST_DRAFT:
            found[int(word)] = None
        else:
            raise UsageError(
                f"{word!r} is no draft length.",
                f"Write numbers from 1 to {LONGEST_DRAFT}, or auto, with commas between.",
            )
    return tuple(found)


def _words(text: str) -> Sequence[str]:
    return text.replace(",", " ").split()
