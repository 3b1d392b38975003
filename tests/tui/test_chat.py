"""The chat, key by key, over an engine that plays what the test wrote."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from patience import FOREVER
from rich.cells import cell_len
from textual.events import Key, Paste
from textual.widgets import Input, OptionList, Static, TextArea
from tiny_models import tiny_llama
from tui.played import Player, answer, plain
from tui.talking import TEXT, Chat, asked_and_held, seen, shown, text_of

from localspec import machine
from localspec.bench.ab import _candidates as ab_candidates
from localspec.catalog import resolve_drafters, resolve_target
from localspec.chat.export import to_markdown
from localspec.engine.messages import Replayed
from localspec.errors import ContextTooSmall, EngineDied, LocalspecError
from localspec.store import Baseline, Store, Talk, Turn
from localspec.tui.app import LocalspecApp, Setup
from localspec.tui.screens import chat as chat_module
from localspec.tui.screens.ab import ABScreen
from localspec.tui.screens.chat_settings import ChatSettings, ChatSettingsScreen
from localspec.tui.screens.conversations import ConversationsScreen
from localspec.tui.screens.dialogs import Ask, Choose, Confirm
from localspec.tui.screens.engine_lost import EngineLostScreen
from localspec.tui.screens.explain import ExplainScreen
from localspec.tui.screens.first_start import FirstDownload, FirstStartScreen
from localspec.tui.screens.inspector import InspectorScreen
from localspec.tui.settings import SettingsStore
from localspec.tui.widgets.bound import Bound
from localspec.tui.widgets.markdown_view import MarkdownView
from localspec.tui.widgets.speed import SpeedLine, SpeedPanel
from localspec.tui.widgets.turns import AnswerView, Question, Transcript, facts_line, facts_of
from localspec.tune import profiles

MakeApp = Callable[..., LocalspecApp]


# ---- answers ---------------------------------------------------------------------------------


async def test_an_answer_comes_with_its_figures_and_is_kept(chat: Any) -> None:
    async with chat(Player(TEXT)) as c:
        await c.ask("Make a list")
        assert c.questions == ["Make a list"]
        assert c.answers == ["Here is a list of three things: one, two and three."]
        assert "12 tokens" in c.facts
        assert "TTFT 84 ms" in c.facts
        assert "draft-model n=2" in c.facts
        assert "not measured" in c.panel
        assert "accept length 2.75" in c.panel
        assert "verify" in c.panel
        entries = Store().talks()
        assert [(e.title, e.questions, e.model) for e in entries] == [("Make a list", 1, "demo")]
        assert Store().questions() == ["Make a list"]


async def test_enter_sends_all_that_was_typed_before_it_and_keeps_what_comes_after(
    chat: Any,
) -> None:
    """However fast: a terminal hands over a pasted line as one burst of keys."""
    async with chat(Player(TEXT)) as c:
        await c.settled()
        for key in [*"What is this?", "enter", *"Next"]:
            c.app.post_message(Key(key, None if key == "enter" else key))
        await c.settled()
        assert c.questions == ["What is this?"]
        assert c.prompt.text == "Next"


async def test_drafted_text_is_tinted_until_a_key_switches_it_off(
    chat: Any, settings: SettingsStore
) -> None:
    async with chat(Player(TEXT)) as c:
        await c.ask("x")
        view = c.screen.query(AnswerView).last().query(MarkdownView).last()

        def tinted() -> str:
            """The text on another background than most."""
            strip = view.render_line(0)
            plain = view.visual_style.rich_style.bgcolor
            return "".join(s.text for s in strip if s.style and s.style.bgcolor != plain)

        assert tinted() == "is a listthree thingstwo and"
        await c.press("f8")
        assert tinted() == ""
        assert settings.values.tint is False
        await c.press("f8")
        assert tinted()


async def test_an_answer_can_be_stopped_and_what_there_is_stays(chat: Any) -> None:
    engine = Player(TEXT)
    engine.hold_after = 4
    async with chat(engine) as c:
        await asked_and_held(c, engine)
        await c.pilot.press("enter")  # a second question is not sent meanwhile
        await c.pilot.press("escape")
        await c.settled()
        assert c.answers[0].startswith("Here is a list of")
        assert "three." not in c.answers[0]
        assert "stopped" in c.facts


async def test_while_the_first_answer_comes_its_drafter_and_its_context_are_shown(
    chat: Any,
) -> None:
    engine = Player(TEXT)
    engine.hold_after = 4
    async with chat(engine) as c:
        await asked_and_held(c, engine)
        line = c.screen.query_one("#setup-line", Static)
        await c.until(lambda: "TTFT 84" in c.panel)  # from the first token on
        await c.until(lambda: "draft-model n=2" in str(line.content))
        await c.until(lambda: "ctx 44/" in str(line.content))  # 40 of the prompt, and a step of 4
        engine.go_on.set()
        await c.settled()


async def test_a_question_waits_for_the_switch_of_a_drafter(
    chat: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Player("one", "two")
    async with chat(engine) as c:
        await c.ask("a")
        may, opens = threading.Event(), engine.open
        monkeypatch.setattr(engine, "open", lambda *given: may.wait(FOREVER) and opens(*given))
        await c.pilot.press("ctrl+s")
        await c.until(lambda: c.app.engine.busy)
        c.prompt.write("b")
        await c.pilot.press("enter")
        assert c.prompt.text == ""
        may.set()
        await c.settled()
        assert c.answers == ["one", "two"]
        assert "no drafter" in c.facts


async def test_another_answer_takes_the_last_one_s_place(chat: Any) -> None:
    async with chat(Player("one", "two", "three")) as c:
        await c.ask("a")
        await c.press("ctrl+r")
        assert (c.questions, c.answers) == (["a"], ["two"])
        await c.press("escape", "r")
        assert c.answers == ["three"]
        assert [t.content for t in Store().talk(1).turns] == ["a", "three"]


async def test_the_last_question_can_be_changed_or_left_as_it_is(chat: Any) -> None:
    async with chat(Player("one", "two", "three")) as c:
        await c.ask("a")
        await c.ask("b")
        await c.press("f10")
        assert c.prompt.text == "b"
        await c.press("escape")
        assert c.prompt.text == ""
        await c.press("f10")
        await c.ask("c")
        assert (c.questions, c.answers) == (["a", "c"], ["one", "three"])
        assert [t.content for t in Store().talk(1).turns] == ["a", "one", "c", "three"]


async def test_what_was_being_written_waits_until_the_last_question_is_changed(chat: Any) -> None:
    async with chat(Player("one", "two")) as c:
        await c.ask("a")
        c.prompt.write("a draft")
        for key, wanted in (("f10", "a"), ("f10", "a"), ("escape", "a draft"), ("f10", "a")):
            await c.press(key)
            assert c.prompt.text == wanted
        c.prompt.write("b")
        await c.press("enter")
        await c.until(lambda: c.answers == ["two"])
        assert (c.questions, c.prompt.text) == (["b"], "a draft")
        await c.press("f10", "ctrl+n")
        assert (c.questions, c.prompt.text) == ([], "a draft")


async def test_the_title_goes_with_the_first_question_until_it_gets_a_name(chat: Any) -> None:
    async with chat(Player("one", "two", "three", "four")) as c:
        await c.ask("a")
        await c.press("f10")
        await c.ask("b")
        assert [e.title for e in Store().talks()] == ["b"]
        await c.press("ctrl+o", "r")
        c.app.screen.query_one(Input).value = "My own"
        await c.press("enter", "escape", "f10")
        await c.ask("c")
        assert [e.title for e in Store().talks()] == ["My own"]
        await c.ask("d")
        await c.press("f10")
        assert c.prompt.text == "d"


async def test_the_context_of_another_conversation_is_not_this_one_s(chat: Any) -> None:
    async with chat(Player("one", "two", "three")) as c:
        await c.ask("a")

        def context() -> str:
            found = re.search(r"ctx ([\d,-]+)/", str(c.screen.query_one("#setup-line").content))
            assert found
            assert f"ctx {found[1]}/" in c.panel
            return found[1]

        used = context()
        assert used not in ("0", "-")
        await c.press("ctrl+n")
        assert context() == "0"
        await c.press("ctrl+o", "enter")
        assert c.questions == ["a"]
        assert context() == "-"  # nobody has counted it yet
        await c.ask("b")
        assert context() not in ("0", "-")


async def test_an_empty_answer_leaves_all_as_it_was(chat: Any) -> None:
    async with chat(Player("one", answer(""), answer(""))) as c:
        await c.ask("a")
        await c.ask("b")
        assert (c.questions, c.answers, c.prompt.text) == (["a"], ["one"], "b")
        assert "empty answer" in c.notes
        c.prompt.clear()
        await c.press("ctrl+r")
        assert c.answers == ["one"]


async def test_thinking_is_folded_and_can_be_unfolded(chat: Any) -> None:
    async with chat(Player("<think>\nLet [me see]. </think>\n\nFour.")) as c:
        await c.ask("2 + 2")
        view = c.screen.query_one(AnswerView)
        assert view.source == "Four."
        thinking = view.query_one(".-thinking", MarkdownView)
        assert "me see" in thinking.document.source
        assert "think>" not in thinking.document.source
        assert not thinking.display
        assert "▸ thinking" in str(view._header.content)
        await c.press("escape", "u")
        assert thinking.display
        await c.pilot.click(view._header)
        assert not thinking.display


async def test_a_dead_engine_keeps_what_had_come_and_a_new_one_goes_on(chat: Any) -> None:
    died = EngineDied("signal SIGABRT", ["GGML_ASSERT"], "/tmp/log")
    engine = Player(("Half of an answer", died), "Whole.")
    async with chat(engine) as c:
        await c.ask("a")
        assert isinstance(c.app.screen, EngineLostScreen)
        await c.press("escape")
        assert c.answers == ["Half of an answer"]
        figures = c.screen.figures
        assert figures.accept_length and not figures.live  # of what had come, and no longer "now"
        assert "engine not running" in c.header and "ctx" not in c.header
        assert "ctx -/" in c.panel
        await c.ask("b")
        assert c.answers == ["Half of an answer", "Whole."]
        assert engine.starts == 2
        assert "ctx 4" in c.header
        assert [t.content for t in Store().talk(1).turns][-1] == "Whole."


# ---- where keys go ---------------------------------------------------------------------------


async def test_what_is_pasted_or_typed_beside_the_prompt_goes_into_it(chat: Any) -> None:
    async with chat(Player(TEXT)) as c:
        await c.press("escape")
        assert not c.prompt.has_focus
        c.app.post_message(Paste("two\nlines"))
        await c.settled()
        assert (c.prompt.text, c.prompt.has_focus) == ("two\nlines", True)
        c.app.post_message(Paste(" more"))
        await c.settled()
        assert c.prompt.text == "two\nlines more"  # not twice
        await c.press("escape")
        for key in ("É", "b", "1"):  # a burst: only the first letter is typed beside the prompt
            c.app.post_message(Key(key, key))
        await c.settled()
        assert (c.prompt.text, c.prompt.has_focus) == ("two\nlines moreÉb1", True)


async def test_letters_are_keys_beside_the_prompt_and_text_in_it(
    chat: Any, settings: SettingsStore
) -> None:
    async with chat(Player(TEXT)) as c:
        await c.press("t")
        assert (c.prompt.text, settings.values.tint) == ("t", True)
        await c.press("escape", "t")
        assert (c.prompt.text, settings.values.tint) == ("t", False)
        for back in ("enter", "escape", "tab"):
            await c.press(back)
            assert c.prompt.has_focus, back
            await c.press("escape")
        assert c.questions == []


async def test_the_footer_shows_what_keys_do_where_the_focus_is(chat: Any) -> None:
    engine = Player(TEXT)
    engine.hold_after = 4
    async with chat(engine) as c:
        await c.until(lambda: "esc Keys" in c.keys)
        assert "f7 Baseline" in c.keys and "f1 Explain" in c.keys and "b Baseline" not in c.keys
        await c.press("escape")
        await c.until(lambda: "⏎ Write" in c.keys)
        assert " b Baseline" in c.keys and "? Explain" in c.keys and "f7" not in c.keys
        await c.press("enter")
        await asked_and_held(c, engine)
        await c.until(lambda: "esc Stop" in c.keys)
        await c.pilot.press("escape")
        await c.settled()
        assert c.prompt.has_focus  # it stopped the answer, and did no more
        await c.until(lambda: "esc Keys" in c.keys)
        await c.press("f10")
        await c.until(lambda: "esc Keep" in c.keys)
        await c.press("escape")
        await c.until(lambda: "esc Keys" in c.keys)


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ("ctrl+d", "⏎ Choose  esc Cancel"),
        ("ctrl+l", "⏎ Choose  esc Cancel"),
        ("ctrl+o", "⏎ Open  esc Close  r Rename  del Delete"),
        ("ctrl+o r", "⏎ Done  esc Cancel"),
    ],
)
async def test_the_footer_of_a_dialog_names_the_keys_that_work(
    chat: Any, keys: str, named: str
) -> None:
    async with chat(Player(TEXT), (80, 24)) as c:
        await c.ask("x")
        await c.press(*keys.split())
        await c.until(lambda: seen(c.app).endswith(named.replace("  ", " ")))


async def test_a_key_and_its_word_stay_in_one_line(chat: Any) -> None:
    async with chat(Player(), size=(80, 24)) as c:
        await c.settled()
        bound = c.screen.query_one("#welcome", Static).content
        assert isinstance(bound, Bound)
        pairs = ("Enter sends", "Ctrl+J is a new line", "b baseline", "r again", "h thinking")
        for width in range(40, 81, 3):
            lines = bound.wrapped(width).plain.split("\n")
            for pair in pairs:
                assert any(pair.replace(" ", "\u00a0") in line for line in lines), pair
            assert max(map(cell_len, lines)) <= width


# ---- speed -----------------------------------------------------------------------------------


async def test_the_answer_runs_again_as_baseline_which_is_kept(chat: Any) -> None:
    run = answer(TEXT)
    engine = Player(run)
    engine.baselines = [plain(run)]
    async with chat(engine) as c:
        await c.press("f7")
        assert "Ask something first" in c.notes
        await c.ask("x")
        await c.press("f7")
        assert engine.sessions == ["chat-1", "chat-baseline"]
        assert engine.closed == ["chat-baseline"]
        assert engine.samplers[0] == engine.samplers[1]
        assert engine.max_tokens[1] == len(run.tokens)
        assert "identical" in c.facts
        assert run.decode_tps and engine.baselines == []
        rate = plain(run).decode_tps
        assert rate is not None
        assert f"{run.decode_tps / rate:.2f} x" in c.facts
        assert f"of baseline {rate:.1f}" in c.panel
        assert "identical" in Store().talk(1).turns[-1].facts["compared"]
    async with chat(Player(), size=(80, 24)) as c:  # another start
        line = c.screen.query_one(SpeedLine)
        await c.until(
            lambda: re.search(rf"baseline {rate:.1f} \(\d+ (s|min) ago, ctx 5", str(line.content))
        )
    engine = Player(TEXT)
    async with chat(engine) as c:
        await c.until(
            lambda: re.search(rf"baseline {rate:.1f} tok/s \(\d+ (s|min) ago, ctx 5", c.panel)
        )
        assert engine.starts == 0
        await c.ask("y")
        assert f"of baseline {rate:.1f}" in c.panel


async def test_a_long_baseline_is_asked_about_with_no_longer_than_it_takes(chat: Any) -> None:
    run = answer(TEXT, speed=0.001)
    times = replace(run.times, decode=3 * run.times.decode, draft=2 * run.times.decode)
    run, tokens = replace(run, times=times), len(run.tokens)
    engine = Player(run)
    engine.baselines = [plain(run, speed=0.001)]
    async with chat(engine) as c:
        await c.ask("x")
        longest = tokens * times.verify / run.counts.target_calls
        await c.press("f7")
        assert f"{tokens} tokens without a drafter: at most about {longest:.0f} s" in seen(c.app)
        await c.press("y")
        rate = plain(run, speed=0.001).decode_tps
        assert rate is not None
        await c.press("f7")
        assert f"{tokens} tokens without a drafter: about {tokens / rate:.0f} s" in seen(c.app)


async def test_the_last_answer_of_a_conversation_opened_again_runs_again_exactly(
    chat: Any, settings: SettingsStore
) -> None:
    settings.change(sampler={"temperature": 0.9}, system="Be brief.")
    first = Player("one", TEXT)
    async with chat(first) as c:
        await c.ask("a")
        await c.ask("b")
    settings.change(sampler={}, system=None)
    engine = Player(answer(TEXT))
    engine.baselines = [plain(answer(TEXT))]
    async with chat(engine) as c:
        await c.open_list()
        await c.press("enter")
        assert "ctx -" in c.panel
        await c.press("f7")
        assert engine.sessions == ["chat-baseline"]
        assert engine.prompts == first.prompts[-1:]  # with the ids that "one" was generated as
        assert engine.samplers == first.samplers[-1:]
        assert engine.max_tokens == [len(answer(TEXT).tokens)]
        rate = plain(answer(TEXT)).decode_tps
        assert f"baseline {rate:.1f} tok/s, identical" in c.facts
        assert f"baseline {rate:.1f}" in c.panel
        await c.press("f9")
        assert isinstance(c.app.screen, InspectorScreen)
        assert "0.900" in text_of(c.app.screen)
        assert engine.prompts == first.prompts[-1:] * 2
        await c.press("escape")
        c.app.use(model="demo-mtp")
        await c.settled()
        await c.press("f7", "f9")
        assert "The last answer is demo's, and demo-mtp is chosen" in c.notes
        assert len(engine.prompts) == 2


async def test_an_answer_whose_tokens_were_not_kept_is_not_run_again(chat: Any) -> None:
    turns = (Turn("user", "a"), Turn("assistant", "one", {"tokens": 1}))
    Store().save(Talk("Old", "demo", turns))
    engine = Player()
    async with chat(engine) as c:
        await c.open_list()
        await c.press("enter", "f7")
        assert "kept without its tokens" in c.notes
        assert engine.starts == 0


@pytest.mark.parametrize(
    ("replayed", "near_tie"),
    [
        (Replayed(1, True, 0.1, 0.2), True),
        (Replayed(1, True, 0.5, 0.2), False),
        (Replayed(1, False, 0.1, 0.2), False),
        (ContextTooSmall("No room.", "Close something."), False),
    ],
)
async def test_a_baseline_of_another_text_is_said_and_whether_it_is_a_near_tie(
    chat: Any, replayed: Any, near_tie: bool
) -> None:
    engine = Player(TEXT)
    engine.baselines = [answer(TEXT.replace("things", "thongs"))]
    engine.replays = [replayed]
    may, replay = threading.Event(), engine.replay
    engine.replay = lambda *asked: may.wait(FOREVER) and replay(*asked)
    async with chat(engine) as c:
        await c.ask("x")
        await c.pilot.press("f7")
        await c.until(lambda: c.facts == "checking where the texts part")
        may.set()
        await c.settled()
        assert "another text from token 7 on" in c.facts
        assert ("token 7 on, a near tie" in c.facts) is near_tie
        assert not engine.replays
        assert {"chat-plain", "chat-drafted"} <= set(engine.closed)


@pytest.mark.parametrize("answer_too", [False, True])
async def test_what_was_measured_beside_other_load_is_marked(
    chat: Any, monkeypatch: pytest.MonkeyPatch, answer_too: bool
) -> None:
    run = answer(TEXT)
    engine = Player(run)
    engine.baselines = [plain(run)]
    async with chat(engine) as c:
        monkeypatch.setattr(machine, "competes", lambda _load: answer_too)
        await c.ask("x")
        assert ("beside other load" in c.facts) is answer_too
        monkeypatch.setattr(machine, "competes", lambda _load: True)
        await c.press("f7")
        assert c.facts.count("beside other load") == 1
        assert ("identical, beside other load" in c.facts) is not answer_too


async def test_speculation_drafter_and_length_change_between_turns_without_a_new_load(
    chat: Any,
) -> None:
    long = " ".join(f"word{i}" for i in range(20))
    engine = Player(long, long, long)
    async with chat(engine) as c:
        await c.ask("a")
        await c.press("ctrl+s")
        assert [d.method for _, d, _ in engine.opened] == ["draft-model", "none"]
        assert engine.opened[1][2] == "chat-1"
        await c.ask("b")
        assert "no drafter" in c.facts
        assert Store().baseline(c.screen._facts.setup) is not None  # a plain answer measures it
        await c.press("ctrl+s")
        await c.press("ctrl+d")
        assert isinstance(c.app.screen, Choose)
        options = c.app.screen.query_one(OptionList)
        names = [str(options.get_option_at_index(i).prompt) for i in range(options.option_count)]
        options.highlighted = next(i for i, name in enumerate(names) if "ngram" in name)
        await c.press("enter")
        assert engine.opened[-1][1].method == "ngram"
        await c.press("ctrl+l")
        options = c.app.screen.query_one(OptionList)
        options.highlighted = 5
        await c.press("enter")
        assert (engine.opened[-1][1].method, engine.opened[-1][1].n_max) == ("ngram", 4)
        assert engine.starts == 1


async def test_what_tuning_found_is_offered_and_used_with_all_its_settings(
    chat: Any, settings: SettingsStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(profiles, "folder", lambda: tmp_path / "profiles")
    target = resolve_target("demo")
    (spec,) = resolve_drafters(target, ("eagle3",))
    now, day = datetime.now(UTC), timedelta(days=3)
    for name, speedup, how in (
        ("code", 1.3, {"n_max": 4, "p_min": 0.35}),
        ("trees", 1.1, {"n_max": 5, "tree": 8}),
    ):
        profiles.keep(
            profiles.Profile(
                name=name,
                created=now - day,
                model="demo",
                target=profiles.File.of(target.path),
                workloads=("code9",),
                drafter=profiles.drafting(spec.settings(**how), "eagle3"),
                measured=profiles.Measured(
                    speedup=speedup, interval=(speedup - 0.1, speedup + 0.1), prompts=4, pairs=4
                ),
                machine=machine.describe(),
                build={"llama_cpp_python": metadata.version("llama-cpp-python")},
                localspec="1",
            )
        )

    async def choose(words: str) -> str:
        """The line that is marked, before the one with ``words`` is taken."""
        await c.press("ctrl+d")
        await c.until(lambda: isinstance(c.app.screen, Choose))
        options = c.app.screen.query_one(OptionList)
        lines = [" ".join(str(o.prompt).split()) for o in options.options]
        options.highlighted = next(i for i, line in enumerate(lines) if words in line)
        offered.update(lines)
        await c.press("enter")
        return next(line for line in lines if line.startswith("●"))

    engine, offered = Player(*["one two three"] * 4), set[str]()
    async with chat(engine) as c:
        await c.ask("a")
        assert (await choose("profile code")).startswith("● auto")
        said = "eagle3 n=4 p_min=0.35 is 1.30x [1.20, 1.40] on code9, tuned 3 d ago"
        assert f"profile code {said}" in offered
        await c.until(lambda: engine.opened[-1][1].method == "eagle3")
        used = engine.opened[-1][1]
        assert (used.n_max, used.p_min, used.tree) == (4, 0.35, 0)
        assert Setup.of(SettingsStore(settings.path).values) == Setup("demo", "eagle3", 4, 0.35)
        assert (await choose("profile trees")).startswith("● profile code")
        await c.until(lambda: engine.opened[-1][1].tree)
        assert (engine.opened[-1][1].n_max, engine.opened[-1][1].tree) == (5, 8)
        assert "eagle3 tree 8" in str(c.screen.query_one("#setup-line", Static).content)
        await c.press("f4")
        ab = c.app.screen
        assert isinstance(ab, ABScreen)
        asked = ab._options("x")
        assert (asked.drafters, asked.n_max, asked.trees, asked.chains) == (
            ("eagle3",), (5,), (8,), False,
        )  # fmt: skip
        drafted = ab_candidates(asked, target)[1].drafter
        assert (drafted.method, drafted.n_max, drafted.tree) == ("eagle3", 5, 8)
        await c.press("f3")
        assert (await choose("ngram")).startswith("● profile trees")
        await c.until(lambda: engine.opened[-1][1].method == "ngram")
        assert c.app.setup == Setup("demo", "ngram"), "what was of another drafter is gone"
        assert engine.starts == 1


async def test_steps_are_looked_at_and_p_comes_on_request(chat: Any) -> None:
    engine = Player(TEXT)
    async with chat(engine) as c:
        await c.press("f9")
        assert "no answer with steps" in c.notes
        await c.ask("x")
        first = engine.last
        assert first is not None
        slow = tuple(step._replace(t_verify=9.0) for step in first.steps)
        engine.last = replace(first, steps=slow, counts=replace(first.counts, drafted=1))
        await c.press("f9")
        screen = c.app.screen
        assert isinstance(screen, InspectorScreen)
        drafted, verify = f"{first.counts.drafted} drafted", "verify 11.0 ms"
        assert drafted in text_of(screen) and verify in text_of(screen)
        line = str(screen.query_one(OptionList).get_option_at_index(0).prompt)
        assert "is" in line and "of" in line
        detail = screen.query_one("#detail")
        assert "rejected" in text_of(screen)
        assert "correction" in text_of(screen)
        assert "0.900" not in text_of(screen)
        await c.press("p")
        assert "0.900" in text_of(screen)
        assert "0.050" in text_of(screen)
        assert drafted in text_of(screen) and verify in text_of(screen), "of the answer itself"
        assert "0.800" in text_of(screen)  # what the drafter gave its token
        assert detail.is_mounted
        await c.press("question_mark")
        assert isinstance(c.app.screen, ExplainScreen)
        assert "n-gram drafts are looked up and have no q" in text_of(c.app.screen)
        await c.press("escape")
        await c.press("escape")
        assert c.app.screen is c.screen


@pytest.mark.parametrize(("size", "lines"), [((80, 24), 1), ((90, 40), 2), ((140, 45), 0)])
async def test_the_figures_fold_to_two_lines_and_to_one(
    chat: Any, size: tuple[int, int], lines: int
) -> None:
    async with chat(Player(TEXT), size=size) as c:
        await c.ask("x")
        line, panel = c.screen.query_one(SpeedLine), c.screen.query_one(SpeedPanel)
        assert (line.display, panel.display) == (lines > 0, lines == 0)
        if lines:
            assert line.size.height == lines
            assert len(str(line.content).split("\n")) == lines
            assert "tok/s" in str(line.content)
        await c.press("escape", "v")
        assert not line.display
        assert not panel.display


def sight_of(c: Chat) -> str:
    """The figures, in whichever form they are shown."""
    line = c.screen.query_one(SpeedLine)
    if line.display:
        return str(line.content)
    return f"{c.screen.query_one(SpeedPanel)._speed._border_title} {c.panel}"


@pytest.mark.parametrize("size", [(80, 24), (90, 40), (140, 45)])
async def test_figures_are_called_by_the_run_that_they_are_of_and_not_by_what_is_chosen(
    chat: Any, size: tuple[int, int]
) -> None:
    run = answer(TEXT)
    engine = Player(run, "one two three four")
    engine.baselines = [plain(run)]
    rate = plain(run).decode_tps
    async with chat(engine, size) as c:
        await c.settled()
        if size != (140, 45):  # a panel without figures needs no name
            assert "auto" in sight_of(c)
        await c.ask("x")
        await c.press("f7")
        assert "draft-model n=2" in sight_of(c)
        await c.press("ctrl+s")
        assert "no drafter" in c.header
        assert "draft-model n=2" in sight_of(c) and "no drafter" not in sight_of(c)
        await c.press("f9")
        sums = text_of(c.app.screen)
        assert "draft-model n=2" in sums and "no drafter" not in sums
        await c.press("escape", "ctrl+s")
        c.app.use(model="demo-mtp")
        await c.settled()
        assert "mtp n=" in c.header
        shown = sight_of(c)
        assert "draft-model n=2" in shown and ("demo, " in shown or "other model, " in shown)
        assert re.search(rf"of (baseline )?{rate:.1f}", shown), "that model's baseline"
        await c.ask("y")
        assert "mtp n=" in sight_of(c) and "draft-model" not in sight_of(c)
        assert "not measured" in sight_of(c), "and this one has none"
        c.app.use(model="demo", drafter="none")
        await c.press("ctrl+n")
        assert "baseline" in sight_of(c) and f"{rate:.1f}" in sight_of(c), "of what is chosen"


@pytest.mark.parametrize("size", [(80, 24), (140, 45)])
async def test_until_the_next_answer_has_figures_none_are_shown(
    chat: Any, size: tuple[int, int]
) -> None:
    engine = Player(TEXT, "")
    rate = f"{answer(TEXT).decode_tps:.1f}"
    async with chat(engine, size) as c:
        await c.ask("x")
        may, opens = threading.Event(), engine.open
        engine.open = lambda *given: may.wait(FOREVER) and opens(*given)
        await c.pilot.press("ctrl+s")
        await c.until(lambda: c.app.engine.switching)
        assert rate in sight_of(c) and "draft-model n=2" in sight_of(c)
        c.prompt.write("y")
        await c.pilot.press("enter")
        await c.until(lambda: len(c.answers) == 2)
        for _ in range(5):
            await c.pilot.pause(chat_module.DRAW_SECONDS)
            now = sight_of(c)
        may.set()
        await c.settled()
        assert rate not in now and "draft-model" not in now
        assert rate in sight_of(c) and "draft-model n=2" in sight_of(c), "y came to nothing"


async def test_an_answer_is_of_the_drafter_and_model_that_it_began_with(chat: Any) -> None:
    engine = Player(TEXT)
    engine.hold_after = 4
    async with chat(engine) as c:
        await asked_and_held(c, engine)
        await c.pilot.press("ctrl+s")
        await c.until(lambda: "no drafter" in c.header)
        c.app.use(model="demo-mtp")
        engine.go_on.set()
        await c.settled()
        assert "draft-model n=2" in c.facts
        assert Store().talk(1).model == "demo"
        await c.press("f9")
        assert "The last answer is demo's, and demo-mtp is chosen" in c.notes


@pytest.mark.parametrize("size", [(80, 24), (80, 40)])
async def test_a_baseline_has_its_age_and_no_figure_is_cut_however_narrow(
    chat: Any, size: tuple[int, int]
) -> None:
    run = answer(TEXT)
    engine = Player(run)
    engine.baselines = [plain(run)]
    rate = plain(run).decode_tps
    async with chat(engine, size) as c:
        await c.ask("x")
        await c.press("f7")
        c.screen._baseline = replace(c.screen._baseline, measured=time.time() - 20 * 60)
        line = c.screen.query_one(SpeedLine)
        for width in (80, 99, 66, 54):
            await c.pilot.resize_terminal(width, size[1])
            await c.pilot.pause()
            await c.until(lambda w=width: line.content_size.width == w - 2)
            await c.settled()
            shown = str(line.content)
            assert max(map(cell_len, shown.split("\n"))) <= line.content_size.width
            assert re.search(rf"\d\.\d\dx of {rate:.1f} \(20 min( ago(, ctx 52)?)?\)", shown)
            if width >= 80:
                assert "draft-model n=2" in shown and "AL 2.75" in shown
                assert re.search(r" · ctx (\d+/2,048|\d+%)$", shown)


async def test_the_age_of_a_baseline_goes_on_while_nothing_else_does(
    chat: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = answer(TEXT)
    engine = Player(run)
    engine.baselines = [plain(run)]
    monkeypatch.setattr("localspec.tui.screens.chat.AGE_SECONDS", 0.05)
    async with chat(engine, (140, 45)) as c:
        await c.ask("x")
        await c.press("f7")
        panel = c.screen.query_one(SpeedPanel)
        await c.until(lambda: re.search(r"\(\d+ s ago", text_of(panel)))
        then = time.time()
        monkeypatch.setattr("localspec.tui.widgets.speed.time.time", lambda: then + 70)
        await c.until(lambda: "(1 min" in text_of(panel))


@pytest.mark.parametrize("rate", [5.7, 95.2, 1234.0])
async def test_a_baseline_stays_in_one_line_of_the_panel_as_it_grows_older(
    chat: Any, rate: float
) -> None:
    async with chat(Player(TEXT), (140, 45)) as c:
        await c.ask("x")
        for seconds, depth in ((20, 52), (70, 174), (50 * 60, 12_345), (90_000, 123_456)):
            measured = time.time() - seconds
            c.screen._baseline = Baseline(rate, depth, 64, measured)
            c.screen._show_figures()
            await c.pilot.pause()
            line = next(row for row in shown(c.app).split("\n") if " of baseline " in row)
            assert re.search(rf"of baseline {rate:.1f} \(\d+ (s|min|h|d).*\) +│", line)


@pytest.mark.parametrize("sizes", [((80, 24), (140, 45)), ((140, 45), (80, 24))])
async def test_a_size_that_came_while_another_mode_was_seen_is_that_of_all_that_is_shown(
    chat: Any, sizes: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    before, after = sizes

    def shown(c: Any) -> list[str]:
        return [str(c.screen.query_one(at).content) for at in ("#setup-line", "#speed-line")]

    async with chat(Player(TEXT), before) as c:
        await c.ask("x")
        await c.press("f2")
        await c.pilot.resize_terminal(*after)
        await c.press("f3")
        await c.until(lambda: c.screen.size == after)
        await c.settled()
        came_back = shown(c)
        await c.pilot.resize_terminal(after[0] - 1, after[1])
        await c.settled()
        await c.pilot.resize_terminal(*after)
        await c.settled()
        assert came_back == shown(c)
        assert ("“x”" in came_back[0]) == (after[0] == 140)


@pytest.mark.parametrize("since", ["another drafter", "speculation off", "another model between"])
async def test_p_and_q_come_from_the_answer_s_own_drafter(chat: Any, since: str) -> None:
    engine = Player(TEXT)
    async with chat(engine) as c:
        await c.ask("x")
        made_with = engine.opened[0][1]
        if since == "speculation off":
            await c.press("ctrl+s")
        else:
            if since == "another model between":
                c.app.use(model="demo-mtp")
                await c.settled()
            c.app.use(model="demo", drafter="eagle3")
            await c.settled()
        chosen = engine.opened[-1][:2]
        await c.press("f9", "p")
        assert "0.800" in text_of(c.app.screen)
        assert engine.opened[-1][:2] == ("chat-scores", made_with)
        assert engine.sessions[-1] == engine.closed[-1] == "chat-scores"
        await c.press("escape")
        assert c.screen._facts.drafter == chosen[1] != made_with


# ---- settings --------------------------------------------------------------------------------


async def test_settings_hold_from_the_next_answer_on(chat: Any, settings: SettingsStore) -> None:
    engine = Player("one", "two")
    async with chat(engine) as c:
        await c.press("escape", "h")
        assert settings.values.thinking is True
        await c.press("h", "escape")
        await c.ask("a")
        await c.pilot.press("ctrl+g")
        await c.settled()
        screen = c.app.screen
        assert isinstance(screen, ChatSettingsScreen)
        screen.query_one("#temperature", Input).value = "9"
        await c.pilot.press("ctrl+s")
        assert c.app.screen is screen  # refused
        screen.query_one("#temperature", Input).value = "0.5"
        screen.query_one("#max_tokens", Input).value = "33"
        screen.query_one("#seed", Input).value = "7"
        screen.query_one("#system", TextArea).text = "Be brief."
        await c.press("ctrl+s")
        await c.ask("b")
        assert (engine.samplers[-1].temperature, engine.samplers[-1].seed) == (0.5, 7)
        assert engine.max_tokens[-1] == 33
        said = "".join(chr(i) for i in engine.prompts[-1] if i >= 4)
        assert "Be brief." in said
        assert settings.values.sampler == {"temperature": 0.5, "seed": 7.0}
        assert settings.values.thinking is False
        await c.press("escape", "h")
        assert "no switch" in c.notes
        assert settings.values.thinking is False  # nothing changes unseen for another model


@pytest.mark.parametrize(
    ("name", "typed", "said"),
    [
        ("temperature", "hot", "Temperature lies between 0 and 5."),
        ("temperature", "nan", "Temperature lies between 0 and 5."),
        ("top_k", "1e3", "Top k is a whole number between 0 and 1000000."),
        ("max_tokens", "1e9", "The token budget is a whole number from 1 on."),
        ("max_tokens", "2²", "The token budget is a whole number from 1 on."),
    ],
)
async def test_what_is_typed_for_a_number_is_refused_as_it_is(
    chat: Any, settings: SettingsStore, name: str, typed: str, said: str
) -> None:
    async with chat(Player("one")) as c:
        await c.press("ctrl+g")
        screen = c.app.screen
        field = screen.query_one(f"#{name}", Input)
        field.focus()
        await c.pilot.press(*typed, "ctrl+s")
        assert c.app.screen is screen
        assert (field.value, field.has_focus) == (typed, True)
        assert said in str(screen.query_one(".dialog").border_subtitle)
        assert not settings.values.sampler


async def test_where_no_system_message_is_given_the_models_own_is_seen(chat: Any) -> None:
    async with chat(Player()) as c:
        given = ChatSettings(None, None, None, {})
        await c.app.push_screen(ChatSettingsScreen(given, {}, "Be [kind]."))
        await c.until(lambda: "Be [kind]." in seen(c.app))


@pytest.mark.parametrize(
    "sampler",
    [
        {"seed": 1234567.0, "top_k": 1_000_000.0},
        {"seed": 2147483647.0, "top_k": 40.0},
        {"temperature": 0.1234567890123, "top_p": 1 / 3, "min_p": 1e-7, "repeat_penalty": 1.0},
    ],
)
async def test_settings_that_were_not_touched_stay_what_they_were(
    chat: Any, settings: SettingsStore, sampler: dict[str, float]
) -> None:
    settings.values.sampler = dict(sampler)
    async with chat(Player("one")) as c:
        await c.settled()
        await c.pilot.press("ctrl+g")
        await c.settled()
        screen = c.app.screen
        assert isinstance(screen, ChatSettingsScreen)
        assert all(screen.query_one(f"#{name}", Input).is_valid for name in sampler)
        await c.press("ctrl+s")
        assert c.app.screen is c.screen
        assert settings.values.sampler == sampler


@pytest.mark.parametrize(
    "name", ["~nobody-at-all/a.md", "x" * 300], ids=["nobody's home", "too long"]
)
async def test_a_name_that_no_file_can_have_is_told(chat: Any, name: str) -> None:
    async with chat(Player(TEXT)) as c:
        await c.ask("one")
        await c.pilot.press("f12")
        await c.until(lambda: isinstance(c.app.screen, Ask))
        c.app.screen.query_one(Input).value = name
        await c.pilot.press("enter")
        await c.until(lambda: "begins." in c.notes or "cannot be looked at" in c.notes)


async def test_a_name_that_is_empty_is_told_and_the_old_one_stays(chat: Any) -> None:
    async with chat(Player(TEXT)) as c:
        await c.ask("one")
        await c.open_list()
        await c.press("r")
        asked = c.app.screen
        assert isinstance(asked, Ask)
        asked.query_one(Input).value = " "
        await c.pilot.press("enter")
        await c.until(lambda: "Nothing is written here." in c.notes)
        assert c.app.screen is asked
        await c.press("escape", "escape")
        assert [entry.title for entry in Store().talks()] == ["one"]


async def test_a_conversation_is_not_written_over_a_folder(chat: Any, tmp_path: Path) -> None:
    async with chat(Player(TEXT)) as c:
        await c.ask("one")
        await c.pilot.press("f12")
        await c.until(lambda: isinstance(c.app.screen, Ask))
        c.app.screen.query_one(Input).value = str(tmp_path)
        await c.pilot.press("enter")
        await c.until(lambda: f"{tmp_path} is a folder." in c.notes)
        assert c.app.screen is c.screen  # nothing is asked


async def test_what_a_setting_does_is_said_whole_in_80_columns(chat: Any) -> None:
    async with chat(Player("one"), size=(80, 24)) as c:
        await c.ask("a")
        await c.press("ctrl+g")
        hints = list(c.app.screen.query("Grid .dim").results(Static))
        assert len(hints) > 5
        assert [str(h.content) for h in hints if len(str(h.content)) > h.content_size.width] == []


# ---- conversations ---------------------------------------------------------------------------


async def test_conversations_are_new_opened_renamed_and_deleted(chat: Any) -> None:
    engine = Player("one", "two", "three")
    async with chat(engine) as c:
        await c.ask("a")
        await c.press("ctrl+n")
        assert (c.questions, c.answers) == ([], [])
        await c.ask("b")
        assert "a" not in "".join(chr(i) for i in engine.prompts[-1] if i >= 4).split("\n")
        await c.open_list()
        screen = c.app.screen
        assert isinstance(screen, ConversationsScreen)
        assert screen.query_one(OptionList).option_count == 2
        screen.query_one(OptionList).highlighted = 1
        await c.pilot.press("r")
        await c.settled()
        assert isinstance(c.app.screen, Ask)
        c.app.screen.query_one(Input).value = "First"
        await c.pilot.press("enter")
        await c.settled()
        await c.pilot.press("enter")
        await c.settled()
        assert (c.questions, c.answers) == (["a"], ["one"])
        await c.ask("c")
        said = "".join(chr(i) for i in engine.prompts[-1] if i >= 4)
        assert "one" in said and "two" not in said
        assert [e.title for e in Store().talks()] == ["First", "b"]
        await c.open_list()
        screen = c.app.screen
        assert isinstance(screen, ConversationsScreen)
        await c.pilot.press("delete")
        await c.settled()
        assert isinstance(c.app.screen, Confirm)
        await c.pilot.press("y")
        await c.until(lambda: screen.deleted)
        await c.pilot.press("escape")
        await c.settled()
        assert [e.title for e in Store().talks()] == ["b"]
        assert c.questions == []  # the one that was open is gone


async def test_a_conversation_brings_its_own_system_message_back(
    chat: Any, settings: SettingsStore
) -> None:
    settings.change(system="Be brief.")
    turns = (Turn("user", "a"), Turn("assistant", "one"))
    Store().save(Talk("Pirate", "demo", turns, system="Speak like a pirate."))

    def said() -> str:
        return "".join(chr(i) for i in engine.prompts[-1] if i >= 4)

    engine = Player("two", "three")
    async with chat(engine) as c:
        await c.open_list()
        await c.pilot.press("enter")
        await c.settled()
        await c.ask("b")
        assert "pirate" in said() and "brief" not in said()
        await c.press("ctrl+n")
        await c.ask("c")
        assert "brief" in said() and "pirate" not in said()
    assert settings.values.system == "Be brief."


@pytest.mark.parametrize("keys", [(), ("pageup",), ("home", "end")])
async def test_a_long_conversation_opens_at_its_end_unless_the_person_scrolls(
    chat: Any, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...]
) -> None:
    """It is wrapped anew when the scrollbar comes, bit by bit, and grows long after the last of it
    was put in."""
    text = "".join(f"Paragraph {i} with some words.\n\n" for i in range(100))
    Store().save(Talk("Long", "demo", (Turn("user", "a"), Turn("assistant", text))))
    go_on = asyncio.Event()
    rewrap = MarkdownView._rewrap

    async def rewrapping(view: MarkdownView, width: int) -> None:
        await go_on.wait()
        await rewrap(view, width)

    monkeypatch.setattr(MarkdownView, "_rewrap", rewrapping)
    async with chat(Player()) as c:
        scroll = c.screen.query_one(Transcript)
        await c.open_list()
        await c.press("enter")
        view = c.screen.query(AnswerView).last()
        view.append(text, drafted=False, thinking=False)
        view.flush()
        await c.settled()
        assert 0 < scroll.virtual_size.height < 250, "the rest is still to come"
        assert scroll.is_vertical_scroll_end
        scroll.focus()
        await c.press(*keys)
        go_on.set()
        await c.until(lambda: scroll.virtual_size.height > 2 * 200)
        await c.pilot.pause(0.1)
        if keys == ("pageup",):
            assert scroll.scroll_y < 200, "where the person reads"
        else:
            await c.until(lambda: scroll.is_vertical_scroll_end)


async def test_what_is_unfolded_at_the_end_is_read_from_its_beginning(chat: Any) -> None:
    question = "\n".join(f"line {i}" for i in range(200))
    Store().save(Talk("Long", "demo", (Turn("user", question), Turn("assistant", "one"))))
    async with chat(Player()) as c:
        await c.open_list()
        await c.press("enter")
        scroll = c.screen.query_one(Transcript)
        c.screen.query_one(Question).toggle()
        await c.until(lambda: scroll.max_scroll_y > 100)
        await c.pilot.pause()
        assert scroll.scroll_y == 0


async def test_a_kept_answer_looks_as_it_did(chat: Any) -> None:
    async with chat(Player("<think>Hm [well]. </think>" + TEXT)) as c:
        await c.ask("x")
        document = c.screen.query(AnswerView).last()._answer.document
        before = (document.source, bytes(document.drafted))
    async with chat(Player()) as c:
        await c.open_list()
        await c.pilot.press("enter")
        await c.settled()
        view = c.screen.query(AnswerView).last()
        assert (view._answer.document.source, bytes(view._answer.document.drafted)) == before
        assert view.has_class("-thought")
        assert "tok/s" in c.facts


async def test_another_model_goes_on_with_the_conversation(chat: Any) -> None:
    engine = Player("one", "two")
    async with chat(engine) as c:
        await c.ask("a")
        c.app.use(model="demo-mtp")
        await c.settled()
        await c.ask("b")
        assert (c.questions, c.answers) == (["a", "b"], ["one", "two"])
        assert "one" in "".join(chr(i) for i in engine.prompts[-1] if i >= 4)


async def test_a_conversation_of_another_model_says_who_answers_next(chat: Any) -> None:
    cached = "/c/hub/models--me--m-GGUF/snapshots/abc/m-Q4_0.gguf"
    turns = (Turn("user", "a"), Turn("assistant", "one"))
    for model in ("demo", cached):
        Store().save(Talk(f"of {model}", model, turns))
    assert "\nModel: hf:me/m-GGUF/m-Q4_0.gguf\n" in to_markdown(Talk("t", cached, turns))
    async with chat(Player()) as c:
        await c.open_list()
        lines = [str(o.prompt) for o in c.app.screen.query_one(OptionList).options]
        assert "1 question · hf:me/m-GGUF/m-Q4_0.gguf · " in lines[0]
        await c.press("enter")
        assert "Made with hf:me/m-GGUF/m-Q4_0.gguf; the next answer comes from demo." in c.notes
        c.app.clear_notifications()
        await c.open_list()
        await c.press("down", "enter")
        assert c.questions == ["a"] and not c.notes


async def test_a_model_is_called_by_its_title_before_the_engine_runs(
    chat: Any, settings: SettingsStore, tmp_path: Path
) -> None:
    folder = tmp_path / "models--me--m-GGUF" / "snapshots" / "abc"
    folder.mkdir(parents=True)
    settings.values.model = str(
        tiny_llama(tmp_path / "A small one.gguf").rename(folder / "m-Q4_0.gguf")
    )
    async with chat(Player()) as c:
        await c.until(lambda: c.header.startswith("A small one ▸"))
        await c.press("ctrl+n")
        await c.until(lambda: c.screen.query("#welcome"))
        assert str(c.screen.query_one("#welcome", Static).content).startswith("A small one\n")
        c.app.use(model=str(folder / "gone.gguf"))
        await c.until(lambda: c.header.startswith("hf:me/m-GGUF/gone.gguf ▸"))


async def test_a_title_is_kept_whole_and_cut_where_it_is_shown(chat: Any) -> None:
    line = "Explain in simple words how a compiler turns a loop into machine code and why it may"
    async with chat(Player("one"), (100, 30)) as c:
        await c.ask(line + "\nand more")
        assert [e.title for e in Store().talks()] == [line]
        await c.open_list()
        await c.until(lambda: "…" in option(c))
        assert option(c).rstrip().endswith("ago") or "just now" in option(c)
        assert len(option(c)) <= c.app.screen.query_one(OptionList).size.width
        await c.press("r")
        assert c.app.screen.query_one(Input).value == line
    async with chat(Player("one"), (220, 30)) as c:
        await c.ask("x" * 500)
        assert len(Store().talks()[0].title) == 200
        assert "x" * 59 + "…" in c.header


def option(c: Chat) -> str:
    return str(c.app.screen.query_one(OptionList).get_option_at_index(0).prompt)


async def test_a_store_that_cannot_be_used_is_said_once(
    chat: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    notify = LocalspecApp.notify

    def heard(app: LocalspecApp, message: str, *, title: str = "", **how: Any) -> None:
        said.append(title)
        notify(app, message, title=title, **how)

    monkeypatch.setattr(LocalspecApp, "notify", heard)
    (tmp_path / "localspec").mkdir()
    (tmp_path / "localspec" / "localspec.db").write_bytes(b"no database at all" * 99)
    async with chat(Player("one", "two")) as c:
        await c.ask("a")
        await c.ask("b")
        assert c.answers == ["one", "two"]
    assert len([title for title in said if "cannot be used" in title]) == 1


async def test_a_notice_is_not_stacked_on_itself(chat: Any) -> None:
    async with chat(Player()) as c:
        for _ in range(3):
            c.app.notify("The disk is full.", title="Oh")
        c.app.notify("The disk is full.", title="Ah")
        await c.until(lambda: "Ah" in c.notes)
        assert [n.title for n in c.app._notifications] == ["Oh", "Ah"]


async def test_earlier_questions_come_back_with_the_arrow_keys(chat: Any) -> None:
    Store().asked("from another day")
    async with chat(Player("one", "two")) as c:
        await c.settled()
        await c.ask("first\nof two lines")
        await c.ask("second")
        c.prompt.write("not sent")
        await c.press("up")
        assert c.prompt.text == "second"
        await c.press("up")
        assert c.prompt.text == "first\nof two lines"
        await c.press("up")  # inside the text
        assert c.prompt.text == "first\nof two lines"
        await c.press("up")
        assert c.prompt.text == "from another day"
        await c.press("down", "down", "down", "down")
        assert c.prompt.text == "not sent"


@pytest.mark.parametrize("name", ["talk.md", "talk.json"])
async def test_a_conversation_is_written_as_markdown_or_json(
    chat: Any, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    async with chat(Player("<think>Hm. </think>" + TEXT)) as c:
        await c.ask("Make a list")
        for again in (False, True):
            await c.pilot.press("f12")
            await c.settled()
            c.app.screen.query_one(Input).value = str(path)
            await c.pilot.press("enter")
            await c.settled()
            assert isinstance(c.app.screen, Confirm) == again
            if again:
                await c.pilot.press("y")
            await c.settled()
    text = path.read_text("utf-8")
    if name.endswith("md"):
        assert text.startswith("# Make a list\n\nModel: demo\n")
        assert "> Hm." in text
        assert "\nHere is a list of three things" in text
    else:
        assert json.loads(text)["messages"][1]["role"] == "assistant"
        from localspec.chat.conversation import Conversation
        from localspec.chat.template import ChatTemplate

        read = Conversation.load(path, ChatTemplate(None), "demo")
        assert [m.role for m in read.messages] == ["user", "assistant"]


async def test_the_answer_is_copied_without_its_thinking(chat: Any) -> None:
    async with chat(Player("<think>Hm. </think>**Four**.")) as c:
        await c.ask("x")
        await c.press("f11")
        assert c.app.clipboard == "**Four**."


# ---- what could break the layout -------------------------------------------------------------


async def test_long_pastes_wide_and_right_to_left_text_stay_in_their_place(chat: Any) -> None:
    odd = "漢字 " * 60 + "שלום עולם " * 20 + "👩‍👩‍👧‍👦 " * 30 + "x" * 500
    async with chat(Player(odd, n_ctx_train=4096), size=(80, 24)) as c:
        await c.ask(odd + "\n".join(f"line {i}" for i in range(300)))
        question = c.screen.query_one(Question)
        assert question.size.height < 60
        assert "300 lines" in str(question.content)
        for view in c.screen.query(MarkdownView):
            width = view.size.width
            for y in range(view.size.height):
                assert view.render_line(y).cell_length == width
        for widget in c.screen.query("#conversation, Prompt, #setup-line, SpeedLine"):
            assert widget.region.right <= 80


async def test_an_error_before_any_answer_gives_the_question_back(
    chat: Any, settings: SettingsStore
) -> None:
    settings.values.model = "no-such-model"
    async with chat(Player()) as c:
        await c.until(lambda: "no model called" in c.welcome)
        welcome = c.welcome
        await c.ask("a")
        assert (c.questions, c.prompt.text) == ([], "a")
        for said in (welcome, c.notes):
            assert "F2 shows all" in said and "localspec models" not in said  # the app's own way


async def test_nobody_is_told_to_install_the_demo_that_is_here(
    chat: Any, settings: SettingsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.values.model = None
    said = []

    def noted(text: Any) -> Bound:
        said.append(text.plain)
        return Bound(text)

    monkeypatch.setattr(chat_module, "Bound", noted)
    monkeypatch.setattr("localspec.tui.screens.first_start.advise", lambda: None)
    async with chat(Player()) as c:
        await c.until(lambda: c.app.setup.model == "demo")
        await c.settled()
        c.app.use(model=None)  # as when it was removed
        await c.until(lambda: "none of the catalogue's" in said[-1])
        assert "F2\u00a0shows the demo" in said[-1]
        assert not any("pip install" in text for text in said)


async def test_without_any_model_the_person_is_led_to_one(
    chat: Any, settings: SettingsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from localspec.catalog import Catalogue

    settings.values.model = None
    monkeypatch.setattr(Catalogue, "listings", lambda _self: [])
    first = FirstDownload(
        "far", "Q4_K_M", "2.0 GB, fits this machine (CPU), with the drafter draft"
    )
    monkeypatch.setattr("localspec.tui.screens.first_start.advise", lambda: first)
    missing = LocalspecError("The demo is not installed.")
    monkeypatch.setattr("localspec.tui.screens.first_start.find_demo", lambda *_: missing)
    async with chat(Player()) as c:
        await c.until(lambda: "far Q4_K_M" in c.welcome)
        await c.until(lambda: isinstance(c.app.screen, FirstStartScreen))
        text = c.welcome
        assert "pip install 'localspec[demo]'" in text
        assert "F2" in text
        assert "far Q4_K_M: 2.0 GB, fits this machine (CPU), with the drafter draft." in text
        await c.press("escape")  # not now
        assert c.app.screen is c.screen
        await c.press("enter")  # again
        await c.until(lambda: isinstance(c.app.screen, FirstStartScreen))
        await c.press("escape")
        await c.press("a", "enter")  # a question without a model leads there too, and is kept
        await c.until(lambda: isinstance(c.app.screen, FirstStartScreen))
        assert c.prompt.text == "a"


def typed(text: str) -> list[Key]:
    named = {" ": "space", "\r": "enter", "\x1b": "escape", "?": "question_mark", ".": "full_stop"}
    return [Key(named.get(letter, letter), letter) for letter in text]


@pytest.mark.parametrize("way", ["typed beside it", "led to by enter", "led to by escape", "left"])
async def test_text_comes_out_as_it_was_typed_however_fast(chat: Any, way: str) -> None:
    """Hundreds of keys and a paste in one go, as the terminal's thread hands them on."""
    words = " ".join(f"Where do {i} words go, in what order?" for i in range(8))
    before, after = {
        "typed beside it": ("", ""),  # a letter that is no key there leads into the prompt
        "led to by enter": ("\r", "t"),
        "led to by escape": ("\x1b", "tre"),
        "left": ("Quite\x1bt\r", "h"),  # and back: the t between them is a key
    }[way]
    expected = ("Quite" if way == "left" else "") + f"{after}{words}two\nlines and {words}"
    async with chat(Player(TEXT)) as c:
        if way != "left":
            await c.press("escape")
        events = [*typed(f"{before}{after}{words}"), Paste("two\nlines"), *typed(f" and {words}\r")]
        for event in events:
            event.set_sender(c.app)

        def hand_on() -> None:
            for event in events:
                c.app._driver.send_message(event)

        await asyncio.to_thread(hand_on)
        await c.until(lambda: c.questions)
        await c.settled()
        assert c.questions == [expected]
        assert (c.prompt.text, c.prompt.has_focus) == ("", True)
        assert c.app.settings.values.tint is (way != "left")


def test_the_line_under_an_answer_tells_its_replays() -> None:
    run = answer("One two three four")
    assert "pass" in facts_line(facts_of(run, "small n=3"))
    assert "replay" not in facts_line(facts_of(run, "small n=3"))
    counts = replace(run.counts, steps=49, target_calls=84)
    again = facts_of(replace(run, counts=counts), "small n=3")
    assert " · 84 passes, 35 of them replays · " in facts_line(again)
    del again["replays"]  # of a conversation kept before they were told
    assert " · 84 passes · " in facts_line(again)


# ---- small ones ------------------------------------------------------------------------------


async def test_a_long_question_is_unfolded_by_a_key_and_what_is_not_long_says_so(
    chat: Any,
) -> None:
    long = "\n".join(f"line {i}" for i in range(30))
    async with chat(Player("one", "two")) as c:
        await c.ask(long)
        await c.ask("short")
        question = c.screen.query(Question).first()
        assert "line 29" not in str(question.content)
        assert "u unfolds it" in str(question.content)
        await c.press("escape", "u")
        assert "line 29" in str(question.content)
        await c.press("u")
        assert "line 29" not in str(question.content)
        await question.remove()
        await c.press("u")
        assert "no long question" in c.notes


@pytest.mark.parametrize("key", ["f7", "f9", "f10", "f11", "f12", "ctrl+r"])
async def test_a_key_that_needs_an_answer_says_so(chat: Any, key: str) -> None:
    async with chat(Player()) as c:
        await c.press(key)
        assert "sk something first" in c.notes


def test_a_title_is_one_line_of_what_can_be_seen() -> None:
    assert chat_module._title("\n \u202e\u200bGo\tnow\u2028 and\x1b[2J then\nmore") == "Go now"
    assert (
        chat_module._title("a\tb\u200b\u202ec 👨\u200d👩\u200d👧 日本")
        == "a b c 👨\u200d👩\u200d👧 日本"
    )
    assert chat_module._title(" \u200b\n") == "Conversation"


async def test_a_title_given_by_another_app_is_shown_once_it_is_known(chat: Any) -> None:
    async with chat(Player("one", "two")) as c:
        await c.ask("a")
        Store().rename(1, "There")
        await c.ask("b")
        assert [e.title for e in Store().talks()] == ["There"]
        assert "There" in c.header


async def test_what_the_model_recommends_is_shown_before_the_engine_runs(chat: Any) -> None:
    async with chat(Player()) as c:
        await c.until(lambda: c.screen._sampler)
        await c.pilot.press("ctrl+g")
        await c.until(lambda: isinstance(c.app.screen, ChatSettingsScreen))
        assert c.app.engine.status.state == "off"
        fields = c.app.screen.query("Grid Input").results(Input)
        shown = {f.id: f.placeholder for f in fields}
        assert (shown["temperature"], shown["top_p"]) == ("0.2", "0.9")


async def test_no_more_is_in_the_context_than_it_holds(chat: Any) -> None:
    run = answer(TEXT, stop="context")
    async with chat(Player(replace(run, prompt_tokens=2040)), (80, 24)) as c:
        await c.ask("a")
        assert c.screen._facts is not None
        assert c.screen._facts.held == c.screen._facts.n_ctx == 2048
