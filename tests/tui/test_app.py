"""What every mode shares: keys, palette, explanations, settings, the engine's death."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from rich.color import ColorSystem
from textual import on
from textual._compositor import Compositor
from textual.app import App
from textual.color import Color
from textual.command import CommandPalette
from textual.content import Content
from textual.dom import DOMNode
from textual.events import Key, Paste, Resize
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import Reactive
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Button, DataTable, OptionList, Static

from localspec.errors import EngineDied
from localspec.terms import TERMS
from localspec.tui import ahead
from localspec.tui.app import LocalspecApp, collect_seldom
from localspec.tui.engine import EngineLost
from localspec.tui.palette import actions
from localspec.tui.polite import LONG, Polite
from localspec.tui.screens import base
from localspec.tui.screens.base import BAND, LightScreen, ModeScreen
from localspec.tui.screens.conversations import ConversationsScreen
from localspec.tui.screens.dialogs import Choose
from localspec.tui.screens.engine_lost import EngineLostScreen, LogScreen
from localspec.tui.screens.explain import ExplainScreen
from localspec.tui.screens.history import HistoryScreen
from localspec.tui.settings import SettingsStore
from localspec.tui.stylesheet import Sheet
from localspec.tui.widgets import unhurried
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


async def test_the_palette_has_every_action_of_the_screen_and_no_cursor_key(
    make_app: MakeApp,
) -> None:
    app = make_app()
    async with app.run_test() as pilot:
        found = {binding.description for _, binding, _ in actions(app.screen)}
        assert {"Send", "Thinking", "Again", "Models", "History", "Explain", "Quit"} <= found
        assert "Cursor up" not in found
        await pilot.press("ctrl+p", *"bench", "enter")
        await pilot.pause()
        assert app.current_mode == "bench"


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
        await pilot.pause()
        assert isinstance(app.screen, EngineLostScreen)
        await pilot.press("l")
        await pilot.pause()
        assert isinstance(app.screen, LogScreen)
        await pilot.press("escape")
        assert app.screen.query_one("#restart", Button).has_focus
        await pilot.press("r")
        await pilot.pause()
        assert restarts
        assert isinstance(app.screen, ModeScreen)


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
        await pilot.pause(0.3)
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
        going_on.wait(20)
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
            await app.workers.wait_for_complete()
            await pilot.pause()
            background = app.screen.styles.background.hex
            assert background == app.theme_variables["background"]
            await pilot.press("f4" if theme == "nord" else "f3")  # on every screen
            await pilot.pause()
            assert app.screen.styles.background.hex == background


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


class Lines(unhurried.Unhurried, DataTable[str]):
    def __init__(self) -> None:
        super().__init__()
        self.passes = 0

    def render_lines(self, crop: Region) -> list[Strip]:
        self.passes += 1
        return super().render_lines(crop)


async def test_a_table_is_painted_in_parts_until_all_of_it_is_there(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unhurried, "PAINT_SECONDS", -1.0)  # one line in one go
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        table = Lines()
        await app.screen.mount(table, before="#chat-main")
        table.add_column("number")
        for i in range(6):
            table.add_row(f"line {i}")
        while table.passes < 7:  # the header too
            await pilot.pause(0.01)
        await pilot.pause()
        shown = app.export_screenshot(simplify=True)
        assert all(f"line&#160;{i}" in shown for i in range(6))


async def test_a_long_question_is_not_wrapped_and_sent_as_it_is(make_app: MakeApp) -> None:
    text = "".join(f"{i}: a line that is longer than the field {'x' * 80}\n" for i in range(600))
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
        await pilot.pause(0.2)
        styled: list[object] = []
        apply = Sheet.apply

        def applied(sheet: Sheet, node: DOMNode, **given: Any) -> None:
            styled.append(node)
            apply(sheet, node, **given)

        monkeypatch.setattr(Sheet, "apply", applied)
        await pilot.press("f4")
        await pilot.pause(0.2)
        assert len(styled) < 10, "what has the focus, and little else"


async def test_what_a_job_told_is_dealt_with_before_its_result(make_app: MakeApp) -> None:
    """However long the messages take: a late one would write over what the result says."""
    app = make_app()
    dealt: list[int] = []

    class Word(Message):
        def __init__(self, number: int) -> None:
            self.number = number
            super().__init__()

    class Slow(HistoryScreen):
        @on(Word)
        async def _heard(self, message: Word) -> None:
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
        assert dealt != [0, 1, 2, 3, 4]
        await screen.heard_all()
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
        await pilot.pause(0.2)
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
        await pilot.pause(0.2)
        assert app.screen.size == (80, 24)
        assert laid_out
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
        await pilot.pause(0.2)
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
        await pilot.pause(0.2)
        assert max(region.height for region in painted) <= BAND
        assert {y for region in painted for y in region.line_range} == set(range(45))
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
        for _ in range(200):
            if (made := list(tmp_path.glob("*.svg"))) and made[0].stat().st_size:
                break
            await pilot.pause(0.05)
        assert "</svg>" in made[0].read_text("utf-8")


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


def test_highlighting_is_made_ready_ahead() -> None:
    """The rules of Python's take 40 ms to compile."""
    from pygments.lexers.python import PythonLexer

    if "_tokens" in vars(PythonLexer):
        del PythonLexer._tokens
    ahead.compile_languages()
    assert "_tokens" in vars(PythonLexer)


def test_styles_are_prepared_while_a_module_is_imported_by_another_thread(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python takes it out of the modules for a moment when it is done with it."""
    monkeypatch.delitem(sys.modules, ConversationsScreen.__module__)
    Sheet().prepare(make_app().get_css_variables())
