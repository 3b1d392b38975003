"""Bench: chosen, measured on the real engine, stopped and gone on with, kept and written."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_runs import candidate, prompt, row
from patience import FOREVER
from textual.geometry import Region
from textual.pilot import Pilot
from textual.widgets import Checkbox, Input, OptionList, SelectionList, Static
from textual.widgets._toast import Toast
from tui.talking import seen, until

from localspec.bench import command, foresight, history
from localspec.bench.progress import Quiet
from localspec.bench.runner import Event, Ran, Running, WarmingUp
from localspec.catalog import resolve_target
from localspec.engine.client import Engine
from localspec.errors import StoreError, UsageError
from localspec.hub import speed_bench
from localspec.tui.app import LocalspecApp
from localspec.tui.engine import SWITCHING
from localspec.tui.screens import bench as bench_screen
from localspec.tui.screens import history as history_screen
from localspec.tui.screens.bench import BenchScreen, Told, running
from localspec.tui.screens.dialogs import Ask, Confirm
from localspec.tui.settings import SettingsStore
from localspec.tui.widgets.bench_setup import BenchSetup, Targets, lengths_of
from localspec.tui.widgets.footer import Footer
from localspec.tui.widgets.plots import ReachPlot, SpeedPlot
from localspec.tui.widgets.report_view import Figures, ReportView

MakeApp = Callable[..., LocalspecApp]
NOTHING = "No run came to its end: nothing was measured."
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


async def choose(pilot: Pilot[Any], workload: Path) -> BenchScreen:
    """Bench, with the prompts of ``workload`` alone and drafts of 3."""
    await pilot.press("f5")
    await pilot.pause()
    screen = pilot.app.screen
    assert isinstance(screen, BenchScreen)
    for choices in ("#drafters", "#workloads"):
        found = screen.query_one(choices, SelectionList)
        await until(pilot, lambda found=found: found.option_count)
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
        looked_at.wait(FOREVER)
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
    app: LocalspecApp,
    make_app: MakeApp,
    settings: SettingsStore,
    tiny_bytes: Path,
    workload: Path,
) -> None:
    """There and then; and from the history of an app that was started anew, with the target that
    it was begun with."""
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
        await until(pilot, lambda: table.display)
        await pilot.press("escape")
        await until(pilot, lambda: screen.state == "done")
        again = history.read("1")
        assert again["resumed"][0]["runs"] == made
        assert len(history.past()) == 1, "it takes the place of its first part"
        assert made < len(again["rows"]) < 120

    settings.values.model = "demo"
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f6")
        past = app.screen
        await until(pilot, lambda: past.query_one("#list Figures", Figures).row_count == 1)
        await until(pilot, lambda: "r Go on" in str(past.query_one(Footer).render()))
        await pilot.press("r")
        await until(pilot, lambda: isinstance(app.screen, BenchScreen))
        screen = app.screen
        assert isinstance(screen, BenchScreen)
        await until(pilot, lambda: screen.state == "done")
        whole = history.read("1")
        assert whole["status"] == "complete"
        assert whole["target"]["file"] == str(tiny_bytes)
        assert [sitting["runs"] for sitting in whole["resumed"]] == [
            made,
            len(again["rows"]) - made,
        ]
        assert not screen.check_action("resume", ())

        again["resume"]["facts"]["localspec"] = "0.0.0"
        history.keep(again | {"created": "2031-01-01T10:00:00+00:00"})
        await pilot.press("f6")
        await until(pilot, lambda: past.query_one("#list Figures", Figures).row_count == 2)
        await pilot.press("up", "r")
        await until(pilot, lambda: app._notifications)
        (refusal,) = app._notifications
        assert refusal.title.startswith(
            "Runs made now would not compare with those that are kept: localspec 0.0.0 then, "
        )
        assert app.screen is screen
        await until(pilot, lambda: screen.state == "done")
        assert len(history.past()) == 2


async def test_who_leaves_in_the_midst_finds_the_runs_in_the_history(
    make_app: MakeApp, settings: SettingsStore, tiny_bytes: Path, workload: Path
) -> None:
    """As of a bench that was stopped; and no engine is started for what is over."""
    engines: list[Engine] = []

    def launch(log_file: Path | None) -> Engine:
        engines.append(Engine(log_file=log_file))
        return engines[-1]

    settings.values.model = str(tiny_bytes)
    workload.write_text("\n".join(f"Tell me about the number {i}." for i in range(200)))
    app = make_app(launch=launch)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await choose(pilot, workload)
        await pilot.press("s")
        table = screen.query_one(ReportView).query_one(Figures)
        await until(pilot, lambda: table.row_count)
        await pilot.press("ctrl+q")
    await asyncio.to_thread(app.engine._pool.shutdown)  # as the interpreter does in the end
    (left,) = history.past()
    assert left.status == "interrupted"
    result = history.read("1")
    assert 0 < len(result["rows"]) < 400
    assert result["resume"]
    assert not any("crashed" in r["flags"] for r in result["rows"])
    assert {c["status"] for c in result["candidates"]} == {"interrupted"}
    assert [e.alive for e in engines] == [False]


async def test_a_stop_before_anything_is_measured_leaves_the_result_before_with_its_own_line(
    app: LocalspecApp, workload: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = command.measure

    def disturbed(selection: Any, show: Any, *given: Any) -> Any:
        show.say("The machine is busy.")
        return measure(selection, show, *given)

    def warms_up_for_ever(_selection: Any, show: Any, *_given: Any) -> None:
        show.say("Something else.")
        while True:
            show(WarmingUp("ngram n=3", 1, 2, 54))
            time.sleep(0.02)

    monkeypatch.setattr(command, "measure", disturbed)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await choose(pilot, workload)
        await pilot.press("s")
        await until(pilot, lambda: screen.state == "done")
        remarks = text(screen, "#remarks")
        assert remarks.startswith("The machine is busy.")  # it may really be
        monkeypatch.setattr(command, "measure", warms_up_for_ever)
        for keys in ("s", "o s"):
            await pilot.press(*keys.split())
            await until(pilot, lambda: "warm-up 1/2" in text(screen, "#progress Static"))
            assert text(screen, "#remarks") == "Something else."
            await pilot.press("escape")
            await until(pilot, lambda: screen.state != "measuring")
            if keys == "o s":
                assert screen.state == "setup"
                await pilot.press("t")
            assert screen.state == "done"
            assert text(screen, "#progress Static") == "Finished; kept as number 1 of the history."
            assert text(screen, "#remarks") == remarks
            assert [n.message for n in app._notifications] == [NOTHING]
            assert screen.query_one(ReportView).query_one(Figures).row_count == 2


async def test_a_bench_gone_on_with_and_stopped_in_its_warm_up_stays_as_it_was_kept(
    app: LocalspecApp, workload: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure, until_then = command.measure, Ran

    class Stopping(Quiet):
        def __call__(self, event: Event) -> None:
            if isinstance(event, until_then):
                raise KeyboardInterrupt

    def stopped(selection: Any, _show: Any, *given: Any) -> Any:
        return measure(selection, Stopping(), *given)

    monkeypatch.setattr(command, "measure", stopped)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await choose(pilot, workload)
        await pilot.press("s")
        await until(pilot, lambda: screen.state == "done")
        kept, until_then = history.read("1"), WarmingUp
        await pilot.press("r")
        await until(pilot, lambda: [n.message for n in app._notifications] == [NOTHING])
        assert screen.state == "done"
        assert [p.id for p in history.past()] == [1]
        assert history.read("1") == kept
        await until(pilot, lambda: "r Go on" in str(screen.query_one(Footer).render()))


@pytest.mark.parametrize("size", [(80, 24), (140, 45)])
async def test_the_latest_remark_is_whole_in_sight_and_those_before_it_a_few_keys_away(
    app: LocalspecApp, workload: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    def full(_result: Any) -> int:
        raise StoreError(f"It is not kept{', nor is that' * 12}.", "Make room.")

    measure = command.measure

    def disturbed(selection: Any, show: Any, *given: Any) -> Any:
        for i in range(20):
            show.say(f"warning {i}: the machine is busy.")
        return measure(selection, show, *given)

    monkeypatch.setattr(command, "measure", disturbed)
    monkeypatch.setattr(history, "keep", full)
    async with app.run_test(size=size) as pilot:
        screen = await choose(pilot, workload)
        await pilot.press("s")
        await until(pilot, lambda: screen.state == "done")
        await until(pilot, lambda: "It is not kept" in seen(app) and "Make room." in seen(app))
        assert "warning 0:" not in seen(app)
        await pilot.press("shift+tab", "home")
        await until(pilot, lambda: "warning 0:" in seen(app))
        assert screen.query_one(Figures).region.y < size[1] / 2


async def test_no_estimate_is_said_of_what_is_refused(
    app: LocalspecApp, workload: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was begun for what was written before, and takes its time."""
    going_on, foresee = threading.Event(), foresight.foresee
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await choose(pilot, workload)
        await until(pilot, lambda: "6 runs" in text(screen, "#estimate"))

        def slowly(selection: Any) -> foresight.Foreseen:
            going_on.wait(FOREVER)
            return foresee(selection)

        monkeypatch.setattr(foresight, "foresee", slowly)
        screen.query_one("#lengths", Input).focus()
        await pilot.press("home", "9", "9")
        await until(pilot, lambda: "'993' is no draft length" in text(screen, "#estimate"))
        going_on.set()
        await pilot.pause(0.3)
        assert "'993' is no draft length" in text(screen, "#estimate")
        await pilot.press("delete")
        await until(pilot, lambda: "6 runs" in text(screen, "#estimate"))
        await pilot.press("backspace", "backspace", "0")
        await until(pilot, lambda: "'0' is no draft length" in text(screen, "#estimate"))


async def test_of_what_the_hub_is_asked_for_it_is_said_at_once_and_asked_once(
    app: LocalspecApp, workload: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes its time, and what was said of the letters before stood there meanwhile."""
    going_on = threading.Event()
    asked: list[str] = []

    def questions() -> list[speed_bench.Question]:
        asked.append("")
        going_on.wait(FOREVER)
        turns = ["What is two and two?"]
        return [
            speed_bench.Question(question_id=f"{c}{i}", category=c, turns=turns)
            for c in ("math", "mad")
            for i in range(9)
        ]

    monkeypatch.setattr(speed_bench, "questions", questions)
    monkeypatch.setattr(bench_screen, "TYPED_SECONDS", FOREVER)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await choose(pilot, workload)
        screen.query_one("#workloads", SelectionList).select("chat8")
        screen.query_one("#file", Input).value = ""
        screen.query_one("#file", Input).focus()
        await pilot.press(*"speed-ben")
        await until(pilot, lambda: "no workload 'speed-ben'" in text(screen, "#estimate"))
        await pilot.press("c", "h")
        await until(pilot, lambda: "looking at speed-bench ..." in text(screen, "#estimate"))
        assert asked == []
        await pilot.pause(0.5)
        assert text(screen, "#estimate") == "looking at speed-bench ...", "the others are quick"
        await pilot.press(*":mat")
        assert asked == [], "not at every key"
        monkeypatch.setattr(bench_screen, "TYPED_SECONDS", 0.0)
        await pilot.press("h")
        await until(pilot, lambda: asked)
        assert text(screen, "#estimate") == "looking at speed-bench:math ..."
        assert not screen.query_one("#estimate").has_class("-problem")
        going_on.set()
        await until(pilot, lambda: "17 prompts x 2 candidates" in text(screen, "#estimate"))
        assert len(asked) == 1


async def test_what_takes_long_to_be_looked_at_is_not_said_to_be_what_was_chosen_before(
    app: LocalspecApp, workload: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going_on, foresee = threading.Event(), foresight.foresee

    def slowly(selection: Any) -> foresight.Foreseen:
        going_on.wait(FOREVER)
        return foresee(selection)

    async with app.run_test(size=(80, 24)) as pilot:
        screen = await choose(pilot, workload)
        await until(pilot, lambda: "6 runs" in text(screen, "#estimate"))
        monkeypatch.setattr(foresight, "foresee", slowly)
        await pilot.press("space")  # no drafter
        await until(pilot, lambda: text(screen, "#estimate") == f"looking at {workload} ...")
        going_on.set()
        await until(pilot, lambda: "3 runs" in text(screen, "#estimate"))


async def test_the_target_is_chosen_on_the_screen_itself(
    app: LocalspecApp, tiny_bytes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its key, and by Tab; of the models that are here, whatever their names look like."""
    other = tmp_path / "models" / "other-[b]model.gguf"
    other.parent.mkdir()
    shutil.copy(tiny_bytes, other)
    monkeypatch.setenv("LLAMA_CACHE", str(other.parent))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f5")
        screen = pilot.app.screen
        targets = screen.query_one(Targets)
        await until(pilot, lambda: targets.value == str(tiny_bytes))
        await until(pilot, lambda: "m Target" in str(screen.query_one(Footer).render()))
        await pilot.press("m")
        await until(pilot, lambda: targets.expanded)
        names = [str(prompt) for prompt, _ in targets._options]
        assert {"demo", "demo-mtp"} <= set(names)
        assert all(value for _, value in targets._options)
        at = next(i for i, (_, value) in enumerate(targets._options) if value == str(other))
        assert "other-[b]model" in names[at]
        for _ in names:
            if targets.query_one(OptionList).highlighted == at:
                break
            await pilot.press("down")
        await pilot.press("enter")
        await until(pilot, lambda: app.setup.model == str(other))
        drafters = screen.query_one("#drafters", SelectionList)
        await until(pilot, lambda: screen.query_one(BenchSetup)._target == other)
        assert not targets.expanded
        drafters.focus()
        await pilot.press("shift+tab")
        assert targets.has_focus
        await pilot.press("enter")
        await until(pilot, lambda: targets.expanded)
        await pilot.press("escape", "f2", "f5")
        assert targets.value == str(other)
        screen.state = "measuring"  # type: ignore[attr-defined]
        assert not screen.check_action("target", ())


async def test_of_a_narrow_progress_line_the_name_of_the_prompt_is_cut_first(
    app: LocalspecApp,
) -> None:
    slot = row(candidate("eagle3", 2), prompt("chat-train-mail"), None).slot
    slot = replace(slot, candidate=replace(slot.candidate, key="eagle3 n=2"))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f5")
        screen = pilot.app.screen
        assert isinstance(screen, BenchScreen)
        screen.state = "measuring"
        for phase in ("", "  measuring the winner again"):
            event = Running(slot, 56, 136, 20, 64.1, 62.0)
            screen.post_message(Told(running(event, phase), 56, 136))
            await pilot.pause()
            (line,) = screen.query_one("#progress Static", Static).render_lines(
                Region(0, 0, screen.query_one("#progress Static").size.width, 1)
            )
            assert "57/136  about 1 min 2 s left  eagle3 n=2   64.1 tok/s  " in line.text
            assert line.text.rstrip().endswith("…")


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
            screen.query_one(BenchSetup).offer(resolve_target(str(tiny_bytes)), "t")


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
        assert "Choose a model first: m here, or F2." in text(app.screen, "#estimate")  # type: ignore[arg-type]
        await pilot.press("s")
        assert app.screen.state == "setup"  # type: ignore[attr-defined]
        asked = "Choose a model first: m here, or F2."
        await until(pilot, lambda: asked in [n.message for n in app._notifications])
        await pilot.press("f3")  # where m is a letter
        await until(pilot, lambda: app.current_mode == "chat")
        assert asked not in [n.message for n in app._notifications]
        await until(pilot, lambda: not app.screen.query(Toast))
        await pilot.press("f5")
        await pilot.pause()
        targets = app.screen.query_one(Targets)
        assert targets.value == ""
        await pilot.press("m")
        await until(pilot, lambda: targets.expanded)
        assert app.setup.model is None
        await pilot.press("down", "enter")
        await until(pilot, lambda: app.setup.model == "demo")
        await until(pilot, lambda: "runs" in text(app.screen, "#estimate"))  # type: ignore[arg-type]
        assert "" not in [value for _, value in targets._options]


async def test_a_result_is_exported_by_the_ending_of_the_name(
    app: LocalspecApp, workload: Path, tmp_path: Path
) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await choose(pilot, workload)
        await pilot.press("s")
        await until(pilot, lambda: screen.state == "done")

        async def give(name: str) -> None:
            await until(pilot, lambda: isinstance(app.screen, Ask))
            app.screen.query_one(Input).value = name if name[0] == "~" else str(tmp_path / name)
            await pilot.press("enter")
            await pilot.pause()

        await pilot.press("e")
        await give("r.txt")  # asked again
        for wrong in ("y" * 300 + ".json", "~nobody-at-all/r.json"):
            await give(wrong)
        await give(".")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        said = str(app.screen.query_one(".dim", Static).content)
        assert said.startswith(f"{tmp_path} is a folder.")
        await give("r.json")
        await until(pilot, lambda: app.screen is screen)
        assert json.loads((tmp_path / "r.json").read_text())["status"] == "complete"
        await pilot.press("e")
        await give("r.json")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("n")
        await give("nowhere/r.md")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        said = str(app.screen.query_one(".dim", Static).content)
        assert said == f"The folder {tmp_path / 'nowhere'} does not exist. Write another name."
        await give("r.md")
        await until(pilot, lambda: app.screen is screen)
        assert "| baseline |" in (tmp_path / "r.md").read_text()
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        await pilot.press("escape")
        await pilot.pause()
        assert app.screen is screen


@pytest.mark.parametrize(
    "name", ["~nobody-at-all", f"{'x' * 300}.txt"], ids=["nobody's home", "too long"]
)
async def test_a_file_of_prompts_that_can_be_none_is_said_below(
    app: LocalspecApp, name: str
) -> None:
    """At every key: "~n" stands there on the way to "~nora/prompts.txt"."""
    async with app.run_test(size=(140, 45)) as pilot:
        screen = await choose(pilot, Path(name))
        said = ("There is no home folder", "cannot be looked at")
        await until(pilot, lambda: text(screen, "#estimate").find(said[name[0] != "~"]) >= 0)


async def test_what_a_text_file_holds_is_said_whole_on_a_narrow_terminal(app: LocalspecApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f5")
        await until(pilot, lambda: "─ in a folder a .txt is one prompt ─" in seen(app))


async def test_drafters_that_are_not_here_cannot_be_chosen(make_app: MakeApp) -> None:
    from localspec.catalog import NGRAM, DrafterSpec, Target

    app = make_app()
    target = Target("t", Path("t.gguf"), "T", (NGRAM, DrafterSpec("far", "eagle3", absent="t")))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f5")
        await until(pilot, lambda: app.screen.query_one("#drafters", SelectionList).option_count)
        app.screen.query_one(BenchSetup).offer(target, "t")
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
        setup.offer(Target("one", Path("one.gguf"), "One", (NGRAM, mtp)), "one")
        choices.deselect("ngram")
        setup.offer(Target("two", Path("two.gguf"), "Two", (NGRAM, small)), "two")
        assert choices.selected == ["ngram", "small"]
        choices.deselect("ngram")
        far = DrafterSpec("far", "eagle3", absent="far")
        setup.offer(Target("two", Path("two.gguf"), "Two", (NGRAM, small, far)), "two")
        assert choices.selected == ["small"], "of the same target it stays as it was"
        here = DrafterSpec("far", "eagle3")
        setup.offer(Target("two", Path("two.gguf"), "Two", (NGRAM, small, here)), "two")
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
