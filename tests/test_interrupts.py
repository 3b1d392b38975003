"""How often Ctrl-C is heard."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from localspec import interrupts


@pytest.fixture(autouse=True)
def _as_at_the_start(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(interrupts, "_heard", float("-inf"))
    monkeypatch.setattr(interrupts, "_told", None)
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_told_to_end_it_ends_as_by_ctrl_c_with_a_code_of_its_own(number: signal.Signals) -> None:
    interrupts.one_at_a_time()
    assert interrupts.exit_code(130) == 130
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    press()  # the same wish
    assert interrupts.exit_code(130) == 128 + number
    assert interrupts.exit_code(0) == 0, "it came too late to end anything"
    interrupts.no_more()
    assert signal.getsignal(number) == signal.SIG_DFL


def test_what_nohup_has_ignored_stays_so() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interrupts.one_at_a_time()
    signal.raise_signal(signal.SIGHUP)
    interrupts.no_more()
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


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
