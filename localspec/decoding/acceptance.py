"""Exact acceptance of a draft (Leviathan et al. 2023, Chen et al. 2023; llama.cpp's
common_sampler_sample_and_accept_n for deterministic drafts)."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from localspec.decoding.sampling import (
    ACCEPT,
    RESIDUAL,
    TARGET,
    Distribution,
    Row,
    Sampler,
    uniform,
)
from localspec.drafters.base import Draft
from localspec.llama import Rows


@dataclass(slots=True)
class Acceptance:
    """Filled anew by each ``accept``; one object a generation.

    ``accepted`` drafted tokens were kept; ``node`` is the last of them (-1: none). ``beta`` sums
    sum max(0, p - q) over ``beta_positions`` evaluated positions.
    """

    accepted: int = 0
    node: int = -1
    beta: float = 0.0
    beta_positions: int = 0


def accept(
    draft: Draft,
    rows: Rows,
    sampler: Sampler,
    tokens: list[int],
    eog: Set[int],
    result: Acceptance,
) -> None:
    """Append to ``tokens`` what the target emits, given ``draft`` and its logit ``rows``.

    ``rows[i + 1]`` follows node i, ``rows[0]`` the last committed token. One token more than was
    accepted is appended (the correction or the bonus), except that nothing follows an
    end-of-generation token. Rows after the first rejection are never looked at. Penalties see the
    path itself, since every kept token is in ``tokens`` before the next row is evaluated.
    """
    result.accepted, result.node, result.beta, result.beta_positions = 0, -1, 0.0, 0
    node = -1
    while True:
        row = rows[node + 1]
        if draft.q is not None and node + 1 < draft.n:
            token, child = _accept_sampled(draft, node + 1, row, sampler, tokens, result)
        else:
            token = sampler.sample(row, tokens)
            child = draft.child(node, token) if draft.n else -1
        tokens.append(token)
        if child < 0:
            return
        node = child
        result.accepted += 1
        result.node = node
        if token in eog:
            return


def _accept_sampled(
    draft: Draft, node: int, row: Row, sampler: Sampler, tokens: list[int], result: Acceptance
) -> tuple[int, int]:
    """One position of a chain drawn from ``q``: the emitted token, and ``node`` if it was accepted.

    Accept x with min(1, p(x) / q(x)); else draw from max(0, p - q), normalised.
    """
    assert draft.q is not None
    p, q = sampler.distribution(row, tokens), draft.q[node]
    assert isinstance(q, Distribution)
    token = int(draft.tokens[node])
    index, seed = sampler.index_of(tokens), sampler.settings.seed
    residual = p.excess_over(q)
    beta = float(residual.sum())
    result.beta += beta
    result.beta_positions += 1
    if uniform(seed, index, ACCEPT) * q.probability(token) < p.probability(token):
        return token, node
    if beta <= 0.0:  # p == q up to rounding: a rejection has probability 0, any draw of p is right
        return sampler.draw(p, index, TARGET), -1
    return Distribution(p.ids, residual).draw(uniform(seed, index, RESIDUAL)), -1
