"""The drafter protocol: begin, process, draft, accept, reset (the verbs of llama.cpp's common/speculative.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from localspec.decoding.sampling import Distribution


@dataclass(frozen=True, slots=True)
class Needs:
    """What a drafter needs of the target context, declared before any context is built.

    ``sequences``: sequence ids for tree branches (1: chains only). ``recurrent_snapshots``: states
    kept for rollback (n_rs_seq). ``outputs``: the most logit rows of one verify batch.
    ``rollback``: False only for the drafter that proposes nothing.
    """

    outputs: int = 1
    sequences: int = 1
    recurrent_snapshots: int = 0
    rollback: bool = False


class Draft:
    """A token tree submitted to one verification; buffers are made once and reused.

    ``tokens[i]`` (int32) with ``parents[i]`` (-1: the last committed token; a parent comes before
    its children). ``n`` nodes are filled. A chain has ``parents[i] == i - 1`` and may carry ``q``:
    for each node the distribution its token was really drawn from. ``q`` None: deterministic.
    """

    __slots__ = ("chain", "n", "parents", "q", "tokens")

    def __init__(self, capacity: int) -> None:
        self.tokens = np.zeros(capacity, np.int32)
        self.parents = np.arange(-1, capacity - 1, dtype=np.int32)
        self.n = 0
        self.chain = True
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


class Drafter(Protocol):
    """One family of speculation. The loop calls, per generation: ``begin``, ``process`` after every
    prefill chunk, then per step ``draft``, (verify), ``accept``."""

    needs: Needs

    def begin(self, tokens: Sequence[int], keep: int, sampler: object) -> None:
        """A generation starts from prompt ``tokens``, of which the target already holds ``keep``."""

    def process(self, tokens: Sequence[int], position: int) -> None:
        """The target decoded prompt ``tokens`` starting at ``position`` (a prefill chunk)."""

    def draft(self, tokens: list[int], limit: int) -> Draft:
        """Propose at most ``limit`` (depth) tokens after ``tokens``, the committed ids; maybe none."""

    def accept(self, tokens: list[int], emitted: int, accepted: int) -> None:
        """The last draft was verified: the last ``emitted`` of ``tokens`` are new, ``accepted`` of
        them were drafted. Roll back own state to ``tokens[:-1]``."""

    def reset(self) -> None:
        """Forget everything (cleared memory)."""

    def close(self) -> None:
        """Free what the drafter owns."""
