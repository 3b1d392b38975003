"""Nothing to run is here yet: the demo, a download that fits this machine, or a look around."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from localspec.errors import LocalspecError
from localspec.tui.screens.base import Dialog
from localspec.tui.widgets.footer import Footer
from localspec.tui.wording import in_app
from localspec.units import file_size

DEMO = "demo"
"""The catalogue's name for the model that comes as a package."""
COMES_ALONG = "demo-mtp"
"""Its name for the one that is in every installation."""


@dataclass(frozen=True, slots=True)
class FirstDownload:
    """``name`` and ``quant`` of a model to begin with, and what to know ``about`` it."""

    name: str
    quant: str
    about: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """What to do: download ``name``, use the demo or what comes along, or show all models."""

    what: str
    name: str = ""
    quant: str = ""


def advise() -> FirstDownload | None:
    """The one for this machine, None where none fits. Starts an engine for a moment, to know the
    GPUs."""
    from localspec.catalog import Catalogue
    from localspec.models import output
    from localspec.models.overview import first_download, rough_verdict

    here = output.memory()
    found = first_download(Catalogue.load().listings(), here)
    if found is None:
        return None
    line, choice = found
    fits = rough_verdict(choice.size or 0, here)
    drafter = next(d.name for d in line.drafters if d.recommended)
    about = f"{file_size(choice.size or 0)}, fits this machine ({fits}), with the drafter {drafter}"
    return FirstDownload(line.name, choice.quant, about)


def find_demo(name: str = DEMO) -> LocalspecError | None:
    """None where the demo model is here; else what to do for it."""
    from localspec.catalog import resolve_target

    try:
        resolve_target(name)
    except LocalspecError as error:
        return error
    return None


class FirstStartScreen(Dialog[Chosen | None]):
    AUTO_FOCUS = "OptionList"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Not now")]
    DEFAULT_CSS = """
    FirstStartScreen {
        OptionList { height: auto; margin: 1 0; }
        #said { height: auto; }
    }
    """

    def __init__(self, advise: Callable[[], Awaitable[FirstDownload | None]]) -> None:
        super().__init__()
        self._find = advise
        self._advice: FirstDownload | None = None

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = "No model is chosen yet"
            yield Static("Choose one to begin with.")
            yield OptionList(
                _option(DEMO, "The demo", "98 MB, a small real model with trained drafters"),
                _option("models", "Choose among all models", "or add one of your own"),
            )
            yield Static("Looking at what fits this machine ...", classes="dim", id="said")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self._advise()
        self._look()

    @work(group="look")
    async def _look(self) -> None:
        """Where the demo is not, what comes along works without a network."""
        if await asyncio.to_thread(find_demo) and not await asyncio.to_thread(
            find_demo, COMES_ALONG
        ):
            about = "17 MB, to see how all of it works: its text makes no sense"
            self.query_one(OptionList).add_option(
                _option(COMES_ALONG, f"{COMES_ALONG}, which comes along", about)
            )

    def _say(self, *parts: Any) -> None:
        self.query_one("#said", Static).update(Content.assemble(*parts))

    @work(exclusive=True, group="advice")
    async def _advise(self) -> None:
        try:
            advice = await self._find()
        except LocalspecError as error:
            self._say((error.message, "$text-error"), "\n", in_app(error.hint))
            return
        self._advice = advice
        options = self.query_one(OptionList)
        if advice is not None:
            options.add_option(_option("pull", f"Download {advice.name}", advice.about))
            self._say("Downloads can be cancelled at any time; what arrived is kept.")
        else:
            self._say("Of the catalogue's models with a drafter none fits this machine's memory.")

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        what = event.option_id or ""
        if what == DEMO:
            self._demo()
        elif what == COMES_ALONG:
            self.dismiss(Chosen(COMES_ALONG))
        elif what == "pull" and self._advice is not None:
            self.dismiss(Chosen("pull", self._advice.name, self._advice.quant))
        else:
            self.dismiss(Chosen("models"))

    @work(exclusive=True, group="demo")
    async def _demo(self) -> None:
        """It may have been installed meanwhile, in another terminal."""
        missing = await asyncio.to_thread(find_demo)
        if missing is None:
            self.dismiss(Chosen(DEMO))
            return
        self._say(
            missing.message, "\n", (missing.hint, "$accent"), "\nThen press Enter here again."
        )


def _option(key: str, name: str, about: str) -> Option:
    return Option(Content.assemble((name, "bold"), "\n", (about, "$text-muted")), id=key)
