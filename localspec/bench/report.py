"""A measurement as a result file, as rows, as Markdown and as tables on the terminal.

The names in the result are those of DESIGN section 9; absent figures are null, never NaN.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from localspec import __version__
from localspec.bench.advice import OtherQuant, advice
from localspec.bench.analysis import Measured
from localspec.bench.audit import Audit, same_outputs
from localspec.bench.cost_model import CostModel
from localspec.bench.plan import Base
from localspec.bench.resume import HASH_OF_FILE, SIZE_OF_FILE, Facts, Sitting, keep
from localspec.bench.rows import Row
from localspec.bench.runner import Measurement
from localspec.bench.statistics import Comparison
from localspec.bench.sweep import Answer, answers
from localspec.errors import LocalspecError, UsageError
from localspec.paths import kind_of, written
from localspec.records import BenchOptions, BuildInfo, ModelInfo
from localspec.whole_file import replacing

Json = dict[str, Any]
Origin = Literal["bench", "tune"]
"""Of a tuning: its winner against the baseline, on prompts that were not used to choose it."""
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Report:
    """Everything there is to say about one benchmark."""

    measurement: Measurement
    table: Mapping[str, Measured]
    audits: Mapping[str, Audit]
    target: str
    model: ModelInfo
    build: BuildInfo
    machine: Mapping[str, Any]
    sha256: str | None
    effective: Mapping[str, Mapping[str, Any]]
    """Settings in effect, by session."""
    asked: Mapping[str, Any]
    """Settings that the engine does not report: sampler, seeds, budget, layers."""
    warnings: tuple[str, ...] = ()
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What the engine said when it opened a session."""
    options: BenchOptions | None = None
    """With these and ``facts`` an interrupted benchmark can be resumed."""
    facts: Facts = field(default_factory=dict)
    before: tuple[Sitting, ...] = ()
    """The sittings in which a resumed benchmark was measured before this one."""
    cost_models: tuple[CostModel, ...] | None = None
    """None: not asked for."""
    other_quants: tuple[OtherQuant, ...] = ()
    origin: Origin = "bench"


# ---- the result file --------------------------------------------------------------------------


def result(report: Report) -> Json:
    m = report.measurement
    plan = m.plan
    workloads: dict[str, int] = {}
    for p in plan.prompts:
        workloads[p.prompt.workload] = workloads.get(p.prompt.workload, 0) + 1
    baseline = report.effective.get(plan.references[0].session, {})
    created = datetime.now(UTC).isoformat(timespec="seconds")
    unfinished = None
    if m.state == "interrupted" and report.options is not None:
        unfinished = keep(report.options, report.facts, m, created, report.before)
    return {
        "schema": SCHEMA,
        "origin": report.origin,
        "created": created,
        "localspec": __version__,
        "machine": dict(report.machine),
        "build": {
            "llama_cpp_python": report.build.llama_cpp_python,
            "llama_cpp": report.build.llama_cpp,
            "backends": list(report.build.backends),
            "devices": list(report.build.devices),
            "system_info": report.build.system_info,
        },
        "target": {
            "name": report.target,
            "file": report.model.path,
            "sha256": report.sha256,
            "arch": report.model.arch,
            "quant": report.model.quant,
            "size_bytes": report.model.size_bytes,
        },
        "bases": [_base(report, base) for base in plan.bases if base.name],
        "settings": {
            **report.asked,
            **baseline,
            "max_tokens": plan.max_tokens,
            "runs": plan.runs,
            "seed": plan.sampler.seed,
            "order_seed": plan.order_seed,
            "ignore_eos": plan.ignore_eos,
            "quick": plan.quick,
            "order": "interleaved" if m.together else "blocks",
        },
        "options": None if report.options is None else asdict(report.options),
        "workloads": [{"name": name, "prompts": n} for name, n in workloads.items()],
        "prompts": [
            {
                "workload": p.prompt.workload,
                "id": p.prompt.id,
                "depth": p.prompt.depth,
                "tokens": len(p.tokens),
                "sha256": hashlib.sha256(json.dumps(p.tokens).encode()).hexdigest(),
            }
            for p in plan.prompts
        ],
        "skipped": [
            {
                "prompt": s.prompt.id,
                "workload": s.prompt.workload,
                "tokens": s.tokens,
                "reason": s.reason,
            }
            for s in plan.skipped
        ],
        "warnings": list(report.warnings),
        "status": m.state,
        "resumed": [asdict(sitting) for sitting in report.before] or None,
        "candidates": [_candidate(report, c) for c in report.table.values()],
        "answers": [_answer(report, a) for a in answers(plan, m.judged, report.table)]
        if m.state != "interrupted"
        else [],
        "advice": [asdict(a) for a in advice(report)],
        "cost_model": None
        if report.cost_models is None
        else [c.record() for c in report.cost_models],
        "rows": [row_record(r) for r in m.rows],
        "resume": unfinished,
    }


def _base(report: Report, base: Base) -> Json:
    model, facts = report.model, report.facts
    own = base.path is None
    return {
        "name": base.name,
        "file": base.path or model.path,
        "sha256": report.sha256 if own else facts.get(f"{base.name}: {HASH_OF_FILE}"),
        "size_bytes": model.size_bytes if own else facts.get(f"{base.name}: {SIZE_OF_FILE}"),
        "quant": base.quant or model.quant,
        "kv_type": base.kv_type,
        "flash_attn": base.flash_attn,
        "threads": base.threads,
    }


def _answer(report: Report, answer: Answer) -> Json:
    keys = list(report.table)
    return {
        "temperature": answer.temperature,
        "fastest": keys.index(answer.fastest.key),
        "alone": keys.index(answer.alone.key),
        "drafting": keys.index(answer.drafting.key) if answer.drafting else None,
        "versus": answer.versus.speedup,
        "versus_ci": _listed(answer.versus.interval),
        "versus_verdict": answer.verdict,
    }


def _candidate(report: Report, measured: Measured) -> Json:
    candidate, status = measured.candidate, report.measurement.status[measured.candidate.key]
    audit = report.audits.get(candidate.key, Audit())
    effective = dict(report.effective.get(candidate.session, {}))
    chosen, drafter = measured.chosen, candidate.drafter
    # a part of the runs is judged by nobody: the reader does not see why the others are missing
    whole = report.measurement.state != "interrupted" and not status.given_up
    return {
        "base": candidate.base.name,
        "drafter": candidate.drafter.name,
        "method": candidate.drafter.method,
        "file": candidate.drafter.path,
        "sha256": report.facts.get(f"{candidate.key}: {HASH_OF_FILE}"),
        "size_bytes": report.facts.get(f"{candidate.key}: {SIZE_OF_FILE}"),
        "n_max": candidate.drafter.draft_length,
        "n_max_bound": effective.get("n_max", drafter.n_max)
        if drafter.draft_length == "auto"
        else None,
        "p_min": candidate.drafter.p_min,
        "tree": drafter.tree_size,
        "tree_bound": drafter.tree if drafter.tree_size == "auto" else None,
        "temperature": candidate.temperature,
        "status": status.state,
        "reason": status.reason,
        **figures(report, measured),
        "verdict": "baseline" if candidate.is_baseline else measured.verdict if whole else None,
        "confirmed": measured.confirmed,
        "chosen_at": _chosen(chosen),
        **_over_reference(report, measured, whole),
        "identical": audit.identical,
        "compared": audit.compared,
        "strict_up_to": audit.strict_up_to,
        "followed": audit.followed,
        "rounding": audit.rounding,
        "distribution": None
        if audit.fit is None
        else {
            "tokens": audit.fit.tokens,
            "uniform_p": audit.fit.uniform,
            "smallest_p": audit.fit.smallest,
            "fits": audit.fit.fits,
        },
        "divergences": [
            {
                "workload": d.workload,
                "prompt": d.prompt,
                "run": d.run,
                "token": d.token,
                "margin": d.margin,
                "max_difference": d.max_difference,
                "class": d.kind,
                "why": d.why,
            }
            for d in audit.divergences
        ],
        "by_workload": {
            name: {**figures(report, part), "verdict": part.verdict if whole else None}
            for name, part in measured.by_workload.items()
        },
        "effective": effective,
        "notes": list(report.notes.get(candidate.session, ())),
    }


def figures(report: Report, measured: Measured) -> Json:
    f, counts = measured.figures, measured.figures.counts
    baseline, plan = measured.candidate.is_baseline, report.measurement.plan
    reference = len(plan.bases) > 1 and measured.candidate in plan.references
    over = measured.over_reference
    return {
        "runs": f.runs,
        "tokens": f.tokens,
        "decode_tps": f.decode_tps,
        "speedup": 1.0 if baseline and f.decode_tps else measured.decode.speedup,
        "speedup_ci": _listed(measured.decode.interval),
        "speedup_method": measured.decode.method,
        "pairs": measured.decode.pairs,
        "reference_speedup": 1.0 if reference and f.decode_tps else over.speedup,
        "reference_speedup_ci": _listed(over.interval),
        "end_to_end_speedup": 1.0 if baseline and f.decode_tps else measured.end_to_end.speedup,
        "end_to_end_speedup_ci": _listed(measured.end_to_end.interval),
        "accept_length": counts.accept_length,
        "accept_length_drafted": counts.accept_length_drafted,
        "draft_coverage": counts.draft_coverage,
        "acceptance_rate": counts.acceptance_rate,
        "reach_rate": counts.reach_rate,
        "conditional_rate": counts.conditional_rate,
        "counts": asdict(counts),
        "by_source": {
            name: {
                "accept_length": part.accept_length,
                "accept_length_drafted": part.accept_length_drafted,
                "acceptance_rate": part.acceptance_rate,
                "reach_rate": part.reach_rate,
                "counts": asdict(part),
            }
            for name, part in f.by_source.items()
        },
        "ttft_ms": f.ttft_ms,
        "drafter_prefill_ms": f.drafter_prefill_ms,
        "prefill_tps": f.prefill_tps,
        "share": f.share,
        "overhead_us_per_step": f.overhead_us_per_step,
        "beta": counts.mean_beta,
    }


def _chosen(found: Comparison | None) -> Json | None:
    if found is None:
        return None
    return {"speedup": found.speedup, "speedup_ci": _listed(found.interval)}


def _over_reference(report: Report, measured: Measured, whole: bool) -> Json:
    """Against the first base's baseline, where there are several bases."""
    plan, candidate = report.measurement.plan, measured.candidate
    same = None
    if candidate.is_baseline and candidate.base != plan.bases[0]:
        same = same_outputs(plan, report.measurement.rows, candidate)
    return {
        "reference_verdict": measured.reference_verdict if whole else None,
        "reference_chosen_at": _chosen(measured.reference_chosen),
        "reference_outputs": same and {"same": same[0], "compared": same[1]},
    }


def _listed(interval: tuple[float, float] | None) -> list[float] | None:
    return None if interval is None else list(interval)


def row_record(row: Row) -> Json:
    s, g = row.slot, row.generation
    return {
        "prompt": s.prompt.prompt.id,
        "workload": s.prompt.prompt.workload,
        "drafter": s.candidate.drafter.name,
        "n_max": s.candidate.drafter.draft_length,
        "temperature": s.candidate.temperature,
        "run": s.run,
        "sitting": row.sitting,
        "order": s.order,
        "block": s.block,
        "phase": s.phase,
        "seed": s.seed,
        "prompt_tokens": len(s.prompt.tokens),
        "tokens": len(g.tokens) if g else None,
        "target_passes": g.counts.target_calls if g else None,
        "drafted": g.counts.drafted if g else None,
        "accepted": g.counts.accepted if g else None,
        "decode_tps": g.decode_tps if g else None,
        "ttft_ms": g.times.ttft * 1e3 if g and g.tokens else None,
        "stop": g.stop if g else None,
        "other_load": row.conditions.other_load,
        "clock_mhz": row.conditions.clock,
        "flags": sorted(row.flags),
        "base": s.candidate.base.name,
    }


def to_json(result: Json) -> str:
    """Indented for a person, but for what --resume needs: every token and step of every run."""
    unfinished = result.get("resume")
    text = json.dumps({**result, "resume": None}, indent=1, allow_nan=False, ensure_ascii=False)
    if unfinished is not None:
        section = json.dumps(unfinished, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        text = text.rpartition("null")[0] + section + "\n}"
    return text + "\n"


def to_csv(result: Json) -> str:
    """The rows, one a line; flags joined by blanks, absent figures empty."""
    out = io.StringIO()
    names = list(result["rows"][0]) if result["rows"] else ["prompt", "workload", "drafter"]
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    for row in result["rows"]:
        writer.writerow({**row, "flags": " ".join(row["flags"])})
    return out.getvalue()


# ---- files ------------------------------------------------------------------------------------


def check_writable(paths: Mapping[str, str]) -> None:
    """Raise ``UsageError`` where an output file (by option) could not be written, before any time
    is spent on measuring."""
    seen: dict[Path, str] = {}
    for option, name in paths.items():
        hint = f"Give {option} another path."
        if name == "-":
            raise UsageError(f"{option}: - is no file.", "Give a path; a pipe is /dev/stdout.")
        try:
            path = written(name)
            kind, beside = kind_of(path), kind_of(path.parent)
        except UsageError as error:
            raise UsageError(f"{option}: {error.message}", error.hint) from None
        if kind == "folder":
            raise UsageError(f"{option}: {path} is a folder, not a file.", hint)
        if beside != "folder":
            raise UsageError(f"{option}: the folder {path.parent} does not exist.", hint)
        resolved = path.resolve()
        if resolved in seen:
            raise UsageError(f"{option} and {seen[resolved]} name the same file, {path}.", hint)
        seen[resolved] = option
        try:
            if kind == "other":
                os.close(os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0)))
            elif kind == "file" and not os.access(path, os.W_OK):
                raise PermissionError(13, "Permission denied")
            else:
                handle, trial = tempfile.mkstemp(prefix=".localspec-", dir=path.parent)
                os.close(handle)
                Path(trial).unlink()
        except OSError as error:
            raise UsageError(
                f"{option}: {path} cannot be written ({error.strerror}).", hint
            ) from None


def write(name: str, text: str) -> None:
    """Write a whole file or none: beside its place first, then moved there. A device or pipe is
    written to directly."""
    path = written(name)
    kind = kind_of(path)
    try:
        if kind == "other":
            path.write_text(text, encoding="utf-8")
            return
        path = path.resolve()  # a link is followed, not replaced
        mode = path.stat().st_mode & 0o777 if kind else 0o666 & ~_umask()
        with replacing(path) as beside:
            beside.write_text(text, encoding="utf-8")
            beside.chmod(mode)
    except OSError as error:
        raise LocalspecError(
            f"{path} could not be written ({error.strerror}).", "Is the disk full?"
        ) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
