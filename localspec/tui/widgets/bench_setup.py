"""What a benchmark is to measure: drafters, workloads, draft lengths."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from rich.segment import Segment
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.strip import Strip
from textual.widgets import Button, Checkbox, Input, SelectionList, Static
from textual.widgets.selection_list import Selection

from localspec.errors import UsageError
from localspec.tui.wording import in_app

if TYPE_CHECKING:
    from pathlib import Path

    from localspec.catalog import Target
    from localspec.records import BenchOptions

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


class BenchSetup(VerticalScroll):
    """``options(model)`` are what is chosen; ``Changed`` is sent whenever that is another."""

    DEFAULT_CSS = """
    BenchSetup {
        height: 1fr;
        padding: 0 1;
        #target { height: auto; }
        #choices { height: auto; }
        #choices Vertical { width: 1fr; height: auto; }
        #drafters { width: 1fr; max-height: 14; }
        SelectionList, Input {
            height: auto;
            border: round $border-blurred;
            border-title-color: $text-muted;
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

    _target: Path | None = None
    """Whose drafters are shown."""

    def compose(self) -> ComposeResult:
        yield Static(id="target")
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
                yield file
                lengths = Input(placeholder="as recommended; else 3,5,8 or auto", id="lengths")
                lengths.border_title = "Draft lengths n"
                yield lengths
        yield Tick("quick: about a minute, fewer prompts", id="quick")
        yield Static(id="estimate")
        yield Button("Start", variant="primary", id="start")

    def offer_workloads(self, names: Iterable[str], chosen: Collection[str]) -> None:
        self.query_one("#workloads", SelectionList).add_options(
            Selection(name, name, name in chosen) for name in names
        )

    def offer(self, target: Target) -> None:
        """Show the drafters of ``target``; those whose files are not here cannot be chosen. All
        others are chosen to begin with; what was unticked of the same target stays so."""
        self.query_one("#target", Static).update(
            Content.assemble("Target ", (target.name, "bold"), (f"  {target.title}", "$text-muted"))
        )
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

    def options(self, model: str) -> BenchOptions:
        """Raises ``UsageError`` for what was written wrongly."""
        from localspec.records import BenchOptions

        workloads = list(self.query_one("#workloads", SelectionList).selected)
        if file := self.query_one("#file", Input).value.strip():
            workloads.append(file)
        if not workloads:
            raise UsageError("No workload is chosen.", "Choose one, or name a file of prompts.")
        return BenchOptions(
            model=model,
            drafters=tuple(self.query_one("#drafters", SelectionList).selected) or ("none",),
            workloads=tuple(workloads),
            n_max=lengths_of(self.query_one("#lengths", Input).value),
            quick=self.query_one("#quick", Checkbox).value,
        )

    @on(SelectionList.SelectedChanged)
    @on(Input.Changed)
    @on(Checkbox.Changed)
    def _changed(self, event: Message) -> None:
        event.stop()
        self.post_message(self.Changed())


def lengths_of(text: str) -> tuple[int | Literal["auto"], ...]:
    """ "3, 5, auto" as what --n-max holds; nothing: as recommended."""
    from localspec.records import LONGEST_DRAFT

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
