"""The sampler chain equals llama.cpp's own, and randomness depends on nothing but its key."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.decoding.sampling import (
    ACCEPT,
    TARGET,
    Distribution,
    Sampler,
    top_k_ids,
    uniform,
)
from localspec.llama.library import L
from localspec.records import SamplerSettings

N_VOCAB = 3000


def llama_chain(row: np.ndarray, s: SamplerSettings, tokens: list[int]) -> dict[int, float]:
    """What survives llama.cpp's own chain, with its probabilities."""
    chain = L.llama_sampler_chain_init(L.llama_sampler_chain_default_params())
    add = L.llama_sampler_chain_add
    penalties = L.llama_sampler_init_penalties(
        len(row), s.repeat_last_n, s.repeat_penalty, s.frequency_penalty, s.presence_penalty
    )
    add(chain, penalties)
    add(chain, L.llama_sampler_init_top_k(s.top_k))
    add(chain, L.llama_sampler_init_top_p(s.top_p, 1))
    add(chain, L.llama_sampler_init_min_p(s.min_p, 1))
    add(chain, L.llama_sampler_init_temp(s.temperature))
    for token in tokens:
        L.llama_sampler_accept(chain, token)
    data = (L.llama_token_data * len(row))()
    for i, logit in enumerate(row):
        data[i].id, data[i].logit = i, float(logit)
    array = L.llama_token_data_array(data, len(row), -1, False)
    L.llama_sampler_apply(chain, ctypes.byref(array))
    ids = [array.data[i].id for i in range(array.size)]
    logits = np.array([array.data[i].logit for i in range(array.size)])
    L.llama_sampler_free(chain)
    p = np.exp(logits - logits.max())
    return dict(zip(ids, p / p.sum(), strict=True))


BASE = SamplerSettings(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05)


@pytest.mark.parametrize(
    "s",
    [
        BASE,
        replace(BASE, top_k=1),
        replace(BASE, top_k=0),
        replace(BASE, top_k=0, min_p=0.0),
        replace(BASE, top_k=0, top_p=1.0),
        replace(BASE, top_k=0, top_p=1.0, min_p=0.0),
        replace(BASE, top_k=2000, top_p=0.5, temperature=1.7),
        replace(BASE, repeat_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.2),
        replace(BASE, repeat_penalty=1.3, repeat_last_n=3),
    ],
    ids=lambda s: f"k{s.top_k}-p{s.top_p}-m{s.min_p}-T{s.temperature}-r{s.repeat_penalty}",
)
@pytest.mark.parametrize("seed", range(3))
def test_the_chain_keeps_what_llama_cpp_keeps(s: SamplerSettings, seed: int) -> None:
    rng = np.random.default_rng(seed)
    row = rng.normal(0, 3, N_VOCAB).astype(np.float32)
    tokens = [int(t) for t in np.argsort(-row)[:6]] * 2 + [1, 2, 3]
    expected = llama_chain(row, s, tokens)
    found = Sampler(s, 0).distribution(row.copy(), tokens)
    assert set(found.ids.tolist()) == set(expected)
    for token, p in zip(found.ids.tolist(), found.p.tolist(), strict=True):
        assert p == pytest.approx(expected[token], abs=2e-6)


@given(
    st.lists(st.floats(-9, 9, width=16), min_size=200, max_size=500),
    st.integers(1, 60),
)
@settings(deadline=None)
def test_top_k_is_exact_whatever_the_blocks_hold(values: list[float], k: int) -> None:
    row = np.array(values, np.float32)
    assert top_k_ids(row, k).tolist() == np.argsort(-row, kind="stable")[:k].tolist()


def test_top_k_of_a_real_vocabulary_size() -> None:
    row = np.random.default_rng(5).normal(0, 5, 49_152).astype(np.float32)
    assert top_k_ids(row, 40).tolist() == np.argsort(-row, kind="stable")[:40].tolist()


def test_greedy_is_the_argmax_after_penalties() -> None:
    row = np.array([1.0, 5.0, 4.9, 0.0], np.float32)
    plain = Sampler(SamplerSettings(), 0)
    penalised = Sampler(SamplerSettings(repeat_penalty=2.0), 0)
    assert plain.argmax(row, [1]) == 1
    assert penalised.argmax(row, [1]) == 2
    assert row.tolist() == [1.0, 5.0, np.float32(4.9), 0.0]  # the engine's row is not touched


def test_banned_tokens_are_never_sampled() -> None:
    row = np.array([0.0, 9.0, 1.0, 8.0], np.float32)
    assert Sampler(SamplerSettings(), 0, banned=(1, 3)).argmax(row.copy(), []) == 2
    hot = Sampler(SamplerSettings(temperature=1.0, top_k=0, min_p=0.0), 0, banned=(1, 3))
    assert hot.distribution(row.copy(), []).ids.tolist() == [0, 2]


def test_random_numbers_depend_on_their_key_alone() -> None:
    assert uniform(1, 2, TARGET) == uniform(1, 2, TARGET)
    keys = [(s, i, p) for s in range(5) for i in range(5) for p in (TARGET, ACCEPT)]
    assert len({uniform(*key) for key in keys}) == len(keys)
    many = np.array([uniform(7, i, TARGET) for i in range(4000)])
    assert many.min() >= 0 and many.max() < 1
    counts, _ = np.histogram(many, bins=20, range=(0, 1))
    assert abs(counts - 200).max() < 70  # five standard deviations


def test_the_inverse_transform_is_by_id_so_near_ties_do_not_move_it() -> None:
    a = Distribution(np.array([3, 9]), np.array([0.5001, 0.4999]))
    b = Distribution(np.array([3, 9]), np.array([0.4999, 0.5001]))
    assert all(a.draw(u) == b.draw(u) for u in (0.0, 0.2, 0.49, 0.51, 0.999))


@given(st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_residual_and_overlap_make_up_p(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def random_distribution() -> Distribution:
        ids = np.sort(rng.choice(30, rng.integers(1, 12), replace=False))
        p = rng.random(len(ids))
        return Distribution(ids, p / p.sum())

    p, q = random_distribution(), random_distribution()
    overlap = sum(min(p.probability(t), q.probability(t)) for t in range(30))
    assert p.excess_over(q).sum() == pytest.approx(1 - overlap)
