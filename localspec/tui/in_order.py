"""What is typed and pasted is dealt with one by one, however fast it comes.

Textual hands a key to the widget that has the focus *then*, in a queue of its own, and so the next
one. A key that moves the focus, or does so in a queue further up, is overtaken by those behind it:
text typed beside a prompt, or right after the key that leads to it, comes out scrambled.
"""

from __future__ import annotations

import asyncio
from collections import deque

from textual import events
from textual.app import App
from textual.message import Message
from textual.message_pump import MessagePump

PATIENCE = 5.0
"""Seconds after which the next key is dealt with although a widget is still at the last one: the
keys that leave the app work even then."""


class InOrder(App[None]):
    def __init__(self) -> None:
        self._typed: deque[events.Key | events.Paste] = deque()
        """The first is on its way through the widgets, or what it led to is."""
        self._came_back = False
        """None of them took it: it is the app's turn."""
        super().__init__()

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
