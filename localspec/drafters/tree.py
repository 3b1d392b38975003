"""Draft trees: several continuations verified in one target pass.

Which nodes: the best first by joint probability under the drafter, within a budget of nodes and of
leaves (each leaf takes a sequence of the target's unified cache). A node is never likelier than its
parent, so the best nodes always form a tree. Two ways to the candidates:

- ``marginal_tree``: a block drafter's per-position distributions, positions taken as independent
  (DDTree, Ringel & Romano 2026);
- ``grow``: an autoregressive drafter, level by level, expanding the nodes that can still be among
  the best (as EAGLE-2, Li et al. 2024).

Children are chosen by probability, not drawn, so acceptance stays exact at every temperature.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from localspec.drafters.base import Draft, Needs
from localspec.drafters.draft_model import DraftModelDrafter
from localspec.llama import Context, Model, Rows
from localspec.llama.context import Batch

CHILDREN = 8
"""Candidates of a node or position: DDTree's figure; further ones were never among the best."""
FRONTIER = 8
"""Nodes that an autoregressive drafter expands in one pass at the most."""
MOST_SEQUENCES = 256
"""LLAMA_MAX_SEQ: so many leaves a tree may have."""


@dataclass(slots=True)
class Candidates:
    """Nodes of a growing tree: token, parent (index, -1: the root) and log joint probability."""

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)

    def add(self, token: int, parent: int, score: float) -> int:
        self.tokens.append(token)
        self.parents.append(parent)
        self.scores.append(score)
        return len(self.tokens) - 1


def top_children(row: NDArray[np.float32], k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The ``k`` most probable tokens of ``row`` and their log probabilities, best first."""
    ids = np.argpartition(row, -k)[-k:]
    ids = ids[np.lexsort((ids, -row[ids]))]
    top = float(row[ids[0]])
    log_sum = top + float(np.log(np.exp(row - top, dtype=np.float32).sum()))
    return ids, row[ids].astype(np.float64) - log_sum


def fill(draft: Draft, found: Candidates, *, nodes: int, leaves: int) -> None:
    """The best ``nodes`` candidates with at most ``leaves`` leaves, into ``draft``.

    Depth first, the likelier child first: parents come before children, and the likeliest path
    becomes sequence 0, which the target keeps without a copy. A node's rank says how many were
    taken before it: the best tree of fewer nodes has just the lower ranks.
    """
    order = sorted(range(len(found.tokens)), key=lambda i: (-found.scores[i], i))
    children: dict[int, list[int]] = {-1: []}
    ranks: dict[int, int] = {}
    n_leaves = 0
    for i in order:
        if len(ranks) == nodes:
            break
        siblings = children.get(found.parents[i])
        if siblings is None:  # its parent was left out
            continue
        opens_leaf = bool(siblings) or found.parents[i] < 0
        if opens_leaf and n_leaves == leaves:
            continue
        n_leaves += opens_leaf
        siblings.append(i)
        children[i] = []
        ranks[i] = len(ranks)
    draft.n, draft.chain, draft.q = 0, False, None
    stack = [(i, -1) for i in reversed(children[-1])]
    while stack:
        i, parent = stack.pop()
        at = draft.n
        draft.tokens[at], draft.parents[at], draft.ranks[at] = found.tokens[i], parent, ranks[i]
        above = found.scores[found.parents[i]] if parent >= 0 else 0.0
        draft.chances[at] = np.exp(found.scores[i] - above)
        draft.n += 1
        stack += [(child, at) for child in reversed(children[i])]


def marginal_tree(
    draft: Draft, rows: Sequence[NDArray[np.float32]] | Rows, *, nodes: int, leaves: int
) -> None:
    """DDTree: the best-first tree over independent positions; ``rows[i]``: the logits of depth i.

    A heap holds, for each prefix taken, its next sibling and its first child: the next best prefix
    is always on top, so no more than ``2 * nodes`` are ever looked at.
    """
    tops = [top_children(row, min(CHILDREN, len(row))) for row in rows]
    found = Candidates()
    heap: list[tuple[float, int, int, int]] = []  # (-score, depth, rank, parent)

    def push(depth: int, rank: int, parent: int) -> None:
        ids, logs = tops[depth]
        if rank < len(ids):
            above = found.scores[parent] if parent >= 0 else 0.0
            heapq.heappush(heap, (-(above + float(logs[rank])), depth, rank, parent))

    if len(rows):
        push(0, 0, -1)
    # some nodes may be passed over for the sake of the leaves, hence twice the budget
    while heap and len(found.tokens) < 2 * nodes:
        score, depth, rank, parent = heapq.heappop(heap)
        node = found.add(int(tops[depth][0][rank]), parent, -score)
        push(depth, rank + 1, parent)
        if depth + 1 < len(rows):
            push(depth + 1, 0, node)
    fill(draft, found, nodes=nodes, leaves=leaves)


def grow(
    draft: Draft,
    row: NDArray[np.float32],
    expand: Callable[[Candidates, list[int], int], Rows],
    *,
    depth: int,
    nodes: int,
    leaves: int,
    ends: Set[int],
) -> None:
    """Level by level: ``row`` are the root's logits; ``expand(found, frontier, level)`` decodes the
    frontier's nodes (their depth is ``level``, from 1) and returns their rows in order. Nothing
    follows a token of ``ends``."""
    found = Candidates()
    for token, score in zip(*top_children(row, min(CHILDREN, len(row))), strict=True):
        found.add(int(token), -1, float(score))
    level = range(len(found.tokens))
    for at in range(1, depth):
        bound = (
            sorted(found.scores, reverse=True)[nodes - 1] if len(found.scores) >= nodes else -np.inf
        )
        # what follows a node is less likely than it: after the last of the best nothing can be
        frontier = [i for i in level if found.scores[i] > bound and found.tokens[i] not in ends]
        frontier = sorted(frontier, key=lambda i: -found.scores[i])[:FRONTIER]
        if not frontier:
            break
        rows = expand(found, frontier, at)
        first = len(found.tokens)
        for i, node in enumerate(frontier):
            for token, score in zip(
                *top_children(rows[i], min(CHILDREN, rows.shape[1])), strict=True
            ):
                found.add(int(token), node, found.scores[node] + float(score))
        level = range(first, len(found.tokens))
    fill(draft, found, nodes=nodes, leaves=leaves)


def leaves_for(nodes: int) -> int:
    """Sequences of the target for a tree of ``nodes``: as many as it could have leaves."""
    return min(nodes, MOST_SEQUENCES)


class Branches:
    """Sequences of an autoregressive drafter's own context for the paths of a growing tree.

    Each level's nodes get a sequence of their own, copied from their parent's (metadata only in the
    unified cache); two sets alternate, sequence 0 keeps the committed text.
    """

    SEQUENCES = 2 * FRONTIER + 1

    def __init__(self, context: Context) -> None:
        self.batch = Batch(FRONTIER)
        self._context = context
        self._slots: dict[int, int] = {-1: 0}

    def place(self, found: Candidates, frontier: list[int], level: int) -> None:
        """Set the batch's sequences for ``frontier`` and copy each parent's path there."""
        first = 1 if level % 2 else 1 + FRONTIER
        slots = {}
        for slot in range(first, first + FRONTIER):  # the paths of two levels ago
            self._context.drop_sequence(slot)
        for i, node in enumerate(frontier):
            slot = first + i
            self._context.copy_sequence(self._slots[found.parents[node]], slot)
            self.batch.seq_ids[i][0] = slots[node] = slot
        self._slots = slots

    def clear(self) -> None:
        for slot in range(1, self.SEQUENCES):
            self._context.drop_sequence(slot)
        self._slots = {-1: 0}


def tree_needs(chain: Needs, nodes: int) -> Needs:
    """What the chain drafter needs of the target, for trees of ``nodes``."""
    return replace(chain, outputs=nodes + 1, sequences=leaves_for(nodes))


class DraftModelTree(DraftModelDrafter):
    """A draft model that proposes trees. Its context has ``Branches.SEQUENCES`` sequences,
    ``FRONTIER`` output rows and room for ``FRONTIER`` branches beside the text. The accepted path
    is decoded again in the first pass of the next draft, since it may lie in any branch.
    """

    def __init__(
        self,
        model: Model,
        context: Context,
        *,
        n_max: int,
        nodes: int,
        target_vocab: int,
    ) -> None:
        super().__init__(
            model, context, n_max=n_max, p_min=0.0, sampled=False, target_vocab=target_vocab
        )
        self.limits = [nodes]
        self.needs = tree_needs(self.needs, nodes)
        self._draft = Draft(nodes)
        self._branches = Branches(context)

    def draft(self, tokens: list[int], limit: int) -> Draft:
        draft = self._draft
        draft.n = 0
        self._tokens = tokens
        depth = min(limit, self.n_max)
        if depth < 1:
            return draft
        self._catch_up(len(tokens), last_row=True)
        row = self.context.rows(1)[0, : self._width]
        try:
            grow(
                draft,
                row,
                self._expand,
                depth=depth,
                nodes=self.limits[0],
                leaves=self.needs.sequences,
                ends=self._eog,
            )
        finally:
            self._branches.clear()
        return draft

    def _expand(self, found: Candidates, frontier: list[int], level: int) -> Rows:
        batch, n = self._branches.batch, len(frontier)
        self._branches.place(found, frontier, level)
        batch.tokens[:n] = [found.tokens[i] for i in frontier]
        batch.positions[:n] = len(self._tokens) + level - 1
        batch.native.n_tokens = n
        self.context.decode(batch)
        return self.context.rows(n)[:, : self._width]

    def close(self) -> None:
        self._branches.batch.close()
        super().close()
