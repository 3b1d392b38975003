"""What a layout changes is painted, and told, whatever was scrolled or asked for since the last."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.events import Resize
from textual.geometry import Region
from textual.pilot import Pilot
from textual.strip import Strip
from textual.widgets import Static
from tui.talking import until

from localspec.tui.polite import LONG
from localspec.tui.screens.base import LightScreen


class Lines(Static):
    def __init__(self) -> None:
        super().__init__("\n".join(f"line {i}" for i in range(100)))
        self.told: list[int] = []
        self.made: list[Region] = []

    def render_lines(self, crop: Region) -> list[Strip]:
        self.made.append(crop)
        return super().render_lines(crop)

    def on_resize(self, event: Resize) -> None:
        self.told.append(event.size.width)


class LongScreen(LightScreen[None]):
    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Lines()
            yield Static("end")


@pytest.fixture
async def pilot() -> AsyncIterator[Pilot[Any]]:
    """At line 10 of a long text."""
    async with App[None]().run_test(size=(40, 12)) as pilot:
        await pilot.app.push_screen(LongScreen())
        await pilot.pause()
        pilot.app.screen.query_one(VerticalScroll).scroll_to(y=10, animate=False, immediate=True)
        await pilot.pause()
        yield pilot


async def test_what_is_scrolled_back_with_a_layout_is_painted_there(
    pilot: Pilot[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = pilot.app.screen
    painted: set[Region] = set()
    compositor = screen._compositor
    paint = compositor.render_update

    def noted(*given: Any, **how: Any) -> Any:
        painted.update(compositor._dirty_regions)
        return paint(*given, **how)

    monkeypatch.setattr(compositor, "render_update", noted)
    screen.query_one(VerticalScroll).scroll_to(y=0, animate=False, immediate=True)
    screen.query_one(Lines).refresh(layout=True, repaint=False)
    whole = Region(0, 0, 38, 12)
    await until(pilot, lambda: painted and Region.from_union(painted).contains_region(whole))


async def test_a_change_of_size_is_told_though_somebody_looked_where_things_stand(
    pilot: Pilot[Any],
) -> None:
    screen = pilot.app.screen
    lines = screen.query_one(Lines)
    lines.styles.width = 20
    lines._check_refresh()  # as when it is idle: the screen hears that there is to be a layout
    screen.find_widget(screen.query(Static)[-1])  # not in sight
    assert screen.find_widget(lines).region.width == 20
    await until(pilot, lambda: lines.told[-1] == 20)


async def test_only_the_lines_that_are_painted_are_made(pilot: Pilot[Any]) -> None:
    """Textual makes all lines of every widget that they touch: of two lines as of the screen."""
    screen = pilot.app.screen
    lines = screen.query_one(Lines)
    lines.made.clear()
    screen._compositor._dirty_regions.add(Region(0, 3, 40, 2))
    screen._compositor_refresh()
    assert lines.made == [Region(0, 13, 38, 2)]
    shown = [strip.text.strip() for strip in screen._compositor.render_strips()]
    assert [text.split()[:2] for text in shown] == [["line", str(y)] for y in range(10, 22)]


async def test_between_a_layout_and_painting_others_have_their_turn(
    pilot: Pilot[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes 20 ms: in a row that is long enough for a person to feel."""
    done: list[str] = []
    compositor = pilot.app.screen._compositor
    lay_out, paint = compositor.reflow, compositor.render_update

    def slowly(*given: Any) -> Any:
        asyncio.get_running_loop().call_later(0.001, done.append, "other")
        time.sleep(2 * LONG)
        done.append("laid out")
        return lay_out(*given)

    def painting(**given: Any) -> Any:
        done.append("painted")
        return paint(**given)

    monkeypatch.setattr(compositor, "reflow", slowly)
    monkeypatch.setattr(compositor, "render_update", painting)
    pilot.app.screen.query_one(Lines).refresh(layout=True)
    await until(pilot, lambda: "painted" in done)
    assert done[:2] == ["laid out", "other"]
