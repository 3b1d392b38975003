"""What is done in the chat while something else is under way there."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from patience import FOREVER
from textual.events import Key
from textual.widgets import Input, OptionList
from tui.played import Player, answer, plain
from tui.talking import TEXT, Chat, asked_and_held, seen, shown

from localspec.engine.messages import Opened
from localspec.store import Store, Talk, Turn, store_file
from localspec.tui.screens import chat as chat_module
from localspec.tui.screens.conversations import ConversationsScreen
from localspec.tui.screens.dialogs import Ask, Confirm
from localspec.tui.settings import SettingsStore

OTHER = Talk("OTHER", "demo", (Turn("user", "otherq"), Turn("assistant", "othera")))


class Slow(Player):
    """Its sessions open when the test lets them: those called ``held``, or all."""

    def __init__(self, *script: Any, held: str = "") -> None:
        super().__init__(*script)
        self.held, self.may, self.opening = held, threading.Event(), threading.Event()
        self.may.set()

    def open(self, session: str, *rest: Any) -> Opened:
        if self.held in session:
            self.opening.set()
            assert self.may.wait(FOREVER)
        return super().open(session, *rest)


async def begin_switch(c: Chat, engine: Slow) -> None:
    engine.may.clear()
    await c.pilot.press("ctrl+s")
    await c.until(lambda: c.app.engine.switching)


def said(engine: Player) -> str:
    """The prompt of the last request."""
    return "".join(chr(i) for i in engine.prompts[-1] if 8 < i < 0x110000)


def kept() -> list[tuple[str, list[str]]]:
    store = Store()
    return [(e.title, [t.content for t in store.talk(e.id).turns]) for e in store.talks()]


@contextmanager
def locked_store() -> Iterator[None]:
    """Another process writes to it."""
    Store().questions()
    lock = sqlite3.connect(store_file(), isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    yield
    lock.execute("COMMIT")
    lock.close()


# ---- another conversation --------------------------------------------------------------------


async def test_what_is_loaded_for_the_first_answer_is_said_until_it_is_there(chat: Any) -> None:
    engine, may = Slow(TEXT), threading.Event()
    engine.may.clear()
    load = engine.load

    def slowly(*given: Any) -> Any:
        assert may.wait(FOREVER)
        return load(*given)

    engine.load = slowly  # type: ignore[method-assign]
    model = "SmolLM2-135M-Instruct.Q4_1"
    async with chat(engine, (80, 24)) as c:
        c.prompt.write("x")
        await c.pilot.press("enter")
        await c.until(lambda: c.app.engine_status.state == "loading")
        await c.until(lambda: f"loading {model} ..." in seen(c.app))
        assert "◌ loading SmolLM2-135… " in shown(c.app).split("\n")[0]
        may.set()
        assert await asyncio.to_thread(engine.opening.wait, FOREVER)
        await c.pilot.pause()
        assert c.facts == f"loading {model} ...", "the drafter is still to be loaded"
        engine.may.set()
        await c.settled()
        assert "loading" not in seen(c.app)


@pytest.mark.parametrize("how", ["new", "opened"])
async def test_another_conversation_begun_during_a_switch_knows_nothing_of_the_last(
    chat: Any, how: str
) -> None:
    Store().save(OTHER)
    engine = Slow("one", "two")
    async with chat(engine) as c:
        await c.ask("SECRET")
        await begin_switch(c, engine)
        if how == "new":
            await c.pilot.press("ctrl+n")
        else:
            await c.open_list()
            await c.pilot.press("down", "enter")
        await c.until(lambda: "SECRET" not in c.questions)
        engine.may.set()
        await c.settled()
        await c.ask("fresh")
        assert "SECRET" not in said(engine)
        assert ("otherq" in said(engine)) == (how == "opened")
        turns = {"new": ["fresh", "two"], "opened": ["otherq", "othera", "fresh", "two"]}
        assert turns[how] in [turns for _, turns in kept()]


async def test_a_conversation_deleted_under_its_answer_begins_anew_with_it(chat: Any) -> None:
    engine = Player("one", TEXT, "three")
    async with chat(engine) as c:
        await c.ask("a")
        engine.hold_after = 4
        await asked_and_held(c, engine)
        await c.open_list()
        await c.pilot.press("delete")
        await c.pilot.pause()
        await c.pilot.press("y")
        await c.until(lambda: not kept())
        await c.pilot.press("escape")
        engine.go_on.set()
        await c.settled()
        assert c.questions == ["a", "x"]
        assert [turns[:3] for _, turns in kept()] == [["a", "one", "x"]]
        engine.hold_after = None
        await c.ask("b")
        assert len(kept()) == 1


@pytest.mark.parametrize("change", ["delete", "rename"])
async def test_a_list_closed_while_it_changes_a_conversation_has_changed_the_one_that_is_shown(
    chat: Any, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    begun, go_on, really = threading.Event(), threading.Event(), getattr(Store, change)

    def slowly(store: Store, *given: Any) -> None:
        begun.set()
        go_on.wait(FOREVER)
        really(store, *given)

    async with chat(Player("one", "two")) as c:
        await c.ask("a")
        monkeypatch.setattr(Store, change, slowly)
        await c.open_list()
        await c.pilot.press(change[0])
        await c.until(lambda: isinstance(c.app.screen, Ask | Confirm))
        if change == "rename":
            c.app.screen.query_one(Input).value = "New"
        await c.pilot.press("y" if change == "delete" else "enter")
        assert await asyncio.to_thread(begun.wait, FOREVER)
        await c.pilot.press("escape")
        await c.until(lambda: c.app.screen is c.screen)
        go_on.set()
        await c.settled()
        assert c.questions == ([] if change == "delete" else ["a"])
        await c.ask("b")
        assert [(title, turns[-2:]) for title, turns in kept()] == [
            ("b" if change == "delete" else "New", ["b", "two"])
        ]


@pytest.mark.parametrize("key", ["ctrl+n", "ctrl+r", "f7", "f9"])
async def test_while_a_question_waits_for_a_switch_nothing_comes_between(
    chat: Any, key: str
) -> None:
    engine = Slow("one", "two")
    async with chat(engine) as c:
        await c.ask("a")
        await begin_switch(c, engine)
        c.prompt.write("b")
        await c.pilot.press("enter")
        await c.until(lambda: c.questions == ["a", "b"])
        c.prompt.write("c")
        await c.pilot.press("enter")  # a third question waits where it is
        await c.pilot.press(key)
        await c.pilot.pause()
        assert c.questions == ["a", "b"]
        assert "An answer is on its way" in c.notes
        engine.may.set()
        await c.settled()
        assert c.answers == ["one", "two"]
        assert c.prompt.text == "c"
        assert kept() == [("a", ["a", "one", "b", "two"])]


async def test_while_a_baseline_waits_for_a_switch_its_answer_stays(chat: Any) -> None:
    engine = Slow(TEXT)
    engine.baselines = [plain(answer(TEXT))]
    async with chat(engine) as c:
        await c.ask("a")
        await begin_switch(c, engine)
        await c.pilot.press("f7")
        await c.pilot.pause()
        await c.pilot.press("ctrl+n")
        await c.pilot.pause()
        assert c.questions == ["a"]
        engine.may.set()
        await c.settled()
        assert "of baseline" in c.facts


async def test_no_question_is_put_into_the_midst_of_a_conversation_that_is_opened(
    chat: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, fill = asyncio.Event(), chat_module._fill

    async def fill_later(*given: Any) -> None:
        await go_on.wait()
        await fill(*given)

    monkeypatch.setattr(chat_module, "_fill", fill_later)
    Store().save(replace(OTHER, turns=OTHER.turns * 3))
    async with chat(Player("new")) as c:
        await c.open_list()
        await c.pilot.press("enter")
        await c.until(lambda: c.screen._filling)
        c.prompt.focus()
        c.prompt.write("NEW")
        await c.pilot.press("enter", "ctrl+r")
        assert "being opened" in c.notes
        assert c.prompt.text == "NEW"
        go_on.set()
        await c.until(lambda: len(c.questions) == 3)
        await c.settled()
        await c.ask("NEW")
        assert c.questions == [*["otherq"] * 3, "NEW"]


# ---- leaving ---------------------------------------------------------------------------------


async def test_what_has_come_of_an_answer_is_kept_when_the_app_is_left(chat: Any) -> None:
    engine = Player("one", TEXT)
    async with chat(engine) as c:
        await c.ask("a")
        engine.hold_after = 4
        await asked_and_held(c, engine)
        await c.until(lambda: c.answers[-1])
        so_far = c.answers[-1]
        await c.pilot.press("ctrl+q")
    assert so_far.startswith("Here is a list of")
    ((title, turns),) = kept()
    assert (title, turns[:3]) == ("a", ["a", "one", "x"])
    assert turns[3].startswith(so_far)


async def test_an_answer_that_is_whole_is_kept_once_when_the_app_is_left(chat: Any) -> None:
    async with chat(Player("one")) as c:
        await c.ask("a")
    assert kept() == [("a", ["a", "one"])]


IN_A_TERMINAL = """\
import asyncio, sys
from pathlib import Path
from tui.played import Player
from tui.talking import Chat
from localspec.tui.app import _Started
engine = Player("Here is a text whose end nobody reads")
engine.hold_after = 4
app = _Started(launch=engine.launch)
app.use(model="demo")
async def go(pilot):
    c = Chat(app, pilot)
    c.prompt.write("a")
    await pilot.press("enter")
    await c.until(lambda: c.answers and "Here is a text" in c.answers[0])
    Path(sys.argv[1]).touch()
app.run(auto_pilot=go)
sys.exit(app.return_code)
"""


@pytest.mark.parametrize("how", ["its window is closed", "it is told to end"])
def test_what_has_come_of_an_answer_is_kept_when(
    settings: SettingsStore, tmp_path: Path, how: str
) -> None:
    pty = pytest.importorskip("pty")
    answering = tmp_path / "answering"
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
        os.execv(sys.executable, [sys.executable, "-c", IN_A_TERMINAL, str(answering)])
    until = time.monotonic() + FOREVER
    while not answering.exists():
        assert time.monotonic() < until
        if select.select([terminal], [], [], 0.1)[0]:
            os.read(terminal, 1 << 16)
    if how == "its window is closed":
        os.close(terminal)
    else:
        os.kill(pid, signal.SIGTERM)
        while True:  # it draws until it ends
            try:
                os.read(terminal, 1 << 16)
            except OSError:
                break
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) > 128
    assert kept() == [("a", ["a", "Here is a text"])]


# ---- keeping ---------------------------------------------------------------------------------


async def test_a_slow_store_makes_no_second_conversation_of_one(
    chat: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.store.WAIT_SECONDS", FOREVER)
    engine = Player("one", "two", TEXT)
    engine.baselines = [plain(answer(TEXT))]
    async with chat(engine) as c:
        with locked_store():
            c.prompt.write("a")
            await c.pilot.press("enter")
            await c.until(lambda: c.answers == ["one"] and not c.app.engine.busy)
            await asyncio.sleep(0.1)
        await c.until(lambda: len(kept()) == 1)
        await c.settled()
        await c.ask("b")
        await c.ask("c")
        with locked_store():
            c.screen._save_later()
            await c.pilot.press("f7")
            await c.until(lambda: "of baseline" in c.facts)
        await c.settled()
        assert [turns for _, turns in kept()] == [["a", "one", "b", "two", "c", c.answers[-1]]]
        (entry,) = Store().talks()
        assert "of baseline" in Store().talk(entry.id).turns[-1].facts["compared"]


async def test_a_name_given_under_an_answer_stays(chat: Any) -> None:
    engine = Player("one", TEXT)
    async with chat(engine) as c:
        await c.ask("a")
        engine.hold_after = 4
        await asked_and_held(c, engine)
        await c.open_list()
        await c.pilot.press("r")
        await c.pilot.pause()
        c.app.screen.query_one(Input).value = "MY NAME"
        await c.pilot.press("enter")
        await c.until(lambda: isinstance(c.app.screen, ConversationsScreen))
        engine.go_on.set()
        await c.until(lambda: not c.app.engine.busy)
        await c.pilot.press("escape")
        await c.settled()
        assert [title for title, _ in kept()] == ["MY NAME"]
        assert "MY NAME" in c.header


# ---- the last answer -------------------------------------------------------------------------


@pytest.mark.parametrize("why", ["empty", "stopped"])
async def test_after_a_question_that_came_to_nothing_the_answer_before_it_runs_again(
    chat: Any, why: str
) -> None:
    nothing = replace(answer("x"), text="", spans=())
    engine = Player(TEXT, nothing if why == "empty" else "two")
    engine.baselines = [plain(answer(TEXT))]
    async with chat(engine) as c:
        await c.ask("a")
        if why == "stopped":
            engine.hold_after = 0
            await asked_and_held(c, engine)
            await c.pilot.press("escape")
            await c.settled()
            engine.hold_after = None
        else:
            await c.ask("b")
        assert c.questions == ["a"]
        await c.press("f7")
        assert engine.prompts[-1] == engine.prompts[0]
        assert "x of baseline" in c.facts and "identical" in c.facts


async def test_a_baseline_is_stopped_before_its_context_is_there(chat: Any) -> None:
    engine = Slow(TEXT, held="baseline")
    engine.baselines = [plain(answer(TEXT))]
    async with chat(engine) as c:
        await c.ask("a")
        engine.may.clear()
        await c.pilot.press("f7")
        await c.until(engine.opening.is_set)
        await c.pilot.press("escape")
        await c.until(lambda: c.app.engine._job.cancelled)
        engine.may.set()
        await c.settled()
        assert "nothing was measured" in c.notes
        assert "baseline" not in c.facts


# ---- what is chosen --------------------------------------------------------------------------


@pytest.mark.parametrize("during", ["a switch", "an answer"])
async def test_what_is_chosen_meanwhile_is_shown_and_used_afterwards(
    chat: Any, during: str
) -> None:
    engine = Slow(TEXT, TEXT, TEXT)
    async with chat(engine) as c:
        await c.ask("a")
        if during == "a switch":
            engine.may.clear()
            c.app.use(n_max=3)
            await c.until(lambda: c.app.engine.switching)
        else:
            engine.hold_after = 4
            await asked_and_held(c, engine)
        c.app.use(n_max=5)
        await c.pilot.pause()
        engine.may.set()
        engine.go_on.set()
        await c.settled()
        await c.until(lambda: "draft-model n=5" in c.header)
        engine.hold_after = None
        await c.ask("b")
        assert "draft-model n=5" in c.facts


@pytest.mark.parametrize("opening", ["ctrl+o", "ctrl+d", "ctrl+l", "ctrl+p"])
@pytest.mark.parametrize("page", ["pageup", "pagedown"])
async def test_a_page_key_right_behind_the_one_that_opens_a_list_does_no_harm(
    chat: Any, opening: str, page: str
) -> None:
    Store().save(OTHER)
    async with chat(Player()) as c:
        for key in (opening, page, page):
            c.app.post_message(Key(key, None))
        await c.until(lambda: c.app.screen is not c.screen and c.app.screen.query(OptionList))
        await c.pilot.press(page)
        c.app.screen.query(OptionList).first()._move_page(1)


def test_a_list_that_is_not_laid_out_has_no_page() -> None:
    options = OptionList("a", "b")
    options.highlighted = 0
    for direction in (-1, 1):
        options._move_page(direction)
    assert options.highlighted == 0
