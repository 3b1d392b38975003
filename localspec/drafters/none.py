"""The baseline: the drafter that proposes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.drafters.base import Draft, Needs, Sampling


class NoDrafter:
    needs = Needs()

    def __init__(self) -> None:
        self._empty = Draft(0)

    def reusable(self, tokens: Sequence[int], keep: int) -> int:
        return keep

    def begin(self, tokens: Sequence[int], keep: int, sampler: Sampling) -> None:
        pass

    def process(self, tokens: Sequence[int], position: int) -> None:
        pass

    def draft(self, tokens: list[int], limit: int) -> Draft:
        return self._empty

    def accept(self, tokens: list[int], rows: Sequence[int]) -> None:
        pass

    def reset(self) -> None:
        pass

    def close(self) -> None:
        pass
