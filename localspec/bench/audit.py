"""Is the output the baseline's? By token ids, and where not, how bad (DESIGN section 6).

Comparable are greedy runs of every drafter, and runs at a temperature whose drafts are
deterministic: there the token at each index is drawn with the baseline's own random number. Where
such runs are the same, every token is the plain path's own choice after the same text, and there is
nothing more to ask. A run that parts from the baseline's is followed to its end by the
teacher-forced form: its batches are replayed beside the plain path, which is fed the run's tokens.
It is a ``MISMATCH``

* if anywhere the replayed row does not choose the run's token: acceptance is wrong, or the run was
  not what its record says;
* if at the divergence the plain margin is over twice the largest difference between the two rows;
* if anywhere the two rows are further apart than roundings explain: at all, where this machine
  computes rows bit for bit alike in a batch and alone, and elsewhere by over
  ``WORSE_THAN_ROUNDING`` times the largest distance that other roundings alone make, as measured on
  the first such run (decoding.replay, where the figures are).

Anything else is a ``near tie``. Runs of sampled drafts at a temperature have no baseline run to
equal. All of them are followed the same way, and instead of the first two rules their tokens'
places in the distributions they were drawn from must be uniform (bench.goodness).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice
from typing import Literal

from localspec.bench.goodness import Fit, fit
from localspec.bench.plan import Candidate, Plan
from localspec.bench.rows import Row
from localspec.bench.sessions import Sessions
from localspec.engine.messages import Replayed
from localspec.errors import EngineDied, LocalspecError
from localspec.records import Generation

DivergenceClass = Literal["near tie", "MISMATCH"]

CELL_BORDER = 256
"""llama.cpp pads the KV cells in use to this; above it the CPU's attention of one row may take
another path than that of several (ENGINE_NOTES section 2)."""
PROBES, PROVEN = 6, 4
"""Steps up to that border at which batches are probed, and how many places must be alike before it
is believed: without flash attention three rows are alike by chance at three places in ten (SmolLM2
Q4_1, 55 lengths)."""
ROUNDED = 48
"""Rows from which the engine measures the size of roundings (decoding.replay)."""
WORSE_THAN_ROUNDING = 3.0
"""So many times further apart than roundings take them, two rows belong to different states. Of
correct runs the largest was 1.2 times (one measurement is a sample too), of stale cells the
smallest 4.7 (SmolLM2 Q4_1; trees and single cells)."""


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
    asked. ``followed``: tokens that the teacher-forced form looked at, ``rounding``: how far
    roundings take rows apart. ``fit``: do the tokens of sampled drafts fit their distributions?
    Faults in their states are ``divergences`` too."""

    identical: bool | None = None
    compared: int = 0
    divergences: tuple[Divergence, ...] = ()
    strict_up_to: int | None = None
    followed: int = 0
    rounding: float | None = None
    fit: Fit | None = None

    @property
    def mismatches(self) -> int:
        misfits = self.fit is not None and not self.fit.fits
        return sum(d.kind == "MISMATCH" for d in self.divergences) + misfits

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


def _to_follow(run: Generation, plain: Generation, candidate: Candidate) -> bool:
    return not comparable(candidate) or run.tokens != plain.tokens


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


def same_outputs(plan: Plan, rows: Sequence[Row], candidate: Candidate) -> tuple[int, int]:
    """How many runs of another base give the reference's very tokens, and of how many. No fault of
    those that do not: another quantisation or KV type is another model to ask."""
    reference = plan.reference_of(candidate)
    places: dict[Candidate, dict[tuple[object, ...], tuple[int, ...]]] = {}
    for row in rows:
        if row.slot.candidate in (reference, candidate) and _whole(row) and row.generation:
            places.setdefault(row.slot.candidate, {})[row.place] = row.generation.tokens
    ours, theirs = places.get(candidate, {}), places.get(reference, {})
    both = ours.keys() & theirs.keys()
    return sum(ours[place] == theirs[place] for place in both), len(both)


def expected_seconds(plan: Plan, rows: Sequence[Row]) -> float:
    """About how long ``audit`` of these rows takes, by the speeds that they show."""
    return sum(_expected(plan, _pairs(plan, rows)).values())


def _pairs(plan: Plan, rows: Sequence[Row]) -> dict[str, Pairs]:
    plain = {_place(r): r for r in rows if r.slot.candidate.is_baseline and _whole(r)}
    found: dict[str, Pairs] = {c.key: [] for c in plan.candidates}
    for row in rows:
        candidate = row.slot.candidate
        partner = plain.get(_place(row))
        if not candidate.is_baseline and partner and _whole(row):
            found[candidate.key].append((row, partner))
    return found


def _expected(plan: Plan, pairs: Mapping[str, Pairs]) -> dict[str, float]:
    """Seconds by candidate, for those with runs to follow: the probe, the size of roundings, and
    two passes over each run."""
    expected = {}
    for candidate in plan.candidates:
        followed = {
            (row.slot.prompt, ours.tokens): (row, ours, plain)
            for row, partner in pairs[candidate.key]
            if (ours := row.generation) and (plain := partner.generation)
            if _to_follow(ours, plain, candidate)
        }
        if not followed:
            continue
        first, run, plain = next(iter(followed.values()))
        probes = _probes(plan, candidate)
        prefills = sum(length * (1 + len(sizes)) for length, sizes in probes)
        passes = sum(len(sizes) + 1 + max(sizes) for _, sizes in probes)
        prefills += 3 * (len(first.slot.prompt.tokens) + len(run.tokens))
        passes += 3 * ROUNDED
        for row, ours, _ in followed.values():
            prefills += 2 * len(row.slot.prompt.tokens)
            passes += 2 * len(ours.tokens)
        seconds = prefills / plain.prefill_tps if plain.prefill_tps else 0.0
        expected[candidate.key] = seconds + (passes / plain.decode_tps if plain.decode_tps else 0.0)
    return expected


def _audit_one(plan: Plan, candidate: Candidate, pairs: Pairs, sessions: Sessions | None) -> Audit:
    comparing = comparable(candidate)
    follower = _Follower(plan, candidate, sessions)
    divergences: list[Divergence] = []
    known: set[tuple[str, str, tuple[int, ...], tuple[int, ...]]] = set()
    for row, partner in pairs:
        run, plain = row.generation, partner.generation
        assert run is not None and plain is not None
        prompt = row.slot.prompt.prompt
        key = (prompt.workload, prompt.id, run.tokens, plain.tokens if comparing else ())
        if key in known:
            continue
        known.add(key)
        if _to_follow(run, plain, candidate):
            index = first_difference(run.tokens, plain.tokens) if comparing else None
            divergences += follower.follow(row, run, plain, index)
    return Audit(
        identical=not divergences if comparing else None,
        compared=len(known),
        divergences=tuple(divergences),
        strict_up_to=follower.strict,
        followed=follower.tokens,
        rounding=follower.rounding,
        fit=fit(follower.places) if follower.places else None,
    )


class _Follower:
    """Asks the engine about one candidate's runs, and judges what it answers."""

    def __init__(self, plan: Plan, candidate: Candidate, sessions: Sessions | None) -> None:
        self._plan, self._candidate, self._sessions = plan, candidate, sessions
        self._sampled = not comparable(candidate)
        self.strict: int | None = None
        self.rounding: float | None = None
        self.tokens = 0
        self.places: list[float] = []

    def follow(
        self, row: Row, run: Generation, plain: Generation, index: int | None
    ) -> list[Divergence]:
        """What is to be said of a run that parts from the baseline's at ``index``, or of one of a
        sampled draft (None)."""
        slot = row.slot
        result = partial(
            Divergence, slot.prompt.prompt.workload, slot.prompt.prompt.id, slot.run, index or 0
        )
        if self._sessions is None:
            return [result(None, why="the measurement was interrupted")]
        if index is not None and index >= min(len(run.tokens), len(plain.tokens)):
            return [result("MISMATCH", why="one output ends where the other goes on")]
        try:
            found = self._ask(row, run, index, self._sessions)
        except EngineDied as error:
            self._sessions.restart()
            return [result(None, why=f"the engine died while replaying it ({error.how})")]
        except LocalspecError as error:
            return [result(None, why=f"it could not be replayed: {error.message}")]
        self.tokens += len(found.differences)
        self.places += found.places
        if index is None:
            fault = self._fault(row, found)
            return (
                [] if fault is None else [replace(result("MISMATCH", why=fault[1]), token=fault[0])]
            )
        result = partial(result, margin=found.margin, max_difference=found.max_difference)
        if len(slot.prompt.tokens) + index < (self.strict or 0):
            why = "rows are bit-equal on this machine at this length, so no tie explains it"
            return [result("MISMATCH", why=why)]
        if found.verdict != "near tie":
            return [result("MISMATCH", why="the recorded batches do not explain it")]
        fault = self._fault(row, found)
        if fault is None:
            return [result("near tie")]
        return [result("MISMATCH", why=f"{fault[1]} at token {fault[0]}")]

    def _ask(self, row: Row, run: Generation, index: int | None, sessions: Sessions) -> Replayed:
        plan, slot, candidate = self._plan, row.slot, self._candidate
        baseline = plan.baseline_of(candidate)
        if self.strict is None:
            said = (*slot.prompt.tokens, *run.tokens)
            self.strict = _bit_equal_up_to(plan, candidate, sessions, said)
        sessions.use(baseline)
        sessions.use(candidate, baseline.session)
        both = candidate.session, baseline.session
        if self.rounding is None:
            self.rounding = sessions.engine.rounding(*both, slot.prompt.tokens, run.tokens)
        return sessions.engine.replay(
            *both,
            slot.prompt.tokens,
            run,
            index,
            plan.sampler_of(candidate, slot.seed),
            plan.ignore_eos,
            self._sampled,
        )

    def _fault(self, row: Row, found: Replayed) -> tuple[int, str] | None:
        """The first token at which the run cannot be right, and why."""
        strict = (self.strict or 0) - len(row.slot.prompt.tokens)
        allowed = WORSE_THAN_ROUNDING * (self.rounding or 0.0)
        for i, difference in enumerate(found.differences):
            if i in found.unlike:
                return i, "the recorded batches choose another token"
            if difference > (0 if i < strict else allowed):
                return i, (
                    f"the logits are {difference:.2g} apart from the plain ones, where roundings "
                    f"explain {0 if i < strict else allowed:.2g},"
                )
        return None


def _bit_equal_up_to(
    plan: Plan, candidate: Candidate, sessions: Sessions, said: Sequence[int]
) -> int:
    """Up to how many tokens of context all verify batches of this candidate are bit-equal to single
    rows, as far as was probed with the text ``said``; 0 where that is not known, so that the replay
    decides.

    Without flash attention rows are alike at one place and not at the next, by whether a rounding
    survives the next quantisation; so a few places that are alike prove nothing.
    """
    probes = _probes(plan, candidate)
    alike = []
    try:
        sessions.use(candidate)
        for length, sizes in probes:
            text = tuple(islice(cycle(said), length))
            if not all(sessions.engine.probe(candidate.session, text, sizes).equal.values()):
                break
            alike.append(length)
    except EngineDied:
        sessions.restart()
        return 0
    except LocalspecError:
        return 0
    return max(alike) if len(alike) >= min(PROVEN, len(probes)) > 0 else 0


def _probe_sizes(candidate: Candidate) -> tuple[int, ...]:
    """All verify batches; none of a tree: a kept branch lies in other cells, so its sums have
    another order."""
    return () if candidate.drafter.tree else tuple(range(2, candidate.drafter.n_max + 2))


def _probes(plan: Plan, candidate: Candidate) -> list[tuple[int, tuple[int, ...]]]:
    """At which lengths to try which batch sizes: all of them at the shortest prompt and the longest
    reach, the largest between these up to the cell border."""
    sizes = _probe_sizes(candidate)
    if not sizes:
        return []
    lengths = [len(p.tokens) for p in plan.prompts]
    reach = min(max(lengths) + plan.max_tokens, plan.context.n_ctx)
    shortest = min(max(min(lengths), sizes[-1] + 1), reach)
    border = min(max(CELL_BORDER, shortest), reach)
    tried = {shortest + (border - shortest) * k // PROBES for k in range(PROBES + 1)}
    found = sorted(length for length in tried | {reach} if length > sizes[-1])
    ends = found[:1] + found[-1:]
    return [(length, sizes if length in ends else sizes[-1:]) for length in found]


def _place(row: Row) -> tuple[object, ...]:
    candidate = row.slot.candidate
    return *row.place, candidate.temperature, candidate.base


def _whole(row: Row) -> bool:
    return row.generation is not None and row.generation.stop != "cancelled"
