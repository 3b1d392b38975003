import pytest

from localspec.units import parameters


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
