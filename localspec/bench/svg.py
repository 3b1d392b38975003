"""Shapes and letters of an SVG, and how wide letters are. Nothing here knows of benchmarks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from math import ceil, floor, log10
from typing import Literal

INK, SOFT, FAINT, PAPER = "#1b2330", "#5b6472", "#d9dee6", "#ffffff"
GREEN, RED, GREY = "#1a7f4b", "#b3401f", "#8a94a6"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b07d00", "#4a90c2", "#7a5195")
"""Of series: told apart by people who see colours otherwise, too (Okabe and Ito 2008, darkened)."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', sans-serif"
Anchor = Literal["start", "middle", "end"]

_NARROW, _WIDE = set("fijlrtI.,:;|!'()[] -"), set("mwMWQOGD@%")


def width_of(words: str, size: float, *, bold: bool = False) -> float:
    """About how wide it is drawn, rather too wide: no font is here to be asked."""
    em = sum(0.36 if c in _NARROW else 0.92 if c in _WIDE else 0.62 for c in words)
    return em * size * (1.06 if bold else 1.0)


def fitted(words: str, size: float, width: float, *, bold: bool = False, keep: str = "") -> str:
    """The words, cut with "..." where they are wider; their end ``keep`` stays."""
    if width_of(words, size, bold=bold) <= width:
        return words
    if keep and words.endswith(keep):
        room = width - width_of(keep, size, bold=bold)
        return fitted(words.removesuffix(keep), size, room, bold=bold) + keep
    while words and width_of(words + "...", size, bold=bold) > width:
        words = words[:-1]
    return words.rstrip() + "..."


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


def line(x1: float, y1: float, x2: float, y2: float, colour: str = FAINT, width: float = 1) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width:g}" stroke-linecap="round"/>'
    )


def rect(x: float, y: float, width: float, height: float, colour: str, radius: float = 0) -> str:
    round_ = f' rx="{radius:g}"' if radius else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" '
        f'fill="{colour}"{round_}/>'
    )


def dot(x: float, y: float, radius: float, colour: str, *, hollow: bool = False) -> str:
    fill = f'fill="{PAPER}" stroke="{colour}" stroke-width="2"' if hollow else f'fill="{colour}"'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" {fill}/>'


def path(points: Sequence[tuple[float, float]], colour: str, width: float = 2) -> str:
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="{width:g}" '
        'stroke-linejoin="round"/>'
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
