"""Adaptive lengths in simulated worlds whose best choice is known: costs by table, acceptance by
seeded chance, times in milliseconds that nobody waits for.

Speed is compared with that of the best fixed length in the same world, over several seeds, since
chance alone moves a run of 400 steps by a few percent.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from localspec.decoding.adaptive import Adaptive, StepCosts, budgets_up_to, lengths_up_to
from localspec.records import Step

STEPS, SEEDS = 400, 4
BOUND = 8
REST = 0.1
FLAT = [10 + 0.3 * n for n in range(BOUND + 1)]
"""Target passes as on a GPU: nearly the same for every size."""
STEEP = [10.0, 17, 22, 26, 32, 36, 39, 42, 48]
"""As on two CPU cores (ENGINE_NOTES section 4)."""


@dataclass
class Drafter:
    """``cost`` a drafted token and ``wake`` a missed one, in ms; the others are chances:
    ``accept(step, position)`` to be right there, ``covers`` to draft at all, ``goes_on`` to draft
    one token more where it may."""

    cost: float = 0.2
    accept: Callable[[int, int], float] = lambda step, position: 0.7
    covers: float = 1.0
    wake: float = 0.05
    goes_on: float = 1.0


@dataclass
class World:
    verify: Sequence[float] = field(default_factory=lambda: FLAT)
    drafters: Sequence[Drafter] = (Drafter(),)
    noise: float = 0.03

    def costs(self) -> StepCosts:
        """As they would be measured without error."""
        return StepCosts(
            tuple(1e-3 * x for x in self.verify),
            1e-3 * REST,
            tuple(tuple(1e-3 * d.cost * n for n in range(len(self.verify))) for d in self.drafters),
            tuple(1e-3 * d.wake for d in self.drafters),
        )


@dataclass
class Ran:
    tokens: int
    ms: float
    asked: list[tuple[int, ...]]
    """The limits of every step, source by source."""

    @property
    def speed(self) -> float:
        return self.tokens / self.ms


def run(
    world: World,
    lengths: Adaptive | Sequence[int],
    seed: int = 0,
    steps: int = STEPS,
) -> Ran:
    """``lengths``: what chooses, or the fixed length of each drafter."""
    chance = random.Random(seed)
    missed = [0] * len(world.drafters)
    ran = Ran(0, 0.0, [])
    adaptive = lengths if isinstance(lengths, Adaptive) else None
    if adaptive is not None:
        adaptive.begin()
    for step in range(steps):
        luck, stops, covers = (
            [chance.random() for _ in range(len(world.verify) + 1)] for _ in range(3)
        )
        if adaptive is not None:
            most = adaptive.limit(10_000)
            limits = [min(n, most) for n in adaptive.limits]
        else:
            limits = [int(n) for n in lengths]  # type: ignore[union-attr]
        n, source, drafting = 0, 0, 0.0
        for i, drafter in enumerate(world.drafters):
            if not limits[i] or n:
                continue
            drafting += drafter.wake * missed[i]
            missed[i] = 0
            if covers[i] < drafter.covers:
                n, source = 1, i
                while n < limits[i] and stops[n] < drafter.goes_on:
                    n += 1
            drafting += drafter.cost * min(n + 1, limits[i])
        accepted = 0
        while accepted < n and luck[accepted] < world.drafters[source].accept(step, accepted):
            accepted += 1
        for i in range(len(missed)):
            if not limits[i] or (n and i > source):
                missed[i] += accepted + 1
        noise = max(0.5, chance.gauss(1, world.noise))
        verify, rest = world.verify[n] * noise, (drafting + REST) * noise
        ran.tokens += accepted + 1
        ran.ms += verify + rest
        ran.asked.append(tuple(limits))
        if adaptive is not None:
            seconds = 1e-3 * (verify + rest)
            adaptive.observe(
                Step(
                    accepted + 1, n, accepted, n, 1, 1e-3 * rest, 1e-3 * verify, 0.0, 0.0, seconds
                )._replace(source=source),
                range(accepted),
            )
    return ran


def speed(world: World, lengths: Adaptive | Sequence[int]) -> float:
    ran = [run(world, lengths, seed) for seed in range(SEEDS)]
    return sum(r.tokens for r in ran) / sum(r.ms for r in ran)


def best_fixed(world: World) -> tuple[int, float]:
    """Of one drafter."""
    speeds = {n: speed(world, [n]) for n in range(len(world.verify))}
    n = max(speeds, key=lambda n: speeds[n])
    return n, speeds[n]


def always(chance: float) -> Callable[[int, int], float]:
    return lambda step, position: chance


def chosen(world: World) -> Counter[int]:
    """How often which length was asked of the first drafter, in the second halves of the runs."""
    ran = [run(world, Adaptive(world.costs()), seed) for seed in range(SEEDS)]
    return Counter(limits[0] for r in ran for limits in r.asked[STEPS // 2 :])


GOOD = 0.97


@pytest.mark.parametrize("verify", [FLAT, STEEP], ids=["flat", "steep"])
@pytest.mark.parametrize("cost", [0.05, 1.0, 4.0])
@pytest.mark.parametrize("accept", [0.0, 0.3, 0.6, 0.9])
def test_it_is_as_fast_as_the_best_fixed_length(
    verify: list[float], cost: float, accept: float
) -> None:
    """Plain decoding is one of the lengths: where no draft pays, it costs next to nothing."""
    world = World(verify, [Drafter(cost, always(accept))])
    _, best = best_fixed(world)
    assert speed(world, Adaptive(world.costs())) >= GOOD * best


def test_dear_batch_sizes_are_avoided() -> None:
    """Steps of a stair: just before one, never just behind it."""
    stairs = [10.0, 11, 12, 26, 27, 28, 29, 30, 50]
    world = World(stairs, [Drafter(0.1, always(0.75))])
    n, best = best_fixed(world)
    assert n in (2, 7)  # neither of the tests below holds for want of choice
    counts = chosen(world)
    assert counts[3] + counts[4] + counts[8] < 0.05 * counts.total()
    assert speed(world, Adaptive(world.costs())) >= GOOD * best
    spike = World([*FLAT[:3], 40.0, *FLAT[4:]], [Drafter(0.1, always(0.75))])
    assert chosen(spike)[3] == 0


def test_a_batch_size_that_proves_dearer_than_measured_is_left() -> None:
    world = World(FLAT, [Drafter(0.1, always(0.9))], noise=0.0)
    costs = world.costs()
    slower = replace(world, verify=[*FLAT[:7], 40.0, 40.0])
    ran = run(slower, Adaptive(costs), steps=800)
    late = Counter(limits[0] for limits in ran.asked[400:])
    assert late[7] + late[8] < 0.1 * late.total()
    assert late[6] > 0.5 * late.total()


@pytest.mark.parametrize("verify", [FLAT, STEEP], ids=["flat", "steep"])
@pytest.mark.parametrize("accept", [0.2, 0.9])
@pytest.mark.parametrize("share", [0.05, 0.4])
def test_a_drafter_that_seldom_drafts_is_judged_by_its_drafts(
    verify: list[float], accept: float, share: float
) -> None:
    world = World(verify, [Drafter(0.02, always(accept), share, wake=0.0)])
    n, best = best_fixed(world)
    assert speed(world, Adaptive(world.costs())) >= GOOD * best
    if verify is FLAT and accept > 0.5:
        assert n >= 7
        assert chosen(world)[0] < 0.1 * SEEDS * STEPS // 2


def test_a_drafter_that_stops_early_costs_only_what_it_drafts() -> None:
    """Verified are the drafts that come, however many would be allowed."""
    dear = [10.0, 11, *(40.0 + n for n in range(BOUND - 1))]
    world = World(dear, [Drafter(0.1, always(0.9), goes_on=0.02)])
    _, best = best_fixed(world)
    assert speed(world, Adaptive(world.costs())) >= GOOD * best
    on = World(dear, [Drafter(0.1, always(0.9), goes_on=0.9)])
    assert chosen(on)[1] > 0.9 * chosen(on).total()


@pytest.mark.parametrize("first", [0.1, 0.95])
@pytest.mark.parametrize("verify", [FLAT, STEEP], ids=["flat", "steep"])
def test_it_follows_the_text_when_its_nature_changes(first: float, verify: list[float]) -> None:
    """Half of the run is easy, half is hard: no fixed length is right for both."""
    other = 1.05 - first

    def accept(step: int, position: int) -> float:
        return first if step < STEPS // 2 else other

    world = World(verify, [Drafter(0.5, accept)])
    _, best = best_fixed(world)
    assert speed(world, Adaptive(world.costs())) >= GOOD * best
    if verify is FLAT:
        assert speed(world, Adaptive(world.costs())) >= 1.02 * best


def test_bad_luck_at_a_depth_is_forgotten() -> None:
    """Also where shorter drafts pay, so that it never stops drafting."""
    verify = [10.0, 11, *(15.0 + 2 * n for n in range(BOUND - 1))]
    world = World(verify, [Drafter(0.1, lambda step, i: 0.0 if i and step < 60 else 0.9)])
    ran = run(world, Adaptive(world.costs()))
    assert {limits[0] for limits in ran.asked[40:60]} == {1}
    late = [limits[0] for limits in ran.asked[STEPS // 2 :]]
    assert sum(n >= 6 for n in late) > 0.8 * len(late)


@pytest.mark.parametrize("wake", [0.0, 0.5, 5.0])
def test_a_drafter_that_never_pays_costs_next_to_nothing(wake: float) -> None:
    world = World(STEEP, [Drafter(1.0, always(0.1), wake=wake)])
    assert best_fixed(world)[0] == 0
    assert speed(world, Adaptive(world.costs())) >= GOOD * speed(world, [0])


def best_pair(world: World) -> float:
    return max(speed(world, [a, b]) for a in (0, 1, 7) for b in (0, 1, 3, 7))


@pytest.mark.parametrize("verify", [FLAT, STEEP], ids=["flat", "steep"])
@pytest.mark.parametrize(("first", "second"), [(0.95, 0.5), (0.2, 0.9), (0.95, 0.0), (0.1, 0.1)])
def test_two_drafters_are_chosen_apart(first: float, second: float, verify: list[float]) -> None:
    """One is free and drafts now and then, the other behind it costs something: each of them may
    pay or not."""
    drafters = [
        Drafter(0.01, always(first), 0.3, wake=0.0),
        Drafter(1.0, always(second)),
    ]
    world = World(verify, drafters)
    assert speed(world, Adaptive(world.costs())) >= GOOD * best_pair(world)
    if verify is FLAT and (first, second) in ((0.2, 0.9), (0.95, 0.0)):
        ran = [run(world, Adaptive(world.costs()), seed) for seed in range(SEEDS)]
        a, b = (sum(r[i] for ran_ in ran for r in ran_.asked[200:]) for i in (0, 1))
        assert (b > 3 * a) == (second > first)


def test_a_run_is_not_taught_by_the_run_before() -> None:
    hard = World(STEEP, [Drafter(1.0, always(0.05))])
    easy = replace(hard, drafters=[Drafter(1.0, always(0.95))])
    lengths = Adaptive(hard.costs())
    fresh = run(easy, lengths)
    run(hard, lengths, seed=1)
    again = run(easy, lengths)
    assert again.asked == fresh.asked
    assert len(set(fresh.asked)) > 3


def test_no_more_is_drafted_than_there_is_room_for() -> None:
    lengths = Adaptive(World(drafters=[Drafter(0.0, always(1.0))]).costs())
    for most in (5, 3, 1, 0):
        n = lengths.limit(most)
        assert n <= most
        lengths.observe(Step(n + 1, n, n, n, 1, 0.0, 0.01, 0.0, 0.0, 0.0101), range(n))


def test_lengths_that_are_not_measured_are_not_chosen() -> None:
    bound = 16
    assert lengths_up_to(bound) == [1, 2, 3, 4, 5, 6, 7, 8, 11, 15]
    world = World([10 + 0.1 * n for n in range(bound + 1)], [Drafter(0.01, always(0.95))])
    asked = {limits[0] for limits in run(world, Adaptive(world.costs())).asked}
    assert 15 in asked
    assert asked <= {0, *lengths_up_to(bound)}


# ---- draft trees ----------------------------------------------------------------------------


@dataclass
class Forest:
    """A drafter of trees: ``chance(step, rank)`` that a node is accepted; a pass over n nodes takes
    ``verify(n)`` ms, drafting them ``draft(n)``."""

    chance: Callable[[int, int], float]
    verify: Callable[[int], float]
    draft: Callable[[int], float] = lambda n: 1.0
    bound: int = 63

    def costs(self) -> StepCosts:
        sizes = range(self.bound + 1)
        return StepCosts(
            tuple(1e-3 * self.verify(n) for n in sizes),
            1e-3 * REST,
            ((0.0, *(1e-3 * self.draft(n) for n in sizes[1:])),),
            (0.0,),
            tree=True,
        )


def grow(forest: Forest, nodes: Adaptive | int, seed: int = 0, steps: int = STEPS) -> Ran:
    chance = random.Random(seed)
    ran = Ran(0, 0.0, [])
    adaptive = nodes if isinstance(nodes, Adaptive) else None
    for step in range(steps):
        luck = [chance.random() for _ in range(forest.bound)]
        noise = max(0.5, chance.gauss(1, 0.03))
        if adaptive is not None:
            n = adaptive.limits[0] if adaptive.limit(10_000) else 0
        else:
            n = nodes  # type: ignore[assignment]
        accepted = [rank for rank in range(n) if luck[rank] < forest.chance(step, rank)]
        verify = forest.verify(n) * noise
        rest = (REST + (forest.draft(n) if n else 0.0)) * noise
        tokens = len(accepted) + 1
        ran.tokens += tokens
        ran.ms += verify + rest
        ran.asked.append((n,))
        if adaptive is not None:
            times = (1e-3 * rest, 1e-3 * verify, 0.0, 0.0, 1e-3 * (verify + rest))
            adaptive.observe(Step(tokens, len(accepted), len(accepted), n, 1, *times), accepted)
    return ran


def growth(forest: Forest, nodes: int | None) -> float:
    """Tokens a ms with so many nodes a step; None: as many as seem best."""
    ran = [grow(forest, Adaptive(forest.costs()) if nodes is None else nodes, s) for s in range(4)]
    return sum(r.tokens for r in ran) / sum(r.ms for r in ran)


FOREST_PASS = {
    "GPU": lambda n: 10 + 0.04 * n,
    "between": lambda n: 10 + 0.4 * n,
    "CPU": lambda n: 10 + 5.0 * n,
    "stairs": lambda n: 10.0 if n < 8 else 25.0 if n < 16 else 60.0,
}


@pytest.mark.parametrize("verify", FOREST_PASS)
@pytest.mark.parametrize("likeliest", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("decline", [0.8, 1.4])
def test_a_trees_size_is_as_good_as_the_best_fixed_one(
    verify: str, likeliest: float, decline: float
) -> None:
    """Chances of nodes as they are: falling with the rank's power."""
    forest = Forest(lambda step, rank: likeliest / (rank + 1) ** decline, FOREST_PASS[verify])
    best = max(growth(forest, n) for n in (0, *budgets_up_to(forest.bound)))
    assert growth(forest, None) >= GOOD * best


def test_a_tree_follows_the_text_and_forgets_it_with_the_run() -> None:
    def changing(step: int, rank: int) -> float:
        return (0.9 if step < STEPS // 2 else 0.1) / (rank + 1)

    forest = Forest(changing, FOREST_PASS["between"])
    lengths = Adaptive(forest.costs())
    fresh = grow(forest, lengths)
    early, late = fresh.asked[50 : STEPS // 2], fresh.asked[-100:]
    assert sum(n for (n,) in early) / len(early) > 5 > 2 > sum(n for (n,) in late) / len(late)
    lengths.begin()
    assert grow(forest, lengths).asked == fresh.asked


def test_budgets_are_small_steps_then_large_ones_up_to_the_bound() -> None:
    assert budgets_up_to(63) == [1, 2, 3, 5, 7, 11, 15, 23, 31, 47, 63]
    assert budgets_up_to(40) == [1, 2, 3, 5, 7, 11, 15, 23, 31, 40]
    assert [budgets_up_to(n) for n in (1, 2, 3, 4)] == [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]]


def test_what_was_measured_can_be_read() -> None:
    costs = Forest(lambda step, rank: 0.5, lambda n: 10.0 + n, bound=5).costs()
    assert costs.describe() == {
        "auto_verify_ms": "0:10 1:11 2:12 3:13 5:15",
        "auto_draft_ms": "0:0 1:1 2:1 3:1 5:1",
        "auto_wake_ms": "0",
        "auto_standby_ms": "0",
    }


def standing_by(share: float, source: Drafter) -> Adaptive:
    """Plain steps in a world where being ready costs such a share of one."""
    world = World(drafters=(source,), noise=0.0)
    costs = world.costs()
    return Adaptive(replace(costs, standby=share * (costs.verify[0] + costs.rest)))


def gives_up_after(lengths: Adaptive, source: Drafter, steps: int = 200) -> int | None:
    """The steps done when it first would go on without drafter; at every step of a run it is asked
    as the loop asks."""
    for done in range(steps):
        if lengths.gives_up:
            return done
        n = lengths.limit(BOUND)
        right = round(n * source.accept(done, 1))
        seconds = lengths.costs.verify[n] + lengths.costs.rest + lengths.costs.draft[0][n]
        lengths.observe(
            Step(right + 1, n, right, n, 1, 0.0, lengths.costs.verify[n], 0.0, 0.0, seconds),
            range(right),
        )
    return None


def test_drafting_is_given_up_once_standing_by_for_it_has_cost_half_a_token() -> None:
    never_right = Drafter(accept=lambda step, position: 0.0, cost=20.0)
    found = gives_up_after(standing_by(0.1, never_right), never_right)
    assert found is not None and 5 <= found <= 11
    again = standing_by(0.1, never_right)
    gives_up_after(again, never_right)
    again.begin()
    assert not again.gives_up, "every run begins with hope"


def test_drafting_is_not_given_up_where_standing_by_is_cheap_or_drafts_pay() -> None:
    never_right = Drafter(accept=lambda step, position: 0.0, cost=20.0)
    assert gives_up_after(standing_by(0.015, never_right), never_right) is None
    always_right = Drafter(accept=lambda step, position: 1.0)
    assert gives_up_after(standing_by(0.1, always_right), always_right) is None
