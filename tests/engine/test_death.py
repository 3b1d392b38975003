"""How the engine dies, what the caller is told, and that nothing outlives its caller."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import psutil
import pytest
from engine.conftest import PLAIN, StartEngine, context
from patience import FOREVER
from tiny_models import BOS

from localspec.engine import messages as m
from localspec.engine.client import Engine
from localspec.errors import EngineClosed, EngineDied, EngineFailed
from localspec.records import DrafterSettings, LoadSettings, SamplerSettings

ROOT = Path(__file__).parents[2]
PROMPT = (BOS, 5, 6, 7, 8, 5, 6)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


def ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + FOREVER
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


# ---- killed -----------------------------------------------------------------------------------


def test_a_kill_during_a_generation_is_reported(
    start_engine: StartEngine, tiny_target: Path
) -> None:
    engine = start_engine(tiny_target)
    engine.open("s", PLAIN, context(8192))
    stream = engine.stream("s", PROMPT, max_tokens=8000, ignore_eos=True, interval=0)
    while not isinstance(next(stream), m.Chunk):
        pass
    os.kill(engine.pid, signal.SIGKILL)
    with pytest.raises(EngineDied, match="signal SIGKILL") as caught:
        stream.drain()
    assert caught.value.how == "signal SIGKILL"
    assert "killed from outside" in caught.value.message
    assert caught.value.log_tail[-1] not in caught.value.message, "it is no reason"
    assert 0 < len(caught.value.log_tail) <= 20
    assert any("llama_context" in line for line in caught.value.log_tail)
    assert str(engine.log_file) in str(caught.value)
    assert not engine.alive
    for again in (lambda: engine.tokenize("a"), lambda: engine.stream("s", PROMPT)):
        with pytest.raises(EngineDied, match="SIGKILL"):
            again()
    engine.cancel()
    engine.close()
    engine.close()


ASSERTION = """if True:
    import localspec.llama
    from localspec.decoding.loop import Session
    from localspec.llama.context import Batch
    def generate(self, request, listener):
        batch = Batch(1000)
        batch.tokens[:] = 5
        batch.fill_positions(1000, 0)
        self.target.context.decode(batch)  # more than n_batch
    Session.generate = generate
    """


def test_a_failed_assertion_of_llama_cpp_is_quoted(
    start_engine: StartEngine, patch_engine: Callable[[str], None], tiny_target: Path
) -> None:
    patch_engine(ASSERTION)
    engine = start_engine(tiny_target)
    engine.open("s", PLAIN, context())
    with pytest.raises(EngineDied, match=r"SIGABRT.*GGML_ASSERT\(n_tokens_all") as caught:
        engine.generate("s", PROMPT)
    assert "GGML_ASSERT" in caught.value.log_tail[-1]


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGTERM])
def test_other_signals_are_named(
    start_engine: StartEngine, tiny_target: Path, number: signal.Signals
) -> None:
    engine = start_engine(tiny_target)
    os.kill(engine.pid, number)
    with pytest.raises(EngineDied, match=f"signal {number.name}") as caught:
        engine.tokenize("a")
    assert caught.value.log_tail
    assert caught.value.message == f"The engine process died (signal {number.name})."


def test_a_garbled_frame_ends_the_engine_with_a_traceback(start_engine: StartEngine) -> None:
    engine = start_engine()
    assert engine._process.stdin is not None
    engine._process.stdin.write(b"\x00\x00\x00\x05hello")
    engine._process.stdin.flush()
    with pytest.raises(EngineDied, match="exit code 1") as caught:
        engine.tokenize("a")
    assert any("Traceback" in line for line in caught.value.log_tail)


def test_an_engine_that_cannot_start_says_why(
    patch_engine: Callable[[str], None], tmp_path: Path
) -> None:
    patch_engine("import importlib.metadata as m\nm.version = lambda name: '0.0.1'\n")
    with pytest.raises(EngineDied, match=r"exit code 1.*localspec needs 0\.3\.36 exactly"):
        Engine(log_file=tmp_path / "engine.log")


def test_a_crash_of_the_serving_thread_is_no_abort_of_the_interpreter(
    patch_engine: Callable[[str], None], tmp_path: Path
) -> None:
    patch_engine(
        "import localspec.llama\n"
        "def broken(): raise RuntimeError('no build')\n"
        "localspec.llama.build_info = broken\n"
    )
    with pytest.raises(EngineDied, match=r"exit code 1.*RuntimeError: no build"):
        Engine(log_file=tmp_path / "engine.log")


def test_only_the_log_of_this_engine_is_quoted(start_engine: StartEngine, tmp_path: Path) -> None:
    log = tmp_path / "shared.log"
    log.write_text("an old line\n")
    engine = start_engine(log_file=log)
    os.kill(engine.pid, signal.SIGKILL)
    with pytest.raises(EngineDied) as caught:
        engine.tokenize("a")
    assert caught.value.log_tail == []
    assert log.read_text().startswith("an old line\n")


# ---- bugs -------------------------------------------------------------------------------------

BUG = """if True:
    import localspec.llama
    from localspec.decoding.loop import Listener, Session
    import localspec.decoding.loop as loop
    accept = loop.accept
    calls = [0]
    def broken(draft, rows, sampler, tokens, eog, result):
        accept(draft, rows, sampler, tokens, eog, result)
        calls[0] += 1
        if sampler.settings.seed and calls[0] % 7 == 0:
            raise ZeroDivisionError("planted")
    loop.accept = broken
    """


@pytest.mark.parametrize("method", ["none", "ngram", "draft-model"])
def test_a_bug_is_reported_and_the_engine_lives_on(
    start_engine: StartEngine,
    patch_engine: Callable[[str], None],
    tiny_target: Path,
    tiny_draft: Path,
    method: str,
) -> None:
    patch_engine(BUG)
    engine = start_engine(tiny_target)
    drafter = DrafterSettings(method, "x", str(tiny_draft), n_max=3)
    engine.open("s", drafter, context())
    expected = engine.generate("s", PROMPT, max_tokens=40, ignore_eos=True)
    for _ in range(3):
        with pytest.raises(EngineFailed, match="a bug: ZeroDivisionError: planted") as caught:
            engine.generate(
                "s", PROMPT, sampler=SamplerSettings(seed=1), max_tokens=40, ignore_eos=True
            )
        assert "report" in caught.value.hint
        # in the middle of a step: nothing of it may be reused as if it were known
        prompt = (*PROMPT, *expected.tokens[:10])
        kept = engine.generate("s", prompt, max_tokens=20, ignore_eos=True, reuse=True)
        fresh = engine.generate("s", prompt, max_tokens=20, ignore_eos=True)
        assert kept.tokens == fresh.tokens
    assert "in broken\n    raise ZeroDivisionError" in engine.log_file.read_text()


# ---- the caller goes first --------------------------------------------------------------------

PARENT = """
import os, queue, signal, sys, threading, time
from localspec.engine.client import Engine
from localspec.records import ContextSettings, DrafterSettings
model, doing, log = sys.argv[1:]
engine = Engine(log_file=__import__("pathlib").Path(log))
engine.load(model)
engine.open("s", DrafterSettings(), ContextSettings(8192, threads=1, n_batch=8192))
if doing == "prefill":
    stream = engine.stream("s", tuple(4 + i * i % 8 for i in range(8000)))
    time.sleep(0.3)
elif doing == "load":
    threading.Thread(target=engine.load, args=(model,), daemon=True).start()
signals = queue.SimpleQueue()
signal.signal(signal.SIGINT, lambda *_: signals.put(1))
print(engine.pid, flush=True)
while True:
    try:
        signals.get(timeout=0.1)  # one that comes just before a wait without an end is not heard
    except queue.Empty:
        continue
    run = engine.generate("s", (0, 5, 6), max_tokens=3, ignore_eos=True)
    print(len(run.tokens), engine.alive, flush=True)
"""


def start_parent(model: Path, doing: str, log: Path) -> tuple[subprocess.Popen[bytes], int]:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(model), doing, str(log)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        start_new_session=True,
    )
    return parent, int(line_of(parent.stdout))


def line_of(stream: IO[bytes] | None) -> bytes:
    assert stream is not None
    return stream.readline()


@pytest.mark.parametrize("doing", ["nothing", "prefill", "load"])
def test_the_engine_ends_when_its_caller_is_killed(
    slow_model: Path, tmp_path: Path, doing: str
) -> None:
    parent, pid = start_parent(slow_model, doing, tmp_path / "engine.log")
    assert not ended(pid)
    parent.kill()
    parent.wait()
    wait_until(lambda: ended(pid), "the engine outlived its caller")
    assert parent.stdout is not None
    parent.stdout.close()


def test_ctrl_c_in_the_callers_terminal_does_not_reach_the_engine(
    tiny_target: Path, tmp_path: Path
) -> None:
    parent, pid = start_parent(tiny_target, "nothing", tmp_path / "engine.log")
    assert os.getpgid(pid) != os.getpgid(parent.pid)
    for _ in range(2):
        os.killpg(parent.pid, signal.SIGINT)  # as a terminal does
        os.kill(pid, signal.SIGINT)
        assert line_of(parent.stdout) == b"3 True\n"
    parent.kill()
    parent.wait()
    wait_until(lambda: ended(pid), "the engine outlived its caller")
    assert parent.stdout is not None
    parent.stdout.close()


@pytest.mark.parametrize("doing", ["nothing", "prefill"])
def test_closing_ends_the_process(start_engine: StartEngine, slow_model: Path, doing: str) -> None:
    engine = start_engine(slow_model)
    # it looks at its pipe between two of a batch's matrices, and is waited for for some seconds
    engine.open("s", PLAIN, context(8192, n_batch=512))
    if doing == "prefill":
        engine.stream("s", (5,) * 8000)
        time.sleep(0.3)
    assert engine._process.stdin is not None
    engine._process.stdin.close()  # as closing does, which waits for some seconds then
    engine._process.wait(FOREVER)
    engine.close()
    assert engine._process.returncode == 0, "it ended by itself"
    assert not engine._reader.is_alive()


def test_who_waits_in_another_thread_is_told_that_it_was_closed(
    start_engine: StartEngine, slow_model: Path
) -> None:
    """The engine did not die, and nobody is to be told so."""
    engine = start_engine(slow_model)
    engine.open("s", PLAIN, context(8192, n_batch=8192))
    stream = engine.stream("s", (5,) * 8000)
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(stream.drain)
        engine.close()
        assert isinstance(waiting.exception(FOREVER), EngineClosed)
    for again in (lambda: engine.tokenize("a"), stream.cancel):
        with pytest.raises(EngineClosed):
            again()


def test_a_stopped_engine_is_killed_on_close(start_engine: StartEngine) -> None:
    engine = start_engine()
    os.kill(engine.pid, signal.SIGSTOP)
    process = psutil.Process(engine.pid)
    wait_until(lambda: process.status() == psutil.STATUS_STOPPED, "it does not stop")
    time.sleep(0.1)  # all of its threads
    engine.close()
    assert engine._process.returncode == -signal.SIGKILL


# ---- surroundings -----------------------------------------------------------------------------


def test_modules_in_the_working_directory_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("queue", "signal", "numpy", "localspec", "msgspec"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not mine')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with Engine(log_file=tmp_path / "engine.log") as engine:
        assert engine.alive


# ---- a reader that does not read --------------------------------------------------------------


def read_late(folder: Path, model: Path, request: m.Generate, wait: float) -> list[m.Answer]:
    """Raw, since the client always reads: the pipe is full long before the generation ends, and is
    read only when the engine has had nothing more to do for a while."""
    with (folder / "engine.log").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "localspec.engine.host"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=ROOT,
        )
    assert child.stdin is not None
    assert child.stdout is not None
    opened = m.Open(2, request.session, PLAIN, context(8192))
    for message in (m.Load(1, str(model), LoadSettings()), opened, request):
        child.stdin.write(m.frame(message))
    child.stdin.flush()
    process = psutil.Process(child.pid)
    busy = [0.0] * 10
    while len(set(busy)) > 1 or not busy[-1]:
        time.sleep(0.1)
        times = process.cpu_times()
        busy = [*busy[1:], times.user + times.system]
    time.sleep(wait)
    for number in (signal.SIGSTOP, signal.SIGCONT):  # a write that is interrupted sends a part
        os.kill(child.pid, number)
        time.sleep(0.1)
    answers: list[m.Answer] = []
    while not answers or not isinstance(answers[-1], m.Finished):
        body = m.read_frame(child.stdout)
        assert body is not None, "the stream broke off"
        answers.append(m.decode_answer(body))
    child.stdin.close()
    assert child.wait(FOREVER) == 0
    child.stdout.close()
    return answers


def test_a_reader_that_stalls_neither_blocks_the_loop_nor_loses_anything(
    tmp_path: Path, tiny_target: Path
) -> None:
    n = 4000
    request = m.Generate(3, "s", PROMPT, SamplerSettings(), n, ignore_eos=True, interval=0)
    answers = read_late(tmp_path, tiny_target, request, wait=5)
    chunks = [a for a in answers if isinstance(a, m.Chunk)]
    finished = answers[-1]
    assert isinstance(finished, m.Finished)
    steps = [s for c in chunks for s in c.steps]
    assert sum(s.tokens for s in steps) == len(finished.generation.tokens) - 1 == n - 1
    assert [c.tokens for c in chunks] == list(range(2, n + 1))
    assert sum(len(m.frame(c)) for c in chunks) > 2**17, "the pipe was never full"
    assert max(s.t_step for s in steps) < 5, "a step waited for the reader"


def test_an_interrupted_write_of_a_long_answer_is_gone_on_with(
    tmp_path: Path, tiny_target: Path
) -> None:
    request = m.Generate(
        3, "s", PROMPT, SamplerSettings(), 2000, ignore_eos=True, record=True, interval=1e9
    )
    finished = read_late(tmp_path, tiny_target, request, wait=0)[-1]
    assert isinstance(finished, m.Finished)
    assert len(m.frame(finished)) > 2**17, "it fits into the pipe"
    assert sum(s.tokens for s in finished.generation.steps) == 1999


def test_a_client_that_reads_late_gets_everything(
    start_engine: StartEngine, tiny_target: Path
) -> None:
    engine = start_engine(tiny_target)
    engine.open("s", PLAIN, context(4096))
    stream = engine.stream("s", PROMPT, max_tokens=3000, ignore_eos=True, interval=0)
    time.sleep(1)
    tokens = [e.tokens for e in stream if isinstance(e, m.Chunk)]
    assert tokens == list(range(2, 3001))
    assert len(stream.result.tokens) == 3000
    assert stream.result.stop == "length"
