"""Made-up runs, and results of them, for what only computes or shows."""

from __future__ import annotations

from collections.abc import Iterable

from localspec.bench import report
from localspec.bench.analysis import analyse
from localspec.bench.plan import Candidate, Plan, Prepared, Slot
from localspec.bench.rows import Conditions, Row
from localspec.bench.runner import Measurement, Status
from localspec.bench.workloads import Prompt
from localspec.records import (
    BuildInfo,
    ContextSettings,
    Counts,
    DrafterSettings,
    Generation,
    ModelInfo,
    SamplerSettings,
    Times,
)

MODEL = ModelInfo(
    "/m/t.gguf", "llama", "llama 135M Q4_1", "Q4_1", 98, 135, 2048, 49152, 30, None, "", "",
    False, (),
)  # fmt: skip
BUILD = BuildInfo("0.3.36", "b1 (0c1e57098)", ("CPU",), (), "AVX2 = 1")


def candidate(name: str = "none", n_max: int = 0, temperature: float = 0.0, **more) -> Candidate:
    method = {"none": "none", "ngram": "ngram"}.get(name, "draft-model")
    settings = DrafterSettings(method=method, name=name, n_max=n_max, **more)
    session = "baseline" if name == "none" else f"{name} n={n_max}"
    return Candidate(f"{session} T={temperature:g}", session, settings, temperature)


def prompt(name: str, workload: str = "chat", tokens: int = 10) -> Prepared:
    return Prepared(Prompt(name, workload, (("user", name),)), tuple(range(1, tokens + 1)))


def plan(
    candidates: Iterable[Candidate], prompts: Iterable[Prepared], runs: int = 1, **more
) -> Plan:
    return Plan(
        prompts=tuple(prompts),
        candidates=tuple(candidates),
        context=ContextSettings(n_ctx=256, threads=1),
        sampler=SamplerSettings(seed=5),
        max_tokens=64,
        runs=runs,
        order_seed=5,
        **more,
    )


def generation(
    tokens: Iterable[int] = range(100, 164),
    *,
    tps: float = 100.0,
    ttft: float = 0.05,
    counts: Counts | None = None,
    stop: str = "length",
) -> Generation:
    """A run of that many tokens at that speed; plain decoding unless ``counts`` says otherwise."""
    ids = tuple(tokens)
    decoded = max(len(ids) - 1, 0)
    decode = decoded / tps
    if counts is None:
        counts = Counts(steps=decoded, target_calls=decoded, decode_tokens=decoded)
    times = Times(
        ttft=ttft,
        prefill=ttft,
        decode=decode,
        end_to_end=ttft + decode,
        verify=decode * 0.9,
        step=decode,
    )
    return Generation("", ids, stop, 10, 0, counts, times)


def row(
    who: Candidate,
    where: Prepared,
    made: Generation | None,
    *,
    run: int = 0,
    block: int = 0,
    phase: str = "main",
    flags: Iterable[str] = (),
    other_load: float | None = None,
    clock: float | None = None,
    own_cores: float | None = None,
) -> Row:
    slot = Slot(0, who, where, run, 5 + run, block, phase)
    return Row(slot, made, frozenset(flags), Conditions(other_load, clock, own_cores))


def result(rows, candidates, prompts, **more):
    """The result of these runs on "demo"."""
    return report.result(reported(rows, candidates, prompts, **more))


def reported(
    rows,
    candidates,
    prompts,
    *,
    audits=None,
    status=None,
    effective=None,
    notes=None,
    quick=False,
    machine=None,
    sha256=None,
    facts=None,
    asked=None,
    **measured,
):
    """The report of these runs on "demo"; what decides their comparability can be given."""
    planned = plan(candidates, prompts, quick=quick)
    measurement = Measurement(
        planned, rows, {c.key: Status() for c in candidates} | (status or {}), **measured
    )
    return report.Report(
        measurement=measurement,
        table=analyse(planned, rows),
        audits=audits or {},
        target="demo",
        model=MODEL,
        build=BUILD,
        machine={"cpu": "EPYC", "on_battery": None} | (machine or {}),
        sha256=sha256,
        effective={"baseline": {"n_ctx": 512, "threads": 2, "flash_attn": "on"}}
        | (effective or {}),
        notes=notes or {},
        asked={"gpu_layers": -1, "sampler": {"top_k": 40}} | (asked or {}),
        facts=facts or {},
    )
