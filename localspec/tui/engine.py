"""The app's one engine process, and the one thread that may talk to it.

Screens never call the engine: they hand blocking work to ``EngineService.start`` and await the job.
The work runs in the engine's thread, one job at a time, and reports with ``post_message``, which
Textual allows from any thread. So the event loop never waits for the engine.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from textual.message import Message

from localspec.errors import DoesNotFit, EngineClosed, EngineDied, LocalspecError
from localspec.reference import title_of
from localspec.tui.widgets.mode_bar import ModeBar

if TYPE_CHECKING:  # they bring msgspec and more, which the first paint does not wait for
    from localspec.engine.client import Engine
    from localspec.records import LoadSettings

Choose = Callable[["Engine"], "LoadSettings"]
T = TypeVar("T")
State = Literal["off", "starting", "loading", "ready", "busy", "dead"]
SWITCHING = "Switching"
"""A job that takes a moment: what is asked meanwhile waits for it (``settled``)."""
BELOW_NORMAL = 5
"""Niceness of the drawing thread: decoding goes first where cores are few."""


class EngineBusy(LocalspecError):
    """A job is running already; the engine does one thing at a time."""


@dataclass(frozen=True, slots=True)
class Status:
    """What the engine is doing. ``what``: the running job, the model that is being loaded, or how
    the engine died."""

    state: State = "off"
    what: str = ""
    model: Path | None = None


class StatusChanged(Message):
    """To the app: the engine's status is another."""

    def __init__(self, status: Status) -> None:
        self.status = status
        super().__init__()


class EngineLost(Message):
    """To the app: the engine process ended by itself."""

    def __init__(self, error: EngineDied) -> None:
        self.error = error
        super().__init__()


class Job(Generic[T]):
    """Work in the engine's thread. ``await job`` gives its result or raises what it raised.

    Long work looks at ``cancelled`` between its parts; a running generation is stopped as well.
    ``mode``: the one that began it, and in which Esc ends it; None: the app.
    """

    def __init__(self, service: EngineService, what: str, mode: str | None) -> None:
        self.what = what
        self.mode = mode
        self._service = service
        self._cancelled = threading.Event()
        self._future: Future[T] = Future()

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    @property
    def done(self) -> bool:
        return self._future.done()

    def cancel(self) -> None:
        """Ask the work to end soon; it ends by itself, so go on awaiting it."""
        self._cancelled.set()
        self._service.cancel_generation()

    def __await__(self) -> Generator[Any, None, T]:
        # shielded: a screen that stops waiting does not make the engine's thread forget its work
        return asyncio.shield(asyncio.wrap_future(self._future)).__await__()


@dataclass(eq=False)
class _Wait:
    """Something that ``mode`` asks for once a switch is over."""

    mode: str
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What the engine was started for: the arguments of ``connect``, and how it was loaded."""

    target: Path
    settings: LoadSettings
    choose: Choose | None
    chosen: LoadSettings


class EngineService:
    """Starts the engine when it is first needed, and ends it with the app.

    ``post`` takes the messages above (``App.post_message``); ``launch`` starts an engine process.
    """

    def __init__(
        self,
        post: Callable[[Message], object],
        launch: Callable[[Path | None], Engine] | None = None,
    ) -> None:
        self._post = post
        self._launch = launch or self._start
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="engine-jobs")
        # Threads and processes inherit niceness: the engine's thread is made before it is lowered.
        self._pool.submit(lambda: None).result()
        self._engine: Engine | None = None
        self._loaded: _Loaded | None = None
        self._closed = False
        self._job: Job[Any] | None = None
        self._waiting: list[_Wait] = []
        self.status = Status()
        self.last_death: EngineDied | None = None
        self.logs: tuple[Path, ...] = ()
        """Of the engine that runs, or ran last, and of the one before."""

    # ---- for screens, from the event loop -----------------------------------------------------

    @property
    def busy(self) -> bool:
        return self._job is not None

    @property
    def taken(self) -> bool:
        """Is it busy for longer than a moment?"""
        return self.busy and not self.switching

    @property
    def switching(self) -> bool:
        job = self._job
        return job is not None and job.what == SWITCHING

    def runs_for(self, mode: str) -> bool:
        """Is it at work for this mode, or will it be in a moment?"""
        job = self._job
        return (job is not None and job.mode == mode) or any(w.mode == mode for w in self._waiting)

    async def settled(self, mode: str) -> bool:
        """Wait for a switch that goes on; False: ``mode`` cancelled meanwhile what it asks for."""
        wait = _Wait(mode)
        self._waiting.append(wait)
        try:
            while not wait.stopped and self.switching and (job := self._job) is not None:
                with suppress(LocalspecError):  # whose job it is tells
                    await job
        finally:
            self._waiting.remove(wait)
        return not wait.stopped

    def refusal(self, mode: str | None) -> EngineBusy:
        """What ``mode`` is told while it is busy."""
        assert self._job is not None
        where = "" if self._job.mode in (None, mode) else f" in {ModeBar.MODES[self._job.mode]}"
        return EngineBusy(
            f"The engine is busy ({self._job.what}).", f"Wait for it, or stop it with Esc{where}."
        )

    def start(self, what: str, work: Callable[[Job[T]], T], mode: str | None = None) -> Job[T]:
        """Run ``work(job)`` in the engine's thread. Raises EngineBusy while another job runs.

        ``what`` says in a word or two what is going on ("Answering"): the status shows it.
        ``mode``: whose work it is, which ``cancel`` asks for.
        """
        if self._job is not None:
            raise self.refusal(mode)
        job: Job[T] = Job(self, what, mode)
        self._job = job
        self._show("busy" if self._engine is not None else "starting", what)
        self._pool.submit(self._run, job, work)
        return job

    def cancel(self, mode: str) -> None:
        """Cancel the job that runs or waits for this mode, if any."""
        for wait in self._waiting:
            wait.stopped |= wait.mode == mode
        if self._job is not None and self._job.mode == mode:
            self._job.cancel()

    def restart(self) -> Job[None] | None:
        """A fresh process with the model that was loaded last, as it was loaded; None when there
        was none."""
        loaded = self._loaded
        if loaded is None:
            return None

        def again(_job: Job[None]) -> None:
            self._end()
            self.connect(loaded.target, loaded.settings, choose=loaded.choose)

        return self.start("Starting", again)

    def end(self) -> Job[None]:
        """The process ends, and what it has open is closed. Raises EngineBusy as ``start`` does."""

        def end(_job: Job[None]) -> None:
            self._end()
            self._loaded = None

        return self.start("Ending", end)

    def kill(self) -> None:
        """End an engine that may not listen any more, in the midst of a job: it counts as died."""
        if self._engine is not None:
            self._engine.kill()

    def check(self) -> None:
        """Notice an engine that died while nobody talked to it; called about once a second."""
        engine = self._engine
        if engine is not None and self._job is None and not engine.alive:
            self._lost(engine.death())

    def close(self) -> None:
        """End the engine, and whatever runs in it; none is started any more."""
        self._closed = True  # first: one may begin just now
        if self._job is not None:
            self._job.cancel()
        self._end()
        self._pool.shutdown(wait=False, cancel_futures=True)

    # ---- for jobs, from the engine's thread ---------------------------------------------------

    def connect(
        self,
        target: Path,
        settings: LoadSettings,
        log_file: Path | None = None,
        choose: Choose | None = None,
    ) -> Engine:
        """The engine with ``target`` loaded: the running one where it has it, loaded as would be
        chosen again, else a new one.

        There is one engine at a time: a model's weights and contexts can fill the memory. Raises
        EngineClosed after ``close``.
        """
        running = self._engine
        if (
            running is not None
            and running.alive
            and self._serves(running, target, settings, choose)
        ):
            return running
        self._end()
        what = self._job.what if self._job else ""
        self._go_on()
        self._show("starting", what)
        try:
            engine = self._engine = self._launch(log_file)
            self._go_on()
            self._note_log(engine.log_file)
            self._show("loading", title_of(str(target)))
            chosen = choose(engine) if choose else settings
            engine.load(target, chosen)
        except BaseException:
            self._end()
            raise
        self._loaded = _Loaded(target, settings, choose, chosen)
        self._show("busy", what)
        return engine

    # ---- inside -------------------------------------------------------------------------------

    def _serves(
        self, running: Engine, target: Path, settings: LoadSettings, choose: Choose | None
    ) -> bool:
        """Is it what ``connect`` would start? Where layers were placed to fit something else beside
        them it may not be."""
        loaded = self._loaded
        if loaded is None or (loaded.target, loaded.settings) != (target, settings):
            return False
        try:
            return choose is None or choose(running) == loaded.chosen
        except DoesNotFit:
            return False  # it did not when this one was loaded

    def _start(self, log_file: Path | None) -> Engine:
        from localspec.engine.client import Engine

        def begun(engine: Engine) -> None:
            self._engine = engine  # ``close`` ends it from now on
            self._go_on()

        return Engine(log_file=log_file, begun=begun)

    def _go_on(self) -> None:
        if self._closed:
            raise EngineClosed

    def cancel_generation(self) -> None:
        engine = self._engine
        if engine is not None and engine.alive:
            try:
                engine.cancel()
            except LocalspecError:
                return  # it died just now: the job is told

    def _run(self, job: Job[T], work: Callable[[Job[T]], T]) -> None:
        failure: BaseException | None = None
        try:
            result = work(job)
        except BaseException as error:  # noqa: BLE001  whoever awaits the job gets it
            failure = error
        self._job = None
        if isinstance(failure, EngineDied):
            self._lost(failure)
        else:
            self._show("ready" if self._engine is not None else "off")
        # last: who awaits the job may start the next one at once
        if failure is None:
            job._future.set_result(result)
        elif isinstance(failure, KeyboardInterrupt):  # in the event loop it would end the app
            job._future.cancel()
        else:
            job._future.set_exception(failure)

    def _lost(self, error: EngineDied) -> None:
        self._end()
        self.last_death = error
        if error.log_file:  # it may have died before it was there
            self._note_log(Path(error.log_file))
        self._show("dead", error.how)
        self._post(EngineLost(error))

    def _note_log(self, log: Path) -> None:
        if log not in self.logs:
            self.logs = (log, *self.logs[:1])

    def _end(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def _show(self, state: State, what: str = "") -> None:
        self.status = Status(state, what, self._loaded.target if self._loaded else None)
        self._post(StatusChanged(self.status))


def lower_priority() -> None:
    """Let decoding go before drawing. Linux only: elsewhere niceness is the whole process's, which
    the engine would inherit."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        now = os.getpriority(os.PRIO_PROCESS, thread)
        # who has less already (nice localspec) is refused more
        os.setpriority(os.PRIO_PROCESS, thread, max(now, BELOW_NORMAL))
