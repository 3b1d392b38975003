"""The A/B screen: once with a real engine, and with made-up runs for what must be shown exactly."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from patience import FOREVER
from textual.events import Paste
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Label, Select, Static
from tui.talking import steady, until

from localspec.bench import ab, runner
from localspec.bench.ab import Outcome, Planned, Standing
from localspec.bench.audit import Audit, Divergence
from localspec.bench.plan import Candidate, Plan, Prepared, Slot
from localspec.bench.rows import Conditions, Row, mark_disturbed
from localspec.bench.runner import Measurement, Ran, Running, Starting
from localspec.bench.runner import Status as RunStatus
from localspec.bench.workloads import Prompt as BenchPrompt
from localspec.catalog import Target
from localspec.engine.messages import Chunk
from localspec.records import (
    ContextSettings,
    DrafterSettings,
    Generation,
    SamplerSettings,
    Span,
    Step,
    Times,
    count,
)
from localspec.tui.app import LocalspecApp
from localspec.tui.engine import SWITCHING
from localspec.tui.palette import actions
from localspec.tui.screens.ab import SIDES, ABScreen, Told
from localspec.tui.widgets.pass_text import PassText, block_text
from localspec.tui.widgets.prompt import Prompt
from localspec.tui.widgets.side import SideHead

MakeApp = Callable[..., LocalspecApp]
WORDS = (*"The| cat| 猫| sat| on| the| mat|,| and| so| did| I".split("|"), ".\n")
PAIRS = 6


# ---- made-up runs -------------------------------------------------------------------------------


def made_run(speed: float, emitted: int, n: int = 64, changed_at: int | None = None) -> Generation:
    """``n`` tokens, ``emitted`` a pass, at about ``speed`` tok/s; 20 ms a pass of a baseline."""
    tokens = [i % len(WORDS) for i in range(n)]
    if changed_at is not None:
        tokens[changed_at:] = [(t + 3) % len(WORDS) for t in tokens[changed_at:]]
    steps, left = [], n - 1
    while left:
        k = min(emitted, left)
        seconds = k / speed
        drafting = seconds / 4 if emitted > 1 else 0.0
        verifying = seconds - drafting - 1e-4
        steps.append(Step(k, k - 1, k - 1, k - 1, 1, drafting, verifying, 0, 0, seconds))
        left -= k
    decode = sum(s.t_step for s in steps)
    times = Times(
        ttft=0.1,
        prefill=0.1,
        decode=decode,
        end_to_end=0.1 + decode,
        step=decode,
        draft=sum(s.t_draft for s in steps),
        verify=sum(s.t_verify for s in steps),
    )
    spans = tuple(Span(WORDS[t], False, 1) for t in tokens)
    return Generation("".join(s.text for s in spans), tuple(tokens), "length", 9, 0,
                      count(steps), times, spans, tuple(steps))  # fmt: skip


def made_plan() -> Planned:
    drafter = DrafterSettings("eagle3", "eagle3", "/eagle3.gguf", 3)
    return Planned(
        Target("demo", Path("/demo.gguf"), "Demo"),
        Plan(
            prompts=(Prepared(BenchPrompt("1", "prompt", (("user", "Go."),)), (1, 2, 3)),),
            candidates=(
                Candidate("baseline", "baseline", DrafterSettings(), 0.0),
                Candidate("eagle3 n=3", "eagle3 n=3", drafter, 0.0),
            ),
            context=ContextSettings(n_ctx=256, threads=1),
            sampler=SamplerSettings(),
            max_tokens=64,
            runs=PAIRS,
            order_seed=0,
        ),
    )


def made_rows(planned: Planned, pairs: int, changed_at: int | None = None) -> list[Row]:
    rows = []
    for i in range(pairs):
        wobble = 1 + 0.02 * ((i * 7) % 5 - 2) / 2
        (prompt,), candidates = planned.plan.prompts, planned.plan.candidates
        slots = [Slot(2 * i + j, c, prompt, i, i) for j, c in enumerate(candidates)]
        sides = [
            Row(slots[0], made_run(50.0, 1)),
            Row(slots[1], made_run(60.0 * wobble, 3, changed_at=changed_at)),
        ]
        rows += sides if i % 2 else sides[::-1]
    return rows


def outcome(divergence: Divergence | None = None, pairs: int = PAIRS) -> Outcome:
    planned = made_plan()
    rows = made_rows(planned, pairs, divergence.token if divergence else None)
    found = Audit(divergence is None, 1, (divergence,) if divergence else ())
    status = {c.key: RunStatus() for c in planned.plan.candidates}
    measurement = Measurement(planned.plan, rows, status)
    return Outcome(planned, measurement, Standing.of(planned, rows), found)


async def opened(pilot: Pilot[Any]) -> ABScreen:
    await pilot.app.switch_mode("ab")
    await pilot.pause()
    screen = pilot.app.screen
    assert isinstance(screen, ABScreen)
    return screen


async def measuring(pilot: Pilot[Any]) -> tuple[ABScreen, Planned]:
    screen, planned = await opened(pilot), made_plan()
    screen.measuring = True
    screen.post_message(Told(planned))
    return screen, planned


async def show(pilot: Pilot[None], what: Outcome) -> ABScreen:
    screen = await opened(pilot)
    screen._ended(what, "Write a poem about\nwide characters: 猫 and 🐈.")
    screen._draw()
    screen.refresh_bindings()
    await pilot.pause()
    return screen


def shown(screen: ABScreen, which: str) -> str:
    return str(screen.query_one(which, Static).render())


def keys(screen: Screen[Any]) -> set[str]:
    return {binding.description for _, binding, node in actions(screen) if node is screen}


# ---- with an engine -----------------------------------------------------------------------------


@pytest.fixture
def tiny_app(make_app: MakeApp, tiny_bytes: Path, monkeypatch: pytest.MonkeyPatch) -> LocalspecApp:
    monkeypatch.setattr(ab, "MOST_PAIRS", 400)
    monkeypatch.setattr(ab, "NARROW", 1.0)  # the runs of so small a model are over at once
    app = make_app()
    app.settings.values.model = str(tiny_bytes)
    app.use(model=str(tiny_bytes), drafter="ngram", n_max=3)
    return app


async def test_measure_pause_finish_race_and_stop_on_a_real_engine(tiny_app: LocalspecApp) -> None:
    async with tiny_app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        assert {"Start", "Edit", "Drafter"} <= keys(screen)
        assert not {"Pause", "Race", "Finish"} & keys(screen)

        screen.query_one("#tokens", Select).value = 512
        await pilot.press("e", "end", *" 1", "enter")  # the prompt is edited and sent
        assert screen.measuring
        await until(pilot, lambda: screen._at_work)
        await pilot.press("space")
        assert {"Pause", "Finish"} <= keys(screen)
        await until(  # a pair is not torn apart
            pilot,
            lambda: "paused" in shown(screen, "#state") and len(screen._rows) in range(2, 400, 2),
        )
        made = len(screen._rows)
        await pilot.pause(0.3)
        assert len(screen._rows) == made
        assert "not measured yet" not in shown(screen, "#speedup"), "the pair that is whole counts"
        assert "order" in shown(screen, "#state")
        await pilot.press("space")
        await until(pilot, lambda: len(screen._rows) > made)
        await pilot.press("f")
        await until(pilot, lambda: not screen.measuring)
        pairs = screen._standing.comparison.pairs  # type: ignore[union-attr]
        assert 1 <= pairs < 400
        assert "ended by you" in shown(screen, "#state")
        assert "(this prompt only)" in shown(screen, "#speedup")
        # at some numbers of threads a draft's batch rounds otherwise
        assert shown(screen, "#output").startswith(("✓ identical", "~ near tie"))
        assert not tiny_app.engine.busy

        await pilot.press("r")
        assert screen.racing
        await until(pilot, lambda: screen._race and screen._race.over)

        def places() -> list[str]:
            heads = [str(h.render()) for h in screen.query(SideHead)]
            return sorted(word for h in heads for word in ("1st", "2nd") if word in h)

        await until(pilot, lambda: places() == ["1st", "2nd"])
        await pilot.press("escape")
        assert not screen.racing

        await pilot.press("s")
        await until(pilot, lambda: screen._rows)
        await pilot.press("escape")  # at once, whatever it does
        await until(pilot, lambda: not screen.measuring)
        assert screen._results, "what was measured before is kept"
        assert tiny_app.engine.status.state == "ready"


async def test_left_alone_it_ends_by_itself(
    tiny_app: LocalspecApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ab, "NARROW", 1e9)
    monkeypatch.setattr(ab, "FEWEST_PAIRS", 3)
    monkeypatch.setattr(runner, "mark_disturbed", list)  # else some are made again
    async with tiny_app.run_test(size=(140, 45)) as pilot:
        screen = await opened(pilot)
        screen.query_one("#tokens", Select).value = 64
        await pilot.press("s")
        await until(pilot, lambda: not screen.measuring and screen._standing)
        assert shown(screen, "#state") == "3 pairs · the interval is narrow enough"
        texts = [str(t.render()) for t in screen.query(PassText)]
        tie = shown(screen, "#output").startswith("~ near tie")  # where a draft's batch rounds so
        assert all(texts) and (texts[0] == texts[1] or tie)


async def test_a_switch_that_goes_on_is_waited_for(tiny_app: LocalspecApp) -> None:
    """Chat may have begun one a moment ago. Esc meanwhile ends what waits as well."""
    async with tiny_app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        for stopped in (True, False):
            over = threading.Event()
            tiny_app.engine.start(SWITCHING, lambda _job, over=over: over.wait(FOREVER))
            await pilot.press("s")
            assert screen.measuring
            if stopped:
                await pilot.press("escape")
            over.set()
            if stopped:
                await until(pilot, lambda: not screen.measuring)
                assert shown(screen, "#state") == "stopped before the first run"
                assert not screen._rows
            else:
                await until(pilot, lambda: screen._rows)
                await pilot.press("escape")
                await until(pilot, lambda: not screen.measuring)
        assert not [n for n in tiny_app._notifications if "busy" in n.message]


async def test_escape_in_another_mode_ends_no_measurement(tiny_app: LocalspecApp) -> None:
    async with tiny_app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        screen.query_one("#tokens", Select).value = 512
        await pilot.press("s")
        await until(pilot, lambda: screen._at_work)
        for mode in ("f2", "f3", "f5", "f6"):
            await pilot.press(mode)
            await pilot.pause()
            assert "Stop" not in keys(pilot.app.screen)
            await pilot.press("escape", "escape")
            hand = screen._hand.job
            assert hand is not None and not hand.cancelled, pilot.app.current_mode
        await pilot.press("f4", "escape")
        await until(pilot, lambda: not screen.measuring)
        assert "stopped" in shown(screen, "#state")


async def test_escape_here_ends_nothing_of_another_mode(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        screen, over = await opened(pilot), threading.Event()
        job = app.engine.start("Answering", lambda _job: over.wait(FOREVER), "chat")
        await pilot.press("e", "escape")
        assert not screen.query_one(Prompt).has_focus, "it leaves the prompt, as the footer says"
        assert "Stop" not in keys(screen)
        await pilot.press("escape", "s")
        assert not job.cancelled
        (told,) = app._notifications
        assert told.message == "Wait for it, or stop it with Esc in Chat."
        over.set()
        await job


class Stopped:
    """A clock that stands still unless the test moves it."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


SIZES = [(80, 24), (140, 45)]


@pytest.mark.parametrize("size", SIZES)
def test_before_anything_was_measured(
    snap_compare: Any, make_app: MakeApp, size: tuple[int, int]
) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        await pilot.app.switch_mode("ab")
        await pilot.pause()
        drafters = pilot.app.screen.query_one("#drafter", Select)
        await until(pilot, lambda: len(drafters._options) > 2)
        await steady(pilot)

    assert snap_compare(make_app(), terminal_size=size, run_before=before)


@pytest.mark.parametrize("size", SIZES)
def test_a_result_and_an_earlier_one(
    snap_compare: Any, make_app: MakeApp, size: tuple[int, int]
) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        await show(pilot, outcome(Divergence("prompt", "1", 0, 20, "near tie")))
        await show(pilot, outcome())
        await steady(pilot)

    assert snap_compare(make_app(), terminal_size=size, run_before=before)


@pytest.mark.parametrize("size", SIZES)
def test_a_result_with_disturbed_runs(
    snap_compare: Any, make_app: MakeApp, size: tuple[int, int]
) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        await show(pilot, disturbed_outcome())
        await steady(pilot)

    assert snap_compare(make_app(), terminal_size=size, run_before=before)


@pytest.mark.parametrize("size", SIZES)
def test_a_race_that_one_side_has_finished(
    snap_compare: Any, make_app: MakeApp, size: tuple[int, int]
) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        screen = await show(pilot, outcome())
        clock = screen.clock = Stopped()
        await pilot.press("r")
        clock.now += 1.25
        await pilot.press("space")
        await steady(pilot)

    assert snap_compare(make_app(), terminal_size=size, run_before=before)


# ---- made up ------------------------------------------------------------------------------------


async def test_both_sides_are_shown_while_they_run(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        screen, planned = await measuring(pilot)
        first, second = made_rows(planned, 1)
        screen.post_message(Told(Ran(first, 1, 12, 9.0)))
        run = second.generation
        assert run is not None
        screen.post_message(Told(Running(second.slot, 1, 12, 0, None, 9.0)))
        chunk = Chunk(0, run.spans[:7], run.steps[:6], 7, 0.5)
        screen.post_message(Told(Running(second.slot, 1, 12, 7, 50.0, 9.0, chunk)))
        await pilot.pause()
        assert shown(screen, "#state") == "pair 1 of 6 to 12 · order B▸A"
        assert shown(screen, "#text-baseline") == "The cat 猫 sat on the mat"
        assert shown(screen, "#figures-baseline").startswith("50.0 tok/s · AL 1.00 · 20.0 ms/tok")
        assert "7/64" in shown(screen, "#head-baseline")
        assert "eagle3 n=3" in shown(screen, "#head-drafted")
        # of the other side, which is done, the end
        text = shown(screen, "#text-drafted").split("\n")
        assert text[-2:] == ["The cat 猫 sat on the mat, and so did", "I"]
        screen.measuring = False


async def test_the_result_says_how_sure_it_is_and_for_what(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await show(pilot, outcome())
        assert shown(screen, "#speedup").startswith(
            "1.20x [1.18, 1.22] faster ▲ (this prompt only)"
        )
        assert shown(screen, "#output") == "✓ identical 64/64"
        assert "AL 1.00 · 20.0 ms/tok" in shown(screen, "#figures-baseline")
        assert "AL 3.00" in shown(screen, "#figures-drafted")
        assert "● " not in shown(screen, "#interval").split("\n")[1]
        screen = await show(pilot, outcome(pairs=2))
        assert shown(screen, "#speedup").startswith("1.19x too few pairs no verdict")


async def test_the_axis_stays_while_it_measures_and_fits_the_result(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        screen, _ = await measuring(pilot)
        made = outcome()
        unsteady = replace(made.standing.comparison, interval=(0.5, 4.0))
        wide = replace(made.standing, drafted=replace(made.standing.drafted, decode=unsteady))
        labels = []
        for standing in (wide, made.standing):
            screen.post_message(Told(standing))
            await pilot.pause()
            labels.append(shown(screen, "#interval").split("\n")[2].split())
        assert labels == 2 * [["0.50", "1.00", "2.00", "4.00"]]
        screen.measuring = False
        screen._ended(made, "x")
        await pilot.pause()
        fitted = shown(screen, "#interval").split("\n")[2].split()
        assert fitted[:3] == ["1.00", "1.05", "1.10"]


async def test_runs_that_an_engine_died_in_are_no_pairs(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        screen, planned = await measuring(pilot)
        rows = made_rows(planned, 12)
        dead = replace(rows[4], generation=None, flags=frozenset({"crashed"}))
        for row in (*rows[:4], dead, *rows[5:]):
            screen.post_message(Told(Ran(row, 1, 24, 9.0)))
            screen.post_message(Told(Standing.of(planned, [*screen._rows, row])))
            await pilot.pause()
            if row is rows[5]:
                assert shown(screen, "#state").startswith("pair 3 of 6 to 12 · order BA AB ✗A")
        assert shown(screen, "#state").startswith("pair 12 of 6 to 12 ")
        screen.post_message(Told(Starting("repeat", 4, 1, 9.0)))
        for row, said in (
            (rows[4], "11 pairs · again 1 of 2: what was disturbed or cut short"),
            (rows[5], "11 pairs · again 2 of 2: what was disturbed or cut short"),
        ):
            repeated = replace(row, slot=replace(row.slot, phase="repeat"))
            screen.post_message(Told(Ran(repeated, 1, 4, 9.0)))
            await pilot.pause()
            assert shown(screen, "#state") == said
            assert shown(screen, "#head-baseline").endswith(" 11 runs"), "it is not decided yet"
        screen.measuring = False


async def test_how_it_ended_is_told_whatever_befell_it(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        made = outcome()
        died = RunStatus("crashed", "The engine process died (signal SIGKILL).", 1)
        made.measurement.status["eagle3 n=3"] = died
        screen = await show(pilot, made)
        end = "6 pairs · the interval is narrow enough · the engine died once"
        assert shown(screen, "#state") == end
        made.measurement.status["eagle3 n=3"] = replace(died, crashes=2, given_up=True)
        screen = await show(pilot, replace(made))
        assert shown(screen, "#state") == "6 pairs · given up · the engine died twice"
        screen = await show(pilot, replace(outcome(pairs=0), finished=True))
        assert shown(screen, "#state") == "nothing was measured · ended by you"


def disturbed_outcome() -> Outcome:
    """In two of twelve runs the machine stood still."""
    made = outcome()
    rows = [
        replace(row, conditions=Conditions(own_cores=0.1 if i in (3, 8) else 1.9))
        for i, row in enumerate(made.measurement.rows)
    ]
    return of_rows(made, mark_disturbed(rows))


def of_rows(made: Outcome, rows: list[Row]) -> Outcome:
    measurement = replace(made.measurement, rows=rows)
    return replace(made, measurement=measurement, standing=Standing.of(made.planned, rows))


async def test_disturbed_runs_are_told_and_the_result_keeps_that(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test(size=(140, 45)) as pilot:
        screen = await show(pilot, disturbed_outcome())
        assert shown(screen, "#doubt") == (
            "disturbed: 2 of 12 runs had more or less other load or another clock than the rest, "
            "or the machine stood still."
        )
        screen = await show(pilot, outcome())
        assert not screen.query_one("#doubt").display
        assert "2 of 12 runs disturbed  demo, eagle3 n=3" in shown(screen, "#earlier")


async def test_the_numbers_of_runs_add_up_and_speeds_are_of_the_runs_that_are_compared(
    make_app: MakeApp,
) -> None:
    """Run 2 of the drafter was made again, and a slow one of the baseline's next to it; Esc came in
    the midst of another."""
    made = outcome()
    rows = made.measurement.rows
    first = next(r for r in rows if r.slot.run == 2 and not r.slot.candidate.is_baseline)
    partner = next(r for r in rows if r.slot.run == 2 and r.slot.candidate.is_baseline)
    rows[rows.index(first)] = first.flagged("disturbed", "replaced")
    again = replace(first.slot, phase="repeat", block=1)
    beside = replace(partner.slot, phase="repeat", block=1)
    rows += [
        Row(beside, made_run(25.0, 1), frozenset({"pairing"})),
        Row(again, made_run(30.0, 3), frozenset({"disturbed"})),
        Row(replace(beside, run=3, block=2), made_run(99.0, 1), frozenset({"replaced"})),
    ]
    made = of_rows(made, rows)
    async with make_app().run_test(size=(140, 45)) as pilot:
        screen = await show(pilot, made)
        assert shown(screen, "#state").startswith("6 of 8 pairs count · ")
        assert shown(screen, "#doubt") == (
            "disturbed: 1 of 12 runs had more or less other load or another clock than the rest, "
            "or the machine stood still.\nleft out: 3 of 15 runs (1 pair was made again, 1 run is "
            "of a pair not made whole)."
        )
        for side in SIDES:
            assert shown(screen, f"#head-{side}").endswith(" 6 runs")
        speeds = [float(shown(screen, f"#figures-{side}").split()[0]) for side in SIDES]
        assert speeds == [pytest.approx(6 / (5 / 50 + 1 / 25), abs=0.1), pytest.approx(51, abs=1)]
        assert shown(screen, "#speedup").startswith(f"{speeds[1] / speeds[0]:.2f}x")


async def test_a_run_without_its_other_is_in_no_figure(make_app: MakeApp) -> None:
    made = outcome(pairs=3)
    rows = made.measurement.rows
    assert rows[4].slot.candidate.is_baseline != rows[5].slot.candidate.is_baseline
    plain = next(r for r in rows[4:] if r.slot.candidate.is_baseline)
    made = of_rows(made, [*rows[:4], replace(plain, generation=made_run(99.0, 1))])
    made.measurement.interrupted = True
    async with make_app().run_test(size=(80, 24)) as pilot:
        screen = await show(pilot, made)
        assert shown(screen, "#state") == "2 of 3 pairs count · stopped by you"
        assert (
            shown(screen, "#doubt") == "left out: 1 of 5 runs (1 run is of a pair not made whole)."
        )
        assert shown(screen, "#figures-baseline").startswith("50.0 tok/s")
        assert shown(screen, "#head-baseline").endswith(" 2 runs")
        screen = await show(pilot, of_rows(made, [plain]))
        assert shown(screen, "#state") == "no pair was made whole · stopped by you"


async def test_what_was_measured_last_stays_when_the_next_one_comes_to_nothing(
    make_app: MakeApp,
) -> None:
    async with make_app().run_test(size=(140, 45)) as pilot:
        await show(pilot, outcome(Divergence("prompt", "1", 0, 20, "near tie")))
        screen = await show(pilot, outcome())
        assert "near tie" in shown(screen, "#earlier").split("\n")[1]
        screen.engine.start(SWITCHING, lambda job: job._cancelled.wait(FOREVER))
        await pilot.press("s", "escape")
        screen.engine._job.cancel()  # type: ignore[union-attr]
        await until(pilot, lambda: not screen.measuring)
        said = "stopped before the first run · shown: the last result"
        for again in (True, False):
            assert shown(screen, "#state") == said
            title, newest, before = shown(screen, "#earlier").split("\n")
            assert title == "earlier results"
            assert "✓ identical" in newest and "near tie" in before
            assert shown(screen, "#speedup").startswith("1.20x [1.18, 1.22] faster")
            assert shown(screen, "#output") == "✓ identical 64/64"
            if again:
                await pilot.press("f3", "f4")
        await pilot.press("r")
        assert screen._race is not None
        await pilot.press("escape")
        await show(pilot, outcome())
        assert len(shown(screen, "#earlier").split("\n")) == 3, "what is shown is not listed"


async def test_why_nothing_was_measured_is_told_to_the_end(make_app: MakeApp) -> None:
    why = (
        "The baseline cannot be run: The engine process died (signal SIGKILL). It was killed from "
        "outside: by someone, or by the system for want of memory."
    )
    async with make_app().run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        screen._stage = why
        screen._draw()
        await pilot.pause()
        state = screen.query_one("#state")
        lines = [
            "".join(segment.text for segment in state.render_line(y)).strip()
            for y in range(state.size.height)
        ]
        assert " ".join(lines) == why


async def test_the_drop_downs_are_closed_while_it_measures_or_races(make_app: MakeApp) -> None:
    async with make_app().run_test(size=(80, 24)) as pilot:
        screen = await show(pilot, outcome())
        screen.clock = Stopped()
        tokens = screen.query_one("#tokens", Select)
        tokens.focus()
        await pilot.pause()
        job = screen.engine.start(SWITCHING, lambda job: job._cancelled.wait(FOREVER))
        for start, stop in (("s", "escape"), ("r", "escape")):
            await pilot.press(start)
            await until(pilot, lambda: screen.measuring or screen.racing)
            for _ in range(6):
                await pilot.press("tab")
                assert not isinstance(screen.focused, Select)
            screen.query_one("#texts").focus()
            await pilot.press("space")
            assert "Pause" in keys(screen)
            assert not tokens.expanded
            await pilot.press(stop)
            job.cancel()
            await until(pilot, lambda: not screen.measuring and not screen.racing)
            await until(pilot, lambda: tokens.has_focus)
            assert not any(s.disabled for s in screen.query(Select))


async def test_the_model_is_named(make_app: MakeApp, tiny_bytes: Path) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await app.switch_mode("ab")
        await pilot.pause()
        model = app.screen.query_one("#model", Label)
        assert str(model.content) == "demo"
        app.use(model=str(tiny_bytes))
        await until(pilot, lambda: str(model.content) == tiny_bytes.stem)


async def test_where_the_output_parts_is_told_with_its_class_and_marked_in_the_text(
    make_app: MakeApp,
) -> None:
    app = make_app()
    async with app.run_test(size=(140, 45)) as pilot:
        kinds: dict[Any, str] = {
            "near tie": "~ near tie at 20",
            "MISMATCH": "✗ MISMATCH at 20",
            None: "~ not classed, parts at 20",
        }
        for kind, words in kinds.items():
            screen = await show(pilot, outcome(Divergence("prompt", "1", 0, 20, kind)))
            assert shown(screen, "#output") == words
        for side, at in (("baseline", 20), ("drafted", 19)):  # passes of one token and of three
            content = screen.query_one(f"#text-{side}", PassText).render()
            spans = [s for s in content.spans if "reverse" in str(s.style)]  # type: ignore[union-attr]
            assert len(spans) == 1
            before = str(content)[: spans[0].start]
            assert before == "".join(WORDS[i % len(WORDS)] for i in range(at))


async def test_a_race_can_be_paused_hurried_restarted_and_run_with_another_pair(
    make_app: MakeApp,
) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await show(pilot, outcome())
        clock = screen.clock = Stopped()
        ratios = [b.decode_tps / a.decode_tps for a, b in screen._pairs()]  # type: ignore[operator]
        await pilot.press("r")
        assert ratios[screen._race_pair] == pytest.approx(1.2, abs=1e-3), "the most typical pair"
        race = screen._race
        assert race is not None
        assert {"Pause", "Race", "Speed", "Later pair"} <= keys(screen)
        clock.now += 0.5
        await pilot.press("space")
        clock.now += 0.5
        assert race.now == 0.5
        await pilot.press("x", "x")
        assert race.clock.speed == 0.5
        await pilot.press("space")
        clock.now += 0.5
        assert race.now == 0.75
        await until(pilot, lambda: "0.75 s · 0.5x · pair" in shown(screen, "#state"))
        assert "/64" in shown(screen, "#head-baseline")
        await pilot.press("r")
        assert race.now == 0
        assert race.clock.running
        pair = screen._race_pair
        await pilot.press("right_square_bracket")
        assert screen._race_pair == (pair + 1) % PAIRS
        assert screen._race is not race
        await pilot.press("left_square_bracket")
        assert screen._race_pair == pair
        assert screen._race.clock.speed == 0.5, "the speed stays"  # type: ignore[union-attr]
        await pilot.press("escape")
        assert screen._race is None
        assert shown(screen, "#head-baseline").endswith("6 runs")


async def test_who_races_is_named_whole_where_the_track_can_be_shorter(make_app: MakeApp) -> None:
    made = outcome()
    plain, drafted = made.planned.plan.candidates
    candidates = plain, replace(drafted, session="draft-model n=2")
    named = replace(made.planned, plan=replace(made.planned.plan, candidates=candidates))
    async with make_app().run_test(size=(80, 24)) as pilot:
        screen = await show(pilot, replace(made, planned=named))
        clock = screen.clock = Stopped()
        await pilot.press("r")
        for seconds, word in ((0.3, "/64"), (99.0, "⚑ 1st")):
            clock.now = seconds
            await until(pilot, lambda w=word: w in shown(screen, "#head-drafted"))
            heads = [shown(screen, f"#head-{side}") for side in SIDES]
            assert heads[1].startswith("B draft-model n=2 ")
            assert all(head.count("━") + head.count("─") >= 5 for head in heads)


@pytest.mark.parametrize("over", [("ctrl+p", "escape"), ("f1", "escape"), ("f3", "f4")])
async def test_a_race_waits_while_it_is_covered_and_goes_on_when_it_is_seen(
    make_app: MakeApp, over: tuple[str, str]
) -> None:
    async with make_app().run_test(size=(80, 24)) as pilot:
        screen = await show(pilot, outcome())
        clock = screen.clock = Stopped()
        await pilot.press("r")
        clock.now += 0.25
        await until(pilot, lambda: "▶  0.25 s" in shown(screen, "#state"))
        for at in (0.5, 0.75):
            await pilot.press(over[0])
            await pilot.pause()
            assert pilot.app.screen is not screen
            assert shown(screen, "#state").startswith("❚❚"), "as may be seen beside a dialog"
            clock.now += 60
            await pilot.press(over[1])
            await pilot.pause()
            assert pilot.app.screen is screen
            clock.now += 0.25
            await until(pilot, lambda at=at: f"▶  {at:.2f} s" in shown(screen, "#state"))
        await pilot.press("space", *over)
        await pilot.pause()
        assert shown(screen, "#state").startswith("❚❚  0.75 s"), "what was paused stays so"


async def test_the_palette_pauses_a_race_that_runs(make_app: MakeApp) -> None:
    async with make_app().run_test(size=(80, 24)) as pilot:
        screen = await show(pilot, outcome())
        clock = screen.clock = Stopped()
        await pilot.press("r")
        clock.now += 0.25
        for sign in ("❚❚", "▶"):
            await pilot.press("ctrl+p", *"pause", "enter")
            await until(pilot, lambda: pilot.app.screen is screen)
            await until(pilot, lambda s=sign: shown(screen, "#state").startswith(f"{s}  0.25 s"))


async def test_both_sides_of_a_race_begin_with_a_row_of_their_text(make_app: MakeApp) -> None:
    async with make_app().run_test(size=(80, 24)) as pilot:
        screen = await show(pilot, outcome())
        clock = screen.clock = Stopped()
        await pilot.press("r")
        race = screen._race
        assert race is not None
        cut = False
        for now in (1.0, 1.13, 1.21):
            clock.now = now
            await until(pilot, lambda now=now: f"{now:.2f} s" in shown(screen, "#state"))
            for side, run in zip(SIDES, race.runners, strict=True):
                text = screen.query_one(f"#text-{side}", PassText)
                whole = block_text(run.texts[: run.passes_at(now)]).wrap(text.content_size.width)
                rows = str(text.render()).split("\n")
                assert rows == [row.plain for row in whole[-len(rows) :]]
                cut |= len(rows) < len(whole)
        assert cut, "there was more than fits"


async def test_a_race_has_the_keys_wherever_the_focus_was(make_app: MakeApp) -> None:
    async with make_app().run_test(size=(80, 24)) as pilot:
        screen = await show(pilot, outcome())
        screen.clock = Stopped()
        await pilot.press("e", "tab", "tab")
        length = screen.query_one("#length", Select)
        assert length.has_focus
        await pilot.press("r", "space")
        assert not length.expanded
        assert screen._race is not None and not screen._race.clock.running
        await pilot.press("4")
        await pilot.pause()
        assert pilot.app.current_mode == "bench"


async def test_the_columns_scroll_together_and_blocks_can_be_hidden(
    make_app: MakeApp,
) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await show(pilot, outcome())
        texts = screen.query_one("#texts")
        assert texts.max_scroll_y > 0
        before = [screen.query_one(f"#text-{s}").region.y for s in ("baseline", "drafted")]
        await pilot.press("e", "tab", "tab", "tab", "tab", "end")
        await pilot.pause()
        after = [screen.query_one(f"#text-{s}").region.y for s in ("baseline", "drafted")]
        moved = [a - b for a, b in zip(after, before, strict=True)]
        assert moved == [-texts.max_scroll_y, -texts.max_scroll_y]
        text = screen.query_one("#text-drafted", PassText)
        assert text.render().spans  # type: ignore[union-attr]
        await pilot.press("b")
        assert not text.render().spans  # type: ignore[union-attr]
        assert str(text.render()).startswith("The cat 猫 sat")


async def test_drafter_and_length_are_chosen_here_and_hold_everywhere(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        app.use(drafter="ngram", n_max=5)
        screen = await opened(pilot)
        drafter, length = screen.query_one("#drafter", Select), screen.query_one("#length", Select)
        await until(pilot, lambda: len(drafter._options) > 2)
        assert (drafter.value, length.value) == ("ngram", "5")
        await pilot.press("d", *"draft", "enter")
        await pilot.pause()
        assert app.setup.drafter == "draft-model"
        await pilot.press("l", "up", "enter")
        await pilot.pause()
        assert app.setup.n_max == 4
        app.use(drafter="none", n_max=7)  # as the chat does
        await pilot.pause()
        assert (drafter.value, length.value) == ("auto", "7")
        assert app.setup.drafter == "none"


async def test_earlier_results_stay_in_sight(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test(size=(140, 45)) as pilot:
        screen = await show(pilot, outcome())
        assert shown(screen, "#earlier") == ""
        for _ in range(7):
            await show(pilot, outcome(Divergence("prompt", "1", 0, 20, "near tie")))
        lines = shown(screen, "#earlier").split("\n")
        assert len(lines) == 1 + 4
        assert "eagle3 n=3" in lines[1]
        assert "~ near tie at 20" in lines[1]
        assert "wide characters: 猫" in lines[1]


async def test_without_a_model_or_a_prompt_it_says_so(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await app.switch_mode("ab")
        await pilot.pause()
        app.screen.query_one(Prompt).text = " "
        await pilot.press("s")
        await pilot.pause()
        assert [n.message for n in app._notifications] == ["Write a prompt first."]
        app.clear_notifications()
        await pilot.press("e", "enter")
        await pilot.press("escape")
        app.setup = replace(app.setup, model=None)
        await pilot.press("s")
        await pilot.pause()
        assert [n.message for n in app._notifications] == [
            "Write a prompt first.",
            "Choose a model first: F2.",
        ]
        app.use(model="/nowhere.gguf")
        app.screen.query_one(Prompt).text = "Go on."
        await pilot.press("s")
        await until(pilot, lambda: "nowhere" in shown(app.screen, "#state"))  # type: ignore[arg-type]


async def test_escape_leaves_the_prompt_and_letters_are_keys_again(make_app: MakeApp) -> None:
    async with make_app().run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        await pilot.press("e", "end", "!")
        assert "Keys" in keys(screen)
        text = screen.query_one(Prompt).text
        await pilot.press("escape", "b")
        assert text.endswith("!") and screen.query_one(Prompt).text == text
        assert "Keys" not in keys(screen)


async def test_what_is_pasted_beside_the_prompt_goes_into_it(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await app.switch_mode("ab")
        await pilot.pause()
        prompt = app.screen.query_one(Prompt)
        prompt.text = ""
        app.screen.query_one("#tokens", Select).focus()
        app.post_message(Paste("two\nlines"))
        await pilot.pause()
        assert (prompt.text, prompt.has_focus) == ("two\nlines", True)
