"""Does the A/B screen measure what the headless bench measures? (issue 5, item 6: within 3 %)

    python benchmarks/ab_agreement.py --drafter draft-model --n-max 4 --tokens 128

In turn: ``localspec bench --prompt``, the A/B screen open and drawing on a terminal of 140x45, and
again the other way round, so that a drift of the machine does not look like the screen's doing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import math
import tempfile
from pathlib import Path

from localspec.bench.command import bench
from localspec.records import BenchOptions
from localspec.tui.app import LocalspecApp
from localspec.tui.screens.ab import ABScreen
from localspec.tui.settings import SettingsStore
from localspec.tui.widgets.prompt import Prompt

PROMPT = "Write a Python function that returns the second largest number in a list."


def headless(a: argparse.Namespace, folder: Path) -> float:
    file = folder / "result.json"
    options = BenchOptions(
        model=a.model, drafters=(a.drafter,), prompt=PROMPT, n_max=(a.n_max,), runs=a.pairs,
        max_tokens=a.tokens, quiet=True, json=str(file),
    )  # fmt: skip
    with contextlib.redirect_stdout(io.StringIO()):
        bench(options)
    result = json.loads(file.read_text())
    return float(result["candidates"][1]["speedup"])


async def on_the_screen(a: argparse.Namespace, folder: Path) -> float:
    settings = SettingsStore(folder / "settings.json")
    settings.values.model, settings.values.drafter = a.model, a.drafter
    settings.values.n_max = a.n_max
    app = LocalspecApp(settings=settings)
    async with app.run_test(size=(140, 45)) as pilot:
        await app.switch_mode("ab")
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, ABScreen)
        screen.query_one(Prompt).text = PROMPT
        await pilot.press("s")
        while screen.measuring:
            await asyncio.sleep(0.05)
            pairs = screen._standing.comparison.pairs if screen._standing else 0
            if pairs >= a.pairs - 1 and not screen._hand.enough:
                await pilot.press("f")
        assert screen._standing is not None and screen._standing.comparison.speedup
        return screen._standing.comparison.speedup


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--drafter", default="draft-model")
    parser.add_argument("--n-max", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=2)
    a = parser.parse_args()
    found: dict[str, list[float]] = {"headless": [], "screen": []}
    with tempfile.TemporaryDirectory() as name:
        for i in range(a.rounds):
            for which in ("headless", "screen") if i % 2 == 0 else ("screen", "headless"):
                if which == "headless":
                    speedup = headless(a, Path(name))
                else:
                    speedup = asyncio.run(on_the_screen(a, Path(name)))
                found[which].append(speedup)
                print(f"{which:9} {speedup:.3f}x", flush=True)
    means = {k: math.exp(sum(map(math.log, v)) / len(v)) for k, v in found.items()}
    apart = means["screen"] / means["headless"] - 1
    print(f"headless {means['headless']:.3f}x, screen {means['screen']:.3f}x: {apart:+.1%}")


if __name__ == "__main__":
    main()
