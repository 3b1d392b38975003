"""History: found, opened, two compared, deleted; what it looks like."""

from __future__ import annotations

import asyncio
import math
import re
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from made_runs import candidate, generation, prompt, result, row
from patience import FOREVER
from rich.console import Console
from rich.text import Text
from textual._compositor import Compositor, CompositorUpdate
from textual.message import Message
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Input, Static
from tui.talking import steady, until

from localspec.bench import history
from localspec.bench.drawings import plots
from localspec.bench.runner import Running
from localspec.bench.series import Series
from localspec.bench.table import COLUMNS, N_MAX, RUNS, columns
from localspec.records import Counts
from localspec.store import store_file
from localspec.terms import TERMS
from localspec.tui.app import LocalspecApp
from localspec.tui.palette import actions
from localspec.tui.polite import Polite
from localspec.tui.screens import history as history_screen
from localspec.tui.screens.bench import BenchScreen, Told, running
from localspec.tui.screens.dialogs import Ask, Confirm
from localspec.tui.screens.explain import ExplainScreen
from localspec.tui.screens.history import HistoryScreen
from localspec.tui.widgets.comparison_view import ComparisonView
from localspec.tui.widgets.footer import Footer
from localspec.tui.widgets.plots import PERCENT, Canvas, Plot, ReachPlot, SpeedPlot
from localspec.tui.widgets.report_view import Figures, Hidden, ReportView

BLACK, BLUE, WHITE, BRIGHT_WHITE = 0, 4, 7, 15
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
            going_on.wait(FOREVER)
        looked.append(words)
        return past(words)

    monkeypatch.setattr(history, "past", slow_without_words)
    async with app.run_test() as pilot:
        await pilot.press("f6", "slash", "z")
        screen = pilot.app.screen
        note = screen.query_one("#said", Static)
        await until(pilot, lambda: "Nothing has these words." in str(note.render()))
        going_on.set()
        await until(pilot, lambda: [] in looked)
        await pilot.pause(0.1)
        assert screen.query_one("#list Figures", Figures).row_count == 0


async def test_why_the_history_cannot_be_read_stands_there_until_it_can(
    app: LocalspecApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = store_file().read_bytes()
    store_file().write_bytes(b"no database, but long enough to be taken for one" * 100)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f6")
        said = app.screen.query_one("#said", Static)
        await until(pilot, lambda: "cannot be used: file is not a database." in str(said.content))
        assert said.region.height > 1
        store_file().write_bytes(kept)
        await pilot.press("f5")
        await opened(pilot)
        assert "database" not in str(said.content)


def numbers(screen: HistoryScreen) -> list[str]:
    table = screen.query_one("#list Figures", Figures)
    return [str(table.get_row_at(i)[0]).split()[-1] for i in range(table.row_count)]


async def test_past_benchmarks_are_listed_and_filtered(app: LocalspecApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        assert numbers(screen) == ["2", "1"]
        await pilot.press("slash", *"2026-11-20")
        await until(pilot, lambda: numbers(screen) == ["1"])
        await pilot.press(*" nobody")
        await until(pilot, lambda: numbers(screen) == [])
        assert "Nothing has these words" in str(screen.query_one("#said", Static).content)
        words = screen.query_one("#list Input", Input)
        await pilot.press("escape")
        assert (words.value, words.has_focus) == ("", True)
        await until(pilot, lambda: numbers(screen) == ["2", "1"])
        await pilot.press("escape")
        assert screen.query_one("#list Figures").has_focus
        await pilot.press("slash", *"nobody", "enter")
        await until(pilot, lambda: numbers(screen) == [])
        assert screen.query_one("#list Figures").has_focus
        await pilot.press("escape")
        await until(pilot, lambda: numbers(screen) == ["2", "1"])


async def test_keys_in_an_empty_list_do_no_harm(make_app: MakeApp) -> None:
    async with make_app().run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot, 0)
        await pilot.press("up", "space", "enter", "f5", "f6")
        await until(
            pilot, lambda: "No benchmark yet" in str(screen.query_one("#said", Static).content)
        )
        await pilot.app.workers.wait_for_complete(
            [w for w in pilot.app.workers if w.group == "read"]
        )
        assert not {"mark", "remove", "resume"} & {b.action for _, b, _ in actions(screen)}
        history.keep(made())
        await until(pilot, lambda: numbers(screen) == ["1"])
        assert {"mark", "remove"} <= {b.action for _, b, _ in actions(screen)}


async def test_one_is_opened_as_it_was_reported(app: LocalspecApp, tmp_path: Path) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        assert not screen.check_action("export", ())
        await pilot.press("down", "enter")
        await until(pilot, lambda: screen.state == "report")
        view = screen.query_one(ReportView)
        assert "small n=3 is 1.24x" in str(view.query_one("#answer", Static).content)
        assert view.query_one(Figures).row_count == len(CANDIDATES)
        await pilot.press("e")
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
        screen = await opened(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: screen.state == "report")
        view = screen.query_one(ReportView)
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


async def test_a_reports_tables_by_workload_come_after_the_rest_of_it(app: LocalspecApp) -> None:
    """They stand far below, and take as long as all of it."""
    async with app.run_test(size=(140, 45)) as pilot:
        await opened(pilot)
        await pilot.press("enter")
        view = pilot.app.screen.query_one(ReportView)
        await until(pilot, lambda: view.query_one("#parts").display)
        view.show(made())
        assert view.query_one("#heading").display
        assert not view.query_one("#parts").display
        await until(pilot, lambda: view.query_one("#parts").display)
        view.show(made())
        view.show(made(), live=True)  # before they came
        await pilot.pause(0.2)
        assert not view.query_one("#parts").display


async def test_a_reports_plots_are_drawn_in_turns_of_their_own(
    app: LocalspecApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes as long as painting the rest, and another size needs another one."""
    async with app.run_test(size=(140, 45)) as pilot:
        await opened(pilot)
        turns: list[asyncio.Event] = []
        now = asyncio.Event()
        dispatch, draw, paint = Polite._dispatch_message, Canvas._draw, Compositor.render_update
        painting = False

        async def dispatching(pump: Polite, message: Message) -> None:
            nonlocal now
            now = asyncio.Event()
            await dispatch(pump, message)

        def drawing(canvas: Canvas) -> None:
            assert not painting
            turns.append(now)
            draw(canvas)

        def painted(compositor: Compositor, **given: Any) -> Any:
            nonlocal painting
            painting = True
            try:
                return paint(compositor, **given)
            finally:
                painting = False

        monkeypatch.setattr(Polite, "_dispatch_message", dispatching)
        monkeypatch.setattr(Canvas, "_draw", drawing)
        monkeypatch.setattr(Compositor, "render_update", painted)
        await pilot.press("enter")
        canvases = [plot.query_one(Canvas) for plot in pilot.app.screen.query(Plot)]

        def drawn() -> bool:
            return all(
                len(lines) == canvas.size.height and len(lines[0]) == canvas.size.width
                for canvas in canvases
                for lines in [str(canvas.render()).rstrip("\n").split("\n")]
            )

        await until(pilot, lambda: len(turns) >= 2 and drawn())
        await pilot.resize_terminal(120, 45)
        await until(pilot, lambda: len(turns) >= 4 and drawn())
        assert len(set(turns)) == len(turns)


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


def colours_of(screen: Screen[Any], where: str, *, ground: bool = False) -> set[str]:
    """Of the letters of these widgets, or of what is behind them, as they are painted."""
    lines = screen._compositor.render_strips()
    styles = [
        segment.style
        for widget in screen.query(where)
        for line in lines[widget.region.y : widget.region.bottom]
        for segment in line.crop(widget.region.x, widget.region.right)
        if segment.style and (ground or segment.text.strip())
    ]
    return {
        colour.name
        for style in styles
        if (colour := style.bgcolor if ground else style.color) is not None
    }


async def test_an_open_report_has_the_colours_of_the_theme_that_is_chosen(
    app: LocalspecApp,
) -> None:
    """Its verdicts, and the plots with their legends and ground."""
    async with app.run_test(size=(140, 70)) as pilot:
        await opened(pilot)
        await pilot.press("enter")
        screen = pilot.app.screen
        for name in ("localspec-light", "nord", "localspec"):
            theme = app.get_theme(name)
            assert theme is not None
            named = theme.to_color_system().generate()
            verdicts = {named["text-success"].lower(), named["text-warning"].lower()}
            lines = {named["accent"].lower(), named["primary"].lower()}
            app.theme = name

            def drawn(verdicts: set[str] = verdicts, lines: set[str] = lines) -> bool:
                return (
                    verdicts <= colours_of(screen, "ReportView Figures")
                    and lines <= colours_of(screen, "Plot Static")
                    and lines <= colours_of(screen, "Plot Canvas")
                )

            await until(pilot, drawn)
            ground = {named["surface"].lower()}
            await until(pilot, lambda g=ground: colours_of(screen, "Plot Canvas", ground=True) == g)
        app.theme = "ansi-dark"  # the terminal's own: whatever they are, not black on black
        await until(pilot, lambda: colours_of(screen, "Plot Canvas", ground=True) == {"default"})
        await until(pilot, lambda: "default" in colours_of(screen, "Plot Canvas"))


@pytest.mark.parametrize("theme", ["ansi-dark", "ansi-light", "localspec"])
async def test_all_of_the_line_under_the_cursor_has_the_same_colours(
    app: LocalspecApp, theme: str
) -> None:
    """Its first cell, which is fixed, had others, and a mark in it."""
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        before = screen.query_one("#list Figures", Figures).styles.background
        app.theme = theme
        if theme != "localspec":
            await until(
                pilot,
                lambda: screen.query_one("#list Figures", Figures).styles.background != before,
            )
        await pilot.press("space")
        table = screen.query_one("#list Figures", Figures)
        y = table.region.y + table.header_height + table.cursor_row

        def colours() -> set[tuple[Any, Any]]:
            line = screen._compositor.render_strips()[y].crop(table.region.x, table.region.x + 40)
            assert "● 2" in line.text
            return {
                (segment.style.color, segment.style.bgcolor)
                for segment in line
                if segment.style and segment.text.strip()
            }

        await until(pilot, lambda: "● 2" in screen._compositor.render_strips()[y].text)
        await until(pilot, lambda: len(colours()) == 1)
        ((letters, ground),) = colours()
        named = {"ansi-dark": (BLACK, WHITE), "ansi-light": (BRIGHT_WHITE, BLUE)}
        if theme in named:  # of the terminal's own colours no mixture can be read
            assert (letters.number, ground.number) == named[theme]


async def test_a_plots_line_goes_through_its_marks(app: LocalspecApp) -> None:
    """Dots are four to a row, and were rounded otherwise than marks."""
    async with app.run_test(size=(140, 45)) as pilot:
        await opened(pilot)
        await pilot.press("enter")
        plot = pilot.app.screen.query_one(ReachPlot)
        canvas = plot.query_one(Canvas)
        await until(pilot, lambda: canvas.size.height > 3)
        for share in range(5, 100, 3):
            plot.draw([Series("flat", (1, 2, 3, 4), (share, share, 100, 0))])
            canvas._draw()
            assert re.search(r"●([\u2801-\u28ff])\1+●", str(canvas.render())), share


async def test_of_drafters_at_one_length_none_hides_another(app: LocalspecApp) -> None:
    """Of values that differ by less than a row only the last mark was to be seen."""
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await pilot.press("enter")
        for plot, value in ((SpeedPlot, 101.0), (ReachPlot, 71.0)):
            shown = pilot.app.screen.query_one(plot)
            canvas = shown.query_one(Canvas)
            await until(pilot, lambda canvas=canvas: canvas.size.height > 3)
            shown.draw([Series(f"one {i}", (5,), (value + i / 10,)) for i in range(4)])
            canvas._draw()
            lines = str(canvas.render()).split("\n")
            marks = sorted((ln.index(mark), mark) for mark in "●▲■◆" for ln in lines if mark in ln)
            assert [mark for _, mark in marks] == list("●▲■◆"), "as in the legend"
            (tick,) = [line.index("┬") for line in lines if "┬" in line]
            assert marks[1][0] < tick < marks[2][0]


async def test_each_of_several_baselines_has_a_line_of_its_own(app: LocalspecApp) -> None:
    """Of two bases at two temperatures all four were dashed alike."""
    async with app.run_test(size=(140, 45)) as pilot:
        await opened(pilot)
        await pilot.press("enter")
        plot = pilot.app.screen.query_one(SpeedPlot)
        canvas = plot.query_one(Canvas)
        await until(pilot, lambda: canvas.size.height > 3)
        levels = [(f"on base {i}", 10.0 * (i + 1)) for i in range(4)]
        plot.draw([Series("one", (3, 8), (11.0, 38.0))], levels)
        canvas._draw()
        found = re.findall(r"(\S)\1 (on base \d)", str(plot.query_one(Static).content))
        assert [who for _, who in found] == [who for who, _ in levels]
        for wide in (140, 110, 80):
            await pilot.resize_terminal(wide, 45)
            await until(pilot, lambda wide=wide: pilot.app.screen.size.width == wide)
            await steady(pilot)
            folded = [str(line) for line in plot.query_one(Static)._render().split()]
            assert all(len(line) <= plot.content_size.width for line in folded)
            assert not [line for line in folded if re.search(r"\S\s*[╌━·═●]+$", line)]
            assert not [line for line in folded if re.match(r"\s*(on|base|\d|one)", line)]
        canvas._draw()
        lines = str(canvas.render()).split("\n")
        at = [[y for y, line in enumerate(lines) if line.count(mark) > 20] for mark, _ in found]
        assert all(len(rows) == 1 for rows in at)
        assert [y for (y,) in at] == sorted({y for (y,) in at}, reverse=True)


TICK = re.compile(r"^ *([\d.]+)┤")


def ticks_of(lines: list[str]) -> dict[int, float]:
    """Of a plot as it is drawn: which value stands at which of its lines."""
    return {y: float(found[1]) for y, line in enumerate(lines) if (found := TICK.match(line))}


@pytest.mark.parametrize("size", [(80, 24), (140, 45)])
async def test_a_plots_values_can_be_read_from_its_axis(
    app: LocalspecApp, size: tuple[int, int]
) -> None:
    """Within half a line; between the numbers at it, which are round, are equal steps."""
    async with app.run_test(size=size) as pilot:
        await opened(pilot)
        await pilot.press("enter")
        view = pilot.app.screen.query_one(ReportView)
        reach, speed = view.query_one(ReachPlot), view.query_one(SpeedPlot)
        await until(pilot, lambda: min(p.query_one(Canvas).size.height for p in (reach, speed)) > 3)

        def drawn(plot: Plot) -> list[str]:
            canvas = plot.query_one(Canvas)
            canvas._draw()
            return str(canvas.render()).split("\n")

        for baseline, ys in (
            (539.7, (1251.9, 1302.0, 867.3)),
            (98.4, (98.4, 98.4, 98.4)),
            (27.2, (63.4, 8.13, 41.0)),
            (0.31, (0.92, 1.04, 0.55)),
        ):
            speed.draw([Series("one", (3, 5, 8), ys)], [("baseline", baseline)])
            lines = drawn(speed)
            ticks = ticks_of(lines)
            (apart, *rows), (step, *steps) = (
                {b - a for a, b in pairwise(ticks)},
                {round(a - b, 9) for a, b in pairwise(ticks.values())},
            )
            assert (rows, steps) == ([], []), ticks
            assert float(f"{step:.2g}") == step
            y0, first = next(iter(ticks.items()))
            at = {mark: [i for i, line in enumerate(lines) if mark in line] for mark in "●╌"}
            for value, y in ((max(ys), at["●"][0]), (min(ys), at["●"][-1]), (baseline, at["╌"][0])):
                if value == baseline and at["╌"] == at["●"]:
                    continue
                assert abs(first - (y - y0) * step / apart - value) <= step / apart / 2 + 1e-9
        reach.draw([Series("one", (1, 2, 3), (97.0, 61.0, 4.0))], bounds=PERCENT)
        assert [*ticks_of(drawn(reach)).values()][:: len(ticks_of(drawn(reach))) - 1] == [100, 0]


async def test_a_plot_says_where_it_puts_unlike_sets_of_runs_side_by_side(
    app: LocalspecApp,
) -> None:
    whole = made()
    part = made()
    part["candidates"][0] |= {"runs": 1}
    async with app.run_test(size=(140, 45)) as pilot:
        await opened(pilot)
        await pilot.press("enter")
        view = pilot.app.screen.query_one(ReportView)
        for shown, said in ((whole, False), (part, True), (whole, False)):
            view.show(shown)
            assert ("runs differ" in str(view.query_one(SpeedPlot).border_title)) == said
            assert ("runs" in titles(view.query_one(Figures))) == said
            speeds = next(p for p in plots(shown) if "by draft length" in p.title)
            assert ("runs differ" in speeds.title) == said


def titles(table: Figures) -> list[str]:
    return [str(column.label).replace("\n", " ") for column in table.columns.values()]


async def test_columns_are_shown_whole_and_the_arrows_go_on_to_the_next(app: LocalspecApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await pilot.press("enter")
        view = pilot.app.screen.query_one(ReportView)
        table, hidden = view.query_one(Figures), view.query_one(Hidden)
        await until(pilot, lambda: "column" in str(hidden.content))
        everything = [c.title.replace("\n", " ") for c in columns(made())]
        seen = titles(table)
        assert seen == everything[: len(seen)] != everything
        assert str(hidden.content) == f"→ {len(everything) - len(seen)} more columns"
        for _ in everything:
            assert table.virtual_size.width <= table.size.width
            await pilot.press("right")
            await pilot.pause()
            assert titles(table)[:2] == everything[:2]
            seen += [title for title in titles(table) if title not in seen]
        assert seen == everything
        assert str(hidden.content).startswith("← ")
        assert "→" not in str(hidden.content)
        shown, said = titles(table), str(hidden.content)
        await pilot.resize_terminal(160, 45)
        await until(pilot, lambda: titles(table) == everything)
        assert not hidden.display
        for width in (81, 82, 83, 80):
            await pilot.resize_terminal(width, 24)
            await pilot.pause()
        await until(pilot, lambda: str(hidden.content) == said)
        assert titles(table) == shown
        await pilot.press("left")
        await until(pilot, lambda: "→ 1 more column" in str(hidden.content))


@pytest.mark.parametrize("name", ["demo", "Meta-Llama-3.1-8B-Instruct-abliterated"])
async def test_a_narrow_terminal_has_what_matters_and_the_rest_in_a_line(
    app: LocalspecApp, name: str
) -> None:
    found = made(day=22)
    found["target"]["name"] = name
    found["candidates"][1]["verdict"] = "no difference shown"
    history.keep(found)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot, 3)
        table = screen.query_one("#list Figures", Figures)
        assert titles(table) == ["no", "target", "best drafter", "speedup [95 %]", "verdict"]
        assert table.virtual_size.width <= table.size.width
        shown = [str(cell) for cell in table.get_row_at(0)]
        assert shown[1] == f"{name} Q4_1" or (shown[1].endswith("Q4_1") and "…" in shown[1])
        assert shown[2:] == ["small n=3", "1.24x [1.23, 1.25]", "no difference shown"]
        hidden = screen.query_one("#list Hidden", Hidden)
        assert str(hidden.content) == "→ 3 more columns"
        await pilot.press("right", "right", "right", "right")
        await until(pilot, lambda: "baseline tok/s" in titles(table))
        assert table.get_row_at(0)[titles(table).index("when")] == Text("2026-11-22 10:00")
        note = screen.query_one("#said", Static)
        await until(pilot, lambda: str(note.content).startswith("2026-11-22 10:00"))
        assert f" {name} Q4_1 · small n=3 · baseline 98." in str(note.content)
        assert str(note.content).endswith("tok/s · 17 prompts of chat8, code9")
        await pilot.press("down")
        await until(pilot, lambda: str(note.content).startswith("2026-11-21 10:00"))
        await pilot.resize_terminal(180, 45)
        await until(pilot, lambda: len(titles(table)) == 8 and not str(note.content))
        assert not hidden.display


async def test_on_a_narrow_terminal_those_of_one_day_differ_by_their_hour(
    app: LocalspecApp,
) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        table = (await opened(pilot)).query_one("#list Figures", Figures)
        when = titles(table).index("when")
        assert [str(table.get_row_at(i)[when]) for i in range(2)] == ["11-21 10:00", "11-20 10:00"]


async def test_the_footer_offers_what_the_keys_do_where_they_are(app: LocalspecApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        footer = screen.query_one(Footer)

        def offered() -> str:
            return str(footer.render())

        await until(pilot, lambda: "/ Filter" in offered())
        assert "Back" not in offered(), "there is nothing to go back to"
        await pilot.press("slash", "slash")
        await until(pilot, lambda: "Filter" not in offered() and "esc Back" in offered())
        assert screen.query_one("#list Input", Input).value == "/"
        for key in ("Mark", "Compare", "Export"):
            assert key not in offered()
        await pilot.press("escape", "escape")
        await until(pilot, lambda: "/ Filter" in offered())


async def test_how_one_is_opened_is_told_in_the_footer_in_the_help_and_in_the_palette(
    app: LocalspecApp,
) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        await until(pilot, lambda: "Open" in str(screen.query_one(Footer).render()))
        assert ("⏎", "Open") in [(keys, b.description) for keys, b, _ in actions(screen)]
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(app.screen, ExplainScreen))
        assert "Open this benchmark" in str(app.screen.query_one(Static).content)
        await pilot.press("escape", "ctrl+p", *"open this", "enter")
        await until(pilot, lambda: screen.state == "report")
        assert "Open" not in [b.description for _, b, _ in actions(screen)]
        await pilot.press("escape", "slash", *"nobody", "enter")
        await until(pilot, lambda: numbers(screen) == [])
        assert "Open" not in [b.description for _, b, _ in actions(screen)]


@pytest.mark.parametrize("kind", [HistoryScreen, BenchScreen])
def test_every_column_is_explained_by_the_name_that_stands_over_it(
    kind: type[HistoryScreen | BenchScreen],
) -> None:
    names = [TERMS[key].name for key in kind.EXPLAINS]
    heads = {c.title.replace("\n/", "/").replace("\n", " ") for c in (*COLUMNS, N_MAX, RUNS)}
    assert "draft/verify/overhead %" in heads
    for head in heads:
        assert any(re.search(rf"\b{re.escape(n.split(' (')[0])}", head) for n in names), head
    assert "the same benchmark" in TERMS["baseline of a bench"].means
    assert not {"tok/s", "baseline", "speedup"} & set(kind.EXPLAINS), "which are Chat's"


async def test_what_is_explained_of_a_comparison_is_what_it_shows(app: LocalspecApp) -> None:
    """Its tok/s are means over the prompts; those of one result are all tokens / all time."""
    async with app.run_test(size=(140, 45)) as pilot:
        screen = await opened(pilot)
        for there in ("list", "comparison"):
            if there == "comparison":
                await pilot.press("space", "down", "space", "c")
                await until(pilot, lambda: screen.state == "comparison")
                heads = set(titles(screen.query_one(ComparisonView).query_one(Figures)))
                names = {TERMS[key].name for key in screen.explained}
                assert {"tok/s", "speedup"} <= heads
                assert {head.split(" [")[0] for head in heads} - {"", "drafter"} <= names
            await pilot.press("f1")
            await until(pilot, lambda: isinstance(app.screen, ExplainScreen))
            said = str(app.screen.query_one(Static).content)
            assert ("took from their first token to their last" in said) == (there == "list")
            assert ("mean of the decode tok/s on the prompts that both have" in said) == (
                there == "comparison"
            )
            assert "Back to the list" in said or there == "list"
            await pilot.press("escape")


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
        assert str(answer.content).startswith(
            "REGRESSION, by 17 prompts that both have: small n=3 "
        )
        assert answer.has_class("-worse")
        assert answer.region.y < view.query_one(Figures).region.y, "before a table of any length"
        await pilot.press("escape", "space")
        await until(pilot, lambda: not screen.check_action("compare", ()))


async def test_what_changes_between_a_layout_and_its_painting_is_painted_too(
    app: LocalspecApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    painted: list[str] = []
    display = app._display

    def paint(screen: Screen[Any], shown: Any) -> None:
        if isinstance(shown, CompositorUpdate):
            painted.append(shown.render_segments(app.console))
        display(screen, shown)

    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        await pilot.press("space", "down", "space", "c")
        await until(pilot, lambda: screen.state == "comparison")
        await until(pilot, lambda: screen.query_one("ComparisonView Hidden").display)
        await steady(pilot)
        monkeypatch.setattr(app, "_display", paint)
        for said in ("← 1 column   → 2 more", "← 2 columns   → 1 more", "← 3 columns"):
            await pilot.press("right")
            await until(pilot, lambda said=said: any(said in text for text in painted))


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


async def test_what_another_process_keeps_comes_while_the_list_is_open(
    app: LocalspecApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cursor and the marks stay with their benchmarks."""
    monkeypatch.setattr(history_screen, "LOOK_SECONDS", 0.05)
    add = (
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute('INSERT INTO benches "
        "(created, target, summary, result) SELECT created + 86400, target, summary, result FROM "
        "benches WHERE id = 2'); db.commit()"
    )
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        await pilot.press("space", "down")
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", add, str(store_file()))
        assert await process.wait() == 0
        await until(pilot, lambda: numbers(screen) == ["3", "2", "1"])
        table = screen.query_one("#list Figures", Figures)
        await until(pilot, lambda: table.cursor_row == 2)
        assert [str(table.get_row_at(i)[0]) for i in range(3)] == ["  3", "● 2", "  1"]
        await pilot.press("space")
        assert screen.check_action("compare", ())


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
        await steady(pilot)

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
            slot = row(CANDIDATES[1], PROMPTS[5], None).slot
            event = Running(slot, 56, 136, 20, 127.9, 62.0)
            screen.post_message(Told(running(event, ""), 56, 136))
            screen.query_one(ReportView).show(made(), live=True)
        await steady(pilot)

    assert snap_compare(app, terminal_size=size, run_before=before)
