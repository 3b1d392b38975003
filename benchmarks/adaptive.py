"""Adaptive draft length (``--n-max auto``) against every fixed length and against plain decoding.

All contexts are open in one engine; prompt by prompt each candidate runs once, in an order that
turns from prompt to prompt. For every drafter and workload auto is compared with the fixed length
that was best there (found in the same runs, so the comparison is rather hard on auto), and with
the baseline where that one is no faster than plain decoding.

``python benchmarks/adaptive.py --pairs 16 --drafters draft-model,ngram --json FILE``
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
"""Among draft lengths: plain decoding and adaptive lengths."""
NO_WORSE = 0.97


def main() -> int:
    parser = arguments(__doc__, pairs=16)
    parser.add_argument("--model", default="demo", help="a catalogue name or a path")
    parser.add_argument("--drafters", default="draft-model,ngram,ngram+draft-model")
    parser.add_argument("--lengths", default="1,2,3,5,8", help="fixed lengths to compare with")
    parser.add_argument("--settle", type=float, default=0.1, help="seconds before each run")
    options = begin(parser)
    target = resolve_target(options.model)
    lengths = [int(n) for n in options.lengths.split(",")]
    results: list[Result] = []
    measured: dict[str, Any] = {}
    with Engine() as engine:
        engine.load(target.path)
        prompts = demo.prompts(engine.model, engine.tokenize)
        context = ContextSettings(options.ctx, options.threads)
        engine.open("plain", DrafterSettings(), context)
        for drafter in resolve_drafters(target, options.drafters.split(",")):
            sessions = {PLAIN: "plain"}
            for n in (*lengths, AUTO):
                began = time.perf_counter()
                settings = drafter.settings(n_max="auto" if n == AUTO else n)
                opened = engine.open(f"n={n}", settings, context)
                sessions[n] = opened.session
                if n == AUTO:
                    costs = {k: v for k, v in opened.settings.items() if k.startswith("auto_")}
                    costs["auto_open_s"] = round(time.perf_counter() - began, 2)
                    measured[drafter.name] = costs
            for workload in dict.fromkeys(p.prompt.workload for p in prompts):
                own = [p for p in prompts if p.prompt.workload == workload]
                runs = _run(engine, sessions, own, options)
                results += _compare(f"{drafter.name}, {workload}", runs, lengths)
                print(results[-1].line(), flush=True)
            for n, session in sessions.items():
                if n != PLAIN:
                    engine.close_session(session)
    return report("adaptive", options, results, measured_costs=measured)


def _run(
    engine: Engine, sessions: dict[int, str], prompts: Sequence[Prepared], options: Any
) -> dict[int, list[Generation]]:
    """Generations of each candidate, ``options.pairs`` of them, on the same prompts."""
    runs: dict[int, list[Generation]] = defaultdict(list)
    order = list(sessions)
    for i in range(-1, options.pairs):
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


def _compare(name: str, runs: dict[int, list[Generation]], lengths: Sequence[int]) -> list[Result]:
    speeds = {n: [g.decode_tps or 0.0 for g in made] for n, made in runs.items()}
    means = {n: geometric_mean(s) for n, s in speeds.items()}
    best = max(lengths, key=lambda n: means[n])
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
        "auto's steps by drafted length": {
            n: round(drafted.count(n) / len(drafted), 3) for n in sorted(set(drafted))
        },
        "auto's draft time a step, us": round(1e6 * fmean(s.t_draft for s in steps), 1),
        "same tokens as plain": sum(
            a.tokens == b.tokens for a, b in zip(runs[AUTO], runs[PLAIN], strict=True)
        ),
    }
    found = [
        Result(
            f"{name}: auto / best fixed (n={best})",
            "tok/s",
            speeds[AUTO],
            speeds[best],
            at_least=NO_WORSE,
            notes=notes,
        )
    ]
    if means[best] <= means[PLAIN]:
        plain = Result(
            f"{name}: auto / plain, where drafting does not pay",
            "tok/s",
            speeds[AUTO],
            speeds[PLAIN],
            at_least=NO_WORSE,
        )
        found.append(plain)
    return found


def _label(n: int) -> str:
    return {PLAIN: "plain", AUTO: "auto"}.get(n, str(n))


if __name__ == "__main__":
    sys.exit(main())
