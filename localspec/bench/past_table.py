"""The history, and two results against each other, in words and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from localspec.bench.comparison import Change, Compared
from localspec.bench.statistics import Comparison, Verdict
from localspec.bench.table import (
    BASE,
    DRAFTER,
    N_MAX,
    NA,
    TEMPERATURE,
    Column,
    Signs,
    name,
    number,
    side_by_side,
    speedup,
    verdict,
)

if TYPE_CHECKING:
    from localspec.bench.history import Past

Json = dict[str, Any]

HISTORY = (
    Column("no", lambda p, _: str(p.id), head=True),
    Column("when", lambda p, _: p.day, right=False),
    Column("target", lambda p, _: f"{p.target} {p.quant}", width=24, right=False),
    Column("speedup [95 %]", lambda p, _: speedup(p.best) if p.best else NA, right=False),
    Column("verdict", lambda p, signs: _verdict_of(p, signs), right=False),
    Column("best drafter", lambda p, _: p.best["name"] if p.best else "-", width=20, right=False),
    Column("baseline\ntok/s", lambda p, _: number(p.baseline_tps, 1)),
    Column("measured", lambda p, _: measured(p), width=30, right=False),
)


def _verdict_of(past: Past, signs: Signs) -> str:
    return verdict(past.best, signs) if past.best else past.status


def measured(past: Past) -> str:
    """ "17 prompts of chat8, code9, quick, interrupted"."""
    plural = "" if past.prompts == 1 else "s"
    parts = [f"{past.prompts} prompt{plural} of {', '.join(past.workloads)}"]
    parts += ["quick"] if past.quick else []
    parts += [past.status] if past.status != "complete" else []
    return ", ".join(parts)


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


def _from_to(key: str, digits: int) -> Column:
    def cell(change: Change, _: Signs) -> str:
        if key == "speedup" and change.after["method"] == "none":
            return "-"
        return f"{number(change.before[key], digits)} > {number(change.after[key], digits)}"

    return Column("tok/s" if key == "decode_tps" else key, cell)


def change(found: Comparison) -> str:
    """ "+2.8 % [+1.0, +4.6]"."""
    if found.speedup is None:
        return NA
    text = f"{_percent(found.speedup)} %"
    if found.interval is None:
        return text
    low, high = map(_percent, found.interval)
    return f"{text} [{low}, {high}]"


def _percent(ratio: float) -> str:
    return f"{round(100 * (ratio - 1), 1) + 0.0:+.1f}"  # never "-0.0"


def judgement(change: Change, what: str, signs: Signs) -> str:
    """The verdict on a change; one for the worse is marked."""
    found: Verdict | None = change.tps_verdict if what == "tok/s" else change.speedup_verdict
    if found == "slower":
        return f"REGRESSION {signs.down}"
    if found == "faster":
        return f"better {signs.up}"
    return "-" if found is None else "no change shown"


def comparison_columns(compared: Compared) -> tuple[Column, ...]:
    several = len({c.after["temperature"] for c in compared.changes}) > 1
    bases = any(c.after.get("base") for c in compared.changes)
    head = (
        *((BASE,) if bases else ()),
        DRAFTER,
        N_MAX,
        *((TEMPERATURE,) if several else ()),
    )
    return (
        *map(_of_candidate, head),
        _from_to("decode_tps", 1),
        Column("change [95 %]", lambda c, _: change(c.tps), right=False),
        Column("", lambda c, signs: judgement(c, "tok/s", signs), right=False),
        _from_to("speedup", 2),
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
    if compared.changes:
        lines.append(
            "tok/s also hold the heat and load of two different hours; speedups, each measured "
            "against its own baseline, do not."
        )
    return lines


def answer(compared: Compared) -> list[str]:
    if not compared.changes:
        return ["They have no candidate in common: nothing can be compared."]
    if not compared.prompts:
        return ["They have no prompt in common: nothing can be compared."]
    plural = "" if compared.prompts == 1 else "s"
    by = f"by {compared.prompts} prompt{plural} that both have"
    if not compared.judged:
        return [f"Too few to judge {by}."]
    worse = [c for c in compared.changes if c.regressions()]
    if not worse:
        return [f"No regression is shown, {by}."]
    names = ", ".join(name(c.after) for c in worse)
    return [f"Slower than before, {by}: {names}."]


def _parted(blocks: Sequence[RenderableType]) -> list[RenderableType]:
    parted = [part for block in blocks for part in ("", block)]
    return parted[1:]
