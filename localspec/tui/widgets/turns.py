"""A conversation as it is read: questions, answers, what was thought before them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget
from textual.widgets import Static

from localspec.tui.widgets.growing import Growing
from localspec.tui.widgets.markdown_view import MarkdownView
from localspec.tui.widgets.steady import Steady
from localspec.units import many, passes

if TYPE_CHECKING:
    from localspec.records import Generation, Span

FOLDED_LINES, FOLDED_CHARACTERS = 12, 2_000
"""Of a long question so much is shown until it is unfolded."""
STOPS = {
    "length": "token budget reached",
    "stop": "stop string",
    "context": "context full",
    "cancelled": "stopped",
}


class Transcript(Growing, VerticalScroll):
    """Stays at its end while text comes, unless the person has scrolled away from it.

    (Textual's ``anchor`` puts what is shorter than the screen at its bottom.)
    """

    _follows = False
    """Whatever makes it longer from now on, its end is shown: long texts are wrapped bit by bit,
    and are all there only long after the last of them came."""

    def to_end(self) -> None:
        self._follows = True
        self.call_after_refresh(self._show_end)

    def stay(self) -> None:
        """Something is unfolded, to be read from its beginning on."""
        self._follows = False

    @contextmanager
    def following(self) -> Iterator[None]:
        """What is inside may make the text longer."""
        at_end = self._follows or self._at_end
        yield
        if at_end:
            self.to_end()

    @property
    def _at_end(self) -> bool:
        return self.max_scroll_y - self.scroll_y <= 1

    def _show_end(self) -> None:
        if self._follows:  # the person may have scrolled meanwhile
            self.scroll_end(animate=False, immediate=True, x_axis=False)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if new_value < old_value:
            self._follows = self._at_end
        else:
            self._follows = self._follows or self._at_end

    def _size_updated(
        self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True
    ) -> bool:
        # A Resize does not come whenever what is in it becomes longer.
        changed = super()._size_updated(size, virtual_size, container_size, layout)
        if changed and self._follows:
            self.call_after_refresh(self._show_end)
        return changed

    def action_scroll_end(self) -> None:
        self.to_end()  # Textual's goes, in a second, to where the end was


class Question(Static):
    """What the person asked. A long one is folded; a click unfolds it."""

    DEFAULT_CSS = """
    Question {
        margin: 1 0 0 0;
        padding: 0 1;
        background: $boost;
        border-left: outer $primary;
    }
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self._folded = True

    def on_mount(self) -> None:
        self._show()

    @property
    def folds(self) -> bool:
        """Is it long enough for that?"""
        whole = self.text.expandtabs(4)
        return whole.count("\n") >= FOLDED_LINES or len(whole) > FOLDED_CHARACTERS

    def toggle(self) -> None:
        _stay(self)
        self._folded = not self._folded
        self._show()

    def on_click(self, _event: events.Click) -> None:
        self.toggle()

    def _show(self) -> None:
        whole = self.text.expandtabs(4)
        if not (self._folded and self.folds):
            self.update(Content(whole))
            return
        lines = whole.split("\n")
        shown = "\n".join(lines[:FOLDED_LINES])[:FOLDED_CHARACTERS]
        more = f"{len(lines):,} lines" if len(lines) > FOLDED_LINES else "more"
        note = f"… {more}, {len(self.text):,} characters in all: a click or u unfolds it"
        self.update(Content.assemble(shown, "\n", (note, "$text-muted")))


class Thinking(Static):
    """One line that stands for what was thought; a click or Enter unfolds the text below it."""

    can_focus = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "fold", "Unfold", tooltip="Show or hide this thinking")
    ]
    DEFAULT_CSS = """
    Thinking { color: $text-muted; &:focus { text-style: bold; } &:hover { color: $text; } }
    """

    def on_click(self, _event: events.Click) -> None:
        self.parent_answer.toggle()

    def action_fold(self) -> None:
        self.parent_answer.toggle()

    @property
    def parent_answer(self) -> AnswerView:
        return self.query_ancestor(AnswerView)


class AnswerView(Growing, Vertical):
    DEFAULT_CSS = """
    AnswerView {
        height: auto;
        padding: 1 1 0 1;
        Thinking { display: none; margin-bottom: 1; }
        .-thinking { display: none; padding-left: 2; margin-bottom: 1; }
        &.-thought Thinking { display: block; }
        &.-unfolded .-thinking { display: block; }
        .facts { color: $text-muted; margin-top: 1; }
    }
    """

    def __init__(self, *, tinted: bool) -> None:
        super().__init__()
        self._header = Thinking()
        self._thinking = MarkdownView(classes="-thinking")
        self._answer = MarkdownView()
        self._facts = Steady(classes="facts")
        self._thought_tokens = 0
        self._thought_seconds = 0.0
        self._thinking_now = False
        self.tint(tinted)

    def compose(self) -> ComposeResult:
        yield self._header
        yield self._thinking
        yield self._answer
        yield self._facts

    @property
    def source(self) -> str:
        """The Markdown of the answer without its thinking."""
        return self._answer.document.source.strip()

    def tint(self, on: bool) -> None:
        self._thinking.tinted = self._answer.tinted = on

    # ---- text ---------------------------------------------------------------------------------

    def append(self, text: str, *, drafted: bool, thinking: bool) -> None:
        view = self._thinking if thinking else self._answer
        if not view.document.source:
            text = text.lstrip("\n")
        view.append(text, drafted=drafted)
        self._thinking_now = thinking

    def flush(self, *, thought_tokens: int = 0, thought_seconds: float = 0.0) -> None:
        if self._thinking.document.source:
            self.add_class("-thought")
            self._thought_tokens, self._thought_seconds = thought_tokens, thought_seconds
            self._say_thinking()
            self._thinking.flush()
        self._answer.flush()

    async def fill(
        self, runs: Iterable[tuple[str, bool, bool]], tokens: int, seconds: float
    ) -> None:
        """A kept answer: (text, was it drafted, is it thinking) in turn."""
        runs = list(runs)
        thought = [(text, drafted) for text, drafted, thinking in runs if thinking]
        said = [(text, drafted) for text, drafted, thinking in runs if not thinking]
        if any(text.strip() for text, _ in thought):
            self.add_class("-thought")
            self._thought_tokens, self._thought_seconds = tokens, seconds
            self._say_thinking()
            await self._thinking.fill(thought)
        await self._answer.fill(_without_first_newlines(said))

    @property
    def folds(self) -> bool:
        """Is there thinking to show or hide?"""
        return self.has_class("-thought")

    def toggle(self) -> None:
        _stay(self)
        self.toggle_class("-unfolded")
        self._say_thinking()

    def _say_thinking(self) -> None:
        sign = "▾" if self.has_class("-unfolded") else "▸"
        parts = []
        if self._thought_seconds:
            parts.append(f"{self._thought_seconds:.0f} s")
        if self._thought_tokens:
            parts.append(f"{self._thought_tokens} tokens")
        how_long = f" ({', '.join(parts)})" if parts else ""
        self._header.update(Content(f"{sign} thinking{how_long}"))

    def say(self, text: str) -> None:
        """The line below the answer."""
        self._facts.update(Content(text))


def _stay(unfolded: Widget) -> None:
    for above in unfolded.ancestors:
        if isinstance(above, Transcript):
            above.stay()


def _without_first_newlines(runs: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
    while runs and not (first := runs[0][0].lstrip("\n")):
        runs = runs[1:]
    return [(first, runs[0][1]), *runs[1:]] if runs else []


def facts_of(run: Generation, drafter: str, **more: Any) -> dict[str, Any]:
    """What is kept of an answer, as JSON values: how fast it was, and which text was drafted (the
    lengths of plain and drafted text in turn)."""
    return {
        "tokens": len(run.tokens),
        "tps": run.decode_tps,
        "accept_length": run.counts.accept_length,
        "passes": run.counts.target_calls,
        "verify": run.times.verify,
        "replays": run.counts.replays,
        "ttft": run.times.ttft if run.tokens else None,
        "stop": run.stop,
        "drafter": drafter,
        "drafted": drafted_lengths(run.spans),
        **more,
    }


def facts_line(facts: dict[str, Any]) -> str:
    """One line under an answer; what was not observed is left out."""
    parts = [many(facts["tokens"], "token")] if facts.get("tokens") else []
    if (tps := facts.get("tps")) is not None:
        parts.append(f"{tps:.1f} tok/s")
    if (length := facts.get("accept_length")) is not None:
        parts.append(f"accept length {length:.2f}")
    if facts.get("passes"):
        parts.append(passes(facts["passes"], facts.get("replays", 0)))
    if (ttft := facts.get("ttft")) is not None:
        parts.append(f"TTFT {ttft * 1e3:.0f} ms")
    if facts.get("drafter"):
        parts.append(str(facts["drafter"]))
    if facts.get("beside"):
        parts.append("beside other load")
    if (stop := STOPS.get(facts.get("stop", ""))) is not None:
        parts.append(stop)
    if (compared := facts.get("compared")) is not None:
        parts.append(str(compared))
    return " · ".join(parts)


def drafted_lengths(spans: Iterable[Span]) -> list[int]:
    lengths = [0]
    for span in spans:
        if span.drafted != (len(lengths) % 2 == 0):
            lengths.append(0)
        lengths[-1] += len(span.text)
    return lengths


def runs_of(text: str, lengths: Iterable[int]) -> list[tuple[str, bool]]:
    """``text`` in the pieces that ``drafted_lengths`` tells; all of it plain where they end."""
    runs, at = [], 0
    for i, length in enumerate(lengths):
        runs.append((text[at : at + length], i % 2 == 1))
        at += length
    return [*runs, (text[at:], False)]
