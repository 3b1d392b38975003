"""From rows to the figures of each candidate (DESIGN section 5): sums over sums, absent is None."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import add
from typing import Literal

from localspec.bench.plan import Candidate, Plan
from localspec.bench.rows import Row, pair_up, speed_pairs
from localspec.bench.statistics import Comparison, Pair, Verdict, compare, estimate, verdicts
from localspec.bench.workloads import one_question
from localspec.records import Counts, Generation, Times, count


@dataclass(frozen=True, slots=True)
class Figures:
    """What a set of one candidate's runs adds up to. Means over runs where a run has one value."""

    runs: int
    tokens: int
    prompt_tokens: int
    counts: Counts
    times: Times
    by_source: Mapping[str, Counts] = field(default_factory=dict)
    """Where several families draft: the steps that each drafted."""

    @property
    def decode_tps(self) -> float | None:
        """Tokens emitted by decode steps / time from each run's first token to its last."""
        n = self.counts.decode_tokens
        return n / self.times.decode if n and self.times.decode > 0 else None

    @property
    def prefill_tps(self) -> float | None:
        return self.prompt_tokens / self.times.prefill if self.times.prefill > 0 else None

    @property
    def ttft_ms(self) -> float | None:
        return self.times.ttft / self.runs * 1e3 if self.runs else None

    @property
    def drafter_prefill_ms(self) -> float | None:
        return self.times.drafter_prefill / self.runs * 1e3 if self.runs else None

    @property
    def share(self) -> dict[str, float] | None:
        """Parts of the step time; they add up to 1."""
        t = self.times
        if t.step <= 0:
            return None
        parts = {"draft": t.draft, "verify": t.verify, "rollback": t.rollback}
        return {k: v / t.step for k, v in (parts | {"overhead": t.overhead}).items()}

    @property
    def overhead_us_per_step(self) -> float | None:
        return self.times.overhead / self.counts.steps * 1e6 if self.counts.steps else None


@dataclass(frozen=True, slots=True)
class Measured:
    """A candidate's figures and its comparison with the baseline at the same temperature.

    ``chosen``: for a winner that was measured again, the comparison by which it was chosen;
    ``decode``, ``end_to_end`` and ``over_reference`` then are of the runs that were not used to
    choose it. ``over_reference``: where there are several bases, the decode speed against the
    baseline of the first one; ``reference_chosen`` is to it as ``chosen`` is to ``decode``.
    """

    candidate: Candidate
    figures: Figures
    decode: Comparison
    end_to_end: Comparison
    by_workload: Mapping[str, Measured] = field(default_factory=dict)
    verdict: Verdict | None = None
    chosen: Comparison | None = None
    over_reference: Comparison = field(default_factory=Comparison)
    reference_verdict: Verdict | None = None
    reference_chosen: Comparison | None = None

    @property
    def gain(self) -> tuple[Comparison, Verdict | None]:
        """What decides who wins: against the reference where there is one, else the baseline."""
        if self.over_reference.speedup is not None:
            return self.over_reference, self.reference_verdict
        return self.decode, self.verdict

    @property
    def confirmed(self) -> bool:
        return self.chosen is not None or self.reference_chosen is not None


def sum_up(generations: Sequence[Generation], sources: Sequence[str] = ()) -> Figures:
    """``sources`` names the families that draft, where there are several."""
    by_source = {
        name: reduce(
            add,
            (count([s for s in g.steps if s.drafted and s.source == i]) for g in generations),
            Counts(),
        )
        for i, name in enumerate(sources)
    }
    return Figures(
        by_source=by_source,
        runs=len(generations),
        tokens=sum(len(g.tokens) for g in generations),
        prompt_tokens=sum(g.prompt_tokens - g.cached_tokens for g in generations),
        counts=reduce(add, (g.counts for g in generations), Counts()),
        times=reduce(add, (g.times for g in generations), Times()),
    )


def analyse(plan: Plan, rows: Sequence[Row]) -> dict[str, Measured]:
    """Every candidate's figures by its key. Verdicts are Holm-corrected over all candidates (and,
    with several bases, both of their comparisons); where a winner was measured again its verdict is
    that second, single test's. One prompt at several depths is judged at each of them, corrected
    over all."""
    main = [r for r in rows if r.slot.phase != "confirm"]
    confirm = [r for r in rows if r.slot.phase == "confirm"]
    found = {c.key: measure(plan, c, main) for c in plan.candidates}
    judged = verdicts(dict(_tests(plan, found.values())))
    names = list(dict.fromkeys(p.prompt.workload for p in plan.prompts))
    parts_of = {key: _by_workload(plan, m.candidate, main, names) for key, m in found.items()}
    if one_question([p.prompt for p in plan.prompts]):
        of_parts = verdicts({(k, w): m.decode for k, ps in parts_of.items() for w, m in ps.items()})
        parts_of = {
            k: {w: replace(m, verdict=of_parts[k, w]) for w, m in ps.items()}
            for k, ps in parts_of.items()
        }
    result = {}
    for key, m in found.items():
        again = measure(plan, m.candidate, confirm)
        own, over = again.decode.speedup is not None, again.over_reference.speedup is not None
        last = verdicts(dict(_tests(plan, [again]))) if own or over else judged
        result[key] = Measured(
            candidate=m.candidate,
            figures=m.figures,
            decode=again.decode if own else m.decode,
            end_to_end=again.end_to_end if own else m.end_to_end,
            by_workload=parts_of[key],
            verdict=last.get((key, "own")),
            chosen=m.decode if own else None,
            over_reference=again.over_reference if over else m.over_reference,
            reference_verdict=last.get((key, "reference"), last.get((key, "own")))
            if len(plan.bases) > 1
            else None,
            reference_chosen=m.over_reference if over else None,
        )
    return result


def _by_workload(
    plan: Plan, candidate: Candidate, rows: Sequence[Row], names: Sequence[str]
) -> dict[str, Measured]:
    """Nothing where there is but one workload."""
    if len(names) < 2:
        return {}
    return {
        name: measure(plan, candidate, [r for r in rows if r.slot.prompt.prompt.workload == name])
        for name in names
    }


def _tests(
    plan: Plan, table: Iterable[Measured]
) -> Iterator[tuple[tuple[str, Literal["own", "reference"]], Comparison]]:
    """Every comparison once: on the reference base both are the same."""
    for m in table:
        if not m.candidate.is_baseline:
            yield (m.candidate.key, "own"), m.decode
        if m.candidate.base != plan.bases[0]:
            yield (m.candidate.key, "reference"), m.over_reference


def so_far(plan: Plan, rows: Sequence[Row]) -> dict[str, Measured]:
    """Every candidate's figures while measuring goes on: without intervals and verdicts."""
    return {c.key: measure(plan, c, rows, estimate) for c in plan.candidates}


def winners(table: Mapping[str, Measured]) -> list[Measured]:
    """For each temperature the candidate shown to be faster with the greatest speedup, if any; with
    several bases, faster than the reference. What was measured again goes before what was not."""
    best: dict[float, Measured] = {}

    def rank(m: Measured) -> tuple[bool, float]:
        return m.confirmed, m.gain[0].speedup or 0.0

    for m in table.values():
        known = best.get(m.candidate.temperature)
        if m.gain[1] == "faster" and (known is None or rank(m) > rank(known)):
            best[m.candidate.temperature] = m
    return list(best.values())


def measure(
    plan: Plan,
    candidate: Candidate,
    rows: Sequence[Row],
    judge: Callable[[Sequence[Pair]], Comparison] | None = None,
) -> Measured:
    """``judge`` makes a comparison of pairs; the default one gives intervals."""
    judge = judge or partial(compare, seed=plan.order_seed)
    own = [
        r.generation
        for r in rows
        if r.slot.candidate.key == candidate.key and r.counts_for_figures and r.generation
    ]
    if candidate.is_baseline:
        decode = end_to_end = Comparison()
    else:
        paired = pair_up(rows, candidate.key, plan.baseline_of(candidate).key)
        decode = judge(speed_pairs(paired))
        end_to_end = judge(speed_pairs(paired, end_to_end=True))
    over_reference = Comparison()
    if len(plan.bases) > 1 and candidate not in plan.references:
        reference = plan.reference_of(candidate)
        over_reference = judge(speed_pairs(pair_up(rows, candidate.key, reference.key)))
    sources = candidate.drafter.sources
    figures = sum_up(own, sources if len(sources) > 1 else ())
    return Measured(candidate, figures, decode, end_to_end, over_reference=over_reference)
