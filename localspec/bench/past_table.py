"""The history, and two results against each other, in words and tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from localspec.bench.comparison import Change, Compared
from localspec.bench.pairs import Both
from localspec.bench.statistics import Comparison, Verdict
from localspec.bench.table import (
    BASE,
    DRAFTER,
    N_MAX,
    NA,
    TEMPERATURE,
    UNICODE,
    Column,
    Signs,
    named,
    number,
    side_by_side,
    speedup,
    verdict,
)
from localspec.records import ONE_PROMPT
from localspec.units import many, shortened, with_interval

if TYPE_CHECKING:
    from localspec.bench.history import Past

Json = dict[str, Any]

TOLD = 4
"""Regressions that the answer names; the table marks all."""

HISTORY = (
    Column("no", lambda p, _: str(p.id), head=True),
    Column("when", lambda p, _: p.day, right=False),
    Column("target", lambda p, _: _target_of(p), width=24, right=False),
    Column("best drafter", lambda p, _: _best_of(p), width=20, right=False),
    Column("speedup [95 %]", lambda p, _: speedup(p.best) if p.best else NA, right=False),
    Column("verdict", lambda p, signs: _verdict_of(p, signs), right=False),
    Column("baseline\ntok/s", lambda p, _: number(p.baseline_tps, 1)),
    Column("measured", lambda p, _: measured(p), width=30, right=False),
)
"""As a person asks: up to the verdict it is what happened, then of what."""
NARROWEST = 8
"""Columns that a name keeps, however narrow the terminal is."""


def fitting(found: Sequence[Past], room: int, gap: int) -> tuple[Column, ...]:
    """The columns so that those up to the verdict stand within ``room``, with ``gap`` between two:
    if need be without the year; else "when" comes after it, and names are shortened as far
    as it takes."""
    no, when, target, best, speed, judged, *others = HISTORY
    in_year = replace(when, cell=lambda p, _: p.day.partition("-")[2])
    for dated in (when, in_year):
        wanted = (no, dated, target, best, speed, judged)
        if sum(gap + _widest(column, found) for column in wanted) <= room:
            return (*wanted, *others)
    room -= 2 * gap + sum(gap + _widest(column, found) for column in (no, speed, judged))
    one, other = (max(NARROWEST, _widest(column, found)) for column in (target, best))
    second = max(NARROWEST, min(other, max(room // 2, room - one)))
    first = max(NARROWEST, min(one, room - second))
    names = (
        Column("target", lambda p, _: shortened(_target_of(p), first), right=False),
        Column("best drafter", lambda p, _: shortened(_best_of(p), second), right=False),
    )
    return (no, *names, speed, judged, when, *others)


def _widest(column: Column, found: Sequence[Past]) -> int:
    cells = [column.cell(past, UNICODE) for past in found]
    return max(map(len, (*column.title.split("\n"), *cells)))


def whole(past: Past) -> str:
    """All of a line of the history, for where its columns have no room."""
    said = (
        [past.day, _target_of(past), _best_of(past)] if past.best else [past.day, _target_of(past)]
    )
    return " · ".join([*said, f"baseline {number(past.baseline_tps, 1)} tok/s", measured(past)])


def _target_of(past: Past) -> str:
    return f"{past.target} {past.quant}"


def _best_of(past: Past) -> str:
    return str(past.best["name"]) if past.best else "-"


def _verdict_of(past: Past, signs: Signs) -> str:
    return verdict(past.best, signs) if past.best else past.status


def measured(past: Past) -> str:
    """ "17 prompts of chat8, code9, quick, interrupted", "8 prompts of chat8, by tune"."""
    parts = [_prompts(past)]
    parts += ["by tune"] if past.origin == "tune" else []
    parts += ["quick"] if past.quick else []
    parts += [past.status] if past.status != "complete" else []
    return ", ".join(parts)


def _prompts(past: Past) -> str:
    """ "8 prompts of chat8", "one prompt of yours at 0, 4k tokens"."""
    named = [w.partition("@") for w in past.workloads]
    if past.prompts > len(named) or {name for name, _, _ in named} != {ONE_PROMPT}:
        return f"{many(past.prompts, 'prompt')} of {', '.join(past.workloads)}"
    at = f" at {', '.join(depth or '0' for _, _, depth in named)} tokens"
    return "one prompt of yours" + at * any(depth for _, _, depth in named)


def render_history(found: Sequence[Past], console: Console) -> RenderableType:
    return Group(*_parted(side_by_side(HISTORY, found, console)))


# ---- two results ------------------------------------------------------------------------------


def _of_candidate(column: Column) -> Column:
    """A column of results, of the later one's candidate."""
    cell = column.cell
    return Column(
        column.title,
        lambda change, signs: cell(change.after, signs),
        column.width,
        column.right,
        column.head,
    )


def _from_to(what: str, of: Callable[[Change], Both | None], digits: int) -> Column:
    def cell(change: Change, _: Signs) -> str:
        if what == "speedup" and change.after["method"] == "none":
            return "-"
        before, after = of(change) or (None, None)
        return f"{number(before, digits)} > {number(after, digits)}"

    return Column(what, cell)


def change(found: Comparison) -> str:
    """ "+2.8 % [+1.0, +4.6]"."""
    if found.speedup is None:
        return NA
    by = _percent(found.speedup)
    low, high = map(_percent, found.interval or (-math.inf, math.inf))
    shown, *ends = with_interval(by, (low, high), 1, no_difference=0.0, sign="+")
    return f"{shown} %" if found.interval is None else f"{shown} % [{', '.join(ends)}]"


def _percent(ratio: float) -> float:
    return 100 * (ratio - 1)


def judgement(change: Change, what: str, signs: Signs) -> str:
    """The verdict on a change; one for the worse is marked."""
    found: Verdict | None = change.tps_verdict if what == "tok/s" else change.speedup_verdict
    if found == "slower":
        return f"REGRESSION {signs.down}"
    if found == "faster":
        return f"better {signs.up}"
    return "-" if found is None else "no change shown"


WORSE = Column("", lambda c, signs: signs.down if c.regressions() else "", head=True)
"""Before the name, since the verdicts may stand far to the right."""


def comparison_columns(compared: Compared) -> tuple[Column, ...]:
    several = len({c.after["temperature"] for c in compared.changes}) > 1
    bases = any(c.after.get("base") for c in compared.changes)
    head = (
        WORSE,
        *((BASE,) if bases else ()),
        DRAFTER,
        N_MAX,
        *((TEMPERATURE,) if several else ()),
    )
    return (
        *(c if c is WORSE else _of_candidate(c) for c in head),
        _from_to("tok/s", lambda c: c.tps_of, 1),
        Column("change [95 %]", lambda c, _: change(c.tps), right=False),
        Column("", lambda c, signs: judgement(c, "tok/s", signs), right=False),
        _from_to("speedup", lambda c: c.speedup_of, 2),
        Column(
            "change [95 %]",
            lambda c, _: "-" if c.after["method"] == "none" else change(c.speedup),
            right=False,
        ),
        Column("", lambda c, signs: judgement(c, "speedup", signs), right=False),
    )


def render_comparison(compared: Compared, console: Console) -> RenderableType:
    blocks: list[RenderableType] = []
    if compared.changes:
        blocks += side_by_side(
            comparison_columns(compared), compared.changes, console, lambda c: bool(c.regressions())
        )
    for lines, style in ((remarks(compared), "dim"), (answer(compared), "bold")):
        if lines:
            blocks.append(Text("\n".join(lines), style=style))
    return Group(*_parted(blocks))


def remarks(compared: Compared) -> list[str]:
    """What else is not the same."""
    lines = [f"Not comparable: {line}." for line in compared.apart]
    lines += [f"Changed: {line}." for line in (*compared.versions, *compared.settings)]
    lines += [f"Not compared: {line}." for line in compared.missing]
    if any(change.may_be_chance for change in compared.changes):
        lines.append(
            'An interval on one side of 0 beside "no change shown": of so many comparisons, one '
            "comes out so by chance (Holm's correction)."
        )
    if compared.prompts:
        fewer = [
            f"{_named(c, compared)} over {c.tps.prompts} of them"
            for c in compared.changes
            if c.tps.prompts != compared.prompts
        ]
        lines.append(
            f"tok/s and speedup are means (geometric) over the {many(compared.prompts, 'prompt')} "
            f"that both have, as the changes are{'; '.join(['', *fewer])}."
        )
    if compared.changes:
        lines.append(
            "tok/s also hold the heat and load of two different times; speedups, each measured "
            "against its own baseline, do not."
        )
    return lines


def answer(compared: Compared) -> list[str]:
    if not compared.changes:
        return ["They have no candidate in common: nothing can be compared."]
    if not compared.prompts:
        return ["They have no prompt in common: nothing can be compared."]
    by = f"by {many(compared.prompts, 'prompt')} that both have"
    if not compared.judged:
        return [f"Too few to judge {by}."]
    worse = [c for c in compared.changes if c.regressions()]
    if not worse:
        return [f"No regression is shown, {by}."]
    lost = [_lost(c, compared) for c in worse[:TOLD]]
    more = [f"and {len(worse) - TOLD} more"] if len(worse) > TOLD else []
    return [f"REGRESSION, {by}: {'; '.join([*lost, *more])}."]


def _lost(change: Change, compared: Compared) -> str:
    """ "small n=3 lost 15.0 % of its tok/s and 15.0 % of its speedup"."""
    parts = {"tok/s": change.tps, "speedup": change.speedup}
    lost = [
        f"{100 * (1 - (parts[what].speedup or 1)):.1f} % of its {what}"
        for what in change.regressions()
    ]
    return f"{_named(change, compared)} lost {' and '.join(lost)}"


def _named(change: Change, compared: Compared) -> str:
    return named(change.after, [c.after for c in compared.changes])


def _parted(blocks: Sequence[RenderableType]) -> list[RenderableType]:
    parted = [part for block in blocks for part in ("", block)]
    return parted[1:]
