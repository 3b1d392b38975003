"""``localspec chat`` and ``localspec run`` on a terminal or through pipes, line by line."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TextIO

from localspec.chat.session import Answer, ChatSession
from localspec.chat.thinking import ThinkingSplitter
from localspec.engine.messages import Prefill
from localspec.errors import LocalspecError, UsageError
from localspec.interrupts import INTERRUPTED
from localspec.paths import written
from localspec.records import ChatOptions, Counts, DrafterSettings, DraftLength, Generation
from localspec.streams import silence
from localspec.units import folded, many, passes

BROKEN_PIPE = 141
"""128 + SIGPIPE: what a shell reports for a program whose reader went away."""

LONG_PREFILL = 512
"""Prompt tokens from which a terminal is shown how far the prefill is."""

HELP = """\
/spec on|off     speculation on or off from the next answer on
/drafter NAME    another drafter: a name of the catalogue, a GGUF file, ngram, none, auto
                 (without NAME: those of this model)
/n N             draft at most N tokens a step; /n auto: as many as pay, chosen anew for each
/regen           answer the last question again
/stats           settings in effect and sums over this chat
/system TEXT     another system message (without TEXT: show it); the conversation starts anew
/reset           forget the conversation
/save FILE       write the conversation as JSON
/load FILE       read a conversation that /save wrote
/help            this list
/quit            leave (so does Ctrl-D)
What is pasted is one question, however many lines it has, and never a command.
A line that ends in \\ goes on in the next one; \"\"\" begins and ends a text of several
lines, which is never a command.
Ctrl-C stops an answer, and what there is of it stays in the conversation; or the change to
another drafter."""


def chat(options: ChatOptions) -> int:
    """Chat until the input ends; returns the exit code."""
    if options.max_tokens == 0:
        raise UsageError("--max-tokens 0 leaves no answer to chat with.", "Give 1 or more.")
    screen = Screen(quiet=options.quiet)
    try:
        with ChatSession(options) as session:
            return Repl(session, screen).run()
    except KeyboardInterrupt:
        screen.note("")
        return INTERRUPTED
    except BrokenPipeError:
        return reader_gone()


def run(options: ChatOptions, prompt: str) -> int:
    """One completion: its text, and nothing else, on stdout; returns the exit code."""
    screen = Screen(quiet=options.quiet)
    prompt = clean(prompt)
    if not prompt:
        raise UsageError("The prompt is empty.", "Give it as an argument or on stdin.")
    try:
        with ChatSession(options) as session:
            answer = session.complete(prompt)
            screen.notices(session)
            stopped = screen.exact(answer)
            screen.notices(session)
            screen.statistics(answer.result)
            return INTERRUPTED if stopped else 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return reader_gone()


def reader_gone() -> int:
    """Nobody reads stdout any more (``| head``); returns the exit code."""
    silence(sys.stdout)
    return BROKEN_PIPE


def clean(text: str) -> str:
    """``text`` without lone surrogates (bytes of argv or stdin that are not UTF-8)."""
    return re.sub("[\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", text)


# ---- what is shown ---------------------------------------------------------------------------


# A model's words may not move the cursor or set the window's title.
CONTROLS = {c: None for c in (*range(32), *range(127, 160)) if chr(c) not in "\t\n"}


class Screen:
    """Answers on stdout; notes, errors and statistics on stderr, dim where that is a terminal."""

    def __init__(
        self, *, quiet: bool = False, out: TextIO | None = None, err: TextIO | None = None
    ) -> None:
        self.out = out or sys.stdout
        self.err = err or sys.stderr
        self.quiet = quiet
        plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        self.terminal = self.out.isatty()
        self._shared = _same_file(self.out, self.err)
        self._line_open = False
        self._dim_out = self.terminal and not plain
        self._dim_err = self.err.isatty() and not plain
        # Through pipes the very text, also where locale or platform would change it; a terminal
        # may lack a character, and what comes in may be no text at all.
        for stream in (self.out, self.err, sys.stdin):
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None and stream.isatty():
                reconfigure(errors="replace")
            elif reconfigure is not None:
                newline = None if stream is sys.stdin else "\n"
                reconfigure(encoding="utf-8", errors="replace", newline=newline)

    def write(self, text: str) -> None:
        if text:
            self._line_open = not text.endswith("\n")
        self.out.write(text)
        self.out.flush()

    def end_line(self) -> None:
        """After an answer that ends inside a line, where stdout and stderr are one (a terminal, or
        ``2>&1``): the newline goes to stderr, for stdout is the answer's very text."""
        if self._line_open and self._shared:
            self._line_open = False
            self.err.write("\n")
            self.err.flush()

    def note(self, text: str) -> None:
        self.end_line()
        text = folded(text, self.err)
        self.err.write(f"\x1b[2m{text}\x1b[0m\n" if self._dim_err and text else f"{text}\n")
        self.err.flush()

    def error(self, error: LocalspecError) -> None:
        self.end_line()
        hint = f"\n{error.hint}" if error.hint else ""
        self.err.write(folded(f"error: {error.message}{hint}", self.err) + "\n")
        self.err.flush()

    def notices(self, session: ChatSession) -> None:
        for text in session.take_notices():
            self.note(f"note: {text}")

    def statistics(self, run: Generation) -> None:
        if not self.quiet:
            self.note(statistics_line(run))

    def exact(self, answer: Answer) -> bool:
        """Stream the answer's text as it is; True when Ctrl-C stopped it."""
        try:
            with stopped_by_ctrl_c(answer) as stopped:
                for text in self._texts(answer):
                    self.write(text)
        finally:
            if self.terminal and self._line_open:
                self.write("\n")
            self.end_line()
        return stopped()

    def answer(self, answer: Answer) -> bool:
        """Stream the answer for a person, its thinking dim; True when Ctrl-C stopped it."""
        splitter = ThinkingSplitter(answer.prompt.text)
        try:
            with stopped_by_ctrl_c(answer) as stopped:
                for text in self._texts(answer):
                    self._pieces(splitter.feed(text))
        finally:
            self._pieces(splitter.finish())
            self.write("\n")
        return stopped()

    def _pieces(self, pieces: list[tuple[bool, str]]) -> None:
        for is_thinking, text in pieces:
            self.write(f"\x1b[2m{text}\x1b[0m" if is_thinking and self._dim_out else text)

    def _texts(self, answer: Answer) -> Iterator[str]:
        """The texts of the chunks; a long prefill is shown on a terminal until the first one."""
        shown = False
        for event in answer:
            if isinstance(event, Prefill):
                waiting = event.total - event.cached > LONG_PREFILL and not self.quiet
                if waiting and self._dim_err:
                    shown = True
                    self.err.write(f"\r\x1b[2mreading the prompt: {event.done} of {event.total}")
                    self.err.write(" tokens\x1b[0m")
                    self.err.flush()
                continue
            if shown:
                self.err.write("\r\x1b[K")
                self.err.flush()
                shown = False
            if text := "".join(span.text for span in event.spans):
                yield text.translate(CONTROLS) if self.terminal else text
        if shown:
            self.err.write("\r\x1b[K")
            self.err.flush()


def _same_file(one: TextIO, other: TextIO) -> bool:
    try:
        return os.path.sameopenfile(one.fileno(), other.fileno())
    except (OSError, ValueError):  # no files at all
        return False


@contextlib.contextmanager
def stopped_by_ctrl_c(answer: Answer) -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C cancels the answer, which then ends by itself; a second one interrupts.

    A handler rather than KeyboardInterrupt: that could be raised between the arrival of an event
    and its use, and the event would be lost.
    """
    pressed = 0

    def stop(_signal: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        pressed += 1
        if pressed > 1:
            raise KeyboardInterrupt
        answer.cancel()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield lambda: pressed > 0
    finally:
        signal.signal(signal.SIGINT, before)


def _figure(value: float | None, form: str, unit: str = "") -> str:
    return "n/a" if value is None else f"{value:{form}}{unit}"


def _counts(counts: Counts) -> list[str]:
    coverage = counts.draft_coverage
    return [
        f"accept length {_figure(counts.accept_length, '.2f')}",
        f"coverage {_figure(None if coverage is None else 100 * coverage, '.0f', ' %')}",
        passes(counts.target_calls, counts.replays),
    ]


STOPS = {
    "eog": "end of the answer",
    "length": "--max-tokens reached",
    "stop": "stop string",
    "context": "context full",
    "cancelled": "stopped",
}


def statistics_line(run: Generation) -> str:
    """One line for a person; a figure without observations is n/a."""
    evaluated = run.prompt_tokens - run.cached_tokens
    parts = [
        many(len(run.tokens), "token"),
        f"{_figure(run.decode_tps, '.1f')} tok/s",
        *_counts(run.counts),
        f"TTFT {_figure(run.times.ttft * 1e3 if run.tokens else None, '.0f', ' ms')}",
        f"prompt {run.prompt_tokens}: {run.cached_tokens} cached + {evaluated} evaluated",
        STOPS[run.stop],
    ]
    return " · ".join(parts)


# ---- the chat --------------------------------------------------------------------------------


class Repl:
    """Reads lines, answers them, obeys commands; errors are told and the chat goes on."""

    def __init__(
        self, session: ChatSession, screen: Screen, read: Callable[[str], str] | None = None
    ) -> None:
        self.session = session
        self.screen = screen
        self.failed = False
        self.stopped = False
        self.interactive = sys.stdin.isatty() and screen.terminal
        self._read = read or (_terminal_reader() if self.interactive else _pipe_reader)
        self._commands: dict[str, Callable[[str], None]] = {
            "/spec": self._spec,
            "/drafter": self._drafter,
            "/n": self._n,
            "/regen": self._regen,
            "/stats": self._stats,
            "/system": self._system,
            "/reset": self._reset,
            "/save": self._save,
            "/load": self._load,
            "/help": self._help,
        }

    def run(self) -> int:
        """Returns the exit code: 0, 130 after Ctrl-C, 1 when a question from a pipe failed."""
        # First of all: a model or a drafter that cannot be used is said before any question.
        self.session.start()
        self.screen.notices(self.session)
        model = self.session.model
        if self.interactive and not self.screen.quiet:
            drafter = self.session.drafter
            how = f"{drafter.name}, {_size(drafter)}" if drafter.method != "none" else "off"
            self.screen.note(f"{self.session.target.title} · {model.quant} · speculation {how}")
            self.screen.note("/help lists the commands, Ctrl-D leaves.")
        warned = False
        while True:
            try:
                text, may_be_command = self._message()
                warned = False
            except EOFError:
                if self.interactive:
                    self.screen.write("\n")
                return 1 if self.failed and not self.interactive else 0
            except KeyboardInterrupt:
                self.screen.write("\n")
                if warned or not self.interactive:
                    return INTERRUPTED
                warned = True
                self.screen.note("Ctrl-C once more leaves; /quit and Ctrl-D do too.")
                continue
            is_command = may_be_command and text.startswith("/")
            if is_command and text.strip() == "/quit":
                return 0
            self._turn(text, is_command)
            if self.stopped and not self.interactive:
                return INTERRUPTED

    def _turn(self, text: str, is_command: bool) -> None:
        try:
            if is_command:
                self._command(text)
            elif text.strip():
                self._show(lambda: self.session.ask(text))
        except LocalspecError as error:
            self.failed = True
            self.screen.notices(self.session)
            self.screen.error(error)
        except KeyboardInterrupt:
            # Inside a command, and only a change of drafter takes long enough to be interrupted.
            self.stopped = True
            self.screen.note("Stopped.")
            self._say_drafter()

    def _message(self) -> tuple[str, bool]:
        """A line, lines joined by a backslash at their end, or a triple-quoted block; a block is
        never a command."""
        line = clean(self._read("> "))
        if "\n" in line:  # pasted
            return line, False
        if line.lstrip().startswith('"""'):
            lines = [line.lstrip()[3:]]
            while not lines[-1].rstrip().endswith('"""'):
                try:
                    lines.append(clean(self._read(". ")))
                except EOFError:
                    return "\n".join(lines), False
            lines[-1] = lines[-1].rstrip()[:-3]
            return "\n".join(lines).strip("\n"), False
        lines = [line]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            try:
                lines.append(clean(self._read(". ")))
            except EOFError:
                break
        return "\n".join(lines), True

    def _show(self, begin: Callable[[], Answer]) -> None:
        try:
            answer = begin()
        except KeyboardInterrupt:  # before anything was asked of the engine
            self.stopped = True
            self.screen.note("Stopped.")
            return
        self.screen.notices(self.session)
        self.stopped = self.screen.answer(answer)
        self.screen.notices(self.session)
        self.screen.statistics(answer.result)

    # ---- commands -----------------------------------------------------------------------

    def _command(self, text: str) -> None:
        name, _, rest = text.strip().partition(" ")
        command = self._commands.get(name)
        if command is None:
            raise UsageError(f"There is no command {name}.", "/help lists the commands.")
        command(rest.strip())

    def _spec(self, word: str) -> None:
        if word not in ("on", "off"):
            raise UsageError("/spec takes on or off.")
        self.session.speculate(on=word == "on")
        self._say_drafter()

    def _drafter(self, name: str) -> None:
        if name:
            self.session.use_drafter(name)
        else:
            self._list_drafters()
        self._say_drafter()

    def _list_drafters(self) -> None:
        used, drafters = self.session.drafter, self.session.target.drafters
        known = {"none": "no speculation"}
        for spec in drafters:
            known[spec.name] = spec.method + (", what auto takes" if spec.recommended else "")
        known.setdefault(used.name, used.method)
        width = max(map(len, known))
        for name, what in known.items():
            mark = "*" if name == used.name else " "
            self.screen.note(f"{mark} {name:{width}}  {what}")
        self.screen.note("/drafter NAME takes one of these, or a GGUF file.")

    def _n(self, number: str) -> None:
        try:
            n_max: DraftLength = "auto" if number == "auto" else int(number)
        except ValueError:
            raise UsageError("/n takes a number of tokens, such as /n 4, or auto.") from None
        self.session.draft_length(n_max)
        self._say_drafter()

    def _say_drafter(self) -> None:
        self.screen.notices(self.session)
        drafter = self.session.drafter
        if drafter.method == "none":
            self.screen.note("Speculation is off.")
        else:
            how = "as many as pay, up to" if drafter.auto else "at most"
            most = f"{drafter.tree} nodes" if drafter.tree else f"{drafter.n_max}"
            self.screen.note(f"Speculation is on: {drafter.name}, {how} {most} a step.")

    def _regen(self, _rest: str) -> None:
        self._show(self.session.regenerate)

    def _stats(self, _rest: str) -> None:
        session = self.session
        drafter, totals = session.drafter, session.totals
        sampler = asdict(session.sampler) | {"seed": session.last_seed}
        held = len(session.conversation.marks[-1].ids) if session.conversation.marks else 0
        lines = [
            f"model      {session.target.name} ({session.model.description})",
            f"drafter    {drafter.name}"
            + (f", {_size(drafter)}, p_min {drafter.p_min:g}" if drafter.n_max else ""),
            "sampler    " + " ".join(f"{k}={_plain(v)}" for k, v in sampler.items()),
            "engine     "
            + (" ".join(f"{k}={_plain(v)}" for k, v in session.settings.items()) or "n/a"),
            f"context    {held} of {session.n_ctx or 'n/a'} tokens",
            f"last       {statistics_line(session.last) if session.last else 'n/a'}",
        ]
        rate = totals.counts.decode_tokens / totals.times.decode if totals.times.decode else None
        answers = f"{totals.answers} answer{'' if totals.answers == 1 else 's'}"
        parts = [answers, f"{_figure(rate, '.1f')} tok/s"]
        lines.append("all        " + " · ".join([*parts, *_counts(totals.counts)]))
        for line in lines:
            self.screen.note(line)

    def _system(self, text: str) -> None:
        conversation = self.session.conversation
        if not text:
            self.screen.note(conversation.system or "There is no system message.")
            return
        conversation.system = text
        conversation.reset()
        self.screen.note("The system message is set; the conversation starts anew.")

    def _reset(self, _rest: str) -> None:
        self.session.conversation.reset()
        self.screen.note("The conversation starts anew.")

    def _save(self, rest: str) -> None:
        path = _file(rest, "/save")
        self.session.save(path)
        self.screen.note(f"Saved in {path}.")

    def _load(self, rest: str) -> None:
        path = _file(rest, "/load")
        self.session.load(path)
        self.screen.note(f"{len(self.session.conversation.messages)} messages read from {path}.")

    def _help(self, _rest: str) -> None:
        self.screen.note(HELP)


def _size(drafter: DrafterSettings) -> str:
    """How much it drafts."""
    n = f"n {drafter.draft_length}"
    return f"tree {drafter.tree_size}, {n}" if drafter.tree else n


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else "n/a" if value is None else str(value)


def _file(rest: str, command: str) -> Path:
    try:
        words = shlex.split(rest, posix=os.name != "nt")
    except ValueError:
        words = [rest]  # an odd quote: the file's name may hold one
    if len(words) != 1:
        raise UsageError(f"{command} takes one file.", "Put a name with spaces in quotes.")
    return written(words[0])


def _terminal_reader() -> Callable[[str], str]:
    with contextlib.suppress(ImportError):  # Windows has none; its console edits lines itself
        import readline  # input() then edits lines and keeps a history

        if "libedit" not in (readline.__doc__ or ""):  # Python's default is off
            readline.parse_and_bind("set enable-bracketed-paste on")
    return input


def _pipe_reader(_prompt: str) -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\r\n")
