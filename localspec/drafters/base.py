"""The drafter protocol: begin, process, draft, accept, reset (the verbs of llama.cpp's
common/speculative.h), and the draft it hands to the loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


class Distribution(Protocol):
    """A distribution over token ids; what a sampled draft keeps as ``q``."""

    @property
    def top(self) -> float:
        """The largest probability."""

    def probability(self, token: int) -> float: ...


class Sampling(Protocol):
    """What a drafter may ask of the run's sampler (decoding.sampling.Sampler implements it)."""

    @property
    def greedy(self) -> bool: ...

    def argmax(self, row: NDArray[np.float32], tokens: list[int]) -> int:
        """The most probable token of ``row`` after penalties on the path ``tokens``."""

    def distribution(self, row: NDArray[np.float32], tokens: list[int]) -> Distribution: ...

    def draw_draft(self, distribution: Distribution, index: int) -> int:
        """Draw the token for generated index ``index`` with the drafter's own random number."""

    def index_of(self, tokens: list[int]) -> int:
        """The generated index of the token that would follow ``tokens``."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a drafter needs of the target context, declared before any context is built.

    ``outputs``: the most logit rows of one verify batch. ``sequences``: sequence ids for tree
    branches (1: chains only). ``rollback``: False only for the drafter that proposes nothing.
    ``layers``: target layers whose inputs are kept for every token; ``hidden``: the target's last
    hidden states are kept for every token (both are read in ``process`` and ``accept``).
    ``longest``: a draft has no more tokens (is no deeper) than this whatever is asked for; None: no
    such limit.
    """

    outputs: int = 1
    sequences: int = 1
    rollback: bool = False
    layers: tuple[int, ...] = ()
    hidden: bool = False
    longest: int | None = None

    @property
    def reads_target(self) -> bool:
        """Its state comes from the target's hidden states, so it cannot be copied in."""
        return bool(self.layers) or self.hidden


class Draft:
    """A token tree submitted to one verification; its buffers are made once and reused.

    ``tokens[i]`` (int32) with ``parents[i]`` (-1: the last committed token; a parent comes before
    its children). ``n`` nodes are filled. A chain has ``parents[i] == i - 1`` and may carry ``q``:
    for each node the distribution its token was really drawn from. ``q`` None: deterministic.
    ``source`` says who drafted it, where several may (``DrafterSettings.sources``). ``ranks[i]``:
    with a budget of so many nodes or fewer, node i would not have been drafted; of a chain it is i.
    ``chances[i]``: what the drafter itself gave token i after its parent, for people to look at.
    NaN: it does not say (chains of likeliest tokens: ``decoding.scores.Witness`` hears them).
    """

    __slots__ = ("chain", "chances", "n", "parents", "q", "ranks", "source", "tokens")

    def __init__(self, capacity: int) -> None:
        self.tokens = np.zeros(capacity, np.int32)
        self.parents = np.arange(-1, capacity - 1, dtype=np.int32)
        self.ranks = np.arange(capacity, dtype=np.int32)
        self.chances = np.full(capacity, np.nan, np.float32)
        self.n = 0
        self.chain = True
        self.source = 0
        self.q: list[Distribution] | None = None

    def child(self, node: int, token: int) -> int:
        """The child of ``node`` (-1: the root) that carries ``token``, or -1."""
        if self.chain:
            i = node + 1
            return i if i < self.n and self.tokens[i] == token else -1
        for i in range(node + 1, self.n):
            if self.parents[i] == node and self.tokens[i] == token:
                return i
        return -1

    def ranks_of(self, rows: Sequence[int]) -> Sequence[int]:
        """The ranks of the nodes behind the kept ``rows`` of its verification (row 0: the root)."""
        if self.chain:
            return range(len(rows) - 1)
        return [int(self.ranks[row - 1]) for row in rows[1:]]

    def depth(self) -> int:
        """The longest path, in tokens."""
        if self.chain:
            return self.n
        depths = [0] * self.n
        for i in range(self.n):
            parent = self.parents[i]
            depths[i] = 1 + (depths[parent] if parent >= 0 else 0)
        return max(depths, default=0)


@runtime_checkable
class Limited(Protocol):
    """A drafter that may be told to draft less than it could, step by step (adaptive drafts).

    ``limits``: the most that each of its sources may draft in the next step: tokens of a chain,
    nodes of a tree, 0 to leave the source out.
    """

    limits: list[int]


class Drafter(Protocol):
    """One family of speculation. The loop calls, per generation: ``begin``, ``process`` after every
    prefill chunk, then per step ``draft``, (verify), ``accept``.

    ``process``, ``draft`` and ``accept`` may decode, and so raise DecodeAborted; the generation
    ends there. What the drafter then holds is right, if not all there is: ``reusable`` says.
    """

    needs: Needs

    def reusable(self, tokens: Sequence[int], keep: int) -> int:
        """How many of the first ``keep`` prompt ids, which the target holds, need not be decoded
        again for this drafter's sake: ``keep``, unless it reads the target's hidden states."""

    def begin(self, tokens: Sequence[int], keep: int, sampler: Sampling) -> None:
        """A generation starts from prompt ``tokens``; the target holds the first ``keep``."""

    def process(self, tokens: Sequence[int], position: int) -> None:
        """The target decoded the prompt chunk ``tokens`` starting at ``position``; its hidden
        states can be read until this returns, row i belonging to ``tokens[i]``."""

    def draft(self, tokens: list[int], limit: int) -> Draft:
        """Propose at most ``limit`` (depth) tokens after ``tokens``, the committed ids; maybe none.

        ``tokens`` is the loop's own list: a drafter may extend it while drafting (the path for
        penalties) but must leave it as it was.
        """

    def accept(self, tokens: list[int], rows: Sequence[int]) -> None:
        """The last draft was verified and ``tokens`` is committed now; the target holds
        ``tokens[:-1]``. Roll back own state to that.

        ``rows`` are the rows of the target's last batch that were kept, one for each of the
        ``len(rows)`` ids ``tokens[-1 - len(rows) : -1]``: the token before the draft, then the
        accepted ones. Their hidden states can be read until this returns. ``rows`` is empty when
        the step was cancelled.
        """

    def reset(self) -> None:
        """Forget everything (cleared memory)."""

    def close(self) -> None:
        """Free what the drafter owns."""


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading ids ``a`` and ``b`` share."""
    n = min(len(a), len(b))
    for i in range(n):
        if a[i] != b[i]:
            return i
    return n


def top_probability(row: NDArray[np.float32], scratch: NDArray[np.float32]) -> float:
    """max softmax(row), over the whole vocabulary; ``scratch`` is as long as ``row``."""
    np.subtract(row, row.max(), out=scratch)
    np.exp(scratch, out=scratch)
    return 1.0 / float(scratch.sum())
