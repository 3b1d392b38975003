"""What a tuning found: pure functions on its runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev, variance
from typing import Literal

from localspec.bench.analysis import Measured, measure
from localspec.bench.audit import Audit
from localspec.bench.plan import Candidate
from localspec.bench.rows import Row, pair_up, speed_pairs
from localspec.bench.runner import Measurement
from localspec.bench.statistics import FEWEST_PAIRS, LEVEL
from localspec.tune.course import CHOOSING, Struck, Tuning, confirming
from localspec.units import many

Decision = Literal["faster", "baseline", "undecided"]

WORTH = 1.02
"""A drafter whose speedup is shown to be under this is not worth its memory: the baseline wins. So
does it where the accept length is, which no speedup exceeds."""
GUESSED_PAIRS = 8
"""Pairs that are asked for where too few were made to know how they spread."""
MOST_MINUTES = 999.0
MOST_VALUES = 100_000
"""From here on nobody will measure it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """``why`` is one sentence. ``measured``: the winner's figures over the prompts held out, and
    the baseline's; ``audit`` is of these runs. ``minutes``: the budget that would be needed, and
    ``prompts`` how many a workload needs, of which half are held out; None where more would not
    help, or is not needed."""

    decision: Decision
    why: str
    candidate: Candidate | None = None
    measured: Measured | None = None
    baseline: Measured | None = None
    audit: Audit | None = None
    minutes: float | None = None
    prompts: int | None = None


def outcome(tuning: Tuning, measurement: Measurement, final: Audit | None) -> Outcome:
    """``final``: the audit of the winner's runs on the prompts held out. Of these only those count
    that are not flagged by ``leave_out``."""
    if tuning.winner is None:
        return _without_winner(tuning, measurement)
    winner, plan = tuning.winner, measurement.plan
    rows = confirming(measurement.rows)
    measured = measure(plan, winner, rows)
    baseline = measure(plan, plan.baseline_of(winner), rows)
    found = measured.decode
    pairs = speed_pairs(pair_up(rows, winner.key, baseline.candidate.key))
    by_prompt: dict[tuple[str, str], list[float]] = {}
    for pair in pairs:
        by_prompt.setdefault((pair.workload, pair.prompt), []).append(pair.log_ratio)
    seconds = _seconds_of_a_pair(measured, baseline)
    shown = winner, measured, baseline, final

    def undecided(why: str, wanted: Wanted | None) -> Outcome:
        minutes = None
        if wanted is not None:
            # of none that was made it is not known how long one takes: the budget was too small
            comparing = 2 * tuning.budget
            if seconds is not None:
                comparing = wanted.pairs * seconds / (1 - CHOOSING)
            searching = 0.0 if tuning.searched else tuning.time_to_search()
            minutes = max(comparing, searching, 1.25 * tuning.budget) / 60
        prompts = 2 * wanted.prompts if wanted is not None and wanted.prompts else None
        return Outcome("undecided", why, *shown, minutes, prompts)

    if final is not None and (final.mismatches or final.unclassed):
        why = f"{winner.key} failed the audit on the prompts held out: it must not be used."
        if not final.mismatches:
            why = f"Whether {winner.key} gives the baseline's output could not be made sure."
        return undecided(why, None)
    if found.interval is None or found.speedup is None:
        return undecided(
            f"Only {many(len(pairs), 'comparison')} of {winner.key} with the baseline could be "
            f"made; {FEWEST_PAIRS} are the fewest that say something.",
            Wanted(GUESSED_PAIRS),
        )
    low, high = found.interval
    length = measured.figures.counts.accept_length
    idle = length is not None and length < WORTH
    if low > 1 and not idle:
        return Outcome("faster", f"{winner.key} is faster than the baseline.", *shown)
    if idle or high < WORTH:
        if not tuning.searched:
            more = f"{tuning.untried} others were" if tuning.untried else "what lies near it was"
            why = (
                f"{winner.key}, the best that there was time for, is not faster; {more} not tried."
            )
            minutes = max(tuning.time_to_search(), 1.25 * tuning.budget) / 60
            return Outcome("undecided", why, *shown, minutes)
        how = "is slower" if high < 1 else f"is no more than {high - 1:.1%} faster"
        if idle:  # a pass of the target takes no less time for having a draft to check
            how = f"hardly drafts and so cannot be faster (accept length {length:.2f})"
        why = f"The baseline wins: {winner.key}, the best that was found, {how}."
        return Outcome("baseline", why, *shown)
    untried = f"; {tuning.untried} others were not tried" if tuning.untried else ""
    return undecided(
        f"{winner.key} is the best that was found, and it cannot be told from the baseline yet"
        f"{untried}.",
        needed(list(by_prompt.values()), len(tuning.prompts.held_out) if tuning.prompts else 1),
    )


def leave_out(rows: Sequence[Row]) -> list[Row]:
    """Flag those that compare and were disturbed, each with the run beside it, as far as the others
    are pairs enough: none is in any figure without its partner."""
    compared = confirming(rows)
    steady = [r for r in compared if r.in_pairs and "disturbed" not in r.flags]
    pairs = {r.place for r in steady if r.slot.candidate.is_baseline}
    pairs &= {r.place for r in steady if not r.slot.candidate.is_baseline}
    if len(pairs) < max(FEWEST_PAIRS, len(compared) // 4):
        return list(rows)
    out = {r.place for r in compared if "disturbed" in r.flags}
    return [
        r.flagged("left-out") if r.slot.phase == "confirm" and r.place in out else r for r in rows
    ]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What would tell the two apart: ``pairs`` of runs, on so many ``prompts``; None: on those that
    are held out already."""

    pairs: int
    prompts: int | None = None


def needed(log_ratios: Sequence[Sequence[float]], held_out: int) -> Wanted:
    """What is needed, at the spread seen over the runs of each prompt, for an interval that is
    narrower than the way to the nearest decision, which is "faster than 1" or "under WORTH". More
    runs help against the spread of one prompt's runs, only more prompts against that between
    prompts."""
    means = [fmean(runs) for runs in log_ratios]
    mean = fmean(means)
    room = max(mean, math.log(WORTH) - mean)
    if len(means) == 1:
        return Wanted(_enough(stdev(log_ratios[0]), room))
    repeated = [runs for runs in log_ratios if len(runs) > 1]
    each = fmean(map(len, log_ratios))
    if repeated:
        within = sum(variance(runs) * (len(runs) - 1) for runs in repeated)
        within /= sum(len(runs) - 1 for runs in repeated)
        between = max(0.0, variance(means) - within * fmean(1 / len(r) for r in log_ratios))
        left = held_out * (room / _reach(held_out)) ** 2 - between
        if left > 0:
            return Wanted(held_out * max(1, math.ceil(within / left)))
    prompts = _enough(stdev(means), room)
    return Wanted(math.ceil(prompts * each), prompts if prompts > held_out else None)


def _reach(n: int) -> float:
    from scipy.stats import t

    return float(t.ppf((1 + LEVEL) / 2, n - 1))


def _enough(spread: float, room: float) -> int:
    """How many values of this spread have a mean known to within ``room``."""
    n = FEWEST_PAIRS
    while n < MOST_VALUES and _reach(n) * spread / math.sqrt(n) > room:
        n = max(n + 1, int(n * 1.1))
    return n


def _without_winner(tuning: Tuning, measurement: Measurement) -> Outcome:
    if tuning.too_short is not None:
        return Outcome(
            "undecided",
            "The budget is too small to compare anything on this machine.",
            minutes=tuning.too_short / 60,
        )
    if measurement.interrupted:
        return Outcome("undecided", "Stopped before a candidate was chosen.")
    if tuning.struck:
        return Outcome("undecided", f"{_failed(tuning.struck)} None is left to be chosen.")
    reasons = [s.reason for s in measurement.status.values() if s.given_up and s.reason]
    why = f" ({reasons[0].removesuffix('.')})" if reasons else ""
    return Outcome("undecided", f"None of the drafters could be run{why}.")


def _failed(struck: Sequence[Struck]) -> str:
    names = ", ".join(s.candidate.key for s in struck)
    return f"{names} failed the audit."


def _seconds_of_a_pair(measured: Measured, baseline: Measured) -> float | None:
    each = [
        m.figures.times.end_to_end / m.figures.runs for m in (measured, baseline) if m.figures.runs
    ]
    return sum(each) if len(each) == 2 else None
