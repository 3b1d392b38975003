"""Draft trees: the best nodes within the budget, and the baseline's tokens whatever they are."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from decoding.conftest import Sessions, run
from gguf import GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import tiny_llama

from localspec.decoding.replay import replay
from localspec.decoding.sampling import Sampler
from localspec.drafters.base import Draft, common_prefix
from localspec.drafters.draft_model import DraftModelDrafter
from localspec.drafters.tree import (
    FRONTIER,
    Branches,
    Candidates,
    DraftModelTree,
    fill,
    marginal_tree,
    top_children,
)
from localspec.llama import Context, ContextParams
from localspec.llama.context import Batch
from localspec.records import SamplerSettings

PROMPT = [0, 5, 6, 7]
SPEAKS_ON = {0: -8.0, 1: -2.0}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target and its draft model with F32 weights. The kept path of a tree lies in other cells
    than plain text does, so sums have another order; with quantised activations that would be
    enough to flip near ties."""
    folder = tmp_path_factory.mktemp("trees")
    exact = GGMLQuantizationType.F32
    return (
        tiny_llama(folder / "target.gguf", favour=SPEAKS_ON, quant=exact),
        tiny_llama(folder / "draft.gguf", favour=SPEAKS_ON, quant=exact, noise=0.15),
    )


def paths(draft: Draft) -> set[tuple[int, ...]]:
    """The token path of every node."""
    found: list[tuple[int, ...]] = []
    for i in range(draft.n):
        parent = int(draft.parents[i])
        assert parent < i
        above = found[parent] if parent >= 0 else ()
        found.append((*above, int(draft.tokens[i])))
    assert len(set(found)) == draft.n, "no node twice"
    return set(found)


def leaves(draft: Draft) -> int:
    return draft.n - len(set(draft.parents[: draft.n].tolist()) - {-1})


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 24))
@settings(deadline=None, max_examples=60)
def test_the_marginal_tree_holds_the_likeliest_prefixes(seed: int, depth: int, nodes: int) -> None:
    """Against brute force over all products of the positions' probabilities."""
    rng = np.random.default_rng(seed)
    rows = [rng.normal(0, 2, 6).astype(np.float32) for _ in range(depth)]
    draft = Draft(nodes)
    marginal_tree(draft, rows, nodes=nodes, leaves=256)
    logs = [r - np.log(np.exp(r).sum()) for r in rows]
    every = {
        path: sum(float(logs[i][t]) for i, t in enumerate(path))
        for d in range(1, depth + 1)
        for path in itertools.product(range(6), repeat=d)
    }
    best = sorted(every, key=lambda path: -every[path])[:nodes]
    assert paths(draft) == set(best)


def by_rank(draft: Draft, most: int) -> set[tuple[int, ...]]:
    """The paths of the nodes of the ``most`` lowest ranks, parents among them."""
    whole = sorted(draft.ranks[: draft.n].tolist())
    assert whole == list(range(draft.n))
    found: dict[int, tuple[int, ...]] = {-1: ()}
    for i in range(draft.n):
        if draft.ranks[i] < most:
            found[i] = (*found[int(draft.parents[i])], int(draft.tokens[i]))
    return set(found.values()) - {()}


@given(st.integers(0, 10**6), st.integers(1, 40))
@settings(deadline=None, max_examples=40)
def test_the_lower_ranks_of_a_tree_are_the_tree_of_a_smaller_budget(seed: int, most: int) -> None:
    """What adaptive trees learn from a tree about all smaller ones."""
    rng = np.random.default_rng(seed)
    rows = [rng.normal(0, 2, 12).astype(np.float32) for _ in range(5)]
    large, small = Draft(40), Draft(40)
    marginal_tree(large, rows, nodes=40, leaves=256)
    marginal_tree(small, rows, nodes=most, leaves=256)
    assert by_rank(large, most) == paths(small)


@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 6))
@settings(deadline=None, max_examples=60)
def test_a_tree_keeps_to_its_leaves_and_its_likeliest_path_comes_first(
    seed: int, nodes: int, most: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = [rng.normal(0, 1, 20).astype(np.float32) for _ in range(5)]
    draft = Draft(nodes)
    marginal_tree(draft, rows, nodes=nodes, leaves=most)
    assert 1 <= draft.n <= nodes
    assert leaves(draft) <= most
    assert not draft.chain and draft.q is None
    assert draft.tokens[0] == rows[0].argmax() and draft.parents[0] == -1


def test_a_node_without_its_parent_is_left_out() -> None:
    found = Candidates()
    a = found.add(1, -1, -1.0)
    b = found.add(2, -1, -1.1)
    found.add(3, b, -1.2)
    found.add(4, a, -1.3)
    draft = Draft(4)
    fill(draft, found, nodes=4, leaves=1)
    assert paths(draft) == {(1,), (1, 4)}


def test_children_come_with_their_log_probabilities() -> None:
    row = np.random.default_rng(0).normal(0, 3, 1000).astype(np.float32)
    ids, logs = top_children(row, 5)
    exact = row.astype(float) - np.log(np.exp(row.astype(float)).sum())
    assert ids.tolist() == np.argsort(-row)[:5].tolist()
    assert logs == pytest.approx(exact[ids], abs=1e-4)


def tree_drafter(sessions: Sessions, path: Path, *, nodes: int, n_max: int) -> DraftModelTree:
    model = sessions.model(path)
    params = ContextParams(
        n_ctx=256 + FRONTIER * n_max,
        threads=1,
        batch=64,
        outputs=FRONTIER,
        sequences=Branches.SEQUENCES,
    )
    return DraftModelTree(
        model, Context(model, params), n_max=n_max, nodes=nodes, target_vocab=model.vocab.size
    )


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize(("nodes", "n_max"), [(1, 1), (4, 2), (16, 4), (64, 6)])
def test_a_draft_models_trees_give_the_baselines_tokens(
    sessions: Sessions,
    pair: tuple[Path, Path],
    nodes: int,
    n_max: int,
    temperature: float,
) -> None:
    plain = run(
        sessions.make(pair[0]), PROMPT, 80, temperature=temperature, seed=5, ignore_eos=True
    )
    drafter = tree_drafter(sessions, pair[1], nodes=nodes, n_max=n_max)
    session = sessions.make(pair[0], drafter, n_ctx=512)
    fast = run(session, PROMPT, 80, temperature=temperature, seed=5, ignore_eos=True, record=True)
    assert fast.tokens == plain.tokens
    assert max(s.nodes for s in fast.steps) == nodes
    assert max(s.drafted for s in fast.steps) <= n_max


def test_a_draft_models_tree_of_a_smaller_budget_is_the_best_of_a_larger_ones(
    sessions: Sessions, pair: tuple[Path, Path]
) -> None:
    """Also one node, for which nothing need be decoded beyond the text."""
    drafter = tree_drafter(sessions, pair[1], nodes=24, n_max=5)
    drafter.begin(PROMPT, 0, Sampler(SamplerSettings(), len(PROMPT)))
    large = drafter.draft(list(PROMPT), 5)
    expected = {most: by_rank(large, most) for most in (1, 2, 5, 12)}
    decoded = 0
    decode = drafter.context.decode

    def counted(batch: Batch) -> None:
        nonlocal decoded
        decoded += 1
        decode(batch)

    drafter.context.decode = counted  # type: ignore[method-assign]
    for most, nodes in expected.items():
        drafter.begin(PROMPT, 0, Sampler(SamplerSettings(), len(PROMPT)))
        drafter.limits[0], decoded = most, 0
        assert paths(drafter.draft(list(PROMPT), 5)) == nodes
        assert decoded == 1 if most == 1 else decoded > 1
    drafter.close()


def test_a_tree_is_accepted_at_least_as_deep_as_its_top_chain(
    sessions: Sessions, pair: tuple[Path, Path]
) -> None:
    """The chain of the same depth is one of its paths; greedy, so the texts are the same."""
    chain: DraftModelDrafter = sessions.draft_model(pair[1], n_max=4)
    narrow = run(sessions.make(pair[0], chain), PROMPT, 120, ignore_eos=True)
    tree = tree_drafter(sessions, pair[1], nodes=32, n_max=4)
    wide = run(sessions.make(pair[0], tree, n_ctx=512), PROMPT, 120, ignore_eos=True)
    assert wide.tokens == narrow.tokens
    assert wide.counts.accept_length is not None and narrow.counts.accept_length is not None
    assert wide.counts.accept_length > narrow.counts.accept_length + 0.3


def test_after_a_tree_the_drafters_memory_is_the_committed_text_alone(
    sessions: Sessions, pair: tuple[Path, Path]
) -> None:
    drafter = tree_drafter(sessions, pair[1], nodes=16, n_max=4)
    session = sessions.make(pair[0], drafter, n_ctx=512)
    first = run(session, PROMPT, 40, ignore_eos=True)
    assert [drafter.context.last_position(s) for s in range(1, Branches.SEQUENCES)] == [-1] * (
        Branches.SEQUENCES - 1
    )
    follow = [*PROMPT, *first.tokens, 9]
    reused = run(session, follow, 40, ignore_eos=True, reuse=True)
    other = tree_drafter(sessions, pair[1], nodes=16, n_max=4)
    fresh = run(sessions.make(pair[0], other, n_ctx=512), follow, 40, ignore_eos=True)
    assert (reused.tokens, reused.counts) == (fresh.tokens, fresh.counts)


def test_a_tree_that_parts_from_the_baseline_is_replayed_branch_by_branch(
    sessions: Sessions, tiny_target: Path, tiny_draft: Path
) -> None:
    """Quantised activations flip near ties after a branch won: the replay finds the same row."""
    parted = 0
    for seed in range(12):
        baseline = sessions.make(tiny_target)
        plain = run(baseline, PROMPT, 80, temperature=0.9, seed=seed, ignore_eos=True)
        drafter = tree_drafter(sessions, tiny_draft, nodes=16, n_max=4)
        session = sessions.make(tiny_target, drafter, n_ctx=512)
        fast = run(session, PROMPT, 80, temperature=0.9, seed=seed, ignore_eos=True, record=True)
        index = common_prefix(plain.tokens, fast.tokens)
        if index == 80:
            continue
        parted += 1
        recorded = SimpleNamespace(
            prompt=PROMPT,
            tokens=fast.tokens,
            drafts=fast.drafts,
            parents=fast.parents,
            kept=[s.tokens for s in fast.steps],
            index=index,
            sampler=SamplerSettings(temperature=0.9, seed=seed),
            ignore_eos=True,
            sampled=False,
        )
        found = replay(session, baseline, recorded)
        assert found.reproduced
        assert found.margin <= 2 * found.max_difference
    assert parted
