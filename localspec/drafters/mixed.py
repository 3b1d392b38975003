"""An n-gram drafter first, another behind it (llama.cpp's comma list of speculation types).

What the text already holds costs nothing to draft; where it holds nothing that fits, the other
drafter is asked. Which of the two drafts depends on committed tokens alone, so the output is as
exact as that of either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from localspec.drafters.base import Draft, Drafter, Limited, Sampling


class MixedDrafter:
    """Owns both drafters. Both follow every step, whoever drafted it: the target's hidden states
    are there only once, and a draft model decodes what it missed when it is next asked.

    ``limits``: the most that each may draft a step (base.Limited).
    """

    def __init__(self, first: Drafter, behind: Drafter) -> None:
        self._first, self._behind = first, behind
        self._drafters = (first, behind)
        self._none = Draft(0)
        self.needs = replace(
            behind.needs,
            outputs=max(first.needs.outputs, behind.needs.outputs),
            sequences=max(first.needs.sequences, behind.needs.sequences),
            rollback=True,
        )
        self.limits = [first.needs.outputs - 1, behind.needs.outputs - 1]

    def reusable(self, tokens: Sequence[int], keep: int) -> int:
        return self._behind.reusable(tokens, self._first.reusable(tokens, keep))

    def begin(self, tokens: Sequence[int], keep: int, sampler: Sampling) -> None:
        self._first.begin(tokens, keep, sampler)
        self._behind.begin(tokens, keep, sampler)

    def process(self, tokens: Sequence[int], position: int) -> None:
        self._first.process(tokens, position)
        self._behind.process(tokens, position)

    def draft(self, tokens: list[int], limit: int) -> Draft:
        for source, drafter in enumerate(self._drafters):
            most = self.limits[source]
            if drafter.needs.sequences > 1:  # nodes, and ``limit`` is their depth
                assert isinstance(drafter, Limited)
                drafter.limits[0], most = most, limit if most else 0
            most = min(limit, most)
            if most < 1:
                continue
            draft = drafter.draft(tokens, most)
            if draft.n:
                draft.source = source
                return draft
        return self._none

    def accept(self, tokens: list[int], rows: Sequence[int]) -> None:
        self._first.accept(tokens, rows)
        self._behind.accept(tokens, rows)

    def reset(self) -> None:
        self._first.reset()
        self._behind.reset()

    def close(self) -> None:
        self._first.close()
        self._behind.close()
