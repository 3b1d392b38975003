import io

import pytest

from localspec.units import folded, parameters, passes, speedup, with_interval


@pytest.mark.parametrize(
    ("n", "words"),
    [
        (999, "999"),
        (1_000, "1K"),
        (134_515_008, "135M"),
        (999_700_000, "1B"),
        (7_241_732_096, "7.24B"),
        (1_026_000_000_000, "1.03T"),
    ],
)
def test_parameters_are_counted_in_three_digits(n: int, words: str) -> None:
    assert parameters(n) == words


def test_replays_are_told_apart_among_the_passes() -> None:
    told = {passes(1, 0): "1 pass", passes(84, 35): "84 passes, 35 of them replays"}
    assert list(told) == list(told.values())
    assert passes(9, 1) == "9 passes, 1 of them a replay"


@pytest.mark.parametrize(
    ("value", "interval", "shown"),
    [
        (1.017, (1.003, 1.031), "1.02x [1.003, 1.03]"),
        (1.002, (1.0004, 1.004), "1.002x [1.0004, 1.004]"),
        (0.98, (0.96, 0.9971), "0.98x [0.96, 0.997]"),
        (1.017, (0.997, 1.031), "1.02x [1.00, 1.03]"),  # it holds 1: so it may look
        (1.12, (1.05, 1.19), "1.12x [1.05, 1.19]"),
        (1.0, (1.0, 1.0), "1.00x [1.00, 1.00]"),
        (1.003, None, "1.00x"),
    ],
)
def test_an_end_that_shows_a_difference_is_never_rounded_to_none(
    value: float, interval: tuple[float, float] | None, shown: str
) -> None:
    assert speedup(value, interval) == shown


def test_so_it_is_with_a_change_in_percent() -> None:
    as_change = {"digits": 1, "no_difference": 0.0, "sign": "+"}
    assert with_interval(1.2, (0.03, 2.4), **as_change) == ("+1.2", "+0.03", "+2.4")
    assert with_interval(1.2, (-0.03, 2.4), **as_change) == ("+1.2", "+0.0", "+2.4")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_sentence_is_folded_between_words_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    text = "98.4 MB are needed and only 5.6 MB are free on /a/very-long/path/that-must-stay-whole."
    shown = folded(text, Terminal())
    assert " ".join(shown.split("\n")) == text
    assert "\n" in shown
    assert "/a/very-long/path/that-must-stay-whole." in shown.splitlines()
    assert folded(text, io.StringIO()) == text
