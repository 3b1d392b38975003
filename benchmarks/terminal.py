"""A terminal for the scripts that measure the app: a pty whose other end is read all the time."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence

SIZE = (140, 45)
ASKED, ANSWER = b"\x1b[?2026$p", b"\x1b[?2026;2$y"
"""The app asks for synchronised output, and a terminal that has it answers."""
KEPT = 20_000


class Terminal:
    """A command in a terminal of its own; ``shown`` is the end of what it wrote."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], pass_fds: Sequence[int] = ()
    ) -> None:
        self._leader, follower = pty.openpty()
        termios.tcsetwinsize(follower, SIZE[::-1])
        self.process = subprocess.Popen(
            command,
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env={**environment, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
            start_new_session=True,
            pass_fds=pass_fds,
            preexec_fn=_take_terminal,
        )
        os.close(follower)
        self.shown = b""
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while not self._ended:
            if not select.select([self._leader], [], [], 0.2)[0]:
                continue
            try:
                part = os.read(self._leader, 1 << 16)
            except OSError:  # the last process has closed it
                return
            if ASKED in part:
                os.write(self._leader, ANSWER)
            self.shown = (self.shown + part)[-KEPT:]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._ended = True
        self._reader.join()
        os.close(self._leader)


def _take_terminal() -> None:
    """Signals of a resize go to a controlling terminal's foreground processes."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
