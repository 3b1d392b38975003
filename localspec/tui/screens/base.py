"""What all screens have in common, and what the five modes do: the top line, the footer, and what
``?`` explains."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from textual.app import ComposeResult
from textual.dom import DOMNode
from textual.events import Key, Paste, Resize, ScreenResume
from textual.geometry import Region, Size
from textual.renderables.background_screen import BackgroundScreen
from textual.screen import ModalScreen, Screen
from textual.widget import Widget

from localspec.errors import LocalspecError
from localspec.tui.compositor import KeepingCompositor
from localspec.tui.polite import LONG, Polite
from localspec.tui.tinted import Tinted
from localspec.tui.widgets.footer import Footer
from localspec.tui.widgets.mode_bar import ModeBar
from localspec.tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from localspec.tui.app import LocalspecApp
    from localspec.tui.engine import EngineService

Result = TypeVar("Result")
BAND = 6
"""Lines that are painted in one go; more as long as that takes no time."""


class LightScreen(Polite, Screen[Result]):
    """Opens without blocking the loop for long. Textual styles all widgets of a screen whenever it
    is shown and when it learns its size; lays it out twice; and paints as part of each layout."""

    _laying_out = False
    _unpainted = False
    _told_its_size = False

    def __init__(self, *given: str | None, **named: str | None) -> None:
        super().__init__(*given, **named)
        self._compositor = KeepingCompositor()
        self._waiting: set[Region] = set()
        """What is still to be painted."""
        self._css_update_count = self.app._css_update_count  # it is new: styled as the theme is now
        self._break(self.app.size)

    def _break(self, size: Size) -> set[str]:
        """Take the breakpoints' classes for this size; returns those that came or went."""
        before = self.classes
        for length, breakpoints in (
            (size.width, self.HORIZONTAL_BREAKPOINTS or []),
            (size.height, self.VERTICAL_BREAKPOINTS or []),
        ):
            self.remove_class(*(name for _, name in breakpoints), update=False)
            self.add_class(*self._get_breakpoint_classes(length, breakpoints), update=False)
        return set(before ^ self.classes)

    def _on_screen_resume(self, event: ScreenResume) -> None:
        # Themes reach every screen (LocalspecApp.refresh_css), and nothing here looks otherwise
        # when the terminal is left.
        event.refresh_styles = False
        event.prevent_default()
        with self._unpainted_layout():  # it is painted with the next frame
            super()._on_screen_resume(event)

    def _on_timer_update(self) -> None:
        with self._working(), self._unpainted_layout():
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
        current = self is self.app.screen
        if self._laying_out and current:
            self._unpainted = True
            return
        if current:  # what came since then is forgotten when this is painted
            self._compositor.update_widgets(self._dirty_widgets)
        dirty = self._compositor._dirty_regions
        self._waiting = self._waiting | dirty if current else set()
        if not self._waiting:
            super()._compositor_refresh()
            return
        if self.app._batch_count:  # nothing would be shown; LocalspecApp goes on at its end
            return
        lines, until = BAND, perf_counter() + LONG
        began = perf_counter()
        while band := self._next_band(lines):
            dirty.clear()
            dirty.update(band)
            super()._compositor_refresh()
            took, began = perf_counter() - began, perf_counter()
            if self._waiting and began + 2 * took > until:
                self.call_later(self._compositor_refresh)
                break
            lines *= 2  # each costs a little by itself

    @property
    def half_painted(self) -> bool:
        return bool(self._waiting)

    def paint_rest(self) -> None:
        if self._waiting:
            self.call_later(self._compositor_refresh)

    def _next_band(self, lines: int) -> list[Region]:
        """What is dirty of so many lines. Textual paints one block around all that is dirty."""
        whole = self._compositor.size.region
        waiting = [region for r in self._waiting if (region := r.intersection(whole))]
        band = whole._replace(y=min((r.y for r in waiting), default=0), height=lines)
        below = whole._replace(y=band.bottom, height=max(0, whole.bottom - band.bottom))
        self._waiting = {region for r in waiting if (region := r.intersection(below))}
        return [region for r in waiting if (region := r.intersection(band))]

    async def _on_resize(self, event: Resize) -> None:
        event.prevent_default()
        if event.size != self.app.size:
            # The terminal has gone on. Every layout tells the screen its size once more: of two
            # sizes that are on their way each would bring the other back, for ever.
            event.stop()
            return
        # Textual lays out and paints by the old breakpoints, and then styles every widget anew.
        if changed := self._break(event.size):
            self.app.stylesheet.update_nodes(self._styled_by(changed))
        self._told_its_size = event.size == self._size
        with self._unpainted_layout():
            await super()._on_resize(event)
        self._told_its_size = False
        if self._unpainted:
            self.call_later(self._compositor_refresh)

    def _styled_by(self, classes: set[str]) -> list[DOMNode]:
        """What may look otherwise when the screen gets or loses one of these classes."""
        names = {
            name
            for rule in self.app.stylesheet.rules
            if any(s.name in classes for each in rule.selector_set for s in each.selectors)
            for name in rule.selector_names
        }
        nodes = self.walk_children(with_self=True)
        return [node for node in nodes if not names.isdisjoint(node._selector_names)]

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

    def compose(self) -> ComposeResult:
        yield ModeBar(self.MODE)
        yield from self.body()
        yield Footer()  # the palette's key stays in sight when the others do not fit

    def body(self) -> Iterable[Widget]:
        """The widgets between the top line and the footer."""
        raise NotImplementedError

    @property
    def explained(self) -> tuple[str, ...]:
        """``EXPLAINS``, where it does not matter what the screen shows just now."""
        return self.EXPLAINS

    @property
    def localspec(self) -> LocalspecApp:
        return cast("LocalspecApp", self.app)

    @property
    def engine(self) -> EngineService:
        return self.localspec.engine

    def before_writing(self, event: Key | Paste) -> None:
        """The app has ``event`` and will send it to the widget that has the focus: may move that.
        Here and not when the event comes, so that what is typed quickly keeps its order."""
        if isinstance(event, Paste) and (prompts := self.query(Prompt)):
            self.set_focus(prompts.first())

    async def heard_all(self) -> None:
        """Until what was posted to this screen so far, from any thread, is dealt with: the result
        of a job comes by another way than what it told meanwhile, and may be there before that.
        For workers, not for what handles messages."""
        heard = asyncio.Event()
        if self.call_later(heard.set):
            await heard.wait()

    def action_stop(self) -> None:
        """End what this mode has begun: what another one runs is stopped there."""
        self.engine.cancel(self.MODE)

    def notify_here(self, message: str, **how: Any) -> None:
        """A notice that holds only as long as this mode is shown."""
        self.localspec.notify(message, here=True, **how)

    def tell(self, error: LocalspecError) -> None:
        """An error that the person caused or can do something about, as a notice."""
        self.localspec.tell(error)
