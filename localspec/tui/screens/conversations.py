"""The kept conversations: go on with one, rename, delete."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localspec.errors import LocalspecError
from localspec.reference import title_of
from localspec.tui.live import age
from localspec.tui.screens.base import Dialog
from localspec.tui.screens.dialogs import Ask, Confirm
from localspec.tui.widgets.footer import Footer
from localspec.tui.wording import one_line

if TYPE_CHECKING:
    from localspec.store import Entry, Store


SHORTEST_TITLE = 24
"""So many columns of a title stand in the list, even where what is behind it goes into a second
line then."""


class Conversations(OptionList):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select", "Open")]


class ConversationsScreen(Dialog[int | None]):
    """The id of the conversation to go on with; None: stay. ``deleted`` holds the ids that are
    gone afterwards; ``renamed`` is told an id and its new title."""

    AUTO_FOCUS = "OptionList"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Close"),
        Binding("r", "rename", "Rename"),
        Binding("delete,d", "delete", "Delete", key_display="del"),
        Binding("down", "list", "To the list", show=False),
    ]
    DEFAULT_CSS = """
    ConversationsScreen {
        .dialog { height: 80%; }
        OptionList { height: 1fr; margin-top: 1; }
    }
    """

    def __init__(
        self, store: Store, current: int | None, renamed: Callable[[int, str], None]
    ) -> None:
        super().__init__()
        self._store, self._current, self._renamed = store, current, renamed
        self._entries: list[Entry] = []
        self._shown: list[Entry] = []
        self._changing: asyncio.Task[None] | None = None
        self.deleted: set[int] = set()

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = "Conversations"
            yield Input(placeholder="filter", compact=True)
            yield Conversations()
            yield Static(classes="dim", id="note")
        yield Footer(show_command_palette=False)

    async def on_mount(self) -> None:
        await self._read()

    def on_resize(self) -> None:
        if self._entries:
            self.call_after_refresh(self._fill)

    async def _read(self) -> None:
        try:
            self._entries = await asyncio.to_thread(self._store.talks)
        except LocalspecError as error:
            self.notify(error.hint, title=error.message, severity="error", markup=False)
        self._fill()

    def _fill(self) -> None:
        words = self.query_one(Input).value.lower().split()
        self._shown = [e for e in self._entries if all(w in e.title.lower() for w in words)]
        options = self.query_one(OptionList)
        at = options.highlighted or 0
        options.clear_options()
        options.add_options(Option(self._line(entry)) for entry in self._shown)
        if self._shown:
            options.highlighted = min(at, len(self._shown) - 1)
        note = "" if self._shown else "No conversation is kept yet." if not words else "None fits."
        self.query_one("#note", Static).update(note)

    def _line(self, entry: Entry) -> Content:
        mark = "●" if entry.id == self._current else " "
        questions = "1 question" if entry.questions == 1 else f"{entry.questions} questions"
        changed = age(time.time() - entry.changed)
        about = Content(f"  {questions} · {title_of(entry.model)} · {changed}")
        room = self.query_one(OptionList).scrollable_content_region.width - 4 - about.cell_length
        title = Content(one_line(entry.title)).truncate(max(room, SHORTEST_TITLE), ellipsis=True)
        return Content.assemble(f"{mark} ", title, about.stylize("$text-muted"))

    @property
    def _chosen(self) -> Entry | None:
        at = self.query_one(OptionList).highlighted
        return self._shown[at] if at is not None and at < len(self._shown) else None

    @on(Input.Changed)
    def _filtered(self) -> None:
        self._fill()

    @on(Input.Submitted)
    def action_list(self) -> None:
        self.query_one(OptionList).focus()

    @on(OptionList.OptionSelected)
    def _selected(self) -> None:
        if self._chosen is not None:
            self.dismiss(self._chosen.id)

    @work
    async def action_rename(self) -> None:
        entry = self._chosen
        if entry is None:
            return
        title = await self.app.push_screen_wait(Ask("Rename the conversation", entry.title))
        if title:
            await self._change(
                lambda: self._store.rename(entry.id, title),
                lambda: self._renamed(entry.id, title),
            )

    @work
    async def action_delete(self) -> None:
        entry = self._chosen
        if entry is not None and await self.app.push_screen_wait(
            Confirm("Delete the conversation?", entry.title, "Delete")
        ):
            await self._change(
                lambda: self._store.delete(entry.id), lambda: self.deleted.add(entry.id)
            )

    async def _change(self, change: Callable[[], None], changed: Callable[[], None]) -> None:
        """``changed`` is called once it is done, also where the list was closed meanwhile and its
        workers with it; why it is not is said."""

        async def make() -> None:
            try:
                await asyncio.to_thread(change)
            except LocalspecError as error:
                self.notify(error.hint, title=error.message, severity="error", markup=False)
            else:
                changed()

        self._changing = asyncio.create_task(make())
        await asyncio.shield(self._changing)
        await self._read()

    async def settled(self) -> None:
        """What is being changed is."""
        if self._changing is not None:
            await self._changing
