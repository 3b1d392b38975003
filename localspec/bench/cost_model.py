"""What a step costs and what it brings: decode tok/s of every draft length, predicted.

A step that may draft n tokens takes, on average over the drafts that come,

    T(n) = sum over lengths l of P(l | n) * (verify(1 + l) + draft(attempted)) + rest

where ``verify`` and ``draft`` are measured by the engine at several context depths and taken at the
runs' mean depth, and ``rest`` (sampling, the loop itself) is what the runs took beside them. A
drafter that stops early has attempted one token more than it drafted. The step emits

    E(n) = 1 + sum over i <= n of (steps whose first i drafts were all accepted) / steps

which are counts of the longest drafts measured: for n up to those nothing is assumed but that the
first tokens of a draft are the same however many are asked for (prefix-stable). Beyond, acceptance
and length are taken to go on like the last position that was seen often enough. tok/s = E / T.

``verify`` and ``draft`` are measured after the runs, when the machine's clock and other load may be
unlike theirs; so all of them are scaled by one factor, ``level``, which makes the plain pass what
it was in the baseline's runs. They are of made-up text, too. How good all that is, the error of
the prediction tells for each length that was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import sqrt
from typing import Any

from localspec.bench.analysis import Measured
from localspec.bench.plan import Base, Candidate, Plan
from localspec.bench.sessions import Sessions
from localspec.errors import EngineDied, LocalspecError
from localspec.records import Counts, DepthCosts

Json = dict[str, Any]
LONGEST = 16
"""Drafts up to here are predicted: verify batches of 1 to 17 tokens."""
ROOM = 64
"""Tokens that measuring needs behind the deepest point."""
NEAR = 32
"""Depths closer together than this are measured once."""
SEEN = 20
"""Steps from which a position's rate is carried on to the positions behind it."""
PREFIX_STABLE = frozenset({"ngram", "draft-model", "mtp", "eagle3", "dflash", "dspark"})
"""Families whose first tokens do not depend on how many more are drafted: those that draft one by
one, and the block drafters, whose block is always the trained one (decoding.adaptive rests on the
same). A measurement that says otherwise (``_agree``) overrules it."""
DISAGREE = 4.0
"""Standard errors between two lengths' rates from which they are not of one stable prefix."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """``accept_length``: tokens a step emits; times are of a step, in seconds. ``measured_tps``:
    what the runs of this draft length came to; None where it was not run."""

    n: int
    accept_length: float
    verify: float
    draft: float
    rest: float
    measured_tps: float | None = None

    @property
    def step(self) -> float:
        return self.verify + self.draft + self.rest

    @property
    def tps(self) -> float:
        return self.accept_length / self.step

    @property
    def error(self) -> float | None:
        """Predicted over measured, less 1; the baseline is right by the choice of the level."""
        return self.tps / self.measured_tps - 1 if self.measured_tps and self.n else None


@dataclass(frozen=True, slots=True)
class CostModel:
    """Of one drafter at one temperature on one base. ``depth``: tokens in the context, mean over
    the runs. ``costs`` are as measured, the predictions of ``level`` times that. ``plain``: a step
    of the baseline. ``lengths``: n = 1, 2, ...; n = 0 is ``plain``."""

    drafter: str
    method: str
    temperature: float
    depth: float
    costs: tuple[DepthCosts, ...]
    level: float
    plain: Prediction
    lengths: tuple[Prediction, ...]
    base: str = ""

    @property
    def best(self) -> Prediction:
        """Where the most tokens a second are predicted; the baseline counts too."""
        return max((self.plain, *self.lengths), key=lambda p: p.tps)

    def of(self, n: int) -> Prediction | None:
        """Of one draft length; 0 is the baseline."""
        return next((p for p in (self.plain, *self.lengths) if p.n == n), None)

    def needed(self, one: Prediction) -> float:
        """The accept length from which such drafts pay: their step in plain ones."""
        return one.step / self.plain.step

    def needed_rate(self, one: Prediction) -> float | None:
        """The same as the acceptance of every position, given those before it, of drafts that are
        always n long; None where even n + 1 tokens a step would not pay."""
        n = one.n
        verify, draft = _at(self.costs, self.depth, "verify"), _at(self.costs, self.depth, "draft")
        needed = (self.level * (verify[n] + draft[n]) + one.rest) / self.plain.step
        if needed > n + 1:
            return None
        low, high = 0.0, 1.0
        for _ in range(40):
            rate = (low + high) / 2
            enough = sum(rate**i for i in range(n + 1)) >= needed
            low, high = (low, rate) if enough else (rate, high)
        return high

    def record(self) -> Json:
        """For the result file."""
        return {
            "base": self.base,
            "drafter": self.drafter,
            "method": self.method,
            "temperature": self.temperature,
            "depth": self.depth,
            "level": self.level,
            "costs": [
                {
                    "depth": c.depth,
                    "verify_ms": [1e3 * s for s in c.verify],
                    "draft_ms": [1e3 * s for s in c.draft],
                }
                for c in self.costs
            ],
            "lengths": [self._line(p) for p in (self.plain, *self.lengths)],
            "best_n": self.best.n,
        }

    def _line(self, p: Prediction) -> Json:
        return {
            "n": p.n,
            "accept_length": p.accept_length,
            "predicted_tps": p.tps,
            "predicted_speedup": p.tps / self.plain.tps,
            "measured_tps": p.measured_tps,
            "error": p.error,
            "verify_ms": 1e3 * p.verify,
            "draft_ms": 1e3 * p.draft,
            "rest_ms": 1e3 * p.rest,
            "needed_accept_length": self.needed(p),
            "needed_rate": self.needed_rate(p) if p.n else None,
        }


def cost_models(
    plan: Plan, table: Mapping[str, Measured], sessions: Sessions
) -> tuple[list[CostModel], list[str]]:
    """Measure and predict every drafter of chains in the table; and why others are left out."""
    found: list[CostModel] = []
    left_out: list[str] = []
    costs: dict[str, tuple[DepthCosts, ...] | None] = {}  # by ``Candidate.who``
    depths = depths_of(plan)
    for members in _groups(table):
        drafter, who = members[0].candidate.drafter, members[0].candidate.who
        if drafter.method not in PREFIX_STABLE or drafter.tree:
            left_out.append(f"{who}: the cost model is for single drafters of chains.")
            continue
        if who not in costs:
            try:
                costs[who] = _measure(members[0].candidate, depths, sessions)
            except LocalspecError as error:
                if isinstance(error, EngineDied):
                    sessions.restart()
                left_out.append(f"{who}: its costs were not measured: {error.message}")
                costs[who] = None
        known = costs[who]
        baseline = table[plan.baseline_of(members[0].candidate).key]
        made = model(members, baseline, known, _depth(baseline)) if known else None
        if made is not None:
            found.append(made)
    return found, left_out


def depths_of(plan: Plan) -> tuple[int, ...]:
    """The shortest prompt, the end of the longest answer, and the middle between them."""
    lengths = [len(p.tokens) for p in plan.prompts]
    end = max(1, min(max(lengths) + plan.max_tokens, plan.context.n_ctx - ROOM))
    start = min(min(lengths), end)
    depths = [start]
    for depth in ((start + end) // 2, end):
        if depth - depths[-1] >= NEAR:
            depths.append(depth)
    return tuple(depths)


def _groups(table: Mapping[str, Measured]) -> list[list[Measured]]:
    """Candidates that differ in their draft length alone."""
    groups: dict[tuple[Base, str, float], list[Measured]] = {}
    for m in table.values():
        if not m.candidate.is_baseline:
            key = m.candidate.base, m.candidate.drafter.name, m.candidate.temperature
            groups.setdefault(key, []).append(m)
    return list(groups.values())


def _measure(
    candidate: Candidate, depths: Sequence[int], sessions: Sessions
) -> tuple[DepthCosts, ...]:
    drafter = replace(candidate.drafter, n_max=LONGEST, auto=False)
    session = f"costs of {candidate.who}"
    sessions.use(replace(candidate, session=session, drafter=drafter))
    return sessions.engine.costs(session, tuple(depths))


def _depth(measured: Measured) -> float:
    """Tokens in the context, on average over the steps of the runs."""
    f = measured.figures
    return (f.prompt_tokens + f.tokens / 2) / f.runs if f.runs else 0.0


def model(
    members: Sequence[Measured],
    baseline: Measured,
    costs: Sequence[DepthCosts],
    depth: float,
) -> CostModel | None:
    """From figures and costs; None where the runs made no steps. ``members``: one drafter at its
    draft lengths."""
    plain_tps = baseline.figures.decode_tps
    fixed = [m for m in members if m.figures.counts.steps and not m.candidate.drafter.auto]
    if not fixed or not plain_tps:
        return None
    verify, draft = _at(costs, depth, "verify"), _at(costs, depth, "draft")
    level = baseline.figures.times.verify / baseline.figures.counts.steps / verify[0]
    verify, draft = [level * s for s in verify], [level * s for s in draft]
    plain = Prediction(0, 1.0, verify[0], 0.0, _rest(baseline), plain_tps)
    longest = max(fixed, key=lambda m: m.candidate.drafter.n_max)
    stable = all(_agree(m.figures.counts, longest.figures.counts) for m in fixed)
    measured = {m.candidate.drafter.n_max: m for m in fixed}
    lengths = []
    for n in range(1, min(LONGEST, len(verify) - 1, len(draft) - 1) + 1):
        source = longest if stable else measured.get(n)
        if source is None:
            continue
        reach, shares = _carried_on(source.figures.counts, source.candidate.drafter.n_max, n)
        seen = measured.get(n)
        lengths.append(
            Prediction(
                n,
                1 + sum(reach),
                sum(share * verify[k] for k, share in enumerate(shares)),
                sum(share * draft[min(k + 1, n)] for k, share in enumerate(shares)),
                plain.rest + max(0.0, _accepting(source) - _accepting(baseline)),
                seen.figures.decode_tps if seen else None,
            )
        )
    if not lengths:
        return None
    drafter = members[0].candidate.drafter
    return CostModel(
        drafter.name,
        drafter.method,
        members[0].candidate.temperature,
        depth,
        tuple(costs),
        level,
        plain,
        tuple(lengths),
        members[0].candidate.base.name,
    )


def _rest(measured: Measured) -> float:
    """Seconds of a plain step that are not the target's pass."""
    t, steps = measured.figures.times, measured.figures.counts.steps
    return max(0.0, (t.step - t.verify) / steps)


def _accepting(measured: Measured) -> float:
    """Seconds of a step that go to sampling."""
    return measured.figures.times.accept / measured.figures.counts.steps


def _at(costs: Sequence[DepthCosts], depth: float, what: str) -> list[float]:
    """By drafted tokens, on straight lines between the depths measured."""
    below = max((c for c in costs if c.depth <= depth), key=lambda c: c.depth, default=costs[0])
    above = min((c for c in costs if c.depth >= depth), key=lambda c: c.depth, default=costs[-1])
    share = (depth - below.depth) / (above.depth - below.depth) if above.depth > below.depth else 0
    low, high = getattr(below, what), getattr(above, what)
    return [a + share * (b - a) for a, b in zip(low, high, strict=True)]


def _carried_on(counts: Counts, asked: int, n: int) -> tuple[list[float], list[float]]:
    """Of drafts of at most n tokens: how often the first i are all accepted, for i from 1 on, and
    how often a draft is k tokens long, for k from 0 to n, both in shares of the steps. The counts
    are of drafts of at most ``asked``."""
    reach = [r / counts.steps for r in counts.reached]
    at_least = [sum(counts.lengths[k:]) / counts.steps for k in range(len(counts.lengths))]
    reach += [0.0] * (asked - len(reach))
    at_least += [0.0] * (asked + 1 - len(at_least))
    if n > asked:
        known = [counts.steps, *counts.reached]
        often = max(
            (i for i in range(1, asked + 1) if i < len(known) and known[i - 1] >= SEEN), default=1
        )
        rate = reach[often - 1] / (reach[often - 2] if often > 1 else 1.0) if reach else 0.0
        # the first drop is of steps without any draft, which says nothing of how drafts end
        drops = [b / a for a, b in pairwise(at_least[1:]) if a > 0]
        going_on = drops[-1] if drops else 1.0
        for _ in range(n - asked):
            reach.append(reach[-1] * rate)
            at_least.append(at_least[-1] * going_on)
    reach, at_least = reach[:n], at_least[: n + 1]
    shares = [a - b for a, b in pairwise([*at_least, 0.0])]
    return reach, shares


def _agree(a: Counts, b: Counts) -> bool:
    """Are the conditional rates of two draft lengths those of one prefix, as far as counts say?"""
    for i, (n, m) in enumerate(zip(a.offered, b.offered, strict=False)):
        x = a.reached[i] if i < len(a.reached) else 0
        y = b.reached[i] if i < len(b.reached) else 0
        if not n or not m:
            continue
        pooled = (x + y) / (n + m)
        error = sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
        if error and abs(x / n - y / m) > DISAGREE * error:
            return False
    return True
