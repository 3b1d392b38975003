"""Adaptive drafts (``--n-max auto``, ``--tree auto``) against fixed sizes and plain decoding.

All contexts are open in one engine; prompt by prompt each candidate runs once, in an order that
turns from prompt to prompt. For every drafter and workload auto is compared with the fixed size
that was best there (found in the same runs, so the comparison is rather hard on auto), and with
plain decoding; where no fixed size beats that, auto must not be slower than it either.

    python benchmarks/adaptive.py --drafters draft-model --lengths 1,2,3,5,8 --pairs 16 --json FILE
    python benchmarks/adaptive.py --drafters dflash --tree 1,3,7,15 --depth 7 --pairs 16 --json FILE
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, geometric_mean
from typing import Any

import demo
from pairs import Result, arguments, begin, report
from peer import GREEDY

from localspec.bench.plan import Prepared
from localspec.catalog import resolve_drafters, resolve_target
from localspec.engine.client import Engine
from localspec.records import ContextSettings, DrafterSettings, Generation

PLAIN, AUTO = 0, -1
"""Among draft sizes: plain decoding and adaptive ones."""
ENOUGH = 10
"""Pairs below which ``--minutes`` does not end a comparison."""
NO_WORSE = 0.97


def main() -> int:
    parser = arguments(__doc__, pairs=16)
    parser.add_argument("--model", default="demo", help="a catalogue name or a path")
    parser.add_argument("--drafters", default="draft-model,ngram,ngram+draft-model")
    parser.add_argument("--lengths", default="1,2,3,5,8", help="fixed lengths to compare with")
    parser.add_argument("--tree", default="", help="compare trees: fixed nodes to compare with")
    parser.add_argument("--depth", type=int, default=8, help="how deep a tree may be")
    parser.add_argument("--workloads", default="chat8,code9")
    parser.add_argument(
        "--minutes", type=float, help=f"for each comparison; it then ends, after {ENOUGH} pairs"
    )
    parser.add_argument("--settle", type=float, default=0.1, help="seconds before each run")
    options = begin(parser)
    target = resolve_target(options.model)
    sizes = [int(n) for n in (options.tree or options.lengths).split(",")]
    results: list[Result] = []
    measured: dict[str, Any] = {}
    with Engine() as engine:
        engine.load(target.path)
        prompts = demo.prompts(engine.model, engine.tokenize)
        context = ContextSettings(options.ctx, options.threads)
        engine.open("plain", DrafterSettings(), context)
        for drafter in resolve_drafters(target, options.drafters.split(",")):
            sessions = {PLAIN: "plain"}
            for n in (*sizes, AUTO):
                began = time.perf_counter()
                size: Any = "auto" if n == AUTO else n
                if options.tree:
                    settings = drafter.settings(n_max=options.depth, tree=size)
                else:
                    settings = drafter.settings(n_max=size)
                opened = engine.open(f"n={n}", settings, context)
                sessions[n] = opened.session
                if n == AUTO:
                    costs = {k: v for k, v in opened.settings.items() if k.startswith("auto_")}
                    costs["auto_open_s"] = round(time.perf_counter() - began, 2)
                    measured[drafter.name] = costs
            for workload in options.workloads.split(","):
                own = [p for p in prompts if p.prompt.workload == workload]
                runs = _run(engine, sessions, own, options)
                name = f"{drafter.name}{' trees' if options.tree else ''}, {workload}"
                for result in _compare(name, runs, sizes):
                    results.append(result)
                    print(result.line(), flush=True)
            for n, session in sessions.items():
                if n != PLAIN:
                    engine.close_session(session)
    return report("adaptive", options, results, measured_costs=measured)


def _run(
    engine: Engine, sessions: dict[int, str], prompts: Sequence[Prepared], options: Any
) -> dict[int, list[Generation]]:
    """Generations of each candidate, ``options.pairs`` of them, on the same prompts."""
    began = time.monotonic()
    runs: dict[int, list[Generation]] = defaultdict(list)
    order = list(sessions)
    for i in range(-1, options.pairs):
        spent = (time.monotonic() - began) / 60
        if options.minutes and i >= ENOUGH and spent > options.minutes:
            break
        for n in order:
            time.sleep(options.settle)
            made = engine.generate(
                sessions[n],
                prompts[i % len(prompts)].tokens,
                sampler=GREEDY,
                max_tokens=options.tokens,
                record=True,
            )
            if i >= 0:  # the first round warms up
                runs[n].append(made)
        order = [*order[1:], order[0]] if i % 2 else order[::-1]
    return runs


def _compare(name: str, runs: dict[int, list[Generation]], sizes: Sequence[int]) -> list[Result]:
    speeds = {n: [g.decode_tps or 0.0 for g in made] for n, made in runs.items()}
    means = {n: geometric_mean(s) for n, s in speeds.items()}
    best = max(sizes, key=lambda n: means[n])
    steps = [s for g in runs[AUTO] for s in g.steps]
    drafted = [s.nodes for s in steps]
    notes = {
        "geometric means, tok/s": {_label(n): round(m, 1) for n, m in means.items()},
        "accept lengths": {
            _label(n): round(
                sum(g.counts.decode_tokens for g in made)
                / sum(g.counts.target_calls for g in made),
                2,
            )
            for n, made in runs.items()
        },
        "auto's steps by what was drafted": {
            n: round(drafted.count(n) / len(drafted), 3) for n in sorted(set(drafted))
        },
        "auto's draft time a step, us": round(1e6 * fmean(s.t_draft for s in steps), 1),
        "same tokens as plain": sum(
            a.tokens == b.tokens for a, b in zip(runs[AUTO], runs[PLAIN], strict=True)
        ),
    }
    pays = means[best] > means[PLAIN]
    return [
        Result(
            f"{name}: auto / best fixed ({best})",
            "tok/s",
            speeds[AUTO],
            speeds[best],
            at_least=NO_WORSE,
            notes=notes,
        ),
        Result(
            f"{name}: auto / plain" + ("" if pays else ", where no fixed size pays"),
            "tok/s",
            speeds[AUTO],
            speeds[PLAIN],
            at_least=None if pays else NO_WORSE,
        ),
    ]


def _label(n: int) -> str:
    return {PLAIN: "plain", AUTO: "auto"}.get(n, str(n))


if __name__ == "__main__":
    sys.exit(main())
