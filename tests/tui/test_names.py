r"""What stands in files is shown as it stands there: ``[/INST]`` in a model's name ends no app,
``[red]`` is no colour, ``[@click=app.quit]`` no link, ``\[`` loses nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from gguf import GGUFWriter
from textual.widgets import Button, Input, OptionList, Select, Static
from tiny_models import tiny_llama
from tui.played import Player
from tui.talking import seen, until
from tui.test_history import made

from localspec import machine
from localspec.bench import history
from localspec.errors import EngineDied
from localspec.models.drafters import Candidate, Found
from localspec.store import Store, Talk, Turn
from localspec.tui.app import LocalspecApp
from localspec.tui.engine import EngineLost
from localspec.tui.screens import model_dialogs
from localspec.tui.screens.ab import ABScreen
from localspec.tui.screens.dialogs import Confirm
from localspec.tui.screens.engine_lost import EngineLostScreen
from localspec.tui.screens.model_dialogs import DraftersScreen, InspectScreen
from localspec.tui.settings import SettingsStore
from localspec.tui.widgets.bench_setup import BenchSetup
from localspec.tui.widgets.report_view import Figures, ReportView

MakeApp = Callable[..., LocalspecApp]
NAME = r"[/INST] [red]m[/] \[ [@click=app.quit]x"
"""As it may stand in a file; of a path, "/" parts it."""
DRAFTER = r"[red] \[ [@click=app.quit]d.gguf"


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model and, beside it, its drafter, both of that name, in files of that name."""
    named = GGUFWriter.add_name
    monkeypatch.setattr(GGUFWriter, "add_name", lambda writer, _name: named(writer, NAME))
    target = tmp_path / NAME / "t.gguf"
    target.parent.mkdir(parents=True)
    tiny_llama(target.with_name(DRAFTER), noise=0.2)
    return tiny_llama(target)


@pytest.fixture
def app(make_app: MakeApp, settings: SettingsStore, target: Path) -> LocalspecApp:
    settings.values.model, settings.values.drafter = str(target), str(target.with_name(DRAFTER))
    return make_app(launch=Player(NAME).launch)


async def test_in_a_conversation(app: LocalspecApp, target: Path) -> None:
    Store().save(Talk(NAME, str(target), (Turn("user", NAME),)))
    async with app.run_test(size=(200, 45)) as pilot:
        await pilot.press(*"[/b]", "enter")
        await until(pilot, lambda: "[@click=app.quit]x" in seen(app))
        # in the line of what is chosen, above the speed, below the answer
        await until(pilot, lambda: seen(app).count(DRAFTER.removesuffix(".gguf")) == 3)
        await pilot.press("ctrl+o")
        await until(pilot, lambda: NAME in seen(app))
        await pilot.press("down", "delete")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await until(pilot, lambda: NAME in seen(app))


async def test_in_what_a_file_says_of_itself_and_in_its_drafters(
    app: LocalspecApp, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with app.run_test(size=(200, 45)) as pilot:
        inspect = InspectScreen(str(target), NAME, lambda: machine.Memory(8 << 30, 6 << 30))
        await app.push_screen(inspect)
        await until(pilot, lambda: seen(app).count(NAME) >= 3)  # title, name, path
        await pilot.press("escape")
        candidate = Candidate(NAME, "draft-model", "here", here=True, note=NAME)
        monkeypatch.setattr(model_dialogs, "_drafters_of", lambda _: Found([candidate], [NAME]))
        await app.push_screen(DraftersScreen(str(target), NAME))
        await until(pilot, lambda: seen(app).count(NAME) >= 4)
        assert app.screen.query_one(OptionList).option_count == 1


async def test_in_the_choice_of_an_ab(app: LocalspecApp, target: Path) -> None:
    async with app.run_test(size=(200, 45)) as pilot:
        await pilot.press("f4")
        await until(pilot, lambda: isinstance(app.screen, ABScreen))

        def chosen() -> str:
            return str(app.screen.query_one("#drafter #label", Static).render())

        for drafter in (str(target.with_name(DRAFTER)), "/m/[/old]/d.gguf", "[red]"):
            app.use(drafter=drafter)
            await until(pilot, lambda d=drafter: chosen() == d)
            await pilot.press("escape", "d")
            await until(pilot, lambda: app.screen.query_one("#drafter", Select).expanded)
            await pilot.pause()
            listed = app.screen.query_one("#drafter OptionList", OptionList).options
            assert drafter in [str(option.prompt) for option in listed]
            await pilot.press("escape")


async def test_in_a_result(app: LocalspecApp) -> None:
    text = json.dumps(made(fits=False))
    for word in ("small", "chat8"):
        text = text.replace(word, json.dumps(NAME)[1:-1])
    history.keep(json.loads(text))
    async with app.run_test(size=(200, 45)) as pilot:
        await pilot.press("f6")
        past = app.screen
        await until(pilot, lambda: past.query_one("#list Figures", Figures).row_count)
        await pilot.press("enter")
        view = past.query_one(ReportView)
        await until(pilot, lambda: view.query_one("#parts").display)
        await until(pilot, lambda: NAME in seen(app))
        for place in ("#advice", "#parts"):
            view.scroll_to_widget(view.query_one(place), animate=False, top=True)
            await until(pilot, lambda: "[@click=app.quit]x" in seen(app))


async def test_in_whatever_else_has_a_name(
    app: LocalspecApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with app.run_test(size=(200, 45)) as pilot:
        app.screen.notify(NAME, title=NAME)
        await until(pilot, lambda: seen(app).count("[@click=app.quit]x") >= 2)
        app.push_screen(Confirm(NAME, NAME, NAME))
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.pause()
        assert str(app.screen.query_one("#yes", Button).label) == NAME
        await pilot.press("escape")
        app.post_message(EngineLost(EngineDied(NAME, [NAME], NAME)))
        await until(pilot, lambda: isinstance(app.screen, EngineLostScreen))
        await until(pilot, lambda: seen(app).count(NAME) >= 3)
        await pilot.press("l")
        await until(pilot, lambda: app.screen.query("Log"))
        await pilot.press("escape", "escape")
        await pilot.press("f5")
        await until(pilot, lambda: app.screen.query(BenchSetup))
        setup = app.screen.query_one(BenchSetup)
        setup.query_one("#file", Input).value = NAME
        await until(pilot, lambda: NAME in str(setup.query_one("#estimate", Static).content))


async def test_a_picture_of_the_screen_is_told_of_by_its_path(
    app: LocalspecApp, target: Path
) -> None:
    async with app.run_test(size=(200, 45)) as pilot:
        app.deliver_screenshot(path=str(target.parent))
        await until(pilot, lambda: app._notifications)
        (told,) = app._notifications
        assert str(target.parent) in told.message
        assert not told.markup
