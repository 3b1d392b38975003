"""A machine on paper: runs take the time that their speed says, by a clock that does not wait."""

from __future__ import annotations

import random
from collections.abc import Callable

import made_runs

from localspec.bench.audit import Audit
from localspec.bench.plan import Candidate, Plan, Prepared, Slot
from localspec.bench.rows import Row
from localspec.bench.runner import Batch, Measurement, Status
from localspec.catalog import DrafterSpec
from localspec.records import Counts
from localspec.tune.course import Tuning
from localspec.tune.space import Space

SPECS = (
    DrafterSpec("draft-model", "draft-model", n_max=2, recommended=True),
    DrafterSpec("eagle3", "eagle3", n_max=3),
    DrafterSpec("ngram", "ngram"),
)
TOKENS = 64
OPENING = 1.0
"""Seconds that a new context takes."""


def prompts(count: int = 16, workloads: tuple[str, ...] = ("chat", "code")) -> list[Prepared]:
    return [made_runs.prompt(f"p{i}", workloads[i % len(workloads)]) for i in range(count)]


class Machine:
    """``speed`` says how many times as fast as the baseline a candidate is on a prompt; the
    baseline makes ``tps`` tokens a second. ``noise`` is the spread of each run's log speed."""

    def __init__(
        self,
        speed: Callable[[Candidate, Prepared], float],
        *,
        tps: float = 100.0,
        noise: float = 0.0,
        budget: float = 180.0,
        specs: tuple[DrafterSpec, ...] = SPECS,
        wrong: Callable[[Candidate], Audit] = lambda _: Audit(identical=True, compared=3),
        where: list[Prepared] | None = None,
        refused: Callable[[Candidate], bool] = lambda _: False,
        accept_length: int = 2,
    ) -> None:
        self.now = 0.0
        self.speed, self.tps, self.noise, self.refused = speed, tps, noise, refused
        self.rng = random.Random(4)
        self.accept_length = accept_length
        self.space = Space(specs)
        first = self.space.first()
        self.measurement = Measurement(
            made_runs.plan([self.space.baseline, *first], where or prompts()),
            status={c.key: Status() for c in (self.space.baseline, *first)},
        )
        self.audited: list[Candidate] = []
        self.dropped: list[Candidate] = []
        self.opened: set[str] = set()
        self.tuning = Tuning(
            self.space, first, budget, self._audit(wrong), drop=self.dropped.append,
            clock=lambda: self.now,
        )  # fmt: skip

    def _audit(self, wrong: Callable[[Candidate], Audit]) -> Callable[..., Audit]:
        def audit(_: Measurement, candidate: Candidate) -> Audit:
            self.audited.append(candidate)
            return wrong(candidate)

        return audit

    def run(self, *, stop_after: float | None = None) -> Measurement:
        """As the runner does it; ``stop_after`` so many seconds there is a Ctrl-C."""
        for batch in self.tuning.batches(lambda: self.measurement):
            for candidate, run, prompt in self._slots(batch):
                if stop_after is not None and self.now >= stop_after:
                    self.measurement.interrupted = True
                    return self.measurement
                if batch.phase == "main" and self.tuning.is_over():
                    break
                self._one(batch, candidate, run, prompt)
        return self.measurement

    def _slots(self, batch: Batch):
        plan = self.measurement.plan
        for c in batch.candidates:
            if c.key not in self.measurement.status:
                self.measurement.status[c.key] = Status()
                self.measurement.plan = plan = Plan(
                    **{f: getattr(plan, f) for f in plan.__dataclass_fields__ if f != "candidates"},
                    candidates=(*plan.candidates, c),
                )
        for run, prompt in batch.work:
            for c in self.rng.sample(batch.candidates, len(batch.candidates)):
                yield c, run, prompt

    def _one(self, batch: Batch, candidate: Candidate, run: int, prompt: Prepared) -> None:
        status = self.measurement.status[candidate.key]
        if not status.given_up and self.refused(candidate):
            status.state, status.reason, status.given_up = "refused", "It does not fit.", True
        if status.given_up:
            return
        if candidate.session not in self.opened:
            self.opened.add(candidate.session)
            self.now += OPENING
        ratio = 1.0 if candidate.is_baseline else self.speed(candidate, prompt)
        tps = self.tps * ratio * 2.718281828 ** self.rng.gauss(0, self.noise)
        calls = (TOKENS - 1) // (1 if candidate.is_baseline else self.accept_length)
        counts = Counts(steps=calls, target_calls=calls, decode_tokens=TOKENS - 1)
        made = made_runs.generation(range(100, 100 + TOKENS), tps=tps, counts=counts)
        slot = Slot(len(self.measurement.rows), candidate, prompt, run, 5 + run, 0, batch.phase)
        self.measurement.rows.append(Row(slot, made))
        self.now += made.times.end_to_end
