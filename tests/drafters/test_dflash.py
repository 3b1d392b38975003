"""DFlash, DFlash2 and DSpark: the block is always the trained one; which rows are drafts; where
they are cut. (What they keep of their memory: test_features.)"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drafters.reading import Lab, Pair, accept_length, opened
from tiny_drafters import MARKOV_RANK, tiny_dflash
from tiny_models import BOS, EOS, tiny_llama

from localspec.decoding.sampling import Sampler
from localspec.drafters.dflash import DFlashDrafter
from localspec.llama.context import Batch
from localspec.records import DrafterSettings, SamplerSettings
from localspec.resources import asset

PROMPT = [0, 5, 6, 7, 8, 5, 6]
SPEAKS_ON = {BOS: -8.0, EOS: -8.0}
BLOCK, MASK = 6, 3
MARKOV = np.random.default_rng(5).standard_normal((12, MARKOV_RANK)).astype(np.float32)
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "dflash": ("dflash", {}),
    "dflash2": ("dflash", {"selector": 4}),
    "dspark": ("dspark", {"markov": MARKOV, "anchored": False}),
    "dspark anchored": ("dspark", {"markov": MARKOV}),
}


@pytest.fixture(scope="session")
def target(models: Path) -> Path:
    return tiny_llama(models / "dflash-target.gguf", n_layer=4, favour=SPEAKS_ON)


@pytest.fixture
def lab() -> Iterator[Lab]:
    with opened() as made:
        yield made


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, models: Path) -> tuple[str, Path]:
    name: str = request.param
    method, options = KINDS[name]
    return method, tiny_dflash(models / f"block {name}.gguf", **options)


def pair_of(lab: Lab, target: Path, kind: tuple[str, Path], **options: float) -> Pair:
    method, path = kind
    settings = DrafterSettings(method, "x", str(path), **({"n_max": 99} | options))  # type: ignore[arg-type]
    pair = lab.pair(target, settings)
    drafter_of(pair)._eog = frozenset()
    return pair


def drafter_of(pair: Pair) -> DFlashDrafter:
    assert isinstance(pair.drafter, DFlashDrafter)
    return pair.drafter


def blocks(pair: Pair) -> list[list[int]]:
    """The tokens of every block decoded from now on."""
    drafter, seen = drafter_of(pair), []
    original = drafter.context.decode

    def decode(batch: Batch) -> None:
        if batch is drafter._noise:
            seen.append(batch.tokens[: batch.native.n_tokens].tolist())
        original(batch)

    drafter.context.decode = decode  # type: ignore[method-assign]
    return seen


# ---- the block --------------------------------------------------------------------------------


@pytest.mark.parametrize("n_max", [1, 2, 4, 5, 6, 99])
def test_the_block_is_the_trained_one_whatever_is_asked_for(
    lab: Lab, target: Path, kind: tuple[str, Path], n_max: int
) -> None:
    pair = pair_of(lab, target, kind, n_max=n_max).begin(PROMPT)
    seen = blocks(pair)
    most = BLOCK if drafter_of(pair).block.first == 0 else BLOCK - 1
    assert len(pair.draft()) == min(n_max, most)
    assert pair.drafter.needs.outputs == min(n_max, most) + 1
    pair.step(0, wrong=9, limit=1)
    assert seen[0] == [PROMPT[-1]] + [MASK] * (BLOCK - 1)
    assert [len(block) for block in seen] == [BLOCK] * len(seen)


def test_a_short_draft_is_the_beginning_of_a_long_one(
    lab: Lab, target: Path, kind: tuple[str, Path]
) -> None:
    """With a block cut to the draft's length it would be another one: shown by cutting it."""
    differ = 0
    for first in range(4, 12):
        prompt = [0, first, 5, 6, first, 7]
        whole = pair_of(lab, target, kind).begin(prompt).draft()
        for n in (1, 2, 3):
            assert pair_of(lab, target, kind, n_max=n).begin(prompt).draft() == whole[:n]
            assert pair_of(lab, target, kind).begin(prompt).draft(n) == whole[:n]
            short = pair_of(lab, target, kind, n_max=n).begin(prompt)
            cut = drafter_of(short)
            cut.block = replace(cut.block, size=cut.block.first + n)
            differ += short.draft() != whole[:n]
    assert differ > 3


def test_near_the_end_of_the_context_the_block_is_what_fits(
    lab: Lab, target: Path, kind: tuple[str, Path]
) -> None:
    pair = pair_of(lab, target, kind).begin([0, *([5, 6, 7, 8] * 63), 5])
    seen = blocks(pair)
    left = 256 - (len(pair.tokens) - 1)
    assert left < BLOCK
    assert len(pair.draft(256 - len(pair.tokens))) == 256 - len(pair.tokens)
    assert len(seen[0]) == left


def test_a_target_with_m_rope_gets_the_same_positions(lab: Lab, target: Path, models: Path) -> None:
    """Text has one position, whichever section of the head it turns: so M-RoPE is plain RoPE."""
    found = []
    for name, options in (("neox", {}), ("m-rope", {"m_rope": True})):
        path = tiny_dflash(models / f"{name}.gguf", **options)
        pair = pair_of(lab, target, ("dflash", path)).begin(PROMPT)
        for accepted in (2, 0, 4):
            pair.step(accepted, wrong=9)
        pair.draft()
        found.append(drafter_of(pair).context.rows(1).copy())
    np.testing.assert_array_equal(*found)


# ---- DFlash -----------------------------------------------------------------------------------


def test_dflash_drafts_the_most_probable_token_of_each_row(
    lab: Lab, target: Path, models: Path
) -> None:
    kind = ("dflash", tiny_dflash(models / "rows.gguf"))
    pair = pair_of(lab, target, kind).begin(PROMPT)
    draft = pair.draft()
    rows = drafter_of(pair).context.rows(BLOCK)
    assert draft == rows[1:].argmax(axis=1).tolist()


def test_p_min_cuts_at_the_first_improbable_token(lab: Lab, target: Path, models: Path) -> None:
    kind = ("dflash", tiny_dflash(models / "rows.gguf"))
    lengths = set()
    for first in range(4, 12):
        prompt = [0, first, 5, 6, first, 7]
        pair = pair_of(lab, target, kind).begin(prompt)
        whole = pair.draft()
        rows = drafter_of(pair).context.rows(BLOCK)[1:].astype(np.float64)
        e = np.exp(rows - rows.max(axis=1, keepdims=True))
        top = e.max(axis=1) / e.sum(axis=1)
        for p_min in (0.3, 0.5, 0.7, 0.9):
            cut = int((top < p_min).argmax()) if (top < p_min).any() else BLOCK - 1
            assert pair_of(lab, target, kind, p_min=p_min).begin(prompt).draft() == whole[:cut]
            lengths.add(cut)
    assert len(lengths) > 2, "a test of one length shows nothing"


def test_penalties_hold_for_drafts_too(lab: Lab, target: Path, models: Path) -> None:
    kind = ("dflash", tiny_dflash(models / "rows.gguf"))
    penalties = SamplerSettings(presence_penalty=2.0, frequency_penalty=2.0, repeat_last_n=64)
    sampler = Sampler(penalties, len(PROMPT) - 1)
    pair = pair_of(lab, target, kind).begin(PROMPT, sampler=sampler)
    draft, path = pair.draft(), list(PROMPT)
    for row in drafter_of(pair).context.rows(BLOCK)[1:]:
        path.append(sampler.argmax(row, path))
    assert draft == path[len(PROMPT) :]
    assert draft != pair_of(lab, target, kind).begin(PROMPT).draft()


def test_the_trained_block_of_8_is_not_shortened(lab: Lab, demo_model: Path) -> None:
    """2.38 at n_max 3 over 128 tokens of each of the card's 8 prompts; 1.97 with a block of 4."""
    file = asset("demo/smollm2-135m-dflash-block8-q4_0.gguf")
    settings = DrafterSettings("dflash", "block8", str(file), n_max=3)
    assert 2.2 < accept_length(lab, demo_model, settings, "code", tokens=48) < 2.7


# ---- DFlash2 ----------------------------------------------------------------------------------


def lattice(rows: list[tuple[list[int], list[list[float]]]]) -> Any:
    """Rows as llama.cpp packs them, in a row longer than they are."""
    return np.array(
        [[*ids, *(s for row in scores for s in row), *[99.0] * 5] for ids, scores in rows],
        np.float32,
    )


WALK = lattice(
    [
        ([7, 8, 9], [[0.0, 3.0, 1.0]] * 3),  # to 8, the second
        ([4, 5, 6], [[9.0, 0.0, 0.0], [1.0, 2.0, 4.0], [9.0, 0.0, 0.0]]),  # from there to 6
        ([10, 11, 4], [[0.0, 9.0, 0.0], [0.0, 9.0, 0.0], [0.4, 0.3, 0.2]]),  # from there to 10
    ]
)


@pytest.mark.parametrize(
    ("p_min", "expected"),
    [
        (0.0, [8, 6, 10]),
        (0.3, [8, 6, 10]),
        (0.5, [8, 6]),  # 0.37: the probability among the candidates, not of the vocabulary
        (0.84, [8, 6]),  # 0.844 = e^3 / (e^3 + e + 1), 0.844
        (0.85, []),
    ],
)
def test_dflash2_walks_from_each_choice_to_the_best_after_it(
    lab: Lab, target: Path, models: Path, p_min: float, expected: list[int]
) -> None:
    path = tiny_dflash(models / "walk.gguf", selector=3)
    drafter = drafter_of(pair_of(lab, target, ("dflash", path), p_min=p_min))
    drafter._draft.n = 0
    drafter._walk(WALK)
    assert drafter._draft.tokens[: drafter._draft.n].tolist() == expected


def test_dflash2_stops_before_an_id_that_the_target_has_not(
    lab: Lab, target: Path, models: Path
) -> None:
    path = tiny_dflash(models / "walk.gguf", selector=3)
    drafter = drafter_of(pair_of(lab, target, ("dflash", path)))
    for width, expected in ((11, [8, 6, 10]), (10, [8, 6]), (8, [])):
        drafter._width, drafter._draft.n = width, 0
        drafter._walk(WALK)
        assert drafter._draft.tokens[: drafter._draft.n].tolist() == expected


def test_dflash2_drafts_candidates_of_its_rows(lab: Lab, target: Path, models: Path) -> None:
    path = tiny_dflash(models / "selector.gguf", selector=4)
    pair = pair_of(lab, target, ("dflash", path)).begin(PROMPT)
    draft = pair.draft()
    rows = drafter_of(pair).context.hidden_rows(BLOCK)[1:, :4]
    assert len(draft) == BLOCK - 1
    for token, candidates in zip(draft, rows, strict=True):
        assert token in candidates


# ---- DSpark -----------------------------------------------------------------------------------


@pytest.mark.parametrize("anchored", [True, False])
def test_dsparks_confidence_cuts_before_the_token_is_taken(
    lab: Lab, target: Path, models: Path, anchored: bool
) -> None:
    """A head that looks at nothing but the token before: its word can be computed here."""
    markov = np.tile(np.linspace(-2, 2, 12, dtype=np.float32)[:, None], (1, MARKOV_RANK))
    weights = np.full(MARKOV_RANK, 1 / MARKOV_RANK, np.float32)
    options = {"markov": markov, "anchored": anchored, "confidence": weights}
    kind = ("dspark", tiny_dflash(models / f"confident {anchored}.gguf", **options))
    lengths = set()
    for last in range(2, 12):
        prompt = [*PROMPT, last]
        whole = pair_of(lab, target, kind).begin(prompt).draft()
        before = np.array([last, *whole[:-1]])
        confidence = 1 / (1 + np.exp(-markov[before, 0]))
        for p_min in (0.2, 0.4, 0.6, 0.8):
            low = confidence < p_min
            cut = int(low.argmax()) if low.any() else len(whole)
            assert pair_of(lab, target, kind, p_min=p_min).begin(prompt).draft() == whole[:cut]
            lengths.add(cut)
    assert len(lengths) > 2, "a test of one length shows nothing"


def test_dspark_without_a_confidence_head_is_cut_as_dflash_is(
    lab: Lab, target: Path, models: Path
) -> None:
    kind = ("dspark", tiny_dflash(models / "unsure.gguf", markov=MARKOV, anchored=False))
    pair = pair_of(lab, target, kind).begin(PROMPT)
    whole = pair.draft()
    rows = drafter_of(pair).context.rows(BLOCK)[1:].astype(np.float64)
    e = np.exp(rows - rows.max(axis=1, keepdims=True))
    top = e.max(axis=1) / e.sum(axis=1)
    p_min = float(np.sort(top)[:2].mean())  # one row is below
    cut = int((top < p_min).argmax())
    assert pair_of(lab, target, kind, p_min=p_min).begin(PROMPT).draft() == whole[:cut]


def test_the_trained_dspark_has_the_accept_length_of_its_card(lab: Lab, demo_model: Path) -> None:
    """2.67 at n_max 5 over 128 tokens of each of the card's 8 prompts; more than DFlash's 2.53."""
    file = asset("demo/smollm2-135m-dspark-q4_0.gguf")
    settings = DrafterSettings("dspark", "dspark", str(file), n_max=5)
    assert 2.4 < accept_length(lab, demo_model, settings, "code", tokens=48) < 3.0
