"""The pictures of the app in assets/screenshots/, one of each mode, by keys on the demo.

What they show was measured while they were taken. ``python benchmarks/screenshots.py [FOLDER]``
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from textual.pilot import Pilot
from textual.widgets import Checkbox

from localspec.tui.app import LocalspecApp
from localspec.tui.settings import SettingsStore

OUT = Path(__file__).parents[1] / "assets" / "screenshots"
SIZE = (140, 45)
QUESTION = "Write a Python function that returns the second largest number in a list."
PATIENCE = 600.0


async def rest(pilot: Pilot[None]) -> None:
    """Until the engine has nothing more to do."""
    app = pilot.app
    assert isinstance(app, LocalspecApp)
    quiet, waited = 0, 0.0
    while quiet < 10:
        await asyncio.sleep(0.2)
        waited += 0.2
        await pilot.pause()
        quiet = 0 if app.engine.busy else quiet + 1
        if waited > PATIENCE:
            raise TimeoutError("the app does not come to rest")


async def take(out: Path) -> None:
    os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    os.environ.pop("NO_COLOR", None)
    with tempfile.TemporaryDirectory() as home:
        for name in ("CONFIG", "DATA", "STATE", "CACHE"):
            os.environ[f"XDG_{name}_HOME"] = home
        store = SettingsStore(Path(home) / "settings.json")
        store.values.model = "demo"
        store.values.max_tokens = 160  # the demo can ramble on
        app = LocalspecApp(settings=store)

        def keep(name: str) -> None:
            (out / f"{name}.svg").write_text(app.export_screenshot(title="localspec"), "utf-8")
            sys.stderr.write(f"{name}\n")

        async with app.run_test(size=SIZE) as pilot:
            await pilot.press("f2")
            await rest(pilot)
            keep("models")
            await pilot.press("f3")
            await pilot.pause()
            for letter in QUESTION:
                await pilot.press("space" if letter == " " else letter)
            await pilot.press("enter")
            await rest(pilot)
            await pilot.press("f7")
            await rest(pilot)
            keep("chat")
            await pilot.press("f4")
            await pilot.pause()
            await pilot.press("s")
            await rest(pilot)
            keep("ab")
            await pilot.press("f5")
            await rest(pilot)
            pilot.app.screen.query_one("#quick", Checkbox).value = True
            await pilot.press("s")
            await rest(pilot)
            keep("app-bench")
            await pilot.press("f6")
            await rest(pilot)
            keep("history")


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else OUT
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(take(folder))
