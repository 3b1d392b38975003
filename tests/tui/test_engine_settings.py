"""Ctrl+T: how the engine runs, in every mode."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Select, SelectionList, Static
from tui.played import Player, answer, plain
from tui.talking import until

from localspec.bench import history
from localspec.chat.settings import speed_setup
from localspec.tui.app import LocalspecApp
from localspec.tui.screens.ab import ABScreen
from localspec.tui.screens.bench import BenchScreen
from localspec.tui.screens.chat import ChatScreen
from localspec.tui.screens.engine_settings import EngineSettingsScreen
from localspec.tui.settings import AS_USUAL, EngineSettings, SettingsStore
from localspec.tui.widgets.mode_bar import EngineBadge
from localspec.tui.widgets.prompt import Prompt
from localspec.tui.widgets.speed import SpeedPanel
from localspec.tui.widgets.turns import AnswerView

MakeApp = Callable[..., LocalspecApp]
TEXT = "Here is a [list of|all] three [things: one,] two and [three.]"


async def set_engine(pilot: Pilot[Any], **values: str) -> EngineSettingsScreen:
    """Opens the dialog, and fills in and saves what is given."""
    await pilot.press("ctrl+t")
    await until(pilot, lambda: isinstance(pilot.app.screen, EngineSettingsScreen))
    await pilot.pause()
    screen = pilot.app.screen
    assert isinstance(screen, EngineSettingsScreen)
    for name, value in values.items():
        field = screen.query_one(f"#{name}", Input | Select)  # type: ignore[arg-type]
        field.value = value
    if values:
        await pilot.press("ctrl+s")
        await pilot.pause()
    return screen


async def ask(pilot: Pilot[Any], text: str) -> AnswerView:
    """The answer, when it is whole."""
    chat = pilot.app.screen
    assert isinstance(chat, ChatScreen)
    before = len(chat.query(AnswerView))
    chat.query_one(Prompt).write(text)
    await pilot.press("enter")
    await until(pilot, lambda: len(chat.query(AnswerView)) == before + 1)
    view = chat.query(AnswerView).last()
    await until(pilot, lambda: "tokens" in str(view._facts.content))
    await until(pilot, lambda: not chat.engine.busy)
    return view


def badge(app: LocalspecApp) -> str:
    return str(app.screen.query_one(EngineBadge).content)


async def test_chat_ab_and_bench_run_by_them(
    make_app: MakeApp, settings: SettingsStore, tiny_bytes: Path, tmp_path: Path
) -> None:
    prompts = tmp_path / "mine.txt"
    prompts.write_text("Say something short.\n")
    settings.values.model, settings.values.drafter = str(tiny_bytes), "ngram"
    settings.values.max_tokens = 8
    app = make_app()
    async with app.run_test(size=(140, 45)) as pilot:
        chat = app.screen
        assert isinstance(chat, ChatScreen)
        await ask(pilot, "a")
        first = chat._chat
        assert first is not None
        assert first.settings["kv_type"] == "f16"
        await set_engine(pilot, threads="2", ctx="512", kv_type="f32", flash_attn="off")
        assert "kv=f32 fa=off t=2" in badge(app)
        await until(pilot, lambda: first.settings["kv_type"] == "f32")  # at once, not when asked
        assert first.settings["threads"] == 2
        assert first.settings["flash_attn"] == "off"
        await ask(pilot, "b")
        assert first.n_ctx == 512
        assert "/512" in str(chat.query_one("#setup-line", Static).content)
        assert len(chat.query(AnswerView)) == 2

        await pilot.press("f4")
        ab = app.screen
        assert isinstance(ab, ABScreen)
        ab.query_one("#tokens", Select).value = 64
        await pilot.press("escape", "s")
        await until(pilot, lambda: ab._rows)
        await pilot.press("f")
        await until(pilot, lambda: not ab.measuring)
        assert ab._planned is not None
        context = ab._planned.plan.context
        assert (context.threads, context.kv_type, context.flash_attn) == (2, "f32", "off")
        assert context.n_ctx != 512, "it takes what its prompt needs"
        assert "kv=f32 fa=off t=2" in ab._results[0].name

        await pilot.press("f5")
        bench = app.screen
        assert isinstance(bench, BenchScreen)
        for choices in ("#drafters", "#workloads"):
            found = bench.query_one(choices, SelectionList)
            await until(pilot, lambda found=found: found.option_count)
        bench.query_one("#workloads", SelectionList).deselect_all()
        bench.query_one("#file", Input).value = str(prompts)
        await pilot.click("#start")
        await until(pilot, lambda: bench.state == "done")
        measured = history.read("last")["settings"]
        assert (measured["threads"], measured["kv_type"]) == (2, "f32")
        assert measured["flash_attn"] == "off"
    again = LocalspecApp(settings=SettingsStore(settings.path))
    assert again.setup.engine == EngineSettings(threads=2, ctx=512, kv_type="f32", flash_attn="off")


async def test_another_engine_s_speed_is_no_baseline_of_the_answer(make_app: MakeApp) -> None:
    """The conversation goes on and its last answer runs again, but is not called faster than what
    ran otherwise."""
    run = answer(TEXT)
    engine = Player(run, "more of it")
    engine.baselines = [plain(run)]
    app = make_app(launch=engine.launch)
    async with app.run_test(size=(140, 45)) as pilot:
        chat = app.screen
        assert isinstance(chat, ChatScreen)
        view = await ask(pilot, "a")
        assert chat._facts is not None
        before = chat._facts.setup
        assert chat.figures.tps is not None
        await set_engine(pilot, threads="7")
        await until(pilot, lambda: engine.starts == 2 and not app.engine.busy)
        assert chat.figures.tps is None, "they are of another engine"
        await pilot.press("f7")
        await until(pilot, lambda: "identical" in str(view._facts.content))
        rate = plain(run).decode_tps
        assert f"baseline {rate:.1f} tok/s, identical" in str(view._facts.content)
        assert "x of baseline" not in str(view._facts.content)
        assert chat._chat is not None
        now = speed_setup(chat._chat.options, chat._chat.target)
        assert now != before
        assert chat._baseline_of == now
        kept = chat._store.baseline(now)
        assert kept is not None
        assert kept.tps == rate
        assert chat._store.baseline(before) is None
        assert f"baseline {rate:.1f}" in " ".join(
            str(getattr(w, "content", "")) for w in chat.query_one(SpeedPanel).walk_children()
        )
        await ask(pilot, "b")
        assert len(engine.prompts[-1]) > len(engine.prompts[0]), "it knows what was said before"


async def test_what_is_typed_stands_there_and_is_refused_as_it_is(make_app: MakeApp) -> None:
    """Characters were left out, and "19" was kept."""
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await set_engine(pilot)
        for typed in ("1e9", "four"):
            await pilot.press(*typed, "ctrl+s")
            field = screen.query_one("#threads", Input)
            assert app.screen is screen
            assert (field.value, field.is_valid, field.has_focus) == (typed, False, True)
            assert "a whole number from" in str(screen.query_one(".dialog").border_subtitle)
            field.clear()
        await pilot.press("escape")
        assert app.setup.engine == AS_USUAL


async def test_what_makes_no_sense_is_refused_in_its_field(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await set_engine(pilot, threads="4", gpu_layers="0")
        assert app.setup.engine == EngineSettings(threads=4, gpu_layers=0)
        for name, value in (
            ("threads", "0"),
            ("threads", "513"),
            ("ctx", "-5"),
            ("gpu_layers", "99999999999"),
        ):
            screen = await set_engine(pilot, **{name: value})
            assert app.screen is screen
            assert screen.focused is screen.query_one(f"#{name}")
            assert "a whole number from" in str(screen.query_one(".dialog").border_subtitle)
            await pilot.press("escape")
            assert app.setup.engine == EngineSettings(threads=4, gpu_layers=0)
        screen = await set_engine(pilot)
        await pilot.click("#unset")
        await pilot.press("ctrl+s")
        await pilot.pause()
        assert app.setup.engine == AS_USUAL


def test_a_settings_file_cannot_bring_nonsense(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    for words in ('{"threads": 0}', '{"threads": 99999}', '{"kv_type": "q3"}', '{"ctx": "many"}'):
        path.write_text(f'{{"engine": {words}}}')
        store = SettingsStore(path)
        assert store.problem
        assert store.values.engine == AS_USUAL


async def test_a_model_that_does_not_fit_says_the_key(
    make_app: MakeApp, settings: SettingsStore, tiny_bytes: Path
) -> None:
    settings.values.model = str(tiny_bytes)
    app = make_app()
    async with app.run_test(size=(140, 45)) as pilot:
        await ask(pilot, "a")
        await set_engine(pilot, ctx="999999999")
        await until(pilot, lambda: app._notifications)
        said = " ".join(f"{n.title} {n.message}" for n in app._notifications)
        assert "fits: Ctrl+T, then Context" in said
        await set_engine(pilot, ctx="256")
        await ask(pilot, "b")
        chat = app.screen
        assert isinstance(chat, ChatScreen)
        assert len(chat.query(AnswerView)) == 2


@pytest.mark.parametrize("size", [(80, 24), (140, 45)])
def test_what_it_looks_like(
    snap_compare: Any, make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    monkeypatch.setattr("localspec.machine.default_threads", lambda: 8)

    async def before(pilot: Pilot[Any]) -> None:
        app = pilot.app
        assert isinstance(app, LocalspecApp)
        app.use(engine=EngineSettings(ctx=8192, kv_type="q8_0"))
        await set_engine(pilot)

    assert snap_compare(make_app(), terminal_size=size, run_before=before)
