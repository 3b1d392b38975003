"""The race's clock and timelines, and the drawings of the A/B screen that only compute."""

from __future__ import annotations

import pytest
from textual.app import App, ComposeResult
from textual.content import Content

from localspec.records import Counts, Generation, Span, Step, Times
from localspec.tui.race import Race, ReplayClock, Timeline, text_of_passes
from localspec.tui.widgets.interval_bar import Axis, draw
from localspec.tui.widgets.pass_text import PassText, block_text
from localspec.tui.widgets.side import figures_line, parts_line


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def step(tokens: int, seconds: float = 0.1) -> Step:
    return Step(tokens, tokens - 1, tokens - 1, tokens - 1, 1, 0, seconds, 0, 0, seconds)


def run(texts: str, steps: list[Step], ttft: float = 0.5) -> Generation:
    spans = tuple(Span(t, False, 1) for t in texts)
    n = 1 + sum(s.tokens for s in steps)
    return Generation(texts, tuple(range(n)), "length", 3, 0, Counts(), Times(ttft=ttft),
                      spans, tuple(steps))  # fmt: skip


def test_the_clock_pauses_restarts_and_changes_speed_without_a_jump() -> None:
    time = Time()
    clock = ReplayClock(time)
    time.now += 5
    assert clock.now == 0
    clock.start()
    time.now += 2
    assert clock.now == 2
    clock.set_speed(2)
    assert clock.now == 2
    time.now += 1
    assert clock.now == 4
    clock.pause()
    time.now += 60
    assert clock.now == 4
    assert not clock.running
    clock.set_speed(0.5)
    clock.start()
    time.now += 1
    assert clock.now == 4.5
    clock.restart()
    assert clock.now == 0
    time.now += 4
    assert clock.now == 2


def test_the_clock_stands_still_while_nobody_sees_it_and_keeps_what_it_was_told() -> None:
    time = Time()
    clock = ReplayClock(time)
    clock.start()
    time.now += 2
    for _ in range(2):  # it may be told twice
        clock.cover()
        time.now += 5
        assert clock.now == 2
        assert clock.running
    clock.uncover()
    time.now += 1
    assert clock.now == 3
    clock.cover()
    clock.pause()
    clock.uncover()
    time.now += 1
    assert clock.now == 3
    clock.cover()
    clock.restart()
    time.now += 1
    assert clock.now == 0
    clock.uncover()
    time.now += 1
    assert clock.now == 1


def test_a_timeline_is_the_engine_s_own_times_from_the_prompt_on() -> None:
    line = Timeline.of(run("abcdef", [step(2, 0.25), step(3, 0.5)]))
    assert line.texts == ("a", "bc", "def")
    assert line.tokens == (1, 3, 6)
    assert line.times == (0.5, 0.75, 1.25)
    assert [line.passes_at(t) for t in (0.4, 0.5, 0.7, 0.75, 1.3)] == [0, 1, 1, 2, 3]
    assert [line.tokens_at(t) for t in (0.4, 0.6, 2)] == [0, 1, 6]
    assert [line.pass_of(token) for token in range(7)] == [0, 1, 1, 2, 2, 2, 2]


def test_a_race_ends_with_the_slower_and_says_who_came_when() -> None:
    time = Time()
    slow = Timeline.of(run("abc", [step(1, 1.0), step(1, 1.0)]))
    fast = Timeline.of(run("abc", [step(2, 1.2)]))
    race = Race(slow, fast, time)
    race.clock.start()
    time.now += 1.0
    assert race.behind(slow) is None
    assert race.behind(fast) is None
    time.now += 0.8
    assert race.behind(fast) == pytest.approx(-0.8)
    assert race.behind(slow) is None
    assert not race.over
    time.now += 10
    assert race.over
    assert race.now == race.end == 2.5
    assert race.behind(slow) == pytest.approx(0.8)
    race.toggle()  # at the end: once more
    assert race.now == 0
    race.toggle()
    time.now += 3
    assert race.now == 0
    race.next_speed()
    race.toggle()
    time.now += 1
    assert race.now == 2


def test_a_character_of_several_tokens_belongs_to_the_pass_that_completed_it() -> None:
    spans = [Span("a", False, 1), Span("猫", True, 3), Span("b", False, 1), Span("", False, 0)]
    assert text_of_passes(spans, [step(1), step(3)]) == ["a", "", "猫b"]
    assert text_of_passes(spans[:1], [step(1)]) == ["a", ""]
    assert text_of_passes([], []) == []


def test_a_stop_string_held_back_keeps_its_text_with_its_token() -> None:
    spans = [Span("a", False, 1), Span("b", False, 0), Span("c", False, 1)]
    assert "".join(text_of_passes(spans, [step(1)])) == "abc"
    assert text_of_passes(spans, [step(1)])[0] == "a"


def test_every_second_block_is_marked_with_more_than_colour() -> None:
    content = block_text(["a", "bc", "d", "e\x1b[2J"])
    assert content.plain == "abcde\ufffd[2J"
    assert [(s.start, s.end) for s in content.spans] == [(1, 3), (4, 9)]
    assert all("underline" in str(s.style) for s in content.spans)
    # the blocks of an end of the text look as they do in the whole
    assert [(s.start, s.end) for s in block_text(["d", "e"], first=2).spans] == [(1, 2)]
    marked = block_text(["a", "b"], parted=1)
    assert "reverse" in str(marked.spans[0].style)


class Pane(App[None]):
    """A text in 37 columns, as a side has them of 80."""

    CSS = "PassText { width: 39; }"

    def compose(self) -> ComposeResult:
        yield PassText()


async def test_the_end_of_a_text_is_the_last_rows_of_the_whole_and_wraps_little_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrapped: list[int] = []
    wrap = Content.wrap

    def counted(content: Content, width: int) -> list[Content]:
        wrapped.append(len(content))
        return wrap(content, width)

    monkeypatch.setattr(Content, "wrap", counted)
    paragraph = ["The", " cat", " 猫", " sat", " on a", " very", "long", "wordindeed", ",", " and"]
    lines = [[*paragraph * n, f" {n}.\n", "\n" * (n % 2)] for n in (1, 2, 0, 5, 3, 1, 4, 2) * 8]
    texts = [text for line in lines for text in line]
    async with Pane().run_test() as pilot:
        pane = pilot.app.query_one(PassText)
        for n in range(0, len(texts), 7):
            pane.show(texts[:n], rows=6)
            whole = wrap(block_text(texts[:n]), 37)[-6:]
            content = pane.render()
            assert isinstance(content, Content)
            assert content.plain == "\n".join(line.plain for line in whole)
            blocks = [s for line in whole for s in line.spans]
            assert len(content.spans) == len(blocks), "the same passes are blocks"
        longest = 5 * sum(map(len, paragraph))
        assert max(wrapped) <= 2 * (6 * 37 + longest) < sum(map(len, texts)) / 4
        endless = paragraph * 60
        pane.show(endless, rows=6)  # of one paragraph all of it is wrapped
        last = "\n".join(line.plain for line in wrap(block_text(endless), 37)[-6:])
        assert str(pane.render()) == last


def test_the_interval_is_where_it_belongs_and_narrows_on_the_same_axis() -> None:
    axis = Axis.around(0.8, 1.6, 61)
    assert axis.low < 0.8 < 1.6 < axis.high
    assert axis.column(0.8) < axis.column(1.0) < axis.column(1.6)
    assert axis.column(1 / 99) == 0
    assert axis.column(99) == 60
    lines = draw(axis, 1.2, (1.1, 1.3)).plain.split("\n")
    assert [len(line) for line in lines] == [61, 61, 61]
    assert lines[0].index("┣") == axis.column(1.1)
    assert lines[0].index("●") == axis.column(1.2)
    assert lines[0].index("┫") == axis.column(1.3)
    assert lines[0].index("┃") == axis.column(1.0)
    assert "1.00" in lines[2]
    wide = draw(axis, 1.2, (0.9, 1.5)).plain.split("\n")[0]
    assert wide.count("━") > lines[0].count("━")
    assert wide[axis.column(1.0)] == "╋"


@pytest.mark.parametrize("low", [0.02, 0.5, 0.97, 1.0, 1.3, 4.0])
@pytest.mark.parametrize("columns", [8, 30, 77, 200])
def test_any_interval_fits_any_width(low: float, columns: int) -> None:
    for high in (low, low * 1.01, low * 3, 300.0):
        axis = Axis.around(low, high, columns)
        lines = draw(axis, low, (low, high)).plain.split("\n")
        assert {len(line) for line in lines} == {columns}
        places = [axis.column(t) for t in axis.ticks()]
        assert places == sorted(set(places))
        assert "1.00" in lines[2].split()


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0.52, 4.0, "0.50 1.00 2.00 4.00"),
        (0.2, 4.0, "0.25 0.50 1.00 2.00 4.00"),
        (0.01, 300.0, "0.10 0.20 0.50 1.00 2.00 5.00 10.00"),
        (0.52, 1.3, "0.60 0.80 1.00 1.20"),
        (1.2, 1.9, "1.00 1.20 1.40 1.60 1.80"),
        (0.95, 1.1, "0.96 0.98 1.00 1.02 1.04 1.06 1.08 1.10"),
    ],
)
def test_an_axis_is_labelled_all_along_it(low: float, high: float, labels: str) -> None:
    axis = Axis.around(low, high, 76)
    assert draw(axis, low, (low, high)).plain.split("\n")[2].split() == labels.split()


def test_where_the_time_of_a_pass_went_is_drawn_to_one_scale() -> None:
    parts = {"draft": 10.0, "verify": 30.0, "rest": 1.0}
    half = parts_line(parts, 82.0, 60).plain.split("\n")
    full = parts_line(parts, 41.0, 60).plain.split("\n")
    assert full[0].count("█") == pytest.approx(2 * half[0].count("█"), abs=1)
    assert full[0].endswith("41.0 ms/pass")
    assert len(full[0]) == 60
    assert full[1].split() == ["▒draft", "10.0", "█verify", "30.0", "░rest", "1.0"]
    assert len(parts_line({k: 100 * v for k, v in parts.items()}, 4100.0, 37).plain) <= 37 * 2 + 1


def test_figures_are_shorter_where_there_is_less_room() -> None:
    assert figures_line(42.7, 2.41, 60).plain == "42.7 tok/s · 2.41 tokens a pass · 23.4 ms a token"
    assert figures_line(203.4, 2.41, 37).plain == "203.4 tok/s · AL 2.41 · 4.9 ms/tok"
    assert figures_line(None, None, 60).plain == "not measured yet"
