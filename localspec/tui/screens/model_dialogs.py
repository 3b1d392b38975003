"""Dialogs of the Models screen: add from the Hub, what a file says of itself, drafters for it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from rich.table import Table
from rich.text import Text
from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localspec.errors import LocalspecError, NameNeeded
from localspec.paths import kind_here
from localspec.tui.model_rows import verdict_words
from localspec.tui.screens.base import Dialog
from localspec.tui.screens.dialogs import Ask
from localspec.tui.widgets.footer import Footer
from localspec.tui.wording import in_app
from localspec.units import file_size, many, shortened

if TYPE_CHECKING:
    from localspec.machine import Memory
    from localspec.models.drafters import Candidate, Found
    from localspec.models.hub_command import FoundRepo
    from localspec.models.offers import Offer

_BARE = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.:-]*")
_PATH = re.compile(r"[/\\~]|\.{1,2}[/\\]|[A-Za-z]:[/\\]|(?!hf:|\w+://).*\.gguf$", re.I)
"""What is meant as a file on this machine, there or not."""


class Noted(NamedTuple):
    """An entry of the own catalogue."""

    file: Path
    name: str


class AddScreen(Dialog[str | Noted | None]):
    """A repository, a page's address, a file's path, or words to search for; then what a
    repository offers, with what fits. Returns the words of what is to be downloaded, or what was
    noted. ``memory`` is asked in another thread."""

    AUTO_FOCUS = "Input"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back", key_display="esc"),
        Binding("c", "keep", "To my catalogue", tooltip="Note it without downloading"),
        Binding("down", "list", "To the list", show=False),
    ]
    DEFAULT_CSS = """
    AddScreen {
        .dialog { height: 85%; }
        OptionList { height: 1fr; margin-top: 1; }
        #said { height: auto; max-height: 6; margin-top: 1; }
    }
    """

    def __init__(self, memory: Callable[[], Memory], words: str = "") -> None:
        super().__init__()
        self._memory, self._words = memory, words
        self._found: list[FoundRepo] = []
        self._offers: list[Offer] = []

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = "Add a model"
            yield Input(
                self._words, placeholder="owner/repo, an address, a file, or words to search for"
            )
            yield Static(
                Content.styled(
                    "Enter looks it up on the Hugging Face Hub; a GGUF file here is noted in your"
                    " catalogue.",
                    "$text-muted",
                ),
                id="said",
            )
            yield OptionList()
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        if self._words:
            self._look(self._words)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        if event.value.strip():
            self._found = []
            self._look(event.value.strip())

    def _say(self, text: str, style: str = "$text-muted") -> None:
        self.query_one("#said", Static).update(Content.styled(text, style))

    @work(exclusive=True)
    async def _look(self, words: str) -> None:
        self._offers = []
        if not self._found:  # else it is one of those
            self._fill([], 0)
        if await asyncio.to_thread(kind_here, words) == "file":
            self._note(words)
            return
        if _PATH.match(words):
            self._say(await asyncio.to_thread(_no_model, words), "$text-error")
            return
        if _BARE.fullmatch(words):
            words = f"hf:{words}"
        self._say("Asking the Hub ...")
        try:
            offers = await asyncio.to_thread(self._offered, words)
            if offers is not None:
                self._show_offers(words, offers)
                return
            found = await asyncio.to_thread(_searched, words)
        except LocalspecError as error:
            self._say(in_app(str(error), "add"), "$text-error")
            return
        self._found = found
        self._show_found()

    def _offered(self, words: str) -> Sequence[Offer] | None:
        from localspec.hub.files import resolve
        from localspec.models.hub_command import offers_of
        from localspec.reference import parse_reference

        reference = parse_reference(words)
        if reference is None:
            return None
        remote = resolve(reference.repo, reference.revision)
        return offers_of(remote, reference, self._memory())

    def _show_found(self) -> None:
        self._offers = []
        repositories = many(len(self._found), "repository", "repositories")
        self._say(f"{repositories}, most downloaded first. Enter shows the files.")
        width = max(len(f.words) for f in self._found) - 3
        self._fill([_found_line(f, min(width, 56)) for f in self._found], 0)

    def _show_offers(self, words: str, offers: Sequence[Offer]) -> None:
        self._offers = [o for o in offers if o.variant.part not in ("mmproj", "imatrix")]
        best = next((i for i, o in enumerate(self._offers) if o.recommended), None)
        note = (
            "Enter downloads one, with a drafter for it where one is known."
            if best is not None
            else "None of them fits this machine. Enter downloads one all the same."
        )
        problem = next((o.problem for o in self._offers if o.problem), "")
        if problem and best is None:
            note = f"What is here cannot be used: {problem}"
        self._say(f"{words}: {note}")
        named = [i for i, o in enumerate(self._offers) if words in (o.words, _file_words(o))]
        labels = [_label(o).lower() for o in self._offers]
        lines = [
            _offer_line(o, alone=labels.count(label) == 1)
            for o, label in zip(self._offers, labels, strict=True)
        ]
        self._fill(lines, next(iter(named), best or 0))

    def _fill(self, lines: Sequence[Content], at: int) -> None:
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options(Option(line) for line in lines)
        if lines:
            options.highlighted = at
            options.focus()
        self.refresh_bindings()

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        if self._offers:
            self.dismiss(self._offers[event.option_index].words)
        else:
            self._look(self._found[event.option_index].words)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return bool(self._offers) if action == "keep" else True

    def action_keep(self) -> None:
        at = self.query_one(OptionList).highlighted
        if at is not None and self._offers:
            self._note(self._offers[at].words)

    @work(exclusive=True, group="note")
    async def _note(self, words: str) -> None:
        """Closes when that is done; until then the words can be mended."""
        self._say(f"Reading {words} ...")
        try:
            noted = await note(self.app, words)
        except LocalspecError as error:
            self._say(in_app(str(error), "add"), "$text-error")
            return
        if noted is not None:
            self.dismiss(noted)
        else:
            self._say(f"{words} was not noted.")

    def action_list(self) -> None:
        if self.query_one(OptionList).option_count:
            self.query_one(OptionList).focus()

    def action_back(self) -> None:
        """From the files to the repositories found, from there to the line, from there out."""
        if self._offers and self._found:
            self._show_found()
        elif self.focused is not self.query_one(Input):
            self.query_one(Input).focus()
        else:
            self.dismiss(None)


async def note(app: App[Any], words: str) -> Noted | None:
    """Writes it into the own catalogue, and asks for a name where it needs another; None where the
    person gave none. Raises the other errors of ``own.add``."""

    def add(name: str | None) -> Noted:
        from localspec.models import own

        return Noted(*own.add(words, (), name))

    name = None
    while True:
        try:
            return await asyncio.to_thread(add, name)
        except NameNeeded as error:
            asked = Ask("Its name in your catalogue", error.free, note=error.message)
            name = await app.push_screen_wait(asked)
            if name is None:
                return None


def _no_model(words: str) -> str:
    """Why there is no file to be noted at this path, and what to do."""
    from localspec.gguf_header import check_model_file

    try:
        check_model_file(words)
    except LocalspecError as error:
        return in_app(str(error))
    return f"{words} is no file."


def _searched(words: str) -> list[FoundRepo]:
    from localspec.models.hub_command import nothing_found, search_hub

    found = search_hub(words)
    if not found:
        raise nothing_found(words)
    return found


def _found_line(found: FoundRepo, width: int) -> Content:
    name = shortened(found.words.removeprefix("hf:"), width)
    words = [f"{found.downloads or 0:,} downloads", found.licence or ""]
    words += ["gated"] if found.gated else []
    return Content.assemble(f"{name:<{width}}  ", ("  ".join(w for w in words if w), "$text-muted"))


def _file_words(offer: Offer) -> str:
    return f"{offer.words.partition(':')[0]}:{offer.variant.file}"


def _label(offer: Offer) -> str:
    variant = offer.variant
    return variant.label if variant.part is None else f"drafter {variant.part} {variant.label}"


def _offer_line(offer: Offer, *, alone: bool) -> Content:
    """``alone``: no other has its label; where several share it, their files tell them apart."""
    variant = offer.variant
    words = [verdict_words(offer.fit.verdict)] if offer.fit else []
    words += [f"{len(variant.files)} files"] if len(variant.files) > 1 else []
    words += ["here, not usable"] if offer.problem else ["here already"] if offer.here else []
    words += [] if variant.complete else ["incomplete"]
    return Content.assemble(
        ("★ " if offer.recommended else "  ", "$accent"),
        f"{_label(offer):<24} {file_size(variant.size):>9}  ",
        ("  ".join(words), "$text-muted"),
        ("  recommended" if offer.recommended else "", "$accent"),
        ("" if alone else f"\n    {variant.file}", "$text-muted"),
    )


class InspectScreen(Dialog[None]):
    """What a model's file says of itself, here or on the Hub, and whether it fits."""

    AUTO_FOCUS = "VerticalScroll"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,i,enter", "dismiss", "Close", key_display="esc")
    ]
    DEFAULT_CSS = """
    InspectScreen .dialog { height: auto; max-height: 90%; }
    """

    def __init__(self, words: str, title: str, memory: Callable[[], Memory]) -> None:
        super().__init__()
        self._words, self._title, self._memory = words, title, memory

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog") as box:
            box.border_title = Content(self._title)
            yield Static(Content.styled("Reading its header ...", "$text-muted"), id="facts")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self._read()

    @work(exclusive=True)
    async def _read(self) -> None:
        told = self.query_one("#facts", Static)
        try:
            facts = await asyncio.to_thread(self._facts)
        except LocalspecError as error:
            told.update(Content.assemble((error.message, "$text-error"), "\n", in_app(error.hint)))
            return
        table = Table(box=None, pad_edge=False, show_header=False, expand=True)
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="fold", ratio=1)
        for name, text in facts:
            table.add_row(name, Text(text))  # a str would be markup
        told.update(table)

    def _facts(self) -> list[tuple[str, str]]:
        from localspec.models.command import facts, fit_of, inspected

        found, header = inspected(self._words)
        fit = fit_of(found, header, self._memory())
        return [(name, text) for name, text in facts(found, fit) if text]


class DraftersScreen(Dialog["Candidate | None"]):
    """Drafters for a target: its own head, the catalogue's, those here, and those on the Hub."""

    AUTO_FOCUS = "OptionList"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Close")]
    DEFAULT_CSS = """
    DraftersScreen {
        .dialog { height: auto; }
        OptionList { height: auto; max-height: 60vh; margin-top: 1; }
        #said { height: auto; max-height: 5; }
    }
    """

    def __init__(self, words: str, title: str, *, usable: bool = True) -> None:
        """``usable``: the target is here."""
        super().__init__()
        self._words, self._title, self._usable = words, title, usable
        self._shown: list[Candidate] = []

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = Content(f"Drafters for {self._title}")
            yield Static(id="said")
            yield OptionList()
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self._search()

    def _say(self, text: str, style: str = "$text-muted") -> None:
        self.query_one("#said", Static).update(Content.styled(text, style))

    @work(exclusive=True)
    async def _search(self) -> None:
        self._say("Searching this machine and the Hub ...")
        try:
            found = await asyncio.to_thread(_drafters_of, self._words)
        except LocalspecError as error:
            self._say(in_app(str(error)), "$text-error")
            return
        self._show(found)

    def _show(self, found: Found) -> None:
        self._shown = list(found.candidates)
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options(
            Option(_candidate_line(c), disabled=c.fits is False) for c in self._shown
        )
        good = [i for i, c in enumerate(self._shown) if c.fits is not False]
        options.highlighted = good[0] if good else None
        text = "Enter uses the one that is marked; one that is not here is downloaded first."
        if not good:
            text = "None was found; ngram needs no file and always works."
        elif not self._usable:
            text = "Enter downloads the one that is marked, for the time when its model is here."
        self._say(" ".join([text, *found.notes]))

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._shown[event.option_index])


def _drafters_of(words: str) -> Found:
    from localspec.models.hub_command import drafters_of

    return drafters_of(words)


def _candidate_line(candidate: Candidate) -> Content:
    c = candidate
    name = shortened(c.words.removeprefix("hf:"), 58)
    sign = {True: "✓", None: "?", False: "✗"}[c.fits]
    where = "here" if c.here and c.source != "own" else {"own": "built in"}.get(c.source, c.source)
    words = [c.method, file_size(c.size) if c.size else "", where]
    words += [f"{c.downloads:,} downloads"] if c.downloads else []
    words += [c.note] if c.note else []
    words += ["not checked"] if c.fits is None and not c.why else []
    line = Content.assemble(
        f"{sign} {name}", (" ★" if c.recommended else "", "$accent"),
        ("\n    " + "  ".join(w for w in words if w), "$text-muted"),
    )  # fmt: skip
    return Content.assemble(line, (f"\n    {c.why}", "$text-muted")) if c.why else line
