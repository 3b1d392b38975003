"""How often Ctrl-C is heard."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from localspec import interrupts


@pytest.fixture(autouse=True)
def _as_at_the_start(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(interrupts, "_heard", float("-inf"))
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def test_pressed_again_it_does_not_interrupt_what_the_first_one_began() -> None:
    interrupts.one_at_a_time()
    with pytest.raises(KeyboardInterrupt):
        press()
    for _ in range(3):
        press()


def test_what_hangs_is_left_by_pressing_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "PATIENCE", -1.0)  # it is over
    interrupts.one_at_a_time()
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            press()


def test_what_is_being_kept_already_is_not_interrupted() -> None:
    interrupts.one_at_a_time()
    interrupts.keeping()
    press()


def test_at_a_prompt_each_counts_and_on_leaving_none() -> None:
    interrupts.one_at_a_time()
    interrupts.each()
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            press()
    interrupts.no_more()
    press()
