"""What steps cost is measured, and the session is afterwards as if it had not been."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from decoding.conftest import Sessions, run
from scripted import ScriptedDrafter
from tiny_models import BOS

import localspec.decoding.loop as loop_module
import localspec.decoding.measure as measure_module
from localspec.decoding.adaptive import Adaptive, budgets_up_to, lengths_up_to
from localspec.decoding.loop import Session
from localspec.decoding.measure import adaptive_lengths
from localspec.decoding.target import Target
from localspec.drafters.base import Draft, Drafter
from localspec.drafters.mixed import MixedDrafter
from localspec.drafters.ngram import NgramDrafter
from localspec.llama import Rows
from localspec.records import Generation

PROMPT = [BOS, 4, 5, 6]
Make = Callable[[Sessions, Path], Drafter]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_module, "SECONDS", 0.0)


def ngram(sessions: Sessions, draft: Path) -> Drafter:
    return NgramDrafter(5, 1, 3)


def draft_model(sessions: Sessions, draft: Path) -> Drafter:
    return sessions.draft_model(draft, n_max=4, p_min=0.2)


def sampled(sessions: Sessions, draft: Path) -> Drafter:
    return sessions.draft_model(draft, n_max=4, sampled=True)


def mixed(sessions: Sessions, draft: Path) -> Drafter:
    return MixedDrafter(ngram(sessions, draft), draft_model(sessions, draft))


def said(session: Session, *, reuse: bool = False) -> tuple[object, ...]:
    """Two answers of one conversation, step by step."""
    first = run(session, PROMPT, 40, temperature=0.8, seed=3, record=True)
    prompt = [*PROMPT, *first.tokens, 7, 8]
    second = run(session, prompt, 40, temperature=0.8, seed=4, record=True, reuse=True)
    return tuple(steps(g) for g in (first, second))


def steps(generation: Generation) -> tuple[object, ...]:
    return (
        generation.tokens,
        generation.drafts,
        [(s.drafted, s.accepted, s.source) for s in generation.steps],
        generation.cached_tokens,
    )


@pytest.mark.parametrize("make", [ngram, draft_model, sampled, mixed])
def test_a_measured_session_says_and_drafts_what_it_would_have(
    sessions: Sessions, tiny_target: Path, tiny_draft: Path, make: Make
) -> None:
    expected = said(sessions.make(tiny_target, make(sessions, tiny_draft)))
    session = sessions.make(tiny_target, make(sessions, tiny_draft))
    session.warm_up()
    adaptive_lengths(session)
    assert session.lengths is None and not session.abort.raised
    assert session.held == []
    assert session.target.context.last_position() == -1
    assert said(session) == expected
    said(session)  # and in the middle of a conversation
    adaptive_lengths(session)
    assert said(session) == expected


@pytest.mark.parametrize("make", [ngram, draft_model, mixed])
def test_every_length_has_a_cost(
    sessions: Sessions, tiny_target: Path, tiny_draft: Path, make: Make
) -> None:
    session = sessions.make(tiny_target, make(sessions, tiny_draft))
    session.warm_up()
    lengths = adaptive_lengths(session)
    costs = lengths.costs
    bounds = [5] if make is ngram else [4] if make is draft_model else [5, 4]
    assert lengths.limits == bounds
    assert [len(d) - 1 for d in costs.draft] == bounds
    assert len(costs.verify) == max(bounds) + 1
    assert min(costs.verify) > 0 and costs.rest > 0
    assert [d[0] for d in costs.draft] == [0.0] * len(bounds)
    if make is not ngram:  # it decodes, of the prompt too
        assert costs.draft[-1][4] > 0 and costs.wake[-1] > 0


class Clock:
    """Time passes only where the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_costs_are_those_of_the_clock(
    sessions: Sessions, tiny_target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass over n drafted tokens takes 10 + n seconds and 30 from 4 on, a drafted token 3."""
    clock, honest = Clock(), Target.verify
    verified: list[int] = []

    def verify(self: Target, last: int, draft: Draft, position: int) -> Rows:
        verified.append(draft.n)
        clock.now += 30 if draft.n >= 4 else 10 + draft.n
        return honest(self, last, draft, position)

    def draft(committed: list[int], limit: int) -> list[int]:
        n = min(limit, 12)
        clock.now += 3 * n
        return [4] * n

    session = sessions.make(tiny_target, ScriptedDrafter(draft, nodes=12))
    monkeypatch.setattr(Target, "verify", verify)
    monkeypatch.setattr(loop_module, "perf_counter", clock)
    monkeypatch.setattr(measure_module, "perf_counter", clock)
    costs = adaptive_lengths(session).costs
    assert set(verified) >= {0, *lengths_up_to(12)}
    assert costs.verify == (10, 11, 12, 13, *[30] * 9)
    assert costs.draft == (tuple(3 * n for n in range(13)),)
    assert costs.rest == 0


class Listens(Adaptive):
    """Remembers what it was told, and of which types that was."""

    def __init__(self, lengths: Adaptive) -> None:
        super().__init__(lengths.costs, lengths.limits)
        self.told: list[tuple[str, object]] = []

    def limit(self, most: int) -> int:
        n = super().limit(most)
        self.told.append(("limit", most))
        return n

    def observe(self, *what: object) -> None:
        self.told.append(("observe", what))
        super().observe(*what)  # type: ignore[arg-type]


def numbers(what: object) -> set[type]:
    """The types in it, containers taken apart."""
    if isinstance(what, (tuple, list, range)):
        return set().union(*map(numbers, what))
    return {type(what)}


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_it_chooses_before_anything_is_drawn_and_is_told_no_token(
    sessions: Sessions, tiny_target: Path, tiny_draft: Path, temperature: float
) -> None:
    """The same steps at the same times make the same choices, whatever the tokens were: told are
    counts and times, after the step, and how much room there is, before it."""
    session = sessions.make(tiny_target, sampled(sessions, tiny_draft))
    session.warm_up()
    session.lengths = lengths = Listens(adaptive_lengths(session))
    generation = run(session, PROMPT, 60, temperature=temperature, ignore_eos=True, record=True)
    assert [name for name, _ in lengths.told] == ["limit", "observe"] * len(generation.steps)
    assert numbers([what for _, what in lengths.told]) <= {int, float}
    tokens, steps = 1, generation.steps
    for i, step in enumerate(steps):
        assert lengths.told[2 * i] == ("limit", 60 - tokens - 1)
        assert numbers(lengths.told[2 * i + 1]) and lengths.told[2 * i + 1][1][0] == step  # type: ignore[index]
        tokens += step.tokens


def test_a_pass_that_was_disturbed_is_not_believed(
    sessions: Sessions, tiny_target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No batch is slower than its tokens one by one; where it was once, the fastest time counts."""
    clock, honest, seen = Clock(), Target.verify, Counter[int]()

    def verify(self: Target, last: int, draft: Draft, position: int) -> Rows:
        seen[draft.n] += 1
        once = draft.n == 5 and seen[5] == 1
        clock.now += 900 if draft.n == 7 or once else 10 + draft.n
        return honest(self, last, draft, position)

    session = sessions.make(tiny_target, ScriptedDrafter(lambda tokens, limit: [], nodes=8))
    monkeypatch.setattr(Target, "verify", verify)
    monkeypatch.setattr(loop_module, "perf_counter", clock)
    monkeypatch.setattr(measure_module, "perf_counter", clock)
    assert adaptive_lengths(session).costs.verify == (10, 11, 12, 13, 14, 15, 16, 80, 18)


def test_a_draft_that_was_disturbed_is_not_believed(
    sessions: Sessions, tiny_target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drafted token takes 3 seconds; drafts of four and of two were disturbed whenever they were
    tried: one token more is never cheaper, and none is dearer than those before it."""
    clock, honest = Clock(), Target.verify

    def verify(self: Target, last: int, draft: Draft, position: int) -> Rows:
        clock.now += 10
        return honest(self, last, draft, position)

    def draft(committed: list[int], limit: int) -> list[int]:
        clock.now += 3 * limit + (70 if limit in (2, 4) else 0)
        return [4] * limit

    session = sessions.make(tiny_target, ScriptedDrafter(draft, nodes=8))
    monkeypatch.setattr(Target, "verify", verify)
    monkeypatch.setattr(loop_module, "perf_counter", clock)
    monkeypatch.setattr(measure_module, "perf_counter", clock)
    assert adaptive_lengths(session).costs.draft == (tuple(3 * n for n in range(9)),)


def test_trees_are_measured_up_to_where_they_can_be_worth_it(
    sessions: Sessions, tiny_target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass over n nodes takes 10 + 10 n seconds: more than 8 plain ones from 11 on. Branches are
    verified as such, and afterwards the drafter may draft all its nodes again."""
    clock, honest = Clock(), Target.verify
    verified: dict[int, Draft] = {}

    def verify(self: Target, last: int, draft: Draft, position: int) -> Rows:
        clock.now += 10 + 10 * draft.n
        if not position:
            verified[draft.n] = draft
        return honest(self, last, draft, position)

    class Branching(ScriptedDrafter):
        limits: list[int]

        def draft(self, tokens: list[int], limit: int) -> Draft:
            clock.now += 5 if self.limits[0] > 1 else 2
            return super().draft(tokens, limit)

    drafter = Branching(
        lambda committed, limit: [(4 + i % 8, -1) for i in range(min(drafter.limits[0], 8))],
        nodes=63,
        sequences=63,
    )
    drafter.limits = [63]
    session = sessions.make(tiny_target, drafter, n_ctx=512)
    monkeypatch.setattr(Target, "verify", verify)
    monkeypatch.setattr(loop_module, "perf_counter", clock)
    monkeypatch.setattr(measure_module, "perf_counter", clock)
    lengths = adaptive_lengths(session)
    assert sorted(verified) == [0, 1, 2, 3, 5, 7, 11]
    assert not verified[7].chain
    assert lengths.costs.tree
    assert lengths.costs.verify == tuple(10 + 10 * n for n in range(8))
    assert lengths.costs.draft == ((0, 2, *[5] * 6),) or lengths.costs.draft[0][7] == 5
    assert drafter.limits == [63]
    session.lengths = lengths
    generation = run(session, PROMPT, 30, ignore_eos=True, record=True)
    assert {s.nodes for s in generation.steps} <= {0, *budgets_up_to(7)}


@pytest.mark.parametrize("make", [ngram, draft_model, sampled])
def test_every_length_costs_something_at_every_depth(
    sessions: Sessions,
    tiny_target: Path,
    tiny_draft: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Make,
) -> None:
    monkeypatch.setattr(measure_module, "SECONDS_AT_DEPTH", 0.0)
    session = sessions.make(tiny_target, make(sessions, tiny_draft))
    before = said(session)
    n_max = session.drafter.needs.outputs - 1
    near, far = measure_module.costs(session, (4, 120))
    assert (near.depth, far.depth) == (4, 120)
    for found in (near, far):
        assert len(found.verify) == len(found.draft) == n_max + 1
        assert min(found.verify) > 0
        assert found.draft[0] == 0
    assert said(session) == before


def test_the_depth_is_that_of_the_context(
    sessions: Sessions, tiny_target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every pass that is timed starts right behind the text, whatever was verified before."""
    monkeypatch.setattr(measure_module, "SECONDS_AT_DEPTH", 0.0)
    session = sessions.make(tiny_target, NgramDrafter(5, 1, 3))
    honest, seen = Target.verify, []

    def verify(self: Target, last: int, draft: Draft, position: int) -> Rows:
        seen.append((draft.n, position, self.context.last_position()))
        return honest(self, last, draft, position)

    monkeypatch.setattr(Target, "verify", verify)
    measure_module._verify_at(session, 50)
    assert {(p, held) for _, p, held in seen} == {(50, 49)}
    assert Counter(n for n, _, _ in seen) == dict.fromkeys(range(6), 3)


def test_a_recurrent_memory_goes_on_instead_of_back(
    sessions: Sessions, tiny_mamba: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure_module, "SECONDS_AT_DEPTH", 0.0)
    session = sessions.make(tiny_mamba, NgramDrafter(3, 1, 3), n_ctx=64)
    (found,) = measure_module.costs(session, (50,))
    assert len(found.verify) == 4
    assert min(found.verify) > 0
