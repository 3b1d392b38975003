"""What the steps of a session cost, measured once before its first run, for adaptive drafts.

The target's pass is timed by size, on memory that is empty but for the batch. All else (drafting,
rollback, the loop itself) is taken from the steps of a short generation whose draft lengths are
dictated. On the demo model this takes about 0.7 s; runs correct what they find different.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from statistics import median
from time import perf_counter

import numpy as np

from localspec.decoding.adaptive import Adaptive, StepCosts, budgets_up_to, lengths_up_to
from localspec.decoding.loop import Lengths, Listener, Request, Session
from localspec.decoding.target import Target
from localspec.drafters.base import Draft, Limited
from localspec.errors import EngineFailed, UsageError
from localspec.fit import CONTEXT_STEP
from localspec.records import DepthCosts, SamplerSettings, Step

SECONDS, ROUNDS = 0.4, 2
"""The target's pass is timed for so long, and at the least in so many rounds."""
SHORT = 4
"""Drafts up to here are timed in every round, longer ones after the first ``ROUNDS`` in every
third: the choice lies mostly among the short, and the long take most of the time."""
WORTH = 8.0
"""Trees are measured, and chosen, up to where a pass over one takes as long as so many plain ones:
none is accepted that deep on average, and on a CPU the time that the larger ones take is long."""
FEWEST_ROUNDS, MOST_ROUNDS, SECONDS_AT_DEPTH = 3, 15, 1.5
"""How often and how long each depth of the context is measured for the cost model."""
PROMPT, CYCLE = 32, 5
"""The dictated generation goes on from so many tokens, a repetition of a few: there an n-gram
drafter finds a match, and a drafter that stops where it is unsure drafts on."""


def adaptive_lengths(
    session: Session, plain_target: Callable[[int], Target] | None = None
) -> Adaptive:
    """``--n-max auto`` or ``--tree auto`` for a session that has been warmed up.

    ``plain_target`` makes a target of so many positions that keeps nothing for drafts. Where that
    is noticeably faster, the session gets one to which its runs may move.
    """
    drafter = session.drafter
    limits = drafter.limits if isinstance(drafter, Limited) else [drafter.needs.outputs - 1]
    found = measure(session, limits, plain_target)
    if plain_target is not None and found.worth_leaving:
        with suppress(EngineFailed):  # no memory left for it
            session.plain = plain_target(session.target.n_ctx)
    return Adaptive(found, limits)


def measure(
    session: Session, limits: list[int], plain_target: Callable[[int], Target] | None = None
) -> StepCosts:
    """``limits`` holds the most that each source of the session's drafter drafts, and is where the
    drafter reads what it may draft, if it does. The session must have been warmed up; it is
    cleared."""
    session.clear()
    bounds, tree = limits.copy(), session.drafter.needs.sequences > 1
    verify = _verify_costs(session, bounds)
    if tree:
        bounds[-1] = min(bounds[-1], len(verify) - 1)
    prompt = _cycle(session, min(PROMPT, session.target.n_ctx // 2))
    rehearsal = _rehearse(session, limits, bounds, prompt)
    rest = min(rehearsal.plain, default=verify[0] / 100)
    draft = [_added(seen, n, rest) for seen, n in zip(rehearsal.seen, bounds, strict=True)]
    # the prompt was taken in by all sources together; only the last can have a memory of its own
    wake = [0.0] * (len(bounds) - 1) + [rehearsal.wake]
    standby = 0.0
    if plain_target is not None:
        standby = rehearsal.idle + _kept_ready(session, plain_target(CONTEXT_STEP))
    return StepCosts(tuple(verify), rest, tuple(map(tuple, draft)), tuple(wake), tree, standby)


def _kept_ready(session: Session, plain: Target) -> float:
    """Seconds that a target pass over one token takes longer in the session than in ``plain``: the
    median of pairs, made by turns. ``plain`` is closed."""
    targets, draft = (session.target, plain), Draft(0)
    longer: list[float] = []
    began = perf_counter()
    try:
        while len(longer) <= ROUNDS or perf_counter() - began < SECONDS / 2:
            took = [0.0, 0.0]
            for i in (0, 1) if len(longer) % 2 else (1, 0):
                start = perf_counter()
                targets[i].verify(0, draft, 0)
                took[i] = perf_counter() - start
                targets[i].context.clear()
            longer.append(took[0] - took[1])
    finally:
        plain.close()
    session.clear()
    return max(median(longer[1:]), 0.0)  # the first prepares both


def _verify_costs(session: Session, bounds: Sequence[int]) -> list[float]:
    """Seconds of a target pass by drafted tokens: the fastest of several rounds, up and down. Ends
    early where larger trees are not worth it."""
    target, draft = session.target, Draft(max(bounds))
    every = {0, *lengths_up_to(max(bounds))}
    if session.drafter.needs.sequences > 1:
        every = {0, *budgets_up_to(bounds[-1])}.union(*map(lengths_up_to, bounds[:-1]))
        draft.chain = False
        draft.parents[1:] = np.arange(max(bounds) - 1) // 2
    best, reach = dict.fromkeys(sorted(every), float("inf")), max(bounds)
    began, done = perf_counter(), 0
    while done < ROUNDS or perf_counter() - began < SECONDS:
        sizes = [n for n in best if n <= SHORT or done < ROUNDS or not done % 3]
        for n in sizes if done % 2 == 0 else reversed(sizes):
            draft.n = n
            start = perf_counter()
            target.verify(0, draft, 0)
            best[n] = min(best[n], perf_counter() - start)
            target.context.clear()
            if not draft.chain and n > max([1, *bounds[:-1]]) and best[n] > WORTH * best[0]:
                best = {size: seconds for size, seconds in best.items() if size < n}
                reach = max(*best, *bounds[:-1])
                break
        done += 1
    session.clear()
    # a batch is never slower than its tokens one by one: what seems so was disturbed
    best = {n: min(seconds, (n + 1) * best[0]) for n, seconds in best.items()}
    return _between(best, reach)


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


class _Rehearsal(Lengths):
    """Dictates how far which source drafts, step by step, and keeps what the steps took, less
    verification and acceptance; at the end of its plan it ends the generation as a person would."""

    def __init__(
        self,
        limits: list[int],
        plan: Sequence[tuple[int, int]],
        tree: bool,
        stop: Callable[[], None],
    ) -> None:
        self.gives_up = False
        self.plain: list[float] = []
        self.idle = 0.0
        self.seen: list[dict[int, float]] = [{} for _ in limits]
        self.wake = 0.0
        self.plan, self._tree = plan, tree
        self._limits, self._stop = limits, stop
        self._step = -1

    def begin(self) -> None:
        self._step = -1

    def limit(self, most: int) -> int:
        self._step += 1
        source, n = self.plan[self._step]
        self._limits[:] = [0] * len(self._limits)
        tree = self._draws_tree(source)
        self._limits[source] = n if tree else min(n, most)
        return most if tree and n else min(n, most)

    def _draws_tree(self, source: int) -> bool:
        return self._tree and source == len(self._limits) - 1

    def observe(self, step: Step, accepted: Sequence[int]) -> None:
        source, _ = self.plan[self._step]
        n, seen = self._limits[source], self.seen[source]
        seconds = step.t_step - step.t_verify - step.t_accept
        if n < 1:
            self.idle = min(self.idle, step.t_draft) if self.plain else step.t_draft
            self.plain.append(seconds)
        else:
            attempted = n if self._draws_tree(source) else min(step.nodes + 1, n)
            seen[attempted] = min(seconds, seen.get(attempted, seconds))
        if self._step == len(self.plan) - 1:
            self._stop()


def costs(session: Session, depths: Sequence[int]) -> tuple[DepthCosts, ...]:
    """For the cost model: what every draft length of the session's drafter costs at these numbers
    of tokens in the context, each measured (drafting: some lengths, with straight lines between
    them). The session is cleared.

    Raises ``UsageError`` for a drafter of trees or of several sources.
    """
    needs = session.drafter.needs
    limits = session.drafter.limits if isinstance(session.drafter, Limited) else [needs.outputs - 1]
    if needs.sequences > 1 or len(limits) > 1:
        raise UsageError("The cost model is for one drafter of chains.")
    bounds = limits.copy()
    found = []
    for depth in depths:
        verify = _verify_at(session, depth)
        rehearsal = _rehearse(session, limits, bounds, _cycle(session, depth))
        rest = min(rehearsal.plain, default=0.0)
        draft = _added(rehearsal.seen[0], bounds[0], rest)
        found.append(DepthCosts(depth, tuple(verify), tuple(draft)))
    return tuple(found)


def _verify_at(session: Session, depth: int) -> list[float]:
    """Seconds of a target pass by drafted tokens: the fastest of several rounds, up and down, since
    what disturbs a pass only makes it longer. What was verified is taken back; a recurrent memory
    goes on from there instead."""
    target, context = session.target, session.target.context
    largest = session.drafter.needs.outputs
    draft = Draft(largest)
    draft.tokens[:] = prompt = _cycle(session, largest)
    text = _cycle(session, depth)
    seen: list[list[float]] = [[] for _ in range(largest)]
    position = target.n_ctx  # nothing is there yet
    began, done = perf_counter(), 0
    while done < FEWEST_ROUNDS or (
        done < MOST_ROUNDS and perf_counter() - began < SECONDS_AT_DEPTH
    ):
        for n in range(largest) if done % 2 == 0 else reversed(range(largest)):
            if position + n >= target.n_ctx:
                session.clear()
                target.prefill(text, 0, lambda chunk, position: None)
                context.synchronize()
                position = depth
            draft.n = n
            start = perf_counter()
            target.verify(prompt[0], draft, position)
            context.synchronize()
            seen[n].append(perf_counter() - start)
            if session.model.can_roll_back:
                context.truncate(depth)
            else:
                position += n + 1
        done += 1
    session.clear()
    return [min(times) for times in seen]


def _cycle(session: Session, length: int) -> list[int]:
    size = session.model.vocab.size
    return [size // 2 + i % min(CYCLE, size // 2) for i in range(length)]


def _rehearse(
    session: Session, limits: list[int], bounds: Sequence[int], prompt: list[int]
) -> _Rehearsal:
    """``bounds``: the most that each source is to draft; ``limits`` are as they were afterwards."""
    tree = session.drafter.needs.sequences > 1
    plan = []
    for source, bound in enumerate(bounds):
        half, two = (bound + 1) // 2, min(2, bound)
        sizes = [half, 1, bound, 0, two, 1, bound, 0, 1, half]
        if tree and source == len(bounds) - 1:  # how deep it works is no straight line
            every_other = budgets_up_to(bound)[::-2]
            sizes = [*every_other, 0, *reversed(every_other)]
        plan += [(source, n) for n in (0, *sizes, 0)]
    rehearsal = _Rehearsal(limits, plan, tree, session.abort.set)
    most = limits.copy()
    enough = 2 + sum(n + 1 for _, n in plan)
    before, session.lengths = session.lengths, rehearsal
    try:
        generation = session.generate(
            Request(prompt, SamplerSettings(), enough, ignore_eos=True), Listener()
        )
    finally:
        session.lengths, limits[:] = before, most
        session.abort.clear()
        session.clear()
    rehearsal.wake = generation.times.drafter_prefill / len(prompt)
    return rehearsal


def _added(seen: Mapping[int, float], bound: int, rest: float) -> list[float]:
    """What drafting adds to a plain step, by attempted tokens. Disturbances only add: to draft more
    is never cheaper, and no token dearer than those before it."""
    known, sizes = {0: 0.0}, sorted(seen)
    for i, n in enumerate(sizes):
        fewest = min(seen[k] for k in sizes[i:]) - rest
        each = min((known[k] / k for k in sizes[:i]), default=float("inf"))
        known[n] = max(min(fewest, n * each), 0.0)
    return _between(known, bound)
