"""``localspec history`` and ``localspec compare``: what was measured before."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from localspec.bench import gates, history
from localspec.bench import report as reports
from localspec.bench import table as tables
from localspec.bench.comparison import compare_results, record
from localspec.bench.console import make_console
from localspec.bench.outputs import write_all
from localspec.bench.past_table import render_comparison, render_history
from localspec.errors import UsageError
from localspec.store import Store


def list_history(words: Sequence[str], limit: int, *, as_json: bool) -> int:
    """Print the latest ``limit`` benchmarks that have all ``words`` in them."""
    found = history.past(words)
    console = make_console()
    if as_json:
        console.out(json.dumps([asdict(p) for p in found[:limit]], indent=1), highlight=False)
    elif found:
        console.print(render_history(found[:limit], console))
        if len(found) > limit:
            make_console(stderr=True).print(f"{len(found) - limit} older ones: see --limit.")
    else:
        what = "The history is empty; `localspec bench` adds to it."
        if words and history.past():
            what = f"No benchmark of the history has {' and '.join(words)} in it"
            what += "; `localspec history` lists what there is."
        make_console(stderr=True).print(what, markup=False)
    return 0


def show(which: str, outputs: dict[str, str]) -> int:
    """Print a past result as it was printed when it was measured, or write it to files."""
    reports.check_writable(outputs)
    result = history.read(which)
    if (failed := write_all(outputs, result)) is not None:
        raise failed
    if not outputs:
        console = make_console()
        console.print(tables.render(result, console))
    return 0


def remove(numbers: Sequence[int]) -> int:
    store = Store()
    there = {kept.id for kept in store.benches()}
    missing = [str(n) for n in numbers if n not in there]
    if missing:
        raise UsageError(
            f"No benchmark has the number {', '.join(missing)}; none was removed.",
            "See `localspec history` for what there is.",
        )
    for number in numbers:
        store.delete_bench(number)
    return 0


def compare(before: str, after: str, threshold: float | None, *, as_json: bool) -> int:
    """Print what changed; with ``threshold`` raise ``GateFailed`` where something is slower."""
    compared = compare_results(history.read(before), history.read(after))
    console = make_console()
    if as_json:
        console.out(json.dumps(record(compared), indent=1, allow_nan=False), highlight=False)
    else:
        console.print(render_comparison(compared, console))
    if threshold is not None and (said := gates.regressed(compared, threshold)):
        raise gates.GateFailed(f"{said}.")
    return 0
