import math
import random
from statistics import fmean

import pytest

from localspec.bench.statistics import Comparison, Pair, compare, holm, log_ratio, verdicts


def draw(
    rng: random.Random, sizes: dict[str, int], mean: float = 0.0, spread: float = 0.05
) -> list[Pair]:
    """One pair a prompt; workloads differ in their mean, as code and chat do."""
    return [
        Pair(workload, f"{workload}-{i}", mean + shift + rng.gauss(0, spread))
        for shift, (workload, n) in zip((0.1, -0.1, 0.0), sizes.items(), strict=False)
        for i in range(n)
    ]


def centre(sizes: dict[str, int]) -> float:
    return fmean(
        [s for s, n in zip((0.1, -0.1, 0.0), sizes.values(), strict=False) for _ in range(n)]
    )


@pytest.mark.parametrize("sizes", [{"chat": 8, "code": 9}, {"chat": 3, "code": 3}, {"chat": 5}])
def test_the_t_interval_covers_the_true_ratio_95_percent_of_the_time(sizes):
    rng = random.Random(7)
    truth = math.exp(0.03 + centre(sizes))
    runs = 1500
    covered = 0
    for _ in range(runs):
        low, high = compare(draw(rng, sizes, mean=0.03)).interval
        covered += low <= truth <= high
    # binomial sd at 1500 runs is 0.0056; Satterthwaite with strata of 3 is a little conservative
    assert 0.93 <= covered / runs <= 0.985


def test_the_bootstrap_interval_covers_too_and_is_used_from_20_prompts_on():
    rng = random.Random(3)
    sizes = {"chat": 10, "code": 12}
    truth = math.exp(centre(sizes))
    found = [compare(draw(rng, sizes), seed=i) for i in range(120)]
    assert {c.method for c in found} == {"BCa over prompts"}
    covered = sum(c.interval[0] <= truth <= c.interval[1] for c in found)
    assert 0.87 <= covered / 120 <= 0.99


def test_bootstrap_p_value_agrees_with_its_interval():
    rng = random.Random(5)
    for i in range(30):
        c = compare(draw(rng, {"chat": 11, "code": 11}, spread=0.3), seed=i)
        excluded = c.interval[0] > 1 or c.interval[1] < 1
        assert excluded == (c.p_value < 0.05)


def test_strata_remove_the_difference_between_workloads_from_the_interval():
    rng = random.Random(1)
    pairs = draw(rng, {"chat": 8, "code": 8}, spread=0.01)
    pooled = [Pair("all", p.prompt, p.log_ratio) for p in pairs]
    width = [c.interval[1] - c.interval[0] for c in (compare(pairs), compare(pooled))]
    assert width[0] < width[1] / 4
    assert compare(pairs).speedup == pytest.approx(compare(pooled).speedup)


def test_a_against_a_is_called_different_at_most_as_often_as_promised():
    rng = random.Random(11)
    sizes = {"chat": 8}
    tables = 400
    wrong = 0
    for _ in range(tables):
        table = {
            k: compare([Pair("w", str(i), rng.gauss(0, 0.05)) for i in range(sizes["chat"])])
            for k in "abcd"
        }
        wrong += any(v != "no difference shown" for v in verdicts(table).values())
    assert 0 < wrong / tables <= 0.08  # family-wise 0.05, sd 0.011


def test_runs_of_a_prompt_are_averaged_before_prompts_are_compared():
    rng = random.Random(2)
    once = [Pair("w", str(i), rng.gauss(0, 0.1)) for i in range(6)]
    tenfold = [p for p in once for _ in range(10)]
    assert compare(tenfold).interval == pytest.approx(compare(once).interval)
    assert compare(tenfold).pairs == 60


def test_one_prompt_is_compared_over_its_runs_and_says_so():
    c = compare([Pair("w", "p", x) for x in (0.10, 0.12, 0.08, 0.11)])
    assert c.method == "t over runs, this prompt only"
    assert c.interval[0] > 1.05
    # t(.975, 3) = 3.182446, mean .1025, s = .0170783
    half = 3.182446 * 0.0170783 / 2
    assert c.interval == pytest.approx((math.exp(0.1025 - half), math.exp(0.1025 + half)), rel=1e-5)


@pytest.mark.parametrize(
    "pairs",
    [
        [Pair("w", "p", 0.1)] * 2,
        [Pair("w", "p", 0.1), Pair("w", "q", 0.2)],
        [Pair("w", "p", 0.1), Pair("v", "q", 0.2)] * 5,
    ],
)
def test_fewer_than_three_pairs_give_a_ratio_but_no_interval_and_no_verdict(pairs):
    c = compare(pairs)
    assert c.speedup > 1
    assert c.interval is None
    assert verdicts({"x": c}) == {"x": None}


def test_no_pairs_give_nothing():
    assert compare([]) == Comparison()
    assert log_ratio(None, 3.0) is None
    assert log_ratio(3.0, 0.0) is None


@pytest.mark.parametrize("sizes", [(2, 1), (2, 2), (4, 1), (1, 1, 1), (3, 2, 1)])
def test_small_workloads_are_pooled_not_dropped(sizes):
    ratios = [
        Pair(f"w{w}", str(i), 0.1 * w + 0.03 * i) for w, n in enumerate(sizes) for i in range(n)
    ]
    c = compare(ratios)
    assert c.prompts == sum(sizes)
    assert c.speedup == pytest.approx(math.exp(fmean(p.log_ratio for p in ratios)))
    assert c.interval[0] < c.speedup < c.interval[1]


def test_two_workloads_of_two_prompts_give_a_usable_interval():
    pairs = [Pair("a", "1", 0.1), Pair("a", "2", 0.12), Pair("b", "3", 0.09), Pair("b", "4", 0.11)]
    # t(.975, 3) = 3.182446; s of the four = .0129099
    half = 3.182446 * 0.0129099 / 2
    expected = (math.exp(0.105 - half), math.exp(0.105 + half))
    assert compare(pairs).interval == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("n", [5, 25])
def test_data_without_spread_give_a_point_not_nan(n):
    same = compare([Pair("w", str(i), 0.0) for i in range(n)])
    assert same.interval == (1.0, 1.0)
    assert verdicts({"x": same}) == {"x": "no difference shown"}
    off = compare([Pair("w", str(i), 0.1) for i in range(n)])
    assert verdicts({"x": off}) == {"x": "faster"}


def test_holm_on_a_worked_example():
    # 0.01*4, then max with 0.013*3, 0.014*2, 0.19*1
    assert holm([0.01, 0.013, 0.014, 0.19]) == pytest.approx([0.04, 0.04, 0.04, 0.19])
    assert holm([0.03, 0.01]) == pytest.approx([0.03, 0.02])
    assert holm([]) == []


def test_holm_can_take_a_verdict_away():
    clear = Comparison(1.2, (1.1, 1.3), 0.03, "t over prompts", 8, 8)
    assert verdicts({"a": clear}) == {"a": "faster"}
    assert verdicts({"a": clear, "b": clear}) == dict.fromkeys("ab", "no difference shown")
    slow = Comparison(0.8, (0.7, 0.9), 0.001, "t over prompts", 8, 8)
    assert verdicts({"a": slow, "b": Comparison(1.1)}) == {"a": "slower", "b": None}
