"""The runner on the real engine, with the tests' tiny models."""

import os
import random
import signal

import pytest

import localspec.bench.runner as runner_module
from localspec.bench.analysis import analyse
from localspec.bench.audit import audit
from localspec.bench.plan import Candidate, Plan, Prepared
from localspec.bench.runner import Notice, Ran, Runner, Running, Starting, WarmingUp
from localspec.bench.sessions import Host, Sessions
from localspec.bench.workloads import Prompt
from localspec.engine.client import Engine
from localspec.errors import EngineClosed, EngineDied, LocalspecError
from localspec.machine import Sample
from localspec.records import ContextSettings, DrafterSettings, SamplerSettings

BASELINE = DrafterSettings()
NGRAM = DrafterSettings("ngram", "ngram", n_max=4)
TEXTS = ("The same words, the same words.", "abc abc abc abc", "Another one", "and a last one")


class Calm:
    """A machine on which nothing else happens, so that no run is made again."""

    def __init__(self, pids=()): ...

    def sample(self):
        return Sample(0.0, 3000.0)


class Stormy(Calm):
    """Other load rises during one run, the fourth."""

    made = 0

    def __init__(self, pids=()):
        type(self).made += 1
        self.load = 0.9 if self.made == 4 else 0.0

    def sample(self):
        return Sample(self.load, 3000.0)


class Clock:
    """Goes on by as much each time that it is looked at, however long that was."""

    now = 0.0

    def monotonic(self):
        self.now += 0.005
        return self.now


class Sleepy(Calm):
    """Two cores are kept busy, but for one run, the fourth, in which hardly anything happens."""

    made, clock = 0, Clock()

    def __init__(self, pids=()):
        type(self).made += 1
        self.cores = 0.1 if self.made == 4 else 2.0
        self.last = self.clock.now

    def sample(self):
        gone, self.last = self.clock.now - self.last, self.clock.now
        return Sample(0.0, 3000.0, self.cores * gone)


@pytest.fixture
def bench(tiny_bytes):
    """bench(drafters, prompts, ...) -> what is needed to run and judge a plan."""
    opened = []

    def connect():
        engine = Engine()
        engine.load(tiny_bytes)
        return engine

    def make(drafters, *, texts=TEXTS, runs=1, together=True, tell=None, meter=Calm, **more):
        engine = connect()
        prompts = tuple(
            Prepared(Prompt(f"p{i}", "w", (("user", t),)), engine.tokenize(t))
            for i, t in enumerate(texts)
        )
        candidates = tuple(
            Candidate(f"{d.name} n={d.n_max} T={t:g}", f"{d.name} n={d.n_max}", d, t)
            for t in more.pop("temperatures", (0.0,))
            for d in drafters
        )
        plan = Plan(
            prompts=prompts,
            candidates=candidates,
            context=ContextSettings(n_ctx=256, threads=1),
            sampler=SamplerSettings(seed=3),
            max_tokens=16,
            runs=runs,
            order_seed=3,
            ignore_eos=True,
            **more,
        )
        sessions = Sessions(engine, connect, plan.context, together)
        opened.append(sessions)
        events = []

        def listen(event):
            events.append(event)
            if tell is not None:
                tell(event, sessions)

        return Runner(plan, sessions, listen, meter), sessions, events

    yield make
    for sessions in opened:
        sessions.engine.close()


def rows_of(measurement, phase="main"):
    return [r for r in measurement.rows if r.slot.phase == phase]


def test_every_candidate_runs_every_prompt_and_the_outputs_are_the_baselines(bench):
    runner, sessions, _ = bench([BASELINE, NGRAM], runs=2, temperatures=(0.0, 0.8))
    done = runner.run()
    assert len(rows_of(done)) == 4 * 4 * 2
    assert {s.state for s in done.status.values()} == {"ok"}
    assert all(len(r.generation.tokens) == 16 for r in done.rows)
    assert all(r.flags == {"short"} or r.flags == {"short", "repeats"} for r in done.rows)
    table = analyse(done.plan, done.rows)
    base, drafted = list(table.values())[:2]
    assert base.figures.counts.accept_length == 1.0
    assert drafted.figures.counts.drafted > 0
    assert drafted.decode.interval is not None
    found = audit(done.plan, done.rows, sessions)
    assert [a.identical for a in found.values()] == [True, True]
    assert [a.compared for a in found.values()] == [4, 8]


def test_events_come_in_order_and_the_estimate_before_the_first_run(bench):
    runner, _, events = bench([BASELINE, NGRAM])
    runner.run()
    kinds = [type(e) for e in events if not isinstance(e, Running)]
    assert kinds[:4] == [WarmingUp, WarmingUp, Starting, Ran]
    start = next(e for e in events if isinstance(e, Starting))
    assert (start.rows, start.prompts, start.phase) == (8, 4, "main")
    assert start.seconds > 0
    assert [e.done for e in events if isinstance(e, Ran)] == list(range(1, 9))


def test_what_the_engine_notes_about_a_context_is_said_once_before_the_start(bench):
    runner, sessions, events = bench([BASELINE, NGRAM])
    sessions._context = ContextSettings(n_ctx=2048, threads=1)  # trained on 1024
    runner.run()
    said = [i for i, e in enumerate(events) if isinstance(e, Notice)]
    start = next(i for i, e in enumerate(events) if isinstance(e, Starting))
    assert len(said) == 1
    assert said[0] < start
    assert "2048" in events[said[0]].text


def test_a_drafter_that_is_refused_does_not_stop_the_others(bench, tiny_stranger):
    stranger = DrafterSettings("draft-model", "stranger", str(tiny_stranger), 3)
    runner, _, events = bench([BASELINE, stranger, NGRAM])
    done = runner.run()
    states = {k: s.state for k, s in done.status.items()}
    assert list(states.values()) == ["ok", "refused", "ok"]
    assert done.status["stranger n=3 T=0"].reason
    assert len(rows_of(done)) == 8
    assert any(isinstance(e, Notice) for e in events)


def test_a_baseline_that_is_refused_is_an_error(bench):
    runner, sessions, _ = bench([BASELINE])
    sessions._context = ContextSettings(n_ctx=256, threads=1, kv_type="no such type")
    with pytest.raises(LocalspecError):
        runner.run()


def kill_on(method, times):
    """Kill the engine when a run of this method has begun, so many times."""
    left = [times]

    def tell(event, sessions):
        wanted = isinstance(event, Running) and event.slot.candidate.drafter.method == method
        if wanted and event.tokens == 0 and left[0]:
            left[0] -= 1
            os.kill(sessions.engine.pid, signal.SIGKILL)

    return tell


def test_a_killed_engine_costs_one_run_which_is_made_again(bench):
    runner, _, _ = bench([BASELINE, NGRAM], tell=kill_on("ngram", 1))
    done = runner.run()
    crashed = [r for r in done.rows if "crashed" in r.flags]
    assert len(crashed) == 1
    assert crashed[0].generation is None
    status = done.status["ngram n=4 T=0"]
    assert status.state == "crashed"
    assert "SIGKILL" in status.reason
    assert done.status["none n=0 T=0"].state == "ok"
    table = analyse(done.plan, done.rows)
    assert [m.figures.runs for m in table.values()] == [4, 4]
    assert table["ngram n=4 T=0"].decode.pairs == 4


def test_what_follows_a_crash_is_said_as_it_comes(bench, monkeypatch):
    """In the warm-up the same again; a run is left out where the minute is over before it could be
    made again."""
    killing = kill_on("ngram", 1)

    def kill(event, sessions):
        if isinstance(event, WarmingUp) and event.number == 1:
            os.kill(sessions.engine.pid, signal.SIGKILL)
        killing(event, sessions)

    monkeypatch.setattr(runner_module, "QUICK_SECONDS", 0.0)
    runner, _, events = bench([BASELINE, NGRAM], tell=kill, quick=True)
    done = runner.run()
    assert sum("crashed" in r.flags for r in done.rows) == 1
    assert not rows_of(done, "repeat")
    first, second = [e.text for e in events if isinstance(e, Notice) and "SIGKILL" in e.text]
    assert first.startswith("none n=0") and first.endswith(" It is tried again.")
    assert second.startswith("ngram n=4") and second.endswith(" Its other runs go on.")


def test_a_candidate_that_keeps_killing_the_engine_is_given_up(bench):
    draft = DrafterSettings("ngram", "other", n_max=2)
    runner, _, events = bench([BASELINE, NGRAM, draft], tell=kill_on("ngram", 99))
    done = runner.run()
    assert [s.state for s in done.status.values()] == ["ok", "crashed", "crashed"]
    assert [s.crashes for s in done.status.values()] == [0, 2, 2]
    assert sum(r.generation is not None for r in rows_of(done)) == 4
    assert sum("given up" in e.text for e in events if isinstance(e, Notice)) == 2


def test_the_baseline_crashing_for_good_ends_the_measurement_with_its_rows(bench):
    runner, _, _ = bench([BASELINE, NGRAM], tell=kill_on("none", 99))
    done = runner.run()
    assert done.status["none n=0 T=0"].state == "crashed"
    assert done.status["ngram n=4 T=0"].state == "interrupted"
    assert not done.interrupted


def test_ctrl_c_keeps_what_is_finished_and_marks_what_is_not(bench):
    def tell(event, sessions):
        if isinstance(event, Running) and event.done == 3 and event.tokens > 0:
            raise KeyboardInterrupt

    runner, _, _ = bench([BASELINE, NGRAM], tell=tell)
    done = runner.run()
    assert done.interrupted
    assert [s.state for s in done.status.values()] == ["interrupted"] * 2
    assert len(done.rows) == 4
    assert "cancelled" in done.rows[-1].flags
    assert not done.rows[-1].counts_for_figures


@pytest.mark.parametrize("when", [WarmingUp, Running], ids=["warming-up", "running"])
def test_an_engine_that_was_closed_is_no_crash_and_is_not_started_again(bench, when):
    """As the app does when the person leaves, from another thread."""
    starts = []

    def gone():
        starts.append(1)
        raise EngineClosed

    def leave(event, sessions):
        if isinstance(event, when) and getattr(event, "done", 3) == 3:
            sessions.engine.close()

    runner, sessions, events = bench([BASELINE, NGRAM], tell=leave)
    sessions._hosts = {None: Host(gone)}
    done = runner.run()
    sessions.close()
    assert done.state == "interrupted"
    assert not any(r.flags & {"crashed"} for r in done.rows)
    assert len(done.rows) == (3 if when is Running else 0)
    assert {s.state for s in done.status.values()} == {"interrupted"}
    assert not any(isinstance(e, Notice) for e in events)
    assert len(starts) == (when is WarmingUp), "a context was to be opened"


@pytest.mark.parametrize("error", [EngineClosed(), EngineDied("signal SIGKILL", [])])
def test_an_engine_that_ends_with_the_measurement_takes_nothing_from_it(bench, monkeypatch, error):
    """It is still alive when its contexts are to be freed, and gone when it is asked to."""

    def gone(_session):
        raise error

    _, sessions, _ = bench([BASELINE])
    sessions._open = {"baseline": None}
    monkeypatch.setattr(sessions.engine, "close_session", gone)
    sessions.close()


def test_a_disturbed_run_is_made_again_next_to_the_baseline_and_replaced(bench):
    Stormy.made = 0
    runner, _, events = bench([BASELINE, NGRAM], meter=Stormy)
    done = runner.run()
    bad = [r for r in rows_of(done) if "disturbed" in r.flags]
    assert [r.slot.order for r in bad] == [3]
    assert "replaced" in bad[0].flags
    again = rows_of(done, "repeat")
    assert {r.slot.prompt for r in again} == {bad[0].slot.prompt}
    assert len(again) == 2
    table = analyse(done.plan, done.rows)
    assert [m.figures.runs for m in table.values()] == [4, 4]
    assert table["ngram n=4 T=0"].decode.pairs == 4
    assert [e.phase for e in events if isinstance(e, Starting)] == ["main", "repeat"]


def test_a_run_in_which_the_machine_stood_still_is_made_again(bench, monkeypatch):
    monkeypatch.setattr(runner_module, "SHORTEST_READING", 0.0)
    monkeypatch.setattr(runner_module, "time", Sleepy.clock)
    Sleepy.made = 0
    runner, _, _ = bench([BASELINE, NGRAM], meter=Sleepy)
    done = runner.run()
    assert [r.slot.order for r in rows_of(done) if "disturbed" in r.flags] == [3]
    assert len(rows_of(done, "repeat")) == 2


def test_blocks_have_one_context_at_a_time(bench):
    open_at_once = []

    def tell(event, sessions):
        if isinstance(event, Running) and event.tokens == 0:
            open_at_once.append(len(sessions._open))

    other = DrafterSettings("ngram", "ngram", n_max=2)
    runner, sessions, _ = bench([BASELINE, NGRAM, other], together=False, tell=tell)
    done = runner.run()
    assert set(open_at_once) == {1}
    assert not done.together
    order = [r.slot.candidate.is_baseline for r in rows_of(done)]
    assert order == ([True] * 2 + [False] * 4 + [True] * 2) * 2
    table = analyse(done.plan, done.rows)
    assert [m.decode.pairs for m in table.values()] == [0, 4, 4]
    found = audit(done.plan, done.rows, sessions)
    assert all(a.identical for a in found.values())


def test_quick_takes_no_more_prompts_than_its_minute_allows(bench, monkeypatch):
    monkeypatch.setattr("localspec.bench.runner.QUICK_SECONDS", 0.0)
    monkeypatch.setattr("localspec.bench.runner.QUICK_FEWEST", 2)
    runner, _, _ = bench([BASELINE, NGRAM], quick=True)
    done = runner.run()
    assert len(done.plan.prompts) == 2
    assert len(done.rows) == 4


def test_quick_leaves_out_what_it_finds_no_time_for(bench, monkeypatch):
    monkeypatch.setattr("localspec.bench.runner.QUICK_FEWEST", 2)

    def tell(event, sessions):
        if isinstance(event, Ran):  # the machine turns out slower than the warm-up was
            monkeypatch.setattr("localspec.bench.runner.QUICK_SECONDS", 0.0)

    runner, _, events = bench([BASELINE, NGRAM], quick=True, tell=tell)
    done = runner.run()
    assert [p.prompt.id for p in done.plan.prompts] == ["p0", "p1"]
    assert len(done.rows) == 4
    assert {s.state for s in done.status.values()} == {"ok"}
    assert "2 prompts were measured" in events[-1].text


def test_a_model_that_says_nothing_gives_no_figures_and_no_error(tiny_silent):
    engine = Engine()
    engine.load(tiny_silent)
    with engine:
        context = ContextSettings(n_ctx=256, threads=1)
        prompts = tuple(
            Prepared(Prompt(f"p{i}", "w", (("user", "a"),)), engine.tokenize("abc"))
            for i in range(3)
        )
        candidates = tuple(Candidate(d.name, d.name, d, 0.0) for d in (BASELINE, NGRAM))
        plan = Plan(prompts, candidates, context, SamplerSettings(), 16, 1, 0)
        sessions = Sessions(engine, lambda: engine, context, True)
        done = Runner(plan, sessions, lambda event: None, Calm).run()
    assert all(r.generation.stop == "eog" for r in done.rows)
    for m in analyse(plan, done.rows).values():
        assert m.figures.decode_tps is None
        assert m.figures.counts.accept_length is None
        assert m.decode.speedup is None


class Scripted:
    """Sessions and engine in one, whose candidates run at given speeds (with a little noise)."""

    pid = os.getpid()
    alive = together = True

    def __init__(self, made, speeds):
        self.engine, self._made, self._speeds = self, made, speeds
        self.notes = {}
        self._noise = random.Random(1)

    def use(self, candidate, *beside): ...

    def stream(self, session, prompt, **options):
        tps = self._speeds[session] * (1 + self._noise.gauss(0, 0.01))
        stream = iter(())
        return type(
            "Stream", (), {"__iter__": lambda _: stream, "result": self._made.generation(tps=tps)}
        )()


@pytest.fixture
def scripted(made):
    def run(speeds, **more):
        people = [made.candidate(), made.candidate("small", 3), made.candidate("small", 8)]
        people = people[: len(speeds)]
        prompts = [made.prompt(f"p{i}") for i in range(6)]
        plan = made.plan(people, prompts, **more)
        sessions = Scripted(made, {c.session: v for c, v in zip(people, speeds, strict=True)})
        return people, Runner(plan, sessions, lambda event: None, Calm).run()

    return run


def test_a_winner_among_several_is_measured_again_on_new_runs(scripted):
    (base, small3, _), done = scripted([100, 130, 110], runs=2)
    again = rows_of(done, "confirm")
    assert {r.slot.candidate for r in again} == {base, small3}
    assert len(again) == 2 * 6 * 2
    assert not {r.slot.seed for r in again} & {r.slot.seed for r in rows_of(done)}
    table = analyse(done.plan, done.rows)
    assert table[small3.key].chosen is not None
    assert table[small3.key].verdict == "faster"


@pytest.mark.parametrize(
    ("speeds", "more"),
    [([100, 130, 110], {"quick": True}), ([100, 90, 80], {}), ([100, 130], {})],
    ids=["quick", "no winner", "nothing was chosen"],
)
def test_nothing_is_measured_again_where_there_is_no_need(scripted, speeds, more):
    _, done = scripted(speeds, **more)
    assert rows_of(done, "confirm") == []
