"""A program in a terminal of its own (a pty, and pyte for what it draws), as a person has it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import psutil
import pyte
from patience import FOREVER

KEYS = {
    "enter": "\r",
    "escape": "\x1b",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "f2": "\x1bOQ",
    "f3": "\x1bOR",
    "f4": "\x1bOS",
    "f5": "\x1b[15~",
    "f6": "\x1b[17~",
    "ctrl+q": "\x11",
    "ctrl+s": "\x13",
}


class Terminal:
    """``text`` is what stands on the screen, ``whole`` with what has gone up and out of it."""

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], columns: int, lines: int
    ) -> None:
        self._screen = pyte.HistoryScreen(columns, lines, history=1_000)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self._master, slave = pty.openpty()
        self.attributes_before = self.attributes
        self._size(slave, columns, lines)
        self._screen.write_process_input = self._answer  # type: ignore[method-assign]
        env = {name: value for name, value in env.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True
        )
        os.close(slave)
        self._gone = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_raised: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if not self._gone:
            self.hang_up()

    # ---- what it shows ------------------------------------------------------------------------

    @property
    def text(self) -> str:
        with self._lock:
            return "\n".join(line.rstrip() for line in self._screen.display)

    @property
    def whole(self) -> str:
        with self._lock:
            columns = range(self._screen.columns)
            above = ["".join(line[x].data for x in columns) for line in self._screen.history.top]
        return "\n".join([*(line.rstrip() for line in above), self.text])

    def wait_for(self, *words: str, seconds: float = FOREVER) -> str:
        """What is on the screen as soon as all of ``words`` are."""
        return self.until(lambda: all(word in self.text for word in words), repr(words), seconds)

    def until(self, what: Callable[[], bool], name: str, seconds: float = FOREVER) -> str:
        deadline = time.monotonic() + seconds
        while not what():
            ended = self.process.poll() is not None and not self._reader.is_alive()
            if (ended and not what()) or time.monotonic() > deadline:
                state = f"it ended with {self.process.returncode}" if ended else "it goes on"
                raise AssertionError(f"no {name}; {state}; on the screen:\n{self.whole}")
            time.sleep(0.03)
        return self.text

    @property
    def attributes(self) -> list[object]:
        """Whether it shows what is typed, waits for the end of a line and so on (``stty -a``)."""
        return termios.tcgetattr(self._master)

    # ---- what a person does -------------------------------------------------------------------

    def type(self, text: str | bytes) -> None:
        os.write(self._master, text if isinstance(text, bytes) else text.encode())

    def press(self, *keys: str) -> None:
        for key in keys:
            self.type(KEYS.get(key, key))

    def resize(self, columns: int, lines: int) -> None:
        with self._lock:
            self._screen.resize(lines, columns)
            self._size(self._master, columns, lines)
        # the kernel tells it to a session that has taken the terminal for its own
        os.killpg(self.process.pid, signal.SIGWINCH)

    def stop(self, how: signal.Signals) -> None:
        """As Ctrl+Z does, or ``kill -STOP``; what others write meanwhile takes the screen."""
        self.process.send_signal(how)
        child = psutil.Process(self.process.pid)
        self.until(lambda: child.status() == psutil.STATUS_STOPPED, "stop")
        with self._lock:
            self._stream.feed(b"\x1b[2J")

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def hang_up(self) -> None:
        """The terminal is gone; nobody tells the program, which never took it for its own."""
        self._gone = True
        self._reader.join()
        os.close(self._master)

    # ---- inside -------------------------------------------------------------------------------

    def _size(self, handle: int, columns: int, lines: int) -> None:
        fcntl.ioctl(handle, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _answer(self, text: str) -> None:
        """The terminal's own answers, such as where its cursor is."""
        os.write(self._master, text.encode())

    def _read(self) -> None:
        while not self._gone:
            try:
                ready, _, _ = select.select([self._master], [], [], 0.2)
                if not ready:
                    if self.process.poll() is not None:
                        return
                    continue
                data = os.read(self._master, 65_536)
            except OSError:  # the other end is closed
                return
            with self._lock:
                self._stream.feed(data)
