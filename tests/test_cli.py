"""The command line: words into options, errors into sentences and exit codes."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import typer

from localspec import __version__, catalog, cli, commands, resources
from localspec.errors import ContextTooSmall, ModelFileError, UsageError
from localspec.records import BenchOptions, ChatOptions, EngineOptions, LoadSettings


class Calls(list):
    """What the commands were called with; ``answer`` is what they do."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = lambda: 0

    def __call__(self, *args: object) -> int:
        self.append(args)
        return self.answer()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Bench, chat and run replaced by one that notes its arguments."""
    calls = Calls()
    for room, names in {"bench": ["bench"], "chat": ["chat", "run"]}.items():
        module = ModuleType(f"localspec.{room}.command")
        for name in names:
            setattr(module, name, calls)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return calls


def code_of(*words: str) -> int:
    with pytest.raises(SystemExit) as left:
        cli.main(words)
    assert isinstance(left.value.code, int)
    return left.value.code


def stdin(monkeypatch: pytest.MonkeyPatch, content: bytes, *, terminal: bool = False) -> None:
    stream = io.TextIOWrapper(io.BytesIO(content), "utf-8")
    monkeypatch.setattr(stream, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(sys, "stdin", stream)


def test_the_plainest_bench(calls: Calls) -> None:
    assert code_of("bench", "--model", "demo") == 0
    assert calls == [(BenchOptions(model="demo"),)]


def test_the_plainest_chat_and_run(calls: Calls) -> None:
    assert code_of("chat", "--model", "demo") == 0
    assert code_of("run", "--model", "demo", "Say hello.") == 0
    assert calls == [(ChatOptions(model="demo"),), (ChatOptions(model="demo"), "Say hello.")]


def test_every_option_of_bench_arrives(calls: Calls) -> None:
    words = """bench -m demo -d ngram,draft-model -d none -w chat8,code9 --quick --n-max 3,5,8
        --n-max 3 --p-min 0.4 --temperature 0,0.8 --max-tokens 64 --ignore-eos --runs 2
        --system S --strict -q --json a.json --csv b.csv --markdown c.md --resume r.json
        --prompt P"""
    assert code_of(*words.split()) == 0
    assert calls == [
        (
            BenchOptions(
                model="demo",
                drafters=("ngram", "draft-model", "none"),
                workloads=("chat8", "code9"),
                prompt="P",
                quick=True,
                n_max=(3, 5, 8),
                p_min=0.4,
                temperatures=(0.0, 0.8),
                max_tokens=64,
                ignore_eos=True,
                runs=2,
                system="S",
                strict=True,
                quiet=True,
                json="a.json",
                csv="b.csv",
                markdown="c.md",
                resume="r.json",
            ),
        )
    ]


def test_a_bench_is_resumed_without_another_word(calls: Calls) -> None:
    assert code_of("bench", "--resume", "r.json") == 0
    assert calls == [(BenchOptions(model="", resume="r.json"),)]


ENGINE_WORDS = """--ctx 512 --threads 3 --gpu-layers 7 --draft-gpu-layers 8 --n-cpu-moe 2
    --device CUDA0 --split row --no-mmap --check-tensors --kv-type q8_0 --draft-kv-type bf16
    --flash-attn off --log-file e.log --thinking off --top-k 5 --top-p 0.5 --min-p 0.1
    --repeat-penalty 1.1 --repeat-last-n 32 --presence-penalty 0.2 --frequency-penalty -0.3
    --seed 9""".split()
ENGINE = EngineOptions(
    ctx=512,
    threads=3,
    load=LoadSettings(
        gpu_layers=7,
        draft_gpu_layers=8,
        n_cpu_moe=2,
        device="CUDA0",
        split="row",
        mmap=False,
        check_tensors=True,
    ),
    kv_type="q8_0",
    draft_kv_type="bf16",
    flash_attn="off",
    sampler={
        "top_k": 5,
        "top_p": 0.5,
        "min_p": 0.1,
        "repeat_penalty": 1.1,
        "repeat_last_n": 32,
        "presence_penalty": 0.2,
        "frequency_penalty": -0.3,
        "seed": 9,
    },
    thinking=False,
    log_file="e.log",
)


@pytest.mark.parametrize("command", ["bench", "chat", "run"])
def test_every_command_takes_the_shared_options(calls: Calls, command: str) -> None:
    words = [*ENGINE_WORDS, *(["hello"] if command == "run" else [])]
    assert code_of(command, "--model", "demo", *words) == 0
    assert calls[0][0].engine == ENGINE


@pytest.mark.parametrize("command", ["chat", "run"])
def test_every_option_of_chat_and_run_arrives(calls: Calls, command: str) -> None:
    words = """-m demo -d ngram --n-max 4 --p-min 0.2 --temperature 0.7 --system S --max-tokens 9
        --stop A --stop B -q""".split()
    extra = ["--raw", "hello"] if command == "run" else []
    assert code_of(command, *words, *extra) == 0
    assert calls[0][0] == ChatOptions(
        model="demo",
        drafter="ngram",
        n_max=4,
        p_min=0.2,
        system="S",
        max_tokens=9,
        stop=("A", "B"),
        raw=command == "run",
        quiet=True,
        engine=EngineOptions(sampler={"temperature": 0.7}),
    )


@pytest.mark.parametrize("command", ["chat", "run"])
def test_auto_is_a_draft_length(calls: Calls, command: str) -> None:
    extra = ["hello"] if command == "run" else []
    assert code_of(command, "-m", "demo", "--n-max", "auto", *extra) == 0
    assert calls[0][0].n_max == "auto"
    assert code_of("bench", "-m", "demo", "--n-max", "2,auto", "--n-max", "auto,4") == 0
    assert calls[1][0].n_max == (2, "auto", 4)


@pytest.mark.parametrize("command", ["chat", "run"])
def test_auto_is_a_trees_size(calls: Calls, command: str) -> None:
    extra = ["hello"] if command == "run" else []
    for i, (word, size) in enumerate((("auto", "auto"), ("16", 16), ("0", 0))):
        assert code_of(command, "-m", "demo", "--tree", word, *extra) == 0
        assert calls[i][0].tree == size
    assert code_of("bench", "-m", "demo", "--tree", "8,auto", "--tree", "auto,16") == 0
    assert calls[-1][0].trees == (8, "auto", 16)


def test_a_drafter_path_with_a_comma_stays_whole(
    calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a,b.gguf").touch()
    assert code_of("bench", "-m", "demo", "-d", "a,b.gguf", "-d", "none,ngram") == 0
    assert calls[0][0].drafters == ("a,b.gguf", "none", "ngram")


@pytest.mark.parametrize(
    "words",
    [
        "bench",
        "bench -m demo --n-max 0",
        "bench -m demo --n-max 3,x",
        "bench -m demo --n-max 2.5",
        "bench -m demo --n-max ,",
        "bench -m demo --n-max 513",
        "bench -m demo --temperature -0.1",
        "bench -m demo --temperature nan",
        "bench -m demo --temperature 0,inf",
        "bench -m demo --runs 0",
        "bench -m demo --max-tokens -1",
        "bench -m demo --p-min 1.1",
        "bench -m demo --p-min nan",
        "bench -m demo --drafter ,",
        "bench -m demo --ctx 0",
        "bench -m demo --threads 0",
        "chat -m demo --threads 513",
        "bench -m demo --gpu-layers -2",
        "bench -m demo --kv-type q9",
        "bench -m demo --flash-attn maybe",
        "bench -m demo extra",
        "run -m demo --temperature -1 hello",
        "run -m demo --temperature nan hello",
        "run -m demo --n-max 0 hello",
        "run -m demo --n-max 513 hello",
        "run -m demo --n-max 2,3 hello",
        "run -m demo --n-max 2,auto hello",
        "run -m demo --n-max automatic hello",
        "run -m demo --tree 8,auto hello",
        "run -m demo --tree -1 hello",
        "chat -m demo --tree 1025",
        "bench -m demo --tree 0",
        "bench -m demo --tree automatic",
        "run -m demo --top-p 2 hello",
        "run -m demo --min-p nan hello",
        "run -m demo --repeat-penalty 0 hello",
        "run -m demo --seed -1 hello",
        "chat -m demo --thinking perhaps",
        "chat -m demo --top-k x",
        "frobnicate",
        "--frobnicate",
    ],
)
def test_wrong_words_are_usage_errors(
    calls: Calls, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    assert code_of(*words.split()) == 2
    assert calls == []
    problem, hint = capsys.readouterr().err.splitlines()
    assert problem.startswith("localspec: ")
    assert re.fullmatch(r"See `localspec.* --help`\.", hint)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("bench -m demo --runs 0", "--runs must be at least 1, not '0'."),
        ("bench -m demo --runs many", "--runs must be a whole number, not 'many'."),
        ("bench -m demo --p-min 1.1", "--p-min must be at most 1, not '1.1'."),
        (
            "run -m demo --tree -1 hello",
            "Invalid value for '--tree': '-1' is not a whole number from 0 to 1024.",
        ),
        (
            "bench -m demo --tree 0",
            "Invalid value for '--tree': '0' is not a whole number from 1 to 1024.",
        ),
        ("chat -m demo --kv-type q9", "--kv-type: 'q9' is not one of 'f32', "),
        ("run -m demo --top-p x hello", "--top-p must be a number, not 'x'."),
        ("chat -m demo --thinking perhaps", "--thinking: 'perhaps' is not one of 'on', 'off'."),
    ],
)
def test_a_wrong_value_is_named_with_its_option_in_our_words(
    calls: Calls, capsys: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    assert code_of(*words.split()) == 2
    assert capsys.readouterr().err.startswith(f"localspec: {said}")


@pytest.mark.parametrize(
    ("words", "content", "text"),
    [
        (["-"], "Grüße\n".encode(), "Grüße"),
        ([], b"\xef\xbb\xbftwo\nlines\r\n", "two\nlines"),
        (["--raw", "-"], b"kept\n", "kept\n"),
        (["-"], b"two ends\n\n", "two ends\n"),
    ],
)
def test_a_prompt_on_stdin(
    calls: Calls, monkeypatch: pytest.MonkeyPatch, words: list[str], content: bytes, text: str
) -> None:
    stdin(monkeypatch, content)
    assert code_of("run", "-m", "demo", *words) == 0
    assert calls[0][1] == text


def test_bench_reads_its_prompt_from_stdin(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin(monkeypatch, b"measure this\n")
    assert code_of("bench", "-m", "demo", "--prompt", "-") == 0
    assert calls[0][0].prompt == "measure this"


def test_a_prompt_in_a_file(calls: Calls, tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("from a file\n")
    assert code_of("run", "-m", "demo", f"@{tmp_path / 'p.txt'}") == 0
    assert calls[0][1] == "from a file"


def test_run_without_a_prompt_on_a_terminal(
    calls: Calls, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stdin(monkeypatch, b"", terminal=True)
    assert code_of("run", "-m", "demo") == 2
    assert "There is no prompt" in capsys.readouterr().err
    assert calls == []


@pytest.mark.parametrize(("prompt", "says"), [("@nowhere.txt", "'nowhere.txt'"), ("-", "byte 3")])
def test_a_prompt_that_cannot_be_read(
    calls: Calls,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    prompt: str,
    says: str,
) -> None:
    stdin(monkeypatch, b"abc\xff")
    assert code_of("run", "-m", "demo", prompt) == 2
    assert says in capsys.readouterr().err
    assert calls == []


def raises(error: BaseException):
    def answer() -> int:
        raise error

    return answer


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (UsageError("Wrong.", "Do that."), 2, "localspec: Wrong.\nDo that.\n"),
        (ModelFileError("Gone.", ""), 1, "localspec: Gone.\n"),
        (
            ContextTooSmall.of(9, 4),
            1,
            "localspec: The prompt has 9 tokens but the context holds 4.\n",
        ),
    ],
)
def test_errors_become_a_sentence_and_a_code(
    calls: Calls, capsys: pytest.CaptureFixture[str], error: Exception, code: int, says: str
) -> None:
    calls.answer = raises(error)
    assert code_of("bench", "-m", "demo") == code
    out = capsys.readouterr()
    assert out.err.startswith(says)
    assert out.out == ""


def test_the_commands_own_code_is_the_programs(calls: Calls) -> None:
    calls.answer = lambda: 1
    assert code_of("bench", "-m", "demo") == 1
    calls.answer = lambda: 130
    assert code_of("chat", "-m", "demo") == 130


def test_ctrl_c_is_130(calls: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    calls.answer = raises(KeyboardInterrupt())
    assert code_of("bench", "-m", "demo") == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_bug_leaves_its_traceback_in_a_file(
    calls: Calls,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("platformdirs.user_log_dir", lambda *a, **k: str(tmp_path / "logs"))
    calls.answer = raises(ZeroDivisionError("by zero"))
    assert code_of("bench", "-m", "demo") == 1
    (log,) = (tmp_path / "logs").iterdir()
    assert "Traceback" in log.read_text() and "--model" not in log.read_text()
    assert "'bench', '-m', 'demo'" in log.read_text()
    assert capsys.readouterr().err == (
        f"localspec: this is a bug: ZeroDivisionError: by zero. The details are in {log}.\n"
    )


def test_a_bug_whose_file_cannot_be_written_is_told_whole(
    calls: Calls,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("platformdirs.user_log_dir", lambda *a, **k: str(tmp_path / "file" / "x"))
    calls.answer = raises(ZeroDivisionError("by zero"))
    assert code_of("bench", "-m", "demo") == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("installed", ["0.3.35", "0.3.360", "0.4.0"])
@pytest.mark.parametrize("command", ["bench", "chat"])
def test_another_llama_cpp_python_is_refused(
    calls: Calls,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    installed: str,
) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: installed)
    assert code_of(command, "-m", "demo") == 1
    problem, hint = capsys.readouterr().err.splitlines()
    assert f"llama-cpp-python {installed} is installed" in problem
    assert hint == "Install it with: pip install 'llama-cpp-python==0.3.36'"
    assert calls == []


def test_a_gpu_build_of_the_right_version_is_taken(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "0.3.36+cu124")
    assert code_of("bench", "-m", "demo") == 0


def test_a_missing_llama_cpp_python_is_refused(
    calls: Calls, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    assert code_of("run", "-m", "demo", "hello") == 1
    assert "pip install 'llama-cpp-python==0.3.36'" in capsys.readouterr().err


def test_the_pinned_version_is_the_checked_one() -> None:
    project = tomllib.loads((resources.data_root() / "pyproject.toml").read_text("utf-8"))
    pin = f"llama-cpp-python=={commands.LLAMA_CPP_PYTHON}"
    assert pin in project["project"]["dependencies"]


def test_bare_localspec_and_bare_models_are_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of() == 0
    assert "bench" in capsys.readouterr().out
    assert code_of("models") == 0
    assert "list" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["bench", "run", "chat"])
def test_help_needs_no_engine(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "0.0.1")
    assert code_of(command, "--help") == 0
    assert "--kv-type" in capsys.readouterr().out


def every_command(command: Any, words: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """The words of each command and the command, the program itself first."""
    below = getattr(command, "commands", {})
    found = [every_command(c, (*words, name)) for name, c in below.items()]
    return [(words, command), *(pair for pairs in found for pair in pairs)]


COMMANDS = dict(every_command(typer.main.get_command(commands.app)))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("width", [80, 140])
def test_help_cuts_no_name_and_no_sentence(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    width: int,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert code_of(*words, "--help") == 0
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert not re.search(r"\w\.\.\.$", shown, re.M)
    assert max(map(len, shown.splitlines())) <= width
    for parameter in COMMANDS[words].params:
        for name in (*parameter.opts, *parameter.secondary_opts):
            if name.startswith("-"):
                assert re.search(rf"(^|[ ,]){re.escape(name)}\b", shown, re.M), name


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("--version") == 0
    assert code_of("--version", "bench") == 0
    assert capsys.readouterr().out == f"localspec {__version__}\n" * 2


def test_models_list(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = tmp_path / "models.toml"
    own.write_text('[models.mine]\ntitle = "My [model]"\nsource = { path = "gone.gguf" }\n')
    monkeypatch.setattr(catalog, "user_file", lambda: own)
    assert code_of("models", "list") == 0
    out = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    (demo,) = (line for line in lines if line.startswith("demo SmolLM2"))
    assert demo.startswith("demo SmolLM2-135M-Instruct Q4_1 98.4 MB ")
    assert "yes draft-model*, eagle3, dflash" in demo
    assert "mine My [model] no ngram" in lines
    assert any("gone.gguf" in line for line in lines)
    assert any(str(own) in line for line in lines)


def test_a_broken_catalogue_is_a_failure_with_its_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = tmp_path / "models.toml"
    own.write_text('[models.mine]\ntitle = 3\nsource = { path = "x" }\n')
    monkeypatch.setattr(catalog, "user_file", lambda: own)
    assert code_of("models", "list") == 1
    assert f"{own}, line 2: models.mine.title" in capsys.readouterr().err


def program(*words: str, **environment: str) -> SimpleNamespace:
    done = subprocess.run(
        [sys.executable, "-m", "localspec", *words],
        capture_output=True,
        text=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        env=os.environ | environment,
    )
    return SimpleNamespace(code=done.returncode, out=done.stdout, err=done.stderr)


def test_python_m_localspec_is_the_same_program() -> None:
    done = program("--version")
    assert (done.code, done.out, done.err) == (0, f"localspec {__version__}\n", "")


def test_shell_completion_knows_commands_and_options() -> None:
    done = program(_LOCALSPEC_COMPLETE="complete_bash", COMP_WORDS="localspec be", COMP_CWORD="1")
    assert done.out.split() == ["bench"]
    done = program(
        _LOCALSPEC_COMPLETE="complete_bash", COMP_WORDS="localspec bench --draf", COMP_CWORD="2"
    )
    assert set(done.out.split()) >= {"--drafter"}


def test_output_that_cannot_show_a_character_goes_on() -> None:
    done = program("bench", "--help", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.code == 0
    assert "--drafter" in done.out


def test_a_reader_that_leaves_is_no_bug() -> None:
    command = [sys.executable, "-m", "localspec", "models", "list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        err = process.stderr.read().decode()
    assert "bug" not in err and "Traceback" not in err


def test_ctrl_c_before_there_is_anything_to_keep_leaves_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_args: list[str]) -> int:
        raise KeyboardInterrupt  # as in the midst of an import

    monkeypatch.setattr(cli, "_run", interrupted)
    assert code_of("doctor") == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")
@pytest.mark.parametrize("words", [["--version"], ["models", "list"], ["--help"]])
def test_where_the_output_cannot_be_written_it_is_said(words: list[str]) -> None:
    command = [sys.executable, "-m", "localspec", *words]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        "localspec: What was to be shown could not be written: No space left on device.\n"
        "Make room for it.\n"
    )
    closing = "import os, sys; os.close(1); os.execv(sys.argv[1], sys.argv[1:])"
    closed = [sys.executable, "-c", closing, *command]
    done = subprocess.run(closed, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "")
