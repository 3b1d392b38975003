"""What the chat looks like, at the two sizes that it is made for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, TextArea
from tui.played import Player, answer, plain
from tui.talking import looking

from localspec.errors import EngineDied
from localspec.tui.app import LocalspecApp
from localspec.tui.engine import EngineLost
from localspec.tui.settings import SettingsStore
from localspec.tui.widgets.prompt import Prompt

SIZES = [(80, 24), (140, 45)]
MARKDOWN = """\
## Second [largest]

Sort the [list without| its] its [duplicates], then take the [one **before** the] last:

```python
def [second_largest(numbers)|items]:
    unique = [sorted(set(]numbers[))
    return unique|unique][-2]
```

1. It [raises `IndexError` for] fewer [than two| numbers].
2. 漢字 and [שלום] keep their [place].
"""


@pytest.fixture
def opened(
    settings: SettingsStore, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Player], LocalspecApp]:
    monkeypatch.setattr("localspec.machine.default_threads", lambda: 2)
    monkeypatch.setattr("localspec.tui.widgets.speed.age", lambda _seconds: "40 s ago")
    monkeypatch.setattr("localspec.tui.screens.conversations.age", lambda _seconds: "40 s ago")
    return lambda engine: LocalspecApp(settings=settings, launch=engine.launch)  # type: ignore[arg-type,return-value]


async def rest(pilot: Pilot[Any]) -> None:
    app = pilot.app
    assert isinstance(app, LocalspecApp)
    quiet = 0
    while quiet < 20:
        await pilot.pause()
        quiet = 0 if app.engine.busy or looking(app) else quiet + 1
        await asyncio.sleep(0.01)
    app.clear_notifications()
    for field in (*app.screen.query(Input), *app.screen.query(TextArea)):
        field.cursor_blink = False
    await pilot.pause()


async def answered(pilot: Pilot[Any]) -> None:
    await rest(pilot)
    pilot.app.get_screen_stack("chat")[0].query_one(Prompt).write("The second largest number?")
    await pilot.press("enter")
    await rest(pilot)


def player() -> Player:
    run = answer(MARKDOWN)
    engine = Player(run)
    engine.baselines = [plain(run)]
    return engine


@pytest.mark.parametrize("size", SIZES)
def test_before_the_first_question(snap_compare: Any, opened: Any, size: tuple[int, int]) -> None:
    assert snap_compare(opened(player()), terminal_size=size, run_before=rest)


@pytest.mark.parametrize("size", SIZES)
def test_an_answer_with_its_baseline(snap_compare: Any, opened: Any, size: tuple[int, int]) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        await answered(pilot)
        await pilot.press("f7")
        await rest(pilot)

    assert snap_compare(opened(player()), terminal_size=size, run_before=before)


@pytest.mark.parametrize("size", SIZES)
def test_the_steps_of_an_answer(snap_compare: Any, opened: Any, size: tuple[int, int]) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        await answered(pilot)
        await pilot.press("f9")
        await rest(pilot)
        await pilot.press("p", "down", "down")
        await rest(pilot)

    assert snap_compare(opened(player()), terminal_size=size, run_before=before)


@pytest.mark.parametrize("size", SIZES)
def test_the_settings(snap_compare: Any, opened: Any, size: tuple[int, int]) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        await answered(pilot)
        await pilot.press("ctrl+g")
        await rest(pilot)

    assert snap_compare(opened(player()), terminal_size=size, run_before=before)


@pytest.mark.parametrize("size", SIZES)
def test_the_conversations(snap_compare: Any, opened: Any, size: tuple[int, int]) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        await answered(pilot)
        await pilot.press("ctrl+o")
        await rest(pilot)

    assert snap_compare(opened(player()), terminal_size=size, run_before=before)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("keys", ["f1", "ctrl+p", "ctrl+d", "ctrl+l", "ctrl+o r", "ctrl+o delete"])
def test_what_is_asked_and_explained(
    snap_compare: Any, opened: Any, keys: str, size: tuple[int, int]
) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        await answered(pilot)
        for key in keys.split():
            await pilot.press(key)
            await rest(pilot)

    assert snap_compare(opened(player()), terminal_size=size, run_before=before)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("keys", ["", "l"])
def test_the_engine_died(
    snap_compare: Any,
    opened: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keys: str,
    size: tuple[int, int],
) -> None:
    monkeypatch.chdir(tmp_path)
    log = Path("engine.log")
    tail = [f"llama_context: line {i} of what it said" for i in range(40)]
    tail.append("ggml.c:1234: GGML_ASSERT(ctx != NULL) failed")
    log.write_text("\n".join(tail))

    async def before(pilot: Pilot[Any]) -> None:
        await rest(pilot)
        pilot.app.post_message(EngineLost(EngineDied("signal SIGABRT", tail[-12:], str(log))))
        await rest(pilot)
        await pilot.press(*keys)
        await rest(pilot)

    assert snap_compare(opened(player()), terminal_size=size, run_before=before)
