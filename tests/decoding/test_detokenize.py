"""Text from tokens: valid UTF-8 at every moment, stop strings across tokens, honest spans."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.decoding.detokenize import Detokenizer
from localspec.records import Span


def feed(pieces: list[bytes], stop: tuple[str, ...] = (), drafted: bool = False) -> Detokenizer:
    """All pieces, up to the one that completes a stop string."""
    d = Detokenizer(lambda token: pieces[token], stop)
    for i in range(len(pieces)):
        if d.feed(i, drafted):
            break
    return d


def text(spans: tuple[Span, ...]) -> str:
    return "".join(s.text for s in spans)


@pytest.mark.parametrize("whole", ["🔥", "👨‍👩‍👧", "ß ♬", "歪", "a\u0301"])
def test_a_character_split_over_tokens_appears_once_it_is_whole(whole: str) -> None:
    data = whole.encode()
    d = Detokenizer(lambda token: data[token : token + 1])
    seen = ""
    for i in range(len(data)):
        d.feed(i, drafted=False)
        fresh = text(d.take())
        assert "\ufffd" not in fresh
        seen += fresh
    d.finish()
    assert seen + text(d.take()) == whole


def test_an_invalid_tail_becomes_one_replacement_character() -> None:
    d = feed([b"ok", "🔥".encode()[:3]])
    assert text(d.take()) == "ok"
    d.finish()
    assert text(d.take()) == "\ufffd"


@given(st.lists(st.binary(max_size=5), max_size=20))
def test_the_final_text_is_the_decoding_of_all_bytes(pieces: list[bytes]) -> None:
    d = feed(pieces)
    d.finish()
    assert text(d.take()) == b"".join(pieces).decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("pieces", "stop", "left"),
    [
        ([b"ABC", b"DEF", b"G", b"HI", b"J", b"K"], "DEFGHIJ", "ABC"),
        ([b"alpha ", b"beta ", b"gam", b"ma ray"], "beta gamma", "alpha "),
        ([b"xx", b"ab", b"abc", b"y"], "abc", "xxab"),
        ([b"one", b"stop"], "stop", "one"),
        ([b"a stop b"], "stop", "a "),
        ([b"no", b" stop string"], "absent", "no stop string"),
    ],
)
def test_text_ends_exactly_before_a_stop_string(pieces: list[bytes], stop: str, left: str) -> None:
    d = feed(pieces, (stop,))
    d.finish()
    assert text(d.take()) == left


def test_text_that_may_become_a_stop_string_is_held_back_and_then_released() -> None:
    d = Detokenizer([b"DE", b"F", b"x"].__getitem__, ("DEFG",))
    d.feed(0, drafted=False)
    d.feed(1, drafted=False)
    assert text(d.take()) == ""
    d.feed(2, drafted=False)
    assert text(d.take()) == "DEFx"


def test_the_earliest_of_several_stop_strings_wins() -> None:
    d = feed([b"one two three"], ("three", "two"))
    d.finish()
    assert text(d.take()) == "one "


def test_spans_say_who_wrote_them_and_count_every_token() -> None:
    d = Detokenizer([b"a", b"b", "ß".encode()[:1], "ß".encode()[1:], b"c"].__getitem__)
    for token, drafted in enumerate([False, True, True, True, False]):
        d.feed(token, drafted)
    assert d.take() == (Span("a", False, 1), Span("bß", True, 3), Span("c", False, 1))
