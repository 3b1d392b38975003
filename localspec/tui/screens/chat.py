"""Chat: the conversation, and what speculation does to its speed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Markdown, Static

from localspec.errors import LocalspecError
from localspec.tui.engine import Job
from localspec.tui.screens.base import ModeScreen
from localspec.tui.widgets.prompt import Prompt

if TYPE_CHECKING:  # imported in the engine's thread, after the first paint
    from localspec.chat.session import ChatSession
    from localspec.engine.messages import Chunk
    from localspec.records import Generation
    from localspec.tui.app import Setup


class Heard(Message):
    """From the engine's thread: a piece of the answer."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
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
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+r", "regenerate", "Regenerate", tooltip="Answer the last question again"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._chat: ChatSession | None = None  # used in the engine's thread alone
        self._stream: Markdown | None = None

    def body(self) -> Iterable[Widget]:
        yield VerticalScroll(id="conversation")
        yield Prompt()

    def on_mount(self) -> None:
        self.query_one(Prompt).focus()
        self.watch(self.app, "setup", self._setup_changed, init=False)

    def _setup_changed(self, _setup: Setup) -> None:
        self._chat = None

    # ---- asking -------------------------------------------------------------------------------

    @on(Prompt.Sent)
    async def _sent(self, message: Prompt.Sent) -> None:
        if self.localspec.setup.model is None:
            self.notify("Choose a model first: F2.", severity="warning")
            return
        if self.engine.busy:
            self.notify("The engine is busy; Esc stops it.", severity="warning")
            return
        self.query_one(Prompt).clear()
        await self._show_question(message.text)
        self._answer(message.text)

    def action_regenerate(self) -> None:
        if not self.engine.busy:
            self._answer(None)

    async def _show_question(self, text: str) -> None:
        conversation = self.query_one("#conversation", VerticalScroll)
        await conversation.mount(Static(Content(text), classes="question"))
        conversation.scroll_end(animate=False)

    @work(group="answer")
    async def _answer(self, text: str | None) -> None:
        """Ask ``text``, or the last question again, and show the answer as it comes."""
        conversation = self.query_one("#conversation", VerticalScroll)
        view = Markdown()
        await conversation.mount(view)
        conversation.anchor()
        self._stream = view
        setup = self.localspec.setup

        def ask(_job: Job[Generation]) -> Generation:
            from localspec.engine.messages import Chunk

            chat = self._session(setup)
            answer = chat.regenerate() if text is None else chat.ask(text)
            for event in answer:
                if isinstance(event, Chunk):
                    self.post_message(Heard(event))
            return answer.result

        try:
            await self.engine.start("Answering", ask)
        except LocalspecError as error:
            self.tell(error)

    def _session(self, setup: Setup) -> ChatSession:
        """In the engine's thread."""
        from localspec.chat.session import ChatSession
        from localspec.records import ChatOptions

        if self._chat is None:
            assert setup.model is not None
            options = ChatOptions(model=setup.model, drafter=setup.drafter, n_max=setup.n_max)
            self._chat = ChatSession(options, connect=self.engine.connect)
        return self._chat

    @on(Heard)
    async def _heard(self, message: Heard) -> None:
        if self._stream is not None:
            await self._stream.append("".join(span.text for span in message.chunk.spans))
