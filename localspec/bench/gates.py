"""For scripts: when a benchmark's result, or its change since the last one, is a failure."""

from __future__ import annotations

from typing import Any

from localspec.bench import history
from localspec.bench.comparison import Compared, compare_results
from localspec.bench.statistics import FEWEST_PAIRS
from localspec.bench.table import contenders, name, speedup
from localspec.errors import LocalspecError
from localspec.records import BenchOptions
from localspec.store import Store

Json = dict[str, Any]


class GateFailed(LocalspecError):
    """A speed is lower than the command allows."""


def failure(options: BenchOptions, result: Json, store: Store | None = None) -> GateFailed | None:
    """What --fail-below and --fail-on-regression say to a fresh result, not yet in the history."""
    found = []
    if options.fail_below is not None and (said := below(result, options.fail_below)):
        found.append(said)
    if options.fail_on_regression is not None:
        earlier = last_alike(result, store)
        if earlier is not None:
            number, compared = earlier
            if said := regressed(compared, options.fail_on_regression):
                found.append(f"{said} (against benchmark {number})")
    return GateFailed(". ".join(found) + ".") if found else None


def against(result: Json, store: Store | None = None) -> str:
    """What --fail-on-regression compares with: one that had nothing must not look passed."""
    earlier = last_alike(result, store)
    if earlier is None:
        return "--fail-on-regression: the history has no benchmark of the same to compare with."
    return f"--fail-on-regression: compared with benchmark {earlier[0]}."


def below(result: Json, bound: float) -> str | None:
    """Is no drafter (with several bases: no setup, over the reference) shown to reach the speedup
    ``bound``? The lower end of an interval shows it; where a winner was measured again, its own
    alone."""
    drafters = [c for c in map(_worst_depth, contenders(result)) if c["speedup_ci"] is not None]
    again = [c for c in drafters if c["confirmed"]]
    top = max(again or drafters, key=lambda c: c["speedup_ci"][0], default=None)
    if top is None:
        return (
            f"No drafter has an interval that could reach {bound:g}x: give {FEWEST_PAIRS} prompts "
            "or more, or --runs 5 for one prompt"
        )
    if top["speedup_ci"][0] >= bound:
        return None
    return f"{name(top)} is {speedup(top)}: the interval's lower end is under {bound:g}"


def _worst_depth(candidate: Json) -> Json:
    """One prompt at several depths is judged at each of them: the lowest counts."""
    parts = [p for p in candidate["by_workload"].values() if p.get("verdict")]
    if (
        candidate["speedup_ci"] is not None
        or not parts
        or len(parts) < len(candidate["by_workload"])
    ):
        return candidate
    worst = min(parts, key=lambda p: p["speedup_ci"][0])
    return {**candidate, **{k: worst[k] for k in ("speedup", "speedup_ci")}}


def regressed(compared: Compared, threshold: float) -> str | None:
    """What is shown to be slower by more than ``threshold``; that nothing can be shown is a
    failure too, since a script that asks wants to know."""
    if compared.apart:
        return f"The two are not comparable: {'; '.join(compared.apart)}"
    if not compared.judged:
        return f"{compared.prompts} prompts in common are too few to compare by"
    slower = [
        f"{name(change.after)} lost {1 - (found.speedup or 1):.1%} of its {what}"
        for change in compared.changes
        for what in change.regressions(threshold)
        for found in (change.tps if what == "tok/s" else change.speedup,)
    ]
    return "; ".join(slower) or None


def last_alike(result: Json, store: Store | None = None) -> tuple[int, Compared] | None:
    """The latest benchmark of the history that measured the same on the same machine, and what
    changed since; another version of localspec or llama.cpp is no hindrance."""
    store = store or Store()
    for past in history.past(store=store):
        same = (past.target, past.status, past.origin)
        if same != (result["target"]["name"], "complete", "bench"):
            continue
        kept = store.bench(past.id)
        if kept is None:
            continue
        compared = compare_results(kept, result)
        alike = not compared.apart and not compared.settings
        if alike and compared.changes and compared.prompts >= FEWEST_PAIRS:
            return past.id, compared
    return None
