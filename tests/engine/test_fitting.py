"""How a target is loaded so that it fits, and what is refused before it is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from shapes import llama

from localspec import machine
from localspec.engine.client import Engine
from localspec.engine.fitting import Fitting, Served, sessions_fit
from localspec.errors import DoesNotFit
from localspec.fit import RAM, Formula
from localspec.gguf_header import check_model_file
from localspec.records import ContextSettings, Device, DrafterSettings, LoadSettings

GIB = 1 << 30
PLAIN = DrafterSettings()
AUTO = LoadSettings()


class Machine:
    """An engine on a machine with these devices; what it simulates is the formula's figures."""

    def __init__(self, ram: float, *gpus: float) -> None:
        self.ram = int(ram * GIB)
        self.gpus = tuple(
            Device(f"CUDA{i}", "a card", "gpu", int(g * GIB), int(g * GIB))
            for i, g in enumerate(gpus)
        )
        self.simulated = 0
        self.loaded: LoadSettings | None = None

    def free_memory(self) -> machine.Memory:
        devices = (Device(RAM, "a processor", "cpu", self.ram, self.ram), *self.gpus)
        return machine.Memory(self.ram, self.ram, devices)

    def fit(
        self, path: Path, context: ContextSettings, load: LoadSettings, drafter: DrafterSettings
    ) -> Any:
        self.simulated += 1
        formula = Formula(check_model_file(path), context, load, self.free_memory())
        return formula.fit(context.n_ctx)


@pytest.fixture
def on() -> Callable[..., Engine]:
    """``on(ram, gpu, ...)``: an engine there; sizes in GiB."""

    def make(ram: float, *gpus: float) -> Engine:
        return cast(Engine, Machine(ram, *gpus))

    return make


@pytest.fixture(scope="module")
def eight(models: Path) -> Path:
    """7.2 GiB of weights and 128 KiB of cache a token; takes no room on the disk."""
    return llama(
        models / "eight.gguf",
        n_layer=32,
        n_embd=4096,
        n_ff=14336,
        n_head=32,
        n_head_kv=8,
        vocab=4000,
    )


def fitting(path: Path, n_ctx: int = 4096, load: LoadSettings = AUTO, **more: Any) -> Fitting:
    return Fitting(path, load, ContextSettings(n_ctx, threads=1), [PLAIN], **more)


def test_what_fits_is_loaded_as_asked_and_no_simulation_is_run(
    eight: Path, on: Callable[..., Engine]
) -> None:
    for sizes in ((32,), (32, 24)):
        engine = on(*sizes)
        assert fitting(eight).choose(engine) == AUTO
        assert cast(Machine, engine).simulated == 0


def test_as_many_layers_as_fit_go_to_the_gpu_and_it_is_said(
    eight: Path, on: Callable[..., Engine]
) -> None:
    engine, wanted = on(32, 6), fitting(eight)
    load = wanted.choose(engine)
    assert 10 < load.gpu_layers < 24
    assert wanted.load == load
    assert cast(Machine, engine).simulated == 1
    (note,) = wanted.notes
    assert f"{load.gpu_layers} of 33 layers on the GPU" in note


def test_an_engine_that_has_it_loaded_is_judged_by_the_memory_before(
    eight: Path, on: Callable[..., Engine]
) -> None:
    """What was placed to fit something smaller is placed anew, in the memory of then."""
    engine = on(32, 6)
    engine.loaded = loaded = fitting(eight).choose(engine)
    again = fitting(eight)
    assert again.choose(engine) == again.load == loaded
    again.check(ContextSettings(4096, 1), PLAIN)
    with pytest.raises(DoesNotFit):
        again.check(ContextSettings(1 << 18, 1), PLAIN)
    deeper = fitting(eight, 16384)
    assert deeper.choose(engine).gpu_layers < loaded.gpu_layers
    elsewhere = on(32, 24)
    assert deeper.choose(elsewhere) == AUTO
    assert deeper.notes == []


def test_layers_that_a_person_asked_for_stay(eight: Path, on: Callable[..., Engine]) -> None:
    asked = LoadSettings(gpu_layers=5)
    assert fitting(eight, load=asked).choose(on(32, 6)) == asked
    with pytest.raises(DoesNotFit, match="Leave out --gpu-layers"):
        fitting(eight, load=LoadSettings(gpu_layers=33)).choose(on(32, 6))


def test_what_does_not_fit_is_refused_with_what_would(
    eight: Path, on: Callable[..., Engine]
) -> None:
    with pytest.raises(DoesNotFit) as refused:
        fitting(eight, 32768).choose(on(10))
    error = refused.value
    assert "11.1 GiB for a context of 32,768 tokens, and 10.0 GiB is free" in error.message
    n_ctx = int(error.hint.partition("--ctx ")[2].partition(".")[0])
    assert 8192 < n_ctx < 32768
    assert fitting(eight, n_ctx).choose(on(10)) == AUTO
    with pytest.raises(DoesNotFit, match=r"smaller quantisation fits, of at most 2\.\d GiB"):
        fitting(eight, 512).choose(on(3.1))


def test_what_is_far_too_large_is_refused_without_a_simulation(
    eight: Path, on: Callable[..., Engine]
) -> None:
    for ram, n_ctx in ((3, 512), (32, 1 << 30)):
        engine = on(ram)
        with pytest.raises(DoesNotFit):
            fitting(eight, n_ctx).choose(engine)
        assert cast(Machine, engine).simulated == 0


def test_a_context_that_nobody_asked_for_may_be_smaller(
    eight: Path, on: Callable[..., Engine]
) -> None:
    with pytest.raises(DoesNotFit):
        fitting(eight, 32768).choose(on(10))
    assert fitting(eight, 32768, given=False).choose(on(10)) == AUTO


def test_nothing_is_refused_where_the_person_says_so(
    eight: Path, on: Callable[..., Engine]
) -> None:
    tried = fitting(eight, 32768, refuse=False)
    assert tried.choose(on(3)) == AUTO
    tried.check(ContextSettings(1 << 20, 1), PLAIN)


def test_a_session_with_a_larger_context_is_refused_when_it_is_opened(
    eight: Path, on: Callable[..., Engine]
) -> None:
    loaded = fitting(eight, 4096)
    loaded.choose(on(12))
    loaded.check(ContextSettings(16384, 1), PLAIN)
    with pytest.raises(DoesNotFit, match=r"--ctx \d+"):
        loaded.check(ContextSettings(65536, 1), PLAIN)


def test_sessions_fit_together_or_one_by_one(eight: Path) -> None:
    context = ContextSettings(16384, 1)  # 2 GiB of cache each
    several = [PLAIN, *(DrafterSettings("ngram", "ngram", n_max=n) for n in (4, 8, 16))]
    sessions = tuple((context, drafter) for drafter in several)

    def fit(ram: float, load: LoadSettings = AUTO, *gpus: float) -> bool:
        there = Machine(ram, *gpus)
        taken, together = sessions_fit([Served(eight, load, sessions)], there.free_memory())
        if not gpus:
            assert taken == pytest.approx(4 * 2.1 * GIB, rel=0.05)
        return together

    assert fit(17)
    assert not fit(12), "the pages of the mapped weights have to stay"
    assert fit(12, LoadSettings(mmap=False)), "they are not among the free any more"
    assert not fit(8, LoadSettings(mmap=False))
    assert fit(32, AUTO, 12)
    assert not fit(32, AUTO, 8)


def test_a_header_that_does_not_read_is_left_to_llama_cpp(
    tmp_path: Path, on: Callable[..., Engine]
) -> None:
    lost = fitting(tmp_path / "none.gguf")
    assert lost.choose(on(1)) == AUTO
    lost.check(ContextSettings(1 << 20, 1), PLAIN)
    memory = machine.Memory(GIB, GIB)
    unread = Served(tmp_path / "none.gguf", AUTO, ((ContextSettings(512, 1), PLAIN),))
    assert sessions_fit([unread], memory) == (0, True)


@contextmanager
def engine_of(tmp_path: Path) -> Iterator[Engine]:
    with Engine(log_file=tmp_path / "engine.log") as engine:
        yield engine


def test_the_memory_before_is_kept_with_what_was_loaded(
    demo_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [machine.Memory(GIB, 672 << 20)]
    monkeypatch.setattr("localspec.engine.client.memory", lambda _devices: free[-1])
    with engine_of(tmp_path) as engine:
        chosen = fitting(demo_model, 2048).choose(engine)
        assert engine.loaded is None
        engine.load(demo_model, chosen)
        free.append(machine.Memory(GIB, 500 << 20))
        assert engine.loaded == chosen
        assert fitting(demo_model, 2048).choose(engine) == chosen, "it is not to fit beside itself"


def test_the_real_engine_is_asked_where_it_is_close(
    demo_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The demo model takes 153 MiB with 2,048 tokens; 512 MiB stay free."""
    for free, fits in ((672, True), (660, False)):
        memory = machine.Memory(GIB, free << 20)
        monkeypatch.setattr("localspec.engine.client.memory", lambda _devices, m=memory: m)
        with engine_of(tmp_path) as engine:
            wanted = fitting(demo_model, 2048)
            if fits:
                assert wanted.choose(engine) == AUTO
                continue
            with pytest.raises(DoesNotFit):
                wanted.choose(engine)
