"""Bench: what to measure, the measurement as it goes, and its report; kept in the history."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from textual import on, work
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.reactive import var
from textual.widget import Widget
from textual.widgets import Button, Input, ProgressBar, SelectionList, Static

from localspec.errors import LocalspecError, UsageError
from localspec.tui.engine import Job
from localspec.tui.live import age
from localspec.tui.screens.base import ModeScreen
from localspec.tui.screens.export import export
from localspec.tui.widgets.bench_setup import BenchSetup, Here, Targets
from localspec.tui.widgets.report_view import ReportView

if TYPE_CHECKING:  # imported in other threads, after the first paint
    from localspec.bench.foresight import Foreseen
    from localspec.bench.report import Report
    from localspec.bench.resume import Unfinished
    from localspec.bench.runner import Event, Running
    from localspec.catalog import Target
    from localspec.records import BenchOptions
    from localspec.tui.app import Setup

Json = dict[str, Any]
State = Literal["setup", "measuring", "done"]
SAID_SECONDS = 0.2
"""What was said of another choice stands no longer than this."""
TYPED_SECONDS = 0.7
"""The Hub is asked for a name once nothing was typed for so long."""
DRAW_SECONDS = 1.0
"""The live table is made anew at most this often: that takes a core from the engine."""


class Told(Message):
    """From the engine's thread: where the measurement is, in words; ``done`` of ``total`` runs."""

    def __init__(self, text: str, done: int | None = None, total: int | None = None) -> None:
        self.text, self.done, self.total = text, done, total
        super().__init__()


class Remarked(Message):
    """From the engine's thread: a sentence that stays."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__()


class Grown(Message):
    """From the engine's thread: the result of the runs that are made."""

    def __init__(self, result: Json) -> None:
        self.result = result
        super().__init__()


class Remarks(VerticalScroll):
    """The latest is in sight; the Tab key stops here only where others are not."""

    def on_mount(self) -> None:
        self.anchor()

    def allow_focus(self) -> bool:
        return self.show_vertical_scrollbar


class BenchScreen(ModeScreen):
    MODE = "bench"
    AUTO_FOCUS = "#drafters"
    EXPLAINS: ClassVar[tuple[str, ...]] = (
        "tok/s of a bench",
        "baseline of a bench",
        "speedup of a bench",
        "verdict",
        "output",
        "accept length",
        "coverage",
        "acceptance rate",
        "reach",
        "ttft",
        "shares",
        "draft length",
        "runs",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "Stop", tooltip="End the measurement and keep what is made"),
        Binding("escape", "leave", "Keys", tooltip="Leave the field: one letter is enough then"),
        Binding("m", "target", "Target", tooltip="Choose the model that is measured"),
        Binding("s", "start", "Start", tooltip="Measure what is chosen"),
        Binding("r", "resume", "Go on", tooltip="Go on with the bench that was stopped"),
        Binding("o", "choose", "Options", tooltip="Choose what to measure"),
        Binding("t", "report", "Table", tooltip="Back to the table of the last bench"),
        Binding("e", "export", "Export", tooltip="Write the result as JSON, CSV or Markdown"),
    ]
    DEFAULT_CSS = """
    BenchScreen {
        #running { height: 1fr; }
        #progress { height: 1; padding: 0 1; }
        #progress ProgressBar { width: 24; margin-right: 1; }
        #progress Bar { width: 1fr; }
        &.-narrow #progress ProgressBar { width: 10; }
        #progress Static { width: 1fr; height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
        Remarks { height: auto; max-height: 6; scrollbar-size-vertical: 1; }
        &.-high Remarks { max-height: 12; }
        #remarks { height: auto; padding: 0 1; color: $text-warning; }
    }
    """

    state: var[State] = var[State]("setup", bindings=True)

    def __init__(self) -> None:
        super().__init__()
        self._result: Json | None = None
        self._said = ""
        self._remarks: list[str] = []

    def body(self) -> Iterable[Widget]:
        yield BenchSetup()
        with Vertical(id="running"):
            with Horizontal(id="progress"):
                yield ProgressBar(show_eta=False, show_percentage=False)
                yield Static()
            with Remarks():
                yield Static(id="remarks")
            yield ReportView()

    def on_mount(self) -> None:
        self._show_remarks()
        self._find_workloads()
        self.watch(self.app, "setup", self._setup_changed)
        self.watch(self.app, "to_resume", self._asked_to_resume)

    @work(group="workloads")
    async def _find_workloads(self) -> None:
        def find() -> tuple[tuple[str, ...], tuple[str, ...]]:
            from localspec.bench.workloads import BUILT_IN, DEFAULT

            return tuple(BUILT_IN), DEFAULT

        self.query_one(BenchSetup).offer_workloads(*await asyncio.to_thread(find))

    def watch_state(self, state: State) -> None:
        self.query_one(BenchSetup).display = state == "setup"
        self.query_one("#running").display = state != "setup"
        self.query_one(ProgressBar).display = state == "measuring"
        if state == "setup":
            self.query_one("#drafters", SelectionList).focus()
        else:
            self.query_one(ReportView).focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "stop":
            return self.engine.runs_for(self.MODE) or self.state == "measuring"
        if action == "leave":
            return isinstance(self.focused, Input)
        if action in ("start", "choose") and self.state == "measuring":
            return False
        if action == "choose":
            return self.state == "done"
        if action == "target":
            return self.state == "setup"
        if action == "report":
            return self.state == "setup" and self._result is not None
        if action == "export":
            return self.state == "done"
        if action == "resume":
            return self.state == "done" and bool(self._result and self._result["resume"])
        return True

    def action_leave(self) -> None:
        self.query_one("#drafters", SelectionList).focus()

    # ---- what to measure ----------------------------------------------------------------------

    def _setup_changed(self, setup: Setup) -> None:
        if setup.model is None:
            self.query_one(BenchSetup).say("Choose a model first: m here, or F2.", problem=True)
        else:
            self._look_up(setup.model)

    @work(exclusive=True, group="target")
    async def _look_up(self, model: str) -> None:
        def resolve() -> Target:
            from localspec.catalog import resolve_target

            return resolve_target(model)

        setup = self.query_one(BenchSetup)
        await self.localspec.undisturbed()  # first the screen is there: reading slows its drawing
        try:
            setup.offer(await asyncio.to_thread(resolve), model)
        except LocalspecError as error:
            setup.say(str(error), problem=True)

    def action_target(self) -> None:
        self._list_targets(expand=True)

    @on(Targets.Asked)
    def _targets_asked(self) -> None:
        self._list_targets(expand=False)

    @work(exclusive=True, group="targets")
    async def _list_targets(self, *, expand: bool) -> None:
        def find() -> list[Here]:
            from localspec.tui.model_rows import HERE, OTHERS, read, rows

            found = rows(read(), ())
            return [
                Here(row.name, row.words, row.path)
                for row in found
                if row.group in (HERE, OTHERS) and row.path is not None
            ]

        try:
            here = await asyncio.to_thread(find)
        except LocalspecError as error:
            self.tell(error)
            return
        if not here:
            self.notify("No model is here: F2 gets one.", severity="warning")
        setup = self.query_one(BenchSetup)
        setup.offer_targets(here)
        if expand and self.state == "setup":
            setup.choose_target()

    @on(BenchSetup.TargetChosen)
    def _target_chosen(self, message: BenchSetup.TargetChosen) -> None:
        self.localspec.use(model=message.words)

    @on(BenchSetup.Changed)
    def _choice_changed(self) -> None:
        if options := self._options():
            self._foresee(options)
        else:  # what was foreseen for the choice before is not to be said of this one
            self.workers.cancel_group(self, "foresee")

    def _options(self) -> BenchOptions | None:
        setup = self.query_one(BenchSetup)
        if self.localspec.setup.model is None:
            return None
        try:
            return setup.options(self.localspec.setup)
        except UsageError as error:
            setup.say(str(error), problem=True)
            return None

    @work(exclusive=True, group="foresee")
    async def _foresee(self, options: BenchOptions) -> None:
        def asked() -> list[str]:
            from localspec.bench.workloads import on_the_hub

            return [name for name in options.workloads if on_the_hub(name)]

        def expected() -> str:
            from localspec.bench.command import select
            from localspec.bench.foresight import foresee

            return in_words(foresee(select(options)))

        setup = self.query_one(BenchSetup)

        def looking(names: Sequence[str]) -> None:
            setup.say(f"looking at {', '.join(names)} ...")

        def late() -> None:
            if not known:  # one that is due is dealt with later than it is stopped
                looking(options.workloads)

        known = False
        timer = self.set_timer(SAID_SECONDS, late)
        try:
            if names := await asyncio.to_thread(asked):
                known = True
                looking(names)
                await asyncio.sleep(TYPED_SECONDS)
            said, problem = await asyncio.to_thread(expected), False
        except LocalspecError as error:
            said, problem = str(error), True
        finally:
            known = True
            timer.stop()
        setup.say(said, problem=problem)

    # ---- measuring ----------------------------------------------------------------------------

    @on(Button.Pressed, "#start")
    def action_start(self) -> None:
        if self.localspec.setup.model is None:
            self.notify_here("Choose a model first: m here, or F2.", severity="warning")
        elif options := self._options():
            self._measure(options)

    def action_resume(self) -> None:
        assert self._result is not None
        self._resume(self._result)

    def _asked_to_resume(self, result: Json | None) -> None:
        if result is not None:
            self.localspec.to_resume = None
            self._resume(result)

    @work(group="resume")
    async def _resume(self, result: Json) -> None:
        """Of the target that it was begun with, whichever is chosen now."""

        def read() -> Unfinished:
            from localspec.bench.resume import unfinished_of

            return unfinished_of(result, "This")

        try:
            unfinished = await asyncio.to_thread(read)
        except LocalspecError as error:
            self.tell(error)
        else:
            self._measure(unfinished.options, unfinished)

    @work(group="measure")
    async def _measure(self, options: BenchOptions, unfinished: Unfinished | None = None) -> None:
        """Measure, show it as it goes, keep it in the history."""
        if not await self.engine.settled(self.MODE):
            return
        before = self.state, self._said, self._remarks
        try:
            job = self.engine.start(
                "Benching", lambda job: self._made(job, options, unfinished), self.MODE
            )
        except LocalspecError as error:
            self.tell(error)
            return
        self._remarks = []
        self._show_remarks()
        self.query_one(ProgressBar).update(total=None, progress=0)
        self._told(Told("loading"))
        self.query_one(ReportView).clear()
        self.state = "measuring"
        try:
            result, number = await job
            if result is None:
                from localspec.bench.history import NOTHING_NEW

                self.notify_here(NOTHING_NEW)
        except LocalspecError as error:
            self.tell(error)
            result = None
        await self.heard_all()
        if result is None:
            state, said, self._remarks = before
            self.state = state if self._result else "setup"
            self._told(Told(said))
            self._show_remarks()
            if self._result is not None:
                self.query_one(ReportView).show(self._result)
            return
        self._result = result
        self.localspec.last_kept = number
        self.query_one(ReportView).show(result)
        self.state = "done"
        stopped = result["status"] == "interrupted"
        kept = f"kept as number {number} of the history" if number else "not kept"
        self._told(Told(f"{'Stopped' if stopped else 'Finished'}; {kept}."))

    def _made(
        self, job: Job[Any], options: BenchOptions, unfinished: Unfinished | None
    ) -> tuple[Json | None, int | None]:
        """In the engine's thread: the result and its number in the history, if it has them."""
        from localspec.bench import history
        from localspec.bench.command import measure, select
        from localspec.bench.report import result as result_of

        show = make_display(job, self.post_message)
        try:
            report = measure(select(options), show, unfinished, self.engine.connect)
        except KeyboardInterrupt:  # before there was a run
            return None, None
        result = result_of(report)
        if not (result["rows"] and history.has_new(result)):
            return None, None
        try:
            return result, history.keep(result)
        except LocalspecError as error:
            self.post_message(Remarked(str(error)))
            return result, None

    @on(Told)
    def _told(self, message: Told) -> None:
        self._said = message.text
        self.query_one("#progress Static", Static).update(Content(message.text))
        if message.total is not None:
            self.query_one(ProgressBar).update(total=message.total, progress=message.done or 0)

    @on(Remarked)
    def _remarked(self, message: Remarked) -> None:
        self._remarks.append(message.text)
        self._show_remarks()

    def _show_remarks(self) -> None:
        place = self.query_one("#remarks", Static)
        place.display = bool(self._remarks)
        place.update(Content("\n".join(self._remarks)))

    @on(Grown)
    def _grown(self, message: Grown) -> None:
        if self.state == "measuring":
            self.query_one(ReportView).show(message.result, live=True)

    # ---- afterwards ---------------------------------------------------------------------------

    def action_choose(self) -> None:
        self.state = "setup"

    def action_report(self) -> None:
        self.state = "done"

    @work(group="export")
    async def action_export(self) -> None:
        assert self._result is not None
        await export(self, self._result)


def make_display(job: Job[Any], post: Callable[[Message], object]) -> Any:
    """A display of the headless bench that posts messages, and ends it when ``job`` is cancelled.

    Made in the engine's thread: the bench's modules are imported there, not by the first paint.
    """
    from localspec.bench.progress import PHASES, Quiet, comparing, starting, warming_up
    from localspec.bench.report import result
    from localspec.bench.runner import Comparing, Notice, Ran, Running, Starting, WarmingUp

    class Display(Quiet):
        def __init__(self) -> None:
            self._so_far: Callable[[], Report] | None = None
            self._drawn = 0.0
            self._phase = ""

        def say(self, text: str) -> None:
            self._stop_if_cancelled()
            post(Remarked(text))

        def follow(self, so_far: Callable[[], Report]) -> None:
            self._so_far = so_far

        def __call__(self, event: Event) -> None:
            match event:
                case WarmingUp():
                    post(Told(warming_up(event), event.number - 1, event.total))
                case Starting():
                    self._phase = "" if event.phase == "main" else f"  {PHASES[event.phase]}"
                    post(Told(starting(event), 0, event.rows))
                case Running():
                    post(Told(running(event, self._phase), event.done, event.total))
                case Ran() if self._so_far and time.monotonic() - self._drawn >= DRAW_SECONDS:
                    post(Grown(result(self._so_far())))
                    self._drawn = time.monotonic()
                case Comparing():
                    post(Told(comparing(event)))
                case Notice():
                    post(Remarked(event.text))
                    return  # it may be said while another end is being made
            self._stop_if_cancelled()

        def _stop_if_cancelled(self) -> None:
            if job.cancelled:
                raise KeyboardInterrupt

    return Display()


SPEED_COLUMNS = len("100.0 tok/s")


def running(event: Running, phase: str) -> str:
    """ "57/136  about 1 min 2 s left  eagle3 n=2   64.1 tok/s  p5". What a narrow terminal has no
    room for is cut from its end: the prompt's name is missed the least."""
    from localspec.units import duration

    speed = f"{event.tps:.1f} tok/s" if event.tps else ""
    left = f"about {duration(event.eta)} left"
    who = f"{event.slot.candidate.key}  {speed:>{SPEED_COLUMNS}}"
    where = event.slot.prompt.prompt.id
    return f"{event.done + 1}/{event.total}  {left}  {who}{phase}  {where}"


def in_words(found: Foreseen) -> str:
    """ "17 prompts x 5 candidates = 85 runs, about 6 min 10 s"."""
    from localspec.units import duration

    prompts = f"{found.prompts} prompt{'' if found.prompts == 1 else 's'}"
    candidates = f"{found.candidates} candidate{'' if found.candidates == 1 else 's'}"
    each = found.runs // (found.prompts * found.candidates)
    times = f" x {each} runs" if each > 1 else ""
    what = f"{prompts} x {candidates}{times} = {found.runs} runs"
    if found.since is not None and found.seconds is not None:
        when = age(time.time() - found.since)
        return f"{what}, about {duration(found.seconds)} by the speeds of {when}"
    if found.seconds is not None:
        return f"about {duration(found.seconds)}, with as many of {what} as fit"
    return f"{what}; how long that takes is said after the warm-up"
