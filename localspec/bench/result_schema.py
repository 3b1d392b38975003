"""What is in a result file (``--json``), each name with its meaning.

``result.schema.json`` beside this module is made from here: ``python -m
localspec.bench.result_schema > localspec/bench/result.schema.json``; a test compares both, and real
results with them. Names keep their meaning within a schema number; new ones may be added.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from localspec.bench.advice import Advice
from localspec.bench.audit import DivergenceClass
from localspec.bench.plan import Phase
from localspec.bench.report import SCHEMA
from localspec.bench.rows import Flag
from localspec.bench.runner import State
from localspec.bench.statistics import Verdict
from localspec.records import Counts, DraftLength, FlashAttention, StopReason, TreeSize

Interval = Annotated[
    tuple[float, float] | None,
    Field(description="95 % confidence interval; null where there are too few runs."),
]
Rate = Annotated[float, Field(ge=0, le=1)]
Hash = Annotated[
    str | None, Field(description="SHA-256; null for a file too large to be read for it.")
]


class _Part(BaseModel):
    """Strict, so that a test finds a name that is not described here."""

    model_config = ConfigDict(extra="forbid")


class Build(_Part):
    llama_cpp_python: str
    llama_cpp: str
    backends: list[str]
    devices: list[str]
    system_info: str


class TargetFile(_Part):
    name: str
    file: str
    sha256: Hash
    arch: str
    quant: str
    size_bytes: int


class BaseFacts(_Part):
    """A quantisation and context settings that drafters were put on. Settings are null where they
    were not swept."""

    name: str
    file: str
    sha256: Hash
    size_bytes: int | None
    quant: str
    kv_type: str | None
    flash_attn: FlashAttention | None
    threads: int | None


class WorkloadSize(_Part):
    name: str
    prompts: int


class PromptFacts(_Part):
    workload: str
    id: str
    depth: int = Field(description="Tokens it was to be filled up to by a text; 0: as it is.")
    tokens: int
    sha256: str = Field(description="Of the JSON list of its token ids.")


class SkippedPrompt(_Part):
    prompt: str
    workload: str
    tokens: int
    reason: str


class EarlierSitting(_Part):
    created: str
    runs: int


class ShareOfTime(_Part):
    """Parts of the step time; they add up to 1."""

    draft: float
    verify: float
    rollback: float
    overhead: float


class OfSource(_Part):
    """The steps that one family drafted, where several may."""

    accept_length: float | None
    accept_length_drafted: float | None
    acceptance_rate: float | None
    reach_rate: list[Rate]
    counts: Counts


class Figures(_Part):
    """Sums over sums of the runs; absent figures are null."""

    runs: int
    tokens: int
    decode_tps: float | None = Field(
        description="Tokens of decode steps / time from each run's first token to its last."
    )
    speedup: float | None = Field(
        description="Geometric mean of the prompts' ratios of decode tok/s to the baseline's."
    )
    speedup_ci: Interval
    speedup_method: str | None
    pairs: int
    reference_speedup: float | None = Field(
        description="Of several bases: decode tok/s over the first base's baseline."
    )
    reference_speedup_ci: Interval
    end_to_end_speedup: float | None
    end_to_end_speedup_ci: Interval
    accept_length: float | None = Field(
        description="Tokens of decode steps / target passes in them; 1 for a baseline."
    )
    accept_length_drafted: float | None = Field(
        description="1 + accepted / steps with a draft: llama-server's mean len."
    )
    draft_coverage: Rate | None = Field(description="Steps with a draft / steps.")
    acceptance_rate: Rate | None = Field(description="Accepted / drafted tokens.")
    reach_rate: list[Rate] = Field(
        description="By position: steps whose drafts up to there were all accepted / steps with a "
        "draft."
    )
    conditional_rate: list[Rate | None] = Field(
        description="By position: of the steps that came that far, those that accepted it."
    )
    counts: Counts
    by_source: dict[str, OfSource]
    ttft_ms: float | None
    drafter_prefill_ms: float | None
    prefill_tps: float | None
    share: ShareOfTime | None
    overhead_us_per_step: float | None
    beta: float | None = Field(description="Mean probability mass that the target adds.")


class WorkloadFigures(Figures):
    verdict: Verdict | None = Field(
        default=None, description="Of one prompt at several depths; else only all are judged."
    )


class ChosenAt(_Part):
    speedup: float | None
    speedup_ci: Interval


class SameOutputs(_Part):
    same: int
    compared: int


class SweepAnswer(_Part):
    """What several bases answer at one temperature; whole numbers are places in ``candidates``."""

    temperature: float
    fastest: int = Field(
        description="Shown to be faster than the reference, by most; else the reference itself."
    )
    alone: int = Field(description="The same of the baselines.")
    drafting: int | None = Field(description="The fastest drafter on the reference.")
    versus: float | None = Field(
        description="Speed of `alone`, where that is another base, in that of `drafting`."
    )
    versus_ci: Interval
    versus_verdict: Verdict | None


class Distribution(_Part):
    """Do sampled tokens follow the target's distribution?"""

    tokens: int
    uniform_p: float | None
    smallest_p: float | None
    fits: bool


class Difference(_Part):
    """Where an output parts from the baseline's."""

    workload: str
    prompt: str
    run: int
    token: int
    margin: float | None
    max_difference: float | None
    kind: DivergenceClass | None = Field(alias="class")
    why: str


class CandidateResult(Figures):
    base: str = Field(description="Name of one of `bases`; empty where there is but one.")
    drafter: str
    method: str
    file: str | None
    sha256: Hash
    size_bytes: int | None
    n_max: DraftLength
    n_max_bound: int | None
    p_min: float
    tree: TreeSize
    tree_bound: int | None
    temperature: float
    status: State
    reason: str | None
    verdict: Literal["baseline"] | Verdict | None = Field(
        description="At 95 % confidence, Holm-corrected over the candidates."
    )
    confirmed: bool = Field(description="Measured again on runs that did not choose it.")
    chosen_at: ChosenAt | None
    reference_verdict: Verdict | None
    reference_chosen_at: ChosenAt | None
    reference_outputs: SameOutputs | None = Field(
        description="Of another base's baseline: runs that gave the reference's very tokens."
    )
    identical: bool | None = Field(description="Is the output the baseline's, token for token?")
    compared: int
    strict_up_to: int | None
    followed: int | None
    rounding: float | None
    distribution: Distribution | None
    divergences: list[Difference]
    by_workload: dict[str, WorkloadFigures]
    effective: dict[str, Any] = Field(description="Settings in effect, as llama.cpp reports them.")
    notes: list[str]


class RunRecord(_Part):
    """One run."""

    prompt: str
    workload: str
    drafter: str
    n_max: DraftLength
    temperature: float
    run: int
    sitting: int
    order: int
    block: int
    phase: Phase
    seed: int
    prompt_tokens: int
    tokens: int | None
    target_passes: int | None
    drafted: int | None
    accepted: int | None
    decode_tps: float | None
    ttft_ms: float | None
    stop: StopReason | None
    other_load: float | None
    clock_mhz: float | None
    flags: list[Flag]
    base: str


class Result(_Part):
    """The result of ``localspec bench``."""

    schema_: Literal[1] = Field(alias="schema")
    origin: Literal["bench", "tune"] = Field(
        default="bench",
        description="tune: its winner against the baseline, on prompts not used to choose it.",
    )
    created: str = Field(description="ISO 8601, UTC.")
    localspec: str
    machine: dict[str, str | int | float | bool | None]
    build: Build
    target: TargetFile
    bases: list[BaseFacts] = Field(
        description="Of a sweep, the reference first; empty where there is but one."
    )
    settings: dict[str, Any] = Field(description="Every effective value.")
    options: dict[str, Any] | None = Field(description="As it was asked for.")
    workloads: list[WorkloadSize]
    prompts: list[PromptFacts]
    skipped: list[SkippedPrompt]
    warnings: list[str]
    status: Literal["complete"] | State
    resumed: list[EarlierSitting] | None
    cost_model: list[dict[str, Any]] | None = Field(
        description="Of --cost-model: by drafter the measured costs and, predicted from them, "
        "every draft length."
    )
    candidates: list[CandidateResult]
    answers: list[SweepAnswer] = Field(description="Of a sweep, one for each temperature.")
    advice: list[Advice] = Field(description="Sentences with this run's numbers, and what to try.")
    rows: list[RunRecord]
    resume: dict[str, Any] | None = Field(
        description="Of an interrupted benchmark: what --resume needs; else null."
    )


def schema() -> dict[str, Any]:
    """The JSON Schema. Readers must bear names that are new to them."""
    made = Result.model_json_schema(by_alias=True)
    made["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    made["title"] = f"localspec bench result, schema {SCHEMA}"
    opened: dict[str, Any] = _open(made)
    return opened


def _open(node: Any) -> Any:
    if isinstance(node, dict):
        return {
            k: _open(v) for k, v in node.items() if k != "additionalProperties" or v is not False
        }
    return [_open(item) for item in node] if isinstance(node, list) else node


def text() -> str:
    return json.dumps(schema(), indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
