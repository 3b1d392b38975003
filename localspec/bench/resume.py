"""An interrupted bench goes on: what its result file keeps for that, and whether it may.

The file holds every run whole, the options, and the facts that decide a speed. A bench is resumed
only where all of them are the same: else its table would compare what was not measured alike.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import msgspec

from localspec import __version__
from localspec.bench.plan import Phase, Plan, Slot
from localspec.bench.rows import Conditions, Flag, Row
from localspec.bench.runner import Earlier, Measurement, Status
from localspec.errors import UsageError
from localspec.paths import written
from localspec.records import BenchOptions, BuildInfo, Generation, LoadSettings, ModelInfo

LARGEST_HASHED = 1 << 30
"""Bytes of the largest model file that is hashed."""
OUTPUTS = (
    "json",
    "csv",
    "markdown",
    "html",
    "svg",
    "card",
    "quiet",
    "strict",
    "save",
    "fail_below",
    "fail_on_regression",
    "cost_model",
    "resume",
    "log_file",
)
"""Options that decide nothing of the measurement: those of the resuming command count."""
NAMES = {
    "drafters": "drafter",
    "workloads": "workload",
    "trees": "tree",
    "temperatures": "temperature",
    "depths": "depth",
    "sampled": "draft-sampling",
    "quants": "quant",
    "kv_types": "kv-type",
    "flash_attns": "flash-attn",
    "thread_counts": "threads",
}
"""Options that the records name otherwise than the command line."""

SIZE_OF_FILE, HASH_OF_FILE = "size of its file", "hash of its file"

Facts = dict[str, Any]
"""What must be the same, by its name for a person."""


@dataclass(frozen=True, slots=True)
class KeptRow:
    """A row, its candidate and prompt by name."""

    candidate: str
    workload: str
    prompt: str
    run: int
    order: int
    seed: int
    block: int
    phase: Phase
    sitting: int
    flags: frozenset[Flag]
    conditions: Conditions
    generation: Generation | None


@dataclass(frozen=True, slots=True)
class Sitting:
    """When a part of the runs was finished, and how many runs it was."""

    created: str
    runs: int


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The ``resume`` section of a result file. ``prompts`` are those that were chosen to be
    measured, as (workload, id)."""

    options: BenchOptions
    facts: Facts
    prompts: tuple[tuple[str, str], ...]
    max_tokens: int
    status: dict[str, Status]
    blocks: dict[Phase, bool]
    rows: tuple[KeptRow, ...]
    sittings: tuple[Sitting, ...] = field(default=())


def keep(
    options: BenchOptions,
    facts: Facts,
    measurement: Measurement,
    created: str,
    before: Sequence[Sitting],
) -> dict[str, Any]:
    """The section, ready for JSON."""
    plan, rows = measurement.plan, measurement.rows
    now = Sitting(created, sum(r.sitting == len(before) for r in rows))
    unfinished = Unfinished(
        options=options,
        facts=facts,
        prompts=tuple((p.prompt.workload, p.prompt.id) for p in plan.prompts),
        max_tokens=plan.max_tokens,
        status=measurement.status,
        blocks=measurement.blocks,
        rows=tuple(_kept(row) for row in rows),
        sittings=(*before, now),
    )
    section: dict[str, Any] = msgspec.to_builtins(unfinished)
    return section


def _kept(row: Row) -> KeptRow:
    s = row.slot
    return KeptRow(
        candidate=s.candidate.key,
        workload=s.prompt.prompt.workload,
        prompt=s.prompt.prompt.id,
        run=s.run,
        order=s.order,
        seed=s.seed,
        block=s.block,
        phase=s.phase,
        sitting=row.sitting,
        flags=row.flags,
        conditions=row.conditions,
        generation=row.generation and replace(row.generation, spans=()),
    )


def read(name: str) -> Unfinished:
    """The section of a result file. Raises ``UsageError`` where there is none."""
    path = written(name)
    hint = "Give the file that an interrupted bench wrote with --json."
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--resume: {path} cannot be read ({error.strerror}).", hint) from None
    except ValueError:
        raise UsageError(f"--resume: {path} is no result of localspec bench.", hint) from None
    if not isinstance(result, dict) or "candidates" not in result:
        raise UsageError(f"--resume: {path} is no result of localspec bench.", hint)
    return unfinished_of(result, f"--resume: {path}")


def unfinished_of(result: Mapping[str, Any], what: str) -> Unfinished:
    """The section of a result; ``what`` it is called in errors. Raises ``UsageError``."""
    section = result.get("resume")
    if section is None:
        raise UsageError(
            f"{what} is the result of a bench that was not interrupted: nothing is missing in it.",
            "Start a new one.",
        )
    try:
        found = msgspec.convert(section, Unfinished)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{what} is damaged, or another version wrote it ({error}).",
            "Start the bench anew.",
        ) from None
    # a seed is a whole number that a float cannot hold
    engine = replace(found.options.engine, sampler=section["options"]["engine"]["sampler"])
    return replace(found, options=replace(found.options, engine=engine))


# ---- may it go on? ----------------------------------------------------------------------------


def merged(given: BenchOptions, stored: BenchOptions) -> BenchOptions:
    """The stored options, with the outputs of the resuming command. Raises ``UsageError`` where
    that asks for another measurement."""
    defaults = dict(_flat(asdict(BenchOptions(model=""))))
    before, now = dict(_flat(asdict(stored))), dict(_flat(asdict(given)))
    differences = [
        f"--{NAMES.get(name, name).replace('_', '-')} {_words(before.get(name))} then, "
        f"{_words(value)} now"
        for name, value in now.items()
        if name not in OUTPUTS and value != defaults.get(name) and value != before.get(name)
    ]
    if differences:
        raise UsageError(
            f"--resume: the bench was asked for otherwise: {'; '.join(differences)}.",
            "Leave the other options out (they are in the file), or start a new bench.",
        )
    own = {
        f.name: value
        for f in fields(BenchOptions)
        if f.name in OUTPUTS and (value := getattr(given, f.name)) != f.default
    }
    log_file = replace(stored.engine, log_file=given.engine.log_file)
    return replace(stored, **{"json": given.resume, **own}, engine=log_file)


def facts_of(
    plan: Plan,
    model: ModelInfo,
    sha256: str | None,
    build: BuildInfo,
    machine: Mapping[str, Any],
    load: LoadSettings,
) -> Facts:
    """All that decides a speed and may be another tomorrow. ``plan``: as it was made from the
    options, before any choice."""
    facts: Facts = {
        "localspec": __version__,
        "llama.cpp": f"{build.llama_cpp} ({', '.join(build.backends)})",
        "processor": machine.get("cpu"),
        "cores": machine.get("cores"),
        "logical processors": machine.get("logical_cpus"),
        "GiB of memory": round((machine.get("memory_bytes") or 0) / (1 << 30)),
        "operating system": platform.system(),
        "size of the target's file": model.size_bytes,
        "hash of the target's file": sha256,
        "hash of the prompts": _hash_of_prompts(plan),
        "candidates": ", ".join(c.key for c in plan.candidates),
        "ignore-eos": plan.ignore_eos,
        "max-tokens": plan.max_tokens,
        "runs": plan.runs,
        "quick": plan.quick,
    }
    for group in (plan.context, plan.sampler, load):
        facts |= asdict(group)
    for base in plan.bases:
        if base.path is not None:
            facts[f"{base.name}: {SIZE_OF_FILE}"] = Path(base.path).stat().st_size
            facts[f"{base.name}: {HASH_OF_FILE}"] = sha256_of(Path(base.path))
    for candidate in plan.candidates:
        settings = asdict(candidate.drafter)
        path = settings.pop("path")
        if path:
            file = Path(path)
            settings |= {
                SIZE_OF_FILE: file.stat().st_size,
                HASH_OF_FILE: sha256_of(file),
            }
        facts |= {f"{candidate.key}: {name}": value for name, value in settings.items()}
    return facts


def check(before: Facts, now: Facts) -> None:
    """Raise ``UsageError`` naming what differs."""
    differences = [
        f"{name} {_words(before.get(name))} then, {_words(now.get(name))} now"
        for name in dict.fromkeys((*before, *now))
        if before.get(name) != now.get(name)
    ]
    if differences:
        raise UsageError(
            "--resume: runs made now would not compare with those in the file: "
            f"{'; '.join(differences)}.",
            "Make it as it was, or start a new bench.",
        )


def earlier(plan: Plan, unfinished: Unfinished) -> tuple[Plan, Earlier]:
    """The plan as it was being measured, and what of it is there. ``check`` has passed."""
    prompts = {(p.prompt.workload, p.prompt.id): p for p in plan.prompts}
    candidates = {c.key: c for c in plan.candidates}
    rows = []
    for kept in unfinished.rows:
        candidate, prompt = candidates[kept.candidate], prompts[kept.workload, kept.prompt]
        order, seed = kept.order, kept.seed
        slot = Slot(order, candidate, prompt, kept.run, seed, kept.block, kept.phase)
        rows.append(Row(slot, kept.generation, kept.flags, kept.conditions, kept.sitting))
    if not rows:
        return plan, Earlier([], {}, {})
    plan = replace(
        plan,
        prompts=tuple(prompts[place] for place in unfinished.prompts),
        max_tokens=unfinished.max_tokens,
    )
    status = {k: s for k, s in unfinished.status.items() if s.state in ("crashed", "refused")}
    return plan, Earlier(rows, status, unfinished.blocks)


def sha256_of(path: Path) -> str | None:
    """None for a file too large to be read just for that, and one that cannot be read."""
    try:
        if path.stat().st_size > LARGEST_HASHED:
            return None
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _hash_of_prompts(plan: Plan) -> str:
    content = [(p.prompt.workload, p.prompt.id, p.tokens, p.stop) for p in plan.prompts]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _flat(options: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every option by its own name: the groups in which they travel do not matter to a person."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _flat(value)
        else:
            yield name, value


def _words(value: object) -> str:
    if value is None or value in ((), "", False):
        return "not given"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if isinstance(value, str) and len(value) == hashlib.sha256().digest_size * 2:
        return f"{value[:12]}..."
    return "given" if value is True else f"{value:g}" if isinstance(value, float) else str(value)
