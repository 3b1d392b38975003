"""Draft tokens, step by step, against llama-server's: the same target, drafter, length and prompts.

The server logs its drafts and what it kept of them (``-lv 5``). Once free-running, and once with
forced acceptance: ``--spec-synth-rates 1,1,0,...`` makes it keep the first tokens of each draft,
whatever the target says, so that the bookkeeping after every number of kept tokens is compared too.
Our loop is then led along these runs (follow.py). A parting is a near tie, or it fails.

Where the two differ by intent or nature they are compared where they agree: a DFlash block is
drafted whole and cut here, and made shorter by llama.cpp, so its drafts are as long as the trained
block allows. An n-gram of llama.cpp's is of one length, its copies end with the text, and it looks
up nothing in a text shorter than an n-gram and a draft: only where it drafts ours is compared, with
n-grams of that length.

Needs the peer (build_peer.sh). ``python benchmarks/peer_drafts.py --only mtp eagle3``
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import demo
from follow import (
    NGRAM,
    Candidates,
    Followed,
    Parting,
    ServerRun,
    ServerStep,
    follow,
    loaded,
)
from peer import LlamaServer

from localspec.catalog import resolve_target

CASES = [
    ("demo-mtp", "mtp", 4),
    ("demo", "eagle3", 4),
    ("demo", "dflash", 7),
    ("demo", "dflash-block8", 7),
    ("demo", "dspark", 7),
    ("demo", "draft-model", 4),
    ("demo", "ngram", 8),
]
"""(target, drafter, n_max): of the block drafters what their trained block of 8 gives."""
SPEC_TYPES = {
    "draft-model": "draft-simple",
    "mtp": "draft-mtp",
    "eagle3": "draft-eagle3",
    "dflash": "draft-dflash",
    "dspark": "draft-dspark",
    "ngram": "ngram-simple",
}
NEAR_TIE = 0.005
"""Probabilities closer than this are equal up to rounding; the server logs three decimals."""
_LINE = re.compile(
    r"draft candidate +(?P<rank>\d+), pos +\d+: +(?P<candidate>\d+) \( *(?P<p>[\d.]+)\)"
    r"|#tokens = (?P<text>\d+): found matching pattern at pos (?P<at>\d+),"
    r"|generate_draft: id=(?P<last>\d+), #tokens=\d+, #draft=(?P<drafted>\d+),"
    r"|add accepted tokens: sampled=\d+, ids.size=(?P<kept>\d+),"
    r"|next token: +(?P<token>\d+) "
    r"|(?P<end>stop processing: n_tokens)"
)


def steps_of(log: str, prompt: Sequence[int]) -> tuple[int, tuple[ServerStep, ...]]:
    """The first token and the steps of one request in the server's log."""
    text = list(prompt)
    steps: list[ServerStep] = []
    candidates: list[Candidates] = []
    copied_from = 0
    draft: tuple[int, ...] = ()
    accepted = due = 0
    first: int | None = None
    for line in _LINE.finditer(log):
        if line["rank"]:
            if int(line["rank"]) == 0:
                candidates.append({})
            candidates[-1][int(line["candidate"])] = float(line["p"])
        elif line["at"]:
            copied_from = int(line["at"]) + NGRAM
        elif line["drafted"]:
            n = int(line["drafted"])
            del candidates[n:]  # drafted, and cut to the budget
            if candidates:
                draft = tuple(next(iter(c)) for c in candidates)
            else:
                draft = tuple(text[copied_from : copied_from + n])
            assert len(draft) == n
        elif line["kept"]:
            due = int(line["kept"])
            accepted = due - 1
            steps.append(ServerStep(draft, tuple(candidates), accepted, ()))
            candidates, draft = [], ()
        elif line["token"]:
            token = int(line["token"])
            text.append(token)
            if first is None:
                first = token
                continue
            if not due:
                assert not draft
                steps.append(ServerStep((), (), 0, ()))
                due = 1
            due -= 1
            steps[-1] = replace(steps[-1], emitted=(*steps[-1].emitted, token))
    assert first is not None
    # after an end of generation inside a draft nothing was emitted
    return first, tuple(replace(s, accepted=min(s.accepted, len(s.emitted))) for s in steps)


def server_runs(
    options: argparse.Namespace, case: tuple[str, str, int], prompts: Sequence[tuple[int, ...]]
) -> Iterator[ServerRun]:
    """What the server does of ``case``, free-running and forced."""
    model, drafter, n_max = case
    wanted = ServerRun(model, drafter, n_max, None, (), 0, ())
    is_ngram = drafter == "ngram"
    for forced in (None, *(k for k in options.force if k <= n_max)):
        extra = ["-lv", "5", "-td", str(options.threads), "-tbd", str(options.threads)]
        if is_ngram:
            extra += ["--spec-ngram-simple-size-n", str(NGRAM)]
            extra += ["--spec-ngram-simple-size-m", str(n_max)]
        if forced is not None:
            rates = [str(float(i < forced)) for i in range(n_max)]
            extra += ["--spec-synth-rates", ",".join(rates)]
        for prompt in prompts:
            # a server each: in a used one the keys and values lie in other cells, and sums of other
            # order are enough to part near ties
            with LlamaServer(
                options.peer,
                resolve_target(model).path,
                n_ctx=options.ctx,
                threads=options.threads,
                draft=None if is_ngram else wanted.spec.path,
                spec_type=SPEC_TYPES[wanted.settings.method],
                n_max=n_max,
                extra=extra,
            ) as server:
                tokens = server.complete(prompt, options.tokens).tokens
                while "stop processing: n_tokens" not in (log := server.log()):
                    time.sleep(0.02)  # the log is written behind the answer
            first, steps = steps_of(log, prompt)
            if (first, *(t for s in steps for t in s.emitted))[: len(tokens)] != tokens:
                raise RuntimeError("The server's log does not tell what it answered.")
            yield replace(wanted, forced=forced, prompt=prompt, first=first, steps=steps)


def row(case: tuple[str, str, int], forced: int | None, found: Sequence[Followed]) -> list[str]:
    """One line of the table: all runs of ``case`` in one mode."""
    partings = [p for f in found for p in f.partings]
    targets = [p for f in found for p in f.target_partings]
    shifts = sorted(s for f in found for s in f.shifts)

    def ties(of: Sequence[Parting]) -> list[str]:
        near = [p.margin for p in of if p.margin <= NEAR_TIE]
        largest = f"{max(near):.3f}" if near else ""
        return [f"{len(near)}", largest, f"{len(of) - len(near)}"]

    return [
        case[1],
        str(case[2]),
        "free" if forced is None else str(forced),
        str(sum(f.compared for f in found)),
        str(sum(f.equal for f in found)),
        *ties(partings),
        *ties(targets),
        f"{shifts[len(shifts) // 2]:.4f}" if shifts else "",
        f"{shifts[int(0.99 * len(shifts))]:.3f}" if shifts else "",
        f"{shifts[-1]:.3f}" if shifts else "",
    ]


HEADER = [
    *("family", "n", "kept", "steps", "equal", "near ties", "margin", "other"),
    *("target's ties", "margin", "other", "shift p50", "p99", "max"),
]


def table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(r[i]) for r in (HEADER, *rows)) for i in range(len(HEADER))]
    lines = ["  ".join(c.rjust(w) for c, w in zip(r, widths, strict=True)) for r in (HEADER, *rows)]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--only", nargs="*", help="drafters: " + ", ".join(c[1] for c in CASES))
    parser.add_argument(
        "--force", type=int, nargs="*", default=[0, 2, 4, 7], help="tokens kept of each draft"
    )
    parser.add_argument(
        "--prompts", type=int, nargs="+", default=[0, 8], help="which of the 17 built-in ones"
    )
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ctx", type=int, default=1024)
    parser.add_argument("--peer", type=Path, default=Path("/tmp/peer/bin"), help="its programs")
    parser.add_argument("--record", type=Path, help="write the server's runs to this file")
    options = parser.parse_args()
    rows: list[list[str]] = []
    runs: list[ServerRun] = []
    failed = 0
    for case in CASES:
        if options.only and case[1] not in options.only:
            continue
        target = resolve_target(case[0]).path
        with loaded(target, n_ctx=options.ctx, threads=options.threads) as (host, opened):
            every = demo.prompt_ids(
                host.model.info(), lambda *s: tuple(host.model.vocab.tokenize_segments(s, bos=True))
            )
            prompts = [every[i] for i in options.prompts]
            theirs = list(server_runs(options, case, prompts))
            runs += theirs
            session = opened(theirs[0].settings)
            by_mode: dict[int | None, list[Followed]] = {}
            for run in theirs:
                found = follow(session, run)
                by_mode.setdefault(run.forced, []).append(found)
                failed += max(found.shifts, default=0) > NEAR_TIE
                for parting in (*found.partings, *found.target_partings):
                    print(f"{run.drafter}, kept {run.forced}: {parting}", flush=True)
                    failed += parting.margin > NEAR_TIE
        for forced, founds in by_mode.items():
            rows.append(row(case, forced, founds))
            failed += not any(f.compared for f in founds)
        print(f"{case[1]} done", file=sys.stderr)
    print(table(rows))
    if options.record:
        command = [options.peer / "llama-server", "--version"]
        about = subprocess.run(command, capture_output=True, text=True, check=True)
        recorded = {
            "llama-server": about.stderr.splitlines()[0],
            "llama-cpp-python": metadata.version("llama-cpp-python"),
            "runs": [r.as_json() for r in runs],
        }
        options.record.write_text(json.dumps(recorded) + "\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
