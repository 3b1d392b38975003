"""What the target and the drafter thought of a step's tokens, for a person to look at."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.sampling import Sampler, softmax
from localspec.drafters.base import Distribution, Draft
from localspec.llama import Rows
from localspec.records import Scores


class Witness:
    """The run's sampler as the drafter sees it, which keeps the drafter's probability of every
    token that it took for the likeliest: computing that costs a pass over the vocabulary."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        self._heard: dict[tuple[int, int], float] = {}

    @property
    def greedy(self) -> bool:
        return self.sampler.greedy

    def argmax(self, row: NDArray[np.float32], tokens: list[int]) -> int:
        token = self.sampler.argmax(row, tokens)
        self._heard[len(tokens), token] = float(softmax(row)[token])
        return token

    def distribution(self, row: NDArray[np.float32], tokens: list[int]) -> Distribution:
        return self.sampler.distribution(row, tokens)

    def draw_draft(self, distribution: Distribution, index: int) -> int:
        return self.sampler.draw_draft(distribution, index)

    def index_of(self, tokens: list[int]) -> int:
        return self.sampler.index_of(tokens)

    def take(self, draft: Draft, committed: int) -> tuple[float | None, ...]:
        """The drafter's probability of each token of ``draft``, which follows ``committed`` tokens;
        None where it gave none. What was heard is forgotten."""
        heard, self._heard = self._heard, {}

        def of(i: int) -> float | None:
            token = int(draft.tokens[i])
            if draft.q is not None:
                return draft.q[i].probability(token)
            if not np.isnan(chance := float(draft.chances[i])):
                return chance
            return heard.get((committed + i, token)) if draft.chain else None

        return tuple(of(i) for i in range(draft.n))


def score(draft: Draft, rows: Rows, witness: Witness, tokens: list[int], committed: int) -> Scores:
    """The step that emitted ``tokens[committed:]`` from ``draft`` and its logit ``rows``.

    To be called before anything else is decoded. At temperature 0 the chain leaves one token of
    probability 1, which says nothing: p is then the softmax of the penalised logits.
    """
    p: list[float | None] = [None] * draft.n
    emitted = []
    node = -1
    for at in range(committed, len(tokens)):
        target = witness.sampler.opinion(rows[node + 1], tokens[:at])
        for i in range(node + 1, draft.n):
            if draft.parents[i] == node:
                p[i] = target.probability(int(draft.tokens[i]))
        emitted.append(target.probability(tokens[at]))
        node = draft.child(node, tokens[at]) if draft.n else -1
        if node < 0:
            break
    return Scores(tuple(p), witness.take(draft, committed), tuple(emitted))
