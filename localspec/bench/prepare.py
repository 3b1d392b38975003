"""From options to a plan: prompts in the target's tokens, and a context that holds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace

import psutil

from localspec import machine
from localspec.bench.plan import (
    QUICK_TOKENS,
    TOKENS,
    Candidate,
    Plan,
    Prepared,
    context_size,
    fit_prompts,
    memory_needed,
)
from localspec.bench.workloads import Workload
from localspec.catalog import Target
from localspec.chat.template import ChatTemplate
from localspec.engine.client import Engine
from localspec.errors import ContextTooSmall
from localspec.records import BenchOptions, ContextSettings, ModelInfo, SamplerSettings

RUNS_OF_ONE = 5
"""Runs of a single prompt, unless told otherwise: an interval needs several pairs."""
MEMORY_SHARE = 0.9


def temperatures(options: BenchOptions) -> tuple[float, ...]:
    """Greedy unless asked otherwise: the makers' recommended sampling is for chat."""
    if options.temperatures:
        return options.temperatures
    return (options.engine.sampler.get("temperature", 0.0),)


def make_plan(
    options: BenchOptions,
    workloads: Sequence[Workload],
    target: Target,
    candidates: tuple[Candidate, ...],
    engine: Engine,
    say: Callable[[str], None],
) -> Plan:
    """Tokenise the prompts with the model's template and fit a context around them.

    ``say`` hears what a person should know. Raises ``ContextTooSmall`` where no prompt fits.
    """
    prompts = _prepare(options, workloads, target, engine, say)
    n_max = max(c.drafter.n_max for c in candidates)
    max_tokens = options.max_tokens or (QUICK_TOKENS if options.quick else TOKENS)
    lengths = [len(p.tokens) for p in prompts]
    n_ctx = options.engine.ctx or context_size(lengths, max_tokens, n_max)
    fits, skipped = fit_prompts(prompts, n_ctx, n_max)
    if not fits:
        raise ContextTooSmall(
            f"No prompt fits the context of {n_ctx} tokens: the shortest has {min(lengths)}, and a "
            f"draft of {n_max} must fit after it.",
            "Raise --ctx, or leave it out: it is then chosen to fit.",
        )
    for s in skipped:
        say(f"{s.prompt.workload}/{s.prompt.id} {s.reason}")
    sampler = _sampler(options)
    return Plan(
        prompts=fits,
        candidates=candidates,
        context=ContextSettings(
            n_ctx=n_ctx,
            threads=options.engine.threads or machine.default_threads(),
            kv_type=options.engine.kv_type,
            draft_kv_type=options.engine.draft_kv_type,
            flash_attn=options.engine.flash_attn,
        ),
        sampler=sampler,
        max_tokens=max_tokens,
        runs=options.runs or (RUNS_OF_ONE if len(fits) == 1 else 1),
        order_seed=sampler.seed,
        ignore_eos=options.ignore_eos,
        quick=options.quick,
        skipped=skipped,
    )


def _prepare(
    options: BenchOptions,
    workloads: Sequence[Workload],
    target: Target,
    engine: Engine,
    say: Callable[[str], None],
) -> list[Prepared]:
    template = ChatTemplate.from_model(engine.model)
    system = options.system if options.system is not None else target.system
    thinking = options.engine.thinking
    prepared = []
    notices: dict[str, None] = {}
    for workload in workloads:
        for prompt in workload.prompts:
            rendered = template.render(
                prompt.with_system(system),
                thinking=target.thinking if thinking is None else thinking,
            )
            notices |= dict.fromkeys(rendered.notices)
            tokens = engine.tokenize(*rendered.segments)
            prepared.append(Prepared(prompt, tokens, rendered.stop))
    for notice in notices:
        say(notice)
    return prepared


def _sampler(options: BenchOptions) -> SamplerSettings:
    whole = {f.name for f in fields(SamplerSettings) if f.type == "int"}
    given = {
        name: int(value) if name in whole else value
        for name, value in options.engine.sampler.items()
        if name != "temperature"
    }
    return replace(SamplerSettings(), **given)  # type: ignore[arg-type]


def fit_together(plan: Plan, model: ModelInfo) -> tuple[int, bool]:
    """Bytes that the contexts of all candidates take, and whether they fit into memory at once."""
    needed = memory_needed(plan.candidates, model, plan.context)
    return needed, needed <= MEMORY_SHARE * psutil.virtual_memory().available
