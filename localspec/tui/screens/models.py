"""Models: the catalogue and the files on this machine; download, look into, choose, remove."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from textual import on, work
from textual.binding import Binding, BindingType
from textual.events import ScreenResume
from textual.widget import Widget
from textual.widgets import DataTable, Input, Static

from localspec.errors import LocalspecError
from localspec.reference import reference_of, title_of
from localspec.tui.model_rows import (
    Row,
    begun_of,
    drafter_choices,
    drafters_to_get,
    pull_words,
    quantisations,
    read,
    rows,
    verdicts,
    with_sizes,
)
from localspec.tui.pulls import Pull
from localspec.tui.screens.base import ModeScreen
from localspec.tui.widgets.downloads import Downloads
from localspec.tui.widgets.model_table import ModelTable
from localspec.units import file_size

if TYPE_CHECKING:  # imported in other threads, after the first paint
    from localspec.catalog import DrafterSpec, Listing
    from localspec.hub.command import Removal
    from localspec.machine import Memory
    from localspec.models.overview import Overview
    from localspec.tui.app import Setup
    from localspec.tui.screens.model_dialogs import Noted

T = TypeVar("T")
DRAW_SECONDS = 0.25
SIZES_SECONDS = 3.0
"""So long a choice waits for what the Hub says of it."""
HUB = "hub"
"""Among a target's drafters: look for more."""
NOTED: Literal["noted"] = "noted"
Used = Literal["model", "drafter", "engine"]
USED: dict[Used, str] = {
    "model": "It is the model in use: the engine ends, and then no model is chosen.",
    "drafter": "It drafts for the model in use: the engine ends, and the drafter is auto then.",
    "engine": "The engine may have it open, and ends.",
}


class ModelsScreen(ModeScreen):
    MODE = "models"
    AUTO_FOCUS = "ModelTable"
    EXPLAINS: ClassVar[tuple[str, ...]] = (
        "model size",
        "fit",
        "state",
        "drafters",
        "download",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "pull", "Pull", tooltip="Download the model with its drafter, or go on"),
        Binding("x", "cancel", "Cancel", tooltip="Stop the download; what arrived is kept"),
        Binding("i", "inspect", "Inspect", tooltip="What the file says of itself, here or not"),
        Binding("d", "drafters", "Drafters", tooltip="Search drafters for it, on the Hub too"),
        Binding("a", "add", "Add", tooltip="Add a model from the Hub, an address or a file"),
        Binding("slash", "filter", "Filter", key_display="/", tooltip="Show what has these words"),
        Binding("escape", "unfilter", "All", tooltip="Out of the filter: show all", show=False),
        Binding(
            "delete,backspace",
            "remove",
            "Remove",
            key_display="del",
            tooltip="Delete its download, or take it out of your catalogue, after asking",
        ),
        Binding("c", "keep", "To my catalogue", tooltip="Note it in your catalogue", show=False),
        Binding("r", "read", "Look again", tooltip="Read catalogue and disk again", show=False),
    ]
    DEFAULT_CSS = """
    ModelsScreen {
        ModelTable { height: 1fr; background: $background; }
        #filter { display: none; height: 1; margin: 0 1; border: none; padding: 0 1; }
        &.-filtering #filter { display: block; }
        #note { height: 1; padding: 0 1; color: $text-muted; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: Overview | None = None
        self._rows: dict[str, Row] = {}
        self._fits: dict[str, str] = {}
        self._here: Memory | None = None
        self._asking = threading.Lock()
        self._ended = 0
        self._over: set[Pull] = set()
        """Downloads that were done before the disk was read last."""
        self._cancellable = False
        self._noted = ("", 0)

    def body(self) -> Iterable[Widget]:
        yield Input(placeholder="filter: words of name, title, drafters", id="filter", compact=True)
        yield ModelTable()
        yield Static(id="note")
        yield Downloads()

    def on_mount(self) -> None:
        self.set_interval(DRAW_SECONDS, self._draw)
        self.watch(self.app, "setup", self._note, init=False)
        self.action_read()

    @property
    def _table(self) -> ModelTable:
        return self.query_one(ModelTable)

    @property
    def _pulls(self) -> list[Pull]:
        return self.localspec.pulls.all

    # ---- reading ------------------------------------------------------------------------------

    def action_read(self) -> None:
        self._read()

    @work(exclusive=True, group="read")
    async def _read(self) -> None:
        self._ended = self.localspec.pulls.ended
        over = {pull for pull in self._pulls if pull.state == "done"}
        found = await self._ask(read)
        if found is None:
            return
        at = self._row
        self._seen = found
        self._over = over
        await self._lines()
        if at is not None and at.pull is not None and at.key not in self._rows:
            arrived = at.pull.path  # it has another line now
            self._go_to(lambda row: row.path is not None and row.path == arrived)
        while self._here is None and self.engine.busy:  # a measurement is not to be disturbed
            await asyncio.sleep(DRAW_SECONDS)
        here = await asyncio.to_thread(self._memory)
        self._fits = await asyncio.to_thread(verdicts, list(self._rows.values()), here)
        self._fill()

    async def _lines(self) -> None:
        """The lines anew: what is read, and the downloads."""
        if self._seen is not None:
            pulls = [pull for pull in self._pulls if pull not in self._over]
            found = await asyncio.to_thread(rows, self._seen, pulls)
            self._rows = {row.key: row for row in found}
            self._fill()

    def _go_to(self, holds: Callable[[Row], bool]) -> None:
        """The cursor, to the first line that is so and shown."""
        for row in self._rows.values():
            if holds(row):
                self._table.go_to(row.key)
                return

    def _memory(self) -> Memory:
        """What models can be put into; GPUs are asked for once. Not for the event loop."""
        from localspec import machine
        from localspec.models import output

        with self._asking:
            if self._here is None:
                self._here = output.memory()
            return machine.memory(self._here.devices)

    async def _ask(self, question: Callable[..., T], *words: Any) -> T | None:
        """The answer, from another thread; None where it failed, which is told."""
        try:
            return await asyncio.to_thread(question, *words)
        except LocalspecError as error:
            self.tell(error)
            return None

    # ---- showing ------------------------------------------------------------------------------

    def _fill(self) -> None:
        words = self.query_one("#filter", Input).value.lower().split()
        self._table.show([r for r in self._rows.values() if r.holds(words)], self._fits)
        self._note()

    def on_resize(self) -> None:
        if self._rows:
            self.call_after_refresh(self._fill)

    @on(ScreenResume)
    def _resumed(self) -> None:
        self._draw()

    def _draw(self) -> None:
        """The downloads as they are now."""
        if not self.is_current and self.app.current_mode != self.MODE:
            return
        self.query_one(Downloads).show(self._pulls)
        for row in list(self._rows.values()):
            if row.pull is not None:
                self._table.state(row)
            if row.kind == "pull" and row.pull is not None and row.size != row.pull.size:
                self._rows[row.key] = replace(row, size=row.pull.size)
                self._show_pulls()
        if self._row is not None and self._row.pull is not None:
            self._note()
        if self._ended != self.localspec.pulls.ended:
            self.action_read()
        if self._cancellable != bool(self.localspec.pulls.active):
            self._cancellable = not self._cancellable
            self.refresh_bindings()

    @on(DataTable.RowHighlighted)
    def _note(self, _what: object = None) -> None:
        """One line about the line under the cursor."""
        row, setup = self._row, self.localspec.setup
        using = f"In use: {title_of(setup.model)}" if setup.model else ""
        text = using or "No model is chosen: Enter chooses one."
        if row is None and self._rows and not self._table.row_count:
            text = f"Nothing has these words; Esc shows all.    {text}"
        if row is not None:
            about = row.problem or row.title
            if row.listing is not None and row.listing.licence:
                about += f" · {row.listing.licence}"
            if not row.problem and row.path is not None and not row.listing:
                about = str(reference_of(row.path) or row.path)
            if row.pull is not None:
                about = pull_words(row.pull) or about
            text = f"{about}    {text}" if about else text
        shown = (text, self.app.size.width)
        if shown != self._noted:
            self._noted = shown
            self.query_one("#note", Static).update(_plain(text, self.app.size.width - 2))

    @property
    def _row(self) -> Row | None:
        key = self._table.key
        return self._rows.get(key) if key is not None else None

    # ---- filter -------------------------------------------------------------------------------

    def action_filter(self) -> None:
        self.add_class("-filtering")
        self.query_one("#filter").focus()

    @on(Input.Changed, "#filter")
    def _filtered(self) -> None:
        self._fill()

    @on(Input.Submitted, "#filter")
    def _to_table(self) -> None:
        self._table.focus()

    def action_unfilter(self) -> None:
        self.remove_class("-filtering")
        self.query_one("#filter", Input).value = ""
        self._table.focus()

    # ---- use ----------------------------------------------------------------------------------

    @on(DataTable.RowSelected)
    def _selected(self) -> None:
        row = self._row
        if row is None:
            return
        if row.pull is not None and row.pull.active:
            self.localspec.pulls.wish(row.pull)
            self.notify("It is used once it is here; x stops the download.", markup=False)
        elif row.kind == "drafter":
            self.notify(
                "Choose the model that it drafts for: Enter on that one offers its drafters.",
                title="This is a drafter.",
                markup=False,
            )
        elif row.kind == "broken":
            self.notify(row.problem, severity="warning", markup=False)
        elif row.path is None:
            self._pull(row, use=True)
        else:
            self._use(row)

    @work(exclusive=True, group="use")
    async def _use(self, row: Row) -> None:
        from localspec.tui.screens.dialogs import Choose

        found = await self._ask(_drafters, row.words)
        if found is None:
            return
        choices, absent = found
        choices.append((HUB, "more ...", "search the Hub for drafters of this model"))
        chosen = await self.app.push_screen_wait(Choose(f"{row.name}: its drafter", choices))
        if chosen == HUB:
            self._find_drafters(row)
        elif chosen is not None:
            use = {"model": row.words, "drafter": chosen}
            if chosen in absent:
                self._bring(absent[chosen], use, wished=True)
            else:
                self.localspec.use(**use)
                self.localspec.action_mode("chat")

    def _bring(self, words: str, use: dict[str, str], *, wished: bool) -> None:
        """A drafter, which is used once it is here, where its model is."""
        self._start(words, drafter="none", use=use, wished=wished)
        if wished:
            self.notify(f"It is used with {title_of(use['model'])} once it is here.", markup=False)

    # ---- downloads ----------------------------------------------------------------------------

    def action_pull(self) -> None:
        row = self._row
        if row is None:
            return
        if row.kind in ("entry", "pull"):
            self._pull(row, use=False)
        elif row.kind == "broken":
            self.notify(row.problem, severity="warning", markup=False)
        else:
            self.notify("It is on this machine already.", markup=False)

    @work(exclusive=True, group="pull")
    async def _pull(self, row: Row, *, use: bool) -> None:

        pull = row.pull
        if pull is not None and pull.active:
            self.notify("It is being downloaded; x stops that.", markup=False)
        elif pull is not None and pull.unfinished:
            goes_on = (pull.words, pull.quant, pull.drafter)
            self._start(*goes_on, entry=pull.entry, use=pull.use, wished=use)
        elif row.choice is not None and row.choice.reference is None:
            self.notify(row.problem or "It is on this machine already.", markup=False)
        elif row.listing is not None:
            quant = await self._which_file(row, row.listing)
            drafter = await self._which_drafter(row.listing, quant, use=use)
            if quant is None or drafter is None:
                return
            name = row.listing.name
            how = {"model": f"{name}:{quant}" if quant else name}
            how["drafter"] = "auto" if drafter == "all" else drafter
            self._start(name, quant or None, drafter, entry=name, use=how, wished=use)
        else:
            self._start(row.words, wished=use)

    async def _which_file(self, row: Row, listing: Listing) -> str | None:
        """The quantisation to get: the one that was begun, else a choice."""
        from localspec.tui.screens.dialogs import Choose

        if len(listing.choices) == 1:
            return listing.choices[0].quant
        kept: dict[str, int] = {}
        if row.kept:
            self.notify("Asking the Hub which of its files was begun ...", timeout=3)
            with suppress(LocalspecError):  # the download says so
                kept = await asyncio.to_thread(begun_of, listing)
        if len(kept) == 1:
            return next(iter(kept))
        here = await asyncio.to_thread(self._memory)
        choices = await self._ask(quantisations, listing, here, kept)
        if choices is None:
            return None
        title = f"{listing.title}: which quantisation?"
        return await self.app.push_screen_wait(Choose(title, choices))

    async def _which_drafter(self, listing: Listing, quant: str | None, *, use: bool) -> str | None:
        """The one to bring along and, where the model is to be used, to use."""
        from localspec.tui.screens.dialogs import Choose

        offered = [d for d in listing.drafters if d.absent or use]
        if quant is None or all(d.method == "ngram" for d in offered):
            return "auto"
        with suppress(TimeoutError):  # the choice is more than its sizes
            asked = asyncio.to_thread(with_sizes, offered)
            offered = await asyncio.wait_for(asked, SIZES_SECONDS)
        title = f"{listing.title} {quant}".rstrip() + ": its drafter"
        return await self.app.push_screen_wait(Choose(title, drafters_to_get(offered)))

    def _start(
        self, words: str, quant: str | None = None, drafter: str = "auto", **more: Any
    ) -> None:
        self._show_pulls(self.localspec.pulls.start(words, quant, drafter, **more))

    @work(exclusive=True, group="lines")
    async def _show_pulls(self, begun: Pull | None = None) -> None:
        """Their lines anew; the cursor goes to the one that was begun, so that x and p mean it."""
        await self._lines()
        if begun is not None:
            self._go_to(lambda row: row.pull is begun)
        self._draw()
        if self._here is not None:
            sized = [row for row in self._rows.values() if row.kind == "pull"]
            here = await asyncio.to_thread(self._memory)
            self._fits |= await asyncio.to_thread(verdicts, sized, here)
            self._fill()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "cancel":
            return self._cancellable
        if action == "unfilter":
            return self.has_class("-filtering")
        return True

    @work(exclusive=True, group="cancel")
    async def action_cancel(self) -> None:
        """The one under the cursor, else the only one, else a choice."""
        from localspec.tui.screens.dialogs import Choose

        active = self.localspec.pulls.active
        row = self._row
        pull = row.pull if row is not None and row.pull in active else None
        if pull is None and len(active) == 1:
            pull = active[0]
        if pull is None and active:
            choices = [(str(i), p.name, "") for i, p in enumerate(active)]
            chosen = await self.app.push_screen_wait(Choose("Cancel which download?", choices))
            pull = active[int(chosen)] if chosen is not None else None
        if pull is not None:
            stopped = pull
            self._go_to(lambda row: row.pull is stopped)  # p goes on with it
            pull.cancel.set()

    # ---- add, look, remove --------------------------------------------------------------------

    @work(exclusive=True, group="add")
    async def action_add(self) -> None:
        from localspec.tui.screens.model_dialogs import AddScreen

        picked = await self.app.push_screen_wait(AddScreen(self._memory))
        if isinstance(picked, str):
            self._start(picked)
        elif picked is not None:
            self._say_noted(picked)

    @work(exclusive=True, group="add")
    async def action_keep(self) -> None:
        row = self._row
        if row is not None and row.kind in ("file", "pull"):
            from localspec.tui.screens.model_dialogs import note

            try:
                noted = await note(self.app, row.words)
            except LocalspecError as error:
                self.tell(error)
                return
            if noted is not None:
                self._say_noted(noted)
        elif row is not None:
            self.notify("Only a model that is not in the catalogue can be added to it.")

    def _say_noted(self, noted: Noted) -> None:
        self.notify(f"{noted.name} is now in {noted.file}.", markup=False)
        self.action_read()

    def action_inspect(self) -> None:
        from localspec.tui.screens.model_dialogs import InspectScreen

        row = self._row
        if row is not None and row.kind == "broken":
            self.notify(row.problem, severity="warning", markup=False)
        elif row is not None:
            self.app.push_screen(InspectScreen(row.words, row.name, self._memory))

    def action_drafters(self) -> None:
        row = self._row
        if row is not None and row.kind in ("entry", "file", "pull"):
            self._find_drafters(row)
        elif row is not None:
            self.notify("Drafters are searched for a model: choose one.", markup=False)

    @work(exclusive=True, group="use")
    async def _find_drafters(self, row: Row) -> None:
        from localspec.tui.screens.model_dialogs import DraftersScreen

        dialog = DraftersScreen(row.words, row.name, usable=row.path is not None)
        found = await self.app.push_screen_wait(dialog)
        if found is None:
            return
        use = {"model": row.words, "drafter": found.words}
        if not found.here:
            self._bring(found.words, use, wished=row.path is not None)
        elif row.path is None:
            self.notify(f"Get the model first: p on {row.name}.", markup=False)
        else:
            self.localspec.use(**use)
            self.localspec.action_mode("chat")

    @work(exclusive=True, group="remove")
    async def action_remove(self) -> None:
        from localspec.tui.screens.dialogs import Confirm

        row = self._row
        if row is None:
            return
        if row.pull is not None and row.pull.active:
            self.notify("It is being downloaded; x stops that.", markup=False)
            return
        entry = row.listing.name if row.listing is not None else None
        going = await self._ask(_removal, row.words, entry)
        if going is None:
            return
        if going == NOTED:
            await self._forget(row, entry or "")
            return
        used = await asyncio.to_thread(_used, going, self.localspec.setup, self.engine.status.model)
        if used and self.engine.busy:
            self.tell(self.engine.refusal(self.MODE))
            return
        lines = [*going.lines, "", *([USED[used]] if used else [])]
        text = "\n".join([*lines, f"This frees {file_size(going.freed)}."])
        if not await self.app.push_screen_wait(Confirm(f"Remove {row.name}?", text, "Remove")):
            return
        try:
            if used:
                await self.engine.end()
            freed = await asyncio.to_thread(going.carry_out)
        except LocalspecError as error:
            self.tell(error)
            return
        if row.pull is not None:
            self.localspec.pulls.forget(row.pull)
        if used == "model":
            self.localspec.use(model=None)
        elif used == "drafter":
            self.localspec.use(drafter="auto")
        self.notify(f"{file_size(freed)} freed.", markup=False)
        self.action_read()

    async def _forget(self, row: Row, entry: str) -> None:
        """What was only noted down: its line goes, the file stays."""
        from localspec.tui.screens.dialogs import Confirm

        stays = f"The file stays: {row.path}" if row.path is not None else "No file is removed."
        sure = Confirm(f"Take {entry} out of your catalogue?", stays, "Take out")
        if not await self.app.push_screen_wait(sure):
            return
        found = await self._ask(_forgotten, entry)
        if found is None:
            return
        file, known = found
        setup = self.localspec.setup
        if not known and (setup.model or "").partition(":")[0] == entry:  # it goes on by its file
            path = str(row.path) if row.path is not None else None
            self.localspec.use(model=path)
        self.notify(f"{entry} is no longer in {file}.", markup=False)
        self.action_read()


def _drafters(words: str) -> tuple[list[tuple[str, str, str]], dict[str, str]]:
    """What ``Choose`` shows of the model's drafters, and the words to get those that are absent."""
    from localspec.catalog import resolve_target

    target = resolve_target(words)
    return drafter_choices(target.drafters), {d.name: d.absent for d in target.drafters if d.absent}


def _removal(words: str, entry: str | None) -> Any:
    """What removing takes away; ``NOTED`` where no download brought anything, but the person's
    own catalogue has the entry."""
    from localspec.hub.command import removal
    from localspec.models import own

    try:
        return removal(words)
    except LocalspecError:
        if entry is not None and own.has(entry):
            return NOTED
        raise


def _forgotten(entry: str) -> tuple[Path, bool]:
    """The file that had it, and whether the catalogue that comes along has one of that name."""
    from localspec.catalog import Catalogue
    from localspec.models.own import forget

    return forget(entry), entry in Catalogue.load().names


def _used(going: Removal, setup: Setup, loaded: Path | None) -> Used | None:
    """Whether what is taken away is in use."""
    from localspec.catalog import resolve_drafters, resolve_target

    gone = {file.path for file in going.files}
    known: list[DrafterSpec] = []
    if setup.model is not None:
        with suppress(LocalspecError):  # what cannot be used is not used
            target = resolve_target(setup.model)
            if target.path in gone:
                return "model"
            known += target.drafters
            if any(d.path in gone for d in resolve_drafters(target, [setup.drafter])):
                return "drafter"
    if loaded in gone or any(d.path in gone for d in known):
        return "engine"
    return None


def _plain(text: str, width: int) -> Any:
    from textual.content import Content

    return Content(text).truncate(max(width, 10), ellipsis=True)
