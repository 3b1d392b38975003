"""One prompt, both sides: the order of the runs, when they stop, and what is told meanwhile."""

import math
from dataclasses import replace

import psutil
import pytest

from localspec.bench import ab, runner
from localspec.bench.ab import Planned, Standing, is_narrow, measure
from localspec.bench.runner import CRASHES, Ran, Running, Starting
from localspec.bench.statistics import Comparison
from localspec.engine.client import connect
from localspec.errors import UsageError
from localspec.records import BenchOptions, EngineOptions


@pytest.mark.parametrize(
    ("speedup", "width", "pairs", "narrow"),
    [
        (1.5, 1.05, 6, True),
        (0.7, 1.05, 6, True),
        (1.0, 1.05, 6, True),
        (1.5, 1.08, 6, False),
        (1.5, 1.01, 5, False),
    ],
)
def test_it_is_the_width_that_decides_and_never_the_verdict(speedup, width, pairs, narrow):
    half = math.sqrt(width)
    interval = (speedup / half, speedup * half)
    assert is_narrow(Comparison(speedup, interval, 0.5, pairs=pairs)) is narrow
    assert not is_narrow(Comparison(speedup, None, pairs=2))


class Watcher:
    """Hears everything; says that ``pairs`` are enough."""

    def __init__(self, pairs=99):
        self.events, self.pairs, self.held = [], pairs, 0
        self.known_when_held = []

    def __call__(self, event):
        self.events.append(event)

    def of(self, kind):
        return [e for e in self.events if isinstance(e, kind)]

    def hold(self):
        self.held += 1
        self.known_when_held.append(len(self.of(Standing)))

    def finished(self):
        return len(self.of(Ran)) >= 2 * self.pairs


@pytest.fixture
def options(tiny_bytes):
    return BenchOptions(
        model=str(tiny_bytes),
        drafters=("ngram",),
        prompt="abc abc abc, äöü",
        n_max=(3,),
        max_tokens=40,
        ignore_eos=True,
        engine=EngineOptions(threads=1),
    )


@pytest.fixture
def run():
    engines = []

    def start(*given):
        engines.append(connect(*given))
        return engines[-1]

    def run(options, watcher):
        outcome = measure(options, watcher, watcher, start)
        outcome_engine = engines[-1]
        outcome_engine.open("probe", *_plain(outcome))  # it lives, and its contexts were freed
        return outcome

    yield run
    for engine in engines:
        engine.close()


def _plain(outcome):
    plan = outcome.planned.plan
    return plan.candidates[0].drafter, plan.context


def test_runs_alternate_in_pairs_and_the_watcher_sees_all_of_it(run, options):
    watcher = Watcher(pairs=3)
    outcome = run(options, watcher)
    assert isinstance(watcher.events[0], Planned)
    main = [e.row for e in watcher.of(Ran) if e.row.slot.phase == "main"]
    assert len(main) == 6
    assert [r.slot.run for r in main] == [0, 0, 1, 1, 2, 2]
    for first, second in zip(main[::2], main[1::2], strict=True):
        assert {first.slot.candidate.is_baseline, second.slot.candidate.is_baseline} == {
            False,
            True,
        }
    assert len({r.slot.candidate.key for r in main[::2]}) == 2, "both come first now and then"
    assert [s.comparison.pairs for s in watcher.of(Standing)][:3] == [1, 2, 3]
    disturbed = any(e.phase == "repeat" for e in watcher.of(Starting))
    assert watcher.held == 3 + 1 + disturbed
    assert watcher.known_when_held[:4] == [0, 1, 2, 3], "a pair counts before it is held"
    assert outcome.standing.comparison.method == "t over runs, this prompt only"
    assert outcome.audit.identical
    assert not outcome.measurement.interrupted


def test_the_text_of_each_pass_can_be_told_while_it_runs(run, options):
    watcher = Watcher(pairs=1)
    outcome = run(options, watcher)
    for row in outcome.measurement.rows[:2]:
        chunks = [e.chunk for e in watcher.of(Running) if e.slot == row.slot and e.chunk]
        spans = [s for c in chunks for s in c.spans]
        assert "".join(s.text for s in spans) == row.generation.text
        assert sum(s.tokens for s in spans) == len(row.generation.tokens)
        ends = {sum(s.tokens for s in spans[: i + 1]) for i in range(len(spans))}
        # a pass ends where a span ends, unless it ends inside a character
        total, inside = 1, 0
        for step in row.generation.steps:
            total += step.tokens
            inside += total not in ends
        assert inside < len(row.generation.steps) / 2


def test_it_stops_by_itself_when_the_interval_is_narrow(run, options, monkeypatch):
    monkeypatch.setattr(ab, "NARROW", 1e9)
    watcher = Watcher()
    run(options, watcher)
    assert sum(e.row.slot.phase == "main" for e in watcher.of(Ran)) == 2 * ab.FEWEST_PAIRS


def test_whoever_watches_can_end_it_at_any_moment_and_keeps_what_is_whole(run, options):
    class Impatient(Watcher):
        def __call__(self, event):
            super().__call__(event)
            if isinstance(event, Running) and event.slot.run == 1 and event.tokens:
                raise KeyboardInterrupt

    outcome = run(options, Impatient())
    assert outcome.measurement.interrupted
    assert outcome.standing.comparison.pairs == 1
    assert outcome.measurement.rows[-1].flags >= {"cancelled"}


def test_what_was_ended_before_the_first_run_says_that_nothing_was_measured(run, options):
    assert run(options, Watcher(pairs=0)).ending == "nothing was measured · ended by you"


def newest_child() -> psutil.Process:
    """The engine that works; another test's may not have ended yet."""
    return max(psutil.Process().children(), key=psutil.Process.create_time)


def test_the_engine_dies_and_the_end_is_told_all_the_same(run, options):
    class Killer(Watcher):
        killed = False

        def __call__(self, event):
            super().__call__(event)
            if isinstance(event, Running) and event.slot.run == 1 and not self.killed:
                self.killed = True
                newest_child().kill()

    outcome = run(options, Killer(pairs=3))
    assert outcome.ending == "2 of 3 pairs count · ended by you · the engine died once"


def test_where_the_drafter_is_given_up_the_baseline_is_not_run_for_nothing(run, options):
    class Killer(Watcher):
        def __call__(self, event):
            super().__call__(event)
            drafts = isinstance(event, Running) and not event.slot.candidate.is_baseline
            if drafts and event.tokens == 0:
                newest_child().kill()

    outcome = run(options, Killer())
    made = [r for r in outcome.measurement.rows if r.slot.candidate.is_baseline]
    assert len(made) <= CRASHES
    assert outcome.ending == "no pair was made whole · given up · the engine died twice"


@pytest.mark.parametrize("ended", [False, True])
def test_what_was_disturbed_is_made_again_until_it_is_ended(run, options, monkeypatch, ended):
    class Disturbed(Watcher):
        def finished(self):
            return ended and any(e.phase == "repeat" for e in self.of(Starting))

    monkeypatch.setattr(ab, "NARROW", 1e9)
    monkeypatch.setattr(runner, "REPEATED_SHARE", 0.5)
    monkeypatch.setattr(
        runner, "mark_disturbed", lambda rows: [r.flagged("disturbed") for r in rows]
    )
    watcher = Disturbed()
    outcome = run(options, watcher)
    assert any(e.phase == "repeat" for e in watcher.of(Starting))
    repeated = [r for r in outcome.measurement.rows if r.slot.phase == "repeat"]
    assert bool(repeated) == (not ended)
    standing = outcome.standing
    assert standing.comparison.pairs == ab.FEWEST_PAIRS
    assert outcome.disturbed[1] == 2 * ab.FEWEST_PAIRS
    assert standing.baseline.figures.runs == standing.drafted.figures.runs == ab.FEWEST_PAIRS
    begun = "6 pairs · " if ended else "6 of 9 pairs count · "
    assert outcome.ending.startswith(begun)
    assert outcome.left_out == (
        "" if ended else "left out: 6 of 18 runs (3 pairs were made again)."
    )
    told = [s.comparison.pairs for s in watcher.of(Standing)]
    assert max(told) == ab.FEWEST_PAIRS, "of what is made again, one or the other"


def test_one_drafter_alone_is_compared(run, options):
    with pytest.raises(UsageError, match="one drafter"):
        measure(replace(options, drafters=("none",)), Watcher(), Watcher(), connect)
