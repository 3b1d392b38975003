import random
from dataclasses import replace

import pytest

from localspec.bench.analysis import analyse, winners
from localspec.records import Counts, Step, count


@pytest.fixture
def prompts(made):
    return [made.prompt(str(i), "chat" if i < 4 else "code") for i in range(8)]


def measure(made, prompts, speeds, phase="main", run=0, seed=0):
    """Rows of every candidate at its speed, with a little noise."""
    rng = random.Random(seed)
    return [
        made.row(who, p, made.generation(tps=tps * (1 + rng.gauss(0, 0.01))), phase=phase, run=run)
        for p in prompts
        for who, tps in speeds.items()
    ]


@pytest.fixture
def base(made):
    return made.candidate()


@pytest.fixture
def fast(made):
    return made.candidate("ngram", 8)


@pytest.fixture
def slow(made):
    return made.candidate("small", 3)


def test_figures_are_sums_over_sums_not_means_of_rates(made, base):
    ps = [made.prompt("a"), made.prompt("b")]
    rows = [
        made.row(base, ps[0], made.generation(range(11), tps=10.0, ttft=0.1)),  # 10 tokens, 1 s
        made.row(base, ps[1], made.generation(range(31), tps=30.0, ttft=0.3)),  # 30 tokens, 1 s
    ]
    figures = analyse(made.plan([base], ps), rows)[base.key].figures
    assert figures.decode_tps == pytest.approx(20.0)
    assert figures.ttft_ms == pytest.approx(200.0)
    assert figures.prefill_tps == pytest.approx(20 / 0.4)
    assert figures.counts.accept_length == 1.0
    assert sum(figures.share.values()) == pytest.approx(1.0)
    assert figures.share["overhead"] == pytest.approx(0.1)
    assert figures.overhead_us_per_step == pytest.approx(0.1 * 2 / 40 * 1e6)


def test_rates_come_from_summed_counts(made, base, fast):
    counts = [
        Counts(4, 2, 4, 6, 8, 2, 8, (1, 1), (2, 1)),
        Counts(6, 3, 6, 9, 3, 3, 3, (3,), (3,)),
    ]
    p = made.prompt("a")
    rows = [
        made.row(fast, p, made.generation(range(7 + i), counts=c), run=i)
        for i, c in enumerate(counts)
    ]
    found = analyse(made.plan([base, fast], [p]), rows)[fast.key].figures.counts
    assert found.acceptance_rate == pytest.approx(5 / 11)
    assert found.draft_coverage == pytest.approx(0.5)
    assert found.reach_rate == pytest.approx([4 / 5, 1 / 5])
    assert found.conditional_rate == pytest.approx([4 / 5, 1.0])


def test_nothing_measured_is_absent(made, base, fast):
    table = analyse(made.plan([base, fast], [made.prompt("a")]), [])
    for m in table.values():
        f = m.figures
        assert (f.decode_tps, f.ttft_ms, f.prefill_tps, f.share, f.overhead_us_per_step) == (
            None,
        ) * 5
        assert m.decode.speedup is None
        assert m.verdict is None


def test_faster_slower_and_the_winner(made, prompts, base, fast, slow):
    plan = made.plan([base, fast, slow], prompts)
    table = analyse(plan, measure(made, prompts, {base: 100, fast: 120, slow: 80}))
    assert table[fast.key].verdict == "faster"
    assert table[fast.key].decode.speedup == pytest.approx(1.2, rel=0.02)
    assert table[slow.key].verdict == "slower"
    assert table[base.key].verdict is None
    assert [m.candidate for m in winners(table)] == [fast]
    parts = table[fast.key].by_workload
    assert set(parts) == {"chat", "code"}
    assert parts["chat"].figures.runs == 4
    assert parts["chat"].decode.pairs == 4


def test_equal_candidates_have_no_winner(made, prompts, base, fast):
    table = analyse(made.plan([base, fast], prompts), measure(made, prompts, {base: 99, fast: 99}))
    assert table[fast.key].verdict == "no difference shown"
    assert winners(table) == []


def test_a_speedup_is_against_the_baseline_of_the_same_temperature(made, prompts):
    cold, warm = made.candidate(), made.candidate(temperature=1.0)
    cold_n, warm_n = made.candidate("ngram", 8), made.candidate("ngram", 8, temperature=1.0)
    plan = made.plan([cold, cold_n, warm, warm_n], prompts)
    rows = measure(made, prompts, {cold: 100, cold_n: 200, warm: 50, warm_n: 75})
    table = analyse(plan, rows)
    assert table[warm_n.key].decode.speedup == pytest.approx(1.5, rel=0.02)
    assert {m.candidate for m in winners(table)} == {cold_n, warm_n}


def test_a_winner_measured_again_is_judged_by_the_new_runs_only(made, prompts, base, fast, slow):
    plan = made.plan([base, fast, slow], prompts)
    rows = measure(made, prompts, {base: 100, fast: 130, slow: 90})
    rows += measure(made, prompts, {base: 100, fast: 100}, phase="confirm", run=1, seed=3)
    m = analyse(plan, rows)[fast.key]
    assert m.chosen.speedup == pytest.approx(1.3, rel=0.02)
    assert m.decode.speedup == pytest.approx(1.0, rel=0.02)
    assert m.verdict == "no difference shown"
    assert m.figures.runs == 8  # the candidate's other figures stay comparable with the others'


def test_end_to_end_counts_the_time_to_the_first_token(made, prompts, base, fast):
    rows = []
    for p in prompts:
        rows.append(made.row(base, p, made.generation(range(65), tps=64.0, ttft=1.0)))
        rows.append(made.row(fast, p, made.generation(range(65), tps=128.0, ttft=1.0)))
    m = analyse(made.plan([base, fast], prompts), rows)[fast.key]
    assert m.decode.speedup == pytest.approx(2.0)
    assert m.end_to_end.speedup == pytest.approx(2.0 / 1.5)


def test_steps_of_several_sources_are_counted_apart(made, base):
    def step(tokens, drafted, accepted, source):
        return Step(tokens, drafted, accepted, drafted, 1, 0.0, 0.1, 0.0, 0.0, 0.1, source=source)

    steps = (
        step(3, 4, 2, 0), step(2, 2, 1, 1), step(1, 0, 0, 0), step(3, 2, 2, 1), step(5, 4, 4, 0),
    )  # fmt: skip
    pair = made.candidate("small", 4)
    pair = replace(pair, drafter=replace(pair.drafter, method="ngram+draft-model"))
    one = replace(made.generation(counts=count(steps)), steps=steps)
    p = made.prompt("a")
    table = analyse(made.plan([base, pair], [p]), [made.row(pair, p, one), made.row(pair, p, one)])
    parts = table[pair.key].figures.by_source
    assert {name: (c.steps, c.drafted, c.accepted) for name, c in parts.items()} == {
        "ngram": (4, 16, 12),
        "draft-model": (4, 8, 6),
    }
    assert parts["ngram"].accept_length_drafted == 4.0
    assert table[pair.key].figures.counts.lengths == (2, 0, 4, 0, 4)
    assert table[base.key].figures.by_source == {}
