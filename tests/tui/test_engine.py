"""The engine's service: one job at a time, off the event loop, and a death is told."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from patience import FOREVER

from localspec.errors import DoesNotFit, EngineClosed, EngineDied, UsageError
from localspec.records import LoadSettings
from localspec.tui.engine import (
    BELOW_NORMAL,
    SWITCHING,
    EngineBusy,
    EngineLost,
    EngineService,
    Job,
    StatusChanged,
    lower_priority,
)

TARGET = Path("/models/a.gguf")


class FakeEngine:
    log_file = Path("/logs/engine.log")

    def __init__(self, _log: Path | None = None) -> None:
        self.alive = True
        self.loaded: list[Path] = []
        self.layers: int | None = None
        self.cancels = 0

    def load(self, path: Path, settings: LoadSettings) -> None:
        self.loaded.append(path)
        self.layers = settings.gpu_layers

    def cancel(self) -> None:
        self.cancels += 1

    def close(self) -> None:
        self.alive = False

    def death(self) -> EngineDied:
        return EngineDied("signal SIGKILL", ["the end"])


class Posted(list[Any]):
    @property
    def states(self) -> list[str]:
        return [m.status.state for m in self if isinstance(m, StatusChanged)]


@pytest.fixture
def posted() -> Posted:
    return Posted()


@pytest.fixture
def engines() -> list[FakeEngine]:
    return []


@pytest.fixture
def service(posted: Posted, engines: list[FakeEngine]) -> Any:
    def launch(_log: Path | None) -> Any:
        engines.append(FakeEngine())
        return engines[-1]

    service = EngineService(posted.append, launch)
    yield service
    service.close()


def connecting(service: EngineService, target: Path = TARGET) -> Any:
    return lambda _job: service.connect(target, LoadSettings())


async def test_work_runs_in_a_thread_of_its_own_and_gives_its_result(
    service: EngineService,
) -> None:
    name = await service.start("Asking", lambda _job: threading.current_thread().name)
    assert name.startswith("engine-jobs")
    with pytest.raises(UsageError, match="no"):
        await service.start("Asking", refuse)
    assert not service.busy


def refuse(_job: Job[None]) -> None:
    raise UsageError("no")


async def test_one_job_at_a_time(service: EngineService) -> None:
    go = threading.Event()
    job = service.start("Answering", lambda _job: go.wait(FOREVER))
    with pytest.raises(EngineBusy, match="Answering"):
        service.start("Benching", lambda _job: None)
    go.set()
    assert await job
    assert await service.start("Benching", lambda _job: 7) == 7


async def test_the_engine_starts_with_the_first_job_that_needs_it_and_is_kept(
    service: EngineService, posted: Posted, engines: list[FakeEngine]
) -> None:
    await service.start("Looking", lambda _job: None)
    assert not engines
    first = await service.start("Answering", connecting(service))
    again = await service.start("Answering", connecting(service))
    assert first is again
    assert engines[0].loaded == [TARGET]
    assert posted.states[-1] == "ready"
    other = await service.start("Answering", connecting(service, Path("/models/b.gguf")))
    assert other is not first
    assert [e.alive for e in engines] == [False, True]


async def test_cancel_reaches_the_job_and_the_generation(
    service: EngineService, engines: list[FakeEngine]
) -> None:
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    def work(job: Job[str]) -> str:
        service.connect(TARGET, LoadSettings())
        loop.call_soon_threadsafe(began.set)
        return "stopped" if job._cancelled.wait(FOREVER) else "went on"

    job = service.start("Answering", work, "chat")
    await began.wait()
    service.cancel("history")
    assert not job.cancelled
    service.cancel("chat")
    assert await job == "stopped"
    assert engines[0].cancels == 1


async def test_what_waits_for_a_switch_is_cancelled_by_its_own_mode_alone(
    service: EngineService,
) -> None:
    over = threading.Event()
    switch = service.start(SWITCHING, lambda _job: over.wait(FOREVER), "chat")
    waits = {mode: asyncio.create_task(service.settled(mode)) for mode in ("ab", "bench")}
    await asyncio.sleep(0)
    assert [service.runs_for(m) for m in ("chat", "ab", "bench", "models")] == [True] * 3 + [False]
    service.cancel("ab")
    assert not switch.cancelled
    over.set()
    assert {mode: await wait for mode, wait in waits.items()} == {"ab": False, "bench": True}
    assert not service.runs_for("ab")


async def test_who_finds_it_busy_is_told_where_that_can_be_stopped(service: EngineService) -> None:
    over = threading.Event()
    job = service.start("Measuring", lambda _job: over.wait(FOREVER), "ab")
    for mode, where in (("chat", "Esc in A/B."), ("ab", "Esc."), (None, "Esc in A/B.")):
        with pytest.raises(EngineBusy) as told:
            service.start("Answering", lambda _job: None, mode)
        assert told.value.hint.endswith(f"stop it with {where}")
    over.set()
    await job


async def test_a_death_in_a_job_is_told_and_the_next_job_has_a_new_engine(
    service: EngineService, posted: Posted, engines: list[FakeEngine]
) -> None:
    def die(_job: Job[None]) -> None:
        service.connect(TARGET, LoadSettings())
        raise EngineDied("signal SIGABRT", ["GGML_ASSERT"], "/tmp/log")

    with pytest.raises(EngineDied):
        await service.start("Answering", die)
    assert posted.states[-1] == "dead"
    assert [m.error.how for m in posted if isinstance(m, EngineLost)] == ["signal SIGABRT"]
    await service.start("Answering", connecting(service))
    assert len(engines) == 2


async def test_an_idle_engine_s_death_is_noticed(
    service: EngineService, posted: Posted, engines: list[FakeEngine]
) -> None:
    await service.start("Answering", connecting(service))
    service.check()
    assert service.status.state == "ready"
    engines[0].alive = False
    service.check()
    assert service.status.state == "dead"
    assert [m.error.how for m in posted if isinstance(m, EngineLost)] == ["signal SIGKILL"]


async def test_restart_loads_the_same_model_into_a_fresh_process(
    service: EngineService, engines: list[FakeEngine]
) -> None:
    assert service.restart() is None
    await service.start("Answering", connecting(service))
    job = service.restart()
    assert job is not None
    await job
    assert [e.alive for e in engines] == [False, True]
    assert engines[1].loaded == [TARGET]


# ---- how it was fitted ------------------------------------------------------------------------


def fitted(service: EngineService, *layers: int | None) -> Any:
    """A job whose fitting finds room for so many layers, call by call; None: for nothing."""
    left = list(layers)

    def choose(_engine: Any) -> LoadSettings:
        found = left.pop(0) if len(left) > 1 else left[0]
        if found is None:
            raise DoesNotFit("It does not fit.")
        return replace(LoadSettings(), gpu_layers=found)

    return lambda _job: service.connect(TARGET, LoadSettings(), choose=choose)


async def test_who_finds_the_model_loaded_is_asked_whether_it_would_be_loaded_so(
    service: EngineService, engines: list[FakeEngine]
) -> None:
    first = await service.start("Answering", fitted(service, 20))
    assert await service.start("Benching", fitted(service, 20)) is first
    assert engines[0].layers == 20
    await service.start("Benching", fitted(service, 12))
    assert [e.alive for e in engines] == [False, True]
    assert engines[1].layers == 12
    await service.start("Benching", fitted(service, None, 9))  # there is more room by now
    assert engines[2].layers == 9
    with pytest.raises(DoesNotFit):
        await service.start("Benching", fitted(service, None))


async def test_restart_loads_as_many_layers_as_before(
    service: EngineService, engines: list[FakeEngine]
) -> None:
    await service.start("Answering", fitted(service, 20))
    job = service.restart()
    assert job is not None
    await job
    assert [e.layers for e in engines] == [20, 20]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is the whole process's")
@pytest.mark.parametrize("before", [0, BELOW_NORMAL + 5], ids=["as others", "less already"])
def test_the_thread_that_draws_lets_the_others_go_first(before: int) -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    ours = niceness()
    with ThreadPoolExecutor(1) as drawing:
        given = max(ours, before)
        drawing.submit(os.setpriority, os.PRIO_PROCESS, 0, given).result()
        drawing.submit(lower_priority).result()
        assert drawing.submit(niceness).result() == max(given, BELOW_NORMAL)
    assert niceness() == ours


# ---- the person leaves ------------------------------------------------------------------------


@pytest.mark.parametrize("again", [False, True], ids=["started", "restarted"])
async def test_an_engine_that_is_starting_when_the_app_ends_is_ended_unloaded(
    posted: Posted, engines: list[FakeEngine], again: bool
) -> None:
    """It is nowhere to be found before it is there."""
    starting, closed = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def launch(_log: Path | None) -> Any:
        if not again or engines:
            loop.call_soon_threadsafe(starting.set)
            closed.wait(FOREVER)
        engines.append(FakeEngine())
        return engines[-1]

    service = EngineService(posted.append, launch)
    job = service.start("Answering", connecting(service))
    if again:
        await job
        job = service.restart() or job
    await starting.wait()
    service.close()
    closed.set()
    with pytest.raises(asyncio.CancelledError):  # anything else would end the event loop
        await job
    assert not engines[-1].alive
    assert engines[-1].loaded == []
    assert len(engines) == 1 + again


async def test_after_the_end_a_job_can_start_no_engine(
    service: EngineService, engines: list[FakeEngine]
) -> None:
    began, closed = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    refused: list[BaseException] = []

    def work(_job: Job[int]) -> int:
        service.connect(TARGET, LoadSettings())
        loop.call_soon_threadsafe(began.set)
        closed.wait(FOREVER)
        try:
            service.connect(TARGET, LoadSettings())
        except EngineClosed as error:
            refused.append(error)
        return 7  # as a bench that keeps what it has

    job = service.start("Benching", work, "bench")
    await began.wait()
    service.close()
    closed.set()
    assert await job == 7
    assert refused
    assert [e.alive for e in engines] == [False]
