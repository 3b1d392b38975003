"""An app whose settings lie in a folder of the test, over an engine that is scripted or real."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import FOREVER
from textual._wait import wait_for_idle
from textual.notifications import Notification
from textual.widgets import Input, TextArea
from tui.played import Player
from tui.talking import Chat

from localspec import machine
from localspec.tui import ahead
from localspec.tui.app import LocalspecApp
from localspec.tui.settings import SettingsStore


@pytest.fixture(autouse=True)
def _steady_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture does not depend on the moment of it."""
    monkeypatch.setattr(TextArea, "_toggle_cursor_blink_visible", lambda _self: None)
    monkeypatch.setattr(Input, "_toggle_cursor", lambda _self: None)


@pytest.fixture(autouse=True)
def _as_important_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is lowered stays so: all tests after it would be slow beside those of other workers."""
    monkeypatch.setattr("localspec.tui.app.lower_priority", lambda: None)


@pytest.fixture(autouse=True)
def _notices_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the test has read them: a person has some seconds for that, a busy machine has not."""
    monkeypatch.setattr(Notification, "time_left", 3600.0)


async def at_rest(min_sleep: float = 0.02, max_sleep: float = 1.0) -> None:
    """Nothing is left to do on the event loop, now or in a moment. Textual's own, which looks at
    the processor's time, takes a process that gets little of it for one that is idle, and gives up
    after a second."""
    await wait_for_idle(min_sleep, max_sleep)
    loop: Any = asyncio.get_running_loop()
    end, quiet = loop.time() + FOREVER, 0
    while quiet < 3 and loop.time() < end:
        await asyncio.sleep(0)
        soon = loop.time() + 0.005
        due = any(t.when() < soon for t in loop._scheduled if not t.cancelled())
        quiet = 0 if due or loop._ready else quiet + 1


@pytest.fixture(autouse=True)
def _busy_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("app", "pilot"):
        monkeypatch.setattr(f"textual.{module}.wait_for_idle", at_rest)


@pytest.fixture(autouse=True)
def _all_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor on the terminal that the tests were started from."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SettingsStore:
    """The person's settings, with a model chosen; nothing outside the test's folder is touched."""
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    store = SettingsStore(tmp_path / "settings.json")
    store.values.model = "demo"
    return store


@pytest.fixture(autouse=True, scope="session")
def _imported() -> None:
    """A mode is shown at once, as it is when an app has run for some seconds."""
    ahead.bring(*(module for module, _ in ahead.SCREENS.values()))


@pytest.fixture
def make_app(settings: SettingsStore) -> Callable[..., LocalspecApp]:
    def make(**given: Any) -> LocalspecApp:
        return LocalspecApp(settings=settings, **given)

    return make


@pytest.fixture(autouse=True)
def _nothing_else_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the machine of the tests something does, now and then."""
    monkeypatch.setattr(machine, "competes", lambda _load: False)


@pytest.fixture(autouse=True)
def _workers_end_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pilot takes the widgets away while the app's message loop still runs; an app of its own ends
    that first, and with it the workers, which would look for the widgets."""
    shut_down = LocalspecApp._shutdown

    async def without_workers(app: LocalspecApp) -> None:
        app.workers.cancel_all()
        await shut_down(app)

    monkeypatch.setattr(LocalspecApp, "_shutdown", without_workers)


@pytest.fixture
def chat(make_app: Callable[..., LocalspecApp]) -> Callable[..., Any]:
    """``async with chat(engine) as c``."""

    class Opened:
        def __init__(self, engine: Player, size: tuple[int, int] = (140, 45)) -> None:
            self.app = make_app(launch=engine.launch)
            self._context = self.app.run_test(size=size)

        async def __aenter__(self) -> Chat:
            return Chat(self.app, await self._context.__aenter__())

        async def __aexit__(self, *error: Any) -> None:
            await self._context.__aexit__(*error)

    return Opened
