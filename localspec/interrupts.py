"""Ctrl-C of the command line, and what else tells a process to end.

Whoever presses it twice must not lose what the first one ends and keeps: the table of a benchmark,
where to go on with a download. So it is a KeyboardInterrupt once in ``PATIENCE``; what hangs longer
than that is left by pressing it again. SIGTERM and SIGHUP (the connection to the machine is gone)
are the same wish, with an exit code of their own.
"""

from __future__ import annotations

import signal
import sys
import time
from types import FrameType
from typing import IO

from localspec.streams import silence

INTERRUPTED = 130
"""The exit code of what Ctrl-C ended."""
PATIENCE = 5.0
"""Seconds within which Ctrl-C pressed again is the same wish as before."""
_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]

_heard = float("-inf")
_told: int | None = None
_terminals: list[IO[str]] = []


def one_at_a_time() -> None:
    """Ctrl-C is a KeyboardInterrupt, but not again within ``PATIENCE``."""
    signal.signal(signal.SIGINT, _interrupt)
    _terminals[:] = [stream for stream in (sys.stdout, sys.stderr) if stream.isatty()]
    for number in _ENDING:
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup has the one ignored
            signal.signal(number, _end)


def each() -> None:
    """Every Ctrl-C is a KeyboardInterrupt, as in any Python program: for a prompt, where it is no
    more than a key, and where another signal simply ends the process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _end_simply()


def keeping() -> None:
    """What was made is being kept: a Ctrl-C within ``PATIENCE`` comes too late to end it."""
    global _heard
    _heard = time.monotonic()


def no_more() -> None:
    """The process is leaving: Ctrl-C changes neither its exit code nor what it says at its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_simply()


def exit_code(code: int) -> int:
    """``code``; where that says interrupted, of the signal that did it. One that came too late to
    end anything is no reason."""
    return 128 + _told if code == INTERRUPTED and _told is not None else code


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    if time.monotonic() - _heard > PATIENCE:
        keeping()
        raise KeyboardInterrupt


def _end(number: int, frame: FrameType | None) -> None:
    global _told
    _told = number
    if number != signal.SIGTERM:  # the terminal is gone, and an error at each line is no help
        for stream in _terminals:
            silence(stream)
    _interrupt(number, frame)


def _end_simply() -> None:
    for number in _ENDING:
        if signal.getsignal(number) == _end:
            signal.signal(number, signal.SIG_DFL)
