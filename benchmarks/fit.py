"""What models are said to take, and what they do take once they are loaded.

For each file and number of GPU layers (none given: the placement that is found to fit), by device:
the formula's figure (headers alone), llama.cpp's simulation, llama.cpp's account after loading, and
how much less the device says is free then (which counts what no account does: the driver's own, and
of the CPU, pages of a mapped file that were there before).

    python benchmarks/fit.py MODEL.gguf... [--layers 0,10,99] [--ctx 8192] [--kv-type f16]
        [--drafter METHOD:FILE] [--n-max 4] [--n-cpu-moe 0] [--read]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from localspec.engine.client import Engine
from localspec.errors import LocalspecError
from localspec.fit import Formula, Placement
from localspec.gguf_header import check_model_file
from localspec.machine import default_threads, memory
from localspec.records import ContextSettings, DrafterSettings, LoadSettings, Use

MIB = 1 << 20


def drafter_of(words: str | None, n_max: int) -> DrafterSettings:
    if not words:
        return DrafterSettings()
    method, _, path = words.partition(":")
    return DrafterSettings(method, method, path or None, n_max=n_max)


def by_device(uses: tuple[Use, ...]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for use in uses:
        totals[use.device] = totals.get(use.device, 0) + use.weights + use.context + use.compute
    return totals


def row(name: str, figures: dict[str, int], real: dict[str, int] | None = None) -> None:
    cells = []
    for device, size in sorted(figures.items()):
        off = f" ({size / real[device] - 1:+.1%})" if real and real.get(device) else ""
        cells.append(f"{device} {size / MIB:10,.1f} MiB{off}")
    print(f"  {name:10} {'   '.join(cells)}")


def compare(
    path: Path, context: ContextSettings, load: LoadSettings, drafter: DrafterSettings, log: Path
) -> None:
    header = check_model_file(path)
    own = check_model_file(drafter.path) if drafter.path else None
    if own is None and "mtp" in drafter.sources:
        own = header
    with Engine(log_file=log) as engine:
        before = engine.devices()
        fit = engine.fit(path, context, load, drafter)
        print(f"{path.name}, {context.n_ctx} tokens, {drafter.method}: {fit.sentence}")
        print(
            f"  {fit.gpu_layers} of {fit.layers} layers, {fit.cpu_experts} layers' experts in RAM"
        )
        formula = Formula(header, context, load, memory(before), own, drafter.n_max)
        placement = Placement(fit.gpu_layers, fit.cpu_experts)
        said = {d: n.total for d, n in formula.measure(placement, context.n_ctx).items()}
        placed = LoadSettings(
            gpu_layers=placement.gpu_layers,
            n_cpu_moe=placement.cpu_experts,
            draft_gpu_layers=load.draft_gpu_layers,
            mmap=load.mmap,
        )
        simulated = by_device(engine.memory(path, context, placed, drafter))
    with Engine(log_file=log) as engine:  # without what the simulation may have left
        before = engine.devices()
        try:
            engine.load(path, placed)
            engine.open("s", drafter, context)
        except LocalspecError as error:
            print(f"  it cannot be loaded: {error}")
            row("formula", said)
            row("simulated", simulated)
            return
        real = by_device(engine.session_memory("s"))
        after = {d.name: d.free for d in engine.devices()}
    row("formula", said, real)
    row("simulated", simulated, real)
    row("loaded", real)
    row("less free", {d.name: d.free - after[d.name] for d in before})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--layers", default="-1", help="comma list; -1: as many as fit")
    parser.add_argument("--ctx", type=int, default=8192)
    parser.add_argument("--kv-type", default="f16")
    parser.add_argument("--drafter", help="METHOD:FILE, or a METHOD without a file")
    parser.add_argument("--n-max", type=int, default=4)
    parser.add_argument("--n-cpu-moe", type=int, default=0)
    parser.add_argument("--read", action="store_true", help="read the files instead of mapping")
    parser.add_argument("--log", type=Path, default=Path("fit-engine.log"))
    a = parser.parse_args()
    context = ContextSettings(a.ctx, default_threads(), kv_type=a.kv_type)
    with Engine(log_file=a.log) as engine:
        for device in engine.devices():
            print(
                f"{device.name} ({device.kind}), {device.description}: "
                f"{device.free / MIB:,.0f} of {device.total / MIB:,.0f} MiB free"
            )
    for path in a.models:
        for layers in map(int, a.layers.split(",")):
            load = LoadSettings(gpu_layers=layers, n_cpu_moe=a.n_cpu_moe, mmap=not a.read)
            compare(path, context, load, drafter_of(a.drafter, a.n_max), a.log)


if __name__ == "__main__":
    main()
