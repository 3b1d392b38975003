"""The installed command as a person meets it: a terminal, bad input, a dying engine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from patience import FOREVER
from terminal import Terminal

COMMAND = shutil.which("localspec", path=str(Path(sys.executable).parent))
LOCALSPEC = [COMMAND] if COMMAND else [sys.executable, "-m", "localspec"]


def localspec(
    *words: str | Path, stdin: str = "", timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LOCALSPEC, *map(str, words)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "140"},
    )


@pytest.fixture
def bad_files(tmp_path: Path, demo_model: Path, tiny_target: Path) -> dict[str, Path]:
    head = demo_model.open("rb").read(2_000_000)
    files = {
        "truncated": head,
        "html": b"<!DOCTYPE html><html><body>Not found</body></html>",
        "lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
        "empty": b"",
        "noise": bytes(range(64)),
        "ggjt": b"tjgg" + bytes(60),
    }
    for name, content in files.items():
        (tmp_path / f"{name}.gguf").write_bytes(content)
    return {name: tmp_path / f"{name}.gguf" for name in files}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("truncated", "truncated"),
        ("html", "web page"),
        ("lfs", "Git LFS|Git-LFS"),
        ("empty", "empty|truncated"),
        ("noise", "not a GGUF"),
        ("ggjt", "legacy|old"),
    ],
)
def test_a_file_that_is_no_model_is_named_for_what_it_is(
    bad_files: dict[str, Path], name: str, said: str
) -> None:
    for words in (("bench", "--model"), ("run", "hello", "--model")):
        found = localspec(*words, bad_files[name])
        assert found.returncode == 1
        assert any(s in found.stderr for s in said.split("|")), found.stderr
        assert "Traceback" not in found.stderr
        assert len(found.stderr.strip().splitlines()) <= 3
        assert found.stdout == ""


def test_words_that_name_nothing(tmp_path: Path) -> None:
    unknown = localspec("bench", "--model", "demi")
    assert unknown.returncode == 2 and "demo" in unknown.stderr
    missing = localspec("bench", "--model", tmp_path / "absent.gguf")
    assert missing.returncode == 1 and "absent.gguf" in missing.stderr
    (tmp_path / "empty.txt").write_text("\n\n")
    empty = localspec("bench", "--model", "demo", "--workload", tmp_path / "empty.txt")
    assert empty.returncode == 2 and "empty.txt" in empty.stderr
    drafter = localspec("bench", "--model", "demo", "--drafter", "ngrum")
    assert drafter.returncode == 2 and "ngram" in drafter.stderr
    for found in (unknown, missing, empty, drafter):
        assert "Traceback" not in found.stderr and found.stdout == ""


def test_an_output_that_cannot_be_written_is_known_before_anything_runs(tmp_path: Path) -> None:
    found = localspec(
        "bench",
        "--model",
        "demo",
        "--prompt",
        "Hi",
        "--json",
        tmp_path / "no" / "folder" / "r.json",
    )
    assert found.returncode in (1, 2)
    assert "--json" in found.stderr and "warm-up" not in found.stderr


def test_a_drafter_of_another_vocabulary_names_the_first_differing_token(
    tmp_path: Path, tiny_target: Path, tiny_stranger: Path
) -> None:
    found = localspec(
        "bench", "--model", tiny_target, "--drafter", tiny_stranger, "--prompt", "ab", "--quiet"
    )
    assert found.returncode == 1
    assert "token 5" in found.stdout + found.stderr


def test_a_prompt_longer_than_the_context(tiny_bytes: Path) -> None:
    found = localspec("run", "--model", tiny_bytes, "--ctx", "256", "-", stdin="x" * 600)
    assert found.returncode == 1
    assert "256" in found.stderr and "Traceback" not in found.stderr


def test_nothing_generated_gives_no_rates(tmp_path: Path, tiny_silent: Path) -> None:
    out = tmp_path / "r.json"
    found = localspec(
        "bench", "--model", tiny_silent, "--drafter", "ngram", "--prompt", "ab", "--json", out
    )
    text = out.read_text()
    assert "NaN" not in text and "Infinity" not in text
    result = json.loads(text)
    assert {c["decode_tps"] for c in result["candidates"]} == {None}
    assert "n/a" in found.stdout


def engine_of(process: subprocess.Popen[str]) -> psutil.Process:
    deadline = time.monotonic() + FOREVER
    while time.monotonic() < deadline:
        for child in psutil.Process(process.pid).children(recursive=True):
            if "localspec.engine.host" in " ".join(child.cmdline()):
                return child
        time.sleep(0.05)
    raise AssertionError("no engine appeared")


def test_kill_9_of_the_engine_costs_a_row_not_the_bench(tmp_path: Path, demo_model: Path) -> None:
    out = tmp_path / "r.json"
    words = ["--model", "demo", "--drafter", "ngram", "--prompt", "Tell me about rivers."]
    with subprocess.Popen(
        [*LOCALSPEC, "bench", *words, "--runs", "4", "--max-tokens", "64", "--json", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        seen = []
        for line in process.stderr:
            seen.append(line)
            if "runs on 1 prompt" in line:  # the measured runs begin
                time.sleep(0.7)
                engine_of(process).send_signal(signal.SIGKILL)
                break
        stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 1, (seen, stderr)
    result = json.loads(out.read_text())
    crashed = [c for c in result["candidates"] if c["status"] == "crashed"]
    assert len(crashed) == 1 and "SIGKILL" in crashed[0]["reason"]
    finished = [r for r in result["rows"] if r["decode_tps"]]
    assert len(finished) >= 7
    assert "Traceback" not in stderr
    assert "SIGKILL" in stdout + stderr


def test_the_engine_ends_with_a_killed_bench(demo_model: Path) -> None:
    with subprocess.Popen(
        [*LOCALSPEC, "run", "--model", "demo", "--max-tokens", "2000", "Count to a thousand."],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        child = engine_of(process)
        time.sleep(1.0)
        process.kill()
    assert child.wait(FOREVER) is not None or not child.is_running()


def test_run_prints_the_answer_alone_on_stdout(demo_model: Path) -> None:
    found = localspec("run", "--model", "demo", "--max-tokens", "12", "--seed", "1", "Say hello.")
    again = localspec(
        "run",
        "--model",
        "demo",
        "--max-tokens",
        "12",
        "--seed",
        "1",
        "--drafter",
        "none",
        "Say hello.",
    )
    assert found.returncode == again.returncode == 0
    assert found.stdout == again.stdout and found.stdout.strip()  # speculation changes nothing
    assert "tok/s" in found.stderr


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (140, 45)])
def test_a_bench_in_a_real_terminal(tiny_bytes: Path, columns: int, lines: int) -> None:
    """The table fits the window: no line is cut or wraps, and the cursor is left in order."""
    words = ["bench", "--model", str(tiny_bytes), "--drafter", "ngram", "--max-tokens", "40"]
    env = {**os.environ, "TERM": "xterm-256color"}
    with Terminal([*LOCALSPEC, *words], env=env, columns=columns, lines=lines) as bench:
        bench.until(lambda: bench.process.poll() is not None, "end", 120)
        bench.until(lambda: "tok/s" in bench.whole, "last words")
        assert bench.process.returncode == 0
        shown = bench.whole
    assert "baseline" in shown and "ngram" in shown and "speedup" in shown
    assert "…" not in shown
