"""About how long a benchmark will take, before there is any speed of its own: by the last one of
the same target on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from localspec import machine
from localspec.bench import history
from localspec.bench.plan import TOKENS, Candidate
from localspec.bench.prepare import runs_of
from localspec.bench.runner import QUICK_SECONDS
from localspec.store import Store

if TYPE_CHECKING:
    from localspec.bench.command import Selection

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Foreseen:
    """``runs`` in all. ``seconds`` None: nothing was measured that tells. ``since``: when that was
    measured, seconds since the epoch; None where --quick itself sets the time."""

    prompts: int
    candidates: int
    runs: int
    seconds: float | None = None
    since: float | None = None


def foresee(selection: Selection, store: Store | None = None) -> Foreseen:
    options = selection.options
    all_prompts = [p for w in selection.workloads for p in w.prompts]
    prompts, each = len(all_prompts), runs_of(options, all_prompts)
    candidates = len(selection.candidates)
    found = Foreseen(prompts, candidates, prompts * candidates * each)
    if options.quick:
        return Foreseen(prompts, candidates, found.runs, QUICK_SECONDS)
    store = store or Store()
    cpu = machine.describe()["cpu"]
    for past in history.past(store=store):
        if past.origin != "bench":  # few candidates have a speed in it
            continue
        if past.target != selection.target.name or past.machine != cpu or not past.baseline_tps:
            continue
        result = store.bench(past.id)
        if result is None or result["target"]["file"] != str(selection.target.path):
            continue
        tokens = options.max_tokens or TOKENS
        seconds = [_run_seconds(result, c, tokens) for c in selection.candidates]
        return Foreseen(prompts, candidates, found.runs, fmean(seconds) * found.runs, past.created)
    return found


def _run_seconds(result: Json, candidate: Candidate, max_tokens: int) -> float:
    """A run's time to first token and its decoding; of a candidate that was not in the result, the
    baseline's."""
    drafter = candidate.drafter
    wanted = candidate.base.name, drafter.name, drafter.draft_length
    known = {
        (c.get("base", ""), c["drafter"], c["n_max"]): c
        for c in result["candidates"]
        if c["decode_tps"]
    }
    plain = next(c for c in known.values() if c["method"] == "none")
    c = known.get(wanted, plain)
    same = max_tokens == result["settings"]["max_tokens"]
    tokens = c["tokens"] / c["runs"] if same else max_tokens
    return float(c["ttft_ms"] / 1e3 + tokens / c["decode_tps"])
