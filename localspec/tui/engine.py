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

from localspec.errors import EngineDied, LocalspecError

if TYPE_CHECKING:  # they bring msgspec and more, which the first paint does not wait for
    from localspec.engine.client import Engine
    from localspec.records import LoadSettings

T = TypeVar("T")
State = Literal["off", "starting", "ready", "busy", "dead"]
SWITCHING = "Switching"
"""A job that takes a moment: what is asked meanwhile waits for it (``settled``)."""
BELOW_NORMAL = 5
"""Niceness of the drawing thread: decoding goes first where cores are few."""


class EngineBusy(LocalspecError):
    """A job is running already; the engine does one thing at a time."""


@dataclass(frozen=True, slots=True)
class Status:
    """What the engine is doing. ``what``: the running job, or how the engine died."""

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
    """

    def __init__(self, service: EngineService, what: str) -> None:
        self.what = what
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
        self._launch = launch or _launch
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="engine-jobs")
        # Threads and processes inherit niceness: the engine's thread is made before it is lowered.
        self._pool.submit(lambda: None).result()
        self._engine: Engine | None = None
        self._loaded: tuple[Path, LoadSettings] | None = None
        self._job: Job[Any] | None = None
        self.status = Status()
        self.last_death: EngineDied | None = None

    # ---- for screens, from the event loop -----------------------------------------------------

    @property
    def busy(self) -> bool:
        return self._job is not None

    @property
    def taken(self) -> bool:
        """Is it busy for longer than a moment?"""
        return self.busy and not self.switching

    @property
    def job(self) -> Job[Any] | None:
        """The running job."""
        return self._job

    @property
    def switching(self) -> bool:
        job = self._job
        return job is not None and job.what == SWITCHING

    async def settled(self) -> bool:
        """Wait for a switch that goes on; False: it was cancelled, and what is asked with it."""
        while self.switching and (job := self._job) is not None:
            with suppress(LocalspecError):  # whose job it is tells
                await job
            if job.cancelled:
                return False
        return True

    def start(self, what: str, work: Callable[[Job[T]], T]) -> Job[T]:
        """Run ``work(job)`` in the engine's thread. Raises EngineBusy while another job runs.

        ``what`` says in a word or two what is going on ("Answering"): the status shows it.
        """
        if self._job is not None:
            raise EngineBusy(
                f"The engine is busy ({self._job.what}).", "Wait for it, or stop it with Esc."
            )
        job: Job[T] = Job(self, what)
        self._job = job
        self._show("busy" if self._engine is not None else "starting", what)
        self._pool.submit(self._run, job, work)
        return job

    def cancel(self) -> None:
        """Cancel the running job, if any."""
        if self._job is not None:
            self._job.cancel()

    def restart(self) -> Job[None] | None:
        """A fresh process with the model that was loaded last; None when there was none."""
        loaded = self._loaded
        if loaded is None:
            return None

        def again(_job: Job[None]) -> None:
            self._end()
            self.connect(*loaded)

        return self.start("Starting", again)

    def check(self) -> None:
        """Notice an engine that died while nobody talked to it; called about once a second."""
        engine = self._engine
        if engine is not None and self._job is None and not engine.alive:
            self._lost(engine.death())

    def close(self) -> None:
        """End the engine, and whatever runs in it."""
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
        choose: Callable[[Engine], LoadSettings] | None = None,
    ) -> Engine:
        """The engine with ``target`` loaded: the running one where it has it, else a new one.

        There is one engine at a time: a model's weights and contexts can fill the memory.
        """
        if self._engine is not None and self._engine.alive and self._loaded == (target, settings):
            return self._engine
        self._end()
        what = self._job.what if self._job else ""
        self._show("starting", what)
        engine = self._launch(log_file)
        self._engine = engine
        try:
            engine.load(target, choose(engine) if choose else settings)
        except BaseException:
            self._end()
            raise
        self._loaded = (target, settings)
        self._show("busy", what)
        return engine

    # ---- inside -------------------------------------------------------------------------------

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
        else:
            job._future.set_exception(failure)

    def _lost(self, error: EngineDied) -> None:
        self._end()
        self.last_death = error
        self._show("dead", error.how)
        self._post(EngineLost(error))

    def _end(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def _show(self, state: State, what: str = "") -> None:
        self.status = Status(state, what, self._loaded[0] if self._loaded else None)
        self._post(StatusChanged(self.status))


def _launch(log_file: Path | None) -> Engine:
    from localspec.engine.client import Engine

    return Engine(log_file=log_file)


def lower_priority() -> None:
    """Let decoding go before drawing. Linux only: elsewhere niceness is the whole process's, which
    the engine would inherit."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), BELOW_NORMAL)
