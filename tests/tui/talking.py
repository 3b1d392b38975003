"""An app in its chat, and what tests ask of it again and again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from patience import FOREVER
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import OptionList, Static
from tui.played import Player

from localspec.tui.app import LocalspecApp
from localspec.tui.screens.chat import ChatScreen
from localspec.tui.widgets.footer import Footer
from localspec.tui.widgets.prompt import Prompt
from localspec.tui.widgets.speed import SpeedPanel
from localspec.tui.widgets.turns import AnswerView, Question

TEXT = "Here [is a list|of] of [three things]: one, [two and] three."


async def until(pilot: Pilot[Any], happened: Callable[[], object]) -> None:
    end = time.monotonic() + FOREVER
    while not happened():
        assert time.monotonic() < end, f"it does not come to that; shown:\n{shown(pilot.app)}"
        await pilot.pause(0.02)


LOOKING = frozenset("advice baseline drafters foresee look read target targets workloads".split())
"""Groups of workers; what waits for the answer to a dialog is a worker as well, of another screen
than the dialog."""


def looking(app: App[Any]) -> bool:
    return any(w.is_running and (w.group in LOOKING or w.node is app.screen) for w in app.workers)


async def steady(pilot: Pilot[Any]) -> None:
    """Nothing is going on at many looks in a row, nor looked up. The footer, plots and lists come a
    little later than what they are of."""
    end, quiet = time.monotonic() + FOREVER, 0
    while quiet < 8:
        assert time.monotonic() < end, "it does not come to rest"
        await pilot.pause()
        await asyncio.sleep(0.02)
        quiet = 0 if looking(pilot.app) else quiet + 1


def shown(app: App[Any]) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


class Chat:
    def __init__(self, app: LocalspecApp, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    @property
    def screen(self) -> ChatScreen:
        screen = self.app.get_screen_stack("chat")[0]
        assert isinstance(screen, ChatScreen)
        return screen

    @property
    def prompt(self) -> Prompt:
        return self.screen.query_one(Prompt)

    async def until(self, happened: Callable[[], object]) -> None:
        end = time.monotonic() + FOREVER
        await self.pilot.pause()
        while not happened():
            assert time.monotonic() < end, f"it does not come to that; shown:\n{shown(self.app)}"
            await asyncio.sleep(0.01)
            await self.pilot.pause()

    async def open_list(self) -> None:
        """The kept conversations, once they are read."""
        await self.pilot.press("ctrl+o")

        def filled() -> bool:
            lists = self.app.screen.query(OptionList)
            return bool(lists) and bool(lists.first().option_count)

        await self.until(filled)

    async def settled(self) -> None:
        """Nothing is going on any more: looked at a few times, since a key's action, the worker
        that it starts and the engine's job follow each other."""
        quiet = 0

        def at_rest() -> bool:
            nonlocal quiet
            dialog = self.app.screen is not self.screen
            working = any(
                worker.group in ("answer", "store", "talk", "baseline", "switch", "default", "look")
                and worker.is_running
                for worker in self.app.workers
            )
            busy = self.app.engine.busy or (working and not dialog)
            quiet = 0 if busy else quiet + 1
            return quiet > 4

        await self.until(at_rest)

    async def ask(self, text: str) -> None:
        self.prompt.write(text)
        told = list(self.app._notifications)
        await self.pilot.press("enter")
        await self.until(
            lambda: not self.prompt.text or any(n not in told for n in self.app._notifications)
        )
        await self.settled()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settled()

    @property
    def questions(self) -> list[str]:
        return [q.text for q in self.screen.query(Question)]

    @property
    def answers(self) -> list[str]:
        return [view.source for view in self.screen.query(AnswerView)]

    @property
    def facts(self) -> str:
        return str(self.screen.query(AnswerView).last()._facts.content)

    @property
    def header(self) -> str:
        return str(self.screen.query_one("#setup-line", Static).content)

    @property
    def welcome(self) -> str:
        return str(self.screen.query_one("#welcome", Static).content)

    @property
    def keys(self) -> str:
        """The footer."""
        return self.screen.query_one(Footer).render().plain

    @property
    def panel(self) -> str:
        """All text of the speed panel."""
        return text_of(self.screen.query_one(SpeedPanel))

    @property
    def notes(self) -> str:
        return " ".join(f"{n.title} {n.message}" for n in self.app._notifications)


def seen(app: LocalspecApp) -> str:
    """All that is on the screen; the ends of lines are where no word ends."""
    lines = [strip.text for strip in app.screen._compositor.render_strips()]
    return " ".join(" ".join(lines).replace("│", " ").split())


def text_of(widget: Any) -> str:
    return " ".join(
        str(getattr(child, "content", "") or getattr(child, "value", ""))
        for child in widget.walk_children()
    )


async def asked_and_held(c: Any, engine: Player) -> None:
    """A question is sent, and its answer stands still after ``engine.hold_after`` tokens."""
    c.prompt.write("x")
    await c.pilot.press("enter")
    assert await asyncio.to_thread(engine.holding.wait, FOREVER)
