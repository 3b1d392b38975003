"""Ctrl-C of the command line.

Whoever presses it twice must not lose what the first one ends and keeps: the table of a benchmark,
where to go on with a download. So it is a KeyboardInterrupt once in ``PATIENCE``; what hangs longer
than that is left by pressing it again.
"""

from __future__ import annotations

import signal
import time
from types import FrameType

PATIENCE = 5.0
"""Seconds within which Ctrl-C pressed again is the same wish as before."""

_heard = float("-inf")


def one_at_a_time() -> None:
    """Ctrl-C is a KeyboardInterrupt, but not again within ``PATIENCE``."""
    signal.signal(signal.SIGINT, _interrupt)


def each() -> None:
    """Every Ctrl-C is a KeyboardInterrupt, as in any Python program: for a prompt, where it is no
    more than a key."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def keeping() -> None:
    """What was made is being kept: a Ctrl-C within ``PATIENCE`` comes too late to end it."""
    global _heard
    _heard = time.monotonic()


def no_more() -> None:
    """The process is leaving: Ctrl-C changes neither its exit code nor what it says at its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    if time.monotonic() - _heard > PATIENCE:
        keeping()
        raise KeyboardInterrupt
