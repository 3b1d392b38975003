"""What tuning may try, and in which order."""

import pytest

from localspec.catalog import DrafterSpec
from localspec.tune.space import Space

DRAFT = DrafterSpec("small", "draft-model", n_max=3, recommended=True)
NGRAM = DrafterSpec("ngram", "ngram")
MTP = DrafterSpec("mtp", "mtp", limit=2)


def keys(candidates):
    return [c.key for c in candidates]


def test_every_drafter_starts_as_recommended_the_recommended_one_first():
    found = keys(Space((NGRAM, MTP, DRAFT)).first())
    assert found[:3] == ["small n=3", "ngram n=8", "mtp n=2"]
    assert set(found) == {
        "small n=3", "small n=auto", "small n=6", "small tree=auto",
        "ngram n=8", "ngram n=auto", "ngram n=16", "mtp n=2", "mtp n=auto",
    }  # fmt: skip


def test_neighbours_are_one_step_away():
    space = Space((DRAFT,))
    of = {c.key: c for c in space.first()}
    assert set(keys(space.near(of["small n=3"]))) == {
        "small n=auto", "small n=2", "small n=4", "small n=3 p_min=0", "small n=3 p_min=0.5",
        "ngram+small n=3",
    }  # fmt: skip
    assert set(keys(space.near(of["small tree=auto"]))) == {
        "small tree=8", "small tree=16", "small tree=32"
    }  # fmt: skip
    stopping = next(c for c in space.near(of["small n=3"]) if c.drafter.p_min == 0.5)
    assert "small n=4 p_min=0.5" in keys(space.near(stopping))
    assert "small n=3" in keys(space.near(stopping))  # back to the usual p_min


def test_ngram_has_no_probabilities_and_heads_no_more_than_there_are():
    space = Space((NGRAM, MTP))
    of = {c.key: c for c in space.first()}
    assert set(keys(space.near(of["ngram n=8"]))) == {"ngram n=auto", "ngram n=6", "ngram n=12"}
    assert all(c.drafter.n_max <= 2 for c in space.near(of["mtp n=2"]))


def test_a_candidate_is_run_as_it_is_called():
    space = Space((DRAFT,), temperature=0.7)
    for c in [d for s in space.first() for d in (s, *space.near(s))]:
        assert c.temperature == 0.7
        assert f"n={c.drafter.draft_length}" in c.key or f"tree={c.drafter.tree_size}" in c.key
        assert ("ngram+" in c.key) == c.drafter.method.startswith("ngram+")
        assert not (c.drafter.tree and c.drafter.p_min)
        assert space.setting(c).spec.name == c.drafter.name.partition(" tree=")[0]
    assert space.setting(space.baseline) is None


@pytest.mark.parametrize("specs", [(), (DrafterSpec("none", "none"),)])
def test_without_drafters_there_is_nothing_to_try(specs):
    assert Space(specs).first() == []


def test_two_drafters_of_one_name_are_told_apart(tmp_path):
    two = [DrafterSpec("d", "draft-model", tmp_path / str(i)) for i in range(2)]
    names = {c.drafter.name.partition(" tree=")[0] for c in Space(two).first()}
    assert names == {str(tmp_path / "0"), str(tmp_path / "1")}
