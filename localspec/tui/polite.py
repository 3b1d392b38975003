"""What takes long, bit by bit.

Textual takes the next message of a screen as soon as it is done with the last, without giving the
event loop its turn. Laying out and drawing a screen takes some 20 ms, and opening one or changing
its size does it several times over: in a row that is long enough for a person to feel, and for
answers that stream in to wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from textual.message import Message
from textual.message_pump import MessagePump

LONG, PAUSE = 0.008, 0.001
"""Seconds: half of what a frame takes at 60 a second; and long enough for tasks whose timers became
due meanwhile, which takes the loop several turns."""


class Polite(MessagePump):
    """Comes before ``Screen`` or ``App`` among the bases."""

    _busy = 0.0
    """Seconds since the last pause: many short messages in a row take long too."""

    async def _dispatch_message(self, message: Message) -> None:
        await self._pause()  # after what a timer has done
        with self._working():
            await super()._dispatch_message(message)
        await self._pause()

    @contextmanager
    def _working(self) -> Iterator[None]:
        began = perf_counter()
        yield
        self._busy += perf_counter() - began

    async def _pause(self) -> None:
        if self._busy > LONG:
            await asyncio.sleep(PAUSE)
            self._busy = 0.0
