"""EAGLE-3: which pairs its decoder reads, what it drafts from them, and the trained head's accept
length. (What it keeps of its memory: test_features.)"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from drafters.reading import Lab, Pair, accept_length, opened
from tiny_drafters import tiny_eagle3
from tiny_models import BOS, EOS, tiny_gemma4, tiny_llama

from localspec.decoding.sampling import Sampler
from localspec.drafters.features import TargetFeatures
from localspec.llama.context import Batch
from localspec.records import DrafterSettings, SamplerSettings
from localspec.resources import asset

PROMPT = [0, 5, 6, 7, 8, 5, 6]
SPEAKS_ON = {BOS: -8.0, EOS: -8.0}


@pytest.fixture(scope="session")
def target(models: Path) -> Path:
    return tiny_llama(models / "eagle3-target.gguf", n_layer=4, favour=SPEAKS_ON)


@pytest.fixture(scope="session")
def head(models: Path) -> Path:
    return tiny_eagle3(models / "head.gguf", loud=range(4, 12))


@pytest.fixture
def lab() -> Iterator[Lab]:
    with opened() as made:
        yield made


def pair_of(lab: Lab, target: Path, head: Path, **options: float) -> Pair:
    settings = DrafterSettings("eagle3", "x", str(head), **({"n_max": 4} | options))  # type: ignore[arg-type]
    pair = lab.pair(target, settings)
    pair.drafter._eog = frozenset()  # type: ignore[attr-defined]
    return pair


def decodes(pair: Pair) -> list[tuple[list[int], list[int]]]:
    """(tokens, positions) of every decode on the drafter's context from now on."""
    context = pair.drafter.context  # type: ignore[attr-defined]
    seen = []
    original = context.decode

    def decode(batch: Batch) -> None:
        n = batch.native.n_tokens
        seen.append((batch.tokens[:n].tolist(), batch.positions[:n].tolist()))
        original(batch)

    context.decode = decode
    return seen


def test_each_position_is_paired_with_the_token_after_it(
    lab: Lab, target: Path, head: Path
) -> None:
    pair = pair_of(lab, target, head)
    seen = decodes(pair)
    pair.begin(PROMPT)
    # of the last evaluated position the next token is known only when it is sampled
    assert seen == [(PROMPT[1:6], [0, 1, 2, 3, 4])]
    seen.clear()
    draft = pair.draft()
    assert seen[0] == ([PROMPT[6]], [5])
    assert seen[1:] == [([token], [6 + i]) for i, token in enumerate(draft[:-1])]


@pytest.mark.parametrize("kept", [0, 1, 2, 4])
def test_kept_tokens_are_decoded_with_the_next_first_draft(
    lab: Lab, target: Path, head: Path, kept: int
) -> None:
    """One pass for both, over the target's own states: those of the draft were the head's."""
    pair = pair_of(lab, target, head).begin(PROMPT)
    assert pair.step(kept, wrong=9) == kept
    seen = decodes(pair)
    pair.draft()
    assert seen[0] == (pair.tokens[-kept - 1 :], list(range(6, 7 + kept)))
    assert [len(tokens) for tokens, _ in seen[1:]] == [1, 1, 1]


def test_it_drafts_only_what_its_vocabulary_has(lab: Lab, target: Path, models: Path) -> None:
    own = [2, 4, 6, 8, 10]
    head = tiny_eagle3(models / "own-vocabulary.gguf", d2t=own)
    pair = pair_of(lab, target, head).begin(PROMPT)
    drafted = set()
    for i in range(12):
        draft = pair.draft()
        row = pair.drafter.context.rows(1)[0]  # type: ignore[attr-defined]
        assert np.isfinite(row).nonzero()[0].tolist() == own
        drafted |= set(draft)
        pair.tokens.append(4 + i % 8)
        pair.target.verify(pair.tokens[-2], pair.drafter._draft, len(pair.tokens) - 2)  # type: ignore[attr-defined]
        pair.target.keep(pair.drafter._draft, -1, len(pair.tokens) - 1)  # type: ignore[attr-defined]
        pair.drafter.accept(pair.tokens, range(1))
    assert len(drafted) > 1
    assert drafted <= set(own)


def top_probabilities(lab: Lab, target: Path, head: Path, prompt: list[int]) -> list[float]:
    """Of each drafted token, from the row that it was taken from."""
    found = []
    for n in range(1, 5):
        pair = pair_of(lab, target, head).begin(prompt)
        pair.draft(n)
        row = pair.drafter.context.rows(1)[0].astype(np.float64)  # type: ignore[attr-defined]
        e = np.exp(row - row.max())
        found.append(float(e.max() / e.sum()))
    return found


def test_p_min_stops_before_a_token_is_taken(lab: Lab, target: Path, head: Path) -> None:
    lengths = set()
    for first in range(4, 12):
        prompt = [0, first, 5, first, 6, 4]
        whole = pair_of(lab, target, head).begin(prompt).draft()
        top = top_probabilities(lab, target, head, prompt)
        for p_min in (0.3, 0.6, 0.9):
            cut = next((i for i, p in enumerate(top) if p < p_min), 4)
            pair = pair_of(lab, target, head, p_min=p_min).begin(prompt)
            assert pair.draft() == whole[:cut]
            lengths.add(cut)
    assert len(lengths) > 2, "a test of one length shows nothing"


def test_penalties_hold_for_drafts_too(lab: Lab, target: Path, head: Path) -> None:
    """The target will have them, on the same path."""
    penalties = SamplerSettings(presence_penalty=2.0, frequency_penalty=2.0, repeat_last_n=64)
    changed = 0
    for first in range(4, 12):
        prompt = [0, first, 5, first, 6, 4]
        sampler, path = Sampler(penalties, len(prompt) - 1), list(prompt)
        for n in range(1, 5):
            pair = pair_of(lab, target, head).begin(prompt, sampler=sampler)
            draft = pair.draft(n)
            assert draft[:-1] == path[len(prompt) :]
            row = pair.drafter.context.rows(1)[0]  # type: ignore[attr-defined]
            path.append(sampler.argmax(row, path))
            assert draft[-1] == path[-1]
        changed += draft != pair_of(lab, target, head).begin(prompt).draft()
    assert changed


def test_layer_n_is_what_the_target_ends_with(lab: Lab, models: Path) -> None:
    """The states stand side by side in the order of the layers; the number after the last layer's
    is the last hidden state."""
    target = tiny_gemma4(models / "ends.gguf", n_embd=64, favour=SPEAKS_ON)
    head = tiny_eagle3(
        models / "ends-head.gguf", target_layers=(0, 1, 2), target_width=64, n_embd=64
    )
    pair = pair_of(lab, target, head).begin(PROMPT)
    context, n = pair.target.context, len(PROMPT) - 1
    parts = [context.layer_rows(0, n), context.layer_rows(1, n), context.hidden_rows(n)]
    found = np.zeros((n, 3 * 64), np.float32)
    TargetFeatures(context, (0, 1, 2), hidden=True).gather(range(n), found)
    np.testing.assert_array_equal(found, np.concatenate(parts, axis=1))
    assert len({part.tobytes() for part in parts}) == 3
    assert len(pair.draft()) == 4


def test_the_trained_head_has_the_accept_length_of_its_card(lab: Lab, demo_model: Path) -> None:
    """2.55 over 128 tokens of each of the card's 8 prompts."""
    file = asset("demo/smollm2-135m-eagle3-q4_0.gguf")
    settings = DrafterSettings("eagle3", "eagle3", str(file), n_max=3)
    assert 2.3 < accept_length(lab, demo_model, settings, "code", tokens=48) < 2.9
