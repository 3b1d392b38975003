"""A result's two plots. Each line has a mark of its own, so that colour is not needed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from math import floor, log10
from typing import Any, cast

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
from localspec.bench.table import unlike_runs

Json = dict[str, Any]
Colours = dict[str, str]
MARKS = "●▲■◆○△□◇"
COLOURS = ("accent", "primary", "warning", "secondary", "error", "success")
DASHES = "╌━·═"
"""Of levels."""
DOTS = 4
"""Of a braille character, above each other."""
AXES = 3
"""Lines above and below a plot: its frame, and what stands at its ticks."""
BETWEEN = " " * 3
"""Two entries of a legend."""
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
"""Between two ticks, times a power of ten."""
APART, CLOSE = (2, 3, 4), (1, 2)
"""Rows from a tick to the next; where a plot is lower than ``LOW`` rows."""
LOW = 6
FLATTEST = 0.02
"""Of values that are all the same, the height of the axis as a share of them."""
PERCENT = (0.0, 100.0)


@dataclass(frozen=True, slots=True)
class Axis:
    """``ticks`` stand at rows of their own, exactly: a value is drawn within half a row of where
    it belongs between them."""

    low: float
    high: float
    ticks: tuple[float, ...]
    labels: tuple[str, ...]


def axis_of(low: float, high: float, rows: int) -> Axis:
    """The finest of ``rows`` rows (2 or more) that shows all from ``low`` to ``high``: it begins
    with a tick, each a round step above the one before."""
    span = max(high - low, FLATTEST * abs(high)) or 1.0
    first = floor(log10(span / rows))
    fitting = []
    for step in (mantissa * 10.0**power for power in range(first, first + 4) for mantissa in STEPS):
        start = floor(round(low / step, 9)) * step
        for apart in APART if rows >= LOW else CLOSE:
            top = start + (rows - 1) * step / apart
            if top >= start + span and round(top - high, 9) >= 0 and apart < rows:
                fitting.append((step / apart, apart, step, start, top))
    _, apart, step, start, top = min(fitting)
    ticks = tuple(start + i * step for i in range((rows - 1) // apart + 1))
    digits = len(f"{step:.9f}".rstrip("0").partition(".")[2])
    return Axis(start, top, ticks, tuple(f"{tick:.{digits}f}" for tick in ticks))


class Canvas(PlotextPlot):  # type: ignore[misc]  # it comes without types
    """A plot that is drawn in a turn of its own: that takes as long as painting the rest of the
    screen. Until then the last one of that size and those colours stands."""

    def __init__(self) -> None:
        super().__init__()
        self.theme = "textual-clear"  # its ground and its frame have the colours of the widget
        self._lines: Sequence[Series] = ()
        self._levels: Sequence[float] = ()
        self._bounds: tuple[float, float] | None = None
        self._drawn: Content | None = None
        self._drawn_as: tuple[Size, Colours] | None = None
        self._stale = True
        self._waiting = False

    def show(
        self,
        lines: Sequence[Series],
        levels: Sequence[float],
        bounds: tuple[float, float] | None = None,
    ) -> None:
        """``lines``, and one without marks at each of ``levels``. ``bounds``: what the axis shows,
        else whatever the values need."""
        self._lines, self._levels, self._bounds = lines, levels, bounds
        self._stale = True
        self.refresh()

    def render(self) -> Content:
        wanted = self.size, self._colours()
        if (self._stale or self._drawn_as != wanted) and not self._waiting:
            self._waiting = True
            self.screen.call_later(self._draw)  # of many such messages each may be the last
        if self._drawn is None or self._drawn_as != wanted:
            return Content()
        return self._drawn

    def _colours(self) -> Colours:
        """As they are now: a theme's come some time after its name."""
        variables = self.app.theme_variables
        return {name: variables[name] for name in COLOURS}

    def _draw(self) -> None:
        self._waiting = False
        if not self.is_attached:
            return
        self._drawn_as, self._stale = (self.size, self._colours()), False
        self._plot_all()
        self._drawn = Content.from_rich_text(cast("Text", super().render()))
        self.refresh()

    def _plot_all(self) -> None:
        plt, colours = self.plt, self._colours()
        plt.clear_data()
        ys = [y for line in self._lines for y in line.ys] + [*self._levels]
        rows = self.size.height - AXES
        if not ys or rows < 2:
            return
        xs = sorted({x for line in self._lines for x in line.xs}) or [1]
        reach = (xs[0] - 0.5, xs[-1] + 0.5)
        axis = axis_of(*(self._bounds or (min(ys), max(ys))), rows)
        low, high = axis.low, axis.high
        for y, dash in zip(self._levels, cycle(DASHES), strict=False):
            plt.plot(reach, [y, y], marker=dash, color="default")
        beside = (reach[1] - reach[0]) / (len(self._lines) + 1)
        for i, (line, mark, name) in enumerate(
            zip(self._lines, cycle(MARKS), cycle(COLOURS), strict=False), 1
        ):
            colour = Color.parse(colours[name]).rgb
            # all at the only place there is, one mark would hide another of almost its value
            places = line.xs if len(xs) > 1 else [reach[0] + i * beside] * len(line.xs)
            if len(line.xs) > 1:
                shares = [self._of_dots((y - low) / (high - low)) for y in line.ys]
                along = [low + share * (high - low) for share in shares]
                plt.plot(places, along, marker="braille", color=colour)
            plt.scatter(places, line.ys, marker=mark, color=colour)
        plt.ylim(low, high)
        most = self._bounds[1] if self._bounds else high
        shown = [(y, text) for y, text in zip(axis.ticks, axis.labels, strict=True) if y <= most]
        plt.yticks(*map(list, zip(*shown, strict=True)))
        plt.xlim(*reach)
        plt.xticks(xs)

    def _of_dots(self, share: float) -> float:
        """Which share of the height a line has to be given to go through the rows of its marks, of
        the ticks and of the levels: plotext rounds to the nearest of its dots, ``DOTS`` in a row,
        as it rounds those to the nearest row."""
        rows: int = self.size.height - AXES
        return (DOTS / 2 - 0.5 + DOTS * (rows - 1) * share) / (DOTS * rows - 1)


class Plot(Vertical):
    """A plot with its legend above it, where it covers no line."""

    DEFAULT_CSS = """
    Plot {
        height: auto;
        width: 1fr;
        min-width: 36;
        background: $surface;
        border: round $border-blurred;
        border-title-color: $foreground;
        border-subtitle-color: $foreground;
        padding: 0 1;
        Static { height: auto; background: $surface; }
        Canvas { height: 13; }
    }
    """

    def __init__(self, title: str, *, id: str) -> None:  # noqa: A002  Textual's own name
        super().__init__(id=id)
        self.border_title = title
        self._legend: list[Content] = []

    def compose(self) -> ComposeResult:
        yield Static()
        yield Canvas()

    def draw(
        self,
        lines: Sequence[Series],
        levels: Sequence[tuple[str, float]] = (),
        bounds: tuple[float, float] | None = None,
    ) -> None:
        """``lines``, and one without marks at each of ``levels``, which have names."""
        self.display = bool(lines or levels)
        self._legend = [
            Content(f"{dash * 2} {label} {y:.1f}")
            for (label, y), dash in zip(levels, cycle(DASHES), strict=False)
        ]
        for line, mark, colour in zip(lines, cycle(MARKS), cycle(COLOURS), strict=False):
            self._legend.append(Content.styled(f"{mark} {line.name}", f"${colour}"))
        self._fold()
        self.query_one(Canvas).show(lines, [y for _, y in levels], bounds)

    def on_resize(self) -> None:
        self._fold()

    def _fold(self) -> None:
        """A mark and its name stay on one line, once it is known how long that is."""
        room = self.content_size.width or sys.maxsize
        lines: list[Content] = []
        for entry in self._legend:
            longer = Content(BETWEEN).join([*lines[-1:], entry])
            if lines and longer.cell_length <= room:
                lines[-1] = longer
            else:
                lines.append(entry)
        self.query_one(Static).update(Content("\n").join(lines))


class SpeedPlot(Plot):
    TITLE = "tok/s by draft length n"
    UNLIKE = f"{TITLE}: numbers of runs differ"

    def __init__(self) -> None:
        super().__init__(self.TITLE, id="speed-plot")

    def show(self, result: Json) -> None:
        self.border_title = self.UNLIKE if unlike_runs(result) else self.TITLE
        levels = baselines(result)
        lines = speed_by_length(result)
        self.draw(lines, levels if lines else ())
        adaptive = ", ".join(f"{who} {tps:.1f}" for who, tps in speed_of_adaptive(result))
        told = Content(f"lengths chosen step by step: {adaptive}") if adaptive else ""
        self.border_subtitle = told


class ReachPlot(Plot):
    def __init__(self) -> None:
        super().__init__("% of drafts accepted up to position", id="reach-plot")

    def show(self, result: Json) -> None:
        self.draw(reach_by_position(result), bounds=PERCENT)
