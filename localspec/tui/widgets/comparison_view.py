"""Two results against each other, as `localspec compare` says it."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from localspec.bench.comparison import Compared
from localspec.bench.past_table import answer, comparison_columns, remarks
from localspec.tui.widgets.report_view import Figures, Hidden, Page


class ComparisonView(Page):
    DEFAULT_CSS = """
    ComparisonView {
        height: 1fr;
        padding: 0 1;
        Static { height: auto; }
        #which { text-style: bold; }
        #changes-answer { text-style: bold; color: $accent; margin-bottom: 1; }
        #changes-answer.-worse { color: $text-error; }
        #changes-remarks { color: $text-muted; margin-top: 1; }
    }
    """

    def compose(self) -> ComposeResult:
        yield Static(id="which")
        yield Static(id="changes-answer")
        yield Figures()
        yield Hidden()
        yield Static(id="changes-remarks")

    def show(self, compared: Compared, before: str, after: str) -> None:
        """``before`` and ``after`` say which results they are."""
        self.query_one("#which", Static).update(Content(f"Benchmark {before}, then {after}"))
        self.query_one(Figures).fill(comparison_columns(compared), compared.changes)
        worse = any(change.regressions() for change in compared.changes)
        self.query_one("#changes-answer").set_class(worse, "-worse")
        self._say("#changes-answer", answer(compared))
        self._say("#changes-remarks", remarks(compared))

    def _say(self, where: str, lines: Sequence[str]) -> None:
        self.query_one(where, Static).update(Content("\n".join(lines)))
