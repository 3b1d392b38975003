"""``localspec models fit``: what a model takes on this machine, and what would fit."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from localspec import machine
from localspec.catalog import locate, resolve_drafters, resolve_target
from localspec.engine.client import Engine
from localspec.errors import UsageError
from localspec.fit import Fit, check_context, estimate, gib
from localspec.models import output
from localspec.records import ContextSettings, DrafterSettings, EngineOptions

COLUMNS = ("weights", "kv", "recurrent", "compute", "drafter")
_HEADS = {"kv": "KV cache", "recurrent": "states"}


def fit(model: str, drafter: str, options: EngineOptions, *, as_json: bool = False) -> int:
    """Exit code 1 when it does not fit. A file that is here is simulated by llama.cpp; one that is
    still on the Hub is judged by its header."""
    context = ContextSettings(
        n_ctx=options.ctx or output.CONTEXT,
        threads=options.threads or machine.default_threads(),
        kv_type=options.kv_type,
        draft_kv_type=options.draft_kv_type,
        flash_attn=options.flash_attn,
    )
    place = locate(model)
    with Engine(log_file=Path(options.log_file) if options.log_file else None) as engine:
        if isinstance(place, Path):
            target = resolve_target(model)
            specs = resolve_drafters(target, (drafter,))
            chosen = next((s.settings() for s in specs if s.method != "none"), DrafterSettings())
            found, how = engine.fit(target.path, context, options.load, chosen), "simulated"
        else:
            if drafter not in ("auto", "none"):
                raise UsageError(
                    f"{model} is not on this machine, and what it takes with a drafter is only "
                    "told of a model that is.",
                    f"Leave out --drafter, or get it first: localspec models pull {model}",
                )
            from localspec.gguf_header import joined
            from localspec.models.hub_command import remote_headers

            first, others = remote_headers(place)
            memory = machine.memory(engine.devices())
            header = joined(first, others)
            check_context(header, context.n_ctx)
            found = estimate(
                header, memory, n_ctx=context.n_ctx, load=options.load, context=context
            )
            how = "by formula"
    if as_json:
        output.write_json(_json(found, how))
    else:
        _print(found, how)
    return 0 if found.fits else 1


def _print(found: Fit, how: str) -> None:
    console = output.console()
    console.print(found.sentence)
    shown = [c for c in COLUMNS if any(getattr(n, c) for n in found.need.values())]
    table = output.table_of("device", *(_HEADS.get(c, c) for c in shown), "needed", "free")
    for column in table.columns[1:]:
        column.justify = "right"
    for device, free in found.free.items():
        need = found.need.get(device)
        cells = [gib(getattr(need, c)) if need else "" for c in shown]
        table.add_row(device, *cells, gib(need.total) if need else "", gib(free))
    console.print()
    console.print(table)
    if found.gpu_layers and found.verdict != "GPU" and found.n_ctx_gpu:
        console.print(f"\nUp to {found.n_ctx_gpu:,} tokens all of it fits on the GPU.")
    console.print(f"\n({how}; CPU is this machine's memory)", style="dim")


def _json(found: Fit, how: str) -> dict[str, Any]:
    return {
        **output.fit_json(found),
        "layers": found.layers,
        "cpu_experts": found.cpu_experts,
        "n_ctx_gpu": found.n_ctx_gpu,
        "need": {device: asdict(need) for device, need in found.need.items()},
        "free": dict(found.free),
        "how": how,
    }
