"""History: found, opened, two compared, deleted; what it looks like."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_runs import candidate, generation, prompt, result, row
from rich.console import Console
from textual.pilot import Pilot
from textual.widgets import Input, Static

from localspec.bench import history
from localspec.records import Counts
from localspec.tui.app import LocalspecApp
from localspec.tui.screens.bench import BenchScreen, Told
from localspec.tui.screens.dialogs import Ask, Confirm
from localspec.tui.screens.history import HistoryScreen
from localspec.tui.widgets.comparison_view import ComparisonView
from localspec.tui.widgets.report_view import Figures, ReportView

MakeApp = Callable[..., LocalspecApp]
CANDIDATES = [
    candidate(),
    *(candidate(name, n) for name in ("small", "eagle3") for n in (3, 5, 8)),
    candidate("ngram", 16),
]
PROMPTS = [prompt(f"p{i}", "chat8" if i < 8 else "code9") for i in range(17)]


def drafted(n: int, rate: float) -> Counts:
    reach = tuple(round(25 * rate ** (i + 1)) for i in range(n))
    return Counts(26, 25, 26, 63, 25 * n, sum(reach), 25 * n, reach, (25,) * n)


def made(
    slower: float = 1.0, day: int = 20, *, code: float = 1.0, fits: bool = True
) -> dict[str, Any]:
    """A result whose drafter "small" at n 3 is by so much slower than in another; drafts are by so
    much faster on code; "small" is made for this target or not."""
    rows = []
    for i, p in enumerate(PROMPTS):
        for j, c in enumerate(CANDIDATES):
            n = c.drafter.n_max
            tps = 98.4 * (1.3 - 0.06 * j if j else 1) * (slower if j == 1 else 1)
            tps *= code if j and i >= 8 else 1
            alien = c.drafter.name == "small" and not fits
            counts = drafted(n, 0.02 if alien else 0.85 - 0.05 * (j // 2)) if n else None
            rows.append(
                row(
                    c,
                    p,
                    generation(tps=tps * (1 + 0.02 * math.sin(day + 3 * i + j)), counts=counts),
                )
            )
    found = result(rows, CANDIDATES, PROMPTS)
    return found | {"created": f"2026-11-{day}T10:00:00+00:00"}


@pytest.fixture
def app(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> LocalspecApp:
    """With two results, the later one slower, and local time the same everywhere."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    history.keep(made())
    history.keep(made(0.85, 21))
    return make_app()


async def until(pilot: Pilot[Any], what: Callable[[], object]) -> None:
    for _ in range(2000):
        if what():
            return
        await pilot.pause(0.02)
    raise AssertionError("it did not happen")


async def opened(pilot: Pilot[Any], lines: int = 2) -> HistoryScreen:
    await pilot.press("f6")
    await pilot.pause()
    screen = pilot.app.screen
    assert isinstance(screen, HistoryScreen)
    await until(pilot, lambda: screen.query_one("#list Figures", Figures).row_count == lines)
    return screen


async def test_a_filter_is_not_written_over_by_what_was_looked_for_before_it(
    app: LocalspecApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    going_on, past = threading.Event(), history.past
    looked: list[list[str]] = []

    def slow_without_words(words: list[str]) -> list[history.Past]:
        if not words:
            going_on.wait(20)
        looked.append(words)
        return past(words)

    monkeypatch.setattr(history, "past", slow_without_words)
    async with app.run_test() as pilot:
        await pilot.press("f6", "slash", "z")
        screen = pilot.app.screen
        note = screen.query_one("#list Static", Static)
        await until(pilot, lambda: "Nothing has these words." in str(note.render()))
        going_on.set()
        await until(pilot, lambda: [] in looked)
        await pilot.pause(0.1)
        assert screen.query_one("#list Figures", Figures).row_count == 0


def numbers(screen: HistoryScreen) -> list[str]:
    table = screen.query_one("#list Figures", Figures)
    return [str(table.get_row_at(i)[1]) for i in range(table.row_count)]


async def test_past_benchmarks_are_listed_and_filtered(app: LocalspecApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        assert numbers(screen) == ["2", "1"]
        await pilot.press("slash", *"2026-11-20")
        await until(pilot, lambda: numbers(screen) == ["1"])
        await pilot.press(*" nobody")
        await until(pilot, lambda: numbers(screen) == [])
        assert "Nothing has these words" in str(screen.query_one("#list Static", Static).content)
        screen.query_one("#list Input", Input).value = ""
        await until(pilot, lambda: numbers(screen) == ["2", "1"])
        await pilot.press("enter")
        assert screen.query_one("#list Figures").has_focus


async def test_one_is_opened_as_it_was_reported(app: LocalspecApp, tmp_path: Path) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        assert not screen.check_action("export", ())
        await pilot.press("down", "enter")
        await until(pilot, lambda: screen.state == "report")
        view = screen.query_one(ReportView)
        assert "small n=3 is 1.24x" in str(view.query_one("#answer", Static).content)
        assert view.query_one(Figures).row_count == len(CANDIDATES)
        await pilot.press("right")
        assert view.query_one(Figures).scroll_x > 0
        await pilot.press("left", "e")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        app.screen.query_one(Input).value = str(tmp_path / "r.csv")
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is screen)
        assert (tmp_path / "r.csv").read_text().startswith("prompt,workload,drafter")
        await pilot.press("escape")
        assert screen.state == "list"


async def test_advice_waits_for_all_runs_but_for_a_drafter_that_does_not_fit(
    app: LocalspecApp,
) -> None:
    def said(view: ReportView) -> str:
        place = view.query_one("#advice", Static)
        console = Console(width=200)
        with console.capture() as shown:
            console.print(place.content)
        return f"{place.border_title}: {shown.get()}" if place.display else ""

    async with app.run_test(size=(140, 45)) as pilot:
        await opened(pilot)
        await pilot.press("enter")
        view = pilot.app.screen.query_one(ReportView)
        view.show(made())
        assert said(view) == ""
        for result, live, wanted in (
            (made(code=1.4), True, ""),
            (made(code=1.4), False, "Advice: • small n=5: code9 goes"),
            (made(fits=False), True, "Advice so far: • small n=3: 0.0% of"),
        ):
            view.show(result, live=live)
            await pilot.pause()
            assert said(view).startswith(wanted)
            assert bool(said(view)) == bool(wanted)


async def test_no_cell_is_cut_from_the_first_frame_on(app: LocalspecApp) -> None:
    """Left to itself a table measures its cells only after it has painted them."""
    async with app.run_test(size=(140, 45)) as pilot:
        screen = await opened(pilot)
        view = screen.query_one(ReportView)
        table = view.query_one(Figures)
        for live in (True, False):
            view.show(made(), live=live)
            for at, column in enumerate(table.columns.values()):
                cells = [str(table.get_row_at(i)[at]) for i in range(table.row_count)]
                assert column.get_render_width(table) - 2 >= max(map(len, cells))


async def test_two_are_compared_the_earlier_first(app: LocalspecApp) -> None:
    async with app.run_test(size=(140, 45)) as pilot:
        screen = await opened(pilot)
        await pilot.press("space")
        assert not screen.check_action("compare", ())
        await pilot.press("down", "space", "c")
        await until(pilot, lambda: screen.state == "comparison")
        view = screen.query_one(ComparisonView)
        assert str(view.query_one("#which", Static).content) == (
            "Benchmark 1 (2026-11-20 10:00), then 2 (2026-11-21 10:00)"
        )
        assert "REGRESSION ▼" in [str(cell) for cell in view.query_one(Figures).get_row_at(1)]
        answer = view.query_one("#changes-answer", Static)
        assert str(answer.content).endswith("both have: small n=3.")
        assert answer.has_class("-worse")
        await pilot.press("escape", "space")
        await until(pilot, lambda: not screen.check_action("compare", ()))


async def test_one_is_deleted_when_it_is_confirmed(app: LocalspecApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        await pilot.press("delete")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("n")
        await pilot.pause()
        assert numbers(screen) == ["2", "1"]
        await pilot.press("delete")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("y")
        await until(pilot, lambda: numbers(screen) == ["1"])
        assert [p.id for p in history.past()] == [1]


async def test_what_was_kept_meanwhile_is_there_on_coming_back(app: LocalspecApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        await pilot.press("f5")
        history.keep(made(day=22))
        await pilot.press("f6")
        await until(pilot, lambda: numbers(screen) == ["3", "2", "1"])


SIZES = [(80, 24), (140, 45)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("keys", ["", "enter", "space down space c"])
def test_what_history_looks_like(
    app: LocalspecApp, snap_compare: Any, size: tuple[int, int], keys: str
) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        screen = await opened(pilot)
        await pilot.press(*keys.split())
        shown = {"": "list", "enter": "report"}.get(keys, "comparison")
        await until(pilot, lambda: screen.state == shown)
        await pilot.pause(0.1)

    assert snap_compare(app, terminal_size=size, run_before=before)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("state", ["setup", "measuring", "done"])
def test_what_bench_looks_like(
    app: LocalspecApp, snap_compare: Any, size: tuple[int, int], state: str
) -> None:
    """What is to be chosen; a measurement that goes on; and what it taught."""

    async def before(pilot: Pilot[Any]) -> None:
        await pilot.press("f5")
        await pilot.pause()
        screen = pilot.app.screen
        assert isinstance(screen, BenchScreen)
        place = screen.query_one("#estimate", Static)
        await until(pilot, lambda: "runs" in str(place.content))
        if state == "done":
            screen.state = "done"
            screen.query_one(ReportView).show(made(code=1.4))
        if state == "measuring":
            screen.state = "measuring"
            screen.post_message(
                Told("57/136  about 1 min 2 s left  measuring  p5: small n=3", 56, 136)
            )
            screen.query_one(ReportView).show(made(), live=True)
        await pilot.pause(0.1)

    assert snap_compare(app, terminal_size=size, run_before=before)
