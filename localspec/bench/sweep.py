"""What a table of several bases answers: the fastest setup, the fastest base alone, and whether
drafting on the reference makes up for a slower base.

Everything is paired by prompt through the reference's baseline, which was run next to each: where
all alternate its own runs cancel, and in blocks so does the time between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from localspec.bench.analysis import Measured, winners
from localspec.bench.plan import Candidate, Plan
from localspec.bench.rows import Row, pair_up, speed_pairs
from localspec.bench.statistics import Comparison, Pair, Verdict, compare, verdicts


@dataclass(frozen=True, slots=True)
class Answer:
    """At one temperature. ``fastest``: shown to be faster than the reference, by most; the
    reference's baseline where nothing is. ``alone``: the same among the baselines. ``drafting``:
    the reference's own fastest drafter. ``versus``: ``alone``, where that is another base, against
    ``drafting``: above 1 the better base wins without a drafter.
    """

    temperature: float
    fastest: Candidate
    alone: Candidate
    drafting: Candidate | None = None
    versus: Comparison = field(default_factory=Comparison)
    verdict: Verdict | None = None


def answers(plan: Plan, rows: Sequence[Row], table: Mapping[str, Measured]) -> tuple[Answer, ...]:
    """One for each temperature; none where there is but one base."""
    if len(plan.bases) < 2:
        return ()
    return tuple(_answer(plan, rows, table, reference) for reference in plan.references)


def finalists(plan: Plan, rows: Sequence[Row], table: Mapping[str, Measured]) -> list[Candidate]:
    """Who is measured again: the winners, and all that a sentence about them rests on."""
    best = [m.candidate for m in winners(table)]
    again: dict[Candidate, None] = {}
    for c in best:
        again |= dict.fromkeys((plan.reference_of(c), plan.baseline_of(c), c))
    for answer in answers(plan, rows, table):
        if answer.fastest in best:
            again |= dict.fromkeys(c for c in (answer.alone, answer.drafting) if c is not None)
    return list(again)


def _answer(
    plan: Plan, rows: Sequence[Row], table: Mapping[str, Measured], reference: Candidate
) -> Answer:
    members = [m for m in table.values() if m.candidate.temperature == reference.temperature]
    best = next(iter(winners({m.candidate.key: m for m in members})), None)
    plain = [m for m in members if m.candidate.is_baseline]
    alone = next(iter(winners({m.candidate.key: m for m in plain})), None)
    drafted = [
        m.candidate
        for m in sorted(members, key=lambda m: -(m.decode.speedup or 0.0))
        if m.candidate.base == reference.base and m.decode.speedup
    ]
    fastest = best.candidate if best else reference
    if alone is None:
        return Answer(reference.temperature, fastest, reference, next(iter(drafted), None))
    if not drafted:
        return Answer(reference.temperature, fastest, alone.candidate)
    pair = alone.candidate, drafted[0]
    again = [r for r in rows if r.slot.phase == "confirm"]
    versus = _ratio(plan, again, *pair)
    if versus.speedup is not None:
        verdict = verdicts({pair: versus})[pair]
    else:
        main = [r for r in rows if r.slot.phase != "confirm"]
        others = [m.candidate for m in plain if m.candidate != reference]
        # it was picked from all of these, so the correction is for all of them
        chosen_from = {(b, d): _ratio(plan, main, b, d) for b in others for d in drafted}
        versus, verdict = chosen_from[pair], verdicts(chosen_from)[pair]
    return Answer(reference.temperature, fastest, *pair, versus, verdict)


def _ratio(plan: Plan, rows: Iterable[Row], one: Candidate, other: Candidate) -> Comparison:
    """The speed of ``one`` in that of ``other``, on the prompts that both have."""
    kept = list(rows)

    def by_prompt(candidate: Candidate) -> dict[tuple[str, str], float]:
        reference = plan.reference_of(candidate)
        found: dict[tuple[str, str], list[float]] = {}
        for pair in speed_pairs(pair_up(kept, candidate.key, reference.key)):
            found.setdefault((pair.workload, pair.prompt), []).append(pair.log_ratio)
        return {place: fmean(ratios) for place, ratios in found.items()}

    a, b = by_prompt(one), by_prompt(other)
    pairs = [Pair(*place, a[place] - b[place]) for place in a if place in b]
    return compare(pairs, seed=plan.order_seed)
