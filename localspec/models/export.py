"""``localspec export``: a setup as llama-server runs it: command line, preset, JSON.

Flags are those of the llama.cpp that the pinned llama-cpp-python is built from (common/arg.cpp;
``tests/models/llama_server_flags.json`` has what its ``--help`` lists). What llama-server cannot do
as localspec does is said in ``notes``, never left out silently.
"""

from __future__ import annotations

import os
import shlex
import struct
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from localspec import __version__, machine
from localspec.catalog import (
    AFTER_NGRAM,
    METHODS_WITH_TREES,
    Target,
    no_trees,
    resolve_drafters,
    resolve_target,
)
from localspec.errors import UsageError
from localspec.gguf_header import check_model_file
from localspec.models import output
from localspec.records import (
    DrafterSettings,
    DraftLength,
    EngineOptions,
    LoadSettings,
    SamplerSettings,
    TreeSize,
)
from localspec.units import exact

Format = Literal["command", "preset", "json"]
CONTEXT = 8192
"""Tokens of a server's context without --ctx, or what the model was trained on if that is less."""
FIXED_LENGTH = 4
"""Draft length in place of an adaptive one."""
SPEC_TYPES = {
    "ngram": "ngram-simple",
    "draft-model": "draft-simple",
    "mtp": "draft-mtp",
    "eagle3": "draft-eagle3",
    "dflash": "draft-dflash",
    "dspark": "draft-dspark",
}
"""llama-server's names of the drafter families (common/speculative.cpp)."""
SAMPLER_FLAGS = {
    "temperature": "--temp",
    "top_k": "--top-k",
    "top_p": "--top-p",
    "min_p": "--min-p",
    "repeat_penalty": "--repeat-penalty",
    "repeat_last_n": "--repeat-last-n",
    "presence_penalty": "--presence-penalty",
    "frequency_penalty": "--frequency-penalty",
    "seed": "--seed",
}
SERVERS_OWN = SamplerSettings()
"""llama-server's defaults, the temperature excepted, are llama.cpp's, and so are ours."""

Flags = tuple[tuple[str, str], ...]
"""Options in the order of the command line, each with its value."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What is exported. ``sampler`` holds only what differs from llama-server's own defaults;
    ``p_min`` is that of the chains which it drafts, where the drafter's are trees too."""

    target: Target
    drafter: DrafterSettings
    n_ctx: int
    engine: EngineOptions
    sampler: dict[str, float]
    thinking: bool | None
    p_min: float
    notes: tuple[str, ...] = ()


def make_setup(
    model: str,
    drafter: str,
    engine: EngineOptions,
    *,
    n_max: DraftLength | None = None,
    p_min: float | None = None,
    tree: TreeSize = 0,
    notes: Iterable[str] = (),
) -> Setup:
    """Look up what the words name; raises what ``catalog`` raises for them."""
    target = resolve_target(model)
    specs = resolve_drafters(target, (drafter,))
    if len(specs) != 1:
        raise UsageError(
            f"{drafter!r} stands for {len(specs)} drafters; a server runs one.",
            f"Name one of {', '.join(s.name for s in specs)}." if specs else "",
        )
    (spec,) = specs
    if tree and spec.method.removeprefix(AFTER_NGRAM) not in METHODS_WITH_TREES:
        raise no_trees(f"The drafter {spec.name} proposes no trees.")
    trained = check_model_file(target.path).number("context_length") or CONTEXT
    return Setup(
        target=target,
        drafter=spec.settings(n_max=n_max, p_min=p_min, tree=tree),
        n_ctx=engine.ctx or min(trained, CONTEXT),
        engine=engine,
        sampler={**target.sampling, **engine.sampler},
        thinking=target.thinking if engine.thinking is None else engine.thinking,
        p_min=spec.settings(p_min=p_min).p_min,
        notes=tuple(notes),
    )


def of_bench(which: str, engine: EngineOptions) -> Setup:
    """The winner of a past benchmark; the baseline, where no drafter was shown to be faster."""
    from localspec.bench import history

    result = history.read(which)
    engine = _as_measured(engine, result)
    best = history.best(result)
    model, bases = result["target"]["file"], result.get("bases", ())
    won = best is not None and best["verdict"] == "faster"
    if bases:
        first = bases[0]["name"]
        base = next(b for b in bases if b["name"] == (best["base"] if best and won else first))
        swept = ("kv_type", "flash_attn", "threads")
        engine = replace(engine, **{k: base[k] for k in swept if base[k] is not None})
        model = base["file"]
    # of another base than the benchmark's own file it would be the wrong name
    name = result["target"]["name"] if model == result["target"]["file"] else Path(model).stem
    if best is None or not won:
        what = "No setup" if bases else "No drafter"
        why = f"{what} was shown to be faster in that benchmark, so none is exported."
        return _called(name, make_setup(model, "none", engine, notes=[why]))
    if best["method"] == "none":
        return _called(name, make_setup(model, "none", engine))
    before, family = best["method"].rpartition("+")[:2], best["method"].rpartition("+")[2]
    made = make_setup(
        model,
        "".join((*before, best["file"] or family)),
        engine,
        n_max=best["n_max"],
        p_min=None if best["tree"] else best["p_min"],
        tree=best["tree"],
    )
    return _called(name, made)


def _called(name: str, setup: Setup) -> Setup:
    """The model goes by the name that was given to the benchmark, not by its file's."""
    return replace(setup, target=replace(setup.target, name=name))


def _as_measured(engine: EngineOptions, result: dict[str, Any]) -> EngineOptions:
    """With the settings that the benchmark ran with, where ``engine`` has the default."""
    measured, unset = result["settings"], EngineOptions()

    def left(given: EngineOptions | LoadSettings, default: object) -> dict[str, Any]:
        names = [f.name for f in fields(given) if f.name not in ("load", "sampler")]
        open_ = [n for n in names if getattr(given, n) == getattr(default, n)]
        return {n: measured[n] for n in open_ if measured.get(n) is not None}

    sampler = {k: v for k, v in measured["sampler"].items() if v != getattr(SERVERS_OWN, k)}
    # greedy is how speed is measured, and seldom how a server should answer
    temperatures = measured.get("temperatures", [])
    if len(temperatures) == 1 and temperatures[0]:
        sampler["temperature"] = temperatures[0]
    return replace(
        engine,
        **left(engine, unset),
        load=replace(engine.load, **left(engine.load, unset.load)),
        sampler={**sampler, **engine.sampler},
    )


# ---- in llama-server's words --------------------------------------------------------------------


def flags(setup: Setup) -> tuple[Flags, tuple[str, ...]]:
    """The options, and what about them a person should know."""
    engine, load, found = setup.engine, setup.engine.load, list[tuple[str, str]]()
    found += [
        ("--model", str(setup.target.path.resolve())),
        ("--alias", setup.target.name),
        ("--ctx-size", str(setup.n_ctx)),
        ("--parallel", "1"),
        ("--threads", str(engine.threads or machine.default_threads())),
        ("--flash-attn", engine.flash_attn),
        ("--cache-type-k", engine.kv_type),
        ("--cache-type-v", engine.kv_type),
    ]
    if load.gpu_layers >= 0:
        found.append(("--n-gpu-layers", str(load.gpu_layers)))
    if load.n_cpu_moe:
        found.append(("--n-cpu-moe", str(load.n_cpu_moe)))
    if load.device:
        found.append(("--device", load.device))
    if load.split != "layer":
        found.append(("--split-mode", load.split))
    if not load.mmap:
        found.append(("--load-mode", "none"))
    drafting, notes = _drafting(setup)
    found += drafting
    for name, value in setup.sampler.items():
        found.append((SAMPLER_FLAGS[name], _single(value)))
    if setup.thinking is not None:
        found.append(("--reasoning", "on" if setup.thinking else "off"))
    if setup.target.system:
        notes = (*notes, "llama-server has no system prompt of its own: send it with each request.")
    return tuple(found), (*setup.notes, *notes)


def _single(value: float) -> str:
    """For llama-server, which reads single precision: as few digits as say that number."""
    if float(value).is_integer():
        return exact(value)
    wanted = struct.pack("f", value)
    words = (f"{value:.{digits}g}" for digits in range(6, 10))  # nine are always enough
    return next(w for w in words if struct.pack("f", float(w)) == wanted)


def _drafting(setup: Setup) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    drafter, engine = setup.drafter, setup.engine
    if drafter.method == "none":
        return [], ()
    found = [("--spec-type", ",".join(SPEC_TYPES[family] for family in drafter.sources))]
    notes = []
    n_max = drafter.n_max
    if drafter.auto and not drafter.tree:
        n_max = min(n_max, FIXED_LENGTH)
        notes.append(f"llama-server has no adaptive draft length: it drafts up to {n_max} tokens.")
    if drafter.tree:
        notes.append("llama-server has no draft trees: it drafts chains of the same depth.")
    computed = [family for family in drafter.sources if family != "ngram"]
    if "ngram" in drafter.sources:
        found += [
            ("--spec-ngram-simple-size-n", str(drafter.ngram_min)),
            ("--spec-ngram-simple-size-m", str(n_max)),
        ]
        notes.append(
            f"llama-server's ngram-simple matches {drafter.ngram_min} tokens; localspec's ngram "
            f"prefers up to {drafter.ngram_max}."
        )
    if computed:
        if drafter.path:
            found.append(("--spec-draft-model", str(Path(drafter.path).resolve())))
        found += [
            ("--spec-draft-n-max", str(n_max)),
            ("--spec-draft-p-min", _single(setup.p_min)),
            ("--spec-draft-type-k", engine.draft_kv_type),
            ("--spec-draft-type-v", engine.draft_kv_type),
        ]
        if engine.load.draft_gpu_layers >= 0:
            found.append(("--spec-draft-ngl", str(engine.load.draft_gpu_layers)))
    return found, tuple(notes)


def command_line(found: Flags) -> str:
    """For a shell, an option a line."""
    if os.name == "nt":
        return subprocess.list2cmdline(["llama-server", *(word for pair in found for word in pair)])
    lines = ["llama-server", *(f"{flag} {shlex.quote(value)}" for flag, value in found)]
    return " \\\n  ".join(lines)


def preset(name: str, found: Flags) -> str:
    """The INI of ``llama-server --models-preset`` (common/preset.cpp): a section a model, an option
    a line by its name without dashes. Raises ``UsageError`` for what that cannot hold."""
    for flag, value in found:
        if any(sign in value for sign in ";#\n\r"):
            raise UsageError(
                f"A preset cannot hold {flag} {value!r}: ; and # begin a comment there.",
                "Rename the file, or use --format command.",
            )
    title = "".join("-" if sign in "[];#" else sign for sign in name)
    lines = [f"{flag.removeprefix('--')} = {value}" for flag, value in found]
    return "\n".join([f"[{title}]", *lines])


def record(setup: Setup, found: Flags, notes: Iterable[str]) -> dict[str, Any]:
    load = asdict(setup.engine.load)
    return {
        "localspec": __version__,
        "model": {"name": setup.target.name, "file": str(setup.target.path.resolve())},
        "drafter": asdict(setup.drafter) if setup.drafter.method != "none" else None,
        "settings": {
            "n_ctx": setup.n_ctx,
            "threads": setup.engine.threads or machine.default_threads(),
            "kv_type": setup.engine.kv_type,
            "draft_kv_type": setup.engine.draft_kv_type,
            "flash_attn": setup.engine.flash_attn,
            **load,
            "sampler": setup.sampler,
            "thinking": setup.thinking,
        },
        "llama_server": [word for pair in found for word in pair],
        "notes": list(notes),
    }


# ---- the command --------------------------------------------------------------------------------


def export(setup: Setup, how: Format) -> int:
    found, notes = flags(setup)
    name = setup.target.name
    if how == "json":
        output.write_json(record(setup, found, notes))
        return 0
    text = command_line(found)
    if how == "preset":
        # the section's name is the model's
        text = preset(name, tuple(pair for pair in found if pair[0] != "--alias"))
    sys.stdout.write(text + "\n")
    for note in notes:
        output.say(f"note: {note}")
    return 0
