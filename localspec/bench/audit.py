"""Is the output the baseline's? By token ids, and where not, how bad (DESIGN section 6).

Comparable are greedy runs of every drafter, and runs at a temperature whose drafts are
deterministic: there the token at each index is drawn with the baseline's own random number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Literal

from localspec.bench.plan import Candidate, Plan
from localspec.bench.rows import Row
from localspec.bench.sessions import Sessions
from localspec.errors import EngineDied, LocalspecError
from localspec.records import Generation

DivergenceClass = Literal["near tie", "MISMATCH"]

CELL_BORDER = 256
"""llama.cpp pads the KV cells in use to this; above it the CPU's attention of one row may take
another path than that of several (ENGINE_NOTES section 2)."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first token at which a run differs from the baseline's. ``kind`` None: not classed, with
    ``why`` saying so. ``margin``: by how much the plain logits preferred the plain token."""

    workload: str
    prompt: str
    run: int
    token: int
    kind: DivergenceClass | None
    margin: float | None = None
    max_difference: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Audit:
    """``identical`` None: not comparable, or nothing to compare. ``compared`` counts different
    outputs (repetitions that gave the same count once). ``strict_up_to``: the number of
    tokens in the context up to which this machine computes a row bit for bit alike in a batch and
    alone, so that any difference there is an error; None where nothing differs, so that nobody
    asked."""

    identical: bool | None = None
    compared: int = 0
    divergences: tuple[Divergence, ...] = ()
    strict_up_to: int | None = None

    @property
    def mismatches(self) -> int:
        return sum(d.kind == "MISMATCH" for d in self.divergences)

    @property
    def unclassed(self) -> int:
        return sum(d.kind is None for d in self.divergences)


def first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    """The first index at which two outputs differ; the shorter one's length when it is a prefix."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return None if len(a) == len(b) else min(len(a), len(b))


def comparable(candidate: Candidate) -> bool:
    return candidate.temperature == 0 or not candidate.drafter.sampled


Pairs = list[tuple[Row, Row]]
"""A candidate's whole runs, each with the baseline's of the same prompt and number."""


def audit(
    plan: Plan,
    rows: Sequence[Row],
    sessions: Sessions | None,
    tell: Callable[[Candidate, float], None] = lambda _candidate, _seconds: None,
) -> dict[str, Audit]:
    """Compare every candidate's runs with the baseline's. Without ``sessions`` (the engine is not
    to be used) divergences are found but not classed. ``tell`` hears whose divergences are classed
    next, and about how many seconds that and the rest will take."""
    pairs = _pairs(plan, rows)
    expected = _expected(plan, pairs)
    began, done = time.monotonic(), 0.0
    found = {}
    for candidate in plan.candidates:
        if candidate.is_baseline:
            continue
        seconds = expected.pop(candidate.key, 0.0)
        if seconds and sessions is not None:
            pace = (time.monotonic() - began) / done if done else 1.0
            tell(candidate, (seconds + sum(expected.values())) * pace)
        mine = pairs[candidate.key]
        found[candidate.key] = _audit_one(plan, candidate, mine, sessions) if mine else Audit()
        done += seconds
    return found


def expected_seconds(plan: Plan, rows: Sequence[Row]) -> float:
    """About how long ``audit`` of these rows takes, by the speeds that they show."""
    return sum(_expected(plan, _pairs(plan, rows)).values())


def _pairs(plan: Plan, rows: Sequence[Row]) -> dict[str, Pairs]:
    plain = {_place(r): r for r in rows if r.slot.candidate.is_baseline and _whole(r)}
    found: dict[str, Pairs] = {c.key: [] for c in plan.candidates}
    for row in rows:
        candidate = row.slot.candidate
        partner = plain.get(_place(row))
        if not candidate.is_baseline and partner and _whole(row) and comparable(candidate):
            found[candidate.key].append((row, partner))
    return found


def _expected(plan: Plan, pairs: Mapping[str, Pairs]) -> dict[str, float]:
    """Seconds by candidate, for those with divergences: the probe, and a replay of each one."""
    expected = {}
    for candidate in plan.candidates:
        parted = {
            (row.slot.prompt, ours.tokens): (row, ours, plain, index)
            for row, partner in pairs[candidate.key]
            if (ours := row.generation) and (plain := partner.generation)
            if (index := first_difference(ours.tokens, plain.tokens)) is not None
        }
        if not parted:
            continue
        _, _, plain, _ = next(iter(parted.values()))
        sizes, lengths = _probe_sizes(candidate), _probe_lengths(plan, candidate)
        prefills = sum(lengths) * (1 + len(sizes))
        passes = len(lengths) * (len(sizes) + 1 + max(sizes, default=0))
        for row, _, _, index in parted.values():
            prefills += 2 * len(row.slot.prompt.tokens)
            passes += 2 * index
        seconds = prefills / plain.prefill_tps if plain.prefill_tps else 0.0
        expected[candidate.key] = seconds + (passes / plain.decode_tps if plain.decode_tps else 0.0)
    return expected


def _audit_one(plan: Plan, candidate: Candidate, pairs: Pairs, sessions: Sessions | None) -> Audit:
    strict: int | None = None
    divergences: list[Divergence] = []
    known: dict[tuple[str, str, tuple[int, ...], tuple[int, ...]], Divergence | None] = {}
    for row, partner in pairs:
        a, b = row.generation, partner.generation
        assert a is not None and b is not None
        prompt = row.slot.prompt.prompt
        key = (prompt.workload, prompt.id, a.tokens, b.tokens)
        if key in known:
            continue
        index = first_difference(a.tokens, b.tokens)
        if index is None:
            known[key] = None
            continue
        if strict is None and sessions is not None:
            strict = _bit_equal_up_to(plan, candidate, sessions)
        divergence = _classify(plan, row, a, b, index, strict or 0, sessions)
        known[key] = divergence
        divergences.append(divergence)
    return Audit(not divergences, len(known), tuple(divergences), strict)


def _classify(
    plan: Plan,
    row: Row,
    run: Generation,
    plain: Generation,
    index: int,
    strict: int,
    sessions: Sessions | None,
) -> Divergence:
    slot = row.slot
    prompt = slot.prompt.prompt

    def result(
        kind: DivergenceClass | None,
        why: str = "",
        margin: float | None = None,
        difference: float | None = None,
    ) -> Divergence:
        return Divergence(
            prompt.workload, prompt.id, slot.run, index, kind, margin, difference, why
        )

    if sessions is None:
        return result(None, "the measurement was interrupted")
    if index >= min(len(run.tokens), len(plain.tokens)):
        return result("MISMATCH", "one output ends where the other goes on")
    baseline = plan.baseline_of(slot.candidate)
    try:
        sessions.use(baseline.session, baseline.drafter)
        sessions.use(slot.candidate.session, slot.candidate.drafter, baseline.session)
        found = sessions.engine.replay(
            slot.candidate.session,
            baseline.session,
            slot.prompt.tokens,
            run,
            index,
            plan.sampler_of(slot.candidate, slot.seed),
            plan.ignore_eos,
        )
    except EngineDied as error:
        sessions.restart()
        return result(None, f"the engine died while replaying it ({error.how})")
    except LocalspecError as error:
        return result(None, f"it could not be replayed: {error.message}")
    if len(slot.prompt.tokens) + index < strict:
        why = "rows are bit-equal on this machine at this length, so no tie explains it"
        return result("MISMATCH", why, found.margin, found.max_difference)
    kind: DivergenceClass = "near tie" if found.verdict == "near tie" else "MISMATCH"
    why = "" if kind == "near tie" else "the recorded batches do not explain it"
    return result(kind, why, found.margin, found.max_difference)


def _bit_equal_up_to(plan: Plan, candidate: Candidate, sessions: Sessions) -> int:
    """Up to how many tokens of context all verify batches of this candidate are bit-equal to single
    rows, as far as was probed; 0 where that is not known, so that the replay decides."""
    lengths, sizes = _probe_lengths(plan, candidate), _probe_sizes(candidate)
    equal_up_to = 0
    try:
        sessions.use(candidate.session, candidate.drafter)
        for length in lengths:
            text = tuple(islice(cycle(plan.prompts[0].tokens), length))
            if not all(sessions.engine.probe(candidate.session, text, sizes).equal.values()):
                break
            equal_up_to = length
    except EngineDied:
        sessions.restart()
        return 0
    except LocalspecError:
        return 0
    return equal_up_to


def _probe_sizes(candidate: Candidate) -> tuple[int, ...]:
    """All verify batches; none of a tree: a kept branch lies in other cells, so its sums have
    another order."""
    return () if candidate.drafter.tree else tuple(range(2, candidate.drafter.n_max + 2))


def _probe_lengths(plan: Plan, candidate: Candidate) -> list[int]:
    """The shortest prompt, the cell border and the longest reach."""
    sizes = _probe_sizes(candidate)
    if not sizes:
        return []
    lengths = [len(p.tokens) for p in plan.prompts]
    reach = min(max(lengths) + plan.max_tokens, plan.context.n_ctx)
    shortest = max(min(lengths), sizes[-1] + 1)
    tried = {min(shortest, reach), min(CELL_BORDER, reach), reach}
    return sorted(length for length in tried if length > sizes[-1])


def _place(row: Row) -> tuple[str, str, int, float]:
    prompt = row.slot.prompt.prompt
    return prompt.workload, prompt.id, row.slot.run, row.slot.candidate.temperature


def _whole(row: Row) -> bool:
    return row.generation is not None and row.generation.stop != "cancelled"
