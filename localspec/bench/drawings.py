"""The plots of a result: speedups with their intervals, speed by draft length, how far drafts are
accepted, where the time of a token goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, product
from math import log
from typing import Any

from localspec.bench.series import (
    Series,
    baselines,
    predicted_by_length,
    reach_by_position,
    speed_by_length,
)
from localspec.bench.svg import (
    COLOURS,
    DASHES,
    FAINT,
    GREEN,
    GREY,
    INK,
    RED,
    SHAPES,
    SOFT,
    document,
    dot,
    fitted,
    line,
    moved,
    path,
    point,
    rect,
    shortened_to,
    text,
    ticks,
    width_of,
)
from localspec.bench.table import (
    UNICODE,
    contenders,
    heading,
    named,
    number,
    speedup,
    unlike_quotients,
    unlike_runs,
    verdict,
)

Json = dict[str, Any]
WIDTH = 820
LABELS, MOST_LABELS = 200.0, 270.0
"""Of the names at the left, by how wide they are."""
GAP = 14.0
LEGEND = 250.0
"""Of the names at the right of a plot of lines."""
SAMPLE = 26.0
"""Of a line, before its name there."""
SIZE, SMALLEST = 13.0, 11.0
"""Of letters: names that are wider get smaller ones, and are shortened where that is not enough."""
ROW = 26
SPEEDUPS = (
    0.1,
    0.2,
    0.3,
    0.4,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
    1,
    1.2,
    1.4,
    1.6,
    1.8,
    2,
    2.5,
    3,
    4,
    5,
    7,
    10,
)
"""Where a scale of speedups, which is logarithmic, may have a mark."""
MARKS = 9
APART = 16.0
"""Between two names of a legend."""
PARTS = (("verify", "#0072b2"), ("draft", "#d55e00"), ("rollback", "#cc79a7"), ("overhead", GREY))


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot of ``WIDTH``, its upper left corner at 0, 0."""

    title: str
    height: float
    parts: tuple[str, ...]

    @property
    def svg(self) -> str:
        return document(WIDTH, self.height, self.title, self.parts)


def plots(result: Json) -> list[Plot]:
    """All that this result has the figures for."""
    found = [
        speedups(result),
        speeds(result),
        foreseen(result),
        reach(result),
        time_of_a_token(result),
    ]
    return [plot for plot in found if plot is not None]


def to_svg(result: Json) -> str:
    """All plots below each other, in one file."""
    parts, y = (
        [text(0, 16, fitted(heading(result, 110), 12, WIDTH * 1.1), size=12, colour=SOFT)],
        40.0,
    )
    for plot in plots(result):
        parts.append(moved(0, y, plot.parts))
        y += plot.height + 24
    title = f"localspec bench: {result['target']['name']}"
    return document(WIDTH + 40, y + 20, title, [moved(20, 20, parts)])


# ---- speedups -----------------------------------------------------------------------------------


def colour_of(candidate: Json) -> str:
    return {"faster": GREEN, "slower": RED}.get(candidate.get("verdict") or "", SOFT)


def speedups(result: Json) -> Plot | None:
    """The interval of every candidate, in all and by workload, on one logarithmic scale."""
    drafted = [c for c in contenders(result) if c["speedup"]]
    if not drafted:
        return None
    groups: list[tuple[str, list[tuple[Json, Json]]]] = [("", [(c, c) for c in drafted])]
    names = [w["name"] for w in result["workloads"]]
    if len(names) > 1 and not result["settings"]["quick"]:
        for workload in names:
            rows = [(c, c["by_workload"][workload]) for c in drafted]
            groups.append((workload, [(c, part) for c, part in rows if part["speedup"]]))
    values = [
        v
        for _, rows in groups
        for _, part in rows
        for v in (part["speedup"], *(part["speedup_ci"] or ()))
    ]
    marks = _marks(min(*values, 0.95), max(*values, 1.05))
    names_ = _Names([named(c, result["candidates"]) for c in drafted])
    place = _scale(log(marks[0]), log(marks[-1]), names_.width, WIDTH - 210)
    bases = result.get("bases")
    over = f"the baseline on {bases[0]['name']}" if bases else "the baseline"
    parts = [_title(f"Speedup over {over}, with its 95 % interval")]
    y = top = 40.0
    body: list[str] = []
    for title, rows in groups:
        if title:
            body.append(text(0, y + 17, title, bold=True))
            y += ROW
        for candidate, part in rows:
            judged = colour_of(candidate) if part is candidate else SOFT
            body.append(names_.at(y, named(candidate, result["candidates"])))
            body += _interval(candidate, part, y, place, judged)
            y += ROW
    shown = marks[:: -(-len(marks) // MARKS)] if len(marks) > MARKS else marks
    for mark in dict.fromkeys([*(m for m in shown if abs(m - 1) > 0.15), 1.0]):
        x = place(log(mark))
        parts.append(line(x, top, x, y, INK if mark == 1 else FAINT, 1.5 if mark == 1 else 1))
        parts.append(text(x, y + 17, f"{mark:g}x", size=12, colour=SOFT, anchor="middle"))
    return Plot("Speedup over the baseline", y + 26, (*parts, *body))


def _marks(low: float, high: float) -> list[float]:
    below = [s for s in SPEEDUPS if s <= low] or [SPEEDUPS[0]]
    above = [s for s in SPEEDUPS if s >= high] or [SPEEDUPS[-1]]
    return [s for s in SPEEDUPS if below[-1] <= s <= above[0]]


def _interval(
    candidate: Json,
    part: Json,
    y: float,
    place: Callable[[float], float],
    colour: str,
) -> list[str]:
    middle, interval = y + ROW / 2, part["speedup_ci"]

    def at(value: float) -> float:
        return place(log(min(max(value, SPEEDUPS[0]), SPEEDUPS[-1])))

    parts = []
    if interval is not None:
        parts.append(line(at(interval[0]), middle, at(interval[1]), middle, colour, 4))
    parts.append(dot(at(part["speedup"]), middle, 5, colour, hollow=interval is None))
    said = speedup(part)
    parts.append(text(WIDTH - 196, middle + 4.5, said, colour=colour, bold=part is candidate))
    if part is candidate and candidate["verdict"] in ("faster", "slower"):
        word = verdict(candidate, UNICODE)
        parts.append(text(WIDTH, middle + 4.5, word, colour=colour, anchor="end"))
    return parts


class _Names:
    """The names at the left of rows: all of one size, and none so short that it is another's."""

    def __init__(self, names: Sequence[str]) -> None:
        widest = max(width_of(name, 1) for name in names)
        self.width = min(max(LABELS, widest * SIZE + 2 * GAP), MOST_LABELS)
        self._room = self.width - 2 * GAP  # some fonts are wider than it is known here
        self._size = max(SMALLEST, min(SIZE, self._room / widest))

    def at(self, y: float, name: str) -> str:
        """Of the row that begins at ``y``."""
        shown = shortened_to(name, self._size, self._room)
        return text(self.width - GAP, y + ROW / 2 + 4.5, shown, size=self._size, anchor="end")


# ---- lines --------------------------------------------------------------------------------------


def speeds(result: Json) -> Plot | None:
    """tok/s by draft length, where a drafter was measured at several."""
    series = [s for s in speed_by_length(result) if len(s.xs) > 1]
    if not series:
        return None
    title = "Decode tok/s by draft length"
    if unlike_runs(result):
        title += " (numbers of runs differ)"
    elif unlike_quotients(result):  # the plot above shows other ratios
        title += " (all tokens / all time)"
    under = "the most tokens drafted a step"
    return _lines(title, under, series, baselines(result), low=0.0)


def foreseen(result: Json) -> Plot | None:
    """What the cost model predicts for every draft length, and what was measured at some."""
    both = [(p, m) for p, m in predicted_by_length(result) if p.xs]
    if not both:
        return None
    title = "Decode tok/s that the costs predict (lines), and that were measured (rings)"
    under = "the most tokens drafted a step"
    predicted, measured = zip(*both, strict=True)
    return _lines(title, under, predicted, baselines(result), rings=measured, low=0.0)


def reach(result: Json) -> Plot | None:
    series = [s for s in reach_by_position(result) if s.xs]
    if not series:
        return None
    title = "Drafts accepted up to each position, in % of the steps with a draft"
    return _lines(title, "position in the draft", series, (), low=0.0, high=100.0)


def _lines(
    title: str,
    under: str,
    series: Sequence[Series],
    level: Sequence[tuple[str, float]],
    *,
    rings: Sequence[Series] = (),
    low: float | None = None,
    high: float | None = None,
) -> Plot:
    top, left, right = 40.0, 48.0, WIDTH - LEGEND
    bottom = max(250.0, top + APART * (len(series) + len(level)))
    values = [y for s in (*series, *rings) for y in s.ys] + [v for _, v in level]
    marks = ticks(min(values) if low is None else low, max(values) if high is None else high)
    xs = sorted({x for s in series for x in s.xs})
    across = _scale(xs[0] - 0.3, xs[-1] + 0.3, left, right)
    up = _scale(marks[0], marks[-1], bottom, top)
    parts = [_title(title)]
    for mark in marks:
        parts.append(line(left, up(mark), right, up(mark)))
        parts.append(text(left - 8, up(mark) + 4, f"{mark:g}", size=12, colour=SOFT, anchor="end"))
    every = -(-len(xs) // 16)
    parts += [
        text(across(x), bottom + 18, str(x), size=12, colour=SOFT, anchor="middle")
        for x in xs[::every]
    ]
    middle = (left + right) / 2
    parts.append(text(middle, bottom + 38, under, size=12, colour=SOFT, anchor="middle"))
    ends: list[_End] = []
    greys = product((GREY, SOFT), DASHES)
    for (who, value), (colour, dashes) in zip(level, cycle(greys), strict=False):
        parts.append(line(left, up(value), right, up(value), colour, 2, dashes))
        ends.append(_End(up(value), who, colour, dashes))
    for i, one in enumerate(series):
        colour, dashes, shape = _style(i)
        points = [(across(x), up(y)) for x, y in zip(one.xs, one.ys, strict=True)]
        parts.append(path(points, colour, dashes=dashes))
        if not rings:
            parts += [point(shape, x, y, 3.5, colour) for x, y in points]
        ends.append(_End(points[-1][1], one.name, colour, dashes, shape, hollow=bool(rings)))
    for i, one in enumerate(rings):
        colour, _, shape = _style(i)
        parts += [
            point(shape, across(x), up(y), 5, colour, hollow=True)
            for x, y in zip(one.xs, one.ys, strict=True)
        ]
    parts += _legend(ends, right + 14, top, bottom)
    return Plot(title, bottom + 50, tuple(parts))


def _style(i: int) -> tuple[str, str, str]:
    """Colour, dashes and mark of the i-th line: no two of a plot have all three."""
    return (
        COLOURS[i % len(COLOURS)],
        DASHES[i // len(COLOURS) % len(DASHES)],
        SHAPES[i % len(SHAPES)],
    )


@dataclass(frozen=True, slots=True)
class _End:
    """Where a line ends, and what it looks like."""

    y: float
    who: str
    colour: str
    dashes: str
    shape: str = ""
    hollow: bool = False


def _legend(found: Sequence[_End], x: float, top: float, bottom: float) -> list[str]:
    """Names at the ends of their lines, moved apart where these lie close, each behind a piece of
    its line."""
    parts: list[str] = []
    ordered = sorted(found, key=lambda end: end.y)
    y = top - APART
    places = []
    for end in ordered:
        y = max(end.y, y + APART)
        places.append(y)
    over = max(0.0, places[-1] - bottom)
    for i in range(len(places) - 1, -1, -1):
        limit = places[i + 1] - APART if i + 1 < len(places) else bottom
        places[i] = min(places[i], limit) if over else places[i]
    room = WIDTH - x - SAMPLE
    size = max(SMALLEST, min(12.0, *(room / width_of(end.who, 1) for end in ordered)))
    for place, end in zip(places, ordered, strict=True):
        parts.append(line(x, place, x + SAMPLE - 6, place, end.colour, 2, end.dashes))
        if end.shape:
            middle = x + (SAMPLE - 6) / 2
            parts.append(point(end.shape, middle, place, 3.5, end.colour, hollow=end.hollow))
        shown = shortened_to(end.who, size, room)
        parts.append(text(x + SAMPLE, place + 4, shown, size=size, colour=end.colour))
    return parts


# ---- time ---------------------------------------------------------------------------------------


def time_of_a_token(result: Json) -> Plot | None:
    """Milliseconds of a token, by what they went into."""
    measured = [c for c in result["candidates"] if c["share"] and c["decode_tps"]]
    if not measured:
        return None
    longest = max(1e3 / c["decode_tps"] for c in measured)
    marks = ticks(0, longest)
    names = _Names([named(c, result["candidates"]) for c in measured])
    across = _scale(0, marks[-1], names.width, WIDTH - 60)
    title = "Where the milliseconds of a token go"
    parts, y = [_title(title)], 40.0
    x = WIDTH - 300.0
    for what, colour in PARTS:
        parts += [rect(x, 8, 11, 11, colour, 2), text(x + 16, 18, what, size=12, colour=SOFT)]
        x += 24 + width_of(what, 12)
    end = y + ROW * len(measured)
    for mark in marks:
        parts.append(line(across(mark), y, across(mark), end))
        label = text(across(mark), end + 17, f"{mark:g}", size=12, colour=SOFT, anchor="middle")
        parts.append(label)
    for candidate in measured:
        whole, start = 1e3 / candidate["decode_tps"], 0.0
        parts.append(names.at(y, named(candidate, result["candidates"])))
        for what, colour in PARTS:
            part = max(0.0, candidate["share"][what]) * whole
            parts.append(rect(across(start), y + 4, across(part) - across(0), ROW - 8, colour))
            start += part
        said = f"{number(whole, 1)} ms"
        parts.append(text(across(start) + 6, y + ROW / 2 + 4.5, said, size=12, colour=SOFT))
        y += ROW
    return Plot(title, end + 26, tuple(parts))


def _title(words: str) -> str:
    return text(0, 18, words, size=15, bold=True)


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    span = (high - low) or 1.0
    return lambda value: start + (value - low) / span * (end - start)
