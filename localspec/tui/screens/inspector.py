"""The steps of the last answer: what was drafted, rejected, corrected, with p and q on request."""

from __future__ import annotations

import codecs
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from localspec.errors import LocalspecError
from localspec.tui.screens.base import Dialog
from localspec.tui.widgets.footer import Footer
from localspec.tui.widgets.speed import milliseconds

if TYPE_CHECKING:
    from localspec.records import Generation, Step
    from localspec.tui.app import LocalspecApp


@dataclass(frozen=True, slots=True)
class Inspected:
    """A generation with its steps, and what each id in it adds to a text. ``again``: its own steps
    were not kept, and these are of the same answer run again, the time that p and q take included.
    """

    run: Generation
    texts: dict[int, bytes]
    drafter: str
    again: bool = False
    parting: int | None = None
    """Run again, it was another text from this token on."""


OFFER = "p runs the answer again for p and q."
RUNNING = "The answer is run again for p and q …"
ESCAPED = re.compile("[\udc80-\udcff]+")
"""Bytes that are no UTF-8, as "surrogateescape" has them."""


def shown(piece: bytes, begun: bytes = b"") -> tuple[str, bytes]:
    """A token's text, with what cannot be seen made visible, and what its last character still
    lacks the rest of. A character of several tokens stands with the one in which it becomes whole
    (``begun``: its bytes in the tokens before), bytes alone as "<E3 81>"."""
    read = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    read.decode(begun)
    text = read.decode(piece).removeprefix(begun.decode("utf-8", "surrogateescape"))
    left = read.getstate()[0]
    text = text.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥")
    text = ESCAPED.sub(lambda found: _hex(found[0].encode("utf-8", "surrogateescape")), text)
    return (text + _hex(left[-len(piece) :]) or "∅"), left


def _hex(some: bytes) -> str:
    return f"<{some.hex(' ').upper()}>" if some else ""


class InspectorScreen(Dialog[None]):
    """``score`` runs the answer again for p and q (None: it did not come to that)."""

    AUTO_FOCUS = "OptionList"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "score", "p and q", tooltip="Run the answer again for p and q"),
        Binding("f1,question_mark", "explain", "Explain", key_display="?"),
        Binding("escape,q", "dismiss", "Close", key_display="esc"),
    ]
    DEFAULT_CSS = """
    InspectorScreen {
        .dialog { width: 96%; max-width: 130; height: 90%; padding: 0 1; }
        Horizontal { height: 1fr; }
        OptionList { width: 1fr; height: 1fr; border: none; &:focus { border: none; } }
        #step { width: 44; padding: 0 0 0 2; height: 1fr; }
        #sums { height: auto; margin-bottom: 1; color: $text-muted; }
        #parting { height: auto; margin-bottom: 1; color: $text-warning; }
        &.-narrow Horizontal { layout: vertical; }
        &.-narrow #step { width: 1fr; height: 7; padding: 0; margin-top: 1; }
    }
    """
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012  Textual's own form

    def __init__(
        self, inspected: Inspected, score: Callable[[], Awaitable[Generation | None]]
    ) -> None:
        super().__init__()
        self._it, self._score = inspected, score
        self._starts: list[int] = []
        self._words: list[str] = []
        """The answer's tokens, as they are shown."""
        self._begun: list[bytes] = []
        """After each of them, what there is of a character that is not whole yet."""
        self._scoring = False

    @property
    def _drafted(self) -> str:
        few = cast("LocalspecApp", self.app).few_colours
        return "underline" if few else "on $accent 22%"

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = "Steps of the last answer" + (
                ", run again" if self._it.again else ""
            )
            yield Static(id="sums")
            yield Static(id="parting")
            with Horizontal():
                yield OptionList()
                with VerticalScroll(id="step", can_focus=False):
                    yield Static(id="detail")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self._fill()

    def _fill(self) -> None:
        run = self._it.run
        counts = run.counts
        length = counts.accept_length
        self.query_one("#sums", Static).update(
            Content.assemble(
                f"{counts.steps} steps · {counts.drafted} drafted · {counts.accepted} accepted"
                f" · accept length {'n/a' if length is None else f'{length:.2f}'}"
                f" · {self._it.drafter}   ",
                ("drafted and accepted", self._drafted),
                "  ",
                ("rejected", "$error strike"),
                "  ",
                ("the target's own", "bold"),
            )
        )
        parting, what = self._it.parting, "its steps are those of that text"
        if not self._it.again:
            what = "p and q are known up to there"
        said = self.query_one("#parting", Static)
        said.display = parting is not None
        if parting is not None:
            said.update(f"Run again, it was another text from token {parting + 1} on: {what}.")
        self._starts = []
        at = 1  # the first token came from the prefill
        for step in run.steps:
            self._starts.append(at)
            at += step.tokens
        self._words, self._begun, begun = [], [], b""
        for token in run.tokens:
            word, begun = self._text(token, begun)
            self._words.append(word)
            self._begun.append(begun)
        options = self.query_one(OptionList)
        highlighted = options.highlighted or 0
        options.clear_options()
        width = len(str(len(run.steps)))
        options.add_options(
            Option(Content.assemble((f"{i + 1:>{width}} ", "$text-muted"), self._line(i)))
            for i in range(len(run.steps))
        )
        if run.steps:
            options.highlighted = min(highlighted, len(run.steps) - 1)
            self._show(options.highlighted)

    def _text(self, token: int, begun: bytes) -> tuple[str, bytes]:
        return shown(self._it.texts.get(token, b"?"), begun)

    def _emitted(self, i: int) -> tuple[tuple[int, ...], list[str]]:
        """Ids, and how they are shown."""
        start = self._starts[i]
        own = slice(start, start + self._it.run.steps[i].tokens)
        return self._it.run.tokens[own], self._words[own]

    def _drafted_words(self, i: int) -> list[str]:
        """How the draft's tokens are shown, each after its parent."""
        before = self._begun[self._starts[i] - 1]
        parents = self._it.run.parents[i]
        words: list[str] = []
        begun: list[bytes] = []
        for j, token in enumerate(self._it.run.drafts[i]):
            parent = parents[j] if parents else j - 1
            word, left = self._text(token, begun[parent] if parent >= 0 else before)
            words.append(word)
            begun.append(left)
        return words

    def _line(self, i: int) -> Content:
        step, (_, words) = self._it.run.steps[i], self._emitted(i)
        parts: list[Content | tuple[str, str] | str] = [
            (word, self._drafted) for word in words[: step.accepted]
        ]
        chain = not self._it.run.parents[i]
        if chain:
            parts += [(word, "$error strike") for word in self._drafted_words(i)[step.accepted :]]
        elif step.nodes > step.accepted:
            parts.append((f" {step.nodes - step.accepted} nodes ", "$error"))
        parts += [(word, "bold") for word in words[step.accepted :]]
        return Content.assemble(*parts)

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        self._show(event.option_index)

    def _show(self, i: int) -> None:
        run = self._it.run
        if not i < len(run.steps):
            return
        step, drafted, (emitted, words) = run.steps[i], run.drafts[i], self._emitted(i)
        drafted_words = self._drafted_words(i)
        score = run.scores[i] if run.scores else None
        lines = [
            Content.styled(f"Step {i + 1}: {_times(step)}", "$text-muted"),
            Content.styled(f"{'':14}{'p':>7} {'q':>7}", "$text-muted"),
        ]
        kept = list(emitted[: step.accepted])
        parents = run.parents[i]
        node = -1
        for j, token in enumerate(drafted):
            parent = parents[j] if parents else j - 1
            accepted = bool(kept) and parent == node and token == kept[0]
            if accepted:
                node = j
                kept.pop(0)
            p, q = (score.p[j], score.q[j]) if score else (None, None)
            looked_at = accepted or parent == node
            word = "accepted" if accepted else "rejected" if looked_at else "not looked at"
            style = self._drafted if accepted else "$error" if looked_at else "$text-muted"
            text = drafted_words[j]
            lines.append(self._row(text, style, p, q, word, asked=score is not None))
        for k, text in enumerate(words[step.accepted :], step.accepted):
            p = score.emitted[k] if score else None
            word = "correction" if step.drafted > step.accepted else "bonus"
            word = word if step.drafted else "no draft"
            lines.append(self._row(text, "bold", p, None, word, asked=score is not None))
        if score is None:
            lines += [Content(), Content.styled(RUNNING if self._scoring else OFFER, "$accent")]
        self.query_one("#detail", Static).update(Content("\n").join(lines))

    def _row(
        self, text: str, style: str, p: float | None, q: float | None, word: str, *, asked: bool
    ) -> Content:
        def number(value: float | None) -> str:
            return f"{value:7.3f}" if value is not None else f"{'-' if asked else '?':>7}"

        cells = Content.styled(text, style).truncate(13, ellipsis=True)
        return Content.assemble(
            cells,
            " " * max(14 - cells.cell_length, 1),
            f"{number(p)} {number(q)}  ",
            (word, "$text-muted"),
        )

    def action_explain(self) -> None:
        from localspec.tui.screens.explain import ExplainScreen

        keys = [("p", "Run the answer again for p and q"), ("↑ ↓", "Another step")]
        self.app.push_screen(ExplainScreen("Steps", ("p and q", "drafted", "accept length"), keys))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "score" or not (self._it.run.scores or self._scoring)

    def action_score(self) -> None:
        self._run_again()

    @work
    async def _run_again(self) -> None:
        self._now_scoring(True)
        try:
            scored = await self._score()
        except LocalspecError as error:
            self.notify(error.hint, title=error.message, severity="error", markup=False)
            scored = None
        self._now_scoring(False)
        if scored is not None:
            run, parting = self._it.run.scored_by(scored), self._it.run.parts_from(scored)
            self._it = replace(self._it, run=run, parting=parting)
            self.refresh_bindings()
            self._fill()

    def _now_scoring(self, scoring: bool) -> None:
        self._scoring = scoring
        self.refresh_bindings()
        highlighted = self.query_one(OptionList).highlighted
        if highlighted is not None:
            self._show(highlighted)


def _times(step: Step) -> str:
    return (
        f"draft {milliseconds(step.t_draft)}, verify {milliseconds(step.t_verify)}, "
        f"all {milliseconds(step.t_step)}"
    )
