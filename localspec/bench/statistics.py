"""Is a candidate faster than the baseline? Pure functions on paired log ratios (DESIGN section 6).

A pair is one run of a candidate and the baseline's run of the same prompt next to it. Log ratios
are averaged over a prompt's runs; prompts are the sample. Absent results are None, never NaN.
scipy is imported where it is used: only the end of a benchmark needs it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance
from typing import Any, Literal, TypeVar

K = TypeVar("K")
Verdict = Literal["faster", "slower", "no difference shown"]
Method = Literal["t over prompts", "BCa over prompts", "t over runs, this prompt only"]

LEVEL = 0.95
FEWEST_PAIRS = 3
"""Under this many no interval and no verdict: two points say nothing about their own spread."""
SMALLEST_STRATUM = 3
"""Prompts of a workload from which its spread is estimated apart from the others'."""
BOOTSTRAP_FROM = 20
"""Prompts from which BCa is used; under it a nominal 95 % bootstrap covers less (ENGINE_NOTES)."""
RESAMPLES = 9999


@dataclass(frozen=True, slots=True)
class Pair:
    """log(candidate's speed / baseline's speed) of one run of one prompt of one workload."""

    workload: str
    prompt: str
    log_ratio: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """What pairs say: the geometric mean ratio, its 95 % interval and two-sided p-value.

    ``method`` None: too few pairs for an interval. ``prompts`` and ``pairs`` count what there was.
    """

    speedup: float | None = None
    interval: tuple[float, float] | None = None
    p_value: float | None = None
    method: Method | None = None
    prompts: int = 0
    pairs: int = 0


def log_ratio(candidate: float | None, baseline: float | None) -> float | None:
    """log(candidate / baseline), None where either was not measured."""
    if not candidate or not baseline:
        return None
    return math.log(candidate / baseline)


def estimate(pairs: Sequence[Pair]) -> Comparison:
    """The speedup alone, as long as measuring goes on: nobody is to stop it for what it shows."""
    means = [fmean(ratios) for ratios in _by_prompt(pairs).values()]
    if not means:
        return Comparison()
    return Comparison(math.exp(fmean(means)), prompts=len(means), pairs=len(pairs))


def compare(pairs: Sequence[Pair], *, seed: int = 0) -> Comparison:
    """Estimate the speedup that ``pairs`` show. ``seed`` is the bootstrap's."""
    by_prompt = _by_prompt(pairs)
    if not by_prompt:
        return Comparison()
    method: Method
    if len(by_prompt) == 1:
        (runs,) = by_prompt.values()
        strata, method = [runs], "t over runs, this prompt only"
    else:
        by_workload: dict[str, list[float]] = {}
        for (workload, _), ratios in by_prompt.items():
            by_workload.setdefault(workload, []).append(fmean(ratios))
        strata, method = _merge_small(list(by_workload.values())), "t over prompts"
    speedup = math.exp(_stratified_mean(strata))
    point = Comparison(speedup, prompts=len(by_prompt), pairs=len(pairs))
    if sum(map(len, strata)) < FEWEST_PAIRS:
        return point
    found = _bca(strata, seed) if len(by_prompt) >= BOOTSTRAP_FROM else None
    if found is not None:
        method = "BCa over prompts"
    (low, high), p_value = found or _student(strata)
    interval = (math.exp(low), math.exp(high))
    return replace(point, interval=interval, p_value=p_value, method=method)


def _by_prompt(pairs: Sequence[Pair]) -> dict[tuple[str, str], list[float]]:
    by_prompt: dict[tuple[str, str], list[float]] = {}
    for pair in pairs:
        by_prompt.setdefault((pair.workload, pair.prompt), []).append(pair.log_ratio)
    return by_prompt


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given (Holm 1979)."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def verdicts(comparisons: Mapping[K, Comparison]) -> dict[K, Verdict | None]:
    """The verdict on each comparison of one table, Holm-corrected; None where none can be given."""
    testable = {k: c for k, c in comparisons.items() if c.p_value is not None}
    adjusted = dict(zip(testable, holm([c.p_value or 0.0 for c in testable.values()]), strict=True))
    return {k: _verdict(c, adjusted.get(k)) for k, c in comparisons.items()}


def _verdict(comparison: Comparison, p_value: float | None) -> Verdict | None:
    if p_value is None or comparison.speedup is None:
        return None
    if p_value > 1 - LEVEL:
        return "no difference shown"
    return "faster" if comparison.speedup > 1 else "slower"


def _merge_small(strata: list[list[float]]) -> list[list[float]]:
    """Strata of one or two prompts hardly know their own spread: they are pooled, with each other
    and, if that is still so small, with the smallest of the rest."""
    large = [s for s in strata if len(s) >= SMALLEST_STRATUM]
    pooled = [x for s in strata if len(s) < SMALLEST_STRATUM for x in s]
    if not pooled:
        return large
    if len(pooled) >= SMALLEST_STRATUM or not large:
        return [*large, pooled]
    smallest = min(large, key=len)
    return [s + pooled if s is smallest else s for s in large]


def _stratified_mean(strata: Sequence[Sequence[float]]) -> float:
    """The mean over all prompts: strata weighted by their size."""
    return fmean([x for stratum in strata for x in stratum])


def _student(strata: Sequence[Sequence[float]]) -> tuple[tuple[float, float], float]:
    """t interval and p-value of the stratified mean; df by Satterthwaite (1946)."""
    from scipy.stats import t

    total = sum(map(len, strata))
    mean = _stratified_mean(strata)
    parts = [(len(s) / total) ** 2 * variance(s) / len(s) for s in strata]
    error = math.sqrt(sum(parts))
    if error == 0:
        return (mean, mean), 1.0 if mean == 0 else 0.0
    spread = sum(part**2 / (len(s) - 1) for part, s in zip(parts, strata, strict=True))
    df = sum(parts) ** 2 / spread
    reach = float(t.ppf((1 + LEVEL) / 2, df)) * error
    return (mean - reach, mean + reach), float(2 * t.sf(abs(mean) / error, df))


def _bca(strata: Sequence[Sequence[float]], seed: int) -> tuple[tuple[float, float], float] | None:
    """BCa interval of the stratified mean, resampled within strata, and the p-value at which the
    interval would just touch 0. None where the data have no spread to resample."""
    from scipy.stats import bootstrap

    if all(len(set(s)) == 1 for s in strata):
        return None
    total = sum(map(len, strata))
    weights = [len(s) / total for s in strata]

    def statistic(*samples: Any, axis: int) -> Any:
        return sum(w * x.mean(axis=axis) for w, x in zip(weights, samples, strict=True))

    first = bootstrap(
        strata, statistic, n_resamples=RESAMPLES, confidence_level=LEVEL, method="BCa", rng=seed
    )

    def interval(level: float) -> tuple[float, float]:
        again = bootstrap(
            strata,
            statistic,
            n_resamples=0,
            confidence_level=level,
            method="BCa",
            bootstrap_result=first,
        ).confidence_interval
        return float(again.low), float(again.high)

    low, high = float(first.confidence_interval.low), float(first.confidence_interval.high)
    if math.isnan(low) or math.isnan(high):
        return None
    inside, outside = 0.0, 1 - 1 / (RESAMPLES + 1)
    for _ in range(20):  # the widest level whose interval still leaves 0 out
        level = (inside + outside) / 2
        a, b = interval(level)
        if a <= 0 <= b:
            outside = level
        else:
            inside = level
    return (low, high), 1 - outside
