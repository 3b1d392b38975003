"""The runs of a result, paired as its speedups are: what comparisons and the card are made from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

from localspec.bench.rows import IN_NO_FIGURE

Json = dict[str, Any]
Key = tuple[str, str, str, float]
"""A candidate of any result: base, drafter, draft length, temperature."""
Where = tuple[str, str, str]
"""A prompt of any result: workload, id, and the hash of its tokens."""
Both = tuple[float, float]
"""A figure of one and of another."""


def key_of(it: Json) -> Key:
    """Of a candidate, or of the one whose row it is."""
    return it.get("base", ""), it["drafter"], str(it["n_max"]), it["temperature"]


def rows_of(result: Json, candidate: Json) -> list[Json]:
    """The candidate's runs that have a speed and may be compared."""
    return [
        r
        for r in result["rows"]
        if key_of(r) == key_of(candidate) and r["decode_tps"] and not IN_NO_FIGURE & set(r["flags"])
    ]


def pairs_of(result: Json, candidate: Json, baseline: Json) -> list[tuple[Json, Json]]:
    """Each of the candidate's runs with the baseline's next to it. Of a candidate that was measured
    again, as its speedup is: only those runs."""
    partners = {_place(r): r for r in rows_of(result, baseline)}
    found = [
        (r, partners[_place(r)])
        for r in rows_of(result, candidate)
        if "pairing" not in r["flags"] and _place(r) in partners
    ]
    return [pair for pair in found if pair[0]["phase"] == "confirm"] or found


def speeds_of(result: Json, candidate: Json, baseline: Json) -> Both | None:
    """tok/s of ``baseline`` and of ``candidate`` whose quotient is the speedup: geometric means
    over the prompts of the runs that it is of. None where there are none."""
    pairs = pairs_of(result, candidate, baseline)
    plain = means(result, ((b, math.log(b["decode_tps"])) for _, b in pairs))
    own = means(result, ((r, math.log(r["decode_tps"])) for r, _ in pairs))
    return both(plain, own)


def means(result: Json, found: Iterable[tuple[Json, float]]) -> dict[Where, float]:
    """By prompt, the mean of its rows' values."""
    hashes = {(p["workload"], p["id"]): p["sha256"] for p in result["prompts"]}
    by_prompt: dict[Where, list[float]] = {}
    for row, value in found:
        place = row["workload"], row["prompt"]
        if place in hashes:  # not of one that --quick had no time for
            by_prompt.setdefault((*place, hashes[place]), []).append(value)
    return {where: fmean(values) for where, values in by_prompt.items()}


def both(before: Mapping[Where, float], after: Mapping[Where, float]) -> Both | None:
    """The geometric means of what is given as logarithms, over the prompts that both have."""
    common = [w for w in before if w in after]
    if not common:
        return None
    return math.exp(fmean(before[w] for w in common)), math.exp(fmean(after[w] for w in common))


def _place(row: Json) -> tuple[Any, ...]:
    return row.get("sitting", 0), *(row[k] for k in ("phase", "block", "run", "workload", "prompt"))
