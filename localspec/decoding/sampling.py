"""The sampler chain as a distribution, and counter-based random numbers.

The chain and its order are llama.cpp's (common/sampling.cpp): penalties, top-k, top-p on the
untempered probabilities, min-p, temperature. Distributions stay sparse: what survives the chain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from localspec.drafters.base import Distribution as DistributionLike
from localspec.records import SamplerSettings

Row = NDArray[np.float32]

# purposes of random numbers
TARGET, ACCEPT, RESIDUAL, DRAFT, AUDIT = range(5)
BLOCK = 64


def uniform(seed: int, index: int, purpose: int) -> float:
    """A number in [0, 1) that depends on nothing but (seed, token index, purpose).

    So the token at an index draws the baseline's own number whatever was drafted before it.
    """
    key = b"%d,%d,%d" % (seed, index, purpose)
    return (int.from_bytes(blake2b(key, digest_size=8).digest()) >> 11) * 2.0**-53


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """Probabilities ``p`` (float64, sum 1) of token ``ids`` (ascending); all others have none.

    Ascending ids, so that near-equal logits in another order do not move the inverse transform.
    """

    ids: NDArray[np.int64]
    p: NDArray[np.float64]

    @property
    def top(self) -> float:
        return float(self.p.max())

    def probability(self, token: int) -> float:
        i = int(self.ids.searchsorted(token))
        return float(self.p[i]) if i < len(self.ids) and self.ids[i] == token else 0.0

    def draw(self, u: float) -> int:
        """Inverse transform of ``u`` in [0, 1)."""
        cumulative = self.p.cumsum()
        i = int(cumulative.searchsorted(u * cumulative[-1], side="right"))
        return int(self.ids[min(i, len(self.ids) - 1)])

    def excess_over(self, q: Distribution) -> NDArray[np.float64]:
        """max(0, p - q) for each of ``ids``: the residual, not normalised; its sum is beta."""
        at = np.minimum(q.ids.searchsorted(self.ids), len(q.ids) - 1)
        other = np.where(q.ids[at] == self.ids, q.p[at], 0.0)
        excess: NDArray[np.float64] = np.maximum(self.p - other, 0.0)
        return excess


def top_k_ids(row: Row, k: int) -> NDArray[np.int64]:
    """Ids of the ``k`` largest entries, largest first, ties by lower id; exact.

    Two stages: the k-th largest block maximum bounds the k-th largest entry from below, so only the
    few entries above it need sorting (65 us instead of 390 us at 49k, ENGINE_NOTES section 3).
    """
    n = len(row)
    if k < n // BLOCK:
        whole = n - n % BLOCK
        maxima = row[:whole].reshape(-1, BLOCK).max(axis=1)
        bound = np.partition(maxima, len(maxima) - k)[len(maxima) - k]
        candidates = np.flatnonzero(row >= bound)
    else:
        candidates = np.arange(n)
    order = np.argsort(-row[candidates], kind="stable")[:k]
    return candidates[order]


def softmax(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    x = logits.astype(np.float64)
    x -= x.max()
    np.exp(x, out=x)
    x /= x.sum()
    return x


class Sampler:
    """Turns logit rows into distributions and tokens for one generation.

    ``n_prompt`` is the length of the prompt, so that generated indices count from 0. ``banned`` ids
    are never sampled (the end-of-generation tokens under ``ignore_eos``).
    """

    def __init__(
        self, settings: SamplerSettings, n_prompt: int, banned: Iterable[int] = ()
    ) -> None:
        self.settings = settings
        self.greedy = settings.temperature <= 0
        self.n_prompt = n_prompt
        self._banned_set = frozenset(banned)
        self._banned = np.fromiter(sorted(self._banned_set), np.int64)
        self._penalised = settings.repeat_last_n != 0 and (
            settings.repeat_penalty != 1
            or settings.presence_penalty != 0
            or settings.frequency_penalty != 0
        )
        self._scratch: Row = np.empty(0, np.float32)

    def index_of(self, tokens: list[int]) -> int:
        return len(tokens) - self.n_prompt

    def argmax(self, row: Row, tokens: list[int]) -> int:
        if self._penalised:
            row = self._with_penalties(row, tokens)
        token = int(row.argmax())
        if token in self._banned_set:
            row[self._banned[self._banned < len(row)]] = -np.inf
            token = int(row.argmax())
        return token

    def sample(self, row: Row, tokens: list[int]) -> int:
        """The target's token after ``tokens``, with the random number of its index."""
        if self.greedy:
            return self.argmax(row, tokens)
        return self.draw(self.distribution(row, tokens), self.index_of(tokens), TARGET)

    def draw(self, distribution: Distribution, index: int, purpose: int) -> int:
        return distribution.draw(uniform(self.settings.seed, index, purpose))

    def draw_draft(self, distribution: DistributionLike, index: int) -> int:
        assert isinstance(distribution, Distribution)
        return self.draw(distribution, index, DRAFT)

    def distribution(self, row: Row, tokens: list[int]) -> Distribution:
        """What survives the chain; at temperature 0 all mass on the argmax."""
        s = self.settings
        if self.greedy:
            return Distribution(np.array([self.argmax(row, tokens)]), np.ones(1))
        if self._penalised:
            row = self._with_penalties(row, tokens)
        if len(self._banned):
            row[self._banned[self._banned < len(row)]] = -np.inf
        if 0 < s.top_k < len(row):
            ids = top_k_ids(row, s.top_k)
        else:
            ids = self._nucleus_candidates(row)
        logits = row[ids].astype(np.float64)
        if s.top_p < 1:
            mass = softmax(logits) if 0 < s.top_k < len(row) else self._full_softmax(row, ids)
            keep = int(mass.cumsum().searchsorted(s.top_p)) + 1
            ids, logits = ids[:keep], logits[:keep]
        if s.min_p > 0:
            keep_mask = logits >= logits[0] + np.log(s.min_p)
            ids, logits = ids[keep_mask], logits[keep_mask]
        p = softmax(logits / s.temperature)
        order = ids.argsort()
        return Distribution(ids[order], p[order])

    def opinion(self, row: Row, tokens: list[int]) -> Distribution:
        """What the chain makes of ``row`` short of taking the argmax at temperature 0."""
        if not self.greedy:
            return self.distribution(row, tokens)
        if self._penalised:
            row = self._with_penalties(row, tokens)
        return Distribution(np.arange(len(row)), softmax(row))

    def _nucleus_candidates(self, row: Row) -> NDArray[np.int64]:
        """Ids, most probable first, that can matter when top-k is off: with min-p those above its
        cut; with top-p those of probability >= (1 - top_p) / n (the others together weigh less
        than 1 - top_p, so the nucleus never reaches them); else all."""
        s = self.settings
        top = float(row.max())
        cut = -np.inf
        if s.min_p > 0 and s.top_p >= 1:
            cut = top + np.log(s.min_p)
        elif s.top_p < 1:
            log_sum = top + np.log(np.exp(row.astype(np.float64) - top).sum())
            cut = log_sum + np.log((1 - s.top_p) / len(row))
        ids = np.flatnonzero(row >= cut) if np.isfinite(cut) else np.arange(len(row))
        return ids[np.argsort(-row[ids], kind="stable")]

    @staticmethod
    def _full_softmax(row: Row, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        x = row.astype(np.float64)
        top = x.max()
        probabilities: NDArray[np.float64] = np.exp(x[ids] - top) / np.exp(x - top).sum()
        return probabilities

    def _with_penalties(self, row: Row, tokens: list[int]) -> Row:
        """A copy of ``row``, penalised for the last ``repeat_last_n`` of ``tokens``."""
        s = self.settings
        if len(self._scratch) != len(row):
            self._scratch = np.empty_like(row)
        out = self._scratch
        out[:] = row
        window = tokens if s.repeat_last_n < 0 else tokens[-s.repeat_last_n :]
        counts = Counter(t for t in window if t < len(row))
        ids = np.fromiter(counts.keys(), np.int64, len(counts))
        times = np.fromiter(counts.values(), np.float32, len(counts))
        x = out[ids]
        x = np.where(x <= 0, x * np.float32(s.repeat_penalty), x / np.float32(s.repeat_penalty))
        out[ids] = x - times * np.float32(s.frequency_penalty) - np.float32(s.presence_penalty)
        return out
