"""Made-up runs for the rooms that only compute."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace

import pytest

from localspec.bench.plan import Candidate, Plan, Prepared, Slot
from localspec.bench.rows import Conditions, Row
from localspec.bench.workloads import Prompt
from localspec.records import (
    ContextSettings,
    Counts,
    DrafterSettings,
    Generation,
    SamplerSettings,
    Times,
)


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
) -> Row:
    slot = Slot(0, who, where, run, 5 + run, block, phase)
    return Row(slot, made, frozenset(flags), Conditions(other_load, clock))


@pytest.fixture
def made() -> SimpleNamespace:
    """The makers above."""
    makers = (candidate, prompt, plan, generation, row)
    return SimpleNamespace(**{maker.__name__: maker for maker in makers})
