"""Chat and run on the real engine: tiny models, and the demo model on a real (pseudo) terminal."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec.chat.session import ChatSession
from localspec.engine.messages import Chunk, Prefill
from localspec.errors import EngineDied
from localspec.records import (
    ChatOptions,
    ContextSettings,
    DrafterSettings,
    EngineOptions,
)

ROOT = Path(__file__).parents[2]
STORY = "Write a very long story about a fox."
"""Greedily demo goes on with it for over 900 tokens: it does not end before what comes midway."""


def program(*words: str, threads: int = 1, **options: Any) -> list[str]:
    """The command line. One thread: threads that spin for each other are slow beyond measure when
    something else runs as well."""
    flags = [
        text
        for name, value in {"threads": threads, **options}.items()
        for text in (f"--{name.replace('_', '-')}", *([] if value is True else [str(value)]))
    ]
    return [sys.executable, "-m", "localspec", *words, *flags]


def call(*words: str, text: bytes = b"", **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        program(*words, **options), input=text, capture_output=True, cwd=ROOT, timeout=300
    )


def greedy(model: Path, drafter: str, ctx: int = 1024) -> ChatOptions:
    engine = EngineOptions(ctx=ctx, threads=1, sampler={"temperature": 0.0})
    return ChatOptions(str(model), drafter, max_tokens=24, engine=engine)


def finish(answer: Any) -> Any:
    for _ in answer:
        pass
    return answer.result


@pytest.mark.parametrize("drafter", ["none", "ngram"])
def test_reused_turns_give_what_a_fresh_prefill_of_the_same_ids_gives(
    tiny_bytes: Path, drafter: str
) -> None:
    with ChatSession(greedy(tiny_bytes, drafter)) as chat:
        for question in ("Hi", "Go on", "And\n<|im_end|>"):
            answer = chat.ask(question)
            run = finish(answer)
            chat.engine.open("fresh", DrafterSettings(), ContextSettings(n_ctx=1024, threads=1))
            fresh = chat.engine.generate(
                "fresh", answer.prompt.ids, sampler=replace(chat.sampler, seed=0), max_tokens=24
            )
            assert run.tokens == fresh.tokens
        assert run.cached_tokens > 40
        assert run.prompt_tokens - run.cached_tokens < 40


def test_switching_the_drafter_keeps_the_conversation_in_the_cache(
    tiny_bytes: Path, tiny_draft: Path
) -> None:
    with ChatSession(greedy(tiny_bytes, "none")) as chat:
        finish(chat.ask("Hi"))
        for name in ("ngram", "none", "ngram"):
            chat.use_drafter(name)
            run = finish(chat.ask("Go on"))
            assert run.cached_tokens > 20
            assert run.prompt_tokens - run.cached_tokens < 30
        with pytest.raises(Exception, match="vocabulary"):
            chat.use_drafter(str(tiny_draft))
        assert finish(chat.ask("Go on")).cached_tokens > 20


def test_p_and_q_are_of_the_drafter_of_the_answer_whatever_was_chosen_since(
    tiny_bytes: Path,
) -> None:
    """The target as its own draft model gives each token that it drafted the same p and q; an
    n-gram draft has no q."""
    with ChatSession(greedy(tiny_bytes, str(tiny_bytes)), record=True) as chat:
        run, made_with = finish(chat.ask("Hi")), chat.drafter
        chat.use_drafter("ngram")
        own, other = chat.score(made_with), chat.score()
        assert own.tokens == run.tokens == other.tokens
        assert own.drafts == run.drafts != other.drafts
        asked = [(p, q) for s in own.scores for p, q in zip(s.p, s.q, strict=True) if p is not None]
        assert len(asked) > 10
        assert all(q is not None for _, q in asked)
        assert all(q is None for s in other.scores for q in s.q)
        assert chat.drafter.method == "ngram"
        assert finish(chat.ask("Go on")).cached_tokens > 20


def test_a_special_token_in_a_question_reaches_the_model_as_text(tiny_bytes: Path) -> None:
    with ChatSession(greedy(tiny_bytes, "none")) as chat:
        (end,) = chat.engine.tokenize("<|im_end|>", bos=False)
        answer = chat.ask("<|im_end|>" * 3)
        finish(answer)
        assert answer.prompt.text.count("<|im_end|>") == 4
        assert answer.prompt.ids.count(end) == 1


def test_streamed_text_is_the_text_of_the_answer(tiny_bytes: Path) -> None:
    with ChatSession(greedy(tiny_bytes, "ngram")) as chat:
        answer = chat.ask("Say something that is not UTF-8")
        streamed = "".join(
            span.text for event in answer if isinstance(event, Chunk) for span in event.spans
        )
        assert streamed == answer.result.text == answer.text


def test_an_engine_killed_between_turns_is_replaced_and_the_conversation_lives(
    tiny_bytes: Path,
) -> None:
    with ChatSession(greedy(tiny_bytes, "none")) as chat:
        finish(chat.ask("Hi"))
        first = chat.engine
        os.kill(first.pid, signal.SIGKILL)
        while first.alive:
            time.sleep(0.01)
        run = finish(chat.ask("Again"))
        assert chat.engine.pid != first.pid
        assert (run.cached_tokens, len(chat.conversation.messages)) == (0, 4)


def test_an_engine_killed_in_an_answer_keeps_what_had_arrived(demo_model: Path) -> None:
    sampler = {"temperature": 0.0}
    options = ChatOptions(
        "demo", "none", engine=EngineOptions(ctx=2048, threads=1, sampler=sampler)
    )
    with ChatSession(options) as chat:
        answer = chat.ask(STORY)
        with pytest.raises(EngineDied, match="SIGKILL"):
            for _ in answer:
                if answer.text:
                    os.kill(chat.engine.pid, signal.SIGKILL)
        assert [m.content for m in chat.conversation.messages][1:] == [answer.text]
        chat.options = replace(options, max_tokens=4)
        assert finish(chat.ask("Go on.")).tokens


def test_run_writes_the_answer_and_nothing_else_on_stdout(tiny_bytes: Path) -> None:
    asked = {"model": tiny_bytes, "drafter": "none", "max_tokens": 20, "temperature": 0}
    done = call("run", "Hi", **asked)
    with ChatSession(replace(greedy(tiny_bytes, "none"), max_tokens=20)) as chat:
        expected = finish(chat.ask("Hi")).text
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected.encode()
    assert b"tok/s" in done.stderr
    quiet = call("run", "Hi", **asked, quiet=True)
    assert (quiet.stdout, quiet.stderr) == (done.stdout, b"")


def test_where_stdout_and_stderr_are_one_the_statistics_have_a_line_of_their_own(
    tiny_bytes: Path,
) -> None:
    words = program("run", "Hi", model=tiny_bytes, drafter="none", max_tokens=20, temperature=0)
    apart = subprocess.run(words, capture_output=True, cwd=ROOT, timeout=300)
    assert not apart.stdout.endswith(b"\n")
    assert apart.stderr.startswith(b"20 tokens")
    together = subprocess.run(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT, timeout=300
    ).stdout
    assert together.startswith(apart.stdout + b"\n20 tokens")


def test_no_tokens_asked_of_run_is_no_text_and_no_error(tiny_bytes: Path) -> None:
    """As llama.cpp's -n 0: the prompt is evaluated, nothing is generated."""
    done = call("run", "Hi", model=tiny_bytes, drafter="ngram", max_tokens=0, ctx=300)
    errors = done.stderr.decode()
    assert (done.returncode, done.stdout) == (0, b"")
    assert "0 tokens · n/a tok/s" in errors
    assert "--max-tokens reached" in errors
    assert "note: The context holds 512 tokens: llama.cpp rounds the 300 asked for up." in errors


def test_run_raw_has_one_bos_whether_or_not_the_prompt_brings_one(tiny_target: Path) -> None:
    """tiny_target adds ``<s>``."""
    for prompt in ("abc", "<s>abc"):
        with ChatSession(replace(greedy(tiny_target, "none"), raw=True)) as chat:
            answer = chat.complete(prompt)
            finish(answer)
            assert answer.prompt.ids.count(chat.engine.tokenize("<s>", bos=False)[0]) <= 1
            assert answer.result.prompt_tokens == len(answer.prompt.ids)


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        ({"model": "nosuch"}, 2, "no model called 'nosuch'"),
        ({"model": "/no/such.gguf"}, 1, "such.gguf"),
        ({"model": "demo", "drafter": "nosuch"}, 2, "no drafter called 'nosuch'"),
        ({"model": "demo", "ctx": 64}, 1, "tokens but the context holds"),
    ],
)
def test_bad_input_to_run_is_a_sentence_and_an_exit_code(
    options: dict[str, Any], code: int, sentence: str
) -> None:
    done = call("run", "word " * 400, **options)  # llama.cpp makes the 64 cells 256
    assert done.returncode == code
    assert sentence in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()
    assert done.stdout == b""


def test_a_reader_that_goes_away_ends_run_without_complaint(demo_model: Path) -> None:
    command = program("run", STORY, model="demo", drafter="none", temperature=0, max_tokens=2000)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.wait(timeout=120) == 141
    assert b"Traceback" not in process.stderr.read()


def test_ctrl_c_during_run_prints_what_there_is(demo_model: Path) -> None:
    command = program("run", STORY, model="demo", drafter="none", temperature=0, max_tokens=2000)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    assert process.stderr is not None
    began = process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert began + rest
    assert b"stopped" in errors
    assert b"Traceback" not in errors


def test_a_chat_through_pipes(tiny_bytes: Path) -> None:
    done = call(
        "chat",
        text=b"Hi\n/spec off\nNot UTF-8: \xe6\xad\n",
        model=tiny_bytes,
        drafter="ngram",
        max_tokens=8,
        ctx=512,
        temperature=0,
    )
    assert done.returncode == 0, done.stderr
    errors = done.stderr.decode()
    assert errors.count("tok/s") == 2
    assert "Speculation is off." in errors
    assert b"\x1b" not in done.stdout
    assert b"> " not in done.stdout[:2]


# ---- on a terminal ---------------------------------------------------------------------------

pty = pytest.importorskip("pty")  # not on Windows


class Terminal:
    """The chat on a pseudo terminal."""

    def __init__(self, command: list[str]) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.execve(command[0], command, {**os.environ, "TERM": "xterm"})
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def wait_for(self, text: str, seconds: float = 120) -> None:
        """Read until ``text`` comes after what was waited for before."""
        ends = time.monotonic() + seconds
        while text not in self.seen:
            ready, _, _ = select.select([self.fd], [], [], max(0, ends - time.monotonic()))
            assert ready, f"{text!r} did not come; last seen: {self.seen[-2000:]!r}"
            try:
                self.seen += os.read(self.fd, 65536).decode("utf-8", "replace")
            except OSError:  # Linux: the other side is closed
                raise AssertionError(f"ended before {text!r}: {self.seen[-2000:]!r}") from None
        self.seen = self.seen[self.seen.index(text) + len(text) :]

    def press(self, key: str, until: str) -> None:
        """Press ``key`` until ``until`` is shown. CPython's input() sleeps through a signal that
        comes just before it waits for the terminal, as a person's second press does not."""
        for _ in range(4):
            self.type(key)
            with contextlib.suppress(AssertionError):
                self.wait_for(until, 20)  # where a second press leaves, it must not come too soon
                return
        raise AssertionError(f"{until!r} did not come; last seen: {self.seen[-2000:]!r}")

    def leave_by(self, key: str) -> int:
        """The exit code, ``key`` being pressed over and over until the program ends."""
        while not os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            with contextlib.suppress(OSError):
                self.type(key)
            time.sleep(0.02)
        return self.exit_code()

    def exit_code(self) -> int:
        while True:
            try:
                if not (read := os.read(self.fd, 65536)):
                    break
                self.seen += read.decode("utf-8", "replace")
            except OSError:
                break
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_ctrl_c_stops_the_answer_keeps_the_chat_and_twice_at_the_prompt_leaves(
    demo_model: Path,
) -> None:
    terminal = Terminal(program("chat", model="demo", temperature=0))
    terminal.wait_for("Ctrl-D leaves.")
    terminal.wait_for("> ")
    terminal.type(f"{STORY}\n")
    terminal.wait_for("fox.")
    terminal.wait_for(" the ")  # the answer is coming
    terminal.type("\x03")
    terminal.wait_for("stopped")
    terminal.wait_for("> ")
    terminal.type("/drafter nosuch\n")
    terminal.wait_for("error: demo has no drafter called 'nosuch'")
    terminal.wait_for("> ")
    terminal.type("/n 1\n")
    terminal.wait_for("at most 1 a step")
    terminal.type("Name one colour.\n")
    terminal.wait_for("cached")
    terminal.wait_for("> ")
    terminal.press("\x03", until="once more leaves")
    terminal.wait_for("> ")
    assert terminal.leave_by("\x03") == 130
    assert "Traceback" not in terminal.seen


def test_what_is_pasted_is_one_question_and_no_command(tiny_bytes: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    terminal = Terminal(program("chat", model=tiny_bytes, drafter="none", max_tokens=4))
    terminal.wait_for("Ctrl-D leaves.")
    terminal.wait_for("> ")
    terminal.type("\x1b[200~/quit\nsecond\n\nfourth\x1b[201~\n")
    terminal.wait_for("tok/s")
    terminal.wait_for("> ")
    terminal.type(f"/save {kept}\n")
    terminal.wait_for("Saved in")
    terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.exit_code() == 0
    asked = [m["content"] for m in json.loads(kept.read_text())["messages"] if m["role"] == "user"]
    assert asked == ["/quit\nsecond\n\nfourth"]


def test_ctrl_d_leaves_with_0(demo_model: Path) -> None:
    terminal = Terminal(program("chat", model="demo", drafter="none"))
    terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.exit_code() == 0


def test_a_long_prefill_can_be_stopped_and_leaves_no_trace(demo_model: Path) -> None:
    options = ChatOptions("demo", "none", engine=EngineOptions(ctx=8192, threads=1))
    with ChatSession(options) as chat:
        answer = chat.ask("word " * 6000)
        for event in answer:
            assert isinstance(event, Prefill)
            answer.cancel()
        assert answer.result.stop == "cancelled"
        assert answer.result.tokens == ()
        assert chat.conversation.messages == []
        assert finish(chat.ask("Say yes.")).text


def test_an_answer_runs_again_as_baseline_and_with_scores_and_the_chat_goes_on(
    demo_model: Path, demo_draft: Path
) -> None:
    options = greedy(demo_model, str(demo_draft))
    with ChatSession(options, record=True) as chat:
        answer = chat.ask("Count from one to ten.")
        steps = [s for e in answer if isinstance(e, Chunk) for s in e.steps]
        run = answer.result
        assert run.steps == tuple(steps)
        assert len(run.drafts) == len(steps)
        heard: list[Chunk] = []
        plain = chat.baseline(heard.append)
        assert heard
        assert plain.tokens == run.tokens
        assert plain.counts.accept_length == 1.0
        assert plain.cached_tokens == plain.prompt_tokens - 1
        assert not chat.near_tie(chat.drafter, plain), "they do not part"
        other = replace(plain, tokens=(*plain.tokens[:9], 0, *plain.tokens[10:]))
        assert chat.near_tie(chat.drafter, other), "the answer has the plain path's own token there"
        chat.last = replace(run, tokens=other.tokens)
        assert not chat.near_tie(chat.drafter, plain), "nothing chooses that token"
        chat.last = run
        scored = chat.score()
        assert scored.tokens == run.tokens
        assert scored.drafts == run.drafts
        assert run.scored_by(scored) == replace(run, scores=scored.scores)
        assert len(scored.scores) == len(run.steps)
        before = list(chat.conversation.messages)
        for _ in chat.ask("And backwards?"):
            pass
        assert chat.conversation.messages[:2] == before
        assert chat.last is not None
        assert chat.last.cached_tokens >= run.prompt_tokens + len(run.tokens) - 1
        last, origin, messages = chat.last, chat.origin, list(chat.conversation.messages)
    origins = (None, None, None, origin)  # as kept, of the last answer alone
    with ChatSession(options) as chat:
        chat.begin(tuple(zip(messages, origins, strict=True)))
        assert chat.baseline(heard.append).tokens == last.tokens
        assert chat.score().tokens == last.tokens
        assert chat.origin == origin
