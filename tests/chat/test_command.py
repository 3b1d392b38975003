"""The line-based chat: messages, commands, errors, what goes to stdout and what to stderr."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec.catalog import AUTO_NODES, DrafterSpec, Target, resolve_drafters
from localspec.chat import command, session
from localspec.chat.command import Repl, Screen, clean, statistics_line
from localspec.chat.session import ChatSession
from localspec.errors import EngineDied, UsageError
from localspec.records import ChatOptions, Counts, Generation, Times
from tests.chat.scripted import ScriptedEngine, said


class Chat:
    """A Repl on a scripted engine that reads ``lines``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, engine: ScriptedEngine) -> None:
        ngram = DrafterSpec("ngram", "ngram")
        target = Target("t", Path("/models/scripted.gguf"), "T", (ngram,))
        monkeypatch.setattr(session, "resolve_target", lambda _name: target)
        monkeypatch.setattr(session, "resolve_drafters", resolve_drafters)
        self.engine = engine
        self.out, self.err = io.StringIO(), io.StringIO()

    def __call__(self, *lines: str, **options: Any) -> int:
        feed: Iterator[str] = iter(lines)

        def read(_prompt: str) -> str:
            try:
                return next(feed)
            except StopIteration:
                raise EOFError from None

        chosen = ChatOptions(**{"model": "t", **options})
        screen = Screen(quiet=chosen.quiet, out=self.out, err=self.err)
        connect: Any = self.engine.connect
        with ChatSession(chosen, connect=connect) as chat:
            self.session = chat
            return Repl(chat, screen, read).run()

    @property
    def questions(self) -> list[str]:
        return [m.content for m in self.session.conversation.messages if m.role == "user"]


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(*script: Any) -> Chat:
        return Chat(monkeypatch, ScriptedEngine(*script))

    return make


def test_answers_are_all_that_stdout_gets(talk: Any) -> None:
    chat = talk(said("Hello"), said("<think>hm</think>Ciao"))
    assert chat("Hi", "", "   ", "Bye") == 0
    assert chat.out.getvalue() == "Hello\n<think>hm</think>Ciao\n"
    assert chat.err.getvalue().count("tok/s") == 2
    assert "\x1b" not in chat.err.getvalue()


def test_quiet_leaves_the_statistics_out(talk: Any) -> None:
    chat = talk(said("Hello"))
    chat("Hi", quiet=True)
    assert "tok/s" not in chat.err.getvalue()


def test_lines_are_joined_by_a_backslash_and_by_triple_quotes(talk: Any) -> None:
    chat = talk(*[said("a")] * 5)
    chat(
        "one \\",
        "two",
        '"""first',
        "",
        '  second"""',
        '"""',
        "/quit",
        '"""',
        '"""one line"""',
        "open \\",
    )
    assert chat.questions == ["one \ntwo", "first\n\n  second", "/quit", "one line", "open "]


def test_quit_ends_the_chat_without_reading_on(talk: Any) -> None:
    chat = talk(said("a"))
    assert chat("Hi", "/quit", "Bye") == 0
    assert chat.questions == ["Hi"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("/nosuch", "There is no command /nosuch."),
        ("/spec", "/spec takes on or off."),
        ("/spec maybe", "/spec takes on or off."),
        ("/drafter nosuch", "no drafter called 'nosuch'"),
        ("/drafter all", "all stands for several drafters"),
        ("/n", "/n takes a number"),
        ("/n three", "/n takes a number"),
        ("/n 0", "A draft of 0 tokens"),
        ("/n 99999", "A draft of 99999 tokens is too long"),
        ("/regen", "There is no answer"),
        ("/save", "/save takes one file."),
        ("/save a b", "/save takes one file."),
        ("/save /no/such/folder/f.json", "cannot be written"),
        ("/load /no/such/file.json", "cannot be read"),
    ],
)
def test_a_wrong_command_is_one_sentence_and_the_chat_goes_on(
    talk: Any, line: str, sentence: str
) -> None:
    chat = talk(said("Hello"))
    assert chat(line, "Hi") == 1  # for a script that feeds the chat
    assert sentence in chat.err.getvalue()
    assert chat.out.getvalue() == "Hello\n"


def test_commands_change_what_they_say(talk: Any) -> None:
    chat = talk(said("one"), said("two"), said("three"))
    code = chat(
        "/spec off", "Hi", "/regen", "/spec on", "/n 5", "/system Be brief.", "Hi", "/stats"
    )
    assert code == 0
    assert [(d.name, d.n_max) for _, d, _ in chat.engine.opened] == [
        ("ngram", 8),
        ("none", 0),
        ("ngram", 8),
        ("ngram", 5),
    ]
    assert chat.out.getvalue() == "one\ntwo\nthree\n"
    assert chat.session.conversation.system == "Be brief."
    assert chat.questions == ["Hi"]
    said_so = chat.err.getvalue()
    assert f"seed={chat.session.last_seed}" in said_so
    assert "temperature=0.7" in said_so
    assert "3 answers" in said_so


def test_drafter_without_a_name_lists_them(talk: Any) -> None:
    chat = talk()
    assert chat("/spec off", "/drafter", "/drafter ngram", "/drafter") == 0
    lines = chat.err.getvalue().splitlines()
    assert lines == [
        "Speculation is off.",
        "* none   no speculation",
        "  ngram  ngram",
        "/drafter NAME takes one of these, or a GGUF file.",
        "Speculation is off.",
        "Speculation is on: ngram, at most 8 a step.",
        "  none   no speculation",
        "* ngram  ngram",
        "/drafter NAME takes one of these, or a GGUF file.",
        "Speculation is on: ngram, at most 8 a step.",
    ]


def press_ctrl_c_in_opening(chat: Chat, number: int) -> None:
    """Ctrl-C comes while the engine opens a session, the ``number``-th from the start on."""
    open_session, calls = chat.engine.open, []

    def opening(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == number:
            raise KeyboardInterrupt
        return open_session(*given)

    chat.engine.open = opening  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("line", "before"),
    [
        ("/n 5", ("ngram", 8)),
        ("/n auto", ("ngram", 8)),
        ("/spec off", ("ngram", 8)),
        ("/drafter none", ("ngram", 8)),
        ("/spec on", ("none", 0)),
        ("/drafter ngram", ("none", 0)),
    ],
)
def test_ctrl_c_while_the_drafter_is_switched_keeps_the_former_one(
    talk: Any, monkeypatch: pytest.MonkeyPatch, line: str, before: tuple[str, int]
) -> None:
    off = ["/spec off"] if before[0] == "none" else []
    chat = talk(said("Hello"), said("Still here"))
    press_ctrl_c_in_opening(chat, 2 + len(off))
    run = Repl.run

    def on_a_terminal(repl: Repl) -> int:
        repl.interactive = True
        return run(repl)

    monkeypatch.setattr(Repl, "run", on_a_terminal)
    assert chat(*off, "Hi", line, "And now?") == 0
    assert chat.questions == ["Hi", "And now?"]
    assert (chat.session.drafter.name, chat.session.drafter.n_max) == before
    assert chat.session.options.n_max is None
    assert "Stopped." in chat.err.getvalue()
    assert len(chat.engine.closed) == len(off)


def test_ctrl_c_during_a_switch_ends_a_chat_through_pipes_with_130(talk: Any) -> None:
    chat = talk(said("Hello"))
    press_ctrl_c_in_opening(chat, 2)
    assert chat("Hi", "/spec off", "And now?") == 130
    assert chat.questions == ["Hi"]


def test_the_draft_length_can_be_left_to_the_machine(talk: Any) -> None:
    chat = talk(said("one"))
    assert chat("/n auto", "Hi", "/stats") == 0
    assert [(d.n_max, d.auto) for _, d, _ in chat.engine.opened][-1] == (16, True)
    said_so = chat.err.getvalue()
    assert "as many as pay, up to 16 a step" in said_so
    assert "n auto" in said_so
    tree = talk()
    assert tree("/n 3", "/stats", tree="auto") == 0
    said_so = tree.err.getvalue()
    assert f"as many as pay, up to {AUTO_NODES} nodes a step" in said_so
    assert "tree auto, n 3, p_min 0\n" in said_so


def test_reset_forgets_the_turns_but_not_the_system_message(talk: Any) -> None:
    chat = talk(said("a"), said("b"))
    chat("Hi", "/reset", "Bye", system="Be brief.")
    assert chat.questions == ["Bye"]
    assert chat.session.conversation.system == "Be brief."


def test_a_conversation_is_saved_and_read_again(talk: Any, tmp_path: Path) -> None:
    file = tmp_path / "my chat.json"
    chat = talk(said("a"), said("b"), said("c"))
    assert chat("Hi", f'/save "{file}"', "/reset", f'/load "{file}"', "Bye") == 0
    assert chat.questions == ["Hi", "Bye"]
    assert json.loads(file.read_text())["settings"]["drafter"]["method"] == "ngram"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"hello", "this is not valid JSON (expected value at line 1 column 1)"),
        (b"\xff", "it is not UTF-8 text"),
        (b"[]", "must be an object"),
        (b"{}", "model: is missing"),
        (b'{"model": "m", "messages": "hi"}', "messages: must be a list"),
        (b'{"model": "m", "messages": [{"role": "me"}]}', "must be 'user' or 'assistant'"),
        (b'{"model": "m", "messages": [], "first": 2}', "first does not point at a question"),
    ],
)
def test_a_bad_file_is_refused_in_our_words(
    talk: Any, tmp_path: Path, content: bytes, sentence: str
) -> None:
    file = tmp_path / "chat.json"
    file.write_bytes(content)
    chat = talk(said("Hello"))
    chat("Hi", f'/load "{file}"')
    shown = chat.err.getvalue().splitlines()
    assert shown[-2].startswith(f"error: {file} is not a saved conversation: ")
    assert shown[-2].endswith(f"{sentence}.")
    assert shown[-1] == "Give a file that /save wrote."
    for word in ("pydantic", "validation error", "Input should", "_Saved"):
        assert word not in chat.err.getvalue()
    assert chat.questions == ["Hi"]


def test_a_dead_engine_is_said_and_the_next_question_gets_a_new_one(talk: Any) -> None:
    died = EngineDied("signal SIGKILL", ["the end"], "/tmp/engine.log")
    chat = talk(("Par", died), said("Back"))
    assert chat("Hi", "Again") == 1
    assert chat.out.getvalue() == "Par\nBack\n"
    assert "The engine process died (signal SIGKILL)." in chat.err.getvalue()
    assert chat.engine.starts == 2


def test_a_statistics_line_has_no_figure_that_was_not_observed() -> None:
    nothing = Generation("", (), "cancelled", 5, 0, Counts(), Times())
    line = statistics_line(nothing)
    assert "0 tokens · n/a tok/s · accept length n/a · coverage n/a" in line
    assert "nan" not in line
    assert "TTFT n/a" in line
    counts = Counts(
        steps=4, steps_with_draft=3, target_calls=4, decode_tokens=9, drafted=8, accepted=5
    )
    times = Times(ttft=0.0842, decode=0.3)
    line = statistics_line(Generation("x", tuple(range(10)), "eog", 50, 40, counts, times))
    assert line == (
        "10 tokens · 30.0 tok/s · accept length 2.25 · coverage 75 % · 4 passes · TTFT 84 ms · "
        "prompt 50: 40 cached + 10 evaluated · end of the answer"
    )


def test_replays_are_told_of_an_answer() -> None:
    counts = Counts(steps=49, target_calls=84, decode_tokens=50)
    chat_line = statistics_line(Generation("x", (1,), "eog", 5, 0, counts, Times()))
    assert " · 84 passes, 35 of them replays · " in chat_line


def test_stats_tell_the_replays_of_the_whole_chat(talk: Any) -> None:
    first, second = (
        replace(said(text), counts=Counts(steps=steps, target_calls=calls, decode_tokens=9))
        for text, steps, calls in (("a", 4, 6), ("b", 5, 5))
    )
    chat = talk(first, second)
    assert chat("Hi", "Bye", "/stats") == 0
    assert "11 passes, 2 of them replays" in chat.err.getvalue()


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_thinking_is_dim_on_a_terminal_and_colour_can_be_refused(
    talk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = []
    for _ in range(2):
        chat = talk(said("<think>hm</think>Ciao"))
        chat.out = FakeTerminal()
        chat("Hi")
        shown.append(chat.out.getvalue())
        monkeypatch.setenv("NO_COLOR", "1")
    dim, plain = shown
    assert "\x1b[2mm\x1b[0m" in dim
    assert dim.endswith("Ciao\n")
    assert plain == "<think>hm</think>Ciao\n"


def test_a_terminal_gets_long_notes_folded_between_words(
    talk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    chat, piped = talk(said("Hello")), talk(said("Hello"))
    chat.err = FakeTerminal()
    for each in (chat, piped):
        each("Hi", "/stats", "/help")
    shown, whole = chat.err.getvalue(), piped.err.getvalue()
    assert max(map(len, shown.splitlines())) <= 60 < max(map(len, whole.splitlines()))
    sampler = shown[shown.index("sampler") :].splitlines()
    assert sampler[1].startswith(" " * 11), "under the label's text"
    assert "1 answer ·" in whole


def test_bytes_that_are_no_text_become_replacement_characters() -> None:
    assert clean("a\udcff\ud83db 👋") == "a\ufffd\ufffdb 👋"


def test_a_run_without_a_prompt_is_refused() -> None:
    with pytest.raises(UsageError, match="empty"):
        command.run(ChatOptions("demo"), "")


def test_a_chat_without_answers_is_refused() -> None:
    with pytest.raises(UsageError, match="--max-tokens 0") as refused:
        command.chat(ChatOptions("demo", max_tokens=0))
    assert refused.value.hint


def test_a_models_words_may_not_steer_the_terminal(talk: Any) -> None:
    class Tty(io.StringIO):
        def isatty(self) -> bool:
            return True

    words = "a\x1b]0;owned\x07b\x1b[2Jc\td\n"
    piped, shown = talk(said(words)), talk(said(words))
    shown.out = Tty()
    piped("Hi")
    shown("Hi")
    assert words in piped.out.getvalue()
    assert "a]0;ownedb[2Jc\td\n" in shown.out.getvalue()
