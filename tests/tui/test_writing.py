"""What is written, taken back and put again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from textual.widgets import TextArea
from tui.played import Player
from tui.talking import until

from localspec.tui.app import LocalspecApp

LINES = "\n".join(f"line {i}" for i in range(60))


@pytest.mark.parametrize("size", [(80, 24), (140, 45)])
@pytest.mark.parametrize("keys", [(), ("f4", "e"), ("ctrl+g",)], ids=["chat", "ab", "system"])
async def test_a_paste_that_brought_the_scrollbar_can_be_undone(
    make_app: Callable[..., LocalspecApp], keys: tuple[str, ...], size: tuple[int, int]
) -> None:
    app = make_app(launch=Player("x").launch)

    def area() -> Any:
        found = app.screen.query(TextArea)
        return found.first() if found else None

    async with app.run_test(size=size) as pilot:
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        await until(pilot, lambda: area() is not None and area().size.height)
        writing = area()
        assert writing is not None
        writing.focus()
        await pilot.press("a")
        before = writing.text
        writing.insert("\n" + LINES)
        await until(pilot, lambda: writing.show_vertical_scrollbar)
        for _ in range(2):
            await pilot.press("ctrl+z")
            await until(pilot, lambda: writing.text == before)
            assert not writing.show_vertical_scrollbar
            await pilot.press("ctrl+y")
            await until(pilot, lambda: writing.text == f"{before}\n{LINES}")
            assert writing.cursor_location == writing.document.end
