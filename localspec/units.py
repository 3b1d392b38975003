"""Quantities in words, and names in little room, the same everywhere."""

from __future__ import annotations

from typing import IO

MORE_DIGITS = 6
"""So many at most, of a figure that is all but equal to another."""


def duration(seconds: float) -> str:
    """ "45 s", "2 min 10 s", "1 h 5 min"."""
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60} s"
    return f"{total // 3600} h {total % 3600 // 60} min"


def with_interval(
    value: float,
    interval: tuple[float, float],
    digits: int = 2,
    *,
    no_difference: float = 1.0,
    sign: str = "",
) -> tuple[str, str, str]:
    """A figure and the ends of its interval: "1.02", "1.003", "1.03". Where the interval leaves out
    ``no_difference``, none of them is rounded to it: that end is why there is a verdict."""
    low, high = interval
    outside = not low <= no_difference <= high

    def written(number: float) -> str:
        for places in range(digits, digits + MORE_DIGITS):
            rounded = round(number, places) + 0.0  # never "-0.0"
            if rounded != no_difference or number == no_difference or not outside:
                break
        return f"{rounded:{sign}.{places}f}"

    return written(value), written(low), written(high)


def speedup(value: float, interval: tuple[float, float] | None) -> str:
    """ "1.12x [1.05, 1.19]"."""
    if interval is None:
        return f"{value:.2f}x"
    shown, low, high = with_interval(value, interval)
    return f"{shown}x [{low}, {high}]"


def many(n: int, what: str, plural: str = "") -> str:
    """ "1 prompt", "2 prompts"; ``plural`` where that is not ``what`` and an s."""
    return f"{n} {what if n == 1 else plural or what + 's'}"


def passes(n: int, replays: int) -> str:
    """ "1 pass", "84 passes, 35 of them replays"."""
    of_them = "a replay" if replays == 1 else "replays"
    again = f", {replays} of them {of_them}" if replays else ""
    return f"{n} pass{'' if n == 1 else 'es'}{again}"


def file_size(n_bytes: float) -> str:
    """ "4.1 GB", in the decimal units of the Hub's pages and of file managers."""
    value, units = float(n_bytes), ["B", "kB", "MB", "GB"]
    while value >= 999.95 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.0f} B" if units[0] == "B" else f"{value:.1f} {units[0]}"


def of_size(done: int, size: int) -> str:
    """ "1.2 of 4.1 GB"."""
    whole = file_size(size)
    had = file_size(done)
    same = had.split()[-1] == whole.split()[-1]
    return f"{had.split()[0] if same else had} of {whole}"


def parameters(n: int) -> str:
    """Three digits of a number of parameters, as model names give it: "135M", "7.24B"."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if n >= 0.9995 * size:
            return f"{n / size:.3g}{unit}"
    return str(n)


def exact(number: float) -> str:
    """As short as it can be and still be read as this very number: "0.8", "1234567"."""
    return str(int(number)) if float(number).is_integer() else repr(number)


def shortened(name: str, width: int) -> str:
    """The name within ``width`` columns; both its ends tell files apart."""
    if len(name) <= width:
        return name
    head = (width - 1) // 3
    return f"{name[:head]}…{name[head + 1 - width :]}"


def folded(text: str, out: IO[str]) -> str:
    """``text`` for ``out``: on a terminal long lines are folded between words, and what goes on is
    indented to where a label ends; anything else gets whole lines."""
    import re
    import shutil
    import textwrap

    if not out.isatty():
        return text
    width, lines = shutil.get_terminal_size().columns, []
    for line in text.splitlines():
        label = re.match(r"\S+ {2,}", line)
        lines += textwrap.wrap(
            line,
            width,
            subsequent_indent=" " * (len(label[0]) if label else 0),
            break_on_hyphens=False,
            break_long_words=False,
        ) or [""]
    return "\n".join(lines)
