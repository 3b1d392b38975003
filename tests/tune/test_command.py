"""``localspec tune`` on the real engine, with the tests' tiny models."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from impatience import press_ctrl_c, slow_to_end
from rich.console import Console

from localspec.bench import gates, history, runner
from localspec.bench.past_table import measured
from localspec.bench.result_schema import Result
from localspec.bench.statistics import FEWEST_PAIRS
from localspec.errors import LocalspecError, StoreError, UsageError
from localspec.records import BenchOptions, EngineOptions
from localspec.tune import profiles
from localspec.tune.command import TuneOptions, select, tune
from localspec.tune.report import render
from localspec.tune.space import Space

PROMPTS = "\n".join(
    f"{n} the same words, {n} the same words again" for n in ("one", "two", "six", "ten", "four")
)


@pytest.fixture(autouse=True)
def _own_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def options(tiny_bytes, tmp_path):
    workload = tmp_path / "mine.txt"
    workload.write_text(PROMPTS)
    bench = BenchOptions(
        model=str(tiny_bytes),
        drafters=("ngram",),
        workloads=(str(workload),),
        max_tokens=40,
        json=str(tmp_path / "t.json"),
        engine=EngineOptions(threads=1),
    )
    return TuneOptions(bench, minutes=0.2)


def result_of(options):
    return json.loads(Path(options.bench.json).read_text())


def one_disturbed(rows):
    """The first run of the winner that compares, and no other."""
    mine = (r for r in rows if r.slot.phase == "confirm" and not r.slot.candidate.is_baseline)
    first = next(mine, None)
    return [r.flagged("disturbed") if r is first else r for r in rows]


def test_from_options_to_result_and_profile(options, capsys, monkeypatch):
    monkeypatch.setattr(runner, "mark_disturbed", one_disturbed)
    assert tune(options) == 0
    result = result_of(options)
    out, err = capsys.readouterr()
    assert result["why"] in " ".join(out.split())
    assert "budget 12 s, loading not counted" in " ".join(err.split())
    assert "round 1, " in err
    held_out = result["held_out"]
    assert held_out["apart"]
    assert len(held_out["choosing"]) + len(held_out["comparing"]) == 5
    for row in result["rows"]:
        part = "choosing" if row["phase"] == "main" else "comparing"
        assert [row["workload"], row["prompt"]] in held_out[part]
    compared = {r["drafter"] for r in result["rows"] if r["phase"] == "confirm"}
    assert compared == {"none", result["winner"]["drafter"]}
    assert result["winner"]["identical"]
    assert result["winner"]["pairs"] * 2 <= sum(r["phase"] == "confirm" for r in result["rows"])
    for made in result["rounds"]:
        assert made["candidates"]
        assert made["prompts"] <= min(len(held_out["choosing"]), made["runs"])
    # that it is kept is tested with a clock of its own (test_course.py)
    assert 0 < sum(made["seconds"] for made in result["rounds"]) <= result["budget"]["spent"]
    assert "end in a loop" not in out
    looping = result | {"rows": [r | {"flags": ["repeats"]} for r in result["rows"]]}
    console = Console(width=200, record=True)
    console.print(render(looping, console))
    runs = sum(r["phase"] == "confirm" for r in result["rows"])
    assert f"{runs} of the {runs} runs compared end in a loop" in console.export_text()
    decided = result["decision"] != "undecided"
    assert decided == bool(profiles.names()) == (result["profile_file"] is not None)
    (line,) = history.past(["tune", "mine"])
    assert line.id == result["benchmark"]
    assert f"benchmark {line.id} of `localspec history`" in out
    past = history.read("last")
    Result.model_validate(past)
    assert (past["status"], past["resume"]) == ("complete", None)
    assert [c["method"] for c in past["candidates"]] == ["none", "ngram"]
    for figure in ("speedup", "speedup_ci", "pairs", "decode_tps", "identical", "n_max"):
        assert past["candidates"][1][figure] == result["winner"][figure]
    assert past["candidates"][0]["decode_tps"] == result["baseline_tps"]
    enough = runs // 2 > FEWEST_PAIRS  # without the disturbed one
    for kept in (result["rows"], past["rows"]):
        assert sum("left-out" in r["flags"] for r in kept) == 2 * enough
    assert {c["runs"] for c in past["candidates"]} == {runs // 2 - enough}
    assert ("; 2, with those beside them, are left out" in " ".join(out.split())) == enough
    assert [[p["workload"], p["id"]] for p in past["prompts"]] == held_out["comparing"]
    assert "by tune" in measured(line)
    assert gates.last_alike(past) is None, "a benchmark is compared with benchmarks"
    if decided:
        kept = profiles.read(profiles.names()[0])
        assert kept.measured.speedup == result["winner"]["speedup"]
        assert (kept.drafter is None) == (result["decision"] == "baseline")


def test_a_history_that_cannot_be_written_is_said_before_anything_runs(options, tmp_path):
    file = tmp_path / "data" / "localspec" / "localspec.db"
    file.parent.mkdir(parents=True)
    file.write_text("no database" * 500)
    nothing = replace(options, bench=replace(options.bench, model="no model"))
    with pytest.raises(StoreError, match="--no-save"):
        tune(nothing)
    with pytest.raises(LocalspecError, match="no model"):
        tune(replace(nothing, save=False))


def test_drafts_that_change_the_output_are_struck_out_loudly(
    options, wrong_now_and_then, capsys, monkeypatch
):
    # without adaptive lengths: one that stops drafting leads and never comes to the fault
    distinct = Space._distinct

    def without_auto(space, settings):
        return distinct(space, (s for s in settings if s.n_max != "auto"))

    monkeypatch.setattr(Space, "_distinct", without_auto)
    assert tune(options) == 0
    result = result_of(options)
    struck = {s["key"] for s in result["struck_out"]}
    assert struck
    assert result["decision"] == "undecided"
    assert result["winner"] is None or result["winner"]["key"] not in struck
    assert profiles.names() == []
    out, err = capsys.readouterr()
    for said in (out, err):
        assert "FAILED THE AUDIT" in " ".join(said.split())


def test_a_budget_that_is_too_small_guesses_nothing(options, capsys):
    assert tune(replace(options, minutes=0.0005)) == 0
    result = result_of(options)
    assert (result["decision"], result["winner"]) == ("undecided", None)
    assert result["needs_minutes"] >= 1
    assert "it needs about" in capsys.readouterr().out
    assert profiles.names() == []


def test_the_command_that_would_decide_asks_for_the_same(options, capsys):
    engine = replace(options.bench.engine, kv_type="f32", sampler={"min_p": 0.1})
    bench = replace(options.bench, max_tokens=24, temperatures=(0.5,), engine=engine)
    assert tune(replace(options, bench=bench, minutes=0.0005, name="mine")) == 0
    said = "".join(capsys.readouterr().out.split())  # a long path is broken at the line's end
    assert f"localspectune--model{bench.model}--minutes" in said
    for words in (
        f"--drafter {','.join(bench.drafters)}",
        f"--workload {bench.workloads[0]}",
        "--temperature 0.5",
        "--max-tokens 24",
        "--kv-type f32",
        "--min-p 0.1",
        "--name mine",
    ):
        assert words.replace(" ", "") in said, words
    assert "--flash-attn" not in said


def test_ctrl_c_ends_it_with_what_is_decided_and_exit_code_130(options, tmp_path):
    bench = options.bench
    arguments = [
        "tune", "--model", bench.model, "--drafter", "ngram", "--workload", bench.workloads[0],
        "--minutes", "5", "--threads", "1", "--json", bench.json,
    ]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "localspec", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        env={**slow_to_end(tmp_path), "PYTHONUNBUFFERED": "1"},
    )
    for line in process.stderr:
        if line.startswith("budget"):
            break
    press_ctrl_c(process)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "Stopped before a candidate was chosen." in out
    assert result_of(options)["status"] == "interrupted"
    assert profiles.names() == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"drafters": ("none",)}, "no drafter to choose among"),
        ({"max_tokens": 1}, "--max-tokens 1"),
        ({"workloads": ("nothing",)}, "no workload"),
    ],
)
def test_what_cannot_be_tuned_is_said_before_anything_runs(options, change, said):
    with pytest.raises(UsageError, match=said):
        select(replace(options, bench=replace(options.bench, **change)))


def test_two_prompts_are_refused_and_a_name_is_checked_first(options, tmp_path):
    two = tmp_path / "two.txt"
    two.write_text("a\nb")
    with pytest.raises(UsageError, match="Two prompts"):
        select(replace(options, bench=replace(options.bench, workloads=(str(two),))))
    with pytest.raises(UsageError, match="name of a profile"):
        select(replace(options, name="a/b"))
