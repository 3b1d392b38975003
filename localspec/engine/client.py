"""The engine seen from outside: starts the child process, talks to it, reports its death.

One generation at a time (concurrency 1). Calls block one thread; ``cancel`` may come from any.
Never imports llama_cpp or numpy.
"""

from __future__ import annotations

import itertools
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import platformdirs

from localspec import errors
from localspec.engine import messages as m
from localspec.engine.messages import Chunk, Opened, Prefill, Probed, Replayed
from localspec.fit import Fit, Formula, Placement, check_context, refine
from localspec.gguf_header import check_model_file
from localspec.machine import Memory, memory
from localspec.records import (
    BuildInfo,
    ContextSettings,
    DepthCosts,
    Device,
    DrafterSettings,
    Generation,
    LoadSettings,
    ModelInfo,
    SamplerSettings,
    Use,
)

KEPT_LOGS = 10
DEFAULT_LOAD = LoadSettings()
NO_DRAFTER = DrafterSettings()
GREEDY = SamplerSettings()
A = TypeVar("A", bound=m.Message)


class Engine:
    """``with Engine() as engine: engine.load(path); engine.open("plain", ...)``.

    Raises ``EngineDied`` from any call when the process ends by itself, ``EngineClosed`` when it
    was ended by ``close``, and otherwise the ``LocalspecError`` that the engine reports.
    """

    build: BuildInfo
    model: ModelInfo
    loaded: LoadSettings | None = None
    """How ``model`` was loaded; None: no model is."""

    def __init__(
        self,
        *,
        log_file: Path | None = None,
        begun: Callable[[Engine], object] = lambda _engine: None,
    ) -> None:
        """``begun`` gets it before it is ready, which takes a while: it can be closed from then
        on."""
        self.log_file = log_file or _new_log_file()
        try:
            log = self.log_file.open("ab")
        except OSError as e:
            kind = errors.LocalspecError if log_file is None else errors.UsageError
            raise kind(
                f"The log file {self.log_file} cannot be written: {e.strerror}.",
                "Choose another with --log-file.",
            ) from e
        self._log_start = log.tell()
        platform: dict[str, Any] = (
            {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP")}  # noqa: B009
            if sys.platform == "win32"
            else {"process_group": 0}
        )
        with log:
            self._process = subprocess.Popen(
                # -P: a queue.py in the user's working directory is not ours to import
                [sys.executable, "-P", "-m", "localspec.engine.host"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "GGML_NO_BACKTRACE": "1", **_import_path()},
                **platform,
            )
        self.pid = self._process.pid
        self._ids = itertools.count(1)
        self._answers: queue.SimpleQueue[m.Answer | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._free: Memory | None = None
        self._closed = False
        self._reader = threading.Thread(target=self._read, name="engine-reader", daemon=True)
        self._reader.start()
        try:
            begun(self)
            self.build = self._expect(m.Ready, 0).build
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """End the process by ending its pipe; kill it if it does not follow. What waits for an
        answer in another thread is told (``EngineClosed``)."""
        self._closed = True
        process = self._process
        if not hasattr(self, "build"):  # it does not listen yet
            process.kill()
        try:
            if process.stdin:
                process.stdin.close()
        except OSError:
            pass  # it is gone already
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._reader.join()  # it has reached the end, or will as soon as it has caught up
        if process.stdout:
            process.stdout.close()

    def load(self, path: str | Path, settings: LoadSettings = DEFAULT_LOAD) -> ModelInfo:
        self.model = self._ask(m.Loaded, m.Load(next(self._ids), str(path), settings)).model
        self.loaded = settings
        return self.model

    def open(
        self,
        session: str,
        drafter: DrafterSettings,
        context: ContextSettings,
        copy_from: str | None = None,
    ) -> Opened:
        """After a KeyboardInterrupt there is no such session: the engine gives the opening up, or
        closes what it has opened, while other requests may follow."""
        request = m.Open(next(self._ids), session, drafter, context, copy_from)
        try:
            return self._ask(m.Opened, request)
        except KeyboardInterrupt:
            self._send(m.Cancel(request.id))
            self._send(m.Close(next(self._ids), session))
            raise

    def close_session(self, session: str) -> None:
        self._ask(m.Ok, m.Close(next(self._ids), session))

    def devices(self) -> tuple[Device, ...]:
        """llama.cpp's devices and their memory now."""
        return self._ask(m.Found, m.Devices(next(self._ids))).devices

    def free_memory(self) -> Memory:
        """What there is for a model: once one is loaded, what there was before, where that was
        asked."""
        if self._free is None or self.loaded is None:
            self._free = memory(self.devices())
        return self._free

    def memory(
        self,
        path: str | Path,
        context: ContextSettings,
        load: LoadSettings = DEFAULT_LOAD,
        drafter: DrafterSettings = NO_DRAFTER,
    ) -> tuple[Use, ...]:
        """What a session would take with the target of ``path``: llama.cpp simulates it."""
        request = m.Measure(next(self._ids), str(path), load, drafter, context)
        return self._ask(m.Measured, request).uses

    def fit(
        self,
        path: str | Path,
        context: ContextSettings,
        load: LoadSettings = DEFAULT_LOAD,
        drafter: DrafterSettings = NO_DRAFTER,
    ) -> Fit:
        """Whether and how it fits into ``free_memory``, by simulation."""
        target = check_model_file(path)
        check_context(target, context.n_ctx)
        own = None
        if drafter.path is not None:
            own = check_model_file(drafter.path)
        elif "mtp" in drafter.sources:
            own = target
        formula = Formula(target, context, load, self.free_memory(), own, drafter.n_max)

        def simulate(placement: Placement, n_ctx: int) -> tuple[Use, ...]:
            layers, experts = placement
            return self.memory(
                path,
                replace(context, n_ctx=n_ctx),
                replace(load, gpu_layers=layers, n_cpu_moe=experts),
                drafter,
            )

        return refine(formula, simulate, context.n_ctx)

    def session_memory(self, session: str) -> tuple[Use, ...]:
        """What an open session takes, its models' weights included."""
        return self._ask(m.Measured, m.MeasureSession(next(self._ids), session)).uses

    def tokenize(self, *segments: str, bos: bool = True) -> tuple[int, ...]:
        # half a surrogate pair (bytes of an argument that were not UTF-8) has no encoding
        clean = tuple(s.encode("utf-8", "replace").decode() for s in segments)
        return self._ask(m.Tokens, m.Tokenize(next(self._ids), clean, bos)).tokens

    def pieces(self, tokens: tuple[int, ...]) -> tuple[bytes, ...]:
        """What each token adds to a text, as UTF-8; a character of several tokens is in parts."""
        return self._ask(m.Texts, m.Pieces(next(self._ids), tokens)).texts

    def probe(self, session: str, tokens: tuple[int, ...], sizes: tuple[int, ...]) -> Probed:
        return self._ask(m.Probed, m.Probe(next(self._ids), session, tokens, sizes))

    def replay(
        self,
        session: str,
        plain_session: str,
        prompt: tuple[int, ...],
        run: Generation,
        index: int | None,
        sampler: SamplerSettings,
        ignore_eos: bool = False,
        sampled: bool = False,
    ) -> Replayed:
        """Set ``run`` (made with ``record``) beside the plain path, token by token; ``index`` is
        the generated token at which it first differs from a plain run."""
        kept = tuple(step.tokens for step in run.steps)
        request = m.Replay(
            next(self._ids),
            session,
            plain_session,
            prompt,
            run.tokens,
            run.drafts,
            run.parents,
            kept,
            index,
            sampler,
            ignore_eos,
            sampled,
        )
        return self._ask(m.Replayed, request)

    def rounding(
        self, session: str, plain_session: str, prompt: tuple[int, ...], tokens: tuple[int, ...]
    ) -> float:
        """By how much roundings alone take rows of this text apart (``Replayed.differences``)."""
        request = m.Rounding(next(self._ids), session, plain_session, prompt, tokens)
        return self._ask(m.Rounded, request).largest

    def costs(self, session: str, depths: tuple[int, ...]) -> tuple[DepthCosts, ...]:
        """What every draft length of the session costs, at each of these context depths."""
        return self._ask(m.Costed, m.Costs(next(self._ids), session, depths)).costs

    def stream(
        self,
        session: str,
        prompt: tuple[int, ...],
        *,
        sampler: SamplerSettings = GREEDY,
        max_tokens: int = 128,
        stop: tuple[str, ...] = (),
        ignore_eos: bool = False,
        reuse: bool = False,
        record: bool = False,
        interval: float = 0.05,
        scores: bool = False,
    ) -> Stream:
        """Start a generation; iterate over its events, then read ``result``."""
        self._settle()
        request = m.Generate(
            next(self._ids),
            session,
            prompt,
            sampler,
            max_tokens,
            stop,
            ignore_eos,
            reuse,
            record,
            interval,
            scores,
        )
        stream = Stream(self, request.id)
        try:
            self._send(request)
            self._stream = stream
        except KeyboardInterrupt:  # it may be under way, and nobody will wait for its end
            self._send(m.Cancel(request.id))
            raise
        return stream

    def generate(self, session: str, prompt: tuple[int, ...], **options: Any) -> Generation:
        """``stream`` to its end."""
        return self.stream(session, prompt, **options).drain()

    def cancel(self) -> None:
        """Stop the running generation, if any; it then ends with stop "cancelled"."""
        stream = self._stream
        if stream is not None:
            stream.cancel()

    # ---- the pipe ---------------------------------------------------------------------------

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            while (body := m.read_frame(self._process.stdout)) is not None:
                self._answers.put(m.decode_answer(body))
        finally:
            self._answers.put(None)  # whatever ended the reading, nobody may wait for more

    def _send(self, request: m.Message) -> None:
        assert self._process.stdin is not None
        try:
            data = m.frame(request)
        except UnicodeEncodeError as e:
            raise errors.UsageError(
                f"{e.object!r} is not valid Unicode text.",
                "Rename the file, or write the text in UTF-8.",
            ) from e
        except OverflowError as e:
            raise errors.UsageError("A number does not fit 64 bits.") from e
        with self._lock:
            try:
                self._process.stdin.write(data)
                self._process.stdin.flush()
            except (OSError, ValueError) as e:
                raise self._end() from e

    def _ask(self, kind: type[A], request: m.Message) -> A:
        self._settle()
        self._send(request)
        return self._expect(kind, request.id)

    def _settle(self) -> None:
        """Let a generation that nobody reads any more come to its end."""
        while self._stream is not None:
            try:
                self._stream.drain()
            except errors.EngineDied:
                raise
            except errors.LocalspecError:
                continue  # how it failed is no concern of the request that follows

    def _expect(self, kind: type[A], request: int) -> A:
        while True:
            answer = self._next(request)
            if isinstance(answer, kind):
                return answer

    def _next(self, request: int) -> m.Message:
        """The next message of ``request``; what is left of an interrupted one is passed over."""
        while True:
            answer = self._answers.get()
            if answer is None:
                self._answers.put(None)  # so that the next call is told as well
                raise self._end()
            if answer.id != request:
                continue
            if isinstance(answer, m.Failed):
                raise _as_error(answer)
            return answer

    def _end(self) -> BaseException:
        return errors.EngineClosed() if self._closed else self.death()

    def kill(self) -> None:
        """End a process that does not answer any more; who waits for it is told that it died."""
        self._process.kill()

    def death(self) -> errors.EngineDied:
        """How the process ended, for a caller that found it not ``alive``."""
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if code < 0:
            try:
                how = f"signal {signal.Signals(-code).name}"
            except ValueError:
                how = f"signal {-code}"
        else:
            how = f"exit code {code}"
        return errors.EngineDied(how, self._log_tail(), str(self.log_file))

    def _log_tail(self, lines: int = 20) -> list[str]:
        try:
            with self.log_file.open("rb") as log:
                log.seek(max(self._log_start, log.seek(0, os.SEEK_END) - 16384))
                text = log.read().decode("utf-8", "replace")
        except OSError:
            return []
        # llama.cpp shows the loading of weights as lines of dots
        return [line for line in text.splitlines() if line.strip(" .")][-lines:]


def connect(
    target: Path,
    settings: LoadSettings,
    log_file: Path | None = None,
    choose: Callable[[Engine], LoadSettings] | None = None,
) -> Engine:
    """A new engine process with ``target`` loaded; ``choose`` replaces the settings (fitting)."""
    engine = Engine(log_file=log_file)
    try:
        engine.load(target, choose(engine) if choose else settings)
    except BaseException:
        engine.close()
        raise
    return engine


class Stream(Iterator[Prefill | Chunk]):
    """Events of one generation. It survives a KeyboardInterrupt raised while waiting: call
    ``cancel`` and go on iterating; ``result`` is set when the iteration ends."""

    result: Generation

    def __init__(self, engine: Engine, request: int) -> None:
        self._engine, self._id = engine, request
        self._done = False

    def __next__(self) -> Prefill | Chunk:
        if self._done:
            raise StopIteration
        try:
            message = self._engine._next(self._id)
        except errors.LocalspecError:
            self._finish()
            raise
        if isinstance(message, m.Finished):
            self.result = message.generation
            self._finish()
            raise StopIteration
        assert isinstance(message, Prefill | Chunk)
        return message

    def _finish(self) -> None:
        self._done = True
        if self._engine._stream is self:
            self._engine._stream = None

    def cancel(self) -> None:
        if not self._done:
            self._engine._send(m.Cancel(self._id))

    def drain(self) -> Generation:
        """Read to the end without looking at the events."""
        for _ in self:
            pass
        return self.result


def _as_error(failed: m.Failed) -> errors.LocalspecError:
    kind = getattr(errors, failed.kind, None)
    if isinstance(kind, type) and issubclass(kind, errors.LocalspecError):
        return kind(failed.message, failed.hint)
    return errors.EngineFailed(failed.message, failed.hint)


def _import_path() -> dict[str, str]:
    """PYTHONPATH for the child where this package is a checkout that is not installed."""
    root = Path(__file__).parents[2]
    if root.name in ("site-packages", "dist-packages"):
        return {}
    given = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(root), *([given] if given else [])])}


def _new_log_file() -> Path:
    """A fresh file in the user's log folder (a temporary one where that fails); few are kept."""
    folder = Path(platformdirs.user_log_dir("localspec", appauthor=False))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        old = sorted(folder.glob("engine-*.log"), key=lambda p: p.stat().st_mtime)
        for path in old[: max(0, len(old) - KEPT_LOGS + 1)]:
            path.unlink(missing_ok=True)
        handle, name = tempfile.mkstemp(prefix="engine-", suffix=".log", dir=folder)
    except OSError:
        handle, name = tempfile.mkstemp(prefix="localspec-engine-", suffix=".log")
    os.close(handle)
    return Path(name)
