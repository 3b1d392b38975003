"""Shapes and letters of an SVG, and how wide letters are. Nothing here knows of benchmarks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from math import ceil, cos, floor, log10, pi, sin
from typing import Literal

from localspec.units import shortened

INK, SOFT, FAINT, PAPER = "#1b2330", "#5b6472", "#d9dee6", "#ffffff"
GREEN, RED, GREY = "#1a7f4b", "#b3401f", "#8a94a6"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b07d00", "#4a90c2", "#7a5195")
"""Of series: told apart by people who see colours otherwise, too (Okabe and Ito 2008, darkened)."""
DASHES = ("", "9 5", "2 5", "12 4 2 4")
"""Of lines."""
SHAPES = ("circle", "square", "triangle", "diamond", "turned", "plus", "star", "cross")
"""Of marks: colours alone are too few, and not everybody sees them."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', sans-serif"
SHORTEST = 4
"""Letters that are left of a word."""
Anchor = Literal["start", "middle", "end"]

_NARROW, _WIDE = set("fijlrtI.,:;|!'()[] -"), set("mwMWQOGD@%")


def width_of(words: str, size: float, *, bold: bool = False) -> float:
    """About how wide it is drawn, rather too wide: no font is here to be asked."""
    em = sum(0.36 if c in _NARROW else 0.92 if c in _WIDE else 0.62 for c in words)
    return em * size * (1.06 if bold else 1.0)


def fitted(words: str, size: float, width: float, *, bold: bool = False) -> str:
    """The words, cut with "..." where they are wider."""
    if width_of(words, size, bold=bold) <= width:
        return words
    while words and width_of(words + "...", size, bold=bold) > width:
        words = words[:-1]
    return words.rstrip() + "..."


def shortened_to(words: str, size: float, width: float) -> str:
    """The words, the longest of them shortened for as long as they are wider: each stays to be
    known."""
    whole = words.split(" ")
    kept = [len(word) for word in whole]
    shown = words
    while width_of(shown, size) > width and max(kept) > SHORTEST:
        kept[kept.index(max(kept))] -= 1
        shown = " ".join(map(shortened, whole, kept))
    return shown


def size_for(words: str, width: float, most: float, least: float, *, bold: bool = False) -> float:
    """The greatest size at which the words are no wider."""
    at_one = width_of(words, 1, bold=bold) or 1
    return max(least, min(most, width / at_one))


def text(
    x: float,
    y: float,
    words: str,
    *,
    size: float = 13,
    colour: str = INK,
    anchor: Anchor = "start",
    bold: bool = False,
) -> str:
    weight = ' font-weight="600"' if bold else ""
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{colour}"{place}{weight}>'
        f"{escape(words)}</text>"
    )


def line(
    x1: float,
    y1: float,
    x2: float,
    y2: float,
    colour: str = FAINT,
    width: float = 1,
    dashes: str = "",
) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width:g}" {_dashed(dashes)}/>'
    )


def _dashed(dashes: str) -> str:
    return f'stroke-dasharray="{dashes}"' if dashes else 'stroke-linecap="round"'


def rect(x: float, y: float, width: float, height: float, colour: str, radius: float = 0) -> str:
    round_ = f' rx="{radius:g}"' if radius else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" '
        f'fill="{colour}"{round_}/>'
    )


def dot(x: float, y: float, radius: float, colour: str, *, hollow: bool = False) -> str:
    fill = f'fill="{PAPER}" stroke="{colour}" stroke-width="2"' if hollow else f'fill="{colour}"'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" {fill}/>'


def point(
    shape: str, x: float, y: float, radius: float, colour: str, *, hollow: bool = False
) -> str:
    """One of ``SHAPES``, of about the same area whichever it is."""
    if shape == "circle":
        return dot(x, y, radius, colour, hollow=hollow)
    corners = " ".join(f"{x + radius * dx:.1f},{y + radius * dy:.1f}" for dx, dy in _CORNERS[shape])
    fill = f'fill="{PAPER}" stroke="{colour}" stroke-width="2"' if hollow else f'fill="{colour}"'
    return f'<polygon points="{corners}" {fill}/>'


Corners = tuple[tuple[float, float], ...]


def _around(radii: Sequence[float], turned: float = 0.0) -> Corners:
    """Corners at these distances from the middle, the first one above it."""
    steps = [2 * pi * i / len(radii) + turned for i in range(len(radii))]
    return tuple((r * sin(a), -r * cos(a)) for r, a in zip(radii, steps, strict=True))


_ARM, _THICK = 1.25, 0.4
_PLUS: Corners = (
    (-_THICK, -_ARM), (_THICK, -_ARM), (_THICK, -_THICK), (_ARM, -_THICK), (_ARM, _THICK),
    (_THICK, _THICK), (_THICK, _ARM), (-_THICK, _ARM), (-_THICK, _THICK), (-_ARM, _THICK),
    (-_ARM, -_THICK), (-_THICK, -_THICK),
)  # fmt: skip
_HALF = 0.5**0.5
_CORNERS: dict[str, Corners] = {
    "square": _around([1.25] * 4, pi / 4),
    "triangle": _around([1.4] * 3),
    "diamond": _around([1.35] * 4),
    "turned": _around([1.4] * 3, pi),
    "plus": _PLUS,
    "star": _around([1.6, 0.7] * 5),
    "cross": tuple((_HALF * (x - y), _HALF * (x + y)) for x, y in _PLUS),
}


def path(
    points: Sequence[tuple[float, float]], colour: str, width: float = 2, dashes: str = ""
) -> str:
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="{width:g}" '
        f'stroke-linejoin="round" {_dashed(dashes)}/>'
    )


def document(width: float, height: float, title: str, parts: Iterable[str]) -> str:
    """A whole file; ``title`` is what a screen reader says."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img" font-family="{FONT}">\n'
        f"<title>{escape(title)}</title>\n{rect(0, 0, width, height, PAPER)}\n"
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def moved(x: float, y: float, parts: Iterable[str]) -> str:
    return f'<g transform="translate({x:g} {y:g})">' + "\n".join(parts) + "</g>"


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from ``low`` to ``high``, the nearest below and above included."""
    span = (high - low) or abs(high) or 1.0
    rough = span / about
    power = 10.0 ** floor(log10(rough))
    step = next((m * power for m in (1, 2, 2.5, 5) if m * power >= rough), 10 * power)
    first = floor(low / step)
    last = max(ceil(high / step), first + 1)
    return [round(i * step, 10) for i in range(first, last + 1)]
