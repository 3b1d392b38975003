import io

import pytest

from localspec.units import folded, parameters, passes


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
