"""What every mode shares: keys, palette, explanations, settings, the engine's death."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
import pytest
from patience import FOREVER
from rich.color import ColorSystem
from textual import on
from textual._compositor import Compositor
from textual.app import App
from textual.color import Color
from textual.command import CommandPalette, Hits
from textual.content import Content
from textual.document._wrapped_document import WrappedDocument
from textual.dom import DOMNode
from textual.events import Key, Paste, Resize
from textual.geometry import Region, Size
from textual.message import Message
from textual.pilot import Pilot
from textual.reactive import Reactive
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Button, Input, Log, OptionList, Static
from tui.played import Player
from tui.talking import steady, until

from localspec.engine.client import Engine, Stream
from localspec.errors import EngineDied
from localspec.records import LoadSettings
from localspec.terms import TERMS
from localspec.tui import ahead
from localspec.tui.app import LocalspecApp, collect_seldom
from localspec.tui.engine import EngineLost
from localspec.tui.palette import ActionsProvider, actions
from localspec.tui.polite import LONG, Polite
from localspec.tui.screens import base, engine_lost
from localspec.tui.screens.base import BAND, LightScreen, ModeScreen
from localspec.tui.screens.conversations import ConversationsScreen
from localspec.tui.screens.dialogs import Choose, Confirm
from localspec.tui.screens.engine_lost import EngineLostScreen, LogScreen
from localspec.tui.screens.explain import ExplainScreen
from localspec.tui.screens.history import HistoryScreen
from localspec.tui.settings import SettingsStore
from localspec.tui.stylesheet import Sheet
from localspec.tui.widgets.footer import Footer
from localspec.tui.widgets.markdown_view import MarkdownView
from localspec.tui.widgets.mode_bar import ModeBar, ModeTab
from localspec.tui.widgets.prompt import Prompt
from localspec.tui.widgets.steady import Steady

MakeApp = Callable[..., LocalspecApp]


async def test_every_mode_has_a_key_a_digit_and_a_tab(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        assert app.current_mode == "chat"
        for number, mode in enumerate(ModeBar.MODES, 1):
            await pilot.press(f"f{number + 1}")
            await pilot.pause()
            assert app.current_mode == mode
            assert isinstance(app.screen, ModeScreen)
            assert mode == app.screen.MODE
        await pilot.press("1")
        assert app.current_mode == "models"
        await pilot.click("#mode-bench")
        assert app.current_mode == "bench"


async def test_digits_and_question_marks_can_be_written_in_a_question(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test() as pilot:
        await pilot.press("1", "question_mark")
        assert app.screen.query_one(Prompt).text == "1?"
        assert app.current_mode == "chat"


@pytest.mark.parametrize("mode", ModeBar.MODES)
async def test_every_number_of_a_mode_is_explained(make_app: MakeApp, mode: str) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await app.switch_mode(mode)
        await pilot.press("f1")
        await pilot.pause()
        assert isinstance(app.screen, ExplainScreen)
        assert set(app.screen._terms) <= set(TERMS)
        await pilot.press("escape")
        assert isinstance(app.screen, ModeScreen)


@pytest.mark.parametrize("mode", ModeBar.MODES)
async def test_keys_that_come_after_escape_are_told_only_where_something_is_written(
    make_app: MakeApp, mode: str
) -> None:
    """ "esc tab Focus Next" stood under every explanation."""
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await app.switch_mode(mode)
        await until(pilot, lambda: app.screen.focused is not None)
        for field in (None, *app.screen.query("Input, Prompt").results()):
            if field is not None:
                app.screen.set_focus(field)
            elif mode in ("chat", "ab"):
                await pilot.press("escape")
            else:
                app.screen.set_focus(app.screen.query("OptionList, DataTable").first())
            await pilot.pause()
            told = [(keys, binding) for keys, binding, _ in actions(app.screen)]
            assert told
            assert not [keys for keys, _ in told if re.search("tab|\\^c", keys)]
            later = [(keys, b) for keys, b in told if keys.startswith("esc ")]
            after = [b for _, b in later if b.action != "write"]  # has two keys, Escape is one
            written = field is not None and field.has_focus
            assert written or not after, after


async def test_the_palette_has_every_action_of_the_screen_and_no_cursor_key(
    make_app: MakeApp,
) -> None:
    app = make_app()
    async with app.run_test() as pilot:
        found = {binding.description for _, binding, _ in actions(app.screen)}
        assert {"Send", "Thinking", "Again", "Models", "History", "Explain", "Quit"} <= found
        assert "Cursor up" not in found
        await pilot.press("ctrl+p", *"bench", "enter")
        await until(pilot, lambda: app.current_mode == "bench")


async def test_the_palette_offers_nothing_of_textual_s_that_does_nothing_here(
    make_app: MakeApp,
) -> None:
    app = make_app()
    async with app.run_test() as pilot:
        await pilot.pause()
        titles = {c.title for c in app.get_system_commands(app.screen)}
        assert not titles & {"Maximize", "Copy selected text", "Quit", "Keys"}
        assert {"Theme", "Restart engine"} <= titles


async def test_enter_in_the_palette_means_what_its_words_find(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pressed before that is listed, it did what was found for the letters before."""
    found, search = asyncio.Event(), ActionsProvider.search

    async def slowly(provider: ActionsProvider, query: str) -> Hits:
        await found.wait()
        async for hit in search(provider, query):
            yield hit

    monkeypatch.setattr(ActionsProvider, "search", slowly)
    app = make_app()
    async with app.run_test() as pilot:
        await pilot.press("ctrl+p")
        await until(pilot, lambda: [o for o in app.screen.query(OptionList) if o.option_count])
        for key in (*"bench", "enter"):
            app.post_message(Key(key, key if len(key) == 1 else None))
        await pilot.pause(0.1)
        assert app.current_mode == "chat" and isinstance(app.screen, CommandPalette)
        found.set()
        await until(pilot, lambda: app.current_mode == "bench" and app.screen.query("#drafters"))


@pytest.mark.parametrize("key", ["f2", "f4", "f5", "f6", "ctrl+p"])
async def test_it_can_be_left_while_a_screen_is_coming(make_app: MakeApp, key: str) -> None:
    """Ctrl+Q right behind another key."""
    for turns in (1, 5, 20, 80):
        app = make_app(launch=Player("x").launch)

        async def leave(pilot: Pilot[Any], app: LocalspecApp = app, turns: int = turns) -> None:
            await pilot.pause()
            app.post_message(Key(key, None))
            for _ in range(turns):
                await asyncio.sleep(0)
            await app.action_quit()

        await app.run_async(headless=True, auto_pilot=leave)
        assert app._exception is None
        assert app.return_code == 0


@pytest.mark.parametrize("keys", ["f2", "f4", "f5", "f6", "ctrl+g", "ctrl+t", "f1", "f2 a", "f2 i"])
async def test_what_a_screen_takes_keys_for_at_first_is_what_it_goes_on_with(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, keys: str
) -> None:
    """A key right behind the one that opens it came to a field that is not even shown."""
    focused: list[tuple[Screen[Any], Widget]] = []
    set_focus = Screen.set_focus

    def noted(screen: Screen[Any], widget: Widget | None, *how: Any, **named: Any) -> None:
        if widget is not None:
            focused.append((screen, widget))
        set_focus(screen, widget, *how, **named)

    app = make_app(launch=Player("x").launch)
    async with app.run_test() as pilot:
        await pilot.pause()
        monkeypatch.setattr(Screen, "set_focus", noted)
        *before, last = keys.split()
        await pilot.press(*before)
        if before:
            await steady(pilot)  # there is something to do a key's action on
        below = app.screen
        await pilot.press(last)
        await until(pilot, lambda: app.screen is not below and app.screen.focused)
        await steady(pilot)
        assert {w for s, w in focused if s is app.screen} == {app.screen.focused}


@pytest.mark.parametrize("opener", ["ctrl+g", "ctrl+t", "ctrl+o", "ctrl+d", "ctrl+l", "ctrl+p"])
async def test_a_key_right_behind_the_one_that_opens_a_dialog_is_the_dialog_s(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, opener: str
) -> None:
    monkeypatch.setattr("localspec.tui.in_order.AT_MOST", FOREVER)
    monkeypatch.setattr("localspec.tui.in_order.COMES_IN", FOREVER)
    app = make_app(launch=Player("x").launch)
    async with app.run_test(size=(80, 24)) as pilot:
        await steady(pilot)
        chat = app.screen
        prompt = chat.query_one(Prompt)
        prompt.write("a draft")
        for key in (opener, "7", "8"):
            app.post_message(Key(key, key if len(key) == 1 else None))
        await until(pilot, lambda: app.screen is not chat)
        await steady(pilot)
        assert prompt.text == "a draft"
        if fields := app.screen.query("Input:focus"):
            assert fields.first(Input).value == "78"


async def test_the_theme_is_remembered(make_app: MakeApp, settings: SettingsStore) -> None:
    app = make_app()
    async with app.run_test() as pilot:
        app.theme = "nord"
        await pilot.pause()
    again = SettingsStore(settings.path)
    assert again.values.theme == "nord"
    again.change(theme="one of a newer version")
    app = LocalspecApp(settings=again)
    async with app.run_test():
        assert app.theme == "localspec"


def test_settings_that_do_not_read_are_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"theme": 3}')
    store = SettingsStore(path)
    assert store.values.theme == "localspec"
    assert "theme" in store.problem
    assert (tmp_path / "settings.json.bad").read_text() == '{"theme": 3}'
    store.change(theme="nord")
    assert SettingsStore(path).values.theme == "nord"


async def test_a_dead_engine_is_a_dialog_with_its_log_and_a_restart(
    make_app: MakeApp, tmp_path: Path
) -> None:
    log = tmp_path / "engine.log"
    log.write_text("loading\nGGML_ASSERT(n > 0) failed\n")
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        restarts: list[bool] = []
        app.action_restart_engine = lambda: restarts.append(True)  # type: ignore[assignment]
        app.post_message(EngineLost(EngineDied("signal SIGABRT", ["GGML_ASSERT"], str(log))))
        await until(pilot, lambda: isinstance(app.screen, EngineLostScreen))
        await pilot.press("l")
        await until(pilot, lambda: isinstance(app.screen, LogScreen))
        await pilot.press("escape")
        assert app.screen.query_one("#restart", Button).has_focus
        await pilot.press("r")
        await until(pilot, lambda: restarts)
        assert isinstance(app.screen, ModeScreen)


async def test_settings_that_cannot_be_kept_are_told_when_that_happens_and_once(
    make_app: MakeApp, settings: SettingsStore, tmp_path: Path
) -> None:
    app = make_app()
    async with app.run_test() as pilot:
        await pilot.pause()
        (tmp_path / "file").write_text("x")
        settings.path = tmp_path / "file" / "settings.json"
        app.use(drafter="ngram")
        await pilot.pause()
        app.use(drafter="none")
        await pilot.pause()
        (told,) = app._notifications
        assert str(settings.path) in told.message


async def test_of_a_long_log_only_what_is_in_sight_is_laid_out_and_others_read_it(
    make_app: MakeApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "engine.log"
    lines = [f"line {i}: " + "long " * 40 for i in range(4000)]
    log.write_text("\n".join([*lines, "", "[/INST] the last"]) + "\n")
    read, drawn = list[threading.Thread](), set[int]()
    end_of, render = engine_lost._end_of, Log._render_line

    def read_by(path: Path, width: int) -> str:
        read.append(threading.current_thread())
        return end_of(path, width)

    def rendered(self: Log, y: int, scroll_x: int, width: int) -> Strip:
        drawn.add(y)
        return render(self, y, scroll_x, width)

    monkeypatch.setattr(engine_lost, "_end_of", read_by)
    monkeypatch.setattr(Log, "_render_line", rendered)
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await app.push_screen(LogScreen(log))
        shown = app.screen.query_one(Log)
        await until(pilot, lambda: shown.line_count)
        await pilot.pause()
        assert str(app.screen.query_one(Footer).render()) == " esc Close "
        assert threading.main_thread() not in read
        assert len(drawn) < 4 * 24
        assert len(shown.lines) > 2 * engine_lost.LOG_BYTES / len(lines[0])  # they are folded
        assert max(map(len, shown.lines)) <= shown.size.width
        assert list(shown.lines)[-2:] == ["", "[/INST] the last"]
        assert shown.scroll_y == shown.max_scroll_y
        await pilot.resize_terminal(140, 45)
        await until(pilot, lambda: max(map(len, shown.lines)) > 80)
    assert "cannot be read" in end_of(tmp_path / "gone", 80)


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="POSIX")
async def test_an_engine_that_does_not_answer_any_more_can_be_ended(
    make_app: MakeApp,
    settings: SettingsStore,
    tiny_bytes: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Engine.stream

    def unheard(engine: Engine, *given: Any, **how: Any) -> Stream:
        os.kill(engine.pid, signal.SIGSTOP)
        return stream(engine, *given, **how)

    monkeypatch.setattr(Engine, "stream", unheard)
    settings.values.model = str(tiny_bytes)
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"hi", "enter")
        await until(pilot, lambda: app.screen.query("AnswerView") and app.engine._engine)
        await until(pilot, lambda: app.engine.status.state == "busy")
        await pilot.press("escape")
        app.action_restart_engine()
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("y")
        await until(pilot, lambda: isinstance(app.screen, EngineLostScreen))
        assert not app.engine.busy
        await pilot.press("r")
        await until(pilot, lambda: app.engine.status.state == "ready")


async def test_the_engine_s_log_and_the_one_before_are_in_the_palette(
    make_app: MakeApp, tmp_path: Path, tiny_bytes: Path
) -> None:
    """Of an engine that died and was started again by what it worked for, too."""
    logs = [tmp_path / f"{i}.log" for i in range(3)]
    app = make_app(launch=lambda log: Engine(log_file=log))
    async with app.run_test(size=(80, 24)) as pilot:

        def offered() -> list[str]:
            return [c.title for c in app.get_system_commands(app.screen) if "log" in c.title]

        assert offered() == []
        await app.engine.start(
            "Up", lambda _: app.engine.connect(tiny_bytes, LoadSettings(), logs[0])
        )

        def dying(_job: object) -> None:
            engine = app.engine.connect(tiny_bytes, LoadSettings())
            psutil.Process(engine.pid).kill()
            with pytest.raises(EngineDied):
                engine.devices()
            engine.close()  # as a benchmark that goes on with another
            app.engine.connect(tiny_bytes, LoadSettings(), logs[1])

        assert offered() == ["Engine log"]
        await app.engine.start("Down", dying)
        assert offered() == ["Engine log", "Earlier engine log"]
        for words, log in (("llama", logs[1]), ("earlier", logs[0])):
            await pilot.press("ctrl+p", *words, "enter")
            await until(pilot, lambda: isinstance(app.screen, LogScreen))
            assert app.screen.query_one("#whole-log").border_title == str(log)
            await pilot.press("escape")
        assert isinstance(app.screen, ModeScreen)
        app.engine._lost(EngineDied("exit code 1", [], str(logs[2])))
        await until(pilot, lambda: isinstance(app.screen, EngineLostScreen))
        assert app.engine.logs == (logs[2], logs[1])


async def test_the_model_chosen_is_remembered_with_a_drafter_of_its_own(
    make_app: MakeApp, settings: SettingsStore
) -> None:
    app = make_app()
    async with app.run_test():
        app.use(drafter="ngram", n_max=6)
        app.use(model="demo")
        assert (app.setup.drafter, app.setup.n_max) == ("ngram", 6)
        app.use(model="demo-mtp")
        assert (app.setup.drafter, app.setup.n_max) == ("auto", None)
    assert SettingsStore(settings.path).values.model == "demo-mtp"


@pytest.mark.parametrize("size", [(20, 6), (60, 15), (80, 24), (200, 60)])
async def test_any_size_and_resizing_at_any_moment(
    make_app: MakeApp, size: tuple[int, int]
) -> None:
    app = make_app()
    async with app.run_test(size=(140, 45)) as pilot:
        for mode in ModeBar.MODES:
            await app.switch_mode(mode)
            await pilot.resize_terminal(*size)
            await pilot.pause()
            await pilot.resize_terminal(140, 45)


async def test_two_sizes_at_once_come_to_rest(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a window is dragged: the screen is laid out for the last, and no more after that."""
    app = make_app()
    async with app.run_test(size=(140, 45)) as pilot:
        await app.switch_mode("ab")
        await pilot.resize_terminal(200, 60)  # while it still hears of its first size
        await steady(pilot)
        layouts: list[Size] = []
        lay_out = Screen._refresh_layout

        def counted(self: Screen[object], size: Size | None = None, scroll: bool = False) -> None:
            layouts.append(self.size)
            lay_out(self, size, scroll)

        monkeypatch.setattr(Screen, "_refresh_layout", counted)
        await pilot.pause(0.3)
        assert len(layouts) < 3
        assert app.screen.size == (200, 60)


async def test_muted_text_is_dimmer_than_the_rest_in_every_theme(make_app: MakeApp) -> None:
    """Also where a line is put together in code, and under a cursor."""
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        for theme in app.available_themes:
            if "ansi" in theme:
                continue
            app.theme = theme
            await app.workers.wait_for_complete()  # it is parsed in a thread
            await pilot.pause()
            line = Static(Content.assemble("plain", ("muted", "$text-muted")))
            await app.screen.mount(line)
            await pilot.pause()
            shown = {s.text.strip(): s.style for s in line.render_line(0)}
            ground = Color.from_rich_color(shown["plain"].bgcolor)
            plain, muted = (Color.from_rich_color(shown[w].color) for w in ("plain", "muted"))
            assert abs(muted.brightness - ground.brightness) < abs(
                plain.brightness - ground.brightness
            ), theme
            await line.remove()


@pytest.mark.parametrize("width", [50, 80, 140])
async def test_notes_of_a_choice_keep_their_column(make_app: MakeApp, width: int) -> None:
    note = "reads the target's layers 2, 15 and 27; drafts from 8,192 tokens, and so on and so on"
    app = make_app()
    async with app.run_test(size=(140, 24)) as pilot:
        app.push_screen(Choose("Drafter", [("a", "eagle3", note), ("b", "draft-model", "")], "a"))
        await pilot.pause()
        await pilot.resize_terminal(width, 24)
        await pilot.pause()
        options = app.screen.query_one(OptionList)
        first = str(options.get_option_at_index(0).prompt).split("\n")
        assert " ".join(line.strip() for line in first) == f"● eagle3{' ' * 7}{note}" or (
            width == 50 and first[0].strip() == "● eagle3"
        )
        room = options.scrollable_content_region.width - 2
        assert all(len(line) <= room for line in first)
        column = 4 if width == 50 else 15
        assert all(line.startswith(" " * column) for line in first[1:])
        assert len(first) > 1 or width == 140


async def test_a_mode_asked_for_before_it_is_imported_is_marked_and_then_shown(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    going_on, bring = threading.Event(), ahead.bring

    def late(*modules: str) -> None:
        going_on.wait(FOREVER)
        bring(*modules)

    monkeypatch.setattr(ahead, "_imported", set())
    monkeypatch.setattr(ahead, "bring", late)
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f2")
        await pilot.press("f6")  # the last one asked for is the one that is shown
        await pilot.pause()
        assert app.current_mode == "chat"
        assert "… History" in str(app.screen.query_one("#mode-history", ModeTab).render())
        await pilot.press("x")  # meanwhile everything else goes on
        assert app.screen.query_one(Prompt).text == "x"
        going_on.set()
        while app.opening:
            await pilot.pause(0.01)
        assert app.current_mode == "history"
        chat = app.get_screen_stack("chat")[0]
        assert "5 History" in str(chat.query_one("#mode-history", ModeTab).render())


async def test_a_theme_that_is_chosen_is_what_is_drawn(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test() as pilot:
        for theme in ("nord", "localspec-light", "nord"):
            app.theme = theme
            wanted = app.get_css_variables()["background"]

            def drawn(wanted: str = wanted) -> bool:
                return app.screen.styles.background.hex == wanted

            await until(pilot, drawn)
            await pilot.press("f4" if theme == "nord" else "f3")  # on every screen
            await until(pilot, drawn)


async def test_the_footer_has_the_keys_and_does_what_is_clicked(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test(size=(140, 45)) as pilot:
        await pilot.pause()
        footer = app.screen.query_one(Footer)
        shown = str(footer.render())
        assert shown.startswith(" f7 Baseline ")
        assert shown.endswith("▏^p Palette ")
        await pilot.click(Footer, offset=(shown.index("f1 Explain") + 3, 0))
        await pilot.pause()
        assert isinstance(app.screen, ExplainScreen)
        await pilot.press("escape")
        await pilot.resize_terminal(60, 24)
        await pilot.pause()
        shown = str(footer.render())
        assert len(shown) == 60
        assert shown.endswith("▏^p Palette ")
        await pilot.click(Footer, offset=(55, 0))
        await pilot.pause()
        assert isinstance(app.screen, CommandPalette)


@pytest.mark.parametrize("theme", ["localspec", "localspec-light"])
@pytest.mark.parametrize("no_colour", [False, True])
def test_with_16_colours_or_none_the_cursor_and_the_verdicts_are_told_apart(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, theme: str, no_colour: bool
) -> None:
    monkeypatch.setenv("TERM", "screen")
    monkeypatch.delenv("COLORTERM")
    if no_colour:
        monkeypatch.setenv("NO_COLOR", "1")
    app = make_app()
    app.theme = theme
    variables = app.get_css_variables()
    assert app.few_colours

    def seen(name: str) -> int | None:
        colour = Color.parse(variables["background"]) + Color.parse(variables[name])
        if no_colour:  # as Textual's filter has it
            colour = colour.monochrome
        return colour.rich_color.downgrade(ColorSystem.STANDARD).number

    assert len({seen(name) for name in ("background", "line-cursor", "foreground")}) == 3
    assert len({seen(name) for name in ("background", "panel", "foreground")}) == 3
    assert seen("border") != seen("border-blurred")
    assert len({seen(name) for name in ("background", "text-muted", "foreground")}) == 3
    if not no_colour:  # else by word and sign alone
        verdicts = ("text-success", "text-error", "text-warning", "foreground", "background")
        assert len({seen(name) for name in verdicts}) == len(verdicts)


def test_many_colours_have_the_soft_ones(make_app: MakeApp) -> None:
    app = make_app()
    assert not app.few_colours
    assert app.get_css_variables()["panel"] == "#232933"


@pytest.mark.parametrize("theme", ["localspec", "localspec-light"])
async def test_the_tint_of_drafted_text_is_left_of_256_colours(
    make_app: MakeApp, theme: str
) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        app.theme = theme
        view = MarkdownView()
        await app.screen.mount(view)
        view.append("plain ")
        view.append("drafted", drafted=True)
        view.flush()
        await pilot.pause()
        grounds = {s.text.strip(): s.style.bgcolor for s in view.render_line(0)}
        plain, drafted = (grounds[w].downgrade(ColorSystem.EIGHT_BIT) for w in ("plain", "drafted"))
        assert plain != drafted


LONG_LINES = "".join(f"{i}: a line longer than the field {'x' * 80}\n" for i in range(600)) + "end"


@pytest.mark.parametrize(
    "text", [LONG_LINES, "on and on 漢字 " * 500 + "end"], ids=["lines", "one line"]
)
async def test_a_long_question_is_not_wrapped_and_sent_as_it_is(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        prompt = app.screen.query_one(Prompt)
        app.post_message(Paste(text))
        await pilot.pause()
        assert not prompt.soft_wrap
        assert prompt.text == text
        prompt.write("short")
        assert prompt.soft_wrap
        prompt.write(text)
        assert not prompt.soft_wrap
        assert prompt.text == text
        await pilot.pause()
        anew: list[int] = []
        wrap = WrappedDocument.wrap
        monkeypatch.setattr(
            WrappedDocument, "wrap", lambda self, *given: (anew.append(1), wrap(self, *given))[1]
        )
        await pilot.resize_terminal(140, 45)
        prompt.move_cursor(prompt.document.end)
        await pilot.press("!")
        await pilot.pause()
        assert not anew, "it takes long, and changes nothing"
        screen = app.screen._compositor.render_strips()
        assert any("end!" in s.text for s in screen)


@pytest.mark.parametrize(("messages", "seconds", "first"), [(2, 0.02, 1), (6, LONG * 0.75, 3)])
async def test_between_messages_that_take_long_everybody_else_gets_a_turn(
    messages: int, seconds: float, first: int
) -> None:
    """Textual by itself goes on to the next message at once; answers that stream in would wait.
    Many short ones take long too: others come after the ``first`` at the latest."""
    done: list[str] = []

    class Long(Message):
        pass

    class Slow(Polite, App[None]):
        def on_long(self) -> None:
            time.sleep(seconds)
            done.append("message")

    async with Slow().run_test() as pilot:

        async def other() -> None:
            await asyncio.sleep(0.001)
            done.append("other")

        waiting = asyncio.create_task(other())
        await asyncio.sleep(0)
        for _ in range(messages):
            pilot.app.post_message(Long())
        await waiting
        await pilot.pause()
    assert done.count("message") == messages
    assert done.index("other") <= first


async def test_a_key_pressed_while_a_dialog_is_made_waits_for_it(make_app: MakeApp) -> None:
    """It was on its way to what is below, and means the dialog now."""
    app = make_app()
    async with app.run_test() as pilot:
        await pilot.pause()
        app.post_message(Key("ctrl+o", None))
        while not isinstance(app.screen, ConversationsScreen):
            await asyncio.sleep(0)
        assert not app.screen.is_mounted
        await app._check_bindings("down")
        assert isinstance(app.focused, OptionList)


async def test_a_mode_shown_again_is_not_styled_anew(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is 20 ms and more in which no key is heard."""
    app = make_app()
    async with app.run_test() as pilot:
        await pilot.press("f4", "f3")
        await steady(pilot)
        styled: list[object] = []
        apply = Sheet.apply

        def applied(sheet: Sheet, node: DOMNode, **given: Any) -> None:
            styled.append(node)
            apply(sheet, node, **given)

        monkeypatch.setattr(Sheet, "apply", applied)
        await pilot.press("f4")
        await steady(pilot)
        assert len(styled) < 10, "what has the focus, and little else"


async def test_what_a_job_told_is_dealt_with_before_its_result(make_app: MakeApp) -> None:
    """However long the messages take: a late one would write over what the result says."""
    app = make_app()
    dealt: list[int] = []
    go_on = asyncio.Event()

    class Word(Message):
        def __init__(self, number: int) -> None:
            self.number = number
            super().__init__()

    class Slow(HistoryScreen):
        @on(Word)
        async def _heard(self, message: Word) -> None:
            await go_on.wait()
            await asyncio.sleep(0.01)
            dealt.append(message.number)

    async with app.run_test() as pilot:
        screen = Slow()
        app.push_screen(screen)
        await pilot.pause()

        def job() -> None:
            for number in range(5):
                screen.post_message(Word(number))

        await asyncio.to_thread(job)
        heard = asyncio.create_task(screen.heard_all())
        await asyncio.sleep(0)
        go_on.set()
        await heard
        assert dealt == [0, 1, 2, 3, 4]


SCREENS = [getattr(import_module(module), name) for module, name in ahead.SCREENS.values()]


@pytest.mark.parametrize("owner", [LocalspecApp, *SCREENS])
def test_no_figure_that_changes_paints_the_whole_screen_again(owner: type[DOMNode]) -> None:
    """A reactive of a screen or of the app does, unless it says otherwise; at ten draws a second
    that took a third of a core from the engine."""
    ours = {
        name: known
        for base in owner.__mro__
        if base.__module__.startswith("localspec.")
        for name, known in vars(base).items()
        if isinstance(known, Reactive)
    }
    assert [name for name, known in ours.items() if known._repaint] == []


async def test_text_that_changes_often_is_laid_out_only_where_its_size_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    laid_out: list[None] = []
    arranged = Screen._refresh_layout

    def counted(screen: Screen[None], *given: Any, **named: Any) -> None:
        laid_out.append(None)
        arranged(screen, *given, **named)

    class Two(App[None]):
        CSS = "#fixed { height: 2; }"

        def compose(self) -> Any:
            yield Steady("one line", id="grows")
            yield Steady("", id="fixed")

    async with Two().run_test(size=(20, 10)) as pilot:
        grows, fixed = pilot.app.query(Steady)
        await pilot.pause()
        monkeypatch.setattr(Screen, "_refresh_layout", counted)

        async def told(place: Steady, text: str) -> tuple[bool, list[str]]:
            laid_out.clear()
            place.update(Content(text))
            await pilot.pause()
            lines = [place.render_line(y).text.rstrip() for y in range(place.size.height)]
            return bool(laid_out), lines

        assert await told(grows, "another") == (False, ["another"])
        assert await told(grows, "two lines\nof words") == (True, ["two lines", "of words"])
        assert await told(grows, "one line") == (True, ["one line"])
        assert await told(fixed, "a\nb\nc") == (False, ["a", "b"])


async def test_a_resized_screen_is_laid_out_by_its_new_breakpoints_and_painted_later(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Laid out by the old ones, then styled as a whole and all of it in one turn of the loop with
    the painting: that blocks it for 50 ms."""
    app = make_app()
    async with app.run_test(size=(140, 45)) as pilot:
        await pilot.press("f4")
        await steady(pilot)
        widgets = len(list(app.screen.walk_children()))
        laid_out: list[bool] = []
        styled: set[DOMNode] = set()
        painted_at_once: list[Region] = []
        hearing = False
        reflow, apply = Compositor.reflow, Sheet.apply
        paint, heard = Compositor.render_update, LightScreen._on_resize

        def laying_out(compositor: Compositor, parent: Widget, size: Size) -> Any:
            laid_out.append(parent.has_class("-narrow") and parent.has_class("-low"))
            return reflow(compositor, parent, size)

        def applied(sheet: Sheet, node: DOMNode, **given: Any) -> None:
            if isinstance(node, Widget):
                styled.add(node)
            apply(sheet, node, **given)

        def painting(compositor: Compositor, **given: Any) -> Any:
            if hearing:
                painted_at_once.extend(compositor._dirty_regions)
            return paint(compositor, **given)

        async def hears(screen: LightScreen[None], event: Resize) -> None:
            nonlocal hearing
            hearing = True
            await heard(screen, event)
            hearing = False

        monkeypatch.setattr(Compositor, "reflow", laying_out)
        monkeypatch.setattr(Compositor, "render_update", painting)
        monkeypatch.setattr(Sheet, "apply", applied)
        monkeypatch.setattr(LightScreen, "_on_resize", hears)
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: app.screen.size == (80, 24) and laid_out)
        await steady(pilot)
        assert all(laid_out)
        assert not painted_at_once
        assert len(styled) < widgets / 2, "what the breakpoints' rules are about"
        prompt = app.screen.query_one(Prompt)
        assert prompt.styles.max_height is not None
        assert prompt.styles.max_height.value == 4, "as -low has it"


async def test_a_screen_is_painted_in_bands_and_what_they_bring_no_second_time(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Textual renders one block around all that is dirty: with a part of a later band in it that
    is the whole screen."""
    app = make_app()
    async with app.run_test(size=(140, 45)) as pilot:
        await steady(pilot)
        screen = app.screen
        monkeypatch.setattr(base, "LONG", -1.0)  # a band in one go
        painted: list[Region] = []
        paint = Compositor.render_update

        def painting(compositor: Compositor, **given: Any) -> Any:
            if compositor is screen._compositor and compositor._dirty_regions:
                painted.append(Region.from_union(list(compositor._dirty_regions)))
            return paint(compositor, **given)

        monkeypatch.setattr(Compositor, "render_update", painting)
        assert isinstance(screen, LightScreen)
        told: list[str] = []
        assert app._driver is not None
        monkeypatch.setattr(app._driver, "write", told.append)
        app._sync_available = True
        screen._compositor._dirty_regions.add(Region(0, 0, 140, 45))
        screen._compositor_refresh()
        app._end_update()
        assert not told, "a terminal that can waits for all of it"
        screen._compositor._dirty_regions.add(Region(0, 44, 140, 1))  # as when the footer changes
        with app.batch_update():
            screen._compositor_refresh()
            assert len(painted) == 1, "Textual would show nothing, and forget it"
        lines = set(range(45))
        await until(pilot, lambda: {y for r in painted for y in r.line_range} == lines)
        assert max(region.height for region in painted) <= BAND
        app._end_update()
        assert told == ["\x1b[?2026l"]


async def test_a_picture_of_the_screen_is_kept_where_there_are_no_downloads(
    make_app: MakeApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.delenv("XDG_DOWNLOAD_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    async with make_app().run_test() as pilot:
        await pilot.press("ctrl+p", *"screenshot", "enter")

        def pictures() -> str:
            return "".join(made.read_text("utf-8") for made in tmp_path.glob("*.svg"))

        await until(pilot, lambda: "</svg>" in pictures())


async def test_the_palette_is_painted_as_our_own_dialogs_are(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test() as pilot:
        await pilot.press("ctrl+p", "ctrl+p")
        await pilot.pause()
        assert isinstance(app.screen, CommandPalette)
        assert isinstance(app.screen, LightScreen)
        assert len(app.screen_stack) == 2


def test_collections_of_what_is_new_are_small() -> None:
    """One of 25,000 objects takes 30 ms, and an opened conversation soon brings them."""
    before = gc.get_threshold()
    try:
        collect_seldom()
        young, middle, _ = gc.get_threshold()
        assert young * (middle + 1) <= 10_000
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


async def test_what_is_imported_ahead_waits_while_a_person_asks_but_not_for_ever(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python runs one of the two: a mode took twice as long to open."""
    brought: list[int] = []
    begin = threading.Event()

    def bring(piece: int) -> None:
        begin.wait(FOREVER)
        brought.append(piece)

    monkeypatch.setattr(ahead, "pieces", lambda: (partial(bring, i) for i in range(9)))
    monkeypatch.setattr("localspec.tui.app.PATIENCE", 60.0)
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        before = app._asked
        await pilot.press("x")
        assert app._asked > before
        app._asked = math.inf
        begin.set()
        await until(pilot, lambda: brought)
        await pilot.pause(0.2)
        assert brought == [0], "the one that was under way"
        app._asked = 0.0
        await app.workers.wait_for_complete()
        assert brought == list(range(9))
        app._asked = math.inf
        monkeypatch.setattr("localspec.tui.app.PATIENCE", 0.0)
        await app.undisturbed()


def test_highlighting_is_made_ready_ahead() -> None:
    """The rules of Python's take 40 ms to compile."""
    from pygments.lexers.python import PythonLexer

    if "_tokens" in vars(PythonLexer):
        del PythonLexer._tokens
    for bring in ahead.pieces():
        bring()
    assert "_tokens" in vars(PythonLexer)


def test_styles_are_prepared_while_a_module_is_imported_by_another_thread(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python takes it out of the modules for a moment when it is done with it."""
    monkeypatch.delitem(sys.modules, ConversationsScreen.__module__)
    Sheet().prepare(make_app().get_css_variables())
