"""How a tuning spends its budget, on a simulated machine."""

from collections import Counter
from dataclasses import asdict, replace
from io import StringIO

import made_runs
import pytest
from rich.console import Console
from simulated_tuning import Machine, prompts

from localspec.bench import report as reports
from localspec.bench.analysis import analyse
from localspec.bench.audit import Audit, Divergence
from localspec.bench.comparison import compare_results
from localspec.bench.table import notes
from localspec.records import BenchOptions
from localspec.tune.command import Tuned, comparison
from localspec.tune.course import CHOOSING, adjusted, confirming, split
from localspec.tune.display import round_over
from localspec.tune.outcome import leave_out, needed, outcome
from localspec.tune.report import _table, record, render

FINE = Audit(identical=True, compared=4)
WRONG = Audit(identical=False, compared=4, divergences=(Divergence("w", "p", 0, 3, "MISMATCH"),))
UNSURE = Audit(identical=False, compared=4, divergences=(Divergence("w", "p", 0, 3, None),))


def three_is_best(candidate, _prompt):
    """Drafts of 3 of the draft model, which tuning does not start with; the rest gains little."""
    drafter = candidate.drafter
    if drafter.method == "draft-model" and not drafter.auto and not drafter.tree:
        return {1: 1.1, 2: 1.2, 3: 1.4, 4: 1.25}.get(drafter.n_max, 0.9)
    return 0.95


def all_slow(candidate, _prompt):
    return 0.6 if candidate.drafter.method == "ngram" else 0.8


def decided(machine, **how):
    measurement = machine.run(**how)
    return outcome(machine.tuning, measurement, FINE)


def test_a_clear_winner_is_found_beside_where_it_started_and_told_from_held_out_prompts():
    machine = Machine(three_is_best, noise=0.03)
    found = decided(machine)
    assert found.decision == "faster"
    assert found.candidate.key.startswith("draft-model n=3")
    assert "draft-model n=3" not in {c.key for c in machine.space.first()}
    low, high = found.measured.decode.interval
    assert 1.3 < low < 1.4 < high < 1.5
    assert found.measured.figures.runs == len(confirming(machine.measurement.rows)) / 2
    assert found.minutes is None


def test_a_round_counts_its_prompts_and_how_often_they_were_run():
    machine = Machine(three_is_best, noise=0.03, where=prompts(8))
    decided(machine)
    rounds, choosing = machine.tuning.rounds, machine.tuning.prompts.choosing
    assert len(choosing) == 4
    assert all(r.prompts == min(4, r.runs) for r in rounds)
    main = Counter(r.slot.candidate for r in machine.measurement.rows if r.slot.phase == "main")
    leader = rounds[0].standings[0].candidate
    assert (
        sum(r.runs for r in rounds if leader in {s.candidate for s in r.standings})
        == (main[leader])
    )
    longest = max(rounds, key=lambda r: r.runs)
    assert longest.runs > 4
    said = round_over(2, longest)
    assert f"candidates, {longest.runs} runs each over 4 prompts: " in said


def test_a_round_that_is_cut_short_tells_how_far_it_came():
    """Before all have run once, the time for choosing is over."""
    slow = Machine(lambda c, _: 0.05 if c.drafter.method == "ngram" else 1.2, budget=60)
    slow.run()
    first = slow.tuning.rounds[0]
    assert (first.prompts, first.runs, first.fewest) == (1, 1, 0)
    assert " candidates, up to 1 run each over 1 prompt: " in round_over(1, first)


def test_disturbed_runs_are_left_out_with_the_run_beside_them_and_kept_as_such():
    machine = Machine(three_is_best, noise=0.03, where=prompts(10))
    made = machine.run()
    pair = next(r for r in confirming(made.rows)[::-1] if not r.slot.candidate.is_baseline)
    lost = pair.slot.prompt
    told = [
        r.flagged("disturbed") if r.slot.prompt == lost and not r.slot.candidate.is_baseline else r
        for r in made.rows
    ]
    made = replace(made, rows=leave_out(told))
    beside = [r for r in confirming(made.rows) if r.slot.prompt == lost]
    runs, out = len(confirming(made.rows)), len(beside)
    assert all("left-out" in r.flags and not r.in_pairs for r in beside)
    assert sum("left-out" in r.flags for r in made.rows) == out
    found = outcome(machine.tuning, made, FINE)
    assert found.measured.figures.runs == found.baseline.figures.runs == (runs - out) / 2
    asked = {"temperatures": [0.0], "threads": 1}
    report = made_runs.reported([], [machine.space.baseline], [], asked=asked)
    report = replace(report, measurement=made, table=analyse(made.plan, made.rows))
    tuned = Tuned(machine.tuning, report, found, seconds=1.0, loading=0.0)
    kept, result = reports.result(comparison(tuned)), record(tuned, None, None, None)
    plain, best = kept["candidates"]
    for figure in ("runs", "pairs", "speedup", "speedup_ci", "decode_tps"):
        assert best[figure] == result["winner"][figure]
    assert plain["runs"] == best["runs"]
    assert plain["decode_tps"] == result["baseline_tps"]
    assert len(kept["rows"]) == runs
    note = f"left-out: {out} of {runs} runs were disturbed or stand beside one that was"
    assert any(line.startswith(note) for line in notes(kept))
    console = Console(width=300, record=True, file=StringIO())
    console.print(render(result | {"options": asdict(BenchOptions("demo"))}, console))
    said = console.export_text()
    assert "on 5 of 6 prompts that had no part in choosing it" in said
    assert f"load came into {out // 2} of the {runs} runs compared; {out}, with those" in said
    compared = compare_results(kept, kept).changes[1]
    assert compared.tps.prompts == 5, "what is left out is not compared with another result either"


def test_where_hardly_any_run_was_undisturbed_all_of_them_count():
    machine = Machine(three_is_best, where=prompts(10))
    rows = [r.flagged("disturbed") for r in machine.run().rows]
    assert leave_out(rows) == rows


def test_where_nothing_beats_the_baseline_it_is_the_baseline_that_wins():
    found = decided(Machine(all_slow, noise=0.03))
    assert found.decision == "baseline"
    assert "slower" in found.why
    assert found.measured.decode.interval[1] < 1


def test_nothing_is_said_for_the_baseline_while_candidates_are_untried():
    """The one that would be faster is not among those that there is time for."""

    def last_is_best(candidate, _):
        return 1.5 if candidate.drafter.method == "ngram" and candidate.drafter.auto else 0.8

    short = Machine(last_is_best, tps=30, budget=60, noise=0.01)
    found = decided(short)
    assert short.tuning.untried
    assert found.decision == "undecided"
    assert "not tried" in found.why
    enough = Machine(last_is_best, tps=30, budget=60 * found.minutes, noise=0.01)
    assert decided(enough).decision == "faster"


def test_noise_is_no_decision_and_the_minutes_are_what_the_spread_asks_for():
    outcomes = []
    for seed in range(5):
        machine = Machine(lambda *_: 1.03, noise=0.4)
        machine.rng.seed(seed)
        outcomes.append(decided(machine))
    undecided = [o for o in outcomes if o.decision == "undecided"]
    assert len(undecided) >= 4
    assert all(o.minutes > 3 for o in undecided)


def test_more_is_needed_the_more_prompts_differ_and_the_nearer_the_two_are():
    def prompts(mean, spread):
        found = needed([[mean - spread], [mean], [mean + spread]], 3)
        return found.prompts or 3

    assert prompts(0.5, 0.01) == 3
    assert prompts(0.1, 0.1) < prompts(0.1, 0.2) < prompts(0.05, 0.2) < prompts(0.01, 0.2)
    assert prompts(0.005, 0.1) > prompts(-0.1, 0.1)  # clearly slower is a decision too


def test_runs_that_differ_need_more_runs_and_prompts_that_differ_more_prompts():
    noisy_runs = needed([[-0.2, 0.3], [-0.25, 0.35], [0.25, -0.15]], 8)
    assert noisy_runs.prompts is None
    assert noisy_runs.pairs > 8
    unlike = needed([[-0.2, -0.21], [0.3, 0.29], [0.05, 0.06]], 8)
    assert unlike.prompts > 8
    one = needed([[0.1, -0.1, 0.2, 0.0]], 1)
    assert one.prompts is None
    assert one.pairs > 4


def test_no_advantage_of_any_size_is_the_baseline_too():
    found = decided(Machine(lambda *_: 1.0, noise=0.003))
    assert found.decision == "baseline"
    assert "no more than" in found.why


def test_a_drafter_that_never_drafts_is_the_baseline_whatever_the_clock_says():
    """As adaptive lengths do where drafts do not pay."""
    for speed in (1.0, 1.06):
        found = decided(Machine(lambda *_, s=speed: s, noise=0.1, accept_length=1))
        assert found.decision == "baseline"
        assert "accept length 1.00" in found.why


def test_the_luckiest_of_many_equals_is_not_called_faster():
    """Each run's speed is luck: what led when it was chosen is measured anew."""
    leading, verdicts = [], []
    for seed in range(8):
        machine = Machine(lambda *_: 0.98, noise=0.1, budget=60)
        machine.rng.seed(seed)
        verdicts.append(decided(machine).decision)
        leading.append(machine.tuning.rounds[-1].standings[0].speedup)
    assert sum(s > 1 for s in leading) > 4
    assert verdicts.count("faster") <= 1


@pytest.mark.parametrize("verdict", [WRONG, UNSURE, Audit()])
def test_what_does_not_pass_the_audit_is_never_picked(verdict):
    def audit(candidate):
        return verdict if candidate.drafter.name == "draft-model" else FINE

    machine = Machine(three_is_best, noise=0.01, wrong=audit)
    found = decided(machine)
    assert machine.tuning.struck
    assert {s.candidate.drafter.name for s in machine.tuning.struck} == {"draft-model"}
    assert found.decision != "faster"
    if machine.tuning.winner is not None:
        assert machine.tuning.winner.drafter.name != "draft-model"
    compared = {r.slot.candidate.drafter.name for r in confirming(machine.measurement.rows)}
    assert "draft-model" not in compared


def test_the_runner_up_takes_the_place_of_a_leader_that_fails():
    def audit(candidate):
        return WRONG if candidate.drafter.n_max == 3 else FINE

    machine = Machine(three_is_best, noise=0.01, wrong=audit)
    found = decided(machine)
    assert found.decision == "faster"
    assert found.candidate.drafter.n_max in (2, 4)
    assert machine.audited[0].drafter.n_max == 3
    assert machine.tuning.struck[0].candidate == machine.audited[0]


def test_a_winner_whose_last_runs_fail_the_audit_is_not_picked():
    machine = Machine(three_is_best, noise=0.01)
    measurement = machine.run()
    for verdict, said in ((WRONG, "must not be used"), (UNSURE, "could not be made sure")):
        found = outcome(machine.tuning, measurement, verdict)
        assert found.decision == "undecided"
        assert said in found.why
        assert found.minutes is None  # more time does not mend it


@pytest.mark.parametrize("count", [3, 4, 5, 7, 17])
def test_the_prompts_that_judge_had_no_part_in_choosing(count):
    machine = Machine(three_is_best, noise=0.01, where=prompts(count))
    decided(machine)
    rows = machine.measurement.rows
    chose = {(r.slot.prompt, r.slot.run) for r in rows if r.slot.phase == "main"}
    judged = {(r.slot.prompt, r.slot.run) for r in confirming(rows)}
    assert chose
    assert judged
    assert not chose & judged
    apart = machine.tuning.prompts.apart
    assert apart == (count > 3)
    if apart:
        assert not {p for p, _ in chose} & {p for p, _ in judged}
        assert len({p for p, _ in judged}) >= 3


def test_both_halves_have_every_workload_and_another_seed_splits_otherwise():
    where = prompts(16)
    one, other = split(where, 1), split(where, 2)
    for half in (one.choosing, one.held_out):
        assert {p.prompt.workload for p in half} == {"chat", "code"}
    assert set(one.choosing) | set(one.held_out) == set(where)
    assert set(one.choosing) != set(other.choosing)
    assert split(where, 1) == one


def test_one_prompt_is_judged_by_other_runs_of_it():
    machine = Machine(three_is_best, noise=0.02, where=prompts(1, ("prompt",)))
    found = decided(machine)
    assert not machine.tuning.prompts.apart
    assert found.decision == "faster"
    assert found.measured.decode.method == "t over runs, this prompt only"


@pytest.mark.parametrize("minutes", [0.5, 1, 3, 10])
@pytest.mark.parametrize("tps", [20, 100])
def test_the_budget_is_kept(minutes, tps):
    machine = Machine(three_is_best, noise=0.1, tps=tps, budget=60 * minutes)
    found = decided(machine)
    if machine.tuning.too_short is None:
        assert machine.tuning.chosen_after <= (CHOOSING + 0.2) * 60 * minutes
    assert machine.now <= 1.2 * 60 * minutes
    assert machine.now >= 0.5 * 60 * minutes or machine.tuning.too_short or found.decision


def test_slow_candidates_start_fewer_and_those_dropped_give_their_memory_back():
    quick, slow = Machine(three_is_best, tps=200), Machine(three_is_best, tps=15)
    for machine in (quick, slow):
        machine.run()
    starters = [len(m.tuning.rounds[0].standings) for m in (quick, slow)]
    assert starters[0] > starters[1] >= 1
    kept = {s.candidate for r in quick.tuning.rounds for s in r.standings if not s.kept}
    assert set(quick.dropped) == kept
    assert quick.tuning.winner not in quick.dropped


def test_a_baseline_that_is_lost_ends_it_at_once():
    machine = Machine(three_is_best)
    batches = machine.tuning.batches(lambda: machine.measurement)
    asked = 0
    for _ in batches:  # and nothing is run
        machine.now += 1e-4
        asked += 1
    assert asked < 10
    assert machine.tuning.winner is None


def test_a_budget_too_small_guesses_nothing_and_says_what_is_needed():
    machine = Machine(three_is_best, tps=5, budget=30)
    found = decided(machine)
    assert found.decision == "undecided"
    assert machine.tuning.rounds == []
    assert machine.now < 30
    enough = Machine(three_is_best, tps=5, budget=found.minutes * 60)
    assert decided(enough).measured is not None


def test_where_no_time_was_left_to_compare_the_budget_that_might_do_is_said():
    """A machine that stood still for a while: the whole budget is gone when a winner is chosen."""
    machine = Machine(three_is_best, noise=0.02)
    whole = machine.run()
    chosen = [r for r in whole.rows if r not in confirming(whole.rows)]
    found = outcome(machine.tuning, replace(whole, rows=chosen), None)
    assert found.decision == "undecided"
    assert "Only 0 comparisons" in found.why
    assert found.minutes == pytest.approx(2 * machine.tuning.budget / 60)


def test_ctrl_c_while_choosing_decides_nothing_and_while_comparing_keeps_what_is_shown():
    found = decided(Machine(three_is_best, noise=0.02), stop_after=30)
    assert found.decision == "undecided"
    assert "Stopped" in found.why
    late = Machine(three_is_best, noise=0.05)
    found = decided(late, stop_after=0.7 * 180)
    assert late.measurement.interrupted
    assert found.decision == "faster"


def test_drafters_that_cannot_run_are_passed_over_and_without_any_it_says_why():
    machine = Machine(three_is_best, noise=0.02, refused=lambda c: c.drafter.name == "eagle3")
    assert decided(machine).decision == "faster"
    none = Machine(three_is_best, refused=lambda c: not c.is_baseline)
    found = decided(none)
    assert found.decision == "undecided"
    assert "It does not fit" in found.why


def test_late_comers_are_not_judged_by_easier_prompts():
    """Two ran on prompts where everything is fast, one more only on the slow one."""
    early = {"easy": 0.5, "hard": 0.1}
    found = adjusted({"a": early, "b": {p: r - 0.05 for p, r in early.items()}, "c": {"hard": 0.2}})
    assert found["c"] > found["a"] > found["b"]
    assert found["a"] == pytest.approx(0.3)
    assert found["c"] == pytest.approx(0.4, abs=1e-6)


def test_a_run_that_was_disturbed_does_not_drop_a_candidate():
    from localspec.tune.course import _rank

    base, good, bad = (made_runs.candidate(n, k) for n, k in (("none", 0), ("a", 2), ("b", 2)))
    where = prompts(2)
    plan = made_runs.plan([base, good, bad], where)
    speeds = {base: (100, 100), good: (10, 130), bad: (90, 90)}
    rows = [
        made_runs.row(c, p, made_runs.generation(tps=tps), flags={"disturbed"} if tps == 10 else ())
        for c, both in speeds.items()
        for p, tps in zip(where, both, strict=True)
    ]
    first, second = _rank(plan, rows, [bad, good])
    assert (first.candidate, first.pairs) == (good, 1)
    assert second.speedup == pytest.approx(0.9)


def test_the_key_of_a_candidate_is_no_markup():
    key = r"[/INST] [red]d \[ n=3"
    candidate = {"key": key, "speedup": 1.2, "pairs": 4, "accept_length": 2.5}
    console = Console(width=200, record=True, file=StringIO())
    console.print(_table({"rounds": [{"candidates": [candidate]}]}))
    assert key in console.export_text()
