"""How ``localspec tune`` spends its budget: decisions only, no engine (DESIGN section 6).

Three fifths of the time choose, by successive halving (Jamieson and Talwalkar 2016): every
candidate runs beside the baseline on a few prompts; the half with the greater speedups stays, is
joined by settings one step from the best, and gets a longer round. The leader is audited, and the
next one takes its place if it fails. The rest of the time compares the one that is left with the
baseline, on prompts that had no part in choosing it. When a round ends, which candidates stay and
when measuring ends is decided by the clock and by ranks, never by whether something is faster than
the baseline.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TypeVar

from localspec.bench.analysis import measure
from localspec.bench.audit import Audit, expected_seconds
from localspec.bench.plan import Candidate, Plan, Prepared, spread
from localspec.bench.rows import Row, mark_disturbed, pair_up, speed_pairs
from localspec.bench.runner import Batch, Measurement
from localspec.bench.statistics import FEWEST_PAIRS
from localspec.records import Counts
from localspec.tune.space import Space

CHOOSING = 0.6
"""The share of the budget in which the candidate is chosen."""
FIRST_AT_MOST = 0.8
"""Of the budget: where the first round takes longer than it seemed it would, it is cut here."""
FIRST_ROUND = 0.6
"""Of that, the most that the fewest passes of the first round may take; else fewer start."""
PROBED = 0.03
"""Of the budget: a run that takes longer is not made twice to know how long it takes."""
FEWEST_PASSES = 2
"""Of a round: one prompt says little, and one run may have met with an accident."""
FINALISTS = 3
"""With so few left, and none to join, a round is the last one."""
FEWEST_KEPT = 2
JOINED_ROUNDS = 2
"""Rounds after which neighbours of the leader join."""
MOST_JOIN = 3
MOST_RUNS = 20
"""Of each prompt in the comparison."""
MOST_AUDITED = 6
"""If all of so many fail the audit, it is not for their settings."""
NARROW = 1.02
"""The comparison ends early when its interval reaches no further than by this factor; it is never
asked what the interval says."""
SWEEPS = 50
"""By turns, which settle long before."""
IN_BLOCK = 3
"""Prompts at once, where contexts do not fit together and are opened for each block."""


@dataclass(frozen=True, slots=True)
class Split:
    """``apart`` False: too few prompts; the comparison makes other runs of the same ones."""

    choosing: tuple[Prepared, ...]
    held_out: tuple[Prepared, ...]
    apart: bool


def split(prompts: Sequence[Prepared], seed: int) -> Split:
    """Half of each workload's prompts for choosing, in a seeded random order; three or more are
    held out, or none where there are not so many."""
    mixed = random.Random(f"{seed} split").sample(list(prompts), len(prompts))
    mixed = list(spread(mixed, len(mixed)))
    if len(mixed) <= FEWEST_PAIRS:
        return Split(tuple(mixed), tuple(mixed), apart=False)
    workloads: dict[str, int] = {}
    choosing: list[Prepared] = []
    held_out: list[Prepared] = []
    for p in mixed:
        turn = workloads[p.prompt.workload] = workloads.get(p.prompt.workload, -1) + 1
        (held_out if turn % 2 == 0 else choosing).append(p)
    while len(held_out) < FEWEST_PAIRS and len(choosing) > 1:
        held_out.append(choosing.pop())
    while not choosing:  # workloads of one prompt each
        choosing.append(held_out.pop())
    return Split(tuple(choosing), tuple(held_out), apart=True)


@dataclass(frozen=True, slots=True)
class Begun:
    """The prompts, and the candidates that start: as many as there is time for."""

    prompts: Split
    start: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """How a candidate had done when a round ended: its speedup so far, which is no result (many
    were tried, and the luckiest leads)."""

    candidate: Candidate
    speedup: float | None
    pairs: int
    counts: Counts
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Round:
    """``runs``: how many each candidate had over the ``prompts``; where the time for choosing ended
    on the way the most, and ``fewest`` the fewest. ``standings`` the best first; ``joined`` come in
    with the next round."""

    prompts: int
    runs: int
    fewest: int
    seconds: float
    standings: tuple[Standing, ...]
    joined: tuple[Candidate, ...] = ()


@dataclass(frozen=True, slots=True)
class Struck:
    """A candidate that must not be picked, however fast."""

    candidate: Candidate
    audit: Audit


K = TypeVar("K")
P = TypeVar("P")
Auditor = Callable[[Measurement, Candidate], Audit]


@dataclass
class Tuning:
    """A tuning as it goes along; times are seconds. ``drop`` hears which contexts are not needed
    any more, ``tell`` each round as it ends. ``too_short``: the seconds of budget without which
    nothing can be told. ``untried``: how many of the ``first`` candidates there was no time for;
    ``searched``: were all tried, and something near the best of them?"""

    space: Space
    first: Sequence[Candidate]
    budget: float
    audit: Auditor
    drop: Callable[[Candidate], None] = lambda _: None
    tell: Callable[[Begun | Round | Struck | Candidate], None] = lambda _: None
    clock: Callable[[], float] = time.monotonic
    rounds: list[Round] = field(default_factory=list)
    struck: list[Struck] = field(default_factory=list)
    winner: Candidate | None = None
    chosen_after: float | None = None
    too_short: float | None = None
    untried: int = 0
    searched: bool = False
    prompts: Split | None = None

    def __post_init__(self) -> None:
        self._began = self.clock()
        self._runs: dict[tuple[str, str], int] = {}
        self._choosing = False
        self._turn = 0
        self._each = 0.0
        self._opening = 0.0
        self._opened: set[str] = set()

    @property
    def elapsed(self) -> float:
        return self.clock() - self._began

    def is_over(self) -> bool:
        """Is the time for choosing spent? The first round may use some of the rest."""
        share = CHOOSING if self.rounds else FIRST_AT_MOST
        return self._choosing and self.elapsed >= share * self.budget

    # ---- the course -----------------------------------------------------------------------------

    def batches(self, made: Callable[[], Measurement]) -> Iterator[Batch]:
        self.prompts = parts = split(made().plan.prompts, made().plan.order_seed)
        self._opening, each = self.elapsed, math.inf
        for _ in range(FEWEST_PASSES):  # the quicker one: something may have come in between
            began = self.elapsed
            yield Batch("main", (self.space.baseline,), self._draw(parts.choosing, 1))
            each = min(each, max(self.elapsed - began, 1e-3))
            if each > PROBED * self.budget:
                break
        start = self._affordable(each)
        self.tell(Begun(parts, tuple(start)))
        if not start:
            return
        self.untried = len(self.first) - len(start)
        ranked = yield from self._choose(made, list(start), parts.choosing, each)
        for candidate in ranked[:MOST_AUDITED]:
            found = self.audit(made(), candidate)
            if found.compared and not found.mismatches and not found.unclassed:
                self.winner, self.chosen_after = candidate, self.elapsed
                self.tell(candidate)
                break
            self.struck.append(Struck(candidate, found))
            self.tell(self.struck[-1])
        if self.winner is not None:
            yield from self._compare(made, self.winner, parts.held_out)

    def _affordable(self, each: float) -> Sequence[Candidate]:
        """As many candidates as two passes of the first round have time for; none, and
        ``too_short``, where not even one could be compared in the end."""
        room = FIRST_ROUND * (CHOOSING * self.budget - self.elapsed) - FEWEST_PASSES * each
        count = int(room / (FEWEST_PASSES * each + self._opening))
        comparing = 2 * each * FEWEST_PAIRS
        if count >= 1 and comparing <= (1 - CHOOSING) * self.budget:
            return self.first[:count]
        few = self._time_for(min(len(self.first), FINALISTS), each)
        self.too_short = max(self.elapsed + few, comparing / (1 - CHOOSING))
        return ()

    def time_to_search(self) -> float:
        """Seconds of budget in which all of the ``first`` candidates could be tried."""
        return self._time_for(len(self.first), self._each)

    def _time_for(self, candidates: int, each: float) -> float:
        runs = (candidates + 1) * FEWEST_PASSES * each + candidates * self._opening
        return runs / FIRST_ROUND / CHOOSING

    def _choose(
        self,
        made: Callable[[], Measurement],
        alive: list[Candidate],
        prompts: Sequence[Prepared],
        each: float,
    ) -> Generator[Batch, None, list[Candidate]]:
        """Rounds of halving; returns the candidates of the last one, the best first, and behind
        them those that were dropped before."""
        self._choosing = True
        ranked: list[Candidate] = []
        while alive:
            end = CHOOSING * self.budget - self._auditing(made(), ranked)
            began, rows, passes = self.elapsed, len(made().rows), 0
            share = (end - began) / _rounds_to_go(len(alive), len(self.rounds))
            at_once = 1 if made().together else IN_BLOCK
            while True:
                before, mine = self.elapsed, len(made().rows)
                yield Batch("main", (self.space.baseline, *alive), self._draw(prompts, at_once))
                if len(made().rows) == mine:  # the baseline cannot be run any more, or nothing can
                    return ranked
                passes += at_once
                self._learn_opening(alive, self.elapsed - before, made().rows[mine:])
                alive = [c for c in alive if not made().status[c.key].given_up]
                each = _seconds_each(made().rows[rows:]) or each
                ends = self.elapsed + each * (len(alive) + 1) * at_once
                late = ends > (end if passes < FEWEST_PASSES else began + share)
                if not alive or late:
                    break
            standings = _rank(made().plan, mark_disturbed(made().rows), alive)
            measured = [s.candidate for s in standings if s.speedup is not None]
            ranked = [*measured, *(c for c in ranked if c not in measured)]
            joined = self._joining(standings)
            room = int((end - self.elapsed) / each) - 1
            settled = len(alive) <= FINALISTS and not joined
            last = settled or room < FEWEST_KEPT
            self._each = each
            if last:
                joined, keep = [], len(standings)
            else:
                keep = min(room, max(FEWEST_KEPT, len(standings) // 2))
                spare = (room - keep) * each
                joined = joined[: max(0, int(spare / (each + self._opening)))]
            shown = tuple(replace(s, kept=i < keep) for i, s in enumerate(standings))
            self.searched = not self.untried and (settled or bool(self.rounds))
            extent = _extent(made().rows[rows:], alive)
            self.rounds.append(Round(*extent, self.elapsed - began, shown, tuple(joined)))
            self.tell(self.rounds[-1])
            if last:
                break
            for s in standings[keep:]:
                self.drop(s.candidate)
            alive = [*(s.candidate for s in standings[:keep]), *joined]
        self._choosing = False
        return ranked

    def _auditing(self, made: Measurement, ranked: Sequence[Candidate]) -> float:
        """Seconds that the audit of the leader would take."""
        if not ranked:
            return 0.0
        pair = (self.space.baseline, ranked[0])
        return expected_seconds(replace(made.plan, candidates=pair), rows_of(made.rows, pair))

    def _learn_opening(
        self, candidates: Sequence[Candidate], seconds: float, rows: Sequence[Row]
    ) -> None:
        """How long it takes to open a context, from a batch in which some were new."""
        new = {c.key for c in candidates} - self._opened
        self._opened |= new
        if new:
            running = sum(r.generation.times.end_to_end for r in rows if r.generation)
            self._opening = max(0.0, seconds - running) / len(new)

    def _joining(self, standings: Sequence[Standing]) -> list[Candidate]:
        """Neighbours of the leader, and of the next best, that were not tried yet."""
        if len(self.rounds) >= JOINED_ROUNDS:
            return []
        tried = {s.candidate.key for r in self.rounds for s in r.standings}
        tried |= {s.candidate.key for s in standings}
        found: dict[str, Candidate] = {}
        for s in standings[:FEWEST_KEPT]:
            found |= {c.key: c for c in self.space.near(s.candidate) if c.key not in tried}
        return list(found.values())[:MOST_JOIN]

    def _compare(
        self, made: Callable[[], Measurement], winner: Candidate, prompts: Sequence[Prepared]
    ) -> Iterator[Batch]:
        """Baseline and winner on the prompts held out, as long as there is time: for the audit of
        these runs too."""
        pair = (self.space.baseline, winner)
        at_once = 1 if made().together else IN_BLOCK
        seconds = 2 * at_once * (_seconds_each(rows_of(made().rows, pair)) or 0.0)
        for _ in range(MOST_RUNS):
            for i in range(0, len(prompts), at_once):
                found = made()
                after = expected_seconds(
                    replace(found.plan, candidates=pair), confirming(found.rows)
                )
                late = self.elapsed + seconds + after > self.budget
                if late or found.status[winner.key].given_up:
                    return
                some, began, there = prompts[i : i + at_once], self.elapsed, len(found.rows)
                yield Batch("confirm", pair, self._draw(some, len(some), from_start=True))
                if len(made().rows) == there:
                    return
                seconds = self.elapsed - began
            if _is_narrow(made(), winner):
                return

    def _draw(
        self, prompts: Sequence[Prepared], count: int, *, from_start: bool = False
    ) -> tuple[tuple[int, Prepared], ...]:
        """The next prompts in turn, each with a run number that it did not have yet."""
        if from_start:
            drawn = list(prompts[:count])
        else:
            drawn = [prompts[(self._turn + i) % len(prompts)] for i in range(count)]
            self._turn += count
        found = []
        for prompt in drawn:
            place = prompt.prompt.workload, prompt.prompt.id
            run = self._runs[place] = self._runs.get(place, -1) + 1
            found.append((run, prompt))
        return tuple(found)


def confirming(rows: Sequence[Row]) -> list[Row]:
    return [r for r in rows if r.slot.phase == "confirm"]


def _is_narrow(made: Measurement, winner: Candidate) -> bool:
    found = measure(made.plan, winner, confirming(made.rows)).decode.interval
    return found is not None and found[1] / found[0] <= NARROW**2


def _extent(rows: Sequence[Row], candidates: Sequence[Candidate]) -> tuple[int, int, int]:
    """On how many prompts they were run, and the most and the fewest runs of one of them."""
    made = rows_of(rows, candidates)
    count = Counter(r.slot.candidate.key for r in made)
    each = [count[c.key] for c in candidates]
    return len({r.place[:2] for r in made}), max(each, default=0), min(each, default=0)


def _rounds_to_go(alive: int, done: int) -> int:
    """About how many rounds there will be, this one included."""
    rounds = 1
    while alive > FINALISTS or done < JOINED_ROUNDS:
        alive = max(FEWEST_KEPT, alive // 2) + (MOST_JOIN if done < JOINED_ROUNDS else 0)
        done, rounds = done + 1, rounds + 1
    return rounds


def _rank(plan: Plan, rows: Sequence[Row], alive: Sequence[Candidate]) -> list[Standing]:
    """The candidates by their speedup over all their runs so far. Disturbed runs are left out
    where a candidate has others."""
    found: dict[Candidate, list[tuple[Row, Row]]] = {}
    for c in alive:
        pairs = pair_up(rows, c.key, plan.baseline_of(c).key)
        found[c] = [p for p in pairs if steady(p)] or pairs
    ratios = {
        c: {p[0].place: r.log_ratio for p in pairs for r in speed_pairs([p])}
        for c, pairs in found.items()
    }
    means = adjusted({c: mine for c, mine in ratios.items() if mine})
    standings = [
        Standing(
            c,
            math.exp(means[c]) if c in means else None,
            len(ratios[c]),
            sum((row.generation.counts for row, _ in pairs if row.generation), Counts()),
        )
        for c, pairs in found.items()
    ]
    return sorted(standings, key=lambda s: -(s.speedup or 0.0))


def adjusted(ratios: Mapping[K, Mapping[P, float]]) -> dict[K, float]:
    """Mean log ratios as if all had run in the same places: those that joined late met other
    prompts. Least squares of one term a candidate and one a place, by turns."""
    places = {p for mine in ratios.values() for p in mine}
    of_place = dict.fromkeys(places, 0.0)
    of_candidate: dict[K, float] = {}
    for _ in range(SWEEPS):
        of_candidate = {
            c: fmean(r - of_place[p] for p, r in mine.items()) for c, mine in ratios.items()
        }
        of_place = {
            p: fmean(mine[p] - of_candidate[c] for c, mine in ratios.items() if p in mine)
            for p in places
        }
    level = fmean(of_place.values()) if places else 0.0
    return {c: x + level for c, x in of_candidate.items()}


def steady(pair: tuple[Row, Row]) -> bool:
    """Was the machine as usual during both runs?"""
    return not any("disturbed" in row.flags for row in pair)


def rows_of(rows: Sequence[Row], candidates: Sequence[Candidate]) -> list[Row]:
    keys = {c.key for c in candidates}
    return [r for r in rows if r.slot.candidate.key in keys]


def _seconds_each(rows: Sequence[Row]) -> float | None:
    seconds = [r.generation.times.end_to_end for r in rows if r.generation]
    return fmean(seconds) if seconds else None
