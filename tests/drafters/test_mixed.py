"""An n-gram drafter first, every other family behind it: the text is the baseline's, whoever drafts
is known, and the drafter behind is always where it would be if it had read the text alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import cast

import pytest
from drafters.reading import Lab, opened
from families import MIXED, NODES, Case, every_family
from scripted import ScriptedDrafter

from localspec.bench.analysis import sum_up
from localspec.decoding.loop import Listener, Request, Session
from localspec.decoding.sampling import Sampler
from localspec.drafters.mixed import MixedDrafter
from localspec.drafters.ngram import NgramDrafter
from localspec.records import DrafterSettings, Generation, SamplerSettings

PROMPT = [0, 5, 6, 7, 8, 5, 6, 9, 4, 10, 6]
TOKENS = 50


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    return every_family(tmp_path_factory.mktemp("families"))


@pytest.fixture
def lab() -> Iterator[Lab]:
    with opened() as made:
        yield made


@pytest.fixture(params=MIXED)
def mixed(request: pytest.FixtureRequest, cases: dict[str, Case]) -> Case:
    case = cases[request.param]
    # its shortest n-grams are pairs, so that both drafters have their say
    return replace(case, drafter=replace(case.drafter, ngram_min=2))


def alone(case: Case) -> DrafterSettings:
    """The drafter behind, as it would be without the other."""
    return replace(case.drafter, method=case.drafter.sources[1])


def run(
    session: Session,
    prompt: list[int] = PROMPT,
    n: int = TOKENS,
    *,
    temperature: float = 0.0,
    reuse: bool = False,
) -> Generation:
    sampler = SamplerSettings(temperature=temperature, seed=4)
    request = Request(prompt, sampler, n, ignore_eos=True, reuse=reuse, record=True)
    return session.generate(request, Listener())


def committed(made: Generation, prompt: list[int] = PROMPT) -> Iterator[list[int]]:
    """The ids before each step."""
    tokens = [*prompt, made.tokens[0]]
    done = 1
    for step in made.steps:
        yield list(tokens)
        tokens += made.tokens[done : done + step.tokens]
        done += step.tokens


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_text_is_the_baselines_and_both_draft(
    lab: Lab, mixed: Case, temperature: float
) -> None:
    plain = run(lab.session(mixed.target, DrafterSettings()), temperature=temperature)
    made = run(lab.session(mixed.target, mixed.drafter), temperature=temperature)
    if temperature and mixed.drafter.sampled:
        assert made.tokens != plain.tokens  # its own random numbers: not comparable
    else:
        assert made.tokens == plain.tokens
    drafted = [[s.drafted for s in made.steps if s.drafted and s.source == i] for i in (0, 1)]
    assert len(drafted[0]) > 2 and len(drafted[1]) > 2


def test_ngrams_are_looked_up_first_and_the_other_drafts_as_if_it_were_alone(
    lab: Lab, mixed: Case
) -> None:
    """Whatever the n-gram drafter had accepted or rejected before, and however long it drafted:
    the drafter behind has read every token that was kept, and nothing else."""
    own = alone(mixed)
    made = run(lab.session(mixed.target, mixed.drafter))
    fresh = lab.session(mixed.target, own)
    seen = {0: 0, 1: 0}
    steps = zip(made.steps, made.drafts, committed(made), strict=True)
    for step, draft, tokens in steps:
        limit = len(PROMPT) + TOKENS - len(tokens) - 1
        ngram = NgramDrafter(own.n_max, mixed.drafter.ngram_min, mixed.drafter.ngram_max)
        found = ngram.draft(list(tokens), limit) if limit else None
        if found is not None and found.n:
            assert step.source == 0
            assert list(draft) == found.tokens[: found.n].tolist()
        elif limit:
            expected = run(fresh, tokens[:-1], 2 + limit)
            assert expected.tokens[0] == tokens[-1]
            assert draft == expected.drafts[0][: len(draft)]
            assert len(draft) == len(expected.drafts[0]) or len(draft) == limit
            assert step.source == (1 if draft else 0)
        seen[step.source] += bool(draft)
    assert min(seen.values()) > 2


def test_figures_are_kept_apart(lab: Lab, mixed: Case) -> None:
    made = run(lab.session(mixed.target, mixed.drafter))
    parts = sum_up([made], mixed.drafter.sources).by_source
    assert list(parts) == ["ngram", mixed.drafter.sources[1]]
    for i, part in enumerate(parts.values()):
        steps = [s for s in made.steps if s.drafted and s.source == i]
        assert (part.steps, part.steps_with_draft) == (len(steps), len(steps))
        assert part.accepted == sum(s.accepted for s in steps)
        assert part.decode_tokens == sum(s.tokens for s in steps)
    assert sum(part.drafted for part in parts.values()) == made.counts.drafted


def test_turns_and_changes_of_drafter(lab: Lab, mixed: Case) -> None:
    """Plain, the pair, the pair again on what is held and on a part of it, the drafter behind
    alone, the pair."""
    settings = {"none": DrafterSettings(), "pair": mixed.drafter, "alone": alone(mixed)}

    @cache
    def session(name: str, fresh: bool) -> Session:
        return lab.session(mixed.target, settings[name])

    prompt = list(PROMPT)
    before: Session | None = None
    for name in ("none", "pair", "pair", "pair edited", "alone", "pair", "none"):
        name, _, edited = name.partition(" ")
        now = session(name, False)
        if edited:
            prompt = [*prompt[:-15], 11, 4]
        if before is not None and before is not now:
            now.adopt(before)
        made = run(now, prompt, 20, reuse=True)
        fresh = run(session(name, True), prompt, 20)
        assert (made.tokens, made.drafts) == (fresh.tokens, fresh.drafts), name
        if before is now and not edited:
            assert made.cached_tokens >= len(prompt) - 4
        prompt = [*prompt, *made.tokens, 9, 8]
        before = now


def test_each_is_held_to_its_own_length(lab: Lab, cases: dict[str, Case]) -> None:
    """n-grams as long as asked for; the block as far as it was trained; a tree of its own nodes."""
    repeated = [0, *([4, 5, 6, 7] * 8)]
    for name, longest in (("ngram+dflash", 5), ("ngram+dspark", 6), ("ngram+eagle3 tree", NODES)):
        case = cases[name]
        session = lab.session(case.target, replace(case.drafter, n_max=12, ngram_min=2))
        drafter = cast(MixedDrafter, session.drafter)
        assert drafter.limits == [12, longest]
        drafter.begin(repeated, 0, Sampler(SamplerSettings(), len(repeated)))
        assert drafter.draft(list(repeated), 99).n == 12
        made = run(session, PROMPT, 60)
        most = [max(s.nodes for s in made.steps if s.source == i) for i in (0, 1)]
        assert most[1] <= longest < most[0] <= 12


def test_limits_leave_a_drafter_out(lab: Lab) -> None:
    """As adaptive lengths do: 0 for one of them, or fewer tokens than it has."""
    first = ScriptedDrafter(lambda tokens, limit: [4, 5, 6][:limit], nodes=3)
    behind = ScriptedDrafter(lambda tokens, limit: [7, 8][:limit], nodes=2)
    drafter = MixedDrafter(first, behind)
    assert drafter.needs.outputs == 4

    def drafted(limits: list[int], limit: int = 9) -> tuple[int, list[int]]:
        drafter.limits[:] = limits
        draft = drafter.draft([0], limit)
        return draft.source, draft.tokens[: draft.n].tolist()

    assert drafted([3, 2]) == (0, [4, 5, 6])
    assert drafted([2, 2]) == (0, [4, 5])
    assert drafted([3, 2], limit=1) == (0, [4])
    assert drafted([0, 2]) == (1, [7, 8])
    assert drafted([0, 1]) == (1, [7])
    assert drafted([0, 0]) == (0, [])
