"""How long the app's event loop is blocked by an answer of 5,000 lines: streamed in, opened again
from the store, resized, tint switched. No model is loaded.

python benchmarks/tui_blocking.py [LINES [KIND...]]

What is measured is the processor time of the loop's thread between two ticks, so that other load
on the machine does not count.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
    os.environ[name] = tempfile.mkdtemp()
os.environ |= {"COLORTERM": "truecolor", "TERM": "xterm-256color"}

from textual.pilot import Pilot  # noqa: E402

from localspec.tui.app import LocalspecApp, collect_seldom  # noqa: E402
from localspec.tui.settings import SettingsStore  # noqa: E402
from localspec.tui.widgets.turns import AnswerView, Question, Transcript  # noqa: E402

Line = Callable[[int], str]
LINES = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
TICK = 0.005
A_DRAW = 5
"""Lines to a draw: 50 lines a second are some 500 tokens a second."""
KINDS: dict[str, Line] = {
    "paragraphs": lambda i: f"Paragraph {i} with **words**, `code` and 漢字.\n\n",
    "list": lambda i: f"- item **{i}** with some words in it, and `code`\n",
    "code": lambda i: ("```python\n" if not i else "") + f"def f{i}(x): return x + {i}  # note\n",
    "table": lambda i: ("| a | b |\n|--|--|\n" if not i else "") + f"| {i} | word |\n",
}


class Lag:
    """What the event loop's thread computes between two ticks."""

    def __init__(self) -> None:
        self.gaps: list[float] = []

    async def beat(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(TICK)
            now = time.thread_time()
            self.gaps.append(now - last)
            last = now

    async def during(self, what: str, work: Awaitable[None]) -> None:
        self.gaps.clear()
        began = time.perf_counter()
        await work
        took = time.perf_counter() - began
        over = sum(g > 0.05 for g in self.gaps)
        print(
            f"  {what:10} {took:6.1f} s   blocked at the longest {max(self.gaps) * 1e3:5.0f} ms"
            f"   over 50 ms: {over} of {len(self.gaps)} times",
            flush=True,
        )


async def stream(scroll: Transcript, view: AnswerView, line: Line) -> None:
    for i in range(LINES):
        view.append(line(i), drafted=i % 2 == 0, thinking=False)
        if i % A_DRAW == 0:
            with scroll.following():
                view.flush()
            await asyncio.sleep(0.02)
    view.flush()


async def resize(pilot: Pilot[None]) -> None:
    for size in ((110, 40), (140, 45)):
        await pilot.resize_terminal(*size)
        await asyncio.sleep(1)


async def tint(view: AnswerView) -> None:
    view.tint(False)
    await asyncio.sleep(0.3)


async def open_again(scroll: Transcript, line: Line) -> None:
    view = AnswerView(tinted=True)
    await scroll.mount(view)
    await view.fill([(line(i), i % 2 == 0, False) for i in range(LINES)], 0, 0.0)
    await asyncio.sleep(0.5)


async def main() -> None:
    settings = SettingsStore(Path(tempfile.mkdtemp()) / "settings.json")
    settings.values.model = "demo"
    app = LocalspecApp(settings=settings)
    async with app.run_test(size=(140, 45)) as pilot:
        await pilot.pause(0.5)
        collect_seldom()
        lag = Lag()
        beating = asyncio.create_task(lag.beat())
        scroll = app.screen.query_one(Transcript)
        for kind, line in KINDS.items():
            if len(sys.argv) > 2 and kind not in sys.argv[2:]:
                continue
            await scroll.remove_children()
            view = AnswerView(tinted=True)
            await scroll.mount_all([Question("?"), view])
            print(f"{LINES} lines: {kind}", flush=True)
            gc.collect()
            await asyncio.sleep(0.5)  # that was no part of it
            await lag.during("streamed", stream(scroll, view, line))
            await lag.during("resized", resize(pilot))
            await lag.during("tint", tint(view))
            await lag.during("opened", open_again(scroll, line))
        beating.cancel()


asyncio.run(main())
