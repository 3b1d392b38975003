"""Do the tokens of sampled drafts fit the distributions that they should come from (DESIGN section
6)?

Each token's place in its own distribution (the randomised probability integral transform, from the
least likely token on: decoding.replay) is uniform on [0, 1] and independent of the others if
acceptance is exact, whatever the distributions are, so all tokens of ordinary runs count. Two tests
share the places: Kolmogorov-Smirnov sees what is wrong with many tokens by a little; the smallest
place sees what is wrong with few by a lot, as a token that was hardly possible, which no test of
the whole sees once in hundreds. What they cannot see: a fault that leaves likely and unlikely
tokens as frequent as they should be, or a small one on few tokens; the exact tests of the joint
distribution are for that (tests/decoding/test_exactness.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 1e-4
"""A misfit is an accusation: of exact drafters one measurement in ten thousand is accused."""


@dataclass(frozen=True, slots=True)
class Fit:
    """``uniform``: Kolmogorov-Smirnov's p-value; ``smallest``: the probability of a place as small
    as the smallest one among so many."""

    tokens: int
    uniform: float
    smallest: float

    @property
    def p_value(self) -> float:
        """Of both tests (Bonferroni)."""
        return min(1.0, 2 * min(self.uniform, self.smallest))

    @property
    def fits(self) -> bool:
        return self.p_value >= LEVEL


def fit(places: Sequence[float]) -> Fit:
    """Test one place or more."""
    from scipy.stats import kstest

    n = len(places)
    smallest = -math.expm1(n * math.log1p(-min(places))) if min(places) < 1 else 1.0
    return Fit(n, float(kstest(places, "uniform").pvalue), smallest)
