"""What a layout changes is painted, and told, whatever was scrolled or asked for since the last."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.events import Resize
from textual.geometry import Region
from textual.pilot import Pilot
from textual.widgets import Static

from localspec.tui.screens.base import LightScreen


class Lines(Static):
    def __init__(self) -> None:
        super().__init__("\n".join(f"line {i}" for i in range(100)))
        self.told: list[int] = []

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
    await pilot.pause(0.1)
    assert Region.from_union(painted).contains_region(Region(0, 0, 38, 12))


async def test_a_change_of_size_is_told_though_somebody_looked_where_things_stand(
    pilot: Pilot[Any],
) -> None:
    screen = pilot.app.screen
    lines = screen.query_one(Lines)
    lines.styles.width = 20
    lines._check_refresh()  # as when it is idle: the screen hears that there is to be a layout
    screen.find_widget(screen.query(Static)[-1])  # not in sight
    assert screen.find_widget(lines).region.width == 20
    await pilot.pause(0.1)
    assert lines.told[-1] == 20
