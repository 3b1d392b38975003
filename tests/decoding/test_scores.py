"""What the target and the drafter thought of a step's tokens, when somebody asks."""

from __future__ import annotations

from pathlib import Path

import pytest
from decoding.conftest import Sessions, run
from decoding.test_loop import PROMPT, oracle
from decoding.test_tree_drafters import tree_drafter

from localspec.drafters.base import Drafter


def test_every_token_that_was_looked_at_has_its_probability_and_no_other(
    sessions: Sessions, tiny_target: Path
) -> None:
    plain = run(sessions.make(tiny_target), PROMPT, 30, ignore_eos=True, scores=True)
    drafter = oracle(list(plain.tokens), length=4, wrong_after=2)
    fast = run(
        sessions.make(tiny_target, drafter), PROMPT, 30, ignore_eos=True, record=True, scores=True
    )
    assert fast.tokens == plain.tokens
    by_token = [score.emitted[0] for score in plain.scores]  # from the second token on
    done = 0
    for step, score in zip(fast.steps, fast.scores, strict=True):
        assert len(score.emitted) == step.tokens
        assert score.emitted == pytest.approx(by_token[done : done + step.tokens], rel=1e-3)
        done += step.tokens
        if step.drafted == 4:
            assert score.p[:2] == pytest.approx(score.emitted[:2])
            assert score.p[2] is not None  # rejected, less likely than what was emitted
            assert score.p[2] < score.emitted[2]
            assert score.p[3] is None  # never looked at
            assert score.q == (None,) * 4
    assert any(step.drafted == 4 for step in fast.steps)


def test_a_draft_drawn_by_chance_has_its_q(
    sessions: Sessions, tiny_target: Path, tiny_draft: Path
) -> None:
    drafter = sessions.draft_model(tiny_draft, n_max=3, sampled=True)
    options = {"temperature": 0.9, "record": True, "ignore_eos": True}
    scored = run(sessions.make(tiny_target, drafter), PROMPT, 40, scores=True, **options)
    assert any(score.q for score in scored.scores)
    for step, score in zip(scored.steps, scored.scores, strict=True):
        assert len(score.q) == step.nodes
        assert all(q is not None and 0 < q <= 1 for q in score.q)


@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_a_draft_of_likeliest_tokens_has_its_q_too(
    sessions: Sessions, tiny_target: Path, shape: str
) -> None:
    """Where the target drafts for itself, it thinks the same of a token in both places."""
    if shape == "chain":
        drafter: Drafter = sessions.draft_model(tiny_target, n_max=3)
    else:
        drafter = tree_drafter(sessions, tiny_target, nodes=6, n_max=3)
    session = sessions.make(tiny_target, drafter, n_ctx=512)
    scored = run(session, PROMPT, 40, scores=True, record=True, ignore_eos=True)
    both = [
        pair
        for score in scored.scores
        for pair in zip(score.p, score.q, strict=True)
        if pair[0] is not None
    ]
    assert len(both) > 20
    assert [q for _, q in both] == pytest.approx([p for p, _ in both], rel=0.05, abs=1e-3)
    assert len({round(q, 3) for _, q in both if q is not None}) > 5


def test_nothing_is_computed_unless_asked_and_the_text_is_the_same(
    sessions: Sessions, tiny_target: Path, tiny_draft: Path
) -> None:
    for temperature in (0.0, 0.9):
        tokens = []
        for scores in (False, True):
            drafter = sessions.draft_model(tiny_draft, n_max=3)
            session = sessions.make(tiny_target, drafter)
            done = run(session, PROMPT, 40, temperature=temperature, scores=scores)
            assert bool(done.scores) == scores
            tokens.append(done.tokens)
        assert tokens[0] == tokens[1]
