"""A result's two plots. Each line has a mark of its own, so that colour is not needed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.color import Color
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Size
from textual.widgets import Static
from textual_plotext import PlotextPlot

from localspec.bench.series import (
    Series,
    baselines,
    reach_by_position,
    speed_by_length,
    speed_of_adaptive,
)

if TYPE_CHECKING:
    from localspec.tui.app import LocalspecApp

Json = dict[str, Any]
MARKS = "●▲■◆○△□◇"
COLOURS = ("accent", "primary", "warning", "secondary", "error", "success")
DASH = "╌"
MARGIN = 0.08
"""Room above and below the lines, as a share of their height."""


class Canvas(PlotextPlot):  # type: ignore[misc]  # it comes without types
    """A plot that is drawn in a turn of its own: that takes as long as painting the rest of the
    screen. Until then the last one of that size stands."""

    def __init__(self) -> None:
        super().__init__()
        self._drawn: Content | None = None
        self._drawn_as: tuple[Size, str] | None = None
        self._stale = True
        self._waiting = False

    def change(self) -> None:
        """Something else is to be drawn."""
        self._stale = True
        self.refresh()

    def render(self) -> Content:
        wanted = self.size, self.app.theme
        if (self._stale or self._drawn_as != wanted) and not self._waiting:
            self._waiting = True
            self.screen.call_later(self._draw)  # of many such messages each may be the last
        if self._drawn is None or self._drawn_as != wanted:
            return Content()
        return self._drawn

    def _draw(self) -> None:
        self._waiting = False
        if not self.is_attached:
            return
        self._drawn_as, self._stale = (self.size, self.app.theme), False
        self._drawn = Content.from_rich_text(cast("Text", super().render()))
        self.refresh()


class Plot(Vertical):
    """A plot with its legend above it, where it covers no line."""

    DEFAULT_CSS = """
    Plot {
        height: 16;
        width: 1fr;
        min-width: 36;
        background: $surface;
        border: round $border-blurred;
        border-title-color: $foreground;
        border-subtitle-color: $foreground;
        padding: 0 1;
        Static { height: auto; background: $surface; }
    }
    """

    def __init__(self, title: str, *, id: str) -> None:  # noqa: A002  Textual's own name
        super().__init__(id=id)
        self.border_title = title

    def compose(self) -> ComposeResult:
        yield Static()
        yield Canvas()

    def draw(self, lines: Sequence[Series], levels: Sequence[tuple[str, float]] = ()) -> None:
        """``lines``, and a dashed line at each of ``levels``."""
        self.display = bool(lines or levels)
        plt = self.query_one(Canvas).plt
        plt.clear_data()
        colours = cycle(self._colours())
        legend: list[str | tuple[str, str]] = []
        xs = sorted({x for line in lines for x in line.xs}) or [1]
        reach = (xs[0] - 0.5, xs[-1] + 0.5)
        for label, y in levels:
            plt.plot(reach, [y, y], marker=DASH, color="default")
            legend.append(f"{DASH * 2} {label} {y:.1f}   ")
        for line, mark in zip(lines, cycle(MARKS), strict=False):
            colour = next(colours)
            if len(line.xs) > 1:
                plt.plot(line.xs, line.ys, marker="braille", color=colour.rgb)
            plt.scatter(line.xs, line.ys, marker=mark, color=colour.rgb)
            legend.append((f"{mark} {line.name}   ", colour.hex))
        ys = [y for line in lines for y in line.ys] + [y for _, y in levels]
        if ys:
            room = MARGIN * (max(ys) - min(ys)) or 1.0
            plt.ylim(max(0.0, min(ys) - room), max(ys) + room)
            plt.xlim(*reach)
            plt.xticks(xs)
        self.query_one(Static).update(Content.assemble(*legend))
        self.query_one(Canvas).change()

    def _colours(self) -> list[Color]:
        app: LocalspecApp = self.app  # type: ignore[assignment]
        return [Color.parse(app.theme_variables[name]) for name in COLOURS]


class SpeedPlot(Plot):
    def __init__(self) -> None:
        super().__init__("tok/s by draft length n", id="speed-plot")

    def show(self, result: Json) -> None:
        levels = baselines(result)
        lines = speed_by_length(result)
        self.draw(lines, levels if lines else ())
        adaptive = ", ".join(f"{who} {tps:.1f}" for who, tps in speed_of_adaptive(result))
        self.border_subtitle = f"lengths chosen step by step: {adaptive}" if adaptive else ""


class ReachPlot(Plot):
    def __init__(self) -> None:
        super().__init__("% of drafts accepted up to position", id="reach-plot")

    def show(self, result: Json) -> None:
        self.draw(reach_by_position(result))
