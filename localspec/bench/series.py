"""What a result's plots show: speed by draft length, and how far drafts are accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from localspec.bench.table import costs_of, named, whose

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    xs: tuple[int, ...]
    ys: tuple[float, ...]


def baselines(result: Json) -> list[tuple[str, float]]:
    """tok/s of each baseline that was measured, by what to call it."""
    return [
        (named(c, result["candidates"], whose(c)), c["decode_tps"])
        for c in result["candidates"]
        if c["method"] == "none" and c["decode_tps"]
    ]


def speed_by_length(result: Json) -> list[Series]:
    """tok/s by draft length, a series for each drafter that was measured at fixed lengths."""
    found: dict[str, list[tuple[int, float]]] = {}
    for c in _measured(result):
        if isinstance(c["n_max"], int) and c["decode_tps"]:
            found.setdefault(named(c, result["candidates"], whose(c)), []).append(
                (c["n_max"], c["decode_tps"])
            )
    return [_series(who, points) for who, points in found.items()]


def speed_of_adaptive(result: Json) -> list[tuple[str, float]]:
    """tok/s of candidates that choose the length themselves: they have no place on that axis."""
    return [
        (named(c, result["candidates"]), c["decode_tps"])
        for c in _measured(result)
        if not isinstance(c["n_max"], int) and c["decode_tps"]
    ]


def reach_by_position(result: Json) -> list[Series]:
    """Percent of the drafts that were accepted up to each position: of each drafter the candidate
    with the longest drafts."""
    longest: dict[str, Json] = {}
    for c in _measured(result):
        who = named(c, result["candidates"], whose(c))
        if len(c["reach_rate"]) > len(longest.get(who, {"reach_rate": ()})["reach_rate"]):
            longest[who] = c
    return [
        _series(
            named(c, result["candidates"]),
            [(i, 100 * rate) for i, rate in enumerate(c["reach_rate"], 1)],
        )
        for c in longest.values()
    ]


def predicted_by_length(result: Json) -> list[tuple[Series, Series]]:
    """tok/s by draft length of each cost model: predicted of all lengths, measured of some."""
    found = []
    for model in result.get("cost_model") or ():
        who = named(model, result["candidates"], costs_of(model))
        lengths = [p for p in model["lengths"] if p["n"]]
        predicted = [(p["n"], p["predicted_tps"]) for p in lengths]
        measured = [(p["n"], p["measured_tps"]) for p in lengths if p["measured_tps"]]
        found.append((_series(who, predicted), _series(who, measured)))
    return found


def _measured(result: Json) -> list[Json]:
    return [c for c in result["candidates"] if c["method"] != "none" and c["runs"]]


def _series(who: str, points: Sequence[tuple[int, float]]) -> Series:
    ordered = sorted(points)
    return Series(who, tuple(x for x, _ in ordered), tuple(y for _, y in ordered))
