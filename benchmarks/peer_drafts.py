"""Draft tokens, step by step, against llama-server's: the same target, drafter, length and prompts.

The server logs its drafts (``-lv 5``, "draft candidate"). Once free-running, and once with forced
acceptance: ``--spec-synth-rates 1,1,0,...`` makes the server keep the first tokens of each draft,
whatever the target says, and here the loop is made to do the same, so that its bookkeeping after
every number of kept tokens is compared too.

Where the two differ by intent they are compared where they agree: a DFlash block is drafted whole
and cut here, and made shorter by llama.cpp, so its --n-max is the block's.

Needs the peer (build_peer.sh).
``python benchmarks/peer_drafts.py --model demo-mtp --drafter mtp --n-max 4 --force 0 2 4``
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence, Set
from pathlib import Path
from typing import cast

import demo
from peer import LlamaServer

import localspec.llama  # noqa: F401  (before numpy)
from localspec.catalog import resolve_drafters, resolve_target
from localspec.decoding import loop
from localspec.decoding.acceptance import Acceptance
from localspec.decoding.sampling import Sampler
from localspec.drafters.base import Draft
from localspec.engine import messages as m
from localspec.engine.host import Host, Pipe
from localspec.llama import Rows
from localspec.llama.context import AbortFlag
from localspec.records import ContextSettings, LoadSettings, SamplerSettings

SPEC_TYPES = {
    "draft-model": "draft-simple",
    "mtp": "draft-mtp",
    "eagle3": "draft-eagle3",
    "dflash": "draft-dflash",
    "dspark": "draft-dspark",
}
_CANDIDATE = re.compile(r"draft candidate\s+(\d), pos\s+(\d+):\s+(\d+) \(\s*([\d.]+)\)")

Candidates = dict[int, float]
"""The likeliest tokens of one drafted position, the drafted one first, with the probabilities that
the server logs."""


class NoPipe:
    """A host in this process has nobody at the other end."""

    def __init__(self) -> None:
        self.abort = AbortFlag()

    def send(self, message: m.Message) -> None:
        pass

    def running(self, request: int | None) -> None:
        self.abort.clear()


def drafts_of(log: str) -> list[list[Candidates]]:
    """The drafts in the server's log: each starts at a lower position than the line before."""
    found: list[list[Candidates]] = []
    last = 1 << 30
    for match in _CANDIDATE.finditer(log):
        rank, position, token = int(match[1]), int(match[2]), int(match[3])
        if rank == 0:
            if position <= last:
                found.append([])
            found[-1].append({})
            last = position
        found[-1][-1][token] = float(match[4])
    return found


def keep_first(n: int):
    """An acceptance that keeps the first ``n`` drafted tokens, as llama-server's synthetic one."""

    def accept(
        draft: Draft,
        rows: Rows,
        sampler: Sampler,
        tokens: list[int],
        eog: Set[int],
        result: Acceptance,
    ) -> None:
        result.accepted, result.node = 0, -1
        while result.accepted < min(n, draft.n):
            token = int(draft.tokens[result.accepted])
            if token in eog:
                break
            tokens.append(token)
            result.node = result.accepted
            result.accepted += 1
        tokens.append(sampler.sample(rows[result.accepted], tokens))

    return accept


def compare(
    ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[Candidates]]
) -> tuple[int, str]:
    """(equal steps, the first difference). Ours end with an end of generation, and the last of
    either with the budget: what only one of them has is not compared."""
    for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        for j, (token, candidates) in enumerate(zip(a, b, strict=False)):
            their_token = next(iter(candidates))
            if token != their_token:
                p = candidates.get(token)
                ours_there = f"{p:.3f}" if p is not None else "not among their first"
                return i, (
                    f"step {i}, token {j}: {token} (there {ours_there}) against {their_token} "
                    f"({candidates[their_token]:.3f})"
                )
    return min(len(ours), len(theirs)), ""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--model", default="demo-mtp")
    parser.add_argument("--drafter", default="auto", help="a name of the target's, or a GGUF")
    parser.add_argument("--n-max", type=int, default=4)
    parser.add_argument(
        "--force", type=int, nargs="*", default=[], help="tokens kept of each draft"
    )
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--ctx", type=int, default=1024)
    parser.add_argument("--peer", type=Path, default=Path("/tmp/peer/bin"), help="its programs")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    target = resolve_target(options.model)
    (spec,) = resolve_drafters(target, [options.drafter])
    settings = spec.settings(n_max=options.n_max, p_min=0.0)
    host = Host(cast(Pipe, NoPipe()))
    loaded = host.answer(m.Load(1, str(target.path), LoadSettings()))
    assert isinstance(loaded, m.Loaded)
    context = ContextSettings(options.ctx, options.threads, flash_attn="on")
    host.answer(m.Open(2, "s", settings, context))

    def tokenize(*segments: str) -> tuple[int, ...]:
        return tuple(host.model.vocab.tokenize_segments(segments, bos=True))

    prompts = demo.prompt_ids(loaded.model, tokenize)[: options.prompts]
    honest = loop.accept
    results = []
    for forced in [None, *options.force]:
        rates = [] if forced is None else [float(i < forced) for i in range(options.n_max)]
        extra = ["-lv", "5"]
        if rates:
            extra += ["--spec-synth-rates", ",".join(map(str, rates))]
        loop.accept = honest if forced is None else keep_first(forced)
        with LlamaServer(
            options.peer,
            target.path,
            n_ctx=options.ctx,
            threads=options.threads,
            draft=spec.path,
            spec_type=SPEC_TYPES[settings.method],
            n_max=options.n_max,
            extra=extra,
        ) as server:
            for i, prompt in enumerate(prompts):
                before = len(server.log())
                theirs = server.complete(prompt, options.tokens)
                their_drafts = drafts_of(server.log()[before:])
                request = loop.Request(prompt, SamplerSettings(), options.tokens, record=True)
                made = host.session("s").generate(request, loop.Listener())
                equal, difference = compare(made.drafts, their_drafts)
                steps = min(len(made.drafts), len(their_drafts))
                results.append(
                    {
                        "forced": forced,
                        "prompt": i,
                        "equal_steps": equal,
                        "steps": steps,
                        "first_difference": difference,
                        "tokens_equal": made.tokens == theirs.tokens,
                    }
                )
                mode = "free" if forced is None else f"keep {forced}"
                print(
                    f"{settings.method} n_max {options.n_max}, {mode}, prompt {i}: "
                    f"{equal} of {steps} drafts equal, tokens "
                    f"{'equal' if made.tokens == theirs.tokens else 'differ'} "
                    f"({len(made.tokens)} and {len(theirs.tokens)}) {difference}",
                    flush=True,
                )
    loop.accept = honest
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return int(any(r["equal_steps"] < r["steps"] for r in results))


if __name__ == "__main__":
    sys.exit(main())
