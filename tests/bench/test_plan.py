from collections import Counter
from dataclasses import replace

import pytest

from localspec.bench.plan import (
    context_size,
    fit_prompts,
    in_blocks,
    interleaved,
    make_candidates,
    repeats,
    spread,
)
from localspec.catalog import P_MIN, DrafterSpec
from localspec.errors import UsageError

NGRAM = DrafterSpec("ngram", "ngram")
NONE = DrafterSpec("none", "none")


@pytest.fixture
def draft(tmp_path):
    file = tmp_path / "draft.gguf"
    file.write_bytes(b"x" * 1000)
    return DrafterSpec("small", "draft-model", file, n_max=2)


def names(candidates):
    return [(c.drafter.name, c.drafter.n_max, c.temperature) for c in candidates]


def test_the_baseline_is_always_in_and_only_once(draft):
    found = names(make_candidates([NONE, draft, NONE], n_max=(3,)))
    assert found == [("none", 0, 0.0), ("small", 3, 0.0)]


def test_a_draft_model_is_swept_and_ngram_is_not(draft):
    found = names(make_candidates([draft, NGRAM]))
    assert [n for name, n, _ in found if name == "small"] == [3, 5, 8]
    assert [n for name, n, _ in found if name == "ngram"] == [8]


def test_a_sweep_stays_within_what_a_drafter_can_draft():
    heads = DrafterSpec("mtp", "mtp", limit=4)
    assert [c.drafter.n_max for c in make_candidates([heads])] == [0, 3, 4]


def test_quick_takes_the_recommended_length_only(draft):
    assert names(make_candidates([draft, NGRAM], quick=True))[1:] == [
        ("small", 2, 0.0),
        ("ngram", 8, 0.0),
    ]


def test_lengths_asked_for_hold_for_every_drafter(draft):
    found = names(make_candidates([draft, NGRAM], n_max=(4, 4, 1)))
    assert Counter(n for _, n, _ in found) == {0: 1, 4: 2, 1: 2}
    with pytest.raises(UsageError):
        make_candidates([NGRAM], n_max=(0,))


def test_trees_come_beside_the_chains_of_the_drafters_that_propose_them(draft):
    found = make_candidates([draft, NGRAM], n_max=(2, 5), trees=(8, 16))
    shown = [(c.drafter.name, c.drafter.n_max, c.drafter.tree) for c in found[1:]]
    assert shown == [
        (draft.name, 2, 0),
        (f"{draft.name} p_min=0", 5, 0),
        (f"{draft.name} tree=8", 5, 8),
        (f"{draft.name} tree=16", 5, 16),
        ("ngram", 2, 0),
        ("ngram", 5, 0),
    ]
    assert len({c.session for c in found}) == len(found)
    adaptive = make_candidates([draft], n_max=("auto", 3), trees=(8, "auto"))
    assert [(c.session, c.drafter.auto) for c in adaptive[1:]] == [
        ("small n=auto", True),
        ("small p_min=0 n=3", False),
        ("small tree=8 n=3", False),
        ("small tree=auto n=3", True),
    ]
    with pytest.raises(UsageError, match="None of these drafters proposes trees"):
        make_candidates([NGRAM], trees=(8,))


def test_a_tree_stands_beside_the_chain_that_is_as_deep_however_short_the_sweep(draft):
    other = replace(draft, name="other")
    found = make_candidates([draft, other, NGRAM], trees=(16,), quick=True)
    depths = {c.drafter.name: c.drafter.n_max for c in found if c.drafter.tree}
    assert depths == {"small tree=16": 8, "other tree=16": 8}
    chains = {(c.drafter.name, c.drafter.n_max) for c in found if not c.drafter.tree}
    assert {("small p_min=0", 8), ("other p_min=0", 8)} <= chains


def test_a_tree_has_no_p_min_and_the_chain_as_deep_is_made_without_one(draft):
    def drafted(**how):
        found = make_candidates([draft, NGRAM], n_max=(2, 5), trees=(8, "auto"), **how)
        return {c.session: c.drafter.p_min for c in found if c.drafter.method == "draft-model"}

    trees = {"small tree=8 n=5": 0, "small tree=auto n=5": 0}
    assert drafted() == {"small n=2": P_MIN, "small p_min=0 n=5": 0, **trees}
    for asked in (0.0, P_MIN, 0.9):
        assert drafted(p_min=asked) == {"small n=2": asked, "small n=5": asked, **trees}
    sampled = make_candidates([draft], n_max=(5,), trees=(8,), sampled=True)
    assert [c.drafter.sampled for c in sampled[1:]] == [True, False]


def test_several_computed_drafters_are_measured_at_one_length_each(draft):
    other = replace(draft, name="other", n_max=6)
    found = make_candidates([draft, other, NGRAM])
    assert [n for _, n, _ in names(found)] == [0, draft.settings().n_max, 6, 8]


def test_each_temperature_has_its_own_baseline_and_shares_the_context():
    found = make_candidates([NGRAM], temperatures=(0.0, 0.8, 0.8))
    assert names(found) == [
        ("none", 0, 0.0),
        ("ngram", 8, 0.0),
        ("none", 0, 0.8),
        ("ngram", 8, 0.8),
    ]
    assert len({c.key for c in found}) == 4
    assert len({c.session for c in found}) == 2


def test_two_drafters_of_one_name_stay_apart(draft, tmp_path):
    twin = DrafterSpec("small", "draft-model", tmp_path / "b" / "small.gguf")
    found = make_candidates([draft, twin], n_max=(3,))
    assert len({c.session for c in found}) == 3


def test_drafters_with_probabilities_stop_early_unless_told_otherwise(draft):
    assert make_candidates([draft, NGRAM], n_max=(3,))[1].drafter.p_min > 0
    assert make_candidates([draft, NGRAM], n_max=(3,))[2].drafter.p_min == 0
    assert make_candidates([draft], n_max=(3,), p_min=0.0)[1].drafter.p_min == 0


def test_the_context_is_the_smallest_multiple_that_fits():
    assert context_size([20, 180], 64, 8) == 256
    assert context_size([20, 183], 64, 8) == 256
    assert context_size([20, 184], 64, 8) == 512


def test_a_prompt_that_leaves_no_room_is_skipped_with_its_numbers(made):
    short, long = made.prompt("a", tokens=247), made.prompt("b", tokens=248)
    fits, skipped = fit_prompts([short, long], 256, 8)
    assert fits == (short,)
    assert skipped[0].reason == "skipped: too long (248 tokens + 9 > context 256)"


def test_a_smaller_choice_of_prompts_is_spread(made):
    prompts = [made.prompt(f"a{i}", "a") for i in range(5)]
    prompts += [made.prompt(f"b{i}", "b") for i in range(2)]
    ids = [p.prompt.id for p in spread(prompts, 99)]
    assert ids == ["a0", "b0", "a1", "b1", "a2", "a3", "a4"]
    assert [p.prompt.id for p in spread(prompts, 3)] == ids[:3]


@pytest.fixture
def table(made):
    candidates = [made.candidate(), made.candidate("ngram", 8), made.candidate("small", 3)]
    return made.plan(candidates, [made.prompt(str(i)) for i in range(6)], runs=2)


def test_interleaving_runs_everything_once_prompt_by_prompt(table):
    slots = interleaved(table, table.prompts, table.candidates)
    assert [s.order for s in slots] == list(range(36))
    assert len({(s.candidate.key, s.prompt, s.run) for s in slots}) == 36
    for i in range(0, 36, 3):
        assert len({(s.prompt, s.run) for s in slots[i : i + 3]}) == 1
    orders = {tuple(s.candidate.key for s in slots[i : i + 3]) for i in range(0, 36, 3)}
    assert len(orders) > 1
    assert slots == interleaved(table, table.prompts, table.candidates)


def test_seeds_are_new_for_every_repetition_and_the_same_for_all_candidates(table):
    slots = interleaved(table, table.prompts, table.candidates)
    seeds = {}
    for s in slots:
        seeds.setdefault((s.prompt, s.run), set()).add(s.seed)
    assert all(len(found) == 1 for found in seeds.values())
    assert len(set.union(*seeds.values())) == 12
    again = interleaved(table, table.prompts, table.candidates, first_run=2, phase="confirm")
    assert not {s.seed for s in again} & {s.seed for s in slots}


def test_blocks_go_baseline_candidate_candidate_baseline(table):
    slots = in_blocks(table, table.prompts, table.candidates)
    for block in (0, 1):
        own = [s for s in slots if s.block == block]
        runs = ["B" if s.candidate.is_baseline else "C" for s in own]
        assert runs == ["B"] * 6 + ["C"] * 12 + ["B"] * 6
        assert len({(s.candidate.key, s.prompt, s.run) for s in own}) == 24
        # the candidate goes through the work in the baseline's order, so a drift cancels
        first = [(s.prompt, s.run) for s in own if s.candidate.is_baseline]
        assert first == [(s.prompt, s.run) for s in own if not s.candidate.is_baseline]
    assert {s.candidate.key for s in slots} == {c.key for c in table.candidates}


def test_blocks_of_the_baseline_alone_still_measure_it(made):
    alone = made.plan([made.candidate()], [made.prompt("a")])
    assert len(in_blocks(alone, alone.prompts, alone.candidates)) == 1


def test_a_repeat_has_the_baseline_next_to_it(table):
    slots = interleaved(table, table.prompts, table.candidates)
    bad = next(s for s in slots if s.candidate.drafter.name == "small")
    (repeat,) = repeats(table, [bad])
    again = repeat.slots(table, 36, 7)
    assert [s.candidate.drafter.name for s in again] == ["none", "small"]
    assert {(s.prompt, s.run, s.seed, s.block, s.phase) for s in again} == {
        (bad.prompt, bad.run, bad.seed, 7, "repeat")
    }


def test_a_bad_baseline_run_repeats_all_that_were_paired_with_it(table):
    slots = interleaved(table, table.prompts, table.candidates)
    bad = [s for s in slots if s.candidate.is_baseline][3]
    (repeat,) = repeats(table, [bad])
    assert set(repeat.candidates) == set(table.candidates)
    assert len(repeat.slots(table, 36, 1)) == 3


def test_auto_is_a_length_beside_the_numbers(draft):
    found = make_candidates([draft, NGRAM], n_max=(2, "auto"), trees=(8,))
    shown = [(c.session, c.drafter.n_max, c.drafter.auto) for c in found[1:]]
    assert shown == [
        ("small p_min=0 n=2", 2, False),
        ("small n=auto", 8, True),
        ("small tree=8 n=2", 2, False),
        ("ngram n=2", 2, False),
        ("ngram n=auto", 16, True),
    ]
