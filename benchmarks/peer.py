"""llama-server, built by build_peer.sh from the sources inside llama-cpp-python, and localspec's
engine process measured against it."""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import demo
from pairs import Result, alternate

from localspec.engine.client import Engine
from localspec.records import ContextSettings, DrafterSettings, Generation, SamplerSettings

GREEDY = SamplerSettings(temperature=0.0)


@dataclass(frozen=True)
class Completion:
    """``decode_tps`` is the server's ``predicted_per_second``: the tokens after the first, over the
    time since the first (server-common.h, ``n_gen_tps``): the definition of DESIGN section 5."""

    tokens: tuple[int, ...]
    decode_tps: float
    drafted: int
    accepted: int


class LlamaServer:
    """A context manager: one slot, no caches, the same threads for single tokens and batches.

    ``draft`` and ``spec_type`` set speculation up, without early stop (p_min 0); MTP layers in the
    model's own file need no ``draft``. ``extra`` are further options.
    """

    def __init__(
        self,
        programs: Path,
        model: Path,
        *,
        n_ctx: int,
        threads: int,
        flash_attn: str = "on",
        draft: Path | None = None,
        spec_type: str = "draft-simple",
        n_max: int = 0,
        extra: Sequence[str] = (),
    ) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.command = [
            *(str(programs / "llama-server"), "-m", str(model), "--port", str(port)),
            *("-c", str(n_ctx), "-np", "1", "-t", str(threads), "-tb", str(threads)),
            *("-fa", flash_attn, "--cache-ram", "0", "--ctx-checkpoints", "0", "--no-webui"),
        ]
        if draft is not None:
            self.command += ["-md", str(draft)]
        if n_max:
            self.command += ["--spec-type", spec_type, "--spec-draft-p-min", "0"]
            self.command += ["--spec-draft-n-max", str(n_max)]
        self.command += extra

    def __enter__(self) -> LlamaServer:
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(self.command, stdout=self._log, stderr=self._log)
        until = time.monotonic() + 60
        while time.monotonic() < until and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    return self
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.05)
        tail = self.log()[-2000:]
        self.__exit__()
        raise RuntimeError(f"llama-server did not start: {' '.join(self.command)}\n{tail}")

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._log.close()

    def log(self) -> str:
        """What it has written so far."""
        # not by seek and read: the server writes at the same offset
        found = os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size, 0)
        return found.decode("utf-8", "replace")

    def complete(self, prompt: Sequence[int], n: int) -> Completion:
        """Greedy completion of token ids, from an empty cache."""
        wanted = {
            "prompt": list(prompt),
            "n_predict": n,
            "temperature": 0,
            "cache_prompt": False,
            "return_tokens": True,
        }
        request = urllib.request.Request(
            f"{self.url}/completion",
            json.dumps(wanted).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            body: dict[str, Any] = json.load(answer)
        if body["tokens_evaluated"] != len(prompt):
            raise RuntimeError(
                f"llama-server read {body['tokens_evaluated']} prompt tokens of {len(prompt)}"
            )
        timings = body["timings"]
        return Completion(
            tokens=tuple(body["tokens"]),
            decode_tps=timings["predicted_per_second"],
            drafted=timings.get("draft_n", 0),
            accepted=timings.get("draft_n_accepted", 0),
        )


def engine_against_server(
    options: argparse.Namespace,
    name: str,
    drafter: DrafterSettings,
    *,
    at_least: float,
    draft: Path | None = None,
) -> Result:
    """The whole engine process against llama-server: same prompts, greedy, from empty caches.

    ``options`` are those of ``pairs.arguments``; ``draft`` is the server's draft model.
    """
    ours: dict[int, Generation] = {}
    theirs: dict[int, Completion] = {}
    with (
        Engine() as engine,
        LlamaServer(
            options.peer,
            demo.model(),
            n_ctx=options.ctx,
            threads=options.threads,
            draft=draft,
            n_max=drafter.n_max,
        ) as server,
    ):
        engine.load(demo.model())
        context = ContextSettings(options.ctx, options.threads, flash_attn="on")
        effective = engine.open("ours", drafter, context).settings
        prompts = demo.prompt_ids(engine.model, engine.tokenize)

        def run_ours(i: int) -> float:
            made = engine.generate(
                "ours", prompts[i % len(prompts)], sampler=GREEDY, max_tokens=options.tokens
            )
            ours[i] = made
            return made.decode_tps or 0.0

        def run_theirs(i: int) -> float:
            theirs[i] = server.complete(prompts[i % len(prompts)], options.tokens)
            return theirs[i].decode_tps

        run_ours(0), run_theirs(0)  # warm-up
        figures = alternate(options.pairs, run_ours, run_theirs)
    same = sum(ours[i].tokens == theirs[i].tokens for i in ours)
    notes: dict[str, Any] = {
        "pairs with the same tokens": f"{same} of {len(ours)}",
        "tokens a run": f"{sum(len(r.tokens) for r in ours.values()) / len(ours):.1f} on average",
        "effective settings": effective,
    }
    if draft is not None:
        notes["drafted / accepted, ours"] = (
            f"{sum(r.counts.drafted for r in ours.values())} / "
            f"{sum(r.counts.accepted for r in ours.values())}"
        )
        notes["drafted / accepted, theirs"] = (
            f"{sum(r.drafted for r in theirs.values())} / "
            f"{sum(r.accepted for r in theirs.values())}"
        )
    return Result(name, "tok/s", *figures, at_least=at_least, notes=notes)
