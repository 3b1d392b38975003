"""Prompt look-up against a naive rescan of the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from localspec.drafters.base import Sampling
from localspec.drafters.ngram import NgramDrafter, NgramIndex

UNUSED = cast(Sampling, None)  # prompt look-up asks nothing of the sampler

few_ids = st.integers(0, 3)
texts = st.lists(few_ids, max_size=40)
orders = st.tuples(st.integers(1, 3), st.integers(0, 3)).map(lambda o: (o[0], o[0] + o[1]))


def rescan(tokens: Sequence[int], n_min: int, n_max: int) -> int:
    """The position after the latest earlier occurrence of the longest suffix that has one."""
    size = len(tokens)
    for n in range(min(n_max, size), n_min - 1, -1):
        suffix = tokens[size - n :]
        for end in range(size - 1, n - 1, -1):
            if tokens[end - n : end] == suffix:
                return end
    return -1


def build(tokens: Sequence[int], n_min: int, n_max: int) -> NgramIndex:
    index = NgramIndex(n_min, n_max)
    for token in tokens:
        index.append(token)
    return index


@given(texts, orders)
def test_the_longest_suffix_and_then_the_latest_occurrence_wins(
    tokens: list[int], order: tuple[int, int]
) -> None:
    index = NgramIndex(*order)
    for i, token in enumerate(tokens):
        index.append(token)
        assert index.lookup() == rescan(tokens[: i + 1], *order)


@given(texts, orders)
def test_a_suffix_is_never_found_in_its_own_place(
    tokens: list[int], order: tuple[int, int]
) -> None:
    index = build(tokens, *order)
    assert index.lookup() < max(len(tokens), 1), "what follows the text is not known yet"
    if len(set(tokens)) == len(tokens):
        assert index.lookup() == -1


@given(texts, orders, st.integers(0, 40), texts)
def test_truncation_restores_the_index_of_the_shorter_text(
    tokens: list[int], order: tuple[int, int], length: int, others: list[int]
) -> None:
    index = build(tokens, *order)
    index.truncate(length)
    fresh = build(tokens[:length], *order)
    assert vars(index) == vars(fresh)
    for token in others:  # and it goes on as if nothing had been there
        index.append(token)
        fresh.append(token)
    assert vars(index) == vars(fresh)
    assert index.lookup() == rescan([*tokens[:length], *others], *order)


@given(texts, orders)
def test_a_token_costs_the_same_however_long_the_text_is(
    tokens: list[int], order: tuple[int, int]
) -> None:
    n_min, n_max = order
    index = NgramIndex(n_min, n_max)
    for token in tokens:
        before = len(index._log)
        index.append(token)
        assert len(index._log) - before <= n_max - n_min + 1


def test_taking_back_costs_what_is_taken_back() -> None:
    index = build([1, 2, 3] * 1000, 2, 4)
    log = index._log

    class Counting(list):  # type: ignore[type-arg]
        pops = 0

        def pop(self, *args: int) -> object:  # type: ignore[override]
            Counting.pops += 1
            return super().pop(*args)

    index._log = Counting(log)
    index.truncate(2995)
    assert Counting.pops == 5 * 3


# ---- the drafter ------------------------------------------------------------------------------


def draft_after(tokens: list[int], limit: int, n_max: int = 8) -> list[int]:
    drafter = NgramDrafter(n_max, 2, 4)
    drafter.begin(tokens, 0, UNUSED)
    draft = drafter.draft(tokens, limit)
    return draft.tokens[: draft.n].tolist()


def test_what_followed_the_last_occurrence_is_drafted() -> None:
    assert draft_after([1, 2, 3, 4, 5, 9, 1, 2], 3) == [3, 4, 5]


def test_a_draft_longer_than_what_is_known_goes_on_with_the_period() -> None:
    assert draft_after([5, 6, 7, 5, 6], 7) == [7, 5, 6, 7, 5, 6, 7]
    assert draft_after([4, 4, 4], 5) == [4, 4, 4, 4, 4]


def test_nothing_is_drafted_where_nothing_repeats() -> None:
    assert draft_after([1, 2, 3, 4], 8) == []


def test_a_draft_is_no_longer_than_the_limit_and_the_drafter_allow() -> None:
    assert len(draft_after([1, 2, 1, 2], 3, n_max=8)) == 3
    assert len(draft_after([1, 2, 1, 2], 30, n_max=8)) == 8


@given(
    st.lists(few_ids, min_size=2, max_size=30),
    st.lists(st.tuples(st.integers(1, 8), texts), max_size=8),
)
def test_a_draft_continues_an_earlier_occurrence_by_its_period(
    prompt: list[int], steps: list[tuple[int, list[int]]]
) -> None:
    """Over many steps: the draft is the text from the look-up's place on, itself included."""
    drafter = NgramDrafter(8, 2, 4)
    drafter.begin(tuple(prompt), 0, UNUSED)
    tokens = list(prompt)
    for limit, emitted in steps:
        before = list(tokens)
        draft = drafter.draft(tokens, limit)
        assert tokens == before, "the loop's list is not the drafter's"
        start = rescan(tokens, 2, 4)
        if start < 0:
            assert draft.n == 0
        else:
            assert draft.n == min(limit, 8)
            longer = list(tokens)
            for i in range(draft.n):
                assert draft.tokens[i] == longer[start + i]
                longer.append(longer[start + i])
        tokens += emitted or [0]
        drafter.accept(tokens, range(1))


@given(texts, texts)
def test_a_new_generation_keeps_the_common_prefix_and_forgets_the_rest(
    first: list[int], second: list[int]
) -> None:
    drafter = NgramDrafter(4, 2, 4)
    drafter.begin(first, 0, UNUSED)
    drafter.begin(second, 0, UNUSED)
    assert vars(drafter.index) == vars(build(second, 2, 4))
    drafter.reset()
    assert vars(drafter.index) == vars(build([], 2, 4))
