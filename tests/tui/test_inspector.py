"""The step inspector, over a generation that is made for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from textual.widgets import OptionList, Static

from localspec.errors import UsageError
from localspec.records import Generation
from localspec.tui.app import LocalspecApp
from localspec.tui.screens.inspector import OFFER, RUNNING, Inspected, InspectorScreen, shown
from tests.tui.played import answer, scored
from tests.tui.talking import until

MakeApp = Callable[..., LocalspecApp]
Score = Callable[[], Awaitable[Generation | None]]


@asynccontextmanager
async def inspecting(
    make_app: MakeApp, run: Generation, texts: dict[int, bytes], score: Score
) -> Any:
    async with make_app().run_test(size=(140, 45)) as pilot:
        screen = InspectorScreen(Inspected(run, texts, "ngram n=4"), score)
        await pilot.app.push_screen(screen)
        await pilot.pause()
        yield screen, pilot


def detail(screen: InspectorScreen) -> str:
    return str(screen.query_one("#detail", Static).content)


def parting(screen: InspectorScreen) -> str:
    said = screen.query_one("#parting", Static)
    return str(said.content) if said.display else ""


async def never() -> None:
    raise AssertionError("not asked for")


def test_a_token_is_shown_with_the_characters_that_end_in_it() -> None:
    assert shown(b" a\n\t") == ("␣a⏎⇥", b"")
    assert shown(b"") == ("∅", b"")
    assert shown(b"\xe3\x81") == ("<E3 81>", b"\xe3\x81")
    assert shown(b"\x82 b", b"\xe3\x81") == ("あ␣b", b"")
    assert shown(b"\x81", b"\xe3") == ("<81>", b"\xe3\x81")
    assert shown(b"\x82\xe3", b"\xe3\x81") == ("あ<E3>", b"\xe3")
    assert shown(b"x", b"\xe3\x81") == ("x", b""), "it never becomes whole"
    assert shown(b"\xff!") == ("<FF>!", b"")


async def test_steps_of_tokens_that_are_parts_of_characters_can_be_read(make_app: MakeApp) -> None:
    """Rejected tokens are read after the accepted ones, a branch's after its parent."""
    run = answer("one [two|bad] three [four|] five")
    two, bad, three = run.drafts[0][0], run.drafts[0][1], run.tokens[2]
    texts = dict.fromkeys(run.tokens, b"w")
    texts |= {run.tokens[0]: b"\xe3", two: b"\x81", bad: b"\x84!", three: b"\x82"}
    async with inspecting(make_app, run, texts, never) as (screen, _):
        lines = screen.query_one(OptionList)
        assert str(lines.get_option_at_index(0).prompt) == "1 <81>い!あ"
        assert [line.split()[0] for line in detail(screen).split("\n")[2:5]] == [
            "<81>",
            "い!",
            "あ",
        ]
    parents = ((-1, -1), *run.parents[1:])
    tree = replace(run, parents=parents)
    async with inspecting(make_app, tree, texts | {bad: b"\x81\x84"}, never) as (screen, _):
        assert detail(screen).split("\n")[3].split()[0] == "い"


async def test_it_is_said_that_the_answer_is_run_again(make_app: MakeApp) -> None:
    run = answer("one [two|bad] three")
    texts = dict.fromkeys((*run.tokens, *run.drafts[0]), b"w")
    asked, go_on = [], asyncio.Event()
    ends: list[Generation | Exception] = [UsageError("No.", "Wait."), scored(run)]

    async def score() -> Generation | None:
        asked.append(1)
        await go_on.wait()
        if isinstance(end := ends.pop(0), Exception):
            raise end
        return end

    async with inspecting(make_app, run, texts, score) as (screen, pilot):
        assert OFFER in detail(screen)
        await pilot.press("p", "p")
        await pilot.pause()
        assert RUNNING in detail(screen) and OFFER not in detail(screen)
        go_on.set()
        await pilot.app.workers.wait_for_complete(screen.app.workers)
        await pilot.pause()
        assert OFFER in detail(screen), "it failed"
        assert len(asked) == 1
        await pilot.press("p")
        await pilot.pause()
        assert "0.900" in detail(screen)
        assert RUNNING not in detail(screen)
        assert not parting(screen)
        assert not screen.check_action("score", ()), "it is known"


async def test_where_the_answer_run_again_is_another_text_it_is_said(make_app: MakeApp) -> None:
    run = answer("one [two|bad] three [four] five")
    other = scored(answer("one [two|bad] three [four] six"))

    async def score() -> Generation | None:
        return other

    texts = dict.fromkeys((*run.tokens, *run.drafts[0]), b"w")
    async with inspecting(make_app, run, texts, score) as (screen, pilot):
        await pilot.press("p")
        await until(pilot, lambda: parting(screen))
        assert "another text from token 5 on: p and q are known up to there" in parting(screen)
