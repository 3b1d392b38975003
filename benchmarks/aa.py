"""A/A: the baseline against itself, through the bench's own plan, runner and statistics.

Every table has two candidates that are the same thing: a plain context each, no drafter. A verdict
other than "no difference shown" is a false one; at 95 % about one table in twenty may have it.

``python benchmarks/aa.py --tables 20 --tokens 32 --json FILE`` (20 x 17 prompts x 2 runs)
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import demo
from pairs import begin, machine
from peer import GREEDY

from localspec.bench.analysis import analyse
from localspec.bench.plan import Candidate, Plan, context_size
from localspec.bench.runner import Event, Runner
from localspec.bench.sessions import Sessions
from localspec.engine.client import Engine
from localspec.machine import default_threads
from localspec.records import ContextSettings, DrafterSettings

TWIN = "baseline again"


class Twin(Candidate):
    """The baseline as a candidate: measured in its own context, judged like any drafter."""

    __slots__ = ()

    @property
    def is_baseline(self) -> bool:
        return False


def connect() -> Engine:
    engine = Engine()
    engine.load(demo.model())
    return engine


def quiet(_: Event) -> None:
    """The bench's events are of no interest here."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=32, help="tokens generated a run")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--seed", type=int, default=0, help="of the first table's order")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = begin(parser)

    plain = DrafterSettings()
    candidates = (
        Candidate("baseline", "baseline", plain, GREEDY.temperature),
        Twin(TWIN, TWIN, plain, GREEDY.temperature),
    )
    engine = connect()
    prompts = demo.prompts(engine.model, engine.tokenize)
    n_ctx = context_size([len(p.tokens) for p in prompts], options.tokens, 0)
    context = ContextSettings(n_ctx, options.threads)
    sessions = Sessions(engine, connect, context, together=True)
    tables = []
    try:
        for table in range(options.tables):
            plan = Plan(
                prompts,
                candidates,
                context,
                GREEDY,
                max_tokens=options.tokens,
                runs=1,
                order_seed=options.seed + table,
            )
            measured = Runner(plan, sessions, quiet).run()
            if measured.interrupted:
                break
            found = analyse(plan, measured.rows)[TWIN]
            tables.append(asdict(found.decode) | {"verdict": found.verdict})
            print(f"table {table + 1}: {found.verdict}, {found.decode}", flush=True)
    finally:
        sessions.engine.close()
    counts = Counter(t["verdict"] for t in tables)
    kept = counts["no difference shown"] >= 0.95 * len(tables)
    print(
        f"A/A, {len(tables)} tables: {dict(counts)}; wanted no difference shown in 95 %: "
        f"{'kept' if kept else 'MISSED'}"
    )
    if options.json:
        document = {
            "script": "aa",
            "machine": machine(),
            "settings": {"tokens": options.tokens, "threads": options.threads, "n_ctx": n_ctx},
            "verdicts": counts,
            "tables": tables,
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return int(not kept)


if __name__ == "__main__":
    sys.exit(main())
