"""How a target is loaded so that it fits, decided before it is loaded, and refused where it cannot.

The formula answers where the answer is clear; else llama.cpp simulates the allocations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.engine.client import Engine
from localspec.errors import DoesNotFit, ModelFileError
from localspec.fit import (
    RAM,
    RAM_MARGIN,
    SMALLEST_CONTEXT,
    Fit,
    Formula,
    Need,
    Needs,
    Placement,
    gib,
)
from localspec.gguf_header import GGUFHeader, check_model_file
from localspec.machine import Memory
from localspec.records import ContextSettings, DrafterSettings, LoadSettings

_DOUBT = 0.15
"""Where by so much more or less than the formula's figure the answer would be another, llama.cpp is
asked; it is within a tenth in the tests."""


class Fitting:
    """What fits beside what, in the memory as it is before the target is loaded, also where that
    was done for somebody else.

    ``given`` False: nobody asked for a context of this size, so a smaller one does where it must.
    ``refuse`` False: nothing is refused; layers are placed all the same.
    """

    def __init__(
        self,
        path: Path,
        load: LoadSettings,
        context: ContextSettings,
        drafters: Sequence[DrafterSettings],
        *,
        given: bool = True,
        refuse: bool = True,
    ) -> None:
        self.load = load  # as chosen, once it is
        self.notes: list[str] = []  # for people
        self._path, self._load, self._context = path, load, context
        self._drafters = tuple(dict.fromkeys(drafters)) or (DrafterSettings(),)
        self._given, self._refuse = given, refuse
        self._memory: Memory | None = None
        self._placement: Placement | None = None
        self._has_gpus = False
        self._header = _header(path)

    def choose(self, engine: Engine) -> LoadSettings:
        """How to load the target into ``engine``; where that has it, whoever asks compares this
        with ``engine.loaded``. Raises ``DoesNotFit``."""
        self.load = self._choose(engine)
        if engine.loaded not in (None, self.load):  # to be loaded anew, in the memory of then
            self._placement = None
            self.notes.clear()
        return self.load

    def _choose(self, engine: Engine) -> LoadSettings:
        if self._header is None:
            return self._load  # llama.cpp says what is wrong with it
        if self._placement is None:
            self._memory = engine.free_memory()
            fit = self._fit(engine)
            if not fit.fits and self._refuse:
                raise does_not_fit(self._header, fit, self._load)
            self._placement = Placement(fit.gpu_layers, fit.cpu_experts)
            self._has_gpus = len(fit.free) > 1
            if fit.fits and fit.verdict == "GPU+CPU" and self._is_free:
                self.notes.append(fit.sentence)
        if not (self._is_free and self._has_gpus):
            return self._load
        layers, experts = self._placement
        whole = layers > self._header_layers
        return replace(self._load, gpu_layers=-1 if whole else layers, n_cpu_moe=experts)

    def check(self, context: ContextSettings, drafter: DrafterSettings) -> None:
        """Raise ``DoesNotFit`` where a session clearly does not fit the target as it was loaded."""
        if self._header is None or self._memory is None or not self._refuse:
            return
        formula = self._formula(context, drafter)
        assert self._placement is not None
        if not formula.room.holds(formula.measure(self._placement, context.n_ctx)):
            raise does_not_fit(self._header, formula.fit(context.n_ctx), self._load)

    @property
    def _is_free(self) -> bool:
        """Nobody said which layers go where."""
        return self._load.gpu_layers < 0 and not self._load.n_cpu_moe

    @property
    def _header_layers(self) -> int:
        assert self._header is not None
        return self._header.number("block_count") or 0

    def _formula(self, context: ContextSettings, drafter: DrafterSettings) -> Formula:
        assert self._header is not None and self._memory is not None
        return _formula(self._header, context, self._load, self._memory, drafter)

    def _fit(self, engine: Engine) -> Fit:
        """With the drafter that takes most."""
        formulas = {d: self._formula(self._context, d) for d in self._drafters}
        n_ctx = self._context.n_ctx

        def size(drafter: DrafterSettings) -> int:
            needs = formulas[drafter].measure(Placement(0), n_ctx)
            return sum(need.total for need in needs.values())

        drafter = max(self._drafters, key=size)
        formula = formulas[drafter]
        room = formula.room
        whole = room.fixed or Placement(room.layers if room.gpus else 0)
        needs = formula.measure(whole, n_ctx)
        if room.holds(_with_doubt(needs, _DOUBT)):
            return formula.fit(n_ctx)

        def at_least(placement: Placement, n_ctx: int) -> Needs:
            return _with_doubt(formula.measure(placement, n_ctx), -_DOUBT)

        if room.place(at_least, n_ctx)[0] == "does not fit":
            fit = formula.fit(n_ctx)
        else:
            fit = engine.fit(self._path, self._context, self._load, drafter)
        if not fit.fits and not self._given and fit.n_ctx_max:
            least = replace(self._context, n_ctx=SMALLEST_CONTEXT)
            return engine.fit(self._path, least, self._load, drafter)
        return fit


@dataclass(frozen=True, slots=True)
class Served:
    """A file of a target and the sessions that it is to serve. ``loaded``: its weights are in
    memory already."""

    path: Path
    load: LoadSettings
    sessions: tuple[tuple[ContextSettings, DrafterSettings], ...]
    loaded: bool = True


def sessions_fit(files: Sequence[Served], memory: Memory) -> tuple[int, bool]:
    """Bytes of RAM that all sessions take, with the weights still to be loaded, and whether that
    fits at once into ``memory``. By formula.

    Weights that are mapped and loaded count once more: their pages are called free as long as
    nobody else wants them, and have to stay.
    """
    total: dict[str, Need] = {RAM: Need()}
    mapped, formula = 0, None
    for file in files:
        header = _header(file.path)
        needs: Needs = {}
        for context, drafter in file.sessions if header is not None else ():
            assert header is not None
            formula = _formula(header, context, file.load, memory, drafter)
            placement = formula.room.fixed or Placement(
                formula.room.layers if formula.room.gpus else 0
            )
            needs = formula.measure(placement, context.n_ctx)
            for device, need in needs.items():
                total[device] = total.get(device, Need()) + replace(need, weights=0)
        for device, need in needs.items() if not file.loaded else ():
            total[device] += Need(weights=need.weights)
        if needs and file.loaded and file.load.mmap:
            mapped += needs[RAM].weights
    if formula is None:
        return 0, True
    return total[RAM].total, formula.room.holds(total | {RAM: total[RAM] + Need(weights=mapped)})


def _header(path: str | Path) -> GGUFHeader | None:
    """None where it does not read: llama.cpp, which reads more, then says why."""
    try:
        return check_model_file(path)
    except ModelFileError:
        return None


def _formula(
    header: GGUFHeader,
    context: ContextSettings,
    load: LoadSettings,
    memory: Memory,
    drafter: DrafterSettings,
) -> Formula:
    own = _header(drafter.path) if drafter.path else None
    if own is None and "mtp" in drafter.sources:
        own = header
    return Formula(header, context, load, memory, own, drafter.n_max)


def _with_doubt(needs: Needs, share: float) -> Needs:
    return {d: n + Need(compute=int(share * n.total)) for d, n in needs.items()}


def does_not_fit(header: GGUFHeader, fit: Fit, load: LoadSettings) -> DoesNotFit:
    """The error that says what would fit."""
    free = ", ".join(f"{gib(size)} on {name}" for name, size in fit.free.items())
    if len(fit.free) == 1:
        free = gib(fit.free[RAM])
    ways = []
    if fit.n_ctx_max:
        ways.append(f"A context of at most {fit.n_ctx_max:,} tokens fits: --ctx {fit.n_ctx_max}.")
    elif load.gpu_layers >= 0 or load.n_cpu_moe:
        ways.append("Leave out --gpu-layers: it is then chosen to fit.")
    else:
        room = sum(fit.free.values()) - RAM_MARGIN
        others = sum(n.total - n.weights for n in fit.need.values())
        if room > others:
            ways.append(f"A smaller quantisation fits, of at most {gib(room - others)}.")
        else:
            ways.append("Close other programs, or choose a smaller model.")
    ways.append("--no-fit-check tries it all the same.")
    return DoesNotFit(
        f"{header.path.name} does not fit: it needs {gib(fit.total)} for a context of "
        f"{fit.n_ctx:,} tokens, and {free} {'is' if len(fit.free) == 1 else 'are'} free.",
        " ".join(ways),
    )
