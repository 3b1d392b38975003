"""Two results against each other: what became faster or slower, and what else is not the same.

The same prompts are paired, as a candidate is with its baseline. Decode speed (tok/s) shows what
the machine, the build or the settings changed; it also holds the heat and load of two different
hours. The speedup over the own baseline, measured in the same minutes, is free of these.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.bench.pairs import Both, Key, Where, both, key_of, means, pairs_of, rows_of
from localspec.bench.statistics import Comparison, Pair, Verdict, compare, verdicts
from localspec.bench.table import name, named

Json = dict[str, Any]

MACHINE = {
    "cpu": "processor",
    "cores": "cores",
    "logical_cpus": "logical processors",
    "memory_bytes": "bytes of memory",
    "os": "operating system",
}
"""What makes a machine another one."""
SETTINGS_ASIDE = {"order_seed", "seed", "temperatures"}
"""Settings that change no speed, or that candidates have of their own."""


@dataclass(frozen=True, slots=True)
class Change:
    """A candidate of both results. ``tps`` and ``speedup`` compare the second with the first: 1.05
    is 5 % more; ``tps_of`` and ``speedup_of`` are what they compare, of the first and the second:
    geometric means over the same prompts, None without any. The baseline has no speedup to
    compare."""

    before: Json
    after: Json
    tps: Comparison
    speedup: Comparison
    tps_of: Both | None = None
    speedup_of: Both | None = None
    tps_verdict: Verdict | None = None
    speedup_verdict: Verdict | None = None

    @property
    def _judged(self) -> tuple[tuple[str, Comparison, Verdict | None], ...]:
        return (
            ("tok/s", self.tps, self.tps_verdict),
            ("speedup", self.speedup, self.speedup_verdict),
        )

    @property
    def may_be_chance(self) -> bool:
        """An interval lies to one side, and yet no change is shown: among so many comparisons such
        an interval is no proof (Holm)."""
        return any(
            verdict not in ("slower", "faster")
            and found.interval is not None
            and not found.interval[0] <= 1 <= found.interval[1]
            for _, found, verdict in self._judged
        )

    def regressions(self, threshold: float = 0.0) -> list[str]:
        """What is shown to be slower, and by more than ``threshold`` (0.05 is 5 %): "tok/s",
        "speedup"."""
        return [
            what
            for what, found, verdict in self._judged
            if verdict == "slower" and found.speedup is not None and found.speedup < 1 - threshold
        ]


@dataclass(frozen=True, slots=True)
class Compared:
    """``apart``: why their speeds are not comparable (machine, files). ``versions`` and
    ``settings``: what else is not the same, which may be just what is to be compared. ``missing``:
    candidates of one of the two alone. ``prompts``: how many both have."""

    changes: tuple[Change, ...]
    apart: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    prompts: int = 0

    @property
    def judged(self) -> bool:
        """Were there prompts enough for a verdict?"""
        return any(c.tps_verdict is not None for c in self.changes)


def compare_results(before: Json, after: Json) -> Compared:
    """Pair the candidates, and of each the prompts, that both results have."""
    old, new = _by_key(before), _by_key(after)
    tps: dict[Key, Comparison] = {}
    speedups: dict[Key, Comparison] = {}
    of: dict[Key, tuple[Both | None, Both | None]] = {}
    prompts: set[Where] = set()
    for key in (k for k in old if k in new):
        a, b = _speeds(before, old[key]), _speeds(after, new[key])
        prompts |= a.keys() & b.keys()
        tps[key] = _paired(a, b)
        of[key] = both(a, b), None
        if old[key]["method"] != "none":
            gained, then = _speedups(before, old[key]), _speedups(after, new[key])
            speedups[key] = _paired(gained, then)
            of[key] = of[key][0], both(gained, then)
    of_tps, of_speedup = verdicts(tps), verdicts(speedups)
    return Compared(
        changes=tuple(
            Change(
                old[key],
                new[key],
                tps[key],
                speedups.get(key, Comparison()),
                *of[key],
                of_tps[key],
                of_speedup.get(key),
            )
            for key in tps
        ),
        apart=tuple(_apart(before, after, [(old[k], new[k]) for k in tps])),
        versions=tuple(_versions(before, after)),
        settings=tuple(_settings(before, after)),
        missing=tuple(_missing(before, after)),
        prompts=len(prompts),
    )


def record(compared: Compared) -> Json:
    """For ``--json``; absent figures are null."""

    def figures(found: Comparison, verdict: Verdict | None) -> Json:
        interval = None if found.interval is None else list(found.interval)
        return {"ratio": found.speedup, "ci": interval, "verdict": verdict}

    return {
        "comparable": not compared.apart,
        "apart": list(compared.apart),
        "versions": list(compared.versions),
        "settings": list(compared.settings),
        "missing": list(compared.missing),
        "prompts": compared.prompts,
        "candidates": [
            {
                "base": c.after.get("base", ""),
                **{k: c.after[k] for k in ("drafter", "method", "n_max", "temperature")},
                "prompts": c.tps.prompts,
                "decode_tps": list(c.tps_of or (None, None)),
                "decode_tps_change": figures(c.tps, c.tps_verdict),
                "speedup": list(c.speedup_of or (None, None)),
                "speedup_change": figures(c.speedup, c.speedup_verdict),
                "regressions": c.regressions(),
            }
            for c in compared.changes
        ],
    }


# ---- pairs ------------------------------------------------------------------------------------


def _paired(before: Mapping[Where, float], after: Mapping[Where, float]) -> Comparison:
    both = [w for w in before if w in after]
    return compare([Pair(w[0], f"{w[1]} {w[2]}", after[w] - before[w]) for w in both])


def _speeds(result: Json, candidate: Json) -> dict[Where, float]:
    """log tok/s by prompt, the mean of its runs."""
    rows = [r for r in rows_of(result, candidate) if "pairing" not in r["flags"]]
    return means(result, ((r, math.log(r["decode_tps"])) for r in rows))


def _speedups(result: Json, candidate: Json) -> dict[Where, float]:
    """log speedup by prompt, as it stands in the table: each run against the baseline's run next to
    it, and where the candidate was measured again, of those runs."""
    baseline = next(
        c
        for c in result["candidates"]
        if c["method"] == "none"
        and (key_of(c)[0], c["temperature"]) == (key_of(candidate)[0], candidate["temperature"])
    )
    pairs = pairs_of(result, candidate, baseline)
    return means(result, ((r, math.log(r["decode_tps"] / b["decode_tps"])) for r, b in pairs))


def _by_key(result: Json) -> dict[Key, Json]:
    return {key_of(c): c for c in result["candidates"]}


# ---- what is not the same ---------------------------------------------------------------------


def _apart(before: Json, after: Json, both: Iterable[tuple[Json, Json]]) -> list[str]:
    found = []
    a, b = before["machine"], after["machine"]
    for field, words in MACHINE.items():
        if a.get(field) != b.get(field):
            found.append(f"another machine: {words} {a.get(field)}, then {b.get(field)}")
    if other := _other_file(before["target"], after["target"]):
        found.append(f"another target: {other}")
    known = {base["name"]: base for base in before.get("bases", ())}
    for base in after.get("bases", ()):
        if base["name"] in known and (other := _other_file(known[base["name"]], base)):
            found.append(f"another file of {base['name']}: {other}")
    for old, new in both:
        if old.get("file") and (other := _other_file(old, new)):
            found.append(f"another drafter {name(old)}: {other}")
    return list(dict.fromkeys(found))  # once for all temperatures


def _other_file(a: Json, b: Json) -> str | None:
    """How two files differ: by hash where both have one, else by size, else by name."""
    hashes = [str(it["sha256"])[:12] for it in (a, b) if it["sha256"]]
    if len(hashes) == 2:
        return None if a["sha256"] == b["sha256"] else _then("hash", *hashes)
    if a["size_bytes"] != b["size_bytes"]:
        return _then("bytes", a["size_bytes"], b["size_bytes"])
    names = Path(a["file"]).name, Path(b["file"]).name
    return None if names[0] == names[1] else _then("file", *names)


def _versions(before: Json, after: Json) -> list[str]:
    pairs = (
        ("localspec", before["localspec"], after["localspec"]),
        ("llama.cpp", before["build"]["llama_cpp"], after["build"]["llama_cpp"]),
        ("backends", *(", ".join(r["build"]["backends"]) for r in (before, after))),
    )
    return [_then(*pair) for pair in pairs if pair[1] != pair[2]]


def _settings(before: Json, after: Json) -> list[str]:
    a, b = before["settings"], after["settings"]
    return [
        _then(name, a.get(name), b.get(name))
        for name in dict.fromkeys((*a, *b))
        if name not in SETTINGS_ASIDE and a.get(name) != b.get(name)
    ]


def _missing(before: Json, after: Json) -> list[str]:
    found, among = [], [*before["candidates"], *after["candidates"]]
    for one, other, which in ((before, after, "first"), (after, before, "second")):
        known = _by_key(other)
        found += [
            f"{named(c, among)} only in the {which}"
            for k, c in _by_key(one).items()
            if k not in known
        ]
        alone = len(_prompts(one) - _prompts(other))
        if alone:
            found.append(f"{alone} prompt{'' if alone == 1 else 's'} only in the {which}")
    return found


def _prompts(result: Json) -> set[Where]:
    return {(p["workload"], p["id"], p["sha256"]) for p in result["prompts"]}


def _then(what: str, before: object, after: object) -> str:
    return f"{what} {before}, then {after}"
