"""An interrupted bench and what becomes of it: nothing is judged, nothing is lost, it goes on."""

import contextlib
import io
import json
import os
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.bench import command, history, resume
from localspec.bench.analysis import analyse
from localspec.bench.plan import Base
from localspec.bench.progress import Quiet
from localspec.bench.rows import pair_up
from localspec.bench.runner import Ran, Runner, Running, Starting, WarmingUp
from localspec.errors import UsageError
from localspec.machine import Sample
from localspec.records import BenchOptions, EngineOptions


class Scripted:
    """Sessions and engine in one: candidates of given speeds."""

    pid = os.getpid()
    alive = True

    def __init__(self, made, speeds, together=True):
        self.notes = {}
        self.engine, self._made, self._speeds, self.together = self, made, speeds, together
        self._noise = random.Random(1)

    def use(self, candidate, *beside): ...

    def stream(self, session, prompt, **options):
        tps = self._speeds[session] * (1 + self._noise.gauss(0, 0.01))
        one = self._made.generation(tps=tps)
        return type("Stream", (), {"__iter__": lambda _: iter(()), "result": one})()


class Weather:
    """Other load rises during the runs of these numbers."""

    def __init__(self, *bad):
        self.bad, self.made = bad, 0

    def __call__(self, pids=()):
        self.made += 1
        load = 0.9 if self.made in self.bad else 0.0
        return type("Meter", (), {"sample": lambda _: Sample(load, 3000.0)})()


@pytest.fixture
def bench(made):
    """bench(stop, ...): a measurement that Ctrl-C ends when ``stop`` runs are made."""
    people = [made.candidate(), made.candidate("small", 3), made.candidate("small", 8)]
    prompts = [made.prompt(f"p{i}", "chat" if i % 2 else "code") for i in range(6)]
    speeds = dict(zip(("baseline", "small n=3", "small n=8"), (100, 130, 110), strict=True))

    on_bases = [
        replace(
            c,
            key=f"{c.key} {b}",
            session=f"{b}: {c.session}",
            base=Base(b, None if b == "A" else b),
        )
        for b in "AB"
        for c in people[:2]
    ]
    speeds |= dict(zip((c.session for c in on_bases), (100, 130, 150, 120), strict=True))

    def run(stop=None, earlier=None, bad=(), together=True, plan=None, sweep=False, **more):
        plan = plan or made.plan(on_bases if sweep else people, prompts, **more)
        events = []

        def tell(event):
            events.append(event)
            if stop is not None and sum(isinstance(e, Ran) for e in events) == stop:
                raise KeyboardInterrupt

        sessions = Scripted(made, speeds, together)
        runner = Runner(plan, sessions, tell, Weather(*bad), earlier)
        return runner.run(), events

    return run


def stored(done, tmp_path, options=None):
    """What a result file keeps of it, read again."""
    section = resume.keep(options or BenchOptions("m"), {}, done, "2026-01-01", ())
    file = tmp_path / "r.json"
    file.write_text(json.dumps({"candidates": [], "resume": section}))
    return resume.read(str(file))


def counted(done, phase):
    return Counter(
        (r.slot.candidate.key, r.slot.prompt.prompt.id, r.slot.run)
        for r in done.rows
        if r.slot.phase == phase and r.counts_for_figures
    )


def once(done):
    """The runs that count, of the first measurement. A baseline has several of a prompt in blocks,
    so of it only which."""
    runs = counted(done, "main") + counted(done, "repeat")
    return {run: n if not run[0].startswith("baseline") else 1 for run, n in runs.items()}


# ---- interrupted ------------------------------------------------------------------------------


def test_disturbed_runs_are_flagged_though_the_end_never_came(bench):
    done, _ = bench(stop=8, bad=(3,))
    assert [r.slot.order for r in done.rows if "disturbed" in r.flags] == [2]
    assert done.state == "interrupted"


def test_a_repeat_cut_in_its_middle_counts_for_nothing(bench):
    whole, _ = bench(bad=(2,))
    main = sum(r.slot.phase == "main" for r in whole.rows)
    repeated = sum(r.slot.phase == "repeat" for r in whole.rows)
    assert repeated > 1
    for made_again in range(1, repeated):
        done, _ = bench(stop=main + made_again, bad=(2,))
        assert set(counted(done, "main").values()) == {1}
        assert not counted(done, "repeat")
        table = analyse(done.plan, done.judged)
        assert [m.decode.pairs for m in table.values()] == [0, 6, 6]


def test_a_winner_half_measured_again_is_not_called_confirmed(bench):
    done, _ = bench(stop=18 + 5)
    assert sum(r.slot.phase == "confirm" for r in done.rows) == 5
    assert all(m.chosen is None for m in analyse(done.plan, done.judged).values())


# ---- resumed ----------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [True, False], ids=["interleaved", "blocks"])
@pytest.mark.parametrize("bad", [(), (5,)], ids=["calm", "disturbed"])
@pytest.mark.parametrize("runs", [1, 2])
def test_wherever_it_stopped_the_resumed_bench_is_whole(bench, tmp_path, together, bad, runs):
    """Every run of the plan counts once, and no run is paired with one of another sitting."""
    setting = {"together": together, "bad": bad, "runs": runs}
    whole, _ = bench(**setting)
    total = len(whole.rows)
    for stop in range(1, total, runs):
        cut, _ = bench(stop=stop, **setting)
        assert len(cut.rows) == stop
        plan, earlier = resume.earlier(cut.plan, stored(cut, tmp_path))
        assert plan == cut.plan
        assert earlier.rows == cut.rows
        done, _ = bench(plan=plan, earlier=earlier, together=together)
        assert done.state == "complete"
        assert once(done) == once(whole)
        assert counted(done, "confirm") == counted(whole, "confirm")
        table = analyse(done.plan, done.judged)
        expected = analyse(whole.plan, whole.judged)
        for key, m in table.items():
            other = expected[key]
            assert (m.decode.pairs, m.verdict) == (other.decode.pairs, other.verdict)
            assert (m.chosen is None) == (other.chosen is None)
            for row, partner in pair_up(done.rows, key, "baseline T=0"):
                assert row.sitting == partner.sitting
        kept = [r for r in done.rows if r.sitting == 0]
        assert [r.slot for r in kept] == [r.slot for r in cut.rows]
        parted = sum("parted" in r.flags for r in kept)
        block = 2 * len(plan.prompts) * runs
        assert parted < (3 if together else block), "only what was half made is made again"


@pytest.mark.parametrize("together", [True, False], ids=["interleaved", "blocks"])
def test_a_resumed_sweep_is_whole(bench, tmp_path, together):
    whole, _ = bench(sweep=True, together=together)
    expected = analyse(whole.plan, whole.judged)
    for stop in range(1, len(whole.rows), 5):
        cut, _ = bench(stop=stop, sweep=True, together=together)
        plan, earlier = resume.earlier(cut.plan, stored(cut, tmp_path))
        done, _ = bench(plan=plan, earlier=earlier, together=together)
        assert done.state == "complete"
        table = analyse(done.plan, done.judged)
        for key, m in table.items():
            other = expected[key]
            assert m.over_reference.pairs == other.over_reference.pairs
            assert (m.verdict, m.reference_verdict) == (other.verdict, other.reference_verdict)
            for row, partner in pair_up(done.rows, key, "baseline T=0 A"):
                assert row.sitting == partner.sitting


def test_it_can_be_interrupted_and_resumed_again(bench, tmp_path):
    cut, _ = bench(stop=4)
    plan, earlier = resume.earlier(cut.plan, stored(cut, tmp_path))
    again, events = bench(stop=5, plan=plan, earlier=earlier)
    start = next(e for e in events if isinstance(e, Starting))
    assert (start.rows, start.kept) == (15, 3), "the one of a prompt half done is made again"
    plan, earlier = resume.earlier(plan, stored(again, tmp_path))
    done, events = bench(plan=plan, earlier=earlier)
    assert {r.sitting for r in done.rows} == {0, 1, 2}
    assert set(counted(done, "main").values()) == {1}
    assert done.state == "complete"


def test_load_is_judged_sitting_by_sitting(bench, tmp_path):
    """A machine that was busier on the second day disturbs no comparison of that day."""
    cut, _ = bench(stop=9)
    plan, earlier = resume.earlier(cut.plan, stored(cut, tmp_path))
    done, _ = bench(plan=plan, earlier=earlier, bad=range(1, 99))
    assert not any("disturbed" in r.flags for r in done.rows)


def test_a_quick_bench_keeps_the_prompts_it_chose(bench, tmp_path, monkeypatch):
    monkeypatch.setattr("localspec.bench.runner.QUICK_SECONDS", 0.0)
    cut, _ = bench(stop=2, quick=True)
    assert len(cut.plan.prompts) == 4
    assert cut.plan.max_tokens == 32
    monkeypatch.setattr("localspec.bench.runner.QUICK_SECONDS", 1000.0)
    whole = replace(cut.plan, prompts=(), max_tokens=64)
    every = {p.prompt.id: p for p in (*cut.plan.prompts,)}
    plan, earlier = resume.earlier(
        replace(whole, prompts=tuple(every.values())), stored(cut, tmp_path)
    )
    done, _ = bench(plan=plan, earlier=earlier)
    assert (done.plan.prompts, done.plan.max_tokens) == (cut.plan.prompts, 32)
    assert len(counted(done, "main")) == 4 * 3


def test_a_candidate_that_was_given_up_stays_so(bench, tmp_path):
    cut, _ = bench(stop=9)
    status = cut.status["small n=3 T=0"]
    status.state, status.reason, status.given_up = "refused", "no", True
    plan, earlier = resume.earlier(cut.plan, stored(cut, tmp_path))
    done, _ = bench(plan=plan, earlier=earlier)
    assert done.state == "refused"
    assert done.status["small n=3 T=0"].reason == "no"
    assert counted(done, "main")["small n=8 T=0", "p5", 0] == 1
    assert counted(done, "main")["small n=3 T=0", "p5", 0] == 0


# ---- the estimate -----------------------------------------------------------------------------


class Clock:
    """Time passes only where a test says so."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def timed(made, monkeypatch):
    """A bench on a clock of its own: runs take ``seconds``, their warm-up promises less (the
    machine gets slower). Gives the events with their times, and the end."""
    clock = Clock()
    monkeypatch.setattr("localspec.bench.runner.time", clock)
    seconds = {"baseline": 2.0, "small n=3": 4.0}

    class Slow(Scripted):
        def stream(self, session, prompt, **options):
            warm = options["max_tokens"] < 32
            clock.now += seconds[session] / (4 if warm else 1)
            return super().stream(session, prompt, **options)

    def run(prompts, weather, **more):
        people = [made.candidate(), made.candidate("small", 3)]
        plan = made.plan(people, [made.prompt(f"p{i}") for i in range(prompts)], **more)
        events = []
        sessions = Slow(made, dict.fromkeys(seconds, 50))
        Runner(plan, sessions, lambda e: events.append((clock.now, e)), weather).run()
        return events, clock.now

    return run


def test_the_estimate_is_of_the_whole_and_comes_true(timed):
    """The repeat of a disturbed run is in what is left, as soon as that run is made."""
    events, ended = timed(6, Weather(4))
    warm = [e.seconds for _, e in events if isinstance(e, WarmingUp)]
    assert warm[0] is None
    assert warm[1] > 0
    made_so_far = [(at, e) for at, e in events if isinstance(e, Ran)]
    assert [e.row.slot.phase for _, e in made_so_far] == ["main"] * 12 + ["repeat"] * 2
    for at, event in made_so_far[3:]:
        assert event.eta == pytest.approx(ended - at)


def test_one_slow_run_moves_what_is_expected_of_the_others_by_its_share(timed):
    events, _ = timed(6, Weather())
    (start,) = [e.seconds for _, e in events if isinstance(e, Starting)]
    first, second = [e for _, e in events if isinstance(e, Ran)][:2]
    promised = start / 12  # of either candidate
    came = {"none": 2.0, "draft-model": 4.0}[first.row.slot.candidate.drafter.method]
    slower = (came + promised) / (2 * promised)
    assert 1 < slower < came / promised
    assert first.eta == pytest.approx(5 * came + 6 * promised * slower, rel=0.02)
    assert second.eta == pytest.approx(5 * (2.0 + 4.0))


def test_a_quick_bench_foresees_no_more_than_its_minute(timed):
    events, ended = timed(60, Weather(), quick=True)
    (foreseen,) = [e.seconds for _, e in events if isinstance(e, WarmingUp) and e.seconds]
    (start,) = [e.seconds for _, e in events if isinstance(e, Starting)]
    assert 50 < foreseen <= 60
    assert 50 < start <= 60
    assert 55 < ended - 1000 < 66


def test_differences_to_be_classed_are_in_what_is_left(made):
    people = [made.candidate(), made.candidate("small", 3)]
    plan = made.plan(people, [made.prompt(f"p{i}") for i in range(3)])

    class Parted(Scripted):
        def stream(self, session, prompt, **options):
            parted = (1,) if session == "small n=3" and options["max_tokens"] == 64 else ()
            one = made.generation((*parted, *range(100, 164 - len(parted))))
            return type("Stream", (), {"__iter__": lambda _: iter(()), "result": one})()

    events = []
    Runner(plan, Parted(made, {}), events.append, Weather()).run()
    last = [e for e in events if isinstance(e, Ran)][-1]
    assert last.done == last.total == 6
    assert last.eta > 0.5


# ---- from options to files --------------------------------------------------------------------


class Interrupting(Quiet):
    """Presses Ctrl-C when so many runs are made."""

    def __init__(self, stop):
        self.left, self.events = stop, []

    def __call__(self, event):
        self.events.append(event)
        if isinstance(event, Ran):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt


class StoppedEarly(Quiet):
    """Presses Ctrl-C in the warm-up, or in the first run."""

    def __init__(self, when):
        self.when = when

    def __call__(self, event):
        if isinstance(event, self.when) and (self.when is WarmingUp or event.tokens):
            raise KeyboardInterrupt


def stop_after(monkeypatch, runs=10**6):
    monkeypatch.setattr(command, "display", lambda *_, **__: Interrupting(runs))


@pytest.fixture(scope="module")
def stopped(tiny_bytes, tmp_path_factory):
    """The options of a bench that was stopped after five of its six runs, its screen, its file."""
    folder = tmp_path_factory.mktemp("stopped")
    (folder / "mine.txt").write_text("Why is the sky blue?\nName three rivers.\nCount to ten.\n")
    options = BenchOptions(
        model=str(tiny_bytes),
        drafters=("ngram",),
        workloads=(str(folder / "mine.txt"),),
        n_max=(3,),
        max_tokens=12,
        ignore_eos=True,
        json=str(folder / "r.json"),
        engine=EngineOptions(threads=1, sampler={"seed": 2**60 + 1}),
    )
    with pytest.MonkeyPatch.context() as monkeypatch:
        stop_after(monkeypatch, 5)
        screen = io.StringIO()
        with contextlib.redirect_stdout(screen):
            assert command.bench(options) == 130
    return options, screen.getvalue()


@pytest.fixture
def interrupted(stopped, tmp_path, monkeypatch):
    """A copy of it, with options that name the copy."""
    folder = Path(stopped[0].json).parent
    for file in folder.iterdir():
        (tmp_path / file.name).write_text(file.read_text().replace(str(folder), str(tmp_path)))
    stop_after(monkeypatch)
    workloads = (str(tmp_path / "mine.txt"),)
    return replace(stopped[0], workloads=workloads, json=str(tmp_path / "r.json"))


def read(options):
    return json.loads(Path(options.json).read_text(encoding="utf-8"))


def test_an_interrupted_result_says_the_same_on_screen_and_in_the_file(stopped):
    """Also of a candidate whose own runs were all made."""
    options, screen = stopped
    result = read(options)
    assert result["status"] == "interrupted"
    assert [c["verdict"] for c in result["candidates"]] == ["baseline", None]
    assert "interrupted" in [c["status"] for c in result["candidates"]]
    out = " ".join(screen.split())
    for word in ("faster", "slower", "difference shown"):
        assert word not in out
    assert "Stopped before the end" in out


def test_a_resumed_bench_is_one_whole_result(interrupted, capsys):
    before = read(interrupted)
    capsys.readouterr()
    assert command.bench(BenchOptions(model="", resume=interrupted.json)) == 0
    result = read(interrupted)
    assert result["status"] == "complete"
    assert {c["status"] for c in result["candidates"]} == {"ok"}
    assert result["candidates"][1]["pairs"] == 3
    assert result["candidates"][1]["identical"] is True
    assert result["resumed"] == [{"created": before["created"], "runs": 5}]
    assert result["resume"] is None
    kept = [r for r in result["rows"] if r["sitting"] == 0]
    assert [r["decode_tps"] for r in kept] == [r["decode_tps"] for r in before["rows"]]
    made_now = [r for r in result["rows"] if r["sitting"] == 1 and r["phase"] == "main"]
    assert len(made_now) == 2, "the pair that was half made"
    assert result["settings"] == before["settings"]
    out = capsys.readouterr().out
    rows = len(result["rows"])
    assert f"5 of {rows} runs are from an earlier sitting" in " ".join(out.split())


def test_in_the_history_it_takes_the_place_of_what_it_goes_on_with(
    interrupted, tmp_path, monkeypatch
):
    """Once: what is gone on with a second time is a bench of its own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    before, again = read(interrupted), tmp_path / "again.json"
    again.write_text(Path(interrupted.json).read_text())
    one = history.keep(before)
    other = history.keep({**before, "created": "2026-01-01T10:00:00+00:00"})

    def kept():
        return {p.id: p.status for p in history.past()}

    assert command.bench(BenchOptions(model="", resume=interrupted.json)) == 0
    assert kept() == {one: "complete", other: "interrupted"}
    assert command.bench(BenchOptions(model="", resume=str(again))) == 0
    assert kept() == {one: "complete", other: "interrupted", other + 1: "complete"}


@pytest.mark.parametrize("when", [WarmingUp, Running], ids=["warming-up", "running"])
def test_where_no_run_was_finished_nothing_is_kept_and_it_is_said(
    interrupted, tmp_path, monkeypatch, capsys, when
):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(command, "display", lambda *_, **__: StoppedEarly(when))
    monkeypatch.setattr(
        Runner.__init__, "__kwdefaults__", {**Runner.__init__.__kwdefaults__, "interval": 0.0}
    )
    before = read(interrupted)
    number = history.keep(before)
    again = str(tmp_path / "again.json")
    asked = [BenchOptions(model="", resume=interrupted.json), replace(interrupted, json=again)]
    for options, goes_on in zip(asked, (True, False), strict=True):
        capsys.readouterr()
        assert command.bench(options) == 130
        said = " ".join(capsys.readouterr().err.split())
        assert "No run came to its end: nothing was measured." in said
        assert ("Go on with:" in said) == goes_on
        assert [p.id for p in history.past()] == [number]
        assert history.read(str(number)) == before


def test_how_to_go_on_is_said_and_works_though_no_file_was_asked_for(
    interrupted, tmp_path, monkeypatch, capsys
):
    folder = str(tmp_path / "s")
    monkeypatch.setattr(command.platformdirs, "user_state_dir", lambda *_, **__: folder)
    stop_after(monkeypatch, 3)
    assert command.bench(replace(interrupted, json=None)) == 130
    said = capsys.readouterr().err
    file = tmp_path / "s" / "interrupted.json"
    assert f"Go on with: localspec bench --resume {file}" in said
    stop_after(monkeypatch)
    assert command.bench(BenchOptions(model="", resume=str(file))) == 0


def test_the_same_command_with_resume_behind_it_is_taken(interrupted):
    assert command.bench(replace(interrupted, resume=interrupted.json)) == 0


def test_what_becomes_of_the_result_may_be_another_matter_now():
    stored = BenchOptions("m", csv="a.csv", max_tokens=12, engine=EngineOptions(threads=3))
    own = {
        "json": "b.json", "markdown": "b.md", "quiet": True, "strict": True, "save": False,
        "fail_below": 1.1, "fail_on_regression": 5.0, "resume": "r.json",
    }  # fmt: skip
    given = replace(BenchOptions(""), **own, engine=EngineOptions(log_file="e.log"))
    engine = replace(stored.engine, log_file="e.log")
    assert resume.merged(given, stored) == replace(stored, **own, engine=engine)
    only = resume.merged(BenchOptions("", resume="r.json"), stored)
    assert only == replace(stored, json="r.json", resume="r.json")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"max_tokens": 13}, "--max-tokens 12 then, 13 now"),
        ({"n_max": (3, 5)}, "--n-max 3 then, 3,5 now"),
        ({"drafters": ("none",)}, "--drafter ngram then, none now"),
        ({"quick": True}, "--quick not given then, given now"),
        ({"temperatures": (0.8,)}, "--temperature not given then, 0.8 now"),
        ({"engine": EngineOptions(threads=2)}, "--threads 1 then, 2 now"),
        ({"engine": EngineOptions(kv_type="q8_0")}, "--kv-type f16 then, q8_0 now"),
        ({"engine": EngineOptions(sampler={"seed": 7})}, f"--seed {2**60 + 1} then, 7 now"),
    ],
)
def test_another_measurement_is_refused_by_its_options(interrupted, monkeypatch, change, said):
    def no_engine(*_, **__):
        raise AssertionError("an engine was started")

    monkeypatch.setattr(command, "connect", no_engine)
    with pytest.raises(UsageError) as refused:
        command.bench(replace(BenchOptions(model="", resume=interrupted.json), **change))
    assert said in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize(
    ("fact", "was", "said"),
    [
        ("processor", "Abacus 9000", "processor Abacus 9000 then, "),
        ("cores", 4096, "cores 4096 then, "),
        ("llama.cpp", "b1", "llama.cpp b1 then, "),
        ("localspec", "0.0.1", "localspec 0.0.1 then, "),
        ("hash of the target's file", "f" * 64, "hash of the target's file ffffffffffff... then, "),
        ("size of the target's file", 5, "size of the target's file 5 then, "),
        ("ngram n=3: ngram_max", 9, "ngram n=3: ngram_max 9 then, 4 now"),
        ("threads", 7, "threads 7 then, 1 now"),
    ],
)
def test_another_machine_build_or_file_is_named(interrupted, fact, was, said):
    now = read(interrupted)["resume"]["facts"]
    resume.check(now, now)
    assert fact in now
    with pytest.raises(UsageError) as refused:
        resume.check(now | {fact: was}, now)
    assert said in refused.value.message
    assert refused.value.message.count(" then, ") == 1
    assert refused.value.hint


def test_a_file_of_another_machine_is_refused_and_stays_as_it_was(interrupted):
    result = read(interrupted)
    result["resume"]["facts"]["processor"] = "Abacus 9000"
    text = json.dumps(result)
    Path(interrupted.json).write_text(text)
    with pytest.raises(UsageError, match="processor Abacus 9000 then, "):
        command.bench(BenchOptions(model="", resume=interrupted.json))
    assert Path(interrupted.json).read_text() == text


def test_changed_prompts_are_refused(interrupted, tmp_path):
    (tmp_path / "mine.txt").write_text("Why is the sky blue?\nName three rivers.\nCount to 11.\n")
    with pytest.raises(UsageError, match="hash of the prompts"):
        command.bench(BenchOptions(model="", resume=interrupted.json))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        ("hello", "is no result of localspec bench"),
        ("[]", "is no result of localspec bench"),
        ('{"candidates": []}', "nothing is missing in it"),
        ('{"candidates": [], "resume": {"options": 3}}', "is damaged"),
    ],
)
def test_a_file_that_cannot_be_resumed_is_a_sentence(tmp_path, content, said):
    file = tmp_path / "r.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UsageError, match=said) as refused:
        command.bench(BenchOptions(model="", resume=str(file)))
    assert refused.value.message.startswith(f"--resume: {file}")
    assert refused.value.hint
