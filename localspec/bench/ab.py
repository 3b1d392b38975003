"""One prompt with and without a drafter, run after run, until it is known how much faster it is.

The runs, their order, their pairing and the statistics are those of ``localspec bench --prompt``;
what is added is when to stop, and that somebody watches (DESIGN section 7).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from localspec import machine
from localspec.bench.analysis import Measured, analyse
from localspec.bench.audit import Audit, audit
from localspec.bench.plan import Candidate, Phase, Plan, make_candidates
from localspec.bench.prepare import fit_together, fitting_of, make_plan, temperatures
from localspec.bench.rows import Row, pair_up
from localspec.bench.runner import Comparing, Event, Measurement, Notice, Runner
from localspec.bench.sessions import Sessions
from localspec.bench.statistics import Comparison
from localspec.bench.workloads import load
from localspec.catalog import Target, resolve_drafters, resolve_target
from localspec.engine.client import Engine
from localspec.errors import UsageError
from localspec.records import BenchOptions
from localspec.units import many

FEWEST_PAIRS, MOST_PAIRS = 6, 12
NARROW = 1.06
"""Upper / lower end of an interval that is narrow enough: about +-3 %. Stopping when a t interval
is narrow takes coverage away, since a spread that came out small by luck stops it early; from six
pairs on the nominal 95 % are 93.5 to 95.5 % (simulated, spreads of 1 to 10 %), from three 90 %."""
LIVE_SECONDS = 0.1
"""How often a run reports to somebody who watches."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What will be measured, before the first run."""

    target: Target
    plan: Plan

    @property
    def baseline(self) -> Candidate:
        return self.plan.candidates[0]

    @property
    def drafted(self) -> Candidate:
        return self.plan.candidates[1]


@dataclass(frozen=True, slots=True)
class Standing:
    """How it stands: all figures are of the runs in ``pairs`` and of no others, so that the speeds
    of both sides fit their ratio. A pair is the drafted run and the baseline's next to it."""

    baseline: Measured
    drafted: Measured
    pairs: tuple[tuple[Row, Row], ...]

    @classmethod
    def of(cls, planned: Planned, rows: Sequence[Row]) -> Standing:
        """``rows``: of those that were made twice it is decided which count."""
        pairs = pair_up(rows, planned.drafted.key, planned.baseline.key)
        # a baseline's run made to stand beside a repeated one: here it is the one that counts
        own = [replace(r, flags=r.flags - {"pairing"}) for pair in pairs for r in pair]
        table = analyse(planned.plan, own)
        return cls(table[planned.baseline.key], table[planned.drafted.key], tuple(pairs))

    @property
    def comparison(self) -> Comparison:
        return self.drafted.decode

    @property
    def narrow(self) -> bool:
        return is_narrow(self.comparison)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of it. ``audit``: is the output the baseline's? ``finished``: the one who watched
    had enough."""

    planned: Planned
    measurement: Measurement
    standing: Standing
    audit: Audit
    finished: bool = False

    @property
    def disturbed(self) -> tuple[int, int]:
        """Of the runs that the figures are made of: how many were disturbed, and all."""
        runs = [r for pair in self.standing.pairs for r in pair]
        return sum("disturbed" in r.flags for r in runs), len(runs)

    @property
    def left_out(self) -> str:
        """How many of the runs are in no figure, and why; empty where all are, or none."""
        rows, pairs = self.measurement.rows, self.standing.pairs
        out = len(rows) - 2 * len(pairs)
        if not out or not pairs:
            return ""
        again = {drafted.slot.run for drafted, _ in pairs if drafted.slot.phase == "repeat"}
        first = sum(r.slot.phase == "main" and r.slot.run in again for r in rows)
        why = [f"{many(len(again), 'pair was', 'pairs were')} made again"] if again else []
        if half := out - first:
            why.append(f"{many(half, 'run is of a pair', 'runs are of pairs')} not made whole")
        return f"left out: {out} of {many(len(rows), 'run')} ({', '.join(why)})."

    @property
    def ending(self) -> str:
        """How many pairs there are, and why there are no more: "12 of 15 pairs count · the interval
        is still wide: the runs vary · the engine died once"."""
        made = self.measurement
        found = [made.status[c.key] for c in (self.planned.baseline, self.planned.drafted)]
        refused = next((s.reason for s in found if s.state == "refused"), None)
        no_engine = next((s.reason for s in found if s.state == "interrupted"), None)
        crashes = sum(s.crashes for s in found)
        if made.interrupted:
            why = "stopped by you"
        elif any(s.given_up for s in found):
            why = refused or "given up"
        elif no_engine is not None:
            why = no_engine
        elif self.standing.narrow:
            why = "the interval is narrow enough"
        elif self.finished:
            why = "ended by you"
        else:
            why = "the interval is still wide: the runs vary"
        died = f"the engine died {_times(crashes)}" if crashes else ""
        return " · ".join(filter(None, (self._how_many, why, died)))

    @property
    def _how_many(self) -> str:
        rows, pairs = self.measurement.rows, len(self.standing.pairs)
        begun = len({(r.slot.phase, r.slot.block, r.slot.run) for r in rows})
        if not pairs:
            whole = any(r.in_pairs for r in rows)
            return "no pair was made whole" if whole else "nothing was measured"
        if pairs == begun:
            return many(pairs, "pair")
        return f"{pairs} of {begun} pairs count{'s' if pairs == 1 else ''}"


Tell = Callable[[Event | Planned | Standing], None]
"""Hears what happens, in the thread that measures. A KeyboardInterrupt that it raises ends it."""


class Control(Protocol):
    """What the one who watches may want: asked between pairs, so that no pair is torn apart."""

    def hold(self) -> None:
        """Returns when measuring may go on."""
        ...

    def finished(self) -> bool:
        """Is this enough?"""
        ...


def is_narrow(comparison: Comparison) -> bool:
    """Is the interval so narrow that more runs tell little? Its place does not matter."""
    if comparison.interval is None or comparison.pairs < FEWEST_PAIRS:
        return False
    low, high = comparison.interval
    return math.log(high / low) <= math.log(NARROW)


def measure(
    options: BenchOptions, tell: Tell, control: Control, connect: Callable[..., Engine]
) -> Outcome:
    """Compare the one drafter of ``options`` with the baseline on its ``prompt``.

    Blocks. ``connect`` gives an engine with the target loaded, as ``engine.client.connect`` does;
    the last one lives on, without the contexts opened here. Raises ``LocalspecError`` for what
    cannot be measured at all.
    """
    workloads = load((), options.prompt)
    target = resolve_target(options.model)
    candidates = _candidates(options, target)
    options = replace(options, runs=options.runs or MOST_PAIRS)
    fitting = fitting_of(options, target, candidates)
    log_file = Path(options.engine.log_file) if options.engine.log_file else None
    start = partial(connect, target.path, options.engine.load, log_file, fitting.choose)
    engine = start()

    def say(text: str) -> None:
        tell(Notice(text))

    plan = make_plan(options, workloads, target, candidates, engine, say)
    planned = Planned(target, plan)
    tell(planned)
    for note in fitting.notes:
        say(note)
    fitting.check(plan.context, planned.baseline.drafter)
    needed, together = fit_together(plan, engine, fitting.load)
    for warning in machine.warnings(engine.pid, needed if together else None):
        say(warning)
    sessions = Sessions(engine, start, plan.context, together, fitting.check)
    try:
        watch = _Watch(planned, sessions, tell, control)

        def enough(phase: Phase, rows: Sequence[Row]) -> bool:
            lost = runner.so_far().status[planned.drafted.key].given_up
            return lost or watch.enough(phase, rows)

        runner = Runner(plan, sessions, tell, enough=enough, interval=LIVE_SECONDS)
        measurement = runner.run()
        standing = Standing.of(planned, measurement.judged)
        tell(standing)
        replaying = None if measurement.interrupted else sessions
        found = audit(
            measurement.plan, measurement.rows, replaying, lambda c, eta: tell(Comparing(c, eta))
        )
        of_drafted = found[planned.drafted.key]
        return Outcome(planned, measurement, standing, of_drafted, control.finished())
    finally:
        sessions.close()


def _times(n: int) -> str:
    return {1: "once", 2: "twice"}.get(n, f"{n} times")


class _Watch:
    """Looks at the rows between pairs: tells how it stands, waits, and says when to stop."""

    def __init__(self, planned: Planned, sessions: Sessions, tell: Tell, control: Control) -> None:
        self._planned = planned
        self._sessions = sessions
        self._tell = tell
        self._control = control
        self._pairs = 0

    def enough(self, phase: Phase, rows: Sequence[Row]) -> bool:
        if phase == "main" and self._sessions.together and len(rows) % 2:
            return False  # in the middle of a pair
        # of what is made again it is decided in the end which run counts
        standing = Standing.of(self._planned, [r for r in rows if r.slot.phase == "main"])
        if standing.comparison.pairs > self._pairs:
            self._pairs = standing.comparison.pairs
            self._tell(standing)
        self._control.hold()  # whoever holds it sees the pair that is whole
        return (phase == "main" and standing.narrow) or self._control.finished()


def _candidates(options: BenchOptions, target: Target) -> tuple[Candidate, ...]:
    """The baseline and one drafter at one draft length: as asked, else as recommended."""
    specs = [
        spec
        for spec in resolve_drafters(target, options.drafters or ("auto",))
        if spec.method != "none"
    ]
    if len(specs) != 1:
        raise UsageError(
            "An A/B compares the baseline with one drafter.", "`localspec bench` compares several."
        )
    n_max = options.n_max[:1] or (specs[0].settings().n_max,)
    return make_candidates(
        specs,
        n_max=n_max,
        p_min=options.p_min,
        sampled=options.sampled,
        trees=options.trees[:1],
        chains=options.chains,
        temperatures=temperatures(options)[:1],
    )
