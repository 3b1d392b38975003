"""What all screens have in common, and what the five modes do: the top line, the footer, and what
``?`` explains."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Key, Paste, Resize, ScreenResume
from textual.geometry import Region, Size
from textual.renderables.background_screen import BackgroundScreen
from textual.screen import ModalScreen, Screen
from textual.widget import Widget

from localspec.errors import LocalspecError
from localspec.tui.polite import Polite
from localspec.tui.tinted import Tinted
from localspec.tui.widgets.footer import Footer
from localspec.tui.widgets.mode_bar import ModeBar

if TYPE_CHECKING:
    from localspec.tui.app import LocalspecApp
    from localspec.tui.engine import EngineService

Result = TypeVar("Result")
BAND = 16
"""So many lines are painted in one go: a terminal of 45 in three."""


class LightScreen(Polite, Screen[Result]):
    """Opens without blocking the loop for long. Textual styles all widgets of a screen whenever it
    is shown and when it learns its size; lays it out twice; and paints as part of each layout."""

    _laying_out = False
    _unpainted = False
    _told_its_size = False

    def __init__(self, *given: str | None, **named: str | None) -> None:
        super().__init__(*given, **named)
        self._bands: list[Region] = []
        """Of the whole screen, what is still to be painted."""
        self._css_update_count = self.app._css_update_count  # it is new: styled as the theme is now
        width, height = self.app.size
        for length, breakpoints in (
            (width, self.HORIZONTAL_BREAKPOINTS),
            (height, self.VERTICAL_BREAKPOINTS),
        ):
            self.add_class(*self._get_breakpoint_classes(length, breakpoints or []), update=False)

    def _on_screen_resume(self, event: ScreenResume) -> None:
        # Themes reach every screen (LocalspecApp.refresh_css), and nothing here looks otherwise
        # when the terminal is left.
        event.refresh_styles = False
        event.prevent_default()
        with self._unpainted_layout():  # it is painted with the next frame
            super()._on_screen_resume(event)

    def _on_timer_update(self) -> None:
        with self._unpainted_layout():
            super()._on_timer_update()
        if self._unpainted:
            self.call_later(self._compositor_refresh)

    @contextmanager
    def _unpainted_layout(self) -> Iterator[None]:
        self._laying_out, self._unpainted = True, False
        try:
            yield
        finally:
            self._laying_out = False

    def _compositor_refresh(self) -> None:
        if self._laying_out and self is self.app.screen:
            self._unpainted = True
            return
        if self is self.app.screen:  # what came since then is forgotten when this is painted
            self._compositor.update_widgets(self._dirty_widgets)
        dirty, whole = self._compositor._dirty_regions, self._compositor.size.region
        if whole in dirty:
            dirty.clear()
            self._bands = [
                Region(0, y, whole.width, min(BAND, whole.height - y))
                for y in range(0, whole.height, BAND)
            ]
        if self._bands:
            dirty.add(self._bands.pop(0))
        super()._compositor_refresh()
        if self._bands:
            self.call_later(self._compositor_refresh)

    async def _on_resize(self, event: Resize) -> None:
        event.prevent_default()
        if event.size != self.app.size:
            # The terminal has gone on. Every layout tells the screen its size once more: of two
            # sizes that are on their way each would bring the other back, for ever.
            event.stop()
            return
        self._told_its_size = event.size == self._size
        await super()._on_resize(event)
        self._told_its_size = False

    def _screen_resized(self, size: Size) -> None:
        # A new screen hears of its size because it was laid out; once more is for nothing, and so
        # it is for those below it.
        if size != self._size or (self.is_current and not self._told_its_size):
            super()._screen_resized(size)


class Dialog(ModalScreen[Result], LightScreen[Result]):
    """Stands over a mode until it is answered."""

    def render(self) -> Any:  # a Visual too, which Screen's own type leaves out
        shown = super().render()
        if isinstance(shown, BackgroundScreen):
            return Tinted(shown.screen, shown.color)
        return shown


class ModeScreen(LightScreen[None]):
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

    def before_writing(self, event: Key | Paste) -> None:
        """The app has ``event`` and will send it to the widget that has the focus: may move that.
        Here and not when the event comes, so that what is typed quickly keeps its order."""

    async def heard_all(self) -> None:
        """Until what was posted to this screen so far, from any thread, is dealt with: the result
        of a job comes by another way than what it told meanwhile, and may be there before that.
        For workers, not for what handles messages."""
        heard = asyncio.Event()
        if self.call_later(heard.set):
            await heard.wait()

    def action_stop(self) -> None:
        self.engine.cancel()

    def tell(self, error: LocalspecError) -> None:
        """An error that the person caused or can do something about, as a notice."""
        self.localspec.tell(error)
