"""Bench: chosen, measured on the real engine, stopped and gone on with, kept and written."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Checkbox, Input, SelectionList, Static

from localspec.bench import history
from localspec.catalog import resolve_target
from localspec.errors import UsageError
from localspec.tui.app import LocalspecApp
from localspec.tui.engine import SWITCHING
from localspec.tui.screens import history as history_screen
from localspec.tui.screens.bench import BenchScreen
from localspec.tui.screens.dialogs import Ask, Confirm
from localspec.tui.settings import SettingsStore
from localspec.tui.widgets.bench_setup import BenchSetup, lengths_of
from localspec.tui.widgets.plots import ReachPlot, SpeedPlot
from localspec.tui.widgets.report_view import Figures, ReportView

MakeApp = Callable[..., LocalspecApp]
PROMPTS = "Why is the sky blue?\nName three rivers of Europe.\nCount from one to ten, please.\n"


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    file = tmp_path / "mine.txt"
    file.write_text(PROMPTS)
    return file


@pytest.fixture
def app(make_app: MakeApp, settings: SettingsStore, tiny_bytes: Path) -> LocalspecApp:
    settings.values.model = str(tiny_bytes)
    return make_app()


async def until(pilot: Pilot[Any], what: Callable[[], object], seconds: float = 60) -> None:
    for _ in range(int(seconds / 0.05)):
        if what():
            return
        await pilot.pause(0.05)
    raise AssertionError("it did not happen")


async def choose(pilot: Pilot[Any], workload: Path) -> BenchScreen:
    """Bench, with the prompts of ``workload`` alone and drafts of 3."""
    await pilot.press("f5")
    await pilot.pause()
    screen = pilot.app.screen
    assert isinstance(screen, BenchScreen)
    await until(pilot, lambda: screen.query_one("#drafters", SelectionList).option_count)
    screen.query_one("#workloads", SelectionList).deselect_all()
    screen.query_one("#file", Input).value = str(workload)
    screen.query_one("#lengths", Input).value = "3"
    return screen


def text(screen: BenchScreen, where: str) -> str:
    return str(screen.query_one(where, Static).content)


async def test_a_bench_from_choice_to_history(
    app: LocalspecApp, workload: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The history is open when its result comes, and does not look by itself."""
    looked_at, keep = threading.Event(), history.keep

    def keep_later(result: dict[str, Any]) -> int:
        looked_at.wait(20)
        return keep(result)

    monkeypatch.setattr(history, "keep", keep_later)
    monkeypatch.setattr(history_screen, "LOOK_SECONDS", 1e6)
    async with app.run_test(size=(140, 45)) as pilot:
        screen = await choose(pilot, workload)
        await until(pilot, lambda: "3 prompts x 2 candidates = 6 runs" in text(screen, "#estimate"))
        assert "said after the warm-up" in text(screen, "#estimate")
        await pilot.click("#start")
        await until(pilot, lambda: screen.state == "measuring")
        await pilot.press("f6")
        await pilot.pause()
        past = app.screen
        note = past.query_one("#said", Static)
        await until(pilot, lambda: "No benchmark yet" in str(note.content))
        looked_at.set()
        await until(pilot, lambda: past.query_one("#list Figures", Figures).row_count == 1)
        assert str(note.content) == ""
        await pilot.press("f5")
        await until(pilot, lambda: screen.state == "done")
        (line,) = history.past()
        assert (line.workloads, line.drafters, line.status) == (("mine",), ("ngram",), "complete")
        assert "kept as number 1" in text(screen, "#progress Static")
        table = screen.query_one(ReportView).query_one(Figures)
        result = history.read("1")
        drawn = [str(cell) for cell in table.get_row_at(1)]
        assert drawn[:3] == ["ngram", "3", f"{result['candidates'][1]['decode_tps']:.1f}"]
        assert "baseline" in text(screen, "#answer")
        assert screen.query_one(SpeedPlot).display
        assert screen.query_one(ReachPlot).display == bool(result["candidates"][1]["reach_rate"])
        assert app.engine.status.state == "ready"  # it is everybody's engine
        await pilot.press("o")
        assert screen.state == "setup"
        screen.query_one("#quick", Checkbox).value = True
        await until(pilot, lambda: "about 1 min" in text(screen, "#estimate"))
        screen.query_one("#quick", Checkbox).value = False
        await until(pilot, lambda: "by the speeds of" in text(screen, "#estimate"))
        await pilot.press("t")
        assert screen.state == "done"


async def test_a_stopped_bench_keeps_its_runs_and_goes_on(
    app: LocalspecApp, workload: Path
) -> None:
    workload.write_text("\n".join(f"Tell me about the number {i}." for i in range(60)))
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await choose(pilot, workload)
        app.engine.start(SWITCHING, lambda _job: time.sleep(0.2))  # Chat's: it is waited for
        await pilot.press("s")
        table = screen.query_one(ReportView).query_one(Figures)
        await until(pilot, lambda: table.row_count)  # it grows while it is measured
        assert "verdict" not in [str(c.label) for c in table.columns.values()]
        await pilot.press("escape")
        await until(pilot, lambda: screen.state == "done")
        (stopped,) = history.past()
        assert stopped.status == "interrupted"
        made = len(history.read("1")["rows"])
        assert 0 < made < 120
        assert "Stopped" in text(screen, "#answer")
        await pilot.press("r")
        await until(pilot, lambda: screen.state == "measuring")
        await until(pilot, lambda: screen.state == "done")
        whole = history.read("last")
        assert whole["status"] == "complete"
        assert whole["resumed"][0]["runs"] == made
        assert not screen.check_action("resume", ())


async def test_what_cannot_be_measured_is_said_before_it_starts(
    app: LocalspecApp, workload: Path
) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await choose(pilot, workload)
        for where, value, said in (
            ("#lengths", "3, many", "'many' is no draft length"),
            ("#file", "nowhere.txt", "nowhere.txt does not exist"),
            ("#file", "", "No workload is chosen"),
        ):
            field = screen.query_one(where, Input)
            before, field.value = field.value, value
            await until(pilot, lambda said=said: said in text(screen, "#estimate"))
            assert screen.query_one("#estimate").has_class("-problem")
            if value != "nowhere.txt":
                await pilot.press("s")
                await pilot.pause()
                assert screen.state == "setup"
            field.value = before
            await until(pilot, lambda: "runs" in text(screen, "#estimate"))
        screen.query_one("#file", Input).value = "nowhere.txt"
        await pilot.press("s")
        await until(pilot, lambda: not app.engine.busy and screen.state == "setup")
        assert history.past() == []


async def test_space_ticks_at_once_also_where_the_drafters_are_listed_anew(
    app: LocalspecApp, workload: Path, tiny_bytes: Path
) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await choose(pilot, workload)
        drafters = screen.query_one("#drafters", SelectionList)
        for keys in ((), ("f4", "f5")):
            await pilot.press(*keys)
            await until(pilot, lambda: pilot.app.focused is drafters)
            before = list(drafters.selected)
            await pilot.press("space")
            assert drafters.selected != before
            screen.query_one(BenchSetup).offer(resolve_target(str(tiny_bytes)))


async def test_escape_leaves_a_field_and_letters_are_keys_again(
    app: LocalspecApp, workload: Path
) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await choose(pilot, workload)
        field = screen.query_one("#lengths", Input)
        field.focus()
        await pilot.press("escape", "s")
        await until(pilot, lambda: screen.state == "measuring")
        assert "s" not in field.value
        await pilot.press("escape")
        await until(pilot, lambda: screen.state != "measuring")


async def test_without_a_model_one_is_asked_for(
    make_app: MakeApp, settings: SettingsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.values.model = None
    monkeypatch.setattr(LocalspecApp, "action_first_model", lambda _: None)
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f5")
        await pilot.pause()
        assert "Choose a model first: F2." in text(app.screen, "#estimate")  # type: ignore[arg-type]
        await pilot.press("s")
        assert app.screen.state == "setup"  # type: ignore[attr-defined]


async def test_a_result_is_exported_by_the_ending_of_the_name(
    app: LocalspecApp, workload: Path, tmp_path: Path
) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await choose(pilot, workload)
        await pilot.press("s")
        await until(pilot, lambda: screen.state == "done")

        async def give(name: str) -> None:
            await until(pilot, lambda: isinstance(app.screen, Ask))
            app.screen.query_one(Input).value = str(tmp_path / name)
            await pilot.press("enter")
            await pilot.pause()

        await pilot.press("e")
        await give("r.txt")  # asked again
        await give("r.json")
        await until(pilot, lambda: app.screen is screen)
        assert json.loads((tmp_path / "r.json").read_text())["status"] == "complete"
        await pilot.press("e")
        await give("r.json")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("n")
        await give("nowhere/r.md")
        await give("r.md")
        await until(pilot, lambda: app.screen is screen)
        assert "| baseline |" in (tmp_path / "r.md").read_text()
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        await pilot.press("escape")
        await pilot.pause()
        assert app.screen is screen


async def test_drafters_that_are_not_here_cannot_be_chosen(make_app: MakeApp) -> None:
    from localspec.catalog import NGRAM, DrafterSpec, Target

    app = make_app()
    target = Target("t", Path("t.gguf"), "T", (NGRAM, DrafterSpec("far", "eagle3", absent="t")))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f5")
        await until(pilot, lambda: app.screen.query_one("#drafters", SelectionList).option_count)
        app.screen.query_one(BenchSetup).offer(target)
        choices = app.screen.query_one("#drafters", SelectionList)
        assert choices.get_option_at_index(1).disabled
        assert choices.selected == ["ngram"]


async def test_another_target_begins_with_all_its_drafters(make_app: MakeApp) -> None:
    from localspec.catalog import NGRAM, DrafterSpec, Target

    app = make_app()
    small, mtp = DrafterSpec("small", "draft-model"), DrafterSpec("mtp", "mtp")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f5")
        await until(pilot, lambda: app.screen.query_one("#drafters", SelectionList).option_count)
        setup = app.screen.query_one(BenchSetup)
        choices = app.screen.query_one("#drafters", SelectionList)
        setup.offer(Target("one", Path("one.gguf"), "One", (NGRAM, mtp)))
        choices.deselect("ngram")
        setup.offer(Target("two", Path("two.gguf"), "Two", (NGRAM, small)))
        assert choices.selected == ["ngram", "small"]
        choices.deselect("ngram")
        far = DrafterSpec("far", "eagle3", absent="far")
        setup.offer(Target("two", Path("two.gguf"), "Two", (NGRAM, small, far)))
        assert choices.selected == ["small"], "of the same target it stays as it was"
        here = DrafterSpec("far", "eagle3")
        setup.offer(Target("two", Path("two.gguf"), "Two", (NGRAM, small, here)))
        assert choices.selected == ["small", "far"], "what has come since is ticked"


def test_lengths_are_read_as_the_command_line_reads_them() -> None:
    assert lengths_of(" 3,5 8 auto,3") == (3, 5, 8, "auto")
    assert lengths_of("") == ()
    for wrong in ("0", "513", "-1", "x"):
        with pytest.raises(UsageError):
            lengths_of(wrong)


async def test_what_is_chosen_can_be_told_without_colours(app: LocalspecApp) -> None:
    async with app.run_test(size=(140, 45)) as pilot:
        await pilot.press("f5")
        await pilot.pause()
        screen = pilot.app.screen
        workloads = screen.query_one("#workloads", SelectionList)
        await until(pilot, lambda: workloads.option_count)
        names = [workloads.get_option_at_index(i).value for i in range(workloads.option_count)]
        workloads.deselect_all()
        workloads.select(names[1])
        boxes = [workloads.render_line(i).text.split()[0] for i in range(2)]
        assert boxes == ["▐", "▐X▌"]
        quick = screen.query_one("#quick", Checkbox)
        quick.focus()
        for box in ("▐ ▌", "▐X▌", "▐ ▌"):
            await pilot.pause()
            assert f"{box} quick" in "".join(s.text for s in quick.render_line(0))
            await pilot.press("space")
