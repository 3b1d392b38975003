"""Plain decode: localspec's loop with the drafter that proposes nothing, against its peers.

1. against a bare loop of ``llama_decode`` alone, in one process, on the same context, fed with the
   ids that the loop produced;
2. the whole engine process against llama-server, greedy, on the same prompts;
3. the loop's overhead (step - draft - verify - rollback) per plain token and per verify step.

Needs the peer (build_peer.sh). ``python benchmarks/plain_decode.py --pairs 30 --json FILE``
"""

from __future__ import annotations

import argparse
import sys
from statistics import fmean, median
from typing import Any

import bare
import demo
from pairs import Result, alternate, arguments, begin, report
from peer import GREEDY, engine_against_server

from localspec.decoding.loop import Listener, Request, Session
from localspec.drafters.none import NoDrafter
from localspec.engine.client import Engine
from localspec.llama import Context, ContextParams, Model
from localspec.llama.context import AbortFlag
from localspec.records import ContextSettings, DrafterSettings, Generation, Step

DRAFTERS = {
    "plain token": DrafterSettings(),
    "verify step, ngram, n_max 4": DrafterSettings("ngram", "ngram", n_max=4),
    "verify step, draft-model, n_max 4": DrafterSettings(
        "draft-model", "demo draft", str(demo.draft()), n_max=4
    ),
}


def against_bare_loop(options: argparse.Namespace) -> Result:
    params = ContextParams(options.ctx, options.threads, flash_attn="on")
    with Model(demo.model()) as model:
        abort = AbortFlag()
        context = Context(model, params, abort)
        session = Session(model, context, NoDrafter(), abort)
        prompts = demo.prompt_ids(
            model.info(), lambda *s: tuple(model.vocab.tokenize_segments(s, bos=True))
        )

        def run(prompt: tuple[int, ...]) -> Generation:
            return session.generate(Request(prompt, GREEDY, options.tokens), Listener())

        # What each prompt generates; it also warms both sides up.
        produced = {prompt: run(prompt).tokens for prompt in prompts[: options.pairs]}
        bare.decode_ids(context.handle, prompts[0], produced[prompts[0]])

        def ours(i: int) -> float:
            return run(prompts[i % len(prompts)]).decode_tps or 0.0

        def theirs(i: int) -> float:
            prompt = prompts[i % len(prompts)]
            return bare.decode_ids(context.handle, prompt, produced[prompt])

        figures = alternate(options.pairs, ours, theirs)
        session.close()
    lengths = [len(tokens) for tokens in produced.values()]
    return Result(
        "plain decode / bare llama_decode loop",
        "tok/s",
        *figures,
        at_least=0.98,
        notes={"tokens a run": f"{min(lengths)} to {max(lengths)}"},
    )


def overheads(options: argparse.Namespace, runs: int = 4) -> dict[str, dict[str, Any]]:
    """Microseconds of a step that are neither draft, verify nor rollback, over ``runs`` prompts."""
    found = {}
    with Engine() as engine:
        engine.load(demo.model())
        context = ContextSettings(options.ctx, options.threads, flash_attn="on")
        prompts = demo.prompt_ids(engine.model, engine.tokenize)
        for name, drafter in DRAFTERS.items():
            engine.open(name, drafter, context)
            made = [
                engine.generate(
                    name, prompt, sampler=GREEDY, max_tokens=options.tokens, record=True
                )
                for prompt in prompts[:runs]
            ]
            wants_draft = drafter.method != "none"
            steps = [s for g in made for s in g.steps if bool(s.drafted) == wants_draft]
            if steps:
                found[name] = {
                    "steps": len(steps),
                    "median us": round(median(map(_overhead_us, steps)), 1),
                    "mean us": round(fmean(map(_overhead_us, steps)), 1),
                    "step, median ms": round(1e3 * median(s.t_step for s in steps), 2),
                }
            engine.close_session(name)
    return found


def _overhead_us(step: Step) -> float:
    return 1e6 * (step.t_step - step.t_draft - step.t_verify - step.t_rollback)


def main() -> int:
    options = begin(arguments(__doc__))
    results = [
        against_bare_loop(options),
        engine_against_server(
            options, "plain decode / llama-server", DrafterSettings(), at_least=0.97
        ),
    ]
    return report("plain_decode", options, results, overhead=overheads(options))


if __name__ == "__main__":
    sys.exit(main())
