"""Past benchmarks: every result is kept, listed by what it says, and found again by its number."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from localspec.bench.report import SCHEMA
from localspec.bench.table import contenders, label, name
from localspec.errors import StoreError, UsageError
from localspec.paths import written
from localspec.store import KeptBench, Store
from localspec.units import shortened

Json = dict[str, Any]
LAST = "last"
NOTHING_NEW = "No run came to its end: nothing was measured."
MOST_DIGITS = 18
"""Of a number; SQLite has none of more than 19."""
KEYS = {"schema", "candidates", "rows", "prompts"}
"""By which a result is known."""


@dataclass(frozen=True, slots=True)
class Past:
    """A line of the history. ``best``: the candidate that the result recommends, else the one with
    the greatest speedup; None where no drafter was measured."""

    id: int
    created: float
    target: str
    quant: str
    status: str
    quick: bool
    prompts: int
    workloads: tuple[str, ...]
    drafters: tuple[str, ...]
    baseline_tps: float | None
    best: Json | None
    machine: str
    origin: str = "bench"

    def matches(self, words: Iterable[str]) -> bool:
        """Do all words occur in it? A number is its number, too."""
        best = self.best or {}
        said = (self.target, self.quant, self.status, self.machine, self.origin)
        named = (
            "quick" if self.quick else "",
            *self.workloads,
            *self.drafters,
            str(best.get("verdict") or ""),
            self.day,
        )
        text = " ".join((*said, *named)).lower()
        return all(w.lower() in text or w == str(self.id) for w in words)

    @property
    def day(self) -> str:
        """ "2026-11-29 19:24", in local time."""
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(self.created))


def keep(result: Json, store: Store | None = None) -> int:
    """Keep a result, in the place of the one that it goes on with; returns its number. Raises
    ``StoreError``."""
    store = store or Store()
    target, part = result["target"]["name"], _part_of(result, store)
    return store.keep_bench(_time(result["created"]), target, _summary(result), result, part)


def has_new(result: Json) -> bool:
    """Was a run finished in this sitting? One that was not stopped has come to its end."""
    sitting = len(result["resumed"] or ())
    return result["status"] != "interrupted" or any(
        row["sitting"] == sitting and "cancelled" not in row["flags"] for row in result["rows"]
    )


def _part_of(result: Json, store: Store) -> int | None:
    """The number of the interrupted one that has the sittings which ``result`` goes on with."""
    if not (before := result.get("resumed")):
        return None
    for kept in store.benches():
        if kept.summary["status"] == "interrupted" and kept.created == _time(before[-1]["created"]):
            section = (store.bench(kept.id) or {}).get("resume") or {}
            if section.get("sittings") == before:
                return kept.id
    return None


def _time(created: str) -> float:
    return datetime.fromisoformat(created).timestamp()


def check(store: Store | None = None) -> None:
    """Raise ``StoreError`` where a result could not be kept, before any time is spent on measuring
    it."""
    try:
        (store or Store()).check_benches()
    except StoreError as error:
        hint = f"{error.hint} With --no-save nothing is kept, and it is not needed.".strip()
        raise type(error)(error.message, hint) from error


def past(words: Sequence[str] = (), store: Store | None = None) -> list[Past]:
    """The history, the latest first; only what has all ``words`` in it."""
    found = (_past(kept) for kept in (store or Store()).benches())
    return [p for p in found if p.matches(words)]


def read(which: str, store: Store | None = None) -> Json:
    """A result by its number in the history, by "last", or by the file that --json wrote.

    Raises ``UsageError`` where there is none.
    """
    store = store or Store()
    if which == LAST or which.isdecimal():
        found = past(store=store)[:1] if which == LAST else []
        number = found[0].id if found else None
        if which != LAST and len(which) <= MOST_DIGITS:
            number = int(which)
        result = store.bench(number) if number is not None else None
        if result is None:
            what = (
                "The history is empty."
                if which == LAST
                else f"No benchmark has number {shortened(which, 40)}."
            )
            raise UsageError(what, "See `localspec history` for what there is.")
        return result
    return _from_file(written(which))


def _from_file(path: Path) -> Json:
    hint = "Give a number of `localspec history`, the word last, or a file of bench --json."
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"{path} is no number, and no file that can be read ({error.strerror}).", hint
        ) from None
    except ValueError:
        raise UsageError(f"{path} is no result of localspec bench.", hint) from None
    if not isinstance(result, dict) or not set(result) >= KEYS:
        raise UsageError(f"{path} is no result of localspec bench.", hint)
    if result["schema"] != SCHEMA:
        raise UsageError(
            f"{path} has schema {result['schema']}; this localspec reads {SCHEMA}.",
            "Read it with the version that wrote it.",
        )
    return result


def best(result: Json) -> Json | None:
    """The candidate that answers the question: the winner that was measured again, else the one
    with the greatest speedup (``table.contenders``)."""
    measured = [c for c in contenders(result) if c["speedup"]]
    return max(measured, key=lambda c: (c["confirmed"], c["speedup"]), default=None)


def _summary(result: Json) -> Json:
    top = best(result)
    plain = [c for c in result["candidates"] if c["method"] == "none"]
    return {
        "quant": result["target"]["quant"],
        "status": result["status"],
        "quick": result["settings"]["quick"],
        "prompts": sum(w["prompts"] for w in result["workloads"]),
        "workloads": [w["name"] for w in result["workloads"]],
        "drafters": list(
            dict.fromkeys(label(c) for c in result["candidates"] if c["method"] != "none")
        ),
        "baseline_tps": plain[0]["decode_tps"] if plain else None,
        "best": None
        if top is None
        else {
            "name": name(top),
            **{k: top[k] for k in ("method", "speedup", "speedup_ci", "verdict", "decode_tps")},
            "status": top["status"],
        },
        "machine": result["machine"].get("cpu") or "",
        "origin": result.get("origin", "bench"),
    }


def _past(kept: KeptBench) -> Past:
    said = kept.summary
    return Past(
        id=kept.id,
        created=kept.created,
        target=kept.target,
        quant=said["quant"],
        status=said["status"],
        quick=said["quick"],
        prompts=said["prompts"],
        workloads=tuple(said["workloads"]),
        drafters=tuple(said["drafters"]),
        baseline_tps=said["baseline_tps"],
        best=said["best"],
        machine=said["machine"],
        origin=said.get("origin", "bench"),
    )
