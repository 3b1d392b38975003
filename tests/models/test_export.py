"""``localspec export``: a setup in llama-server's words, each of which the pinned version knows."""

from __future__ import annotations

import configparser
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import made_runs
import pytest

from localspec.bench import history
from localspec.catalog import P_MIN
from localspec.cli import main
from localspec.errors import UsageError
from localspec.models.export import (
    SAMPLER_FLAGS,
    SPEC_TYPES,
    command_line,
    export,
    flags,
    make_setup,
    of_bench,
    preset,
)
from localspec.records import EngineOptions, LoadSettings

KNOWN = json.loads((Path(__file__).parent / "llama_server_flags.json").read_text())["options"]
EVERYTHING = EngineOptions(
    ctx=2048,
    threads=3,
    load=LoadSettings(
        gpu_layers=7, draft_gpu_layers=2, n_cpu_moe=1, device="CUDA0", split="row", mmap=False
    ),
    kv_type="q8_0",
    draft_kv_type="f32",
    flash_attn="on",
    sampler=dict.fromkeys(SAMPLER_FLAGS, 1.0),
    thinking=False,
)


@pytest.mark.parametrize("drafter", ["none", "ngram+eagle3", *SPEC_TYPES])
def test_every_option_is_one_that_llama_server_has(drafter):
    model = "demo-mtp" if drafter == "mtp" else "demo"
    found, _ = flags(make_setup(model, drafter, EVERYTHING))
    assert {flag for flag, _ in found} <= set(KNOWN)
    spec = dict(found).get("--spec-type")
    assert (spec is None) == (drafter == "none")
    if drafter == "ngram+eagle3":
        assert spec == "ngram-simple,draft-eagle3"
        assert dict(found)["--spec-draft-model"].endswith("smollm2-135m-eagle3-q4_0.gguf")


def test_the_flags_are_what_was_asked_for():
    found = dict(flags(make_setup("demo", "draft-model", EVERYTHING, n_max=5, p_min=0.6))[0])
    assert found["--ctx-size"] == "2048"
    assert found["--threads"] == "3"
    assert found["--n-gpu-layers"] == "7"
    assert found["--spec-draft-ngl"] == "2"
    assert found["--cache-type-k"] == found["--cache-type-v"] == "q8_0"
    assert found["--spec-draft-type-k"] == "f32"
    assert found["--load-mode"] == "none"
    assert (found["--spec-draft-n-max"], found["--spec-draft-p-min"]) == ("5", "0.6")
    assert found["--reasoning"] == "off"
    assert found["--temp"] == found["--seed"] == "1"


def test_what_is_left_to_llama_server_is_not_written():
    found = dict(flags(make_setup("demo", "none", EngineOptions()))[0])
    assert not {"--n-gpu-layers", "--device", "--load-mode", "--reasoning", "--seed"} & set(found)
    assert found["--temp"] == "0.2", "what the makers recommend, as chat does"


def test_what_llama_server_cannot_do_is_said():
    def notes(drafter, **more):
        return " ".join(flags(make_setup("demo", drafter, EngineOptions(), **more))[1])

    assert "no adaptive draft length: it drafts up to 4" in notes("draft-model", n_max="auto")
    assert "no draft trees" in notes("eagle3", tree=8)
    assert "ngram-simple matches 2 tokens" in notes("ngram")
    assert notes("draft-model") == ""


def test_in_place_of_a_tree_a_server_drafts_the_usual_chain():
    def p_min(**asked):
        setup = make_setup("demo", "eagle3", EngineOptions(), tree=8, **asked)
        assert setup.drafter.p_min == 0
        return dict(flags(setup)[0])["--spec-draft-p-min"]

    assert (p_min(), p_min(p_min=0.6)) == (f"{P_MIN:g}", "0.6")


@pytest.mark.parametrize("drafter", ["dspark", "ngram", "none"])
def test_a_tree_that_a_drafter_does_not_propose_is_refused(drafter):
    with pytest.raises(UsageError, match=f"The drafter {drafter} proposes no trees"):
        make_setup("demo", drafter, EngineOptions(), tree=8)
    assert make_setup("demo", "ngram+eagle3", EngineOptions(), tree=8).drafter.tree == 8


def test_a_shell_reads_the_command_line_back():
    found = (("--model", "/a b/it's.gguf"), ("--temp", "0"))
    script = command_line(found).replace("llama-server", "printf '%s\\n'", 1)
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["--model", "/a b/it's.gguf", "--temp", "0"]


def test_a_preset_has_a_section_a_model(capsys):
    assert export(make_setup("demo", "draft-model", EVERYTHING), "preset") == 0
    parser = configparser.ConfigParser()
    parser.read_string(capsys.readouterr().out)
    assert parser.sections() == ["demo"]
    assert parser["demo"]["spec-type"] == "draft-simple"
    assert {f"--{key}" for key in parser["demo"]} <= set(KNOWN)
    with pytest.raises(UsageError, match="begin a comment"):
        preset("x", (("--model", "/a;b.gguf"),))


def test_json_has_the_setup_and_the_command(capsys):
    assert export(make_setup("demo", "ngram", EngineOptions()), "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["drafter"]["method"] == "ngram"
    assert found["llama_server"][:1] == ["--model"]
    assert found["notes"]


def test_several_drafters_are_one_too_many():
    with pytest.raises(UsageError, match="a server runs one"):
        make_setup("demo", "all", EngineOptions())


@pytest.mark.parametrize(("tps", "spec"), [(130, "draft-simple"), (70, None)])
def test_the_winner_of_a_past_benchmark_or_nothing(
    tps, spec, tmp_path, monkeypatch, demo_model, demo_draft
):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    drafter = replace(made_runs.candidate("small", 3).drafter, path=str(demo_draft), p_min=0.25)
    people = [made_runs.candidate(), replace(made_runs.candidate("small", 3), drafter=drafter)]
    prompts = [made_runs.prompt(f"p{i}") for i in range(6)]
    rows = [
        made_runs.row(who, p, made_runs.generation(tps=speed * (1 + i / 500)))
        for i, p in enumerate(prompts)
        for who, speed in zip(people, (100, tps), strict=True)
    ]
    result = made_runs.result(rows, people, prompts)
    result["target"]["file"] = str(demo_model)
    result["settings"] |= {"kv_type": "q8_0", "flash_attn": "off", "threads": 3, "n_cpu_moe": 2}
    result["settings"] |= {"temperatures": [0.7], "sampler": {"top_k": 40, "min_p": 0.1}}
    history.keep(result)
    found, notes = flags(of_bench("last", EngineOptions()))
    assert dict(found).get("--spec-type") == spec
    assert dict(found).get("--spec-draft-n-max") == ("3" if spec else None)
    assert dict(found).get("--spec-draft-p-min") == ("0.25" if spec else None)
    assert ("No drafter was shown to be faster" in " ".join(notes)) == (spec is None)
    assert dict(found)["--alias"] == "demo"
    as_measured = {"--cache-type-k": "q8_0", "--flash-attn": "off", "--threads": "3"}
    as_measured |= {"--n-cpu-moe": "2", "--temp": "0.7", "--min-p": "0.1"}
    assert as_measured.items() <= dict(found).items()
    assert "--top-k" not in dict(found)  # llama-server's own
    given, _ = flags(of_bench("last", EngineOptions(threads=5, sampler={"min_p": 0.2})))
    assert {"--threads": "5", "--min-p": "0.2", "--temp": "0.7"}.items() <= dict(given).items()


def test_of_another_base_than_the_benchmarks_own_file_it_says_so(tmp_path, monkeypatch, demo_model):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    other = tmp_path / "other-Q8_0.gguf"
    other.symlink_to(demo_model)
    people, prompts = [made_runs.candidate()], [made_runs.prompt("p")]
    rows = [made_runs.row(people[0], prompts[0], made_runs.generation())]
    result = made_runs.result(rows, people, prompts)
    result["target"]["file"] = str(demo_model)
    result["bases"] = [
        {"name": "", "file": str(other), "kv_type": "q8_0", "flash_attn": None, "threads": None}
    ]
    history.keep(result)
    found, _ = flags(of_bench("last", EngineOptions()))
    assert dict(found)["--alias"] == "other-Q8_0"
    assert dict(found)["--cache-type-k"] == "q8_0"


@pytest.mark.parametrize("other", [("--drafter", "ngram"), ("--n-max", "3"), ("--p-min", "0")])
def test_a_benchmarks_winner_is_not_mixed_with_another_drafter(other, capsys):
    with pytest.raises(SystemExit) as error:
        main(["export", "--bench", "last", *other])
    assert error.value.code == 2
    assert f"{other[0]} and --bench exclude each other" in capsys.readouterr().err


def test_a_number_says_to_a_server_what_it_is():
    """Which reads whole numbers, and others in single precision."""
    given = {"seed": 1234567, "top_k": 1_000_000, "temperature": 0.1234567, "min_p": 0.05}
    given |= {"top_p": 0.949999988079071}  # as a GGUF has 0.95
    found = dict(flags(make_setup("demo", "none", EngineOptions(sampler=given)))[0])
    said = [found[SAMPLER_FLAGS[name]] for name in given]
    assert said == ["1234567", "1000000", "0.1234567", "0.05", "0.95"]
