"""Pastes as they come from a terminal, cut anywhere."""

from __future__ import annotations

import random

import pytest
from textual.events import Event, Key, Paste

from localspec.tui.pasting import PastingParser

TEXT = "one 漢字 e\u0301 👩‍👩‍👧‍👦\r" * 50


def heard(parts: list[str], *, pause: bool = False) -> list[Event]:
    parser, found = PastingParser(), []
    for part in parts:
        found += parser.feed(part)
        if pause and parser._timeout_time is not None:  # as long as a lone Escape is waited for
            parser._timeout_time = 0.0
            found += parser.tick()
    return [event for event in found if isinstance(event, Key | Paste)]


def said(events: list[Event]) -> str:
    """Keys as their characters, pastes in brackets."""
    return "".join(
        f"[{event.text}]" if isinstance(event, Paste) else getattr(event, "character", "") or ""
        for event in events
    )


@pytest.mark.parametrize("seed", range(20))
def test_a_paste_cut_in_odd_places_is_one_text_between_its_keys(seed: int) -> None:
    chance = random.Random(seed)
    sent = f"a\x1b[200~{TEXT}\x1b[201~b\x1b[200~c\x1b[201~\x1b[200~\x1b[201~d"
    parts = []
    while sent:
        cut = chance.choice([1, 2, 3, 5, 6, 7, 100, 1000])
        parts.append(sent[:cut])
        sent = sent[cut:]
    assert said(heard(parts)) == f"a[{TEXT}]b[c][]d"


@pytest.mark.parametrize("cut", range(1, 6))
def test_a_pause_inside_the_end_of_a_paste_does_not_swallow_it(cut: int) -> None:
    parts = ["\x1b[200~text" + "\x1b[201~"[:cut], "\x1b[201~"[cut:] + "x"]
    assert said(heard(parts, pause=True)) == "[text]x"


def test_escape_sequences_in_a_paste_stay_out_and_the_rest_in_its_place() -> None:
    colours = "\x1b[31mred\x1b[0m \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ \x1b\x07\ttab\n"
    assert said(heard([f"a\x1b[200~{colours}\x1b[201~b"])) == "a[red link \ttab\n]b"


def test_keys_are_heard_as_before() -> None:
    names = [e.key for e in heard(["\x1b", "\x1b[", "\x1b[A\x1b[2", "~\x1bx"], pause=True)]  # type: ignore[attr-defined]
    assert names[-3:] == ["up", "insert", "alt+x"]
    assert names[0] == "escape"
