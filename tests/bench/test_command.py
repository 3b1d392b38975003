"""``localspec bench`` from options to files, on the real engine."""

import json
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from impatience import press_ctrl_c, slow_to_end
from patience import FOREVER
from terminal import Terminal

from localspec.bench import command, history
from localspec.bench.command import bench, select
from localspec.bench.gates import GateFailed
from localspec.bench.result_schema import Result
from localspec.errors import (
    DrafterError,
    LocalspecError,
    ModelFileError,
    StoreError,
    UsageError,
)
from localspec.records import BenchOptions, EngineOptions
from localspec.store import Store

PROMPTS = "Why is the sky blue?\nName three rivers of Europe.\nCount from one to ten, please.\n"


@pytest.fixture
def workload(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text(PROMPTS)
    return str(file)


@pytest.fixture
def options(tiny_bytes, workload, tmp_path):
    return BenchOptions(
        model=str(tiny_bytes),
        drafters=("ngram",),
        workloads=(workload,),
        n_max=(3,),
        max_tokens=12,
        ignore_eos=True,
        json=str(tmp_path / "r.json"),
        engine=EngineOptions(threads=1),
    )


def read(options):
    with open(options.json, encoding="utf-8") as file:  # noqa: PTH123
        return json.load(file)


def test_the_demo_model_end_to_end(workload, tmp_path, capsys):
    options = BenchOptions(
        model="demo", workloads=(workload,), n_max=(3,), max_tokens=12, strict=True,
        drafters=("draft-model", "ngram"),
        json=str(tmp_path / "r.json"), csv=str(tmp_path / "r.csv"),
        markdown=str(tmp_path / "r.md"), html=str(tmp_path / "r.html"),
        svg=str(tmp_path / "r.svg"), card=str(tmp_path / "card.svg"),
        engine=EngineOptions(threads=1),
    )  # fmt: skip
    assert bench(options) == 0
    result = read(options)
    assert {c["drafter"] for c in result["candidates"]} == {"none", "ngram", "draft-model"}
    assert len([r for r in result["rows"] if r["phase"] == "main"]) == 9
    assert all(c["identical"] in (True, None) for c in result["candidates"])
    draft = next(c for c in result["candidates"] if c["drafter"] == "draft-model")
    assert draft["counts"]["accepted"] > 0
    assert draft["accept_length"] > 1
    assert result["target"]["arch"] == "llama"
    assert re.fullmatch("[0-9a-f]{64}", result["target"]["sha256"])
    assert result["target"]["size_bytes"] == Path(result["target"]["file"]).stat().st_size
    assert result["settings"]["threads"] == result["settings"]["threads_batch"] == 1
    assert result["settings"]["n_ctx"] == 256
    assert result["settings"]["flash_attn"] == "on"
    out, err = capsys.readouterr()
    assert "speedup [95 %]" in out
    assert "9 runs on 3 prompts, about" in err
    assert (tmp_path / "r.csv").read_text().count("\n") == 1 + len(result["rows"])
    assert "| baseline |" in (tmp_path / "r.md").read_text()
    Result.model_validate(result)
    assert result["options"]["drafters"] == ["draft-model", "ngram"]
    for name in ("r.html", "r.svg"):
        assert "draft-model n=3" in (tmp_path / name).read_text()
    assert "accept length" in (tmp_path / "card.svg").read_text()  # of whichever was the faster


def test_results_are_kept_and_gates_fail_a_script(options, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert bench(replace(options, save=False)) == 0
    assert history.past() == []
    with pytest.raises(GateFailed, match="the interval's lower end is under 1000"):
        bench(replace(options, fail_below=1000.0, fail_on_regression=0.5))
    out, err = capsys.readouterr()
    assert "baseline" in out  # the table and the history have it all the same
    assert "no benchmark of the same to compare with" in " ".join(err.split())
    (line,) = history.past()
    assert history.read("last") == read(options)
    assert line.drafters == ("ngram",)
    assert bench(replace(options, fail_below=1e-9, fail_on_regression=0.9)) == 0
    assert "compared with benchmark 1." in capsys.readouterr().err
    assert [p.id for p in history.past()] == [2, 1]


@pytest.mark.parametrize("state", ["newer", "damaged"])
def test_a_history_that_cannot_be_written_is_said_before_anything_is_measured(
    options, tmp_path, monkeypatch, capsys, state
):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    file = Store().path
    if state == "newer":
        history.check()
        with closing(sqlite3.connect(file)) as db:
            db.execute("PRAGMA user_version = 99")
    else:
        file.parent.mkdir()
        file.write_text("no database" * 500)
    with pytest.raises(StoreError) as told:
        bench(options)
    assert str(file) in told.value.message
    assert "--no-save" in told.value.hint
    assert not Path(options.json).exists()
    gated = replace(options, save=False, fail_on_regression=0.1)
    with pytest.raises(StoreError):
        bench(gated)
    assert capsys.readouterr() == ("", ""), "nothing was begun"
    assert bench(replace(options, save=False)) == 0


def test_prompts_are_measured_at_each_depth_as_far_as_the_model_was_trained(options, capsys):
    """The tiny model knows 1,024 positions."""
    assert bench(replace(options, depths=(0, 400, 2000))) == 0
    result = read(options)
    assert [w["name"] for w in result["workloads"]] == ["mine", "mine@400"]
    lengths = {p["tokens"] for p in result["prompts"] if p["workload"] == "mine@400"}
    assert all(390 < n <= 400 for n in lengths)
    assert result["settings"]["n_ctx"] == 1024
    assert len(result["skipped"]) == 3
    assert {s["workload"] for s in result["skipped"]} == {"mine@2000"}
    assert set(result["candidates"][1]["by_workload"]) == {"mine", "mine@400"}
    out, err = capsys.readouterr()
    assert "was trained on contexts of 1,024 tokens: longer prompts are out." in err
    assert "mine@400:" in out


def test_quiet_prints_nothing_but_the_table(options, capsys):
    assert bench(replace(options, quiet=True)) == 0
    out, err = capsys.readouterr()
    assert "baseline" in out
    assert err == ""


def test_each_temperature_is_compared_with_its_own_baseline(options):
    assert bench(replace(options, temperatures=(0.0, 0.8), strict=True)) == 0
    found = {(c["drafter"], c["temperature"]): c for c in read(options)["candidates"]}
    assert len(found) == 4
    assert found["ngram", 0.8]["identical"] is True
    assert found["ngram", 0.8]["pairs"] == 3


def test_a_single_prompt_is_run_often_enough_for_an_interval(options, capsys):
    one = replace(options, workloads=(), prompt="Why?")
    assert bench(one) == 0
    result = read(options)
    assert result["settings"]["runs"] == 5
    assert result["candidates"][1]["speedup_method"] == "t over runs, this prompt only"
    assert "this prompt only" in capsys.readouterr().out
    assert bench(replace(one, runs=1)) == 0
    candidate = read(options)["candidates"][1]
    assert candidate["speedup_ci"] is None
    assert candidate["verdict"] is None


def test_a_single_prompt_is_run_as_often_and_judged_at_each_depth(options, tiny_bytes, capsys):
    """The target as its own drafter: twice the work, so a verdict is sure to be had."""
    one = replace(
        options, workloads=(), prompt="Why?", depths=(0, 300), drafters=(str(tiny_bytes),)
    )
    assert bench(one) == 0
    result = read(options)
    assert result["settings"]["runs"] == 5
    Result.model_validate(result)
    parts = result["candidates"][1]["by_workload"]
    assert set(parts) == {"prompt", "prompt@300"}
    for part in parts.values():
        assert part["speedup_method"] == "t over runs, this prompt only"
        assert part["verdict"] in ("faster", "slower", "no difference shown")
    said = " ".join(capsys.readouterr().out.split())
    assert "As it is: " in said
    assert "At 300 tokens: " in said
    assert "Too few runs" not in said
    with pytest.raises(GateFailed, match="the interval's lower end is under 1000"):
        bench(replace(one, fail_below=1000.0))


def test_a_gate_on_drafters_is_refused_where_none_is_to_be_measured(options, capsys):
    with pytest.raises(UsageError, match="--fail-below judges a drafter's speedup"):
        bench(replace(options, drafters=("none",), fail_below=1.2))
    assert capsys.readouterr().err == "", "before anything is loaded"


def test_a_chain_that_is_made_like_its_tree_is_said_to_be(options, tiny_bytes):
    own = replace(options, drafters=(str(tiny_bytes),), n_max=(3,), trees=(8,))
    (said,) = select(own).remarks
    assert "the chain as deep drafts without one as well (p_min=0)" in said
    (said,) = select(replace(own, p_min=0.3)).remarks
    assert said.startswith("--p-min has no effect on draft trees")
    assert select(replace(own, trees=())).remarks == ()


def test_a_drafter_of_another_vocabulary_is_refused_before_anything_is_loaded(
    options, tiny_stranger
):
    with pytest.raises(DrafterError, match="12 tokens against 300"):
        bench(replace(options, drafters=(str(tiny_stranger), "ngram")))


def test_a_target_as_its_own_draft_is_accepted_in_full(options, tiny_bytes):
    assert bench(replace(options, drafters=(str(tiny_bytes),), p_min=0.0, strict=True)) == 0
    draft = read(options)["candidates"][1]
    assert draft["acceptance_rate"] == 1.0
    assert draft["identical"] is True


def test_a_silent_model_gives_na_and_null(options, tiny_silent, capsys):
    assert bench(replace(options, model=str(tiny_silent), ignore_eos=False)) == 0
    for c in read(options)["candidates"]:
        assert c["decode_tps"] is None
        assert c["speedup"] is None
    assert "n/a" in capsys.readouterr().out


def test_prompts_that_do_not_fit_the_context_are_skipped_with_numbers(options, tmp_path, capsys):
    file = tmp_path / "long.jsonl"
    rows = [{"id": f"p{i}", "prompt": "word " * n} for i, n in enumerate((5, 400, 6, 7))]
    file.write_text("\n".join(map(json.dumps, rows)))
    small = replace(options, workloads=(str(file),), engine=EngineOptions(threads=1, ctx=256))
    assert bench(small) == 0
    result = read(options)
    (skipped,) = result["skipped"]
    assert skipped["prompt"] == "p1"
    assert re.match(r"skipped: too long \(\d+ tokens \+ 4 > context 256\)", skipped["reason"])
    assert result["workloads"] == [{"name": "long", "prompts": 3}]
    assert "skipped: too long" in capsys.readouterr().out
    file.write_text(json.dumps(rows[1]))
    with pytest.raises(UsageError, match=r"The prompt does not fit .* 256 tokens: it has 1"):
        bench(small)
    file.write_text("\n".join(json.dumps(rows[1] | {"id": name}) for name in "ab"))
    with pytest.raises(UsageError, match=r"No prompt fits .* 256 tokens: the shortest has 1"):
        bench(small)


def test_a_file_that_fails_at_the_end_costs_neither_the_others_nor_the_table(
    options, tmp_path, monkeypatch, capsys
):
    from localspec.bench import outputs

    write = outputs.write

    def full_disk(name, text):
        if name.endswith(".csv"):
            raise LocalspecError(f"{name} could not be written (No space left on device).")
        write(name, text)

    monkeypatch.setattr(outputs, "write", full_disk)
    with pytest.raises(LocalspecError, match="No space left"):
        bench(replace(options, csv=str(tmp_path / "r.csv"), markdown=str(tmp_path / "r.md")))
    assert read(options)["status"] == "complete"
    assert (tmp_path / "r.md").exists()
    assert "baseline" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        ({"max_tokens": 0}, UsageError, "--max-tokens 0"),
        ({"runs": 0}, UsageError, "--runs"),
        ({"temperatures": (-1.0,)}, UsageError, "negative"),
        ({"p_min": 1.5}, UsageError, "probability"),
        ({"workloads": ("nothing",)}, UsageError, "no workload"),
        ({"model": "dmeo"}, UsageError, "dmeo"),
        ({"model": "/nowhere/x.gguf"}, ModelFileError, "x.gguf"),
        ({"drafters": ("nobody",)}, UsageError, "nobody"),
        ({"json": "/nowhere/r.json"}, UsageError, "/nowhere"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_runs(options, monkeypatch, change, kind, said):
    def no_engine(**_):
        raise AssertionError("an engine was started")

    monkeypatch.setattr("localspec.bench.command.connect", no_engine)
    with pytest.raises(LocalspecError, match=re.escape(said)) as error:
        bench(replace(options, **change))
    assert type(error.value) is kind
    assert error.value.hint


def test_ctrl_c_in_the_cost_model_leaves_the_benchmark_whole_and_says_so(
    options, monkeypatch, capsys
):
    """And no engine is started for what is over."""
    starts, connect = [], command.connect

    def started(*given):
        starts.append(given)
        return connect(*given)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "connect", started)
    monkeypatch.setattr(command, "cost_models", interrupted)
    assert bench(replace(options, cost_model=True)) == 130
    assert len(starts) == 1
    assert read(options)["status"] == "complete"
    out, err = capsys.readouterr()
    assert "the cost model is left out, the benchmark is whole" in " ".join(err.split())
    assert "1.00x" in out


def test_ctrl_c_leaves_the_table_the_file_and_exit_code_130(options, tmp_path):
    """From the shell: the first Ctrl-C ends it cleanly, whatever was finished is kept."""
    arguments = [
        "bench", "--model", options.model, "--drafter", "ngram", "--workload",
        options.workloads[0], "--max-tokens", "200", "--ignore-eos", "--runs", "500",
        "--threads", "1", "--json", options.json,
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
        if "3000 runs on" in line:
            break
    press_ctrl_c(process)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "Stopped before" in out
    result = read(options)
    assert result["status"] == "interrupted"
    assert {c["status"] for c in result["candidates"]} == {"interrupted"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_bench_whose_terminal_is_gone_is_kept(options, tmp_path, number):
    """The connection broke, or the machine goes down: what was finished is in the history."""
    data = tmp_path / "data"
    arguments = [
        "bench", "--model", options.model, "--drafter", "ngram", "--workload",
        options.workloads[0], "--max-tokens", "200", "--ignore-eos", "--runs", "500",
        "--threads", "1",
    ]  # fmt: skip
    command = [sys.executable, "-m", "localspec", *arguments]
    own = {**slow_to_end(tmp_path), "TERM": "xterm", "XDG_DATA_HOME": str(data)}
    with Terminal(command, env=own, columns=100, lines=30) as terminal:
        terminal.wait_for("3000 runs on")
        terminal.until(lambda: re.search(r"[1-9]\d*/3000", terminal.text), "run")
        if number == signal.SIGHUP:
            terminal.hang_up()
        terminal.process.send_signal(number)
        assert terminal.process.wait(FOREVER) == 128 + number
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(data))
        assert [kept.status for kept in history.past()] == ["interrupted"]


def test_a_wrong_token_now_and_then_is_loud_and_fails_a_strict_bench(
    options, wrong_now_and_then, tmp_path, capsys
):
    """Planted in the engine: the drafter's runs alone have it."""
    options = replace(options, strict=True, max_tokens=64, markdown=str(tmp_path / "r.md"))
    assert bench(options) == 1
    found = read(options)["candidates"][1]
    assert "MISMATCH" in {d["class"] for d in found["divergences"]}
    out, _ = capsys.readouterr()
    for said in (out, (tmp_path / "r.md").read_text()):
        assert "MISMATCH: ngram n=3 gives another output" in " ".join(said.split())
        assert "Its speed means nothing" in " ".join(said.split())


def test_the_cost_model_predicts_what_was_measured_and_more(options, tiny_bytes, tmp_path, capsys):
    files = {kind: str(tmp_path / f"r.{kind}") for kind in ("markdown", "html", "svg")}
    options = replace(options, cost_model=True, max_tokens=40, n_max=(2, 4), **files)
    assert bench(options) == 0
    result = read(options)
    (model,) = result["cost_model"]
    assert [p["n"] for p in model["lengths"]] == list(range(17))
    assert [p["n"] for p in model["lengths"] if p["measured_tps"]] == [0, 2, 4]
    for p in model["lengths"]:
        assert p["predicted_tps"] > 0
        measured = p["measured_tps"]
        known = measured and p["n"]
        assert p["error"] == (p["predicted_tps"] / measured - 1 if known else None)
    assert all(len(c["verify_ms"]) == len(c["draft_ms"]) == 17 for c in model["costs"])
    out, _ = capsys.readouterr()
    assert "Costs of ngram at" in out
    assert "predicted" in out
    markdown, html, svg = ((tmp_path / f"r.{kind}").read_text() for kind in files)
    for written in (markdown, html):
        assert "Costs of ngram at" in written
        assert "tokens of context a pass takes" in written
    for p in model["lengths"][1:7]:
        figures = f"{p['predicted_tps']:.1f}", f"{p['predicted_speedup']:.2f}x"
        assert f"| {p['n']} | {figures[0]} | {figures[1]} |" in markdown
        assert all(f'<td class="right">{figure}</td>' in html for figure in figures)
        if p["error"] is not None:
            assert f"| {p['error']:+.0%} |" in markdown
    assert "tok/s that the costs predict" in svg
