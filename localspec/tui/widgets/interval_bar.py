"""A speedup and its confidence interval on an axis that stays while the interval narrows."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from textual.content import Content
from textual.events import Resize

from localspec.tui.widgets.steady import Steady

STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0)
"""From one label to the next; 1.00 is a multiple of each."""
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0), (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Labels of a wide axis: equal steps would crowd at its upper end and be rare at the lower one."""
LABEL_COLUMNS = 8
FARTHEST = 10.0
"""Ends of the axis, as a factor: the first intervals of unsteady runs can be absurdly wide."""

Interval = tuple[float, float]


class Axis:
    """A logarithmic axis over ``columns``: twice as fast lies as far from 1 as half as fast."""

    def __init__(self, low: float, high: float, columns: int) -> None:
        self.low, self.high = low, high
        self.columns = max(2, columns)

    @classmethod
    def around(cls, low: float, high: float, columns: int) -> Axis:
        """One that holds the interval and 1.00, with a little space at both ends."""
        low = max(1 / FARTHEST, min(low, 1.0))
        high = min(FARTHEST, max(high, 1.0))
        space = max(0.05 * math.log(high / low), 0.01)
        return cls(low * math.exp(-space), high * math.exp(space), columns)

    def column(self, value: float) -> int:
        """Where ``value`` lies; what lies outside is put at the end."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return round(min(1.0, max(0.0, share)) * (self.columns - 1))

    def ticks(self) -> list[float]:
        """Round numbers along it and 1.00 among them, as dense as their labels allow: those that
        leave the shortest stretch without one."""
        steps = [[i * step for i in range(1, int(self.high / step) + 1)] for step in STEPS]
        inside = [
            [x for x in numbers if self.low <= x <= self.high] for numbers in (*steps, *FACTORS)
        ]
        fit = [found for found in inside if self._nearest(found) >= LABEL_COLUMNS]
        return min(fit, key=self._farthest, default=[1.0])

    def _nearest(self, ticks: list[float]) -> int:
        places = [self.column(x) for x in ticks]
        return min((b - a for a, b in pairwise(places)), default=self.columns)

    def _farthest(self, ticks: list[float]) -> int:
        places = [0, *(self.column(x) for x in ticks), self.columns - 1]
        return max(b - a for a, b in pairwise(places))


def draw(axis: Axis, speedup: float, interval: Interval | None) -> Content:
    """Two lines: the interval over the axis with its labels; ``┃`` stands at 1.00."""
    bar = [" "] * axis.columns
    ruler = ["─"] * axis.columns
    labels = [" "] * axis.columns
    for tick in axis.ticks():
        place = axis.column(tick)
        ruler[place] = "┴"
        text = f"{tick:.2f}"
        at = min(max(0, place - len(text) // 2), axis.columns - len(text))
        labels[at : at + len(text)] = text
    one, here = axis.column(1.0), axis.column(speedup)
    style = "$text-primary"
    if interval is not None:
        low, high = axis.column(interval[0]), axis.column(interval[1])
        bar[low : high + 1] = "━" * (high - low + 1)
        bar[low], bar[high] = "┣", "┫"
        if interval[0] > 1:
            style = "$text-success"
        elif interval[1] < 1:
            style = "$text-error"
    # an interval of one column is its dot
    bar[one] = "┃" if bar[one] == " " else "╋"
    bar[here] = "●"
    ruler[one] = "╂"
    return Content("\n").join(
        [
            Content("".join(bar)).stylize(style).stylize("$foreground bold", here, here + 1),
            Content("".join(ruler)).stylize("$foreground 60%"),
            Content("".join(labels)).stylize("$foreground 60%"),
        ]
    )


class IntervalBar(Steady):
    """``show`` it again after every pair: until the end the axis is as wide as the widest interval
    was, so that it does not jump."""

    DEFAULT_CSS = """
    IntervalBar { height: 3; padding: 0 1; }
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._speedup: float | None = None
        self._interval: Interval | None = None
        self._widest: Interval | None = None

    def clear(self) -> None:
        self._speedup = self._interval = self._widest = None
        self._draw()

    def show(self, speedup: float | None, interval: Interval | None, *, ended: bool) -> None:
        self._speedup, self._interval = speedup, interval
        if ended:
            self._widest = interval
        elif interval is not None:
            low, high = self._widest or interval
            self._widest = min(low, interval[0]), max(high, interval[1])
        self._draw()

    def on_resize(self, _event: Resize) -> None:
        self._draw()

    def _draw(self) -> None:
        width = self.content_size.width
        if self._speedup is None or width < LABEL_COLUMNS:
            self.update("")
            return
        low, high = self._widest or (self._speedup / 1.5, self._speedup * 1.5)
        self.update(draw(Axis.around(low, high, width), self._speedup, self._interval))
