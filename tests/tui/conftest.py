"""An app whose settings lie in a folder of the test, over an engine that is scripted or real."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input, TextArea

from localspec.tui import ahead
from localspec.tui.app import LocalspecApp
from localspec.tui.settings import SettingsStore
from localspec.tui.widgets import unhurried


@pytest.fixture(autouse=True)
def _steady_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture does not depend on the moment of it."""
    monkeypatch.setattr(TextArea, "_toggle_cursor_blink_visible", lambda _self: None)
    monkeypatch.setattr(Input, "_toggle_cursor", lambda _self: None)


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
def _whole_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are painted in one go however slow the machine is."""
    monkeypatch.setattr(unhurried, "PAINT_SECONDS", 60.0)


@pytest.fixture(autouse=True)
def _workers_end_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pilot takes the widgets away while the app's message loop still runs; an app of its own ends
    that first, and with it the workers, which would look for the widgets."""
    shut_down = LocalspecApp._shutdown

    async def without_workers(app: LocalspecApp) -> None:
        app.workers.cancel_all()
        await shut_down(app)

    monkeypatch.setattr(LocalspecApp, "_shutdown", without_workers)
