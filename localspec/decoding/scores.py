"""What the target and the drafter thought of a step's tokens, for a person to look at."""

from __future__ import annotations

from localspec.decoding.sampling import Sampler
from localspec.drafters.base import Draft
from localspec.llama import Rows
from localspec.records import Scores


def score(draft: Draft, rows: Rows, sampler: Sampler, tokens: list[int], committed: int) -> Scores:
    """The step that emitted ``tokens[committed:]`` from ``draft`` and its logit ``rows``.

    To be called before anything else is decoded. At temperature 0 the chain leaves one token of
    probability 1, which says nothing: p is then the softmax of the penalised logits.
    """
    p: list[float | None] = [None] * draft.n
    q: list[float | None] = [None] * draft.n
    emitted = []
    node = -1
    for at in range(committed, len(tokens)):
        target = sampler.opinion(rows[node + 1], tokens[:at])
        for i in range(node + 1, draft.n):
            if draft.parents[i] == node:
                token = int(draft.tokens[i])
                p[i] = target.probability(token)
                q[i] = draft.q[i].probability(token) if draft.q is not None else None
        emitted.append(target.probability(tokens[at]))
        node = draft.child(node, tokens[at]) if draft.n else -1
        if node < 0:
            break
    return Scores(tuple(p), tuple(q), tuple(emitted))
