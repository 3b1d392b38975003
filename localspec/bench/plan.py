"""What is measured, and in which order (DESIGN section 6).

A candidate is a drafter at one draft length and one temperature on one base; the baseline is the
candidate without a drafter, once per base and temperature. A slot is one run of one candidate on
one prompt.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Literal

from localspec.bench.workloads import Prompt
from localspec.catalog import METHODS_WITH_TREES, DrafterSpec, no_trees
from localspec.errors import UsageError
from localspec.fit import CONTEXT_STEP
from localspec.records import (
    ContextSettings,
    DrafterSettings,
    DraftLength,
    FlashAttention,
    SamplerSettings,
    TreeSize,
)

Phase = Literal["main", "repeat", "confirm"]

DRAFT_LENGTHS = (3, 5, 8)
"""The sweep over n_max of a drafter that computes its drafts: each further token costs time. With
several such drafters each is measured at its recommended length instead."""
TREE_DEPTH = 8
"""How deep a draft tree may grow without --n-max; its budget of nodes is the real limit."""
WITHOUT_P_MIN = " p_min=0"
"""Behind the name of a drafter: the chain as deep as its trees, which have no ``p_min``."""
QUICK_TOKENS, TOKENS = 64, 128


@dataclass(frozen=True, slots=True)
class Base:
    """What drafters are put on: a file of the target and the settings of its contexts. None is the
    plan's own. ``name`` says what tells it from the other bases of the table; "": there are none.
    """

    name: str = ""
    path: str | None = None
    quant: str = ""
    kv_type: str | None = None
    flash_attn: FlashAttention | None = None
    threads: int | None = None

    def context(self, common: ContextSettings) -> ContextSettings:
        own = {
            "kv_type": self.kv_type,
            "flash_attn": self.flash_attn,
            "threads": self.threads,
        }
        return replace(common, **{k: v for k, v in own.items() if v is not None})  # type: ignore[arg-type]


ONLY_BASE = Base()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A drafter's settings at one temperature. ``session`` names the context that serves it:
    temperatures share one, since sampling is no property of a context."""

    key: str
    session: str
    drafter: DrafterSettings
    temperature: float
    base: Base = ONLY_BASE

    @property
    def is_baseline(self) -> bool:
        return self.drafter.method == "none"

    @property
    def who(self) -> str:
        """The drafter, and what it is on where there are several bases."""
        return self.drafter.name + (f" on {self.base.name}" if self.base.name else "")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prompt in the target's tokens; ``stop`` are strings at which its answer ends."""

    prompt: Prompt
    tokens: tuple[int, ...]
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Skipped:
    """A prompt that does not fit the context given; it is not measured."""

    prompt: Prompt
    tokens: int
    reason: str


@dataclass(frozen=True, slots=True)
class Slot:
    """One run to be made. Runs of one ``block``, ``prompt`` and ``run`` belong together: a
    candidate is paired with the baseline's run of its own block, the one nearest in time."""

    order: int
    candidate: Candidate
    prompt: Prepared
    run: int
    seed: int
    block: int = 0
    phase: Phase = "main"


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that decides a measurement, fixed before it starts."""

    prompts: tuple[Prepared, ...]
    candidates: tuple[Candidate, ...]
    context: ContextSettings
    sampler: SamplerSettings
    max_tokens: int
    runs: int
    order_seed: int
    ignore_eos: bool = False
    quick: bool = False
    together: bool = True
    skipped: tuple[Skipped, ...] = ()

    @property
    def baselines(self) -> tuple[Candidate, ...]:
        return tuple(c for c in self.candidates if c.is_baseline)

    @property
    def bases(self) -> tuple[Base, ...]:
        """The first one is the reference."""
        return tuple(dict.fromkeys(c.base for c in self.candidates))

    @property
    def references(self) -> tuple[Candidate, ...]:
        """The baselines of the reference base."""
        return tuple(c for c in self.baselines if c.base == self.candidates[0].base)

    def baseline_of(self, candidate: Candidate) -> Candidate:
        """The one on the candidate's own base."""
        alike = candidate.base, candidate.temperature
        return next(c for c in self.baselines if (c.base, c.temperature) == alike)

    def reference_of(self, candidate: Candidate) -> Candidate:
        return next(c for c in self.references if c.temperature == candidate.temperature)

    def context_of(self, candidate: Candidate) -> ContextSettings:
        return candidate.base.context(self.context)

    def sampler_of(self, candidate: Candidate, seed: int) -> SamplerSettings:
        return replace(self.sampler, temperature=candidate.temperature, seed=seed)


def make_candidates(
    drafters: Sequence[DrafterSpec],
    *,
    n_max: Sequence[DraftLength] = (),
    p_min: float | None = None,
    sampled: bool = False,
    trees: Sequence[TreeSize] = (),
    temperatures: Sequence[float] = (0.0,),
    quick: bool = False,
    chains: bool = True,
    base: Base = ONLY_BASE,
) -> tuple[Candidate, ...]:
    """The baseline, then every drafter at every draft length (unless trees alone are wanted) and,
    where it proposes trees, at every budget of nodes in ``trees`` (adaptive ones have "auto"); all
    of that per temperature. Unless a ``p_min`` is asked for, the chain as deep as the trees has
    none, as they have none: else what the branches gain could not be seen."""
    fixed = [n for n in n_max if n != "auto"]
    if any(n < 1 for n in fixed):
        raise UsageError("--n-max must be 1 or more.", "The baseline without drafts is always in.")
    if trees and not any(spec.method in METHODS_WITH_TREES for spec in drafters):
        raise no_trees("None of these drafters proposes trees.")
    several_computed = sum(spec.method not in ("none", "ngram") for spec in drafters) > 1
    settings = [DrafterSettings()]
    taken: set[str] = set()
    for spec in drafters:
        if spec.method == "none":
            continue
        name = spec.name if spec.name not in taken else str(spec.path)
        taken.add(name)
        nodes_of = dict.fromkeys(trees) if spec.method in METHODS_WITH_TREES else {}
        depth = max(fixed, default=min(TREE_DEPTH, spec.limit or TREE_DEPTH))
        lengths = n_max or (
            *_default_lengths(spec, quick or several_computed),
            *([depth] if nodes_of else []),  # a tree stands beside its top chain
        )
        for n in dict.fromkeys(lengths) if chains else ():
            chosen = replace(spec.settings(n_max=n, p_min=p_min, sampled=sampled), name=name)
            if nodes_of and n == depth and p_min is None and chosen.p_min:
                chosen = replace(chosen, name=name + WITHOUT_P_MIN, p_min=0.0)
            settings.append(chosen)
        for nodes in nodes_of:
            chosen = spec.settings(n_max=depth, tree=nodes)
            settings.append(replace(chosen, name=f"{name} tree={nodes}"))
    several = len(set(temperatures)) > 1
    found = []
    for temperature in dict.fromkeys(temperatures):
        for s in settings:
            session = "baseline" if s.method == "none" else f"{s.name} n={s.draft_length}"
            if base.name:
                session = f"{base.name}: {session}"
            key = f"{session} T={temperature:g}" if several else session
            found.append(Candidate(key, session, s, temperature, base))
    return tuple(found)


def _default_lengths(spec: DrafterSpec, one: bool) -> tuple[int, ...]:
    """ngram drafts cost nothing to make, so one length will do; the others may be swept."""
    if one or spec.method == "ngram":
        return (spec.settings().n_max,)
    return tuple(dict.fromkeys(min(n, spec.limit or n) for n in DRAFT_LENGTHS))


def context_size(lengths: Sequence[int], max_tokens: int, n_max: int) -> int:
    """The smallest n_ctx in which the longest prompt can be answered, and a whole draft with the
    token before it still be verified at the last position."""
    need = max(lengths) + max_tokens + n_max + 1
    return -(-need // CONTEXT_STEP) * CONTEXT_STEP


def fit_prompts(
    prompts: Sequence[Prepared], n_ctx: int, n_max: int
) -> tuple[tuple[Prepared, ...], tuple[Skipped, ...]]:
    """Split off the prompts that leave no room in ``n_ctx`` for one full verification.

    A prompt that fits but cannot be answered at full length is measured up to the context's end.
    """
    fits, skipped = [], []
    for p in prompts:
        need = len(p.tokens) + n_max + 1
        if need <= n_ctx:
            fits.append(p)
        else:
            reason = f"skipped: too long ({len(p.tokens)} tokens + {n_max + 1} > context {n_ctx})"
            skipped.append(Skipped(p.prompt, len(p.tokens), reason))
    return tuple(fits), tuple(skipped)


def spread(prompts: Sequence[Prepared], count: int) -> tuple[Prepared, ...]:
    """``count`` prompts taken from the workloads in turn, so that a measurement cut short at any
    prompt is spread too."""
    by_workload: dict[str, list[Prepared]] = {}
    for p in prompts:
        by_workload.setdefault(p.prompt.workload, []).append(p)
    in_turn = [p for turn in zip_longest(*by_workload.values()) for p in turn if p is not None]
    return tuple(in_turn[:count])


def seed_of(plan: Plan, prompt: Prepared, run: int) -> int:
    """A new seed for each repetition of each prompt, the same for all candidates."""
    return plan.sampler.seed + run * len(plan.prompts) + plan.prompts.index(prompt)


def interleaved(
    plan: Plan,
    prompts: Sequence[Prepared],
    candidates: Sequence[Candidate],
    *,
    first_run: int = 0,
    phase: Phase = "main",
    order: int = 0,
) -> list[Slot]:
    """Prompt by prompt, the candidates in a seeded random order within each, run after run: heat
    and other load hit all alike."""
    rng = random.Random(f"{plan.order_seed} {phase}")
    slots: list[Slot] = []
    for run in range(first_run, first_run + plan.runs):
        for prompt in prompts:
            seed = seed_of(plan, prompt, run)
            for candidate in rng.sample(candidates, len(candidates)):
                number = order + len(slots)
                slots.append(Slot(number, candidate, prompt, run, seed, 0, phase))
    return slots


def in_blocks(
    plan: Plan,
    prompts: Sequence[Prepared],
    candidates: Sequence[Candidate],
    *,
    first_run: int = 0,
    phase: Phase = "main",
    order: int = 0,
) -> list[Slot]:
    """Where contexts do not fit together: for each drafter a block baseline, candidate, candidate,
    baseline, each over half of the work, so that a steady drift cancels. On another base than the
    reference the reference's baseline encloses that: A B C C B A."""
    work = [(r, p) for r in range(first_run, first_run + plan.runs) for p in prompts]
    half = (len(work) + 1) // 2
    references = set(plan.references)
    drafted = {(c.base, c.temperature) for c in candidates if not c.is_baseline}
    others: dict[str, list[Candidate]] = {}
    for c in candidates:
        alone = c.is_baseline and (c.base, c.temperature) not in drafted
        if not c.is_baseline or (alone and c not in references):
            others.setdefault(c.session, []).append(c)
    slots: list[Slot] = []
    for block, members in enumerate(others.values()):
        around: list[list[Candidate]] = []
        for pick in (plan.reference_of, plan.baseline_of):
            group = [b for b in dict.fromkeys(map(pick, members)) if b in candidates]
            if group and group not in (*around, members):
                around.append(group)
        parts = [(group, work[:half]) for group in around]
        parts += [(members, work), *((group, work[half:]) for group in reversed(around))]
        for group, items in parts:
            for run, prompt in items:
                seed = seed_of(plan, prompt, run)
                for c in group:
                    slots.append(Slot(order + len(slots), c, prompt, run, seed, block, phase))
    if not others:
        return interleaved(plan, prompts, candidates, first_run=first_run, phase=phase, order=order)
    return slots


@dataclass(frozen=True, slots=True)
class Repeat:
    """Runs to be made again: ``candidates`` on one prompt, with the ``baselines`` that they are
    compared with next to them."""

    prompt: Prepared
    run: int
    baselines: tuple[Candidate, ...]
    candidates: tuple[Candidate, ...]

    def slots(self, plan: Plan, order: int, block: int) -> list[Slot]:
        again = dict.fromkeys((*self.baselines, *self.candidates))
        seed = seed_of(plan, self.prompt, self.run)
        return [
            Slot(order + i, c, self.prompt, self.run, seed, block, "repeat")
            for i, c in enumerate(again)
        ]


def repeats(plan: Plan, unsound: Sequence[Slot]) -> list[Repeat]:
    """What to make again because of unsound runs. Where the unsound run was a baseline's, every
    candidate that was paired with it runs again."""
    groups: dict[tuple[Prepared, int, float], list[Candidate]] = {}
    for slot in unsound:
        key = (slot.prompt, slot.run, slot.candidate.temperature)
        groups.setdefault(key, []).append(slot.candidate)
    found = []
    for (prompt, run, temperature), members in groups.items():
        again = dict.fromkeys(members)
        for candidate in plan.candidates:
            pair = plan.reference_of(candidate), plan.baseline_of(candidate)
            if candidate.temperature == temperature and not again.keys().isdisjoint(pair):
                again.setdefault(candidate)
        baselines = dict.fromkeys(
            b for c in again for b in (plan.reference_of(c), plan.baseline_of(c))
        )
        found.append(Repeat(prompt, run, tuple(baselines), tuple(again)))
    return found
