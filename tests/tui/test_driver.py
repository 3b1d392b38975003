"""What reads the terminal, and how it is left."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import pty
import random
import select
import struct
import sys
import termios
import threading
import time
from pathlib import Path

import pytest
from patience import FOREVER
from textual.drivers._writer_thread import MAX_QUEUED_WRITES, WriterThread
from textual.drivers.linux_driver import LinuxDriver

from localspec.store import Store
from localspec.tui.driver import Output, Parser, TerminalDriver
from localspec.tui.settings import SettingsStore


def test_no_sequence_is_too_damaged_to_go_on() -> None:
    """Pieces of what terminals send, as they are left when bytes between them were lost."""
    ends = [*"MmutRP~I", "$y"]
    pieces = ["\x1b[", "\x1b", "\x1b[200~", "\x1b[201~", "\x1b[48;", "?2048", "<", ";", ":", *ends]
    pieces += ["0", "1", "35", "57441", "99999999999", "-", "a", "\ufffd", "\0", "\x9b"]
    draw = random.Random(1)
    for _ in range(3_000):
        parser = Parser()
        for _ in range(draw.randrange(1, 12)):
            list(parser.feed(draw.choice(pieces)))
        list(parser.tick())
        list(parser.feed("\x1b[201~\x1b\x1b[201~"))
        keys = [getattr(event, "key", "") for event in parser.feed("qz")]
        assert keys[-1] == "z"


def test_what_is_written_to_a_terminal_that_is_gone_holds_nobody_up(tmp_path: Path) -> None:
    class Gone(io.TextIOWrapper):
        def write(self, _text: str) -> int:
            raise OSError(errno.EIO, "Input/output error")

    told: list[int] = []
    terminal = Gone((tmp_path / "terminal").open("wb"))
    writer = WriterThread(Output(terminal, lambda: told.append(1)))

    def write() -> None:
        for _ in range(3 * MAX_QUEUED_WRITES):
            writer.write("x")
        writer.stop()

    writer.start()
    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    writing.join(FOREVER)
    assert not writing.is_alive()
    assert told == [1]


def test_a_window_closed_under_an_answer_ends_the_app_and_keeps_the_answer(
    settings: object,
) -> None:
    SettingsStore().change(model="demo")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "localspec"])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    seen = ""

    def read_until(word: str) -> None:
        nonlocal seen
        while word not in seen:
            assert select.select([terminal], [], [], FOREVER)[0], seen[-2000:]
            seen += os.read(terminal, 65536).decode("utf-8", "replace")

    read_until("Ask something")
    os.write(terminal, b"Write a very long story about a fox.\r")
    read_until("fox")
    read_until("answering")
    seen = ""
    read_until("the")
    time.sleep(3)  # nobody reads: what the app writes fills every buffer on the way
    os.close(terminal)
    ends = time.monotonic() + FOREVER
    while not os.waitpid(pid, os.WNOHANG)[0]:
        assert time.monotonic() < ends, "it goes on for nobody"
        time.sleep(0.05)
    (kept,) = Store().talks()
    assert Store().talk(kept.id).turns[-1].role == "assistant"


def test_the_screen_is_empty_when_it_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """In tmux (3.3a), where the window had become taller, the app's last rows stood above the
    shell's otherwise."""
    told: list[str] = []
    monkeypatch.setattr(TerminalDriver, "write", lambda _, text: told.append(text))
    monkeypatch.setattr(LinuxDriver, "stop_application_mode", lambda _: told.append("left"))
    object.__new__(TerminalDriver).stop_application_mode()
    assert told == ["\x1b[H\x1b[J", "left"]
