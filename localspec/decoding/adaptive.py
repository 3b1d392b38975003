"""Adaptive drafts (``--n-max auto``, ``--tree auto``): how much to draft, chosen before every step.

A step that may draft n tokens emits E(n) = 1 + r_1 + r_1 r_2 + ... + r_1 ... r_n tokens, r_i being
how often the i-th is drafted and accepted where those before it were. It takes T(n): drafting,
and a target pass over what was drafted, whose cost by size is no straight line (ENGINE_NOTES
section 4). Drafters often draft fewer than they may, or none, so both are means over the lengths
that come. Chosen is the n with the greatest E(n) - rate * T(n), where rate is what the last choice
promised, E / T: repeated, this finds the greatest tokens per second over the whole run (Dinkelbach
1967), also where one of several sources drafts now and then only. n = 0, plain decoding, is one of
the choices.

The r_i are recent means by position, which holds for families whose first tokens do not depend on
how many more are drafted; all of ours are so (a DFlash block is always the trained one). With draft
trees n is the budget of nodes. The tree of a smaller budget is the best part of a larger one's, so
that a verified tree tells of every smaller budget what it would have emitted: E(n) = 1 + how many
of the n best nodes were accepted. Those means are kept by rung of a ladder of budgets.

A choice knows counts and times of earlier steps, never a token, so the output stays exact. All that
a run has taught is forgotten when the next one begins.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from localspec.records import Step

WINDOW = 32
"""Observations that a mean rests on. Text changes its nature within some tens of tokens; with fewer
observations than this most of a mean would be noise, and wrong lengths the rule."""
PRIOR, TRUST = 0.6, 2.0
"""The rate of acceptance expected where nothing is known, and for how many observations it counts.
Hopeful, but lightly: a hope that fails costs a step or two and is gone, a fear is never put to the
test. At a greater depth the estimate for the position before it counts so: a depth that was never
reached is expected to go on like the last one that was; of a tree, nodes of twice the rank to be
accepted half as often. And so much a mean still counts after a long time without a draft, so that a
few good probes outweigh it."""
PROBE_SHARE = 0.015
"""Of the tokens emitted, the share that probes of drafters that do not pay may cost, in all: each
has its part of it, or the one whose probes are cheap would leave nothing for the others. Where
waking a drafter alone costs more for every token than that, there are no further probes of it."""
STANDBY_SHARE, STANDBY_MOST = 0.02, 0.5
"""Being ready to draft costs time also where nothing is drafted: the states of a recurrent memory
that are kept for rollback, the hidden states that a drafter takes in. Where that is more than this
share of a plain step, a run in which drafts do not pay goes on without drafter for good, in a plain
context, once so much of a token's time was spent on standing by since a draft that paid."""
PROBE_START, PROBE_MOST = 1.0, 2.0
"""Tokens that a drafter's probes may cost at the start of a run, when knowing is worth most, and
the most that can be saved up for them, or a long text would end in a row of them."""
LEVEL_WINDOW, ENTRY_WINDOW = 64, 32
"""Steps over which a cost table follows a change that all sizes share (depth, load, clock), and one
of a single size. The first is the slower, once it is settled: a size that is used all the time must
not pass off its own change as everybody's."""
RETHINK = 4
"""Steps without a draft after which what they taught is taken in and the choice made anew: that is
little, and takes some 100 us where the model has emptied the caches."""
EVERY_LENGTH = 8
"""Longer drafts are chosen only where the target's batch, one token more, is a multiple of 4: there
kernels have their steps, and measuring every size would take long."""


def lengths_up_to(bound: int) -> list[int]:
    """The draft lengths that are measured and chosen from, besides 0."""
    return [n for n in range(1, bound + 1) if n <= EVERY_LENGTH or (n + 1) % 4 == 0]


def budgets_up_to(bound: int) -> list[int]:
    """The same for the nodes of a tree: batches of 2, 3, 4, 6, 8, 12, 16, 24, ... and ``bound``."""
    found, batch = [], 2
    while batch <= bound:
        found += [n - 1 for n in (batch, batch + batch // 2) if n <= bound]
        batch *= 2
    return sorted({*found, bound})


@dataclass(frozen=True, slots=True)
class StepCosts:
    """What steps take, in seconds, as measured before the first run.

    ``verify[n]``: the target's pass over n drafted tokens and the one before them. ``rest``: all
    else of a plain step. ``draft[source][i]``: what drafting adds to that when i tokens are
    attempted; entry 0 is 0. ``wake[source]``: what each token adds that the source missed while it
    was not asked, and has to take in before it drafts again. ``tree``: the last source drafts
    trees, and its sizes are nodes. ``standby``: what a step without a draft takes longer than one
    of a session that could not draft.
    """

    verify: tuple[float, ...]
    rest: float
    draft: tuple[tuple[float, ...], ...]
    wake: tuple[float, ...]
    tree: bool = False
    standby: float = 0.0

    @property
    def worth_leaving(self) -> bool:
        """Standing by costs so much that plain decoding is worth a context of its own."""
        return self.standby > STANDBY_SHARE * (self.verify[0] + self.rest)

    def sizes(self, source: int) -> list[int]:
        """What may be drafted by it, besides nothing."""
        bound = len(self.draft[source]) - 1
        tree = self.tree and source == len(self.draft) - 1
        return budgets_up_to(bound) if tree else lengths_up_to(bound)

    def describe(self) -> dict[str, str]:
        """For the result file: milliseconds by size ("nodes:ms"), sources apart."""

        def line(seconds: Sequence[float], sizes: Sequence[int]) -> str:
            return " ".join(f"{n}:{1e3 * seconds[n]:.3g}" for n in (0, *sizes))

        sources = range(len(self.draft))
        every = sorted({n for i in sources for n in self.sizes(i)})
        return {
            "auto_verify_ms": line(self.verify, every),
            "auto_draft_ms": " | ".join(line(self.draft[i], self.sizes(i)) for i in sources),
            "auto_wake_ms": " | ".join(f"{1e3 * w:.3g}" for w in self.wake),
            "auto_standby_ms": f"{1e3 * self.standby:.3g}",
        }


class CostTable:
    """Seconds by size, ``seconds[i] * level``, corrected by what steps really take."""

    __slots__ = ("_base", "_seen", "level", "seconds")

    def __init__(self, base: Sequence[float]) -> None:
        self._base = [max(x, 1e-7) for x in base]
        self.reset()

    def reset(self) -> None:
        self.seconds = self._base.copy()
        self.level = 1.0
        self._seen = 0

    def of(self, i: int) -> float:
        return self.seconds[i] * self.level

    def see(self, i: int, seconds: float, steps: int = 1) -> None:
        """``steps`` of size ``i`` took so long each. Cut at twice and half of what was expected,
        and for the entry at a quarter, since a single step may have been disturbed."""
        ratio = seconds / (self.seconds[i] * self.level)
        self._seen += steps
        share = steps / min(self._seen + 1, LEVEL_WINDOW)
        self.level *= 1 + share * (min(max(ratio, 0.5), 2.0) - 1)
        self.seconds[i] *= 1 + steps * (min(max(ratio, 0.75), 1.25) - 1) / ENTRY_WINDOW


class Rates:
    """How often (or how many times a step) something was so, by position from 1 on: means over the
    last observations."""

    __slots__ = ("counted", "mean")

    def __init__(self, positions: int) -> None:
        self.mean = [0.0] * (positions + 1)
        self.counted = [0.0] * (positions + 1)

    def see(self, i: int, hit: float) -> None:
        n = self.counted[i]
        if n < WINDOW:
            self.counted[i] = n = n + 1
        self.mean[i] += (hit - self.mean[i]) / n

    def fade(self, steps: int) -> None:
        """After ``steps`` without an observation the means stay, but count for less."""
        keep = (1 - 1 / WINDOW) ** steps
        self.counted = [max(n * keep, min(n, TRUST)) for n in self.counted]

    def forget(self, first: int) -> None:
        """A step that could not reach the positions from ``first`` on: what they are expected to be
        goes back, little by little, to the position before them. Else bad luck at a depth, or text
        of long ago, would keep drafts from ever being that long again."""
        for i in range(first, len(self.counted)):
            self.counted[i] *= 1 - 1 / WINDOW


class Choice(NamedTuple):
    """A draft size with the tokens and seconds of a step that may draft so much; ``value`` is what
    the choice is by: tokens, less what the time is worth."""

    size: int
    value: float
    tokens: float
    seconds: float


class Source:
    """What is known of one drafter: its cost, how long it was left out, what probes may cost."""

    __slots__ = ("asked", "cost", "credit", "idle", "missed", "sizes", "wake")

    def __init__(self, costs: StepCosts, source: int) -> None:
        self.sizes = costs.sizes(source)
        self.cost = CostTable(costs.draft[source])
        self.wake = costs.wake[source]
        self.missed = 0
        self.idle = 0
        self.asked = 0
        self.credit = PROBE_START

    def skip(self, tokens: int, steps: int = 1) -> None:
        """It was not asked in steps that emitted ``tokens`` in all."""
        self.missed += tokens
        self.idle += steps

    def earn(self, tokens: float) -> None:
        """What its probes may cost has grown, or by a bad one shrunk."""
        self.credit = min(self.credit + tokens, PROBE_MOST)

    def see(self, drafted: int, accepted: Sequence[int]) -> None:
        """It was asked for up to ``asked`` and drafted so many, of which those of the ranks in
        ``accepted`` were (of a chain the first is 0, and so on)."""
        raise NotImplementedError

    def best(
        self, rate: float, verify: CostTable, rest: float, tokens: float, seconds: float
    ) -> Choice:
        """The best size of at least 1. ``tokens`` and ``seconds``: of a step in which it drafts
        nothing; ``rest``: all but drafting and verification."""
        raise NotImplementedError

    def attempted(self, drafted: int) -> int:
        """How many it has worked on."""
        raise NotImplementedError


class Chain(Source):
    __slots__ = ("accepted", "allowed", "drafted")

    def __init__(self, costs: StepCosts, source: int) -> None:
        super().__init__(costs, source)
        bound = self.sizes[-1]
        self.allowed = [i in self.sizes for i in range(bound + 1)]
        self.accepted = Rates(bound)  # accepted, where those before were and one more was allowed
        self.accepted.mean[1], self.accepted.counted[1] = PRIOR, TRUST
        self.drafted = Rates(bound)  # drafted, where those before were and one more was allowed

    def see(self, drafted: int, accepted: Sequence[int]) -> None:
        asked, right = self.asked, len(accepted)
        for i in range(1, drafted + 1):
            self.drafted.see(i, 1)
        if drafted < asked:
            self.drafted.see(drafted + 1, 0)
        if not drafted:
            self.idle += 1
            return
        if self.idle:
            self.accepted.fade(self.idle)
            self.idle = 0
        for i in range(1, right + 1):
            self.accepted.see(i, 1)
        if right < asked:
            self.accepted.see(right + 1, 0)
        self.accepted.forget(asked + 1)

    def attempted(self, drafted: int) -> int:
        """A drafter that stops early has worked on one token more than it drafted."""
        return min(drafted + 1, self.asked)

    def best(
        self, rate: float, verify: CostTable, rest: float, tokens: float, seconds: float
    ) -> Choice:
        passed, level = verify.seconds, verify.level
        cost, cost_level = self.cost.seconds, self.cost.level
        hit, hits = self.accepted.mean, self.accepted.counted
        got, gots = self.drafted.mean, self.drafted.counted
        wake = rate * self.wake * self.missed
        accepted = drafted = 1.0  # estimates of the rates at a position
        reached = emitted = 1.0  # where it drafts at all
        length = 1.0  # how often it drafts at least so many, where it is asked for more
        passes = extra = 0.0
        best, found = float("-inf"), (1, tokens, seconds)
        for i in range(1, len(self.allowed)):
            if i == 1:
                accepted = hit[1]
            else:
                accepted = (hits[i] * hit[i] + TRUST * accepted) / (hits[i] + TRUST)
            drafted = (gots[i] * got[i] + TRUST * drafted) / (gots[i] + TRUST)
            extra += length * (cost[i] - cost[i - 1])
            length *= drafted
            passes += length * (passed[i] - passed[i - 1])
            reached *= accepted
            emitted += reached
            if i == 1:
                ever = drafted
                drafted = 1.0  # whether it drafts at all says little of how far
            if self.allowed[i]:
                e = (1 - ever) * tokens + ever * emitted
                t = (1 - ever) * seconds + ever * (passed[0] * level + rest)
                t += passes * level + extra * cost_level
                value = e - rate * t - wake
                if value > best:
                    best, found = value, (i, e, t)
        return Choice(found[0], best, found[1], found[2])


class Tree(Source):
    """Nodes by rank, the likeliest 0. Its drafts nearly always fill their budget, so that only what
    was accepted has to be learnt: how many nodes a step on each rung of the ladder."""

    __slots__ = ("accepted", "priors")

    def __init__(self, costs: StepCosts, source: int) -> None:
        super().__init__(costs, source)
        self.accepted = Rates(len(self.sizes))
        self.accepted.mean[1], self.accepted.counted[1] = PRIOR, TRUST
        # what a rung's nodes are expected to give, for each token that those of the rung below give
        below = [0, *self.sizes]
        width = [high - low for low, high in zip(below, self.sizes, strict=False)]
        middle = [(low + 1 + high) / 2 for low, high in zip(below, self.sizes, strict=False)]
        self.priors = [PRIOR] + [
            width[k] / width[k - 1] * middle[k - 1] / middle[k] for k in range(1, len(width))
        ]

    def see(self, drafted: int, accepted: Sequence[int]) -> None:
        if not drafted:
            self.idle += 1
            return
        if self.idle:
            self.accepted.fade(self.idle)
            self.idle = 0
        verified = bisect_right(self.sizes, self.asked)
        found = [0] * (len(self.sizes) + 1)
        for rank in accepted:
            found[bisect_right(self.sizes, rank)] += 1
        for k in range(verified):
            self.accepted.see(k + 1, found[k])
        self.accepted.forget(verified + 1)

    def attempted(self, drafted: int) -> int:
        return self.asked

    def best(
        self, rate: float, verify: CostTable, rest: float, tokens: float, seconds: float
    ) -> Choice:
        hit, hits = self.accepted.mean, self.accepted.counted
        passed, level = verify.seconds, verify.level
        cost, cost_level = self.cost.seconds, self.cost.level
        wake = rate * self.wake * self.missed
        emitted, gain = 1.0, 1.0
        best, found = float("-inf"), (1, tokens, seconds)
        for k, n in enumerate(self.sizes):
            gain *= self.priors[k]
            gain = (hits[k + 1] * hit[k + 1] + TRUST * gain) / (hits[k + 1] + TRUST)
            emitted += gain
            t = passed[n] * level + rest + cost[n] * cost_level
            value = emitted - rate * t - wake
            if value > best:
                best, found = value, (n, emitted, t)
        return Choice(found[0], best, found[1], found[2])


class Adaptive:
    """One run after another: ``begin``, then per step ``limit`` before and ``observe`` after it.

    ``limits`` is written before each draft: the most tokens of each source (for one chain, the
    limit itself), of a tree the nodes.
    """

    def __init__(self, costs: StepCosts, limits: list[int] | None = None) -> None:
        self.costs = costs
        self._verify = CostTable(costs.verify)
        self.limits = limits if limits is not None else [0] * len(costs.draft)
        self.begin()

    def begin(self) -> None:
        """Forget the last run."""
        costs = self.costs
        self._verify.reset()
        self._rest = costs.rest
        last = len(costs.draft) - 1
        self._sources: list[Source] = [
            (Tree if costs.tree and i == last else Chain)(costs, i) for i in range(last + 1)
        ]
        self._rate = 1 / (self._verify.of(0) + self._rest)
        self._probing: Source | None = None
        self._undrafted = RETHINK
        self._silent = False
        self._idle_steps = self._idle_tokens = 0
        self._idle_verify = self._idle_rest = 0.0
        self._stood_by = 0.0
        self.gives_up = False

    def limit(self, most: int) -> int:
        """How far the draft of the step that comes may reach, of ``most`` tokens that may be; 0:
        not at all, and the drafter is not asked."""
        if self._undrafted >= RETHINK:
            self._choose()
            self._undrafted = 0
            self._silent = not any(self.limits)
        elif self._silent:
            return 0
        farthest = 0
        for source, n in zip(self._sources, self.limits, strict=True):
            reach = most if isinstance(source, Tree) and n else min(n, most)
            source.asked = n if isinstance(source, Tree) else reach
            farthest = max(farthest, reach)
        return farthest

    def _choose(self) -> None:
        if self._idle_steps:
            self._take_in_idle_steps()
        rate = self._rate
        tokens, seconds = 1.0, self._verify.of(0) + self._rest  # of a plain step
        self._probing = None
        # what is gained behind a source counts wherever that source drafts nothing
        for i in range(len(self._sources) - 1, -1, -1):
            source = self._sources[i]
            best = source.best(rate, self._verify, self._rest, tokens, seconds)
            loss = tokens - rate * seconds - best.value
            self.limits[i] = best.size
            if loss < 0:
                tokens, seconds = best.tokens, best.seconds
            elif loss <= source.credit and self._probing is None:
                self._probing = source
            else:
                self.limits[i] = 0
        self._rate = tokens / seconds

    def observe(self, step: Step, accepted: Sequence[int]) -> None:
        """Learn from the step that ``limit`` was asked for, and from the ranks of the drafted nodes
        that were accepted in it."""
        rest = step.t_step - step.t_verify - step.t_accept
        if self._silent:
            self._idle_steps += 1
            self._idle_tokens += step.tokens
            self._idle_verify += step.t_verify
            self._idle_rest += rest
            self._undrafted += 1
            return
        drafted, tokens = step.nodes, step.tokens
        asked: Source | None = None
        for i, source in enumerate(self._sources):
            if not source.asked or (drafted and i > step.source):
                source.skip(tokens)
                continue
            asked = source
            source.see(drafted if i == step.source else 0, accepted)
        expected = self._verify.of(drafted) + self._rest
        self._verify.see(drafted, step.t_verify)
        if asked is None:
            self._rest += (min(rest, 2 * self._rest) - self._rest) / ENTRY_WINDOW
        else:
            expected += self._see_draft(asked, drafted, rest - self._rest)
        for source in self._sources:
            earned = PROBE_SHARE * tokens / len(self._sources)
            if source is asked is self._probing:
                earned += tokens - self._rate * expected
            source.earn(earned)
        if drafted and not self._probing:
            self._stood_by = 0.0
        self._undrafted = RETHINK if drafted or self._probing else self._undrafted + 1

    def _take_in_idle_steps(self) -> None:
        """Those in which no source was asked, since the last choice."""
        steps, tokens = self._idle_steps, self._idle_tokens
        self._verify.see(0, self._idle_verify / steps, steps)
        rest = min(self._idle_rest / steps, 2 * self._rest)
        self._rest += steps * (rest - self._rest) / ENTRY_WINDOW
        for source in self._sources:
            source.skip(tokens, steps)
            source.earn(PROBE_SHARE * tokens / len(self._sources))
        self._idle_steps = self._idle_tokens = 0
        self._idle_verify = self._idle_rest = 0.0
        self._stood_by += steps * self.costs.standby
        plain = self._verify.of(0) + self._rest
        self.gives_up = self.costs.worth_leaving and self._stood_by > STANDBY_MOST * plain

    def _see_draft(self, source: Source, drafted: int, seconds: float) -> float:
        """Drafting added ``seconds`` to the step; returns what it was expected to add."""
        i, missed = source.attempted(drafted), source.missed
        source.missed = 0
        drafting, waking = source.cost.of(i), source.wake * missed
        if waking > drafting:  # then it can be told apart
            source.wake += (max(seconds - drafting, 0.0) / missed - source.wake) / TRUST
        else:
            source.cost.see(i, seconds - waking)
        return drafting + waking
