"""One side of an A/B: its name and what it does, its figures, and where its time goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from localspec.tui.widgets.steady import Steady

if TYPE_CHECKING:
    from localspec.bench.analysis import Figures

MUTED = "$foreground 60%"
PARTS = (
    ("draft", "▒", "$text-warning"),
    ("verify", "█", "$text-primary"),
    ("rest", "░", MUTED),
)
"""Name, sign and colour of each part of a step's time."""


def figures_line(tps: float | None, accept_length: float | None, columns: int) -> Content:
    """42.7 tok/s · 2.41 tokens a pass · 23.4 ms a token"""
    if tps is None or accept_length is None:
        return Content("not measured yet").stylize(MUTED)
    speed, time = f"{tps:.1f}", f"{1e3 / tps:.1f} ms"
    rest = f" tok/s · {accept_length:.2f} tokens a pass · {time} a token"
    if len(speed) + len(rest) > columns:
        rest = f" tok/s · AL {accept_length:.2f} · {time}/tok"
    return Content.assemble((speed, "bold"), rest)


def parts_of(figures: Figures) -> dict[str, float] | None:
    """Milliseconds of each part in a pass of the target, a mean over all."""
    passes, t = figures.counts.target_calls, figures.times
    if not passes:
        return None
    rest = t.step - t.draft - t.verify
    seconds = {"draft": t.draft, "verify": t.verify, "rest": rest}
    return {name: 1e3 * s / passes for name, s in seconds.items()}


def parts_line(parts: dict[str, float] | None, scale: float, columns: int) -> Content:
    """A bar as long as the pass is of ``scale`` ms, then the numbers on a line of their own."""
    if parts is None or scale <= 0:
        return Content("\n")
    whole = sum(parts.values())
    word = f" {_short(whole)} ms/pass"
    room = max(1, columns - len(word))
    bar, drawn, gone = [], 0, 0.0
    for name, sign, colour in PARTS:
        gone += parts[name]
        cells = round(room * gone / scale) - drawn  # of the sum, so that rounding does not add up
        bar.append((sign * cells, colour))
        drawn += cells
    legend = [
        part
        for name, sign, colour in PARTS
        for part in ((sign, colour), f"{name} {_short(parts[name])} ")
    ]
    return Content.assemble(*bar, (word, "bold"), "\n", *legend)


def _short(milliseconds: float) -> str:
    return f"{milliseconds:.1f}" if milliseconds < 100 else f"{milliseconds:.0f}"


class SideHead(Steady):
    DEFAULT_CSS = """
    SideHead { width: 1fr; height: 1; padding: 0 1; background: $panel; }
    """

    def show(self, letter: str, name: str, state: Content | str = "") -> None:
        left = Content.assemble((letter, "bold $text-accent"), " ", (name, "bold"))
        width = self.content_size.width
        right = state if isinstance(state, Content) else Content(state)
        room = max(0, width - right.cell_length - 1)
        left = left.truncate(room, ellipsis=True)
        space = max(1, width - left.cell_length - right.cell_length)
        self.update(Content.assemble(left, " " * space, right))


class SideFigures(Steady):
    """Three lines: figures, the time of a pass as a bar, and its parts."""

    DEFAULT_CSS = """
    SideFigures { width: 1fr; height: 3; padding: 0 1; }
    """

    def show(
        self,
        tps: float | None,
        accept_length: float | None,
        parts: dict[str, float] | None = None,
        scale: float = 0.0,
    ) -> None:
        line = figures_line(tps, accept_length, self.content_size.width)
        bar = parts_line(parts, scale, self.content_size.width)
        self.update(Content.assemble(line, "\n", bar))
