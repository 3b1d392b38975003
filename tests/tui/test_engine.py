"""The engine's service: one job at a time, off the event loop, and a death is told."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import EngineDied, UsageError
from localspec.records import LoadSettings
from localspec.tui.engine import EngineBusy, EngineLost, EngineService, Job, StatusChanged

TARGET = Path("/models/a.gguf")


class FakeEngine:
    def __init__(self, _log: Path | None = None) -> None:
        self.alive = True
        self.loaded: list[Path] = []
        self.cancels = 0

    def load(self, path: Path, _settings: LoadSettings) -> None:
        self.loaded.append(path)

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
    job = service.start("Answering", lambda _job: go.wait(10))
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
        return "stopped" if job._cancelled.wait(10) else "went on"

    job = service.start("Answering", work)
    await began.wait()
    service.cancel()
    assert await job == "stopped"
    assert engines[0].cancels == 1


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
