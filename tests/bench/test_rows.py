import random

import pytest

from localspec.bench.rows import (
    flags_of,
    mark_disturbed,
    mark_faulty,
    pair_up,
    repeats_itself,
    speed_pairs,
)


def text(n, seed=1):
    rng = random.Random(seed)
    return [rng.randrange(2000) for _ in range(n)]


@pytest.mark.parametrize("period", [1, 2, 7, 24])
def test_a_loop_at_the_end_is_seen(period):
    assert repeats_itself(text(40) + text(period, 2) * 50)


def test_a_counter_inside_a_loop_does_not_hide_it():
    loop = [token for i in range(10) for token in (*text(15, 3), 5000 + i)]
    assert repeats_itself(text(20) + loop)


def test_ordinary_text_and_short_text_are_no_loops():
    assert not repeats_itself(text(300))
    assert not repeats_itself([1] * 47)
    # a word that is often there is not a loop
    assert not repeats_itself([t if i % 3 else 7 for i, t in enumerate(text(200))])


def test_flags_of_one_run(made):
    assert flags_of(made.generation(text(31))) == {"short"}
    assert flags_of(made.generation(text(32))) == set()
    assert flags_of(made.generation([])) == {"short"}
    assert flags_of(made.generation([3] * 60, stop="context")) == {"repeats", "context"}
    assert flags_of(made.generation(text(9), stop="cancelled")) == {"cancelled"}


def disturbed(made, conditions):
    rows = [
        made.row(made.candidate(), made.prompt("p"), made.generation(), other_load=load, clock=mhz)
        for load, mhz in conditions
    ]
    return ["disturbed" in r.flags for r in mark_disturbed(rows)]


def test_a_run_in_which_the_machine_stood_still_is_disturbed(made):
    """Whatever stopped it: the engine, held up or asleep, computed less than it does elsewhere."""
    cores = (2.0, 1.9, 0.3, 1.95, None, 1.5)
    rows = [
        made.row(made.candidate(), made.prompt("p"), made.generation(), own_cores=own)
        for own in cores
    ]
    marked = ["disturbed" in r.flags for r in mark_disturbed(rows)]
    assert marked == [False, False, True, False, False, False]


def test_a_run_unlike_the_others_is_disturbed(made):
    assert disturbed(made, [(0.02, 3000.0)] * 4 + [(0.30, 3000.0), (0.02, 2700.0)]) == [
        *[False] * 4,
        True,
        True,
    ]


def test_a_steady_load_disturbs_no_comparison(made):
    assert not any(disturbed(made, [(0.50, 3000.0), (0.52, 2950.0), (0.48, 3050.0)]))


def test_what_cannot_be_read_disturbs_nothing(made):
    assert not any(disturbed(made, [(None, None)] * 3))
    assert disturbed(made, [(None, 3000.0), (0.1, 3000.0), (None, 2000.0)]) == [False, False, True]


def test_a_greedy_repetition_with_other_tokens_is_faulty(made):
    base, p = made.candidate(), made.prompt("p")
    rows = [made.row(base, p, made.generation(t), run=i) for i, t in enumerate([text(9)] * 3)]
    assert not any(r.flags for r in mark_faulty(rows))
    rows[1] = made.row(base, p, made.generation(text(9, 2)), run=1)
    assert ["faulty" in r.flags for r in mark_faulty(rows)] == [False, True, False]


def test_sampled_and_cancelled_repetitions_may_differ(made):
    warm, p = made.candidate(temperature=0.8), made.prompt("p")
    rows = [made.row(warm, p, made.generation(text(9, i)), run=i) for i in range(2)]
    cut = made.row(made.candidate(), p, made.generation(text(5), stop="cancelled"), run=1)
    whole = made.row(made.candidate(), p, made.generation(text(9)))
    assert not any(r.flags for r in mark_faulty([*rows, whole, cut]))


def test_a_run_is_paired_with_the_baseline_of_its_own_block(made):
    base, fast, p = made.candidate(), made.candidate("ngram", 8), made.prompt("p")
    rows = [
        made.row(base, p, made.generation(tps=50.0), block=0),
        made.row(base, p, made.generation(tps=100.0), block=1),
        made.row(fast, p, made.generation(tps=200.0), block=1),
    ]
    ((_, partner),) = pair_up(rows, fast.key, base.key)
    assert partner.slot.block == 1


def test_replaced_runs_leave_their_place_to_the_repeat(made):
    base, fast, p = made.candidate(), made.candidate("ngram", 8), made.prompt("p")
    rows = [
        made.row(base, p, made.generation(tps=100.0)),
        made.row(fast, p, made.generation(tps=10.0), flags=["disturbed", "replaced"]),
        made.row(base, p, made.generation(tps=100.0), block=1, phase="repeat", flags=["pairing"]),
        made.row(fast, p, made.generation(tps=150.0), block=1, phase="repeat"),
    ]
    (pair,) = speed_pairs(pair_up(rows, fast.key, base.key))
    assert pair.log_ratio == pytest.approx(0.405465)  # log 1.5
    assert [r.counts_for_figures for r in rows] == [True, False, False, True]


def test_runs_without_a_speed_make_no_pair(made):
    base, fast, p = made.candidate(), made.candidate("ngram", 8), made.prompt("p")
    for tokens in ([], [1]):
        rows = [made.row(base, p, made.generation()), made.row(fast, p, made.generation(tokens))]
        assert speed_pairs(pair_up(rows, fast.key, base.key)) == []
    crashed = made.row(fast, p, None, flags=["crashed"])
    assert pair_up([rows[0], crashed], fast.key, base.key) == []
