"""What is shown while a bench runs: on a terminal one line, elsewhere plain lines."""

import io

import pytest
from rich.console import Console

from localspec.bench.progress import Lines, Live, Quiet, display
from localspec.bench.runner import Comparing, Notice, Ran, Running, Starting, WarmingUp


@pytest.fixture
def events(made):
    who, where = made.candidate("small", 3), made.prompt("a-prompt-with-a-long-name" * 2)
    row = made.row(who, where, made.generation())
    return [
        WarmingUp("baseline", 1, 2),
        WarmingUp("small n=3", 2, 2, 83.0),
        Starting("main", 12, 6, 65.0, again=40.0, kept=6),
        Running(row.slot, 0, 12, 5, 98.7, 60.0),
        Ran(row, 12, 12, 6.0),
        Comparing(who, 5.0),
        Notice("Something happened."),
    ]


def test_a_pipe_gets_a_line_for_what_matters_and_what_is_left(events):
    out = io.StringIO()
    with display(Console(file=out, width=80), quiet=False) as show:
        assert isinstance(show, Lines)
        for event in events:
            show(event)
    assert out.getvalue().splitlines() == [
        "warm-up 1/2: baseline",
        "warm-up 2/2: small n=3, about 1 min 23 s to go",
        "12 runs on 6 prompts, about 1 min 5 s (6 runs are there from before); a winner is then "
        "measured again, about 40 s",
        "12/12 runs, 100.0 tok/s, 6 s left",
        "classing differences: small n=3 T=0, about 5 s left",
        "Something happened.",
    ]


@pytest.mark.parametrize("width", [80, 140])
def test_a_terminal_gets_one_line_that_leaves_room_for_the_echo_of_ctrl_c(events, width):
    console = Console(file=io.StringIO(), width=width, force_terminal=True)
    assert isinstance(display(console, quiet=False), Live)
    show = Live(console)
    for event in events:
        show(event)
        plain = Console(file=io.StringIO(), width=width)
        plain.print(*show._progress.get_renderables())
        (line,) = plain.file.getvalue().splitlines()
        assert len(line.rstrip()) <= width - 2


def test_quiet_shows_nothing(events, capsys):
    with display(Console(stderr=True), quiet=True) as show:
        assert type(show) is Quiet
        for event in events:
            show(event)
    assert capsys.readouterr() == ("", "")
