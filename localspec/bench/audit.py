"""Is the output the baseline's? By token ids, and where not, how bad (DESIGN section 6).

Comparable are greedy runs of every drafter, and runs at a temperature whose drafts are
deterministic: there the token at each index is drawn with the baseline's own random number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    alone, so that any difference there is an error."""

    identical: bool | None = None
    compared: int = 0
    divergences: tuple[Divergence, ...] = ()
    strict_up_to: int = 0

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


def audit(
    plan: Plan,
    rows: Sequence[Row],
    sessions: Sessions | None,
    tell: Callable[[Candidate], None] = lambda _: None,
) -> dict[str, Audit]:
    """Compare every candidate's runs with the baseline's. Without ``sessions`` (the engine is not
    to be used) divergences are found but not classed. ``tell`` hears which candidate is next."""
    plain = {_place(r): r for r in rows if r.slot.candidate.is_baseline and _whole(r)}
    found = {}
    for candidate in plan.candidates:
        if candidate.is_baseline:
            continue
        own = [r for r in rows if r.slot.candidate.key == candidate.key and _whole(r)]
        pairs = [(r, plain[_place(r)]) for r in own if _place(r) in plain]
        if not pairs or not comparable(candidate):
            found[candidate.key] = Audit()
            continue
        tell(candidate)
        found[candidate.key] = _audit_one(plan, candidate, pairs, sessions)
    return found


def _audit_one(
    plan: Plan, candidate: Candidate, pairs: Sequence[tuple[Row, Row]], sessions: Sessions | None
) -> Audit:
    strict = 0
    if sessions is not None:
        try:
            strict = _probe(plan, candidate, sessions)
        except EngineDied:
            sessions.restart()
        except LocalspecError:
            strict = 0  # nothing is known, so the replay decides
    divergences: list[Divergence] = []
    known: dict[tuple[str, str, tuple[int, ...], tuple[int, ...]], Divergence | None] = {}
    for row, partner in pairs:
        a, b = row.generation, partner.generation
        assert a is not None and b is not None
        prompt = row.slot.prompt.prompt
        key = (prompt.workload, prompt.id, a.tokens, b.tokens)
        if key not in known:
            index = first_difference(a.tokens, b.tokens)
            known[key] = (
                None if index is None else _classify(plan, row, a, b, index, strict, sessions)
            )
            if (divergence := known[key]) is not None:
                divergences.append(divergence)
    same = not divergences
    return Audit(same, len(known), tuple(divergences), strict)


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


def _probe(plan: Plan, candidate: Candidate, sessions: Sessions) -> int:
    """Up to how many tokens of context all verify batches of this candidate are bit-equal to single
    rows: probed at the shortest prompt, at the cell border and at the longest reach."""
    if candidate.drafter.tree:  # a kept branch lies in other cells, so its sums have another order
        return 0
    sessions.use(candidate.session, candidate.drafter)
    sizes = tuple(range(2, candidate.drafter.n_max + 2))
    lengths = [len(p.tokens) for p in plan.prompts]
    reach = min(max(lengths) + plan.max_tokens, plan.context.n_ctx)
    shortest = max(min(lengths), sizes[-1] + 1)
    equal_up_to = 0
    for length in sorted({min(shortest, reach), min(CELL_BORDER, reach), reach}):
        if length <= sizes[-1]:
            continue
        text = tuple(islice(cycle(plan.prompts[0].tokens), length))
        if not all(sessions.engine.probe(candidate.session, text, sizes).equal.values()):
            break
        equal_up_to = length
    return equal_up_to


def _place(row: Row) -> tuple[str, str, int, float]:
    prompt = row.slot.prompt.prompt
    return prompt.workload, prompt.id, row.slot.run, row.slot.candidate.temperature


def _whole(row: Row) -> bool:
    return row.generation is not None and row.generation.stop != "cancelled"
