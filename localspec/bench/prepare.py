"""From options to a plan: prompts in the target's tokens, and a context that holds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

from localspec import machine
from localspec.bench.depth import filled
from localspec.bench.plan import (
    QUICK_TOKENS,
    TOKENS,
    Candidate,
    Plan,
    Prepared,
    context_size,
    fit_prompts,
)
from localspec.bench.workloads import Prompt, Workload, one_question
from localspec.catalog import Target
from localspec.chat.template import ChatTemplate, Rendered
from localspec.engine.client import Engine
from localspec.engine.fitting import Fitting, Served, sessions_fit
from localspec.errors import UsageError
from localspec.gguf_header import bytes_of
from localspec.records import (
    BenchOptions,
    ContextSettings,
    DrafterSettings,
    LoadSettings,
    SamplerSettings,
)

RUNS_OF_ONE = 5
"""Runs of a single prompt (at each depth), unless told otherwise: an interval needs several
pairs."""
TYPICAL_CONTEXT = 4096
"""Tokens that a benchmark takes at the most, as a rule: layers are placed for it before the prompts
are known (their tokens are the loaded model's to count)."""
KV_BLOCK = 256
"""Elements by which KV types are compared in size: whole blocks of every type."""


def temperatures(options: BenchOptions) -> tuple[float, ...]:
    """Greedy unless asked otherwise: the makers' recommended sampling is for chat."""
    if options.temperatures:
        return options.temperatures
    return (options.engine.sampler.get("temperature", 0.0),)


def runs_of(options: BenchOptions, prompts: Sequence[Prompt]) -> int:
    """How often each of the prompts is run."""
    return options.runs or (RUNS_OF_ONE if one_question(prompts) else 1)


def make_plan(
    options: BenchOptions,
    workloads: Sequence[Workload],
    target: Target,
    candidates: tuple[Candidate, ...],
    engine: Engine,
    say: Callable[[str], None],
) -> Plan:
    """Tokenise the prompts with the model's template and fit a context around them.

    ``say`` hears what a person should know. Raises ``UsageError`` where no prompt fits.
    """
    prompts = _prepare(options, workloads, target, engine, say)
    n_max = max(c.drafter.n_max for c in candidates)
    max_tokens = options.max_tokens or (QUICK_TOKENS if options.quick else TOKENS)
    lengths = [len(p.tokens) for p in prompts]
    n_ctx = options.engine.ctx or context_size(lengths, max_tokens, n_max)
    trained = engine.model.n_ctx_train
    too_far = not options.engine.ctx and 0 < trained < n_ctx
    if too_far:
        n_ctx = trained
    fits, skipped = fit_prompts(prompts, n_ctx, n_max)
    if not fits:
        which = "The prompt does not fit", "it has", "a shorter prompt"
        if len(lengths) > 1:
            which = "No prompt fits", "the shortest has", "shorter prompts"
        says, has, other = which
        raise UsageError(
            f"{says} the context of {n_ctx} tokens: {has} {min(lengths)}, and a draft of {n_max} "
            "must fit after it.",
            f"{target.name} was trained on no more: give {other}, or --ctx to try it."
            if too_far
            else "Raise --ctx, or leave it out: it is then chosen to fit.",
        )
    if too_far and skipped:
        say(f"{target.name} was trained on contexts of {trained:,} tokens: longer prompts are out.")
    for s in skipped:
        say(f"{s.prompt.workload}/{s.prompt.id} {s.reason}")
    sampler = _sampler(options)
    return Plan(
        prompts=fits,
        candidates=candidates,
        context=_context(options, n_ctx),
        sampler=sampler,
        max_tokens=max_tokens,
        runs=runs_of(options, [p.prompt for p in fits]),
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

    def rendered_of(prompt: Prompt) -> Rendered:
        return template.render(
            prompt.with_system(system),
            thinking=target.thinking if thinking is None else thinking,
        )

    def tokens_of(prompt: Prompt) -> tuple[int, ...]:
        return engine.tokenize(*rendered_of(prompt).segments)

    for workload in workloads:
        for prompt in workload.prompts:
            if prompt.depth:
                prompt = filled(prompt, tokens_of)
            rendered = rendered_of(prompt)
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


def _context(options: BenchOptions, n_ctx: int) -> ContextSettings:
    return ContextSettings(
        n_ctx=n_ctx,
        threads=options.engine.threads or machine.default_threads(),
        kv_type=options.engine.kv_type,
        draft_kv_type=options.engine.draft_kv_type,
        flash_attn=options.engine.flash_attn,
    )


def fitting_of(
    options: BenchOptions,
    target: Target,
    candidates: Sequence[Candidate],
    workloads: Sequence[Workload] = (),
) -> Fitting:
    """How the target is loaded so that it fits with any of the candidates."""
    deepest = max((p.depth for w in workloads for p in w.prompts), default=0)
    answer = options.max_tokens or TOKENS
    likely = max(TYPICAL_CONTEXT, context_size([deepest], answer, 0) if deepest else 0)
    common = _context(options, options.engine.ctx or likely)
    contexts = [c.base.context(common) for c in candidates]
    return Fitting(
        target.path,
        options.engine.load,
        max(contexts, key=lambda context: bytes_of(context.kv_type, KV_BLOCK)),
        [c.drafter for c in candidates],
        given=options.engine.ctx is not None,
        refuse=options.engine.fit_check,
    )


def fit_together(
    plan: Plan,
    engine: Engine,
    load: LoadSettings,
    others: Mapping[str, LoadSettings] | None = None,
) -> tuple[int, bool]:
    """Bytes of RAM that the contexts of all candidates take, with the ``others`` among the target's
    files (by path), and whether they fit at once into the memory that the loaded target leaves."""
    memory = machine.memory(engine.devices())
    sessions: dict[str | None, dict[str, tuple[ContextSettings, DrafterSettings]]] = {}
    for c in plan.candidates:
        sessions.setdefault(c.base.path, {})[c.session] = plan.context_of(c), c.drafter
    own = Path(engine.model.path)
    files = [Served(own, load, tuple(sessions.pop(None, {}).values()))]
    for path, found in sessions.items():
        assert path is not None
        file = Served(Path(path), (others or {})[path], tuple(found.values()), loaded=False)
        files.append(file)
    return sessions_fit(files, memory)
