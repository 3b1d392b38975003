"""Thinking is told from the answer, however the text is cut into pieces."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.chat.thinking import ThinkingSplitter, split_thinking

THOUGHT = "<think>\nLet me <b>see</b>.\n</think>\n\nIt is < 2."


def split(pieces: list[str], prompt: str = "") -> list[tuple[bool, str]]:
    splitter = ThinkingSplitter(prompt)
    found = [part for piece in pieces for part in splitter.feed(piece)] + splitter.finish()
    joined: list[tuple[bool, str]] = []
    for kind, text in found:
        if joined and joined[-1][0] == kind:
            joined[-1] = (kind, joined[-1][1] + text)
        else:
            joined.append((kind, text))
    return joined


@given(st.lists(st.integers(0, len(THOUGHT)), max_size=8))
def test_pieces_do_not_matter(cuts: list[int]) -> None:
    borders = [0, *sorted(cuts), len(THOUGHT)]
    pieces = [THOUGHT[a:b] for a, b in itertools.pairwise(borders)]
    assert split(pieces) == [
        (True, "<think>\nLet me <b>see</b>.\n</think>"),
        (False, "\n\nIt is < 2."),
    ]


def test_a_prompt_that_ends_in_an_open_tag_starts_inside() -> None:
    parts = split(["hm</think>", "Yes."], "<|im_start|>assistant\n<think>\n")
    assert parts == [(True, "hm</think>"), (False, "Yes.")]


def test_a_closed_tag_in_the_prompt_does_not() -> None:
    parts = split(["Yes."], "<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert parts == [(False, "Yes.")]


def test_a_text_that_ends_inside_a_tag_is_not_lost() -> None:
    assert split(["1 <", "thi"]) == [(False, "1 <thi")]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (THOUGHT, ("\nLet me <b>see</b>.\n", "\n\nIt is < 2.")),
        ("[THINK]a[/THINK]b", ("a", "b")),
        (
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b",
            ("a", "b"),
        ),
        ("plain", ("", "plain")),
        ("<think>never closed", ("never closed", "")),
    ],
)
def test_thinking_and_answer_without_tags(text: str, parts: tuple[str, str]) -> None:
    assert split_thinking(text) == parts
