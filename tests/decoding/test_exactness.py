"""Speculation does not change what the target would say: the joint distribution of three tokens.

A tiny model (8 tokens) is small enough to enumerate: the exact probability of every sequence is
computed from plain one-token decodes, then compared with 20,000 speculative generations. Tokens 1
to 3 are used (token 0 comes from the prefill): they cross accept, reject and bonus. Five classic
bugs are planted, and each must be seen by the very same test.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from decoding.conftest import Sessions, run
from scipy.stats import chisquare
from scripted import ScriptedDrafter
from tiny_models import tiny_llama

import localspec.decoding.loop as loop_module
from localspec.decoding.adaptive import Adaptive, StepCosts
from localspec.decoding.loop import Session
from localspec.decoding.sampling import Distribution, Sampler
from localspec.drafters.base import Draft
from localspec.drafters.draft_model import DraftModelDrafter
from localspec.records import SamplerSettings

VOCAB, BOS = 8, 0
PROMPT = [BOS, 4, 5]
DRAWS = 20_000
LIMIT = 1e-3
SAMPLER = SamplerSettings(
    temperature=0.9,
    top_k=7,
    top_p=0.98,
    min_p=0.01,
    repeat_penalty=1.4,
    presence_penalty=0.3,
    repeat_last_n=8,
)
SPEAKS_ON = {0: -8.0, 1: -8.0}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("exact")
    target = tiny_llama(folder / "target.gguf", vocab=VOCAB, favour=SPEAKS_ON, n_layer=1)
    draft = tiny_llama(folder / "draft.gguf", vocab=VOCAB, favour=SPEAKS_ON, n_layer=1, noise=0.3)
    return target, draft


def enumerate_target(session: Session) -> dict[tuple[int, int, int], float]:
    """P(t1, t2, t3) under the target alone, t0 summed out."""
    target = session.target
    sampler = Sampler(SAMPLER, len(PROMPT))
    probabilities: Counter[tuple[int, int, int]] = Counter()

    def after(prefix: tuple[int, ...]) -> dict[int, float]:
        tokens = [*PROMPT, *prefix]
        target.context.clear()
        row = target.prefill(tokens, 0, lambda chunk, position: None)[0].copy()
        p = sampler.distribution(row, tokens)
        return {int(i): float(x) for i, x in zip(p.ids, p.p, strict=True)}

    def walk(prefix: tuple[int, ...], mass: float) -> None:
        if len(prefix) == 4:
            probabilities[(prefix[1], prefix[2], prefix[3])] += mass
            return
        for token, p in after(prefix).items():
            walk((*prefix, token), mass * p)

    walk((), 1.0)
    return dict(probabilities)


def fit(session: Session, expected: dict[tuple[int, int, int], float], draws: int = DRAWS) -> float:
    """The chi-square p-value of ``draws`` generations; cells expected under 5 times are joined.

    A misfit that is beyond doubt (p < 1e-12) after a part of the draws ends the drawing.
    """
    seen: Counter[tuple[int, int, int]] = Counter()
    accepted = rejected = bonus = 0
    for seed in range(draws):
        sampler = replace(SAMPLER, seed=seed)
        generation = run(session, PROMPT, 4, sampler=sampler, record=True)
        seen[generation.tokens[1:4]] += 1
        for step in generation.steps:
            accepted += step.accepted
            rejected += step.accepted < step.drafted
            bonus += step.drafted > 0 and step.accepted == step.drafted
        drawn = seed + 1
        if drawn % 2000 == 0 and p_value(seen, expected, drawn) < 1e-12:
            return 0.0
    assert min(accepted, rejected, bonus) > draws / 10, (accepted, rejected, bonus)
    return p_value(seen, expected, draws)


def p_value(
    seen: Counter[tuple[int, int, int]], expected: dict[tuple[int, int, int], float], draws: int
) -> float:
    observed, wanted = [0.0], [0.0]
    for cell in itertools.product(range(VOCAB), repeat=3):
        count = expected.get(cell, 0.0) * draws
        if count >= 5:
            observed.append(seen[cell])
            wanted.append(count)
        else:
            observed[0] += seen[cell]
            wanted[0] += count
    assert len(wanted) > 30
    scale = sum(observed) / sum(wanted)
    return float(chisquare(observed, [w * scale for w in wanted]).pvalue)


@pytest.fixture(scope="module")
def expected(pair: tuple[Path, Path]) -> dict[tuple[int, int, int], float]:
    made = Sessions()
    try:
        found = enumerate_target(made.make(pair[0]))
    finally:
        made.close()
    assert sum(found.values()) == pytest.approx(1.0)
    return found


def speculative(
    sessions: Sessions, pair: tuple[Path, Path], *, sampled: bool, p_min: float
) -> Session:
    drafter = sessions.draft_model(pair[1], n_max=2, p_min=p_min, sampled=sampled)
    return sessions.make(pair[0], drafter)


@pytest.mark.parametrize(
    ("sampled", "p_min"), [(True, 0.0), (True, 0.3), (False, 0.3)], ids=["q", "q+p_min", "argmax"]
)
def test_the_joint_distribution_is_the_targets(
    sessions: Sessions,
    pair: tuple[Path, Path],
    expected: dict[tuple[int, int, int], float],
    sampled: bool,
    p_min: float,
) -> None:
    session = speculative(sessions, pair, sampled=sampled, p_min=p_min)
    assert fit(session, expected) > LIMIT


def test_the_joint_distribution_of_a_tree_is_the_targets(
    sessions: Sessions,
    pair: tuple[Path, Path],
    expected: dict[tuple[int, int, int], float],
) -> None:
    def tree(tokens: list[int], limit: int) -> list[tuple[int, int]]:
        if limit < 2:
            return [(4, -1), (6, -1)] if limit else []
        return [(4, -1), (5, 0), (6, 0), (6, -1), (7, 3), (3, 3)]

    session = sessions.make(pair[0], ScriptedDrafter(tree, nodes=6, sequences=4))
    assert fit(session, expected) > LIMIT


def test_the_joint_distribution_of_adaptive_drafts_is_the_targets(
    sessions: Sessions,
    pair: tuple[Path, Path],
    expected: dict[tuple[int, int, int], float],
) -> None:
    """Drawn drafts whose lengths are chosen by what became of the drafts before them."""
    session = speculative(sessions, pair, sampled=True, p_min=0.0)
    costs = StepCosts((1.0, 1.3, 1.6), 0.01, ((0.0, 0.1, 0.2),), (0.0,))
    session.lengths = Adaptive(costs)
    assert fit(session, expected, draws=8000) > LIMIT


# ---- planted faults: each must be seen ------------------------------------------------------


def no_residual(patch: pytest.MonkeyPatch) -> None:
    """After a rejection draw from p instead of max(0, p - q)."""
    patch.setattr(Distribution, "excess_over", lambda self, q: self.p)


def softmax_for_a_greedy_draft(patch: pytest.MonkeyPatch) -> None:
    """q is the softmax although the token was the argmax."""

    def argmax(self: Sampler, distribution: Distribution, index: int) -> int:
        return int(distribution.ids[distribution.p.argmax()])

    patch.setattr(Sampler, "draw_draft", argmax)


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
    honest = loop_module.Target.verify

    def shifted(self: loop_module.Target, last: int, draft: Draft, position: int) -> np.ndarray:
        rows = honest(self, last, draft, position).copy()
        if draft.n:
            rows[draft.n] = rows[draft.n - 1]
        return rows

    patch.setattr(loop_module.Target, "verify", shifted)


def stale_penalties(patch: pytest.MonkeyPatch) -> None:
    """Penalties at a drafted position do not see the tokens drafted before it."""
    honest_accept, honest_penalties = loop_module.accept, Sampler._with_penalties
    committed = [0]

    def accept(
        draft: Draft, rows: object, sampler: Sampler, tokens: list[int], *rest: object
    ) -> None:
        committed[0] = len(tokens)
        honest_accept(draft, rows, sampler, tokens, *rest)  # type: ignore[arg-type]

    patch.setattr(loop_module, "accept", accept)
    patch.setattr(
        Sampler,
        "_with_penalties",
        lambda self, row, tokens: honest_penalties(self, row, tokens[: committed[0]]),
    )


@pytest.mark.parametrize(
    "plant",
    [
        no_residual,
        softmax_for_a_greedy_draft,
        p_min_on_the_drawn_token,
        bonus_from_the_wrong_row,
        stale_penalties,
    ],
)
def test_a_planted_fault_is_seen(
    sessions: Sessions,
    pair: tuple[Path, Path],
    expected: dict[tuple[int, int, int], float],
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
) -> None:
    session = speculative(sessions, pair, sampled=True, p_min=0.0)
    plant(monkeypatch)
    assert fit(session, expected) < LIMIT
