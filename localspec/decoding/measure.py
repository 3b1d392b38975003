"""What the steps of a session cost, measured once before its first run, for adaptive lengths.

The target's pass is timed by size, on memory that is empty but for the batch. All else (drafting,
rollback, the loop itself) is taken from the steps of a short generation whose draft lengths are
dictated. On the demo model this takes about 0.7 s; runs correct what they find different.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter

from localspec.decoding.adaptive import Adaptive, StepCosts, lengths_up_to
from localspec.decoding.loop import Listener, Request, Session
from localspec.drafters.base import Draft
from localspec.drafters.mixed import MixedDrafter
from localspec.errors import DrafterError
from localspec.records import SamplerSettings, Step

SECONDS, ROUNDS = 0.4, 2
"""The target's pass is timed for so long, and at the least in so many rounds."""
SHORT = 4
"""Drafts up to here are timed in every round, longer ones in every third: the choice lies mostly
among the short, and the long take most of the time."""
PROMPT, CYCLE = 32, 5
"""The dictated generation goes on from so many tokens, a repetition of a few: there an n-gram
drafter finds a match, and a drafter that stops where it is unsure drafts on."""


def adaptive_lengths(session: Session) -> Adaptive:
    """``--n-max auto`` for a session that has been warmed up."""
    drafter = session.drafter
    if isinstance(drafter, MixedDrafter):
        limits = drafter.limits
    else:
        limits = [drafter.needs.outputs - 1]
    return Adaptive(measure(session, limits), limits)


def measure(session: Session, limits: list[int]) -> StepCosts:
    """``limits`` holds the longest draft of each source of the session's drafter, and is where the
    drafter reads what it may draft, if it has several. The session must have been warmed up; it is
    cleared. Raises DrafterError for draft trees."""
    if session.drafter.needs.sequences > 1:
        raise DrafterError(
            "The automatic draft length is for chains, not for draft trees.",
            "Give --n-max a number, or leave the tree out.",
        )
    session.clear()
    bounds = limits.copy()
    verify = _verify_costs(session, max(bounds))
    rehearsal = _rehearse(session, limits)
    limits[:] = bounds
    rest = min(rehearsal.plain, default=verify[0] / 100)
    draft = [_added(seen, n, rest) for seen, n in zip(rehearsal.seen, bounds, strict=True)]
    # the prompt was taken in by all sources together; only the last can have a memory of its own
    wake = [0.0] * (len(bounds) - 1) + [rehearsal.wake]
    return StepCosts(tuple(verify), rest, tuple(map(tuple, draft)), tuple(wake))


def _verify_costs(session: Session, bound: int) -> list[float]:
    """Seconds of a target pass by drafted tokens: the fastest of several rounds, up and down."""
    target, draft = session.target, Draft(bound)
    every = [0, *lengths_up_to(bound)]
    short = [n for n in every if n <= SHORT]
    best = dict.fromkeys(every, float("inf"))
    began, done = perf_counter(), 0
    while done < ROUNDS or perf_counter() - began < SECONDS:
        sizes = short if done % 3 else every
        for n in sizes if done % 2 else reversed(sizes):
            draft.n = n
            start = perf_counter()
            target.verify(0, draft, 0)
            best[n] = min(best[n], perf_counter() - start)
            target.context.clear()
        done += 1
    session.clear()
    return _between(best, bound)


def _between(known: Mapping[int, float], bound: int) -> list[float]:
    """The values from 0 to ``bound``: straight lines between those known, and on beyond the last;
    0 is known."""
    sizes = sorted(known)
    values, high = [known[0]], 0
    for n in range(1, bound + 1):
        while sizes[high] < n and high < len(sizes) - 1:
            high += 1
        a, b = sizes[max(high - 1, 0)], sizes[high]
        slope = (known[b] - known[a]) / (b - a) if b > a else 0.0
        values.append(max(known[b] + slope * (n - b), 0.0))
    return values


class _Rehearsal:
    """Dictates how far which source drafts, step by step, and keeps what the steps took, less
    verification and acceptance; at the end of its plan it ends the generation as a person would."""

    def __init__(self, limits: list[int], stop: Callable[[], None]) -> None:
        self.plain: list[float] = []
        self.seen: list[dict[int, float]] = [{} for _ in limits]
        self.wake = 0.0
        self.plan = [
            (source, n)
            for source, bound in enumerate(limits)
            for n in (0, (bound + 1) // 2, 1, bound, 0, 1, (bound + 1) // 2, 0)
        ]
        self._limits, self._stop = limits, stop
        self._step = -1

    def begin(self) -> None:
        self._step = -1

    def limit(self, most: int) -> int:
        self._step += 1
        source, n = self.plan[self._step]
        self._limits[:] = [0] * len(self._limits)
        self._limits[source] = min(n, most)
        return min(n, most)

    def observe(self, step: Step) -> None:
        source, _ = self.plan[self._step]
        n, seen = self._limits[source], self.seen[source]
        seconds = step.t_step - step.t_verify - step.t_accept
        if n < 1:
            self.plain.append(seconds)
        else:
            attempted = min(step.nodes + 1, n)
            seen[attempted] = min(seconds, seen.get(attempted, seconds))
        if self._step == len(self.plan) - 1:
            self._stop()


def _rehearse(session: Session, limits: list[int]) -> _Rehearsal:
    n_ctx, size = session.target.context.n_ctx, session.model.vocab.size
    prompt = [size // 2 + i % min(CYCLE, size // 2) for i in range(min(PROMPT, n_ctx // 2))]
    rehearsal = _Rehearsal(limits, session.abort.set)
    enough = 2 + sum(n + 1 for _, n in rehearsal.plan)
    before, session.lengths = session.lengths, rehearsal
    try:
        generation = session.generate(
            Request(prompt, SamplerSettings(), enough, ignore_eos=True), Listener()
        )
    finally:
        session.lengths = before
        session.abort.clear()
        session.clear()
    rehearsal.wake = generation.times.drafter_prefill / len(prompt)
    return rehearsal


def _added(seen: Mapping[int, float], bound: int, rest: float) -> list[float]:
    """What drafting adds to a plain step, by attempted tokens."""
    return _between({0: 0.0} | {n: max(s - rest, 0.0) for n, s in seen.items()}, bound)
