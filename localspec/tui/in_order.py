"""What is typed and pasted is dealt with one by one, however fast it comes.

Textual hands a key to the widget that has the focus *then*, in a queue of its own, and so the next
one. A key that moves the focus, or does so in a queue further up, is overtaken by those behind it:
text typed beside a prompt, or right after the key that leads to it, comes out scrambled.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Literal

from textual import events
from textual.app import App
from textual.message import Message
from textual.message_pump import MessagePump
from textual.widgets import OptionList

PATIENCE = 5.0
"""Seconds after which the next key is dealt with although a widget is still at the last one: the
keys that leave the app work even then."""
AT_MOST = 0.05
"""Seconds that a key waits for what the one before it has begun on the event loop."""
COMES_IN = 1.0
"""Seconds that it waits for a dialog at the most."""


def _when_laid_out(move_page: Callable[..., None]) -> Callable[..., None]:
    """A key right behind the one that opens a list comes before the list has lines, of which
    Textual takes the first. Every list of options is one, the palette's and a Select's too."""

    def move(options: OptionList, direction: Literal[-1, 1]) -> None:
        if options._lines:
            move_page(options, direction)

    return move


OptionList._move_page = _when_laid_out(OptionList._move_page)  # type: ignore[method-assign]


class InOrder(App[None]):
    def __init__(self) -> None:
        self._typed: deque[events.Key | events.Paste] = deque()
        """The first is on its way through the widgets, or what it led to is."""
        self._came_back = False
        """None of them took it: it is the app's turn."""
        self._coming = 0
        super().__init__()

    @contextmanager
    def coming(self) -> Iterator[None]:
        """Something is looked up that a dialog needs, which comes right after it: what is typed
        meanwhile is meant for that."""
        self._coming += 1
        try:
            yield
        finally:
            self._coming -= 1

    async def on_event(self, event: events.Event) -> None:
        if not isinstance(event, (events.Key, events.Paste)) or event.is_forwarded:
            await super().on_event(event)
            return
        self._typed.append(event)
        if len(self._typed) == 1:
            await self.deal_with(event)

    def post_message(self, message: Message) -> bool:
        if self._typed and message is self._typed[0]:  # not behind what it is to come before
            self._came_back = True
            return True
        return super().post_message(message)

    async def deal_with(self, event: events.Key | events.Paste) -> None:
        self._came_back = False
        await super().on_event(event)
        if event.is_forwarded:
            await self._through(self.focused or self.screen)
            if self._came_back:
                await self._dispatch_message(event)
        self.call_later(self._next)  # behind what it led to: a widget gets its focus by a message

    async def _next(self) -> None:
        # What opens a dialog is a worker, which has not begun yet: it goes on until it waits.
        loop, began = asyncio.get_running_loop(), perf_counter()
        await asyncio.sleep(0)
        while getattr(loop, "_ready", ()) and perf_counter() < began + AT_MOST:
            await asyncio.sleep(0)
        while self._coming and perf_counter() < began + COMES_IN:
            await asyncio.sleep(0.01)
        self._typed.popleft()
        if self._typed:
            await self.deal_with(self._typed[0])

    async def _through(self, first: MessagePump) -> None:
        """Until ``first``, and whoever it is handed on to, have dealt with what was typed."""
        node: MessagePump | None = first
        while not self._came_back and node is not None and node._task is not None:
            heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if not node.call_later(heard.set_result, None):
                break
            # its task ends first where the key closes it, or shows a bug in it
            done, _ = await asyncio.wait(
                (heard, node._task), timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED
            )
            if not done or self._typed[0]._stop_propagation:
                break
            node = node._parent
