"""What stands in a tree: a node's children are the likeliest tokens after the path to it, by the
drafter's own chain along that path (grown trees), or by the block's rows (DDTree)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from drafters.reading import Lab, Pair, opened
from families import Case, every_family

from localspec.decoding.sampling import Row, Sampler
from localspec.drafters.base import Draft
from localspec.drafters.dflash import DFlashDrafter
from localspec.drafters.tree import marginal_tree, top_children
from localspec.records import DrafterSettings, SamplerSettings

PROMPT = [0, 5, 6, 7, 8, 5, 6]
DEPTH, NODES = 4, 31


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    return every_family(tmp_path_factory.mktemp("families"))


@pytest.fixture
def lab() -> Iterator[Lab]:
    with opened() as made:
        yield made


class Along(Sampler):
    """Makes a chain drafter draft ``path``, whatever it finds likely; then its own choice."""

    def __init__(self, prompt: Sequence[int], path: Sequence[int]) -> None:
        super().__init__(SamplerSettings(), len(prompt) - 1)
        self._end, self._path = len(prompt), path

    def argmax(self, row: Row, tokens: list[int]) -> int:
        at = len(tokens) - self._end
        return self._path[at] if at < len(self._path) else super().argmax(row, tokens)


def start(lab: Lab, case: Case, settings: DrafterSettings, tokens: Sequence[int]) -> Pair:
    pair = lab.pair(case.target, settings)
    pair.drafter._eog = frozenset()  # type: ignore[attr-defined]
    return pair.begin(tokens)


def children(draft: Draft) -> dict[tuple[int, ...], list[int]]:
    """The drafted children of every path that has some."""
    paths: list[tuple[int, ...]] = []
    found: dict[tuple[int, ...], list[int]] = {}
    for token, parent in zip(draft.tokens[: draft.n].tolist(), draft.parents, strict=False):
        above = paths[parent] if parent >= 0 else ()
        found.setdefault(above, []).append(token)
        paths.append((*above, token))
    return found


@pytest.mark.parametrize("name", ["eagle3", "draft-model"])
def test_a_grown_tree_holds_the_likeliest_children_of_each_path(
    lab: Lab, cases: dict[str, Case], name: str
) -> None:
    case = cases[f"{name} tree"]
    tree = start(lab, case, replace(case.drafter, n_max=DEPTH, tree=NODES), PROMPT)
    chain: Any = start(lab, case, replace(case.drafter, n_max=DEPTH, tree=0), PROMPT)
    deepest = parents = 0
    for kept in range(3):  # also behind tokens that were kept of a tree
        draft = tree.drafter.draft(tree.tokens, DEPTH)
        assert draft.n == NODES
        found = children(draft)
        assert sum(len(path) == 1 for path in found) > 1, "more than one branch goes on"
        for path, tokens in found.items():
            chain.drafter.reset()
            chain.target.context.clear()
            chain.begin(tree.tokens, sampler=Along(tree.tokens, path))
            assert chain.draft(len(path) + 1)[:-1] == list(path)
            rows = chain.drafter.context.rows(1)
            likeliest, _ = top_children(rows[0], len(tokens))
            assert sorted(tokens) == sorted(likeliest.tolist()), path
            deepest = max(deepest, len(path))
        parents = max(parents, len({path[:1] for path in found if len(path) == 2}))
        tree.verify(draft, draft.n - 1 - kept, follow=9)
    assert deepest == DEPTH - 1
    assert parents > 2, "states of several nodes were gone on from"


def test_a_block_drafters_tree_is_made_of_its_rows(lab: Lab, cases: dict[str, Case]) -> None:
    case = cases["dflash tree"]
    for n_max in (2, 4, 5):
        for first in range(4, 10):
            prompt = [0, first, 5, 6, first, 7]
            tree = start(lab, case, replace(case.drafter, n_max=n_max, tree=NODES), prompt)
            draft = tree.drafter.draft(tree.tokens, 99)
            chain = start(lab, case, replace(case.drafter, n_max=5, tree=0), prompt)
            chain.draft()
            drafter = chain.drafter
            assert isinstance(drafter, DFlashDrafter)
            rows = drafter.context.rows(6)[1 : 1 + n_max]
            expected = Draft(NODES)
            marginal_tree(expected, rows, nodes=NODES, leaves=NODES)
            assert children(draft) == children(expected)
            assert draft.depth() <= n_max
