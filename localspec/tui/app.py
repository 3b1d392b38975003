"""``localspec`` without a command: the app, its five modes, and what they share."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from textual import on, work
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.command import Provider
from textual.constants import DRIVER
from textual.css.query import NoMatches
from textual.driver import Driver
from textual.events import DeliveryComplete, Key, Paste
from textual.notifications import Notification, Notify
from textual.reactive import var
from textual.screen import Screen
from textual.widget import AwaitMount
from textual.worker import WorkerFailed

from localspec.errors import LocalspecError, StoreUnusable
from localspec.reference import title_of
from localspec.tui import ahead
from localspec.tui.engine import (
    EngineLost,
    EngineService,
    Status,
    StatusChanged,
    lower_priority,
)
from localspec.tui.in_order import InOrder
from localspec.tui.palette import ActionsProvider, Palette, actions
from localspec.tui.polite import LONG, PAUSE, Polite
from localspec.tui.pulls import PullEnded, Pulls
from localspec.tui.screens.base import LightScreen, ModeScreen
from localspec.tui.screens.engine_lost import Choice, EngineLostScreen, LogScreen
from localspec.tui.screens.explain import ExplainScreen
from localspec.tui.settings import AS_USUAL, EngineSettings, Settings, SettingsStore
from localspec.tui.stylesheet import Sheet
from localspec.tui.theme import DARK, shaded, themes
from localspec.tui.widgets.mode_bar import ModeBar, ModeTab
from localspec.tui.wording import in_app

if TYPE_CHECKING:
    from localspec.engine.client import Engine
    from localspec.tui.screens.first_start import FirstDownload

ENGINE_CHECK_SECONDS = 1.0
SHOWN_SECONDS, PATIENCE = 0.3, 1.0
"""Until what was asked for is seen on a slow machine; and so long imports wait for a person who
keeps asking."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What the person works with, on every screen: a target and its drafter, as the command line's
    --model, --drafter, --n-max, --p-min and --tree (the last two come from profiles), and how the
    engine runs. ``model`` None: nothing was chosen yet."""

    model: str | None = None
    drafter: str = "auto"
    n_max: int | Literal["auto"] | None = None
    p_min: float | None = None
    tree: int | Literal["auto"] = 0
    engine: EngineSettings = AS_USUAL

    @classmethod
    def of(cls, kept: Settings) -> Setup:
        n_max = kept.n_max if isinstance(kept.n_max, int) else None
        tree = kept.tree if isinstance(kept.tree, int) else 0
        return cls(
            kept.model,
            kept.drafter,
            "auto" if kept.n_max == "auto" else n_max,
            kept.p_min,
            "auto" if kept.tree == "auto" else tree,
            kept.engine,
        )


class LocalspecApp(Polite, InOrder):
    TITLE = "localspec"
    CSS_PATH = Path(__file__).with_name("app.tcss")
    MODES: ClassVar[dict[str, str | Callable[[], Screen[Any]]]] = {
        mode: ahead.make(mode) for mode in ahead.SCREENS
    }
    DEFAULT_MODE = "chat"
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {ActionsProvider}
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(f"f{number + 1}", f"mode('{mode}')", title, show=False, priority=True)
            for number, (mode, title) in enumerate(ModeBar.MODES.items(), 1)
        ),
        *(  # where nothing is being written
            Binding(str(number), f"mode('{mode}')", title, show=False)
            for number, (mode, title) in enumerate(ModeBar.MODES.items(), 1)
        ),
        Binding("f1,question_mark", "explain", "Explain", tooltip="What each number here means"),
        Binding(
            "ctrl+t",
            "engine_settings",
            "Engine",
            tooltip="Threads, context, layers on the GPU, cache types",
        ),
        Binding(
            "ctrl+p",
            "command_palette",
            "Palette",
            tooltip="Everything that can be done here",
            show=False,
            priority=True,
        ),
        Binding("ctrl+q", "quit", "Quit", tooltip="Leave localspec", show=False, priority=True),
    ]

    engine_status: var[Status] = var(Status())
    setup: var[Setup] = var(Setup())
    last_kept: var[int | None] = var[int | None](None)
    """The number of the benchmark that a job of this app has kept last in the history."""
    to_resume: var[dict[str, Any] | None] = var[dict[str, Any] | None](None)
    """The result of an interrupted bench that Bench is to go on with."""
    opening: var[str | None] = var[str | None](None)
    """A mode that is shown once it is imported."""

    def __init__(
        self,
        *,
        settings: SettingsStore | None = None,
        launch: Callable[..., Engine] | None = None,
    ) -> None:
        super().__init__()
        self.settings = settings or SettingsStore()
        self.engine = EngineService(self.post_message, launch)
        self.pulls = Pulls(self.post_message)
        self._first_download: asyncio.Task[FirstDownload | None] | None = None
        kept = self.settings.values
        self.set_reactive(LocalspecApp.setup, Setup.of(kept))
        self.few_colours = self.console.color_system in (None, "standard") or self.no_color
        """There are 16 of them or none: a tint is lost."""
        for theme in themes(few_colours=self.few_colours, no_colour=self.no_color):
            self.register_theme(theme)
        self.theme = kept.theme if kept.theme in self.available_themes else DARK.name
        self.sheet = self.stylesheet = Sheet(variables=self.get_css_variables())
        self.painted = asyncio.Event()
        """The first screen is seen: what it need not wait for may begin."""
        self._unkept_told = False
        self._only_in: dict[tuple[str, str], str] = {}
        """The mode in which what a notice (title, message) says is so."""
        self._asked = 0.0
        """When the person has asked for something last."""

    # ---- life ---------------------------------------------------------------------------------

    def on_mount(self) -> None:
        lower_priority()
        self.theme_changed_signal.subscribe(self, self._keep_theme)
        self.set_interval(ENGINE_CHECK_SECONDS, self.engine.check)
        self.settings.tell = self._warn
        if self.settings.problem:
            self._warn(self.settings.problem)
        if self.setup.model is None:
            self.action_first_model()
        self._import_ahead()

    def _warn(self, problem: str) -> None:
        self.notify(problem, severity="warning", timeout=10)

    def get_driver_class(self) -> type[Driver]:
        if sys.platform == "win32" or DRIVER:
            return super().get_driver_class()
        from localspec.tui.driver import TerminalDriver

        return TerminalDriver

    @on(Driver.SignalResume)
    def _back_from_a_stop(self) -> None:
        """Whatever was shown meanwhile stands on the screen."""
        self.screen.refresh(layout=True)

    def panic(self, *_shown: object) -> None:
        """A bug is told by ``run``, once the terminal is as it was: not in a hundred lines."""
        self._close_messages_no_wait()

    def _handle_exception(self, error: Exception) -> None:
        """A screen that the app is left in the midst of mounting misses its widgets: no fault."""
        cause = error.error if isinstance(error, WorkerFailed) else error
        leaving = self._exit or not self.is_running
        if not (leaving and isinstance(cause, NoMatches)):
            super()._handle_exception(error)

    def _fatal_error(self) -> None:
        self._close_messages_no_wait()

    def post_display_hook(self) -> None:
        if self.painted.is_set() or self._batch_count:  # what a batch holds back is drawn nowhere
            return
        if not (isinstance(self.screen, LightScreen) and self.screen.half_painted):
            self.painted.set()

    @work(group="ahead")
    async def _import_ahead(self) -> None:
        await self.painted.wait()
        for bring in ahead.pieces():
            await asyncio.to_thread(bring)
            await self.undisturbed()
            await asyncio.to_thread(self.sheet.prepare, self.theme_variables)
            await self.undisturbed()

    async def undisturbed(self) -> None:
        """What is done ahead slows what the person has asked for: Python runs one of them."""
        until = perf_counter() + PATIENCE
        while perf_counter() < min(until, self._asked + SHOWN_SECONDS):
            await asyncio.sleep(SHOWN_SECONDS / 10)

    def on_unmount(self) -> None:
        self.pulls.close()
        self.engine.close()

    def get_css_variables(self) -> dict[str, str]:
        self.theme_variables = shaded(super().get_css_variables())
        return self.theme_variables

    def refresh_css(self, animate: bool = True) -> None:
        if self.painted.is_set():
            self._restyle()
        else:
            super().refresh_css(animate)

    @work(exclusive=True, group="restyle")
    async def _restyle(self) -> None:
        """Every screen, widget by widget; nothing is drawn until all have the new colours."""
        variables = self.get_css_variables()
        await asyncio.to_thread(self.sheet.prepare, variables)
        self.sheet.set_variables(variables)
        _ = self.sheet._variable_tokens  # else read in the midst of painting
        await asyncio.sleep(PAUSE)
        with self.batch_update():
            self.sheet.apply(self)
            await asyncio.sleep(PAUSE)
            for screen in [s for stack in self._screen_stacks.values() for s in stack]:
                until = perf_counter() + LONG
                for node in list(screen.walk_children(with_self=True)):
                    self.sheet.update_nodes([node])
                    if perf_counter() > until:
                        await asyncio.sleep(PAUSE)
                        until = perf_counter() + LONG
                screen._css_update_count = self._css_update_count
            await asyncio.sleep(PAUSE)
        self.screen.refresh(layout=True)

    def _end_update(self) -> None:
        """A screen that is painted in bands is seen when all of them are there, where the terminal
        has synchronised output."""
        if not (isinstance(self.screen, LightScreen) and self.screen.half_painted):
            super()._end_update()

    def _end_batch(self) -> None:
        super()._end_batch()
        for screen in self._screen_stack[-1:]:
            if not self._batch_count and isinstance(screen, LightScreen):
                screen.paint_rest()

    def _keep_theme(self, _theme: object) -> None:
        if self.theme != self.settings.values.theme:
            self.settings.change(theme=self.theme)

    @work(group="first-start", exclusive=True)
    async def action_first_model(self) -> None:
        """Nothing was chosen yet: the first model of the catalogue that somebody has put here, if
        any; else the way to one is shown."""

        def look() -> list[str]:
            from localspec import resources
            from localspec.catalog import Catalogue

            ours = resources.data_root()  # what comes along is to show methods, not to talk with
            listings = Catalogue.load().listings()
            return [x.name for x in listings if x.path and not x.path.is_relative_to(ours)]

        await self.painted.wait()
        try:
            here = await asyncio.to_thread(look)
        except LocalspecError as error:
            self.tell(error)
            return
        if here:
            self.use(model=here[0])
        else:
            self._begin()

    async def first_download(self) -> FirstDownload | None:
        """What to download first on this machine; found out once. Raises LocalspecError."""
        await self.painted.wait()
        from localspec.tui.screens import first_start

        if self._first_download is None:
            self._first_download = asyncio.create_task(asyncio.to_thread(first_start.advise))
        return await asyncio.shield(self._first_download)

    @work(group="begin")
    async def _begin(self) -> None:
        """No model is here: the way to the first one."""
        from localspec.tui.screens.first_start import COMES_ALONG, DEMO, FirstStartScreen

        if any(isinstance(screen, FirstStartScreen) for screen in self.screen_stack):
            return
        chosen = await self.push_screen_wait(FirstStartScreen(self.first_download))
        if chosen is None:
            return
        if chosen.what in (DEMO, COMES_ALONG):
            self.use(model=chosen.what)
            return
        if chosen.what == "pull":
            name, quant = chosen.name, chosen.quant
            use = {"model": f"{name}:{quant}" if quant else name}
            self.pulls.start(name, quant or None, entry=name, use=use, wished=True)
        self.action_mode("models")

    # ---- for screens --------------------------------------------------------------------------

    def use(self, **changes: Any) -> None:
        """Choose a model, drafter or draft length (fields of Setup) for all screens and the next
        start. Another model begins with its recommended drafter, and what a profile said of the
        last drafter holds for no other; a draft length that is chosen is a chain's. What was to be
        used once it is here gives way to what is chosen later."""
        if changes.get("model") is not None:
            self.pulls.drop_wishes()
        elif "drafter" in changes:
            self.pulls.drop_wishes(self.setup.model)
        if changes.get("model", self.setup.model) != self.setup.model:
            changes = {"drafter": "auto", "n_max": None, **changes}
        if "drafter" in changes:
            changes = {"p_min": None, "tree": 0, **changes}
        elif "n_max" in changes:
            changes = {"tree": 0, **changes}
        self.setup = replace(self.setup, **changes)
        self.settings.change(**asdict(self.setup))

    def go_on_with(self, result: dict[str, Any]) -> None:
        """Show Bench, which makes the runs that this interrupted one lacks."""
        self.to_resume = result
        self.action_mode("bench")

    def notify(self, message: str, *, title: str = "", here: bool = False, **how: Any) -> None:
        """Every notice; of what is done with a command elsewhere it names the app's way. None is
        markup: they name models, files and what was written. ``here``: it is of this mode, whose
        keys are others' letters, and goes when another one is shown."""
        mode = self.current_mode
        how["markup"] = False
        message, title = in_app(message, mode), in_app(title, mode)
        if here:
            self._only_in[title, message] = mode
        super().notify(message, title=title, **how)

    def action_help_quit(self) -> None:
        self.notify("Ctrl+Q quits.", title="Do you want to quit?")

    @on(DeliveryComplete)
    def _delivered(self, event: DeliveryComplete) -> None:
        event.prevent_default()  # Textual's own notice is markup, with the path in it
        self.notify(str(event.path or ""), title="Screenshot saved")

    def _on_notify(self, event: Notify) -> None:
        """What is still shown is not shown a second time, nor where it is not so any more."""
        new = event.notification
        again = any((n.title, n.message) == (new.title, new.message) for n in self._notifications)
        if again or self._is_of_another_mode(new):
            event.prevent_default()

    def _is_of_another_mode(self, said: Notification) -> bool:
        mode = self.current_mode
        return self._only_in.get((said.title, said.message), mode) != mode

    def switch_mode(self, mode: str) -> AwaitMount:
        shown = super().switch_mode(mode)
        for said in filter(self._is_of_another_mode, list(self._notifications)):
            self._unnotify(said)
        return shown

    def tell(self, error: LocalspecError) -> None:
        """An error that the person caused or can do something about, as a notice. That nothing can
        be kept is said once: whatever is to be kept would say it again."""
        if isinstance(error, StoreUnusable):
            if self._unkept_told:
                return
            self._unkept_told = True
        self.notify(error.hint, title=error.message, severity="error", timeout=10, markup=False)

    # ---- engine -------------------------------------------------------------------------------

    @on(StatusChanged)
    def _status_changed(self, message: StatusChanged) -> None:
        self.engine_status = message.status

    @on(EngineLost)
    def _engine_lost(self, message: EngineLost) -> None:
        if not isinstance(self.screen, EngineLostScreen):
            self.push_screen(EngineLostScreen(message.error), self._after_loss)

    def _after_loss(self, choice: Choice | None) -> None:
        if choice == "restart":
            self.action_restart_engine()

    @work(group="restart")
    async def action_restart_engine(self) -> None:
        if self.engine.busy:
            from localspec.tui.screens.dialogs import Confirm

            text = f"It is at work ({self.engine.status.what}), which is broken off."
            if await self.push_screen_wait(Confirm("End the engine?", text, "End it")):
                self.engine.kill()  # its end is shown, with a way to a new one
            return
        try:
            job = self.engine.restart()
            if job is not None:
                await job
                self.notify("The engine runs again.")
        except LocalspecError as error:
            self.tell(error)

    # ---- downloads ----------------------------------------------------------------------------

    @on(PullEnded)
    def _pull_ended(self, message: PullEnded) -> None:
        pull = message.pull
        if message.bug is not None:
            raise message.bug
        if pull.error is not None:
            self.tell(pull.error)
        elif pull.state == "cancelled":
            where = "p" if self.current_mode == "models" else "F2, then p"
            self.notify(
                f"What arrived is kept; {where} on its line goes on from there.",
                title=f"{pull.name} stopped",
                here=self.current_mode == "models",
            )
        else:
            is_model = bool(pull.use) or not pull.drafts
            first = self.setup.model is None and not pull.drafts  # what else
            if (pull.wished and is_model) or first:
                self.use(**(pull.use or {"model": pull.name}))
                said = ". It is chosen: F3 to chat with it."
            elif pull.drafts:
                target = title_of(pull.use["model"]) if pull.use else "its model"
                said = f": Enter on {target} (F2) offers it."
            else:
                said = ": Enter on it (F2) uses it."
            self.notify(f"{pull.name} is here{said}", markup=False, timeout=8)

    # ---- actions ------------------------------------------------------------------------------

    @on(ModeTab.Chosen)
    def _mode_chosen(self, message: ModeTab.Chosen) -> None:
        self.action_mode(message.mode)

    def action_mode(self, mode: str) -> None:
        if len(self.screen_stack) > 1:  # not from under a dialog
            return
        self._asked = perf_counter()
        if ahead.imported(mode):
            self.opening = None
            self.switch_mode(mode)
        else:
            self._open(mode)

    @work(exclusive=True, group="open")
    async def _open(self, mode: str) -> None:
        """Right after the start, when it is not imported yet."""
        self.opening = mode
        await asyncio.to_thread(ahead.bring, ahead.SCREENS[mode][0])
        await asyncio.to_thread(self.sheet.prepare, self.get_css_variables())
        if self.opening == mode:  # another may have been asked for since then
            self.action_mode(mode)
            self.opening = None

    async def deal_with(self, event: Key | Paste) -> None:
        self._asked = perf_counter()
        screen = self.screen
        made: asyncio.Event = screen._mounted_event
        if isinstance(screen, ModeScreen) and made.is_set():
            screen.before_writing(event)
        await super().deal_with(event)

    async def _check_bindings(self, key: str, priority: bool = False) -> bool:
        """A key that is pressed while a screen is made waits until its widgets are there."""
        made: asyncio.Event = self.screen._mounted_event
        await made.wait()
        return await super()._check_bindings(key, priority)

    def action_command_palette(self) -> None:
        if not isinstance(self.screen, Palette):
            self.push_screen(Palette(id="--command-palette"))

    def action_explain(self) -> None:
        screen = self.screen
        if isinstance(screen, ModeScreen):
            keys = [
                (shown, binding.tooltip or binding.description)
                for shown, binding, _ in actions(screen)
            ]
            self.push_screen(ExplainScreen(ModeBar.MODES[screen.MODE], screen.explained, keys))

    @work(group="engine-settings", exclusive=True)
    async def action_engine_settings(self) -> None:
        def usual() -> Usual:
            from localspec.chat.session import CHAT_CONTEXT
            from localspec.machine import default_threads, threads_beside_drawing

            return Usual(threads_beside_drawing(), default_threads(), CHAT_CONTEXT)

        from localspec.tui.screens.engine_settings import EngineSettingsScreen, Usual

        with self.coming():
            found = await asyncio.to_thread(usual)
        if isinstance(self.screen, ModeScreen):  # no dialog was opened meanwhile
            chosen = await self.push_screen_wait(EngineSettingsScreen(self.setup.engine, found))
            if chosen is not None and chosen != self.setup.engine:
                self.use(engine=chosen)

    def deliver_screenshot(
        self, filename: str | None = None, path: str | None = None, time_format: str | None = None
    ) -> str | None:
        """Into the downloads; where there is no such folder, into the one of the shell."""
        from platformdirs import user_downloads_path

        downloads = user_downloads_path()
        folder = path or str(downloads if downloads.is_dir() else Path.cwd())
        return super().deliver_screenshot(filename, folder, time_format)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        for command in super().get_system_commands(screen):
            # our own entries have their keys with them; no part here is better alone
            left_out = command.title in ("Quit", "Keys", "Maximize")
            if left_out or (command.title.startswith("Copy sel") and not screen.selections):
                continue
            yield command
        yield SystemCommand(
            "Restart engine", "Start a fresh engine process", self.action_restart_engine
        )
        titles = ("Engine log", "What llama.cpp says"), ("Earlier engine log", "Of the one before")
        for log, (title, text) in zip(self.engine.logs, titles, strict=False):
            yield SystemCommand(title, text, partial(self._show_log, log))

    def _show_log(self, path: Path) -> None:
        self.push_screen(LogScreen(path))


def collect_seldom() -> None:
    """A collection of everything stops the drawing for 0.1 to 0.4 s: what is there already is left
    out of it, and it comes after so much new that hardly anybody meets it. Those of what is new
    are small: of 25,000 objects, which an opened conversation soon brings, one takes 30 ms."""
    gc.freeze()
    gc.set_threshold(2_000, 2, 20_000)
    gc.enable()


class _Started(LocalspecApp):
    """The app as a process of its own."""

    def on_ready(self) -> None:
        collect_seldom()
        for name in ("SIGHUP", "SIGTERM"):  # the window is closed, the machine goes down
            if hasattr(signal, name):
                number = getattr(signal, name)
                with suppress(NotImplementedError):  # Windows
                    leave = partial(self.exit, return_code=128 + number)
                    asyncio.get_running_loop().add_signal_handler(number, leave)


def run() -> int:
    """Open the app and stay until the person leaves; returns the exit code. Raises what ended it
    otherwise: a bug."""
    app = _Started()
    app.run()
    bug = app._exception
    if bug is not None:
        raise bug.error if isinstance(bug, WorkerFailed) else bug
    return app.return_code or 0
