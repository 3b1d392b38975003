"""Speculation does not change what the target would say: the joint distribution of four tokens.

Two ways to it. *Every* value of the random numbers is gone through: the numbers stand for intervals
that halve wherever the code compares them, so a few hundred runs give the whole distribution of
what a session emits, to the last digit, and that of plain decoding is known from the target's own
rows. Every family is looked at so, and every fault that is planted must show. And the random
numbers themselves are put to the test by some thousand real generations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drafters.reading import Lab, opened
from families import MIXED, NAMES, Case, every_family
from scipy.stats import chisquare

import localspec.decoding.acceptance as acceptance
import localspec.decoding.loop as loop
import localspec.decoding.sampling as sampling
from localspec.decoding.adaptive import Adaptive, StepCosts
from localspec.decoding.loop import Listener, Request, Session
from localspec.decoding.sampling import ACCEPT, DRAFT, Distribution, Sampler
from localspec.decoding.target import Target
from localspec.drafters.base import Draft
from localspec.drafters.draft_model import DraftModelDrafter
from localspec.drafters.mixed import MixedDrafter
from localspec.records import DrafterSettings, Generation, SamplerSettings, Step

PROMPT = [0, 3, 10, 6, 3, 3, 4, 4]
TOKENS = 4
SAMPLER = SamplerSettings(
    temperature=1.1,
    top_k=3,
    top_p=0.98,
    min_p=0.01,
    repeat_penalty=1.4,
    presence_penalty=0.3,
    repeat_last_n=8,
)
NARROW = replace(SAMPLER, top_k=2)
"""Two tokens to choose from: many faults show there already, in fewer runs."""
Tokens = tuple[int, ...]
Joint = dict[Tokens, float]
EXACT, ROUNDED, FAULTY = 1e-12, 2e-4, 2e-3
"""How far a distribution is from the target's: by an exact rule at the most, in trees with the
roundings of another order of cells, and by a faulty rule at the least."""


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    return every_family(tmp_path_factory.mktemp("families"))


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with opened() as made:
        yield made


def run(session: Session, sampler: SamplerSettings = SAMPLER) -> Generation:
    request = Request(PROMPT, sampler, TOKENS, ignore_eos=True, record=True)
    return session.generate(request, Listener())


# ---- every value of the random numbers --------------------------------------------------------


@dataclass(frozen=True)
class Number:
    """``factor`` times a random number of which only an interval is known."""

    choices: Choices
    key: tuple[int, ...]
    factor: float = 1.0

    def __mul__(self, factor: float) -> Number:
        return replace(self, factor=self.factor * float(factor))

    def __lt__(self, other: float | Number) -> bool:
        if isinstance(other, Number):  # numpy.searchsorted compares what it looks for with itself
            assert other is self
            return False
        if not self.factor:
            return other > 0
        return self.choices.below(self.key, float(other) / self.factor)

    def __gt__(self, other: float) -> bool:
        return not self < other


class Choices:
    """Goes through all values of the random numbers, depth first. Whenever the code asks on which
    side of a value a number lies and both are possible, the run stands for one of them; the other
    gets a run of its own. A number asked for twice is the same number."""

    def __init__(self) -> None:
        self._taken: list[bool] = []
        self._at = 0
        self._between: dict[tuple[int, ...], tuple[float, float]] = {}

    def uniform(self, *key: int) -> Number:
        return Number(self, key)

    def below(self, key: tuple[int, ...], value: float) -> bool:
        low, high = self._between.get(key, (0.0, 1.0))
        if value <= low + 1e-12:
            return False
        if value >= high - 1e-12:
            return True
        if self._at == len(self._taken):
            self._taken.append(True)
        side = self._taken[self._at]
        self._at += 1
        self._between[key] = (low, value) if side else (value, high)
        return side

    def runs(self, generate: Callable[[], Generation]) -> Iterator[tuple[float, Generation]]:
        """Every run that there can be, and its probability."""
        while True:
            self._at, self._between = 0, {}
            made = generate()
            yield float(np.prod([high - low for low, high in self._between.values()])), made
            while self._taken and not self._taken[-1]:
                self._taken.pop()
            if not self._taken:
                return
            self._taken[-1] = False


@dataclass(frozen=True)
class Emitted:
    """What a session emits, and how probable steps were in which a draft was accepted in whole, in
    part or not at all."""

    joint: Joint
    whole: float
    cut: float


def emitted(session: Session, sampler: SamplerSettings = SAMPLER) -> Emitted:
    joint: Counter[Tokens] = Counter()
    whole = cut = total = 0.0
    choices = Choices()
    with pytest.MonkeyPatch.context() as patch:
        for module in (sampling, acceptance):
            patch.setattr(module, "uniform", choices.uniform)
        for probability, made in choices.runs(lambda: run(session, sampler)):
            joint[made.tokens] += probability
            total += probability
            steps = [s for s in made.steps if s.drafted]
            whole += probability * any(s.accepted == s.drafted for s in steps)
            cut += probability * any(s.accepted < s.drafted for s in steps)
    assert total == pytest.approx(1.0)
    return Emitted(dict(joint), whole, cut)


def plain_decoding(session: Session, sampler: SamplerSettings = SAMPLER) -> Joint:
    """The probabilities of all texts under the target alone, by one-token decodes."""
    target, made = session.target, Sampler(sampler, len(PROMPT), session.model.vocab.eog)
    joint: Joint = {}

    def walk(text: Tokens, mass: float) -> None:
        if len(text) == TOKENS:
            joint[text] = mass
            return
        target.context.clear()
        tokens = [*PROMPT, *text]
        rows = target.prefill(PROMPT, 0, lambda chunk, position: None)
        for i, token in enumerate(text):
            rows = target.verify(token, Draft(0), len(PROMPT) + i)
        p = made.distribution(rows[0].copy(), tokens)
        for token, share in zip(p.ids.tolist(), p.p.tolist(), strict=True):
            walk((*text, token), mass * share)

    walk((), 1.0)
    session.clear()
    return joint


def difference(found: Joint, expected: Joint) -> float:
    """Total variation: the largest difference of the probabilities of any set of texts."""
    every = {*found, *expected}
    return sum(abs(found.get(t, 0.0) - expected.get(t, 0.0)) for t in every) / 2


@pytest.fixture(scope="module")
def expected(lab: Lab) -> Callable[..., Joint]:
    """Of a target and a sampler, once."""

    @cache
    def of(target: Path, sampler: SamplerSettings = SAMPLER) -> Joint:
        found = plain_decoding(lab.session(target, DrafterSettings()), sampler)
        assert sum(found.values()) == pytest.approx(1.0)
        return found

    return of


@pytest.mark.parametrize("name", [n for n in (*NAMES, *MIXED) if "hybrid" not in n])
def test_the_joint_distribution_is_the_targets(
    lab: Lab, cases: dict[str, Case], expected: Callable[..., Joint], name: str
) -> None:
    case = cases[name]
    found = emitted(lab.session(case.target, case.drafter))
    most = ROUNDED if case.drafter.tree else EXACT
    assert difference(found.joint, expected(case.target)) < most
    if case.drafter.n_max:
        assert found.whole > 0.01 and found.cut > 0.01, "drafts of all kinds, or nothing is shown"


@pytest.mark.parametrize("p_min", [0.3, 0.45])
@pytest.mark.parametrize("name", ["draft-model", "draft-model sampled"])
def test_stopping_by_p_min_does_not_move_it(
    lab: Lab, cases: dict[str, Case], expected: Callable[..., Joint], name: str, p_min: float
) -> None:
    case = cases[name]
    found = emitted(lab.session(case.target, replace(case.drafter, p_min=p_min)))
    assert difference(found.joint, expected(case.target)) < EXACT
    assert found.whole > 0.01 and found.cut > 0.01


class Stopwatch(Adaptive):
    """Adaptive lengths that see made-up times: runs must not differ but by random numbers."""

    def __init__(self) -> None:
        super().__init__(StepCosts((1.0, 1.35, 1.5, 1.6), 0.01, ((0.0, 0.1, 0.2, 0.3),), (0.0,)))
        self.chosen: set[tuple[int, int]] = set()

    def begin(self) -> None:
        super().begin()
        for source in self._sources:
            source.credit = 0.0  # no probing, which would draft whatever is known

    def limit(self, most: int) -> int:
        found = super().limit(most)
        self.chosen.add((most, found))
        return found

    def observe(self, step: Step, accepted: Sequence[int]) -> None:
        verify, draft = self.costs.verify[step.drafted], self.costs.draft[0][step.drafted]
        super().observe(
            step._replace(t_verify=verify, t_accept=0.0, t_step=verify + draft + 0.01), accepted
        )


def test_lengths_chosen_by_what_became_of_the_drafts_before_do_not_move_it(
    lab: Lab, cases: dict[str, Case], expected: Callable[..., Joint]
) -> None:
    case = cases["draft-model sampled"]
    session = lab.session(case.target, case.drafter)
    session.lengths = lengths = Stopwatch()
    assert difference(emitted(session).joint, expected(case.target)) < EXACT
    assert {(2, 2), (1, 0)} <= lengths.chosen, "after a rejection there is no draft"


# ---- planted faults: each must be seen --------------------------------------------------------


def no_residual(patch: pytest.MonkeyPatch) -> None:
    """After a rejection draw from p instead of max(0, p - q)."""
    patch.setattr(Distribution, "excess_over", lambda self, q: self.p)


def residual_not_normalised(patch: pytest.MonkeyPatch) -> None:
    """What is missing from its sum falls to its last token."""

    def draw(self: Distribution, u: Number) -> int:
        i = int(self.p.cumsum().searchsorted(u * 1.0, side="right"))
        return int(self.ids[min(i, len(self.ids) - 1)])

    patch.setattr(Distribution, "draw", draw)


def accepted_where_p_exceeds_q(patch: pytest.MonkeyPatch) -> None:
    """p > q instead of a chance of p / q."""
    accept_with(patch, 1.0)


def always_accepted(patch: pytest.MonkeyPatch) -> None:
    """Whatever the target gives it any chance."""
    accept_with(patch, 0.0)


def accept_with(patch: pytest.MonkeyPatch, number: float) -> None:
    honest = Choices.uniform

    def uniform(self: Choices, *key: int) -> Number | float:
        return number if key[-1] == ACCEPT else honest(self, *key)

    patch.setattr(Choices, "uniform", uniform)


def one_number_to_reject_and_to_replace(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(acceptance, "RESIDUAL", ACCEPT)


def one_number_to_draw_and_to_accept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(acceptance, "ACCEPT", DRAFT)


def drawn_at_another_temperature(patch: pytest.MonkeyPatch) -> None:
    """q is not what the token was drawn from."""
    draw = Sampler.draw_draft

    def hotter(self: Sampler, q: Distribution, index: int) -> int:
        p = np.sqrt(q.p)
        return draw(self, Distribution(q.ids, p / p.sum()), index)

    patch.setattr(Sampler, "draw_draft", hotter)


def softmax_for_a_greedy_draft(patch: pytest.MonkeyPatch) -> None:
    """q is the softmax although the token was the argmax."""
    patch.setattr(Sampler, "draw_draft", lambda self, q, index: int(q.ids[q.p.argmax()]))


def p_min_on_the_drawn_token(patch: pytest.MonkeyPatch) -> None:
    """A drawn token is withdrawn for its own small probability."""
    honest = DraftModelDrafter.draft

    def withdraw(self: DraftModelDrafter, tokens: list[int], limit: int) -> Draft:
        draft = honest(self, tokens, limit)
        for i in range(draft.n):
            assert draft.q is not None
            if draft.q[i].probability(int(draft.tokens[i])) < 0.3:
                draft.n = i
                break
        return draft

    patch.setattr(DraftModelDrafter, "draft", withdraw)


def bonus_from_the_wrong_row(patch: pytest.MonkeyPatch) -> None:
    """The bonus token comes from the row before the last."""
    honest = Target.verify

    def shifted(self: Target, last: int, draft: Draft, position: int) -> Any:
        rows = honest(self, last, draft, position).copy()
        if draft.n:
            rows[draft.n] = rows[draft.n - 1]
        return rows

    patch.setattr(Target, "verify", shifted)


def penalties_by(
    patch: pytest.MonkeyPatch, window: Callable[[list[int], Draft, int], list[int]]
) -> None:
    """While drafts are accepted, penalties see ``window(tokens, draft, tokens before it)``."""
    honest_accept, honest_penalties = loop.accept, Sampler._with_penalties
    now: list[tuple[Draft, int]] = []

    def accept(draft: Draft, rows: Any, sampler: Sampler, tokens: list[int], *rest: Any) -> None:
        now.append((draft, len(tokens)))
        honest_accept(draft, rows, sampler, tokens, *rest)
        now.clear()

    def penalties(self: Sampler, row: Any, tokens: list[int]) -> Any:
        return honest_penalties(self, row, window(tokens, *now[0]) if now else tokens)

    patch.setattr(loop, "accept", accept)
    patch.setattr(Sampler, "_with_penalties", penalties)


def stale_penalties(patch: pytest.MonkeyPatch) -> None:
    """Penalties at a drafted position do not see the tokens drafted before it."""
    penalties_by(patch, lambda tokens, draft, committed: tokens[:committed])


def penalties_of_every_branch(patch: pytest.MonkeyPatch) -> None:
    """Penalties at a node see all of the tree."""
    penalties_by(
        patch,
        lambda tokens, draft, committed: [*draft.tokens[: draft.n].tolist(), *tokens[-2:]],
    )


def into_the_wrong_child(patch: pytest.MonkeyPatch) -> None:
    """The token was drafted, but its sibling's rows are read on from there."""
    honest = Draft.child

    def sibling(self: Draft, node: int, token: int) -> int:
        found = honest(self, node, token)
        others = [i for i in range(self.n) if self.parents[i] == node and i != found]
        return others[0] if found >= 0 and others else found

    patch.setattr(Draft, "child", sibling)


def the_first_branch_is_kept(patch: pytest.MonkeyPatch) -> None:
    """Whichever won."""
    honest = Target.keep
    patch.setattr(Target, "keep", lambda self, draft, node, length: honest(self, draft, -1, length))


def a_replay_of_other_tokens(patch: pytest.MonkeyPatch) -> None:
    """Back to the checkpoint, but the tokens decoded from there are shifted by one."""
    honest = Target._back_to_checkpoint

    def shifted(self: Target, checkpoint: Any, draft: Draft, length: int) -> int:
        self._verify.tokens[:-1] = self._verify.tokens[1:].copy()
        return honest(self, checkpoint, draft, length)

    patch.setattr(Target, "_back_to_checkpoint", shifted)


def q_of_the_draft_before(patch: pytest.MonkeyPatch) -> None:
    """The n-gram drafter's tokens are accepted by the q of what the other drew before."""
    honest, honest_reset = MixedDrafter.draft, MixedDrafter.reset
    last: list[Any] = []

    def stale(self: MixedDrafter, tokens: list[int], limit: int) -> Draft:
        draft = honest(self, tokens, limit)
        if draft.q:
            last[:] = draft.q
        elif draft.n and last:
            draft.q = [last[0]] * draft.n
        return draft

    def reset(self: MixedDrafter) -> None:
        last.clear()
        honest_reset(self)

    patch.setattr(MixedDrafter, "draft", stale)
    patch.setattr(MixedDrafter, "reset", reset)


def asked_next_for_what_was_drawn(patch: pytest.MonkeyPatch) -> None:
    """Where the other drew an improbable token, the n-gram drafter drafts in its place."""

    def choose(self: MixedDrafter, tokens: list[int], limit: int) -> Draft:
        draft = self._behind.draft(tokens, limit)
        if draft.q and draft.q[0].probability(int(draft.tokens[0])) < 0.4:
            return self._first.draft(tokens, limit)
        return draft

    patch.setattr(MixedDrafter, "draft", choose)


Fault = Callable[[pytest.MonkeyPatch], None]
SAMPLED, PAIR, TREE, RECURRENT = (
    "draft-model sampled",
    "ngram+draft-model sampled",
    "draft-model tree",
    "draft-model recurrent",
)
FAULTS: list[tuple[Fault, str, SamplerSettings]] = [
    (no_residual, SAMPLED, NARROW),
    (residual_not_normalised, SAMPLED, NARROW),
    (accepted_where_p_exceeds_q, SAMPLED, NARROW),
    (always_accepted, SAMPLED, NARROW),
    (one_number_to_reject_and_to_replace, SAMPLED, SAMPLER),
    (one_number_to_draw_and_to_accept, SAMPLED, NARROW),
    (drawn_at_another_temperature, SAMPLED, NARROW),
    (softmax_for_a_greedy_draft, SAMPLED, NARROW),
    (p_min_on_the_drawn_token, SAMPLED, NARROW),
    (bonus_from_the_wrong_row, SAMPLED, NARROW),
    (stale_penalties, SAMPLED, SAMPLER),
    (no_residual, PAIR, NARROW),
    (q_of_the_draft_before, PAIR, SAMPLER),
    (asked_next_for_what_was_drawn, PAIR, NARROW),
    (bonus_from_the_wrong_row, "eagle3", SAMPLER),
    (stale_penalties, TREE, SAMPLER),
    (penalties_of_every_branch, TREE, NARROW),
    (into_the_wrong_child, TREE, NARROW),
    (the_first_branch_is_kept, TREE, NARROW),
    (the_first_branch_is_kept, "ngram+draft-model tree", NARROW),
    (into_the_wrong_child, "dflash tree", NARROW),
    (a_replay_of_other_tokens, RECURRENT, NARROW),
]


@pytest.mark.parametrize(("plant", "name", "sampler"), FAULTS)
def test_a_planted_fault_is_seen(
    lab: Lab,
    cases: dict[str, Case],
    expected: Callable[..., Joint],
    monkeypatch: pytest.MonkeyPatch,
    plant: Fault,
    name: str,
    sampler: SamplerSettings,
) -> None:
    case = cases[name]
    wanted = expected(case.target, sampler)
    session = lab.session(case.target, case.drafter)
    plant(monkeypatch)
    assert difference(emitted(session, sampler).joint, wanted) > FAULTY


# ---- the random numbers themselves ------------------------------------------------------------

DRAWS, LIMIT = 1500, 1e-3


def fit(session: Session, expected: Joint) -> float:
    """The chi-square p-value of so many generations; cells expected under 5 times are joined."""
    seen = Counter(run(session, replace(SAMPLER, seed=seed)).tokens for seed in range(DRAWS))
    observed, wanted = [0.0], [0.0]
    for text, probability in expected.items():
        if probability * DRAWS >= 5:
            observed.append(seen[text])
            wanted.append(probability * DRAWS)
    observed[0], wanted[0] = DRAWS - sum(observed), DRAWS - sum(wanted)
    assert len(wanted) > 30
    return float(chisquare(observed, wanted).pvalue)


def test_real_random_numbers_give_that_distribution(
    lab: Lab, cases: dict[str, Case], expected: Callable[..., Joint]
) -> None:
    case = cases[SAMPLED]
    assert fit(lab.session(case.target, case.drafter), expected(case.target)) > LIMIT


def test_random_numbers_that_know_of_each_other_do_not(
    lab: Lab,
    cases: dict[str, Case],
    expected: Callable[..., Joint],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One number for all purposes at an index."""
    case = cases[SAMPLED]
    wanted = expected(case.target)
    honest = sampling.uniform
    for module in (sampling, acceptance):
        monkeypatch.setattr(module, "uniform", lambda seed, index, purpose: honest(seed, index, 0))
    assert fit(lab.session(case.target, case.drafter), wanted) < LIMIT
