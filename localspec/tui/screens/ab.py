"""A/B: one prompt with and without the drafter, side by side, and the race of two of the runs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from rich.text import Text
from textual import on, work
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.events import Resize
from textual.message import Message
from textual.reactive import var
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Label, Select, Static

from localspec.errors import LocalspecError
from localspec.tui.engine import Job
from localspec.tui.live import Meter
from localspec.tui.race import Race, Timeline, text_of_passes
from localspec.tui.screens.base import ModeScreen
from localspec.tui.widgets.interval_bar import IntervalBar
from localspec.tui.widgets.pass_text import PassText
from localspec.tui.widgets.prompt import Prompt
from localspec.tui.widgets.side import MUTED, SideFigures, SideHead, parts_of
from localspec.tui.widgets.steady import Steady
from localspec.units import many, speedup

if TYPE_CHECKING:  # imported in the engine's thread, after the first paint
    from localspec.bench.ab import Outcome, Planned, Standing
    from localspec.bench.audit import Audit
    from localspec.bench.rows import Row
    from localspec.bench.runner import Event, Running
    from localspec.catalog import Target
    from localspec.records import BenchOptions, Generation, Span, Step
    from localspec.tui.app import Setup

SideName = Literal["baseline", "drafted"]
SIDES: tuple[SideName, ...] = get_args(SideName)
LETTERS = {"baseline": "A", "drafted": "B"}
FIRST_PROMPT = "Write a Python function that returns the second largest number in a list."
LENGTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
TOKENS = (64, 128, 256, 512, 1024)
RECOMMENDED = "recommended"
FRAME_SECONDS = 1 / 20
KEPT_RESULTS = 5
TRACK = 24
"""Columns of a race's track, at the most."""


class Told(Message):
    """From the engine's thread: what happens in the measurement."""

    def __init__(self, event: Event | Planned | Standing) -> None:
        self.event = event
        super().__init__()


class Hand:
    """The person's hand on a measurement, in both threads: hold it, or let it end after a pair."""

    def __init__(self) -> None:
        self.job: Job[Outcome | None] | None = None
        self.enough = False
        self._go = threading.Event()
        self._go.set()

    @property
    def held(self) -> bool:
        return not self._go.is_set()

    def toggle(self) -> None:
        if self.held:
            self._go.set()
        else:
            self._go.clear()

    def hold(self) -> None:
        while not self._go.wait(0.1):
            self.stop_if_cancelled()

    def finished(self) -> bool:
        return self.enough

    def stop_if_cancelled(self) -> None:
        """As Ctrl-C does on the command line."""
        if self.job is not None and self.job.cancelled:
            raise KeyboardInterrupt


@dataclass
class Live:
    """The run that goes on, on one side."""

    spans: list[Span] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    meter: Meter = field(default_factory=Meter)


@dataclass(frozen=True)
class Result:
    """A finished A/B, as a line."""

    prompt: str
    name: str
    speedup: Content
    output: Content
    doubt: str = ""


class Texts(VerticalScroll, can_focus=True):
    """Both texts under one scroll bar: they move together."""


class ABScreen(ModeScreen):
    MODE = "ab"
    AUTO_FOCUS = "Texts"
    EXPLAINS: ClassVar[tuple[str, ...]] = (
        "speedup",
        "verdict",
        "pairs",
        "tok/s",
        "accept length",
        "passes",
        "step time",
        "identical",
        "race",
        "draft length",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "Stop", tooltip="End the measurement or the race", show=False),
        Binding("escape", "leave", "Keys", tooltip="Leave the prompt: one letter is enough then"),
        Binding("s", "measure", "Start", tooltip="Measure this prompt on both sides"),
        Binding("space", "pause", "Pause", tooltip="Pause after this pair, or the race; go on"),
        Binding("f", "finish", "Finish", tooltip="End after this pair, and judge what there is"),
        Binding("r", "race", "Race", tooltip="Replay two runs side by side, from the start"),
        Binding("x", "speed", "Speed", tooltip="The race at 1x, 2x or half its speed"),
        Binding("left_square_bracket", "other_pair(-1)", "Earlier pair", show=False),
        Binding("right_square_bracket", "other_pair(1)", "Later pair", show=False),
        Binding("e", "edit", "Edit", tooltip="Write another prompt"),
        Binding("d", "choose('drafter')", "Drafter", tooltip="Choose the drafter"),
        Binding("l", "choose('length')", "Length", tooltip="Choose the draft length"),
        Binding("t", "choose('tokens')", "Tokens", tooltip="Tokens of each run", show=False),
        Binding("b", "blocks", "Blocks", tooltip="Show which tokens came in one target pass"),
    ]
    DEFAULT_CSS = """
    ABScreen {
        Prompt { min-height: 3; max-height: 6; }
        #choices { height: 1; padding: 0 1; }
        #choices Label { color: $text-muted; padding: 0 1 0 0; }
        #choices #model {
            width: auto; max-width: 40; margin-right: 1; color: $foreground; text-style: bold;
            text-wrap: nowrap; text-overflow: ellipsis;
        }
        #choices Select { width: 24; margin-right: 2; }
        #choices #length { width: 17; }
        #choices #tokens { width: 9; }
        #state { height: auto; padding: 0 1; color: $text-muted; }
        .pair { height: auto; }
        #texts .pair, #texts PassText { min-height: 100%; }
        #heads { height: 1; }
        #texts { height: 1fr; }
        #verdict { height: 1; padding: 0 1; }
        #verdict #speedup { width: 1fr; }
        #verdict #output { width: auto; }
        #text-drafted, #figures-drafted { border-left: vkey $border-blurred; }
        #doubt { height: auto; padding: 0 1; color: $text-warning; }
        #earlier { height: auto; max-height: 6; padding: 0 1; color: $text-muted; }
        &.-low Prompt { max-height: 4; }
        &.-low #earlier { display: none; }
        &.-narrow #choices #model { max-width: 15; }
        &.-narrow #choices Select { width: 18; margin-right: 1; }
        &.-narrow #choices #length { width: 15; }
        &.-narrow #choices #tokens { width: 8; }
    }
    """

    measuring: var[bool] = var(False, bindings=True)
    racing: var[bool] = var(False, bindings=True)

    def __init__(self) -> None:
        super().__init__()
        self.clock = time.monotonic
        self._hand = Hand()
        self._planned: Planned | None = None
        self._standing: Standing | None = None
        self._audit: Audit | None = None
        self._rows: list[Row] = []
        self._live: dict[SideName, Live] = {}
        self._at_work: SideName | None = None
        self._stage = ""
        self._again = 0
        """So many pairs are being made again: one was disturbed, or the engine died in it."""
        self._doubt = ""
        self._by = ""  # how the engine runs, where not as usual
        self._results: list[Result] = []
        self._last: Outcome | None = None
        """That of the newest result."""
        self._newest_shown = False
        """Is what stands on the screen the newest result?"""
        self._chosen_in: Select[Any] | None = None
        """The drop-down that had the focus before they were closed to changes."""
        self._race: Race | None = None
        self._race_pair = 0
        self._frames: Timer

    # ---- what is on it ------------------------------------------------------------------------

    def body(self) -> Iterable[Widget]:
        drafter, length = _drafter_of(self.localspec.setup), _length_of(self.localspec.setup)
        yield Prompt()
        with Horizontal(id="choices"):
            yield Label(id="model", markup=False)
            yield Label("drafter")
            yield Select[str](
                [(Text(drafter), drafter)],
                value=drafter,
                id="drafter",
                allow_blank=False,
                compact=True,
            )
            yield Label("n")
            yield Select[str](
                _lengths(length), value=length, id="length", allow_blank=False, compact=True
            )
            yield Label("tokens")
            yield Select[int](
                [(str(n), n) for n in TOKENS],
                value=128,
                id="tokens",
                allow_blank=False,
                compact=True,
            )
        yield Steady(id="state")
        with Horizontal(id="heads"):
            yield SideHead(id="head-baseline")
            yield SideHead(id="head-drafted")
        with Texts(id="texts"), Horizontal(classes="pair"):
            for side in SIDES:
                yield PassText(id=f"text-{side}")
        with Horizontal(classes="pair"):
            for side in SIDES:
                yield SideFigures(id=f"figures-{side}")
        with Horizontal(id="verdict"):
            yield Steady(id="speedup")
            yield Steady(id="output")
        yield IntervalBar(id="interval")
        yield Static(id="doubt")
        yield Steady(id="earlier")

    def on_mount(self) -> None:
        prompt = self.query_one(Prompt)
        prompt.text = FIRST_PROMPT
        prompt.move_cursor(prompt.document.end)
        self.watch(self.app, "setup", self._setup_changed)
        self._frames = self.set_interval(FRAME_SECONDS, self._frame, pause=True)

    def on_resize(self, _event: Resize) -> None:
        self.call_after_refresh(self._draw)

    def on_screen_suspend(self) -> None:
        if self._race is not None:
            self._race.clock.cover()
            self._frames.pause()
            self._draw_state()

    def on_screen_resume(self) -> None:
        if self._race is not None:
            self._race.clock.uncover()
            self._frames.resume()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        match action:
            case "stop":
                return self.measuring or self.racing
            case "leave":
                return isinstance(self.focused, Prompt)
            case "measure":
                return not self.measuring
            case "choose" | "edit":
                return not self.measuring and not self.racing
            case "finish":
                return self.measuring
            case "pause":
                return self.measuring or self.racing
            case "race":
                return not self.measuring and bool(self._pairs())
            case "speed" | "other_pair":
                return self.racing
        return True

    def watch_measuring(self) -> None:
        self._close_choices()

    def watch_racing(self) -> None:
        self._close_choices()

    def _take_keys(self) -> None:
        """A field would take those of a measurement or a race for its own."""
        around = self.focused.ancestors_with_self if self.focused is not None else ()
        self._chosen_in = next((n for n in around if isinstance(n, Select)), self._chosen_in)
        self.set_focus(self.query_one(Texts))

    def _close_choices(self) -> None:
        """What is measured or raced is not changed meanwhile."""
        closed = self.measuring or self.racing
        for select in self.query(Select):
            select.disabled = closed
        if not closed:
            if self._chosen_in is not None and isinstance(self.focused, Texts):
                self.set_focus(self._chosen_in)
            self._chosen_in = None

    # ---- choices ------------------------------------------------------------------------------

    def _setup_changed(self, setup: Setup) -> None:
        self.query_one("#model", Label).update(_name_of(setup.model))
        self._show_choice(setup, [])
        if setup.model is not None:
            self._list_drafters(setup)

    @work(exclusive=True, group="drafters")
    async def _list_drafters(self, setup: Setup) -> None:
        def find() -> Target:
            from localspec.catalog import resolve_target

            assert setup.model is not None
            return resolve_target(setup.model)

        try:
            target = await asyncio.to_thread(find)
        except LocalspecError as error:
            self._stage = error.message
            self._draw()
            return
        names = [
            (d.name + (" ★" if d.recommended else "") + (" (not here)" if d.absent else ""), d.name)
            for d in target.drafters
        ]
        self.query_one("#model", Label).update(target.name)
        self._show_choice(setup, names)

    def _show_choice(self, setup: Setup, drafters: Sequence[tuple[str, str]]) -> None:
        chosen, length = _drafter_of(setup), _length_of(setup)
        known = [("auto", "auto"), *drafters]
        if chosen not in [value for _, value in known]:
            known.append((chosen, chosen))
        plain = [(Text(words), value) for words, value in known]  # a str would be markup
        for name, options, value in (
            ("drafter", plain, chosen),
            ("length", _lengths(length), length),
        ):
            select = self.query_one(f"#{name}", Select)
            with select.prevent(Select.Changed):
                select.set_options(options)
                select.value = value
        self._draw()

    @on(Select.Changed)
    def _chosen(self, event: Select.Changed) -> None:
        setup, value = self.localspec.setup, str(event.select.value)
        if event.select.id == "drafter" and value != _drafter_of(setup):
            self.localspec.use(drafter=value)
        elif event.select.id == "length" and value != _length_of(setup):
            self.localspec.use(
                n_max=None if value == RECOMMENDED else "auto" if value == "auto" else int(value)
            )
        if event.select.has_focus_within:
            self.query_one(Texts).focus()

    def action_choose(self, what: str) -> None:
        select = self.query_one(f"#{what}", Select)
        select.focus()
        select.expanded = True

    def action_edit(self) -> None:
        self.query_one(Prompt).focus()

    def action_leave(self) -> None:
        self.query_one(Texts).focus()

    # ---- measuring ----------------------------------------------------------------------------

    @on(Prompt.Sent)
    def _sent(self) -> None:
        if not self.measuring:
            self.action_measure()

    def action_measure(self) -> None:
        text = self.query_one(Prompt).text
        if self.localspec.setup.model is None:
            self.notify("Choose a model first: F2.", severity="warning")
        elif not text.strip():
            self.notify("Write a prompt first.", severity="warning")
        elif self.engine.taken:
            self.tell(self.engine.refusal(self.MODE))
        else:
            self._leave_race()
            self._clear()
            self._take_keys()
            self._measure(text)

    def _clear(self) -> None:
        self._hand = Hand()
        self._planned = self._standing = self._audit = None
        self._rows = []
        self._live = {}
        self._at_work = None
        self._stage = "starting"
        self._again = 0
        self._newest_shown = False
        self._doubt = ""
        self.query_one(IntervalBar).clear()

    def _options(self, prompt: str) -> BenchOptions:
        from localspec.records import BenchOptions

        setup = self.localspec.setup
        assert setup.model is not None
        self._by = str(setup.engine)
        return BenchOptions(
            model=setup.model,
            drafters=(_drafter_of(setup),),
            n_max=() if setup.n_max is None else (setup.n_max,),
            p_min=setup.p_min,
            trees=(setup.tree,) if setup.tree else (),
            chains=not setup.tree,
            prompt=prompt,
            engine=setup.engine.measuring(),
            max_tokens=int(str(self.query_one("#tokens", Select).value)),
        )

    @work(group="measure")
    async def _measure(self, prompt: str) -> None:
        hand = self._hand

        def work(job: Job[Outcome | None]) -> Outcome | None:
            from localspec.bench import ab
            from localspec.bench.runner import Running, Starting, WarmingUp

            hand.job = job
            options = self._options(prompt)

            def tell(event: Event | Planned | Standing) -> None:
                self.post_message(Told(event))
                if isinstance(event, WarmingUp | Starting | Running):
                    hand.stop_if_cancelled()

            try:
                return ab.measure(options, tell, hand, self.engine.connect)
            except KeyboardInterrupt:  # before anything was measured
                return None

        self.measuring = True
        self._draw()
        try:
            outcome = None
            if await self.engine.settled(self.MODE):
                outcome = await self.engine.start("Measuring", work, self.MODE)
        except LocalspecError as error:
            self.tell(error)
            self._stage = error.message
            outcome = None
        await self.heard_all()
        self.measuring = False
        self._at_work = None
        if outcome is not None:
            self._ended(outcome, prompt)
        elif self._stage in ("starting", "warming up"):
            self._stage = "stopped before the first run"
        if not self._pairs() and self._last is not None:
            self._show(self._last)
            sentence = self._stage.endswith(".")
            self._stage += " Shown: the last result." if sentence else " · shown: the last result"
        self._draw()

    @on(Told)
    def _told(self, message: Told) -> None:
        from localspec.bench.ab import Planned, Standing
        from localspec.bench.runner import Comparing, Notice, Ran, Running, Starting, WarmingUp

        match message.event:
            case Planned() as planned:
                self._planned = planned
            case WarmingUp():
                self._stage = "warming up"
            case Starting(phase=phase, rows=rows):
                self._again = rows // 2 if phase == "repeat" else 0
            case Comparing():
                self._stage = "comparing the output"
            case Running() as event:
                self._heard(event)
                return
            case Ran(row=row):
                self._rows.append(row)
                self._at_work, self._stage = None, ""
            case Standing() as standing:
                self._standing = standing
                self._show_interval()
            case Notice(text=text):
                self.notify(text, severity="warning", markup=False)
        self._draw()

    def _side(self, row: Row | Running) -> SideName:
        return "baseline" if row.slot.candidate.is_baseline else "drafted"

    def _heard(self, event: Running) -> None:
        side = self._side(event)
        self._stage = ""
        if event.chunk is None:  # a run begins
            self._at_work = side
            self._live[side] = Live()
            self._draw()
            return
        live = self._live.setdefault(side, Live())
        live.spans += event.chunk.spans
        live.steps += event.chunk.steps
        live.meter.take(event.chunk.steps)
        self._draw_side(side)

    def _show(self, outcome: Outcome) -> None:
        from localspec.bench.table import flag_note

        self._planned, self._standing = outcome.planned, outcome.standing
        self._rows, self._audit = outcome.measurement.rows, outcome.audit
        self._live = {}
        disturbed, runs = outcome.disturbed
        doubts = flag_note("disturbed", disturbed, runs) if disturbed else "", outcome.left_out
        self._doubt = "\n".join(filter(None, doubts))
        self._show_interval()

    def _ended(self, outcome: Outcome, prompt: str) -> None:
        self._show(outcome)
        self._stage = outcome.ending
        disturbed, runs = outcome.disturbed
        if outcome.standing.comparison.pairs:
            planned = outcome.planned
            tokens = planned.plan.max_tokens
            name = f"{planned.target.name}, {planned.drafted.session} · {tokens} tokens"
            if self._by:
                name += f" · {self._by}"
            one_line = " ".join(prompt.split())
            doubt = f"{disturbed} of {runs} runs disturbed  " if disturbed else ""
            result = Result(one_line, name, self._speedup_line(), self._output_line(), doubt)
            self._results = [result, *self._results][:KEPT_RESULTS]
            self._last, self._newest_shown = outcome, True

    def action_finish(self) -> None:
        self._hand.enough = True
        if self._hand.held:
            self._hand.toggle()
        self._draw_state()

    def action_pause(self) -> None:
        if self._race is not None:
            self._race.toggle()
            self._draw()
        elif self.measuring:
            self._hand.toggle()
            self._draw_state()

    def action_stop(self) -> None:
        if self.racing:
            self._leave_race()
            self._draw()
        else:
            super().action_stop()

    # ---- race ---------------------------------------------------------------------------------

    def _pairs(self) -> list[tuple[Generation, Generation]]:
        """Baseline's run and the other next to it, of every pair that counts."""
        paired = self._standing.pairs if self._standing is not None else ()
        return [
            (plain.generation, drafted.generation)
            for drafted, plain in paired
            if plain.generation and drafted.generation and plain.generation.tokens
        ]

    def _made(self, side: SideName) -> list[Generation]:
        """The whole runs of one side, those without a partner too."""
        runs = (r for r in self._rows if self._side(r) == side and r.in_pairs)
        return [r.generation for r in runs if r.generation]

    def _runs(self, side: SideName) -> list[Generation]:
        """Those that its figures are of: as soon as there is a pair, the runs of pairs."""
        pairs = self._pairs()
        return [pair[SIDES.index(side)] for pair in pairs] if pairs else self._made(side)

    def _typical_pair(self, pairs: Sequence[tuple[Generation, Generation]]) -> int:
        """The one whose speedup is nearest to the mean of all."""
        mean = self._standing.comparison.speedup if self._standing else None

        def distance(i: int) -> float:
            plain, drafted = pairs[i]
            if mean is None or not plain.decode_tps or not drafted.decode_tps:
                return 0.0
            return abs(drafted.decode_tps / plain.decode_tps / mean - 1)

        return min(range(len(pairs)), key=distance)

    def action_race(self) -> None:
        pairs = self._pairs()
        if self._race is not None:
            self._race.clock.restart()
        elif pairs:
            self._start_race(self._typical_pair(pairs))
        self._draw()

    def _start_race(self, pair: int) -> None:
        speed = self._race.clock.speed if self._race else 1.0
        plain, drafted = self._pairs()[pair]
        self._race_pair = pair
        self._race = Race(Timeline.of(plain), Timeline.of(drafted), self.clock)
        self._race.clock.set_speed(speed)
        self._race.clock.start()
        self._take_keys()
        self.racing = True
        self.query_one(Texts).scroll_home(animate=False)
        self._frames.resume()

    def action_other_pair(self, by: int) -> None:
        self._start_race((self._race_pair + by) % len(self._pairs()))

    def action_speed(self) -> None:
        if self._race is not None:
            self._race.next_speed()
            self._draw_state()

    def _leave_race(self) -> None:
        self._race = None
        self.racing = False
        self._frames.pause()

    def _frame(self) -> None:
        race = self._race
        if race is not None and race.clock.running:
            if race.over:
                race.clock.pause()
            self._draw_state()
            for side in SIDES:
                self._draw_side(side)

    # ---- drawing ------------------------------------------------------------------------------

    def action_blocks(self) -> None:
        for text in self.query(PassText):
            text.blocks = not text.blocks
            text.draw()

    def _draw(self) -> None:
        self._draw_state()
        for side in SIDES:
            self._draw_side(side)
        self.query_one("#speedup", Static).update(self._speedup_line())
        self.query_one("#output", Static).update(self._output_line())
        doubt = self.query_one("#doubt", Static)
        doubt.display = bool(self._doubt)
        doubt.update(Content(self._doubt))
        self._draw_earlier()

    def _draw_state(self) -> None:
        self.query_one("#state", Static).update(
            self._race_state() if self._race is not None else self._measure_state()
        )

    def _measure_state(self) -> Content:
        if not self.measuring:
            if self._stage:
                return Content(self._stage)
            return Content("s or Enter in the prompt: both sides answer in turn, and are timed.")
        then = " · then ended" if self._hand.enough else " · then paused" if self._hand.held else ""
        if self._stage:
            return Content(f"{self._stage} …{then}")
        from localspec.bench.ab import FEWEST_PAIRS, MOST_PAIRS

        pairs = len(self._pairs())
        pair = pairs + 1
        words = f"pair {pair} of {FEWEST_PAIRS} to {MOST_PAIRS}"
        if self._again:
            made = sum(r.slot.phase == "repeat" for r in self._rows)
            again = f"{min(made // 2 + 1, self._again)} of {self._again}"
            words = f"{many(pairs, 'pair')} · again {again}: what was disturbed or cut short"
            return Content(words + then)
        if self._hand.enough:
            words = f"pair {pair}, the last"
        elif self._hand.held:
            words += " · pauses after it, space goes on" if self._at_work else " · paused"
        return Content.assemble(words, " · order ", self._order())

    def _order(self) -> Content:
        """The runs so far by their letters, a pair together, the running one marked."""
        letters = [LETTERS[self._side(r)] if r.generation else "✗" for r in self._rows]
        done = ["".join(letters[i : i + 2]) for i in range(0, len(letters), 2)]
        now = f"▸{LETTERS[self._at_work]}" if self._at_work else ""
        if len(letters) % 2 and now:
            done[-1] += now
            now = ""
        shown = " ".join([*done, now][-10:]).strip()
        return Content(shown).stylize("$foreground")

    def _race_state(self) -> Content:
        race, pairs = self._race, len(self._pairs())
        assert race is not None
        sign = "▶" if race.clock.moving else "■" if race.over else "❚❚"
        speed = f"{race.clock.speed:g}x"
        keys = "space, r restart, x speed, [ ] other pair, Esc"
        return Content.assemble(
            (f"{sign} {race.now:5.2f} s", "bold $foreground"),
            f" · {speed} · pair {self._race_pair + 1}/{pairs} · {keys}",
        )

    def _draw_side(self, side: SideName) -> None:
        head = self.query_one(f"#head-{side}", SideHead)
        text = self.query_one(f"#text-{side}", PassText)
        figures = self.query_one(f"#figures-{side}", SideFigures)
        letter, name = LETTERS[side], self._side_name(side)
        rows = max(1, self.query_one(Texts).size.height)
        if self._race is not None:
            line = self._race.runners[SIDES.index(side)]
            done = line.passes_at(self._race.now)
            head.show(letter, name, self._track(line))
            text.show(line.texts[:done], rows=rows)
            self._draw_figures(side, figures)
            return
        live = self._live.get(side)
        if live is not None and self._at_work == side:
            tokens = sum(s.tokens for s in live.spans)
            total = self._planned.plan.max_tokens if self._planned else 0
            head.show(letter, name, Content(f"▶ {tokens}/{total}").stylize("$text-warning"))
            text.show(text_of_passes(live.spans, live.steps), rows=rows)
            if live.steps:
                figures.show(live.meter.now, live.meter.counts.accept_length, *self._parts(side))
                return
        else:
            runs = self._runs(side)
            head.show(letter, name, many(len(runs), "run") if runs else "")
            shown = self._made(side) if self.measuring else runs
            last = shown[-1] if shown else None
            texts = text_of_passes(last.spans, last.steps) if last else []
            text.show(texts, rows=rows if self.measuring else None, parted=self._parts_at(last))
        self._draw_figures(side, figures)

    def _side_name(self, side: SideName) -> str:
        if side == "baseline":
            return "baseline"
        return self._planned.drafted.session if self._planned else _drafter_of(self.localspec.setup)

    def _track(self, line: Timeline) -> Content:
        """How far a runner is; at the end its place and how far it was behind."""
        race = self._race
        assert race is not None
        tokens = line.tokens_at(race.now)
        behind = race.behind(line)
        if behind is None:
            word = f" {tokens}/{line.total}"
        elif behind <= 0:
            word = f" ⚑ 1st {line.end:.2f} s"
        else:
            word = f" ⚑ 2nd +{behind:.2f} s"
        width = self.query_one(f"#head-{SIDES[0]}", SideHead).content_size.width
        name = min(max(len(self._side_name(side)) for side in SIDES), width // 2)
        columns = max(0, min(TRACK, width - len("A ") - name - 1 - len(word)))
        cells = round(columns * tokens / line.total) if line.total else 0
        colour = "$text-success" if behind is not None and behind <= 0 else "$text-primary"
        return Content.assemble(
            ("━" * cells, colour), ("─" * (columns - cells), MUTED), (word, "bold")
        )

    def _parts(self, side: SideName) -> tuple[dict[str, float] | None, float]:
        """Milliseconds of a pass's parts, and the longer pass of both, which scales the bars."""
        standing = self._standing
        if standing is None:
            return None, 0.0
        both = [parts_of(m.figures) for m in (standing.baseline, standing.drafted)]
        return both[SIDES.index(side)], max(sum(p.values()) for p in both if p) if any(both) else 0

    def _draw_figures(self, side: SideName, widget: SideFigures) -> None:
        standing = self._standing
        if standing is None or not standing.pairs:
            made = self._made(side)
            if made:
                widget.show(made[-1].decode_tps, made[-1].counts.accept_length)
            else:
                widget.show(None, None)
            return
        figures = (standing.baseline if side == "baseline" else standing.drafted).figures
        widget.show(figures.decode_tps, figures.counts.accept_length, *self._parts(side))

    def _parts_at(self, run: Generation | None) -> int | None:
        """The pass in which the output is no longer the other side's."""
        if run is None or not self._audit or not self._audit.divergences:
            return None
        return Timeline.of(run).pass_of(self._audit.divergences[0].token)

    # ---- what it shows ------------------------------------------------------------------------

    def _show_interval(self) -> None:
        if self._standing is not None:
            comparison = self._standing.comparison
            bar, ended = self.query_one(IntervalBar), not self.measuring
            bar.show(comparison.speedup, comparison.interval, ended=ended)

    def _speedup_line(self) -> Content:
        """1.12x [1.05, 1.19] faster ▲ (this prompt only)"""
        standing = self._standing
        found = standing.comparison if standing is not None else None
        if standing is None or found is None or found.speedup is None:
            return Content("speedup: not measured yet").stylize(MUTED)
        times, space, interval = speedup(found.speedup, found.interval).partition(" ")
        parts: list[Content | str | tuple[str, str]] = [(times, "bold"), space + interval]
        if found.interval is None:
            few = " an interval needs 3 pairs" if self.measuring else " too few pairs"
            parts.append((few, MUTED))
        if self.measuring and found.interval is not None:
            parts.append((" measuring …", "$text-warning"))
        elif not self.measuring:
            parts.append(VERDICTS[standing.drafted.verdict])
        return Content.assemble(*parts, (" (this prompt only)", MUTED))

    def _output_line(self) -> Content:
        """Is the output the baseline's? What differs is classed at the end."""
        pairs = self._pairs()
        if self._planned is None or not pairs:
            return Content()
        from localspec.bench.audit import comparable, first_difference

        if not comparable(self._planned.drafted):
            return Content("output not comparable").stylize(MUTED)
        if self._audit is not None and self._audit.divergences:
            found = self._audit.divergences
            worst = next((d for d in found if d.kind == "MISMATCH"), found[0])
            if worst.kind == "MISMATCH":
                return Content(f"✗ MISMATCH at {worst.token}").stylize("$text-error bold reverse")
            word = worst.kind or "not classed, parts"
            return Content(f"~ {word} at {worst.token}").stylize("$text-warning")
        plain, drafted = pairs[-1]
        at = first_difference(drafted.tokens, plain.tokens)
        if at is not None:
            return Content(f"~ parts at {at}, not classed yet").stylize("$text-warning")
        n = len(plain.tokens)
        return Content(f"✓ identical {n}/{n}").stylize("$text-success")

    def _draw_earlier(self) -> None:
        shown = self._results[1:] if self._newest_shown else self._results
        lines = [
            Content.assemble(r.speedup, "  ", r.output, "  ", (r.doubt, "$text-warning"), r.name,
                             "  ", (r.prompt, MUTED))
            .truncate(max(10, self.size.width - 4), ellipsis=True)
            for r in shown
        ]  # fmt: skip
        title = [Content("earlier results").stylize("bold")] if lines else []
        self.query_one("#earlier", Static).update(Content("\n").join([*title, *lines]))


VERDICTS: dict[str | None, tuple[str, str]] = {
    "faster": (" faster ▲", "$text-success bold"),
    "slower": (" slower ▼", "$text-error bold"),
    "no difference shown": (" no difference shown", "bold"),
    None: (" no verdict", MUTED),
}


def _drafter_of(setup: Setup) -> str:
    """With speculation switched off in the chat, there is still something to compare."""
    return setup.drafter if setup.drafter != "none" else "auto"


def _name_of(model: str | None) -> str:
    """Until it is resolved: the catalogue's name, or that of the file."""
    return "no model" if model is None else PurePath(model).name


def _length_of(setup: Setup) -> str:
    return RECOMMENDED if setup.n_max is None else str(setup.n_max)


def _lengths(chosen: str) -> list[tuple[Text, str]]:
    words = dict.fromkeys((RECOMMENDED, "auto", *map(str, LENGTHS), chosen))
    return [(Text(word), word) for word in words]
