"""Predictions from costs and counts, on numbers that can be worked out by hand."""

from dataclasses import replace

import pytest

from localspec.bench.analysis import analyse
from localspec.bench.cost_model import _carried_on, cost_models, depths_of, model
from localspec.bench.table import cost_notes
from localspec.errors import EngineDied, EngineFailed
from localspec.records import Counts, DepthCosts, Times

VERIFY = tuple(0.010 + 0.002 * n for n in range(17))
DRAFT = tuple(0.001 * n for n in range(17))
DEEP = tuple(0.020 + 0.008 * n for n in range(17))
COSTS = (DepthCosts(10, VERIFY, DRAFT), DepthCosts(110, DEEP, DRAFT))


def counts(reached, lengths, steps=100):
    """Of ``steps`` steps, ``lengths[i]`` drafted i tokens; of ``reached[i]`` the first i + 1 were
    accepted."""
    decoded = steps + sum(reached)
    longer = [sum(lengths[i:]) for i in range(1, len(lengths))]
    offered = [longer[0], *(min(r, n) for r, n in zip(reached, longer[1:], strict=False))]
    return Counts(
        steps, steps - lengths[0], steps, decoded, sum(i * n for i, n in enumerate(lengths)),
        sum(reached), 0, tuple(reached), tuple(offered), lengths=tuple(lengths),
    )  # fmt: skip


@pytest.fixture
def measured(made):
    """The figures of a baseline and of drafters, each as (n_max, counts)."""

    def run(*drafters, name="small"):
        base, p = made.candidate(), made.prompt("p", tokens=10)
        plain = made.generation(range(100), tps=1 / 0.011)
        plain = replace(plain, times=Times(decode=99 * 0.011, step=99 * 0.011, verify=99 * 0.010))
        rows, who = [made.row(base, p, plain)], [base]
        for n, found in drafters:
            who.append(made.candidate(name, n))
            run = made.generation(range(100), counts=found, tps=50.0)
            rows.append(made.row(who[-1], p, run))
        plan = made.plan(who, [p])
        return plan, analyse(plan, rows)

    return run


def predicted(measured, *drafters, depth=10.0, **more):
    _, table = measured(*drafters, **more)
    base, *others = table.values()
    return model(others, base, COSTS, depth)


def test_the_baseline_is_a_pass_and_the_rest_of_a_step(measured):
    found = predicted(measured, (2, counts((60, 40), (0, 0, 100))))
    assert found.plain.tps == pytest.approx(1 / 0.011)
    assert found.plain.tps == pytest.approx(found.plain.measured_tps)
    assert found.plain.error is None, "it is the measure of the others"


def test_each_length_up_to_the_measured_one_is_by_its_counts(measured):
    found = predicted(measured, (2, counts((60, 40), (0, 0, 100))))
    one, two = found.of(1), found.of(2)
    assert (one.accept_length, two.accept_length) == (1.6, 2.0)
    assert one.step == pytest.approx(0.012 + 0.001 + 0.001)
    assert two.step == pytest.approx(0.014 + 0.002 + 0.001)
    assert two.tps == pytest.approx(2 / 0.017)
    assert (one.measured_tps, two.measured_tps) == (None, pytest.approx(200 / (99 / 50)))
    assert two.error == pytest.approx(two.tps / two.measured_tps - 1)


def test_beyond_it_acceptance_goes_on_like_the_last_position(measured):
    found = predicted(measured, (2, counts((60, 30), (0, 0, 100))))
    assert found.of(4).accept_length == pytest.approx(1 + 0.6 + 0.3 + 0.15 + 0.075)
    assert found.best.n == 1
    assert len(found.lengths) == 16


def test_steps_without_a_draft_cost_a_plain_pass_and_the_attempt(measured):
    """Half of the steps drafted nothing, the other half two tokens."""
    found = predicted(measured, (2, counts((40, 30), (50, 0, 50))))
    two = found.of(2)
    assert two.verify == pytest.approx(0.5 * 0.010 + 0.5 * 0.014)
    assert two.draft == pytest.approx(0.5 * 0.001 + 0.5 * 0.002)
    three = found.of(3)
    assert three.verify == pytest.approx(0.5 * 0.010 + 0.5 * 0.016), "no draft is no early end"


def test_drafts_that_end_early_go_on_ending_early():
    found = counts((60, 30), (0, 40, 60))
    reach, shares = _carried_on(found, 2, 4)
    assert reach == pytest.approx([0.6, 0.3, 0.15, 0.075])
    assert shares == pytest.approx([0, 0.4, 0.6 * 0.4, 0.36 * 0.4, 0.216])
    assert sum(shares) == pytest.approx(1)


def test_a_rate_that_was_hardly_seen_is_not_carried_on():
    """One of three drafts of the second position went on, of a hundred first ones sixty."""
    found = counts((3, 1), (0, 0, 100))
    reach, _ = _carried_on(found, 2, 3)
    assert reach == pytest.approx([0.03, 0.01, 0.01 * 0.03])


def test_costs_are_those_of_the_runs_depth(measured):
    """In the middle a pass takes 15 ms and 5 more for each token; 10 ms in the baseline's runs."""
    found = predicted(measured, (2, counts((60, 40), (0, 0, 100))), depth=60.0)
    assert found.level == pytest.approx(10 / 15)
    assert found.of(0).verify == pytest.approx(0.010)
    assert found.of(1).verify == pytest.approx(0.020 * 10 / 15)
    assert found.of(1).draft == pytest.approx(0.001 * 10 / 15)
    beyond = predicted(measured, (2, counts((60, 40), (0, 0, 100))), depth=500.0)
    assert beyond.of(1).verify == pytest.approx(0.028 / 2)


def test_a_machine_that_was_slower_when_costs_were_measured_changes_no_prediction(measured):
    _, table = measured((2, counts((60, 40), (0, 0, 100))))
    base, *others = table.values()
    slow = [
        DepthCosts(c.depth, tuple(3 * s for s in c.verify), tuple(3 * s for s in c.draft))
        for c in COSTS
    ]
    now, then = (model(others, base, costs, 10.0) for costs in (COSTS, slow))
    assert [p.tps for p in then.lengths] == pytest.approx([p.tps for p in now.lengths])
    assert then.needed_rate(then.of(2)) == pytest.approx(now.needed_rate(now.of(2)))
    assert "In the runs a pass took 0.33 times that" in " ".join(cost_notes(then.record()))
    assert "In the runs" not in " ".join(cost_notes(now.record()))


def test_where_lengths_disagree_about_a_position_each_is_by_its_own(measured):
    """The first token is accepted in 60 of 100 and in 10 of 100: no stable prefix."""
    short, long = counts((60,), (0, 100)), counts((10, 5, 2), (0, 0, 0, 100))
    found = predicted(measured, (1, short), (3, long))
    assert [p.n for p in found.lengths] == [1, 3]
    assert found.of(1).accept_length == 1.6
    alike = counts((55, 30, 15), (0, 0, 0, 100))
    assert predicted(measured, (1, short), (3, alike)).of(2).accept_length == pytest.approx(1.85)


def test_break_even(measured):
    found = predicted(measured, (2, counts((60, 40), (0, 0, 100))))
    two = found.of(2)
    assert found.needed(two) == pytest.approx(0.017 / 0.011)
    rate = found.needed_rate(two)
    assert 1 + rate + rate**2 == pytest.approx(0.017 / 0.011)
    slow = replace(found, costs=(DepthCosts(10, VERIFY, tuple(0.1 * n for n in range(17))),))
    assert slow.needed_rate(two) is None


def test_nothing_pays(measured):
    found = predicted(measured, (2, counts((5, 1), (0, 0, 100))))
    assert found.best.n == 0
    said = cost_notes(found.record())
    assert "no draft length is predicted to pay" in said[-1]
    assert "need an accept length of 1.27; they have 1.05" in said[-1]


# ---- what is measured -------------------------------------------------------------------------


class Clock:
    """An engine that knows what everything costs."""

    def __init__(self, trouble=None):
        self.engine, self.trouble = self, trouble
        self.opened, self.asked, self.restarts = [], [], 0

    def use(self, candidate):
        self.opened.append((candidate.session, candidate.drafter.n_max))

    def restart(self):
        self.restarts += 1

    def costs(self, session, depths):
        self.asked.append(depths)
        if self.trouble:
            raise self.trouble
        return COSTS


def test_a_drafter_is_measured_once_for_all_its_lengths(measured):
    lengths = [(n, counts((60,) * n, (*(0,) * n, 100))) for n in (2, 3)]
    clock = Clock()
    found, left_out = cost_models(*measured(*lengths), clock)
    assert [m.drafter for m in found] == ["small"]
    assert left_out == []
    assert clock.opened == [("costs of small", 16)]
    assert len(clock.asked) == 1


@pytest.mark.parametrize("trouble", [EngineFailed("no room", ""), EngineDied("signal SIGABRT", [])])
def test_a_drafter_that_cannot_be_measured_is_left_out_by_name(measured, trouble):
    clock = Clock(trouble)
    found, left_out = cost_models(*measured((2, counts((60, 40), (0, 0, 100)))), clock)
    assert found == []
    assert left_out[0].startswith("small: its costs were not measured: ")
    assert clock.restarts == isinstance(trouble, EngineDied)


def test_depths_are_those_of_the_runs(made):
    plan = made.plan([made.candidate()], [made.prompt("a", tokens=10), made.prompt("b", tokens=90)])
    assert depths_of(plan) == (10, 82, 154)
    short = replace(plan, max_tokens=4, prompts=plan.prompts[:1])
    assert depths_of(short) == (10,)
    full = replace(plan, max_tokens=1000)
    assert depths_of(full) == (10, 101, 256 - 64)
