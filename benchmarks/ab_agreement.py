"""Does the A/B screen measure what the headless bench measures? (issue 5, item 6: within 3 %)

    python benchmarks/ab_agreement.py [--drafter draft-model] [--n-max 4] [--tokens 64] [--pairs 8]

In turn: ``localspec bench --prompt``, the A/B screen open and drawing on a pty of 140x45, and again
the other way round, so that a drift of the machine does not look like the screen's doing. About two
minutes with the demo model.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import io
import json
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from pairs import begin, machine
from terminal import Terminal

PROMPT = "Write a Python function that returns the second largest number in a list."
APART = 0.03
PATIENCE = 300.0
ROOT = Path(__file__).parents[1]
Found = tuple[float, list[float] | None]
"""The speedup and its 95 % interval."""


def headless(a: argparse.Namespace, folder: Path) -> Found:
    from localspec.bench.command import bench
    from localspec.records import BenchOptions

    file = folder / "result.json"
    options = BenchOptions(
        model=a.model, drafters=(a.drafter,), prompt=PROMPT, n_max=(a.n_max,), runs=a.pairs,
        max_tokens=a.tokens, quiet=True, json=str(file),
    )  # fmt: skip
    with contextlib.redirect_stdout(io.StringIO()):
        bench(options)
    drafted = json.loads(file.read_text())["candidates"][1]
    return float(drafted["speedup"]), drafted["speedup_ci"]


def on_the_screen(a: argparse.Namespace, folder: Path) -> Found:
    home, out = folder / "localspec", folder / "found.json"
    home.mkdir(exist_ok=True)
    out.unlink(missing_ok=True)
    chosen = {"model": a.model, "drafter": a.drafter, "n_max": a.n_max}
    (home / "settings.json").write_text(json.dumps(chosen))
    words = ["--inside", str(out), "--pairs", str(a.pairs), "--tokens", str(a.tokens)]
    terminal = Terminal([sys.executable, __file__, *words], os.environ)
    try:
        terminal.process.wait(PATIENCE)
    finally:
        terminal.close()
    if not out.exists():
        raise SystemExit(f"The app ended: {terminal.shown.decode(errors='replace')}")
    speedup, interval = json.loads(out.read_text())
    return float(speedup), interval


def inside(a: argparse.Namespace) -> None:
    """The app's process: measures, writes what the screen has found, and ends."""
    gc.disable()  # as localspec.cli does
    from localspec.bench import ab

    ab.FEWEST_PAIRS = ab.MOST_PAIRS = a.pairs  # as many as the headless bench has
    from textual.widgets import Select

    from localspec.tui.app import _Started
    from localspec.tui.widgets.prompt import Prompt

    async def go(pilot: Any) -> None:
        app = pilot.app
        await app.switch_mode("ab")
        await asyncio.sleep(1)
        screen = app.screen
        screen.query_one(Prompt).text = PROMPT
        tokens = screen.query_one("#tokens", Select)
        if a.tokens not in [value for _, value in tokens._options]:
            raise SystemExit(f"The screen has no choice of {a.tokens} tokens.")
        tokens.value = a.tokens
        screen.action_measure()
        await asyncio.sleep(0.5)
        while screen.measuring:
            await asyncio.sleep(0.2)
        found = screen._standing.comparison
        a.inside.write_text(json.dumps([found.speedup, found.interval]))
        app.exit()

    _Started().run(auto_pilot=go)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="demo")
    parser.add_argument("--drafter", default="draft-model")
    parser.add_argument("--n-max", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    if "--inside" in sys.argv:
        inside(parser.parse_args())
        return 0
    a = begin(parser)
    ways = {"headless": headless, "screen": on_the_screen}
    found: dict[str, list[Found]] = {name: [] for name in ways}
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as name:
        for kind in ("CONFIG", "DATA", "STATE"):
            os.environ[f"XDG_{kind}_HOME"] = name
        for i in range(a.rounds):
            for which in ways if i % 2 == 0 else reversed(ways):
                speedup, interval = ways[which](a, Path(name))
                found[which].append((speedup, interval))
                around = f"[{interval[0]:.3f}, {interval[1]:.3f}]" if interval else "no interval"
                print(f"  {which:9} {speedup:.3f}x {around}", flush=True)
    means = {w: math.exp(sum(math.log(s) for s, _ in v) / len(v)) for w, v in found.items()}
    apart = means["screen"] / means["headless"] - 1
    overlap = all(
        one and other and one[0] <= other[1] and other[0] <= one[1]
        for (_, one), (_, other) in zip(found["headless"], found["screen"], strict=True)
    )
    agree = abs(apart) <= APART or overlap
    print(
        f"A/B screen {means['screen']:.3f}x, headless {means['headless']:.3f}x: {apart:+.1%}, "
        f"intervals {'overlap' if overlap else 'do not overlap'}; wanted within {APART:.0%} or "
        f"overlapping: {'kept' if agree else 'MISSED'}"
    )
    if a.json:
        document = {"script": "ab_agreement", "machine": machine(), "found": found, "apart": apart}
        a.json.write_text(json.dumps(document, indent=1) + "\n")
    return int(not agree)


if __name__ == "__main__":
    sys.exit(main())
