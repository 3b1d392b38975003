"""What the five modes have in common: the top line, the footer, and what ``?`` explains."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widget import Widget

from localspec.errors import LocalspecError
from localspec.tui.polite import Polite
from localspec.tui.widgets.footer import Footer
from localspec.tui.widgets.mode_bar import ModeBar

if TYPE_CHECKING:
    from localspec.tui.app import LocalspecApp
    from localspec.tui.engine import EngineService


class ModeScreen(Polite, Screen[None]):
    """A mode fills in ``MODE``, ``EXPLAINS`` and ``body``; its BINDINGS with a description are in
    the footer (unless ``show=False``) and all of them in the command palette."""

    MODE: ClassVar[str]
    """Its name in ``LocalspecApp.MODES``."""
    EXPLAINS: ClassVar[tuple[str, ...]] = ()
    """Keys of ``localspec.terms.TERMS``: every number that the screen shows, in reading order."""
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012  Textual's own form
    VERTICAL_BREAKPOINTS = [(0, "-low"), (30, "-high")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "Stop", tooltip="Stop what the engine is doing", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        # It is new, and so styled as the theme is now: without this Textual styles it three times.
        self._css_update_count = self.app._css_update_count

    def compose(self) -> ComposeResult:
        yield ModeBar(self.MODE)
        yield from self.body()
        yield Footer()  # the palette's key stays in sight when the others do not fit

    def body(self) -> Iterable[Widget]:
        """The widgets between the top line and the footer."""
        raise NotImplementedError

    @property
    def localspec(self) -> LocalspecApp:
        return cast("LocalspecApp", self.app)

    @property
    def engine(self) -> EngineService:
        return self.localspec.engine

    def action_stop(self) -> None:
        self.engine.cancel()

    def tell(self, error: LocalspecError) -> None:
        """An error that the person caused or can do something about, as a notice."""
        self.notify(error.hint, title=error.message, severity="error", timeout=10, markup=False)
