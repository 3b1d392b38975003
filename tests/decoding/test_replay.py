"""What the audit is told by a replay: planted faults part from roundings, token by token."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from decoding.conftest import Sessions, run
from scripted import ScriptedDrafter
from tiny_models import tiny_llama

import localspec.decoding.loop as loop_module
from localspec.bench.audit import WORSE_THAN_ROUNDING
from localspec.bench.goodness import Fit, fit
from localspec.decoding.acceptance import accept
from localspec.decoding.loop import Session
from localspec.decoding.replay import _distance, replay, rounding
from localspec.decoding.sampling import Distribution, Sampler
from localspec.decoding.target import Target
from localspec.drafters.base import Draft
from localspec.records import Generation, SamplerSettings

PROMPT = [0, 5, 6, 7]
TOKENS = 120
MODEL = {"vocab": 40, "n_embd": 64, "n_head": 4, "favour": {0: -8.0, 1: -8.0}}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Q8_0: chains are bit-equal, and a kept branch moves rows by what roundings do."""
    path = tmp_path_factory.mktemp("replay") / "m.gguf"
    return tiny_llama(path, **MODEL)


class Oracle:
    """Drafts of the plain text, spoilt now and then; a tree's best branch is never its first."""

    def __init__(self, text: list[int], *, tree: bool) -> None:
        self.text, self.tree, self.rng = text, tree, random.Random(1)

    def __call__(self, tokens: list[int], limit: int) -> list[int] | list[tuple[int, int]]:
        true = self.text[len(tokens) : len(tokens) + 3]
        if limit < 3 or len(true) < 3:
            return []
        right = self.rng.randrange(4)
        chain = [t if i < right else (t + 7) % 40 for i, t in enumerate(true)]
        if not self.tree:
            return chain
        return [((true[0] + 3) % 40, -1), (9, 0), (chain[0], -1), (chain[1], 2), (chain[2], 3)]


Made = Callable[..., tuple[Session, Session, SimpleNamespace, Generation]]


@pytest.fixture
def made(sessions: Sessions, model: Path) -> Made:
    """A session that speculates, a plain one, the former's run on record and the latter's run."""

    def make(*, tree: bool = False, temperature: float = 0.0):
        plain = sessions.make(model)
        asked = {"temperature": temperature, "seed": 3, "ignore_eos": True}
        text = run(plain, PROMPT, TOKENS, **asked)
        oracle = Oracle([*PROMPT, *text.tokens], tree=tree)
        drafter = ScriptedDrafter(oracle, nodes=5, sequences=2 if tree else 1)
        session = sessions.make(model, drafter, n_ctx=512)
        found = run(session, PROMPT, TOKENS, record=True, **asked)
        assert found.counts.accepted > 10
        recorded = SimpleNamespace(
            prompt=PROMPT,
            tokens=found.tokens,
            drafts=found.drafts,
            parents=found.parents,
            kept=[s.tokens for s in found.steps],
            index=None,
            sampler=SamplerSettings(temperature=temperature, seed=3),
            ignore_eos=True,
            sampled=False,
        )
        return session, plain, recorded, text

    return make


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_the_rows_of_a_chain_are_the_plain_ones(made: Made, temperature: float) -> None:
    session, plain, recorded, text = made(temperature=temperature)
    assert recorded.tokens == text.tokens
    found = replay(session, plain, recorded)
    assert found.differences == (0.0,) * TOKENS
    assert found.unlike == ()


def test_the_rows_of_a_tree_part_by_roundings_alone(made: Made) -> None:
    """Also behind the token at which the texts may part: the plain path follows the run."""
    session, plain, recorded, _ = made(tree=True)
    found = replay(session, plain, recorded)
    size = rounding(session, plain, PROMPT, recorded.tokens)
    assert len(found.differences) == TOKENS
    assert 0 < max(found.differences) < WORSE_THAN_ROUNDING * size
    assert found.unlike == ()


def test_roundings_are_measured_in_a_full_context_too(sessions: Sessions, model: Path) -> None:
    plain = sessions.make(model, n_ctx=256)
    text = run(plain, PROMPT, 256, ignore_eos=True)
    assert text.stop == "context"
    assert rounding(plain, plain, PROMPT, text.tokens) > 0


# ---- planted faults ---------------------------------------------------------------------------


def stale_cell(patch: pytest.MonkeyPatch) -> None:
    """After the first rollback behind position 40 the last cell is that of another token."""
    honest, before = Target.keep, [0]

    def keep(self: Target, draft: Draft, node: int, length: int) -> int:
        done = honest(self, draft, node, length)
        if before[0] < 40 <= length:
            self.context.truncate(length - 1)
            self.verify(11, Draft(0), length - 1)
        before[0] = length
        return done

    patch.setattr(Target, "keep", keep)


def wrong_branch(patch: pytest.MonkeyPatch) -> None:
    """Once behind position 40 the cells of a tree's first branch are kept though its last won."""
    honest, armed = Target.keep, [True]

    def keep(self: Target, draft: Draft, node: int, length: int) -> int:
        if length < 40:
            armed[0] = True
        elif armed[0] and node == 2:
            self._leaf_below[node + 1] = 0
            armed[0] = False
        return honest(self, draft, node, length)

    patch.setattr(Target, "keep", keep)


@pytest.mark.parametrize("tree", [False, True], ids=["chain", "tree"])
def test_a_stale_cell_moves_rows_by_more_than_roundings(
    made: Made, monkeypatch: pytest.MonkeyPatch, tree: bool
) -> None:
    """It reproduces in the replay, whose every row chooses its token."""
    stale_cell(monkeypatch)
    session, plain, recorded, _ = made(tree=tree)
    found = replay(session, plain, recorded)
    assert found.unlike == ()
    size = rounding(session, plain, PROMPT, recorded.tokens)
    assert max(found.differences) > WORSE_THAN_ROUNDING * size


def test_a_wrong_branch_that_was_kept_does_too(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong_branch(monkeypatch)
    session, plain, recorded, _ = made(tree=True)
    found = replay(session, plain, recorded)
    size = rounding(session, plain, PROMPT, recorded.tokens)
    assert max(found.differences) > WORSE_THAN_ROUNDING * size


def wrong_token(patch: pytest.MonkeyPatch, at: int) -> None:
    """The last token of step ``at`` is not the one that its row chose; all others are."""
    calls = [0]

    def planted(
        draft: Draft, rows: np.ndarray, sampler: Sampler, tokens: list[int], *rest: object
    ) -> None:
        accept(draft, rows, sampler, tokens, *rest)  # type: ignore[arg-type]
        calls[0] += 1
        if calls[0] == at:
            tokens[-1] = 39 - tokens[-1]

    patch.setattr(loop_module, "accept", planted)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_wrong_token_is_unlike_its_row_wherever_it_is(
    made: Made, monkeypatch: pytest.MonkeyPatch, temperature: float
) -> None:
    """The plain text is made by the same loop: its steps, one a token, are counted off first."""
    wrong_token(monkeypatch, at=TOKENS + 20)
    session, plain, recorded, text = made(temperature=temperature)
    found = replay(session, plain, recorded)
    assert len(found.unlike) == 1
    (at,) = found.unlike
    assert text.tokens[:at] == recorded.tokens[:at]
    assert max(found.differences) == 0, "every row belongs to the tokens before it"


# ---- sampled drafts ---------------------------------------------------------------------------

DRAWN = SamplerSettings(temperature=0.9, top_k=0, top_p=0.98, seed=0)


def followed(
    sessions: Sessions, model: Path, draft: Path, runs: int = 10
) -> tuple[Fit, float, float]:
    """Ordinary runs of a sampled draft: do their tokens fit, how far are their rows from the plain
    ones at the most, and how far would roundings take them?"""
    plain = sessions.make(model)
    session = sessions.make(model, sessions.draft_model(draft, n_max=3, sampled=True))
    places: list[float] = []
    furthest = 0.0
    for seed in range(runs):
        sampler = replace(DRAWN, seed=seed)
        made = run(session, PROMPT, 100, sampler=sampler, record=True, ignore_eos=True)
        assert made.counts.accepted > 10
        kept = [s.tokens for s in made.steps]
        recorded = SimpleNamespace(
            prompt=PROMPT, tokens=made.tokens, drafts=made.drafts, parents=made.parents, kept=kept,
            index=None, sampler=sampler, ignore_eos=True, sampled=True,
        )  # fmt: skip
        found = replay(session, plain, recorded)
        places += found.places
        furthest = max(furthest, *found.differences)
    assert len(places) == 100 * runs
    return fit(places), furthest, rounding(session, plain, PROMPT, made.tokens)


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("replay") / "d.gguf"
    return tiny_llama(path, **MODEL, noise=0.1)


def test_tokens_of_sampled_drafts_fit_their_distributions(
    sessions: Sessions, model: Path, draft: Path
) -> None:
    found, furthest, _ = followed(sessions, model, draft)
    assert found.fits
    assert found.uniform > 0.01
    assert furthest == 0


def test_a_wrong_token_in_two_hundred_does_not_fit(
    sessions: Sessions, model: Path, draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [0]

    def planted(
        draft: Draft, rows: np.ndarray, sampler: Sampler, tokens: list[int], *rest: object
    ) -> None:
        before = len(tokens)
        least = 2 + int(rows[0][2:].argmin())  # no token that ends the text
        accept(draft, rows, sampler, tokens, *rest)  # type: ignore[arg-type]
        calls[0] += len(tokens) - before
        if calls[0] > 200:
            calls[0] = 0
            del tokens[before + 1 :]
            tokens[before] = least
            rest[-1].accepted, rest[-1].node = 0, -1  # type: ignore[attr-defined]

    monkeypatch.setattr(loop_module, "accept", planted)
    found, furthest, _ = followed(sessions, model, draft)
    assert not found.fits
    assert found.uniform > 1e-4, "too few for Kolmogorov-Smirnov: the smallest place has it"
    assert furthest == 0


def test_likely_tokens_too_often_do_not_fit(
    sessions: Sessions, model: Path, draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The draft is the argmax, and passes for drawn: all are possible, some come too often."""

    def argmax(self: Sampler, distribution: Distribution, index: int) -> int:
        return int(distribution.ids[distribution.p.argmax()])

    monkeypatch.setattr(Sampler, "draw_draft", argmax)
    found, _, _ = followed(sessions, model, draft)
    assert not found.fits
    assert found.smallest > 1e-4, "Kolmogorov-Smirnov alone sees it"


def test_a_stale_cell_behind_sampled_drafts_is_seen_by_their_rows(
    sessions: Sessions, model: Path, draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale_cell(monkeypatch)
    found, furthest, size = followed(sessions, model, draft)
    assert found.fits
    assert furthest > WORSE_THAN_ROUNDING * size


def test_a_distance_leaves_out_what_no_softmax_sees() -> None:
    row = np.random.default_rng(0).normal(0, 3, 1000).astype(np.float32)
    assert _distance(row, row + 5) == pytest.approx(0, abs=1e-5)
    other = row.copy()
    other[3] += 10
    assert _distance(row, other) == pytest.approx(10 / 1000**0.5, rel=1e-2)
    row[7] = other[7] = -np.inf
    assert _distance(row, other) == pytest.approx(10 / 1000**0.5, rel=1e-2)
    other[7] = 0
    assert _distance(row, other) == float("inf")
