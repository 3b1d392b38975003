"""The engine process: loads models, runs the loop, answers over a pipe (DESIGN section 4).

``python -m localspec.engine.host``: requests on stdin, answers on stdout, the log on stderr.
It ends at once when the pipe ends, even inside a decode.
"""

from __future__ import annotations

import localspec.llama  # noqa: F401  isort: skip  (before numpy, see its docstring)

import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import BinaryIO

import msgspec

from localspec.decoding.loop import Listener, Request, Session
from localspec.decoding.measure import adaptive_lengths, costs
from localspec.decoding.replay import probe, replay, rounding
from localspec.decoding.target import Target
from localspec.drafters.base import Needs
from localspec.drafters.build import family_of
from localspec.engine import messages as m
from localspec.errors import EngineFailed, LocalspecError, ModelFileError
from localspec.fit import CONTEXT_STEP
from localspec.gguf_header import GGUFHeader, check_model_file, describe_kind
from localspec.llama import (
    Context,
    ContextParams,
    DecodeAborted,
    Model,
    ModelParams,
    build_info,
    log_capture,
)
from localspec.llama.context import AbortFlag
from localspec.llama.library import device_list
from localspec.llama.memory import buffers
from localspec.llama.unstable import missing
from localspec.records import (
    FULL_KV_TYPES,
    ContextSettings,
    DrafterSettings,
    LoadSettings,
    Span,
    Step,
    Use,
)


def _exit_with_traceback() -> None:
    """The interpreter's own exit would abort: the reader thread holds the lock of stdin."""
    traceback.print_exc()
    sys.stderr.flush()
    os._exit(1)


def _header(path: str) -> GGUFHeader | None:
    """What the file says of itself; None where it does not read: llama.cpp then says why."""
    with suppress(ModelFileError):
        return check_model_file(path)
    return None


def _has_mtp(header: GGUFHeader | None) -> bool:
    """llama.cpp loads MTP layers only when told to, and fails where it is told in vain."""
    return header is not None and header.mtp_layers > 0


def _block_note(drafter: DrafterSettings, needs: Needs) -> tuple[str, ...]:
    """Where fewer tokens are drafted than were asked for; of automatic lengths none were."""
    if needs.longest is None or needs.longest >= drafter.n_max or drafter.auto:
        return ()
    return (
        f"{drafter.name}, n_max {drafter.n_max}: the drafter's trained block allows "
        f"{needs.longest}, and it drafts no more.",
    )


class Pipe:
    """Both ends of the caller's pipe; neither ever makes the loop wait.

    A writer thread sends what is queued, so a reader that stalls costs memory, not decode time.
    """

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self.requests: queue.SimpleQueue[m.Request] = queue.SimpleQueue()
        self._outgoing: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._source, self._sink = source, sink
        self.abort = AbortFlag()
        self._lock = threading.Lock()  # a late Cancel must not stop what runs next
        self._running: int | None = None
        self._cancelled: set[int] = set()
        threading.Thread(target=self._read, name="reader", daemon=True).start()
        threading.Thread(target=self._write, name="writer", daemon=True).start()

    def send(self, message: m.Message) -> None:
        self._outgoing.put(m.frame(message))

    def running(self, request: int | None) -> None:
        """Which generation a Cancel may stop now; a Cancel that came first still counts."""
        with self._lock:
            self._running = request
            self.abort.clear()
            if request in self._cancelled:
                self.abort.set()
                self._cancelled.clear()

    def _read(self) -> None:
        """Whatever ends this thread ends the process: nobody else would hear the caller go."""
        try:
            while (body := m.read_frame(self._source)) is not None:
                self._take(body)
        except BaseException:  # noqa: BLE001  a bug, or no memory left
            _exit_with_traceback()
        os._exit(0)  # the caller is gone; nothing in this process is worth a goodbye

    def _take(self, body: bytes) -> None:
        try:
            request = m.decode_request(body)
        except msgspec.ValidationError as e:
            what = f"The engine does not understand a request: {e}."
            self.send(m.Failed(m.decode_envelope(body).id, "EngineFailed", what))
            return
        if not isinstance(request, m.Cancel):
            self.requests.put(request)
            return
        with self._lock:
            self._cancelled.add(request.id)
            if self._running == request.id:
                self.abort.set()

    def _write(self) -> None:
        try:
            while True:
                self._sink.write(self._outgoing.get())
                self._sink.flush()
        except OSError:
            os._exit(0)


class Forward(Listener):
    """Puts the loop's events on the pipe."""

    def __init__(self, pipe: Pipe, request: int) -> None:
        self._pipe, self._id = pipe, request

    def prefill(self, done: int, total: int, cached: int) -> None:
        self._pipe.send(m.Prefill(self._id, done, total, cached))

    def progress(
        self, spans: tuple[Span, ...], steps: Sequence[Step], tokens: int, elapsed: float
    ) -> None:
        self._pipe.send(m.Chunk(self._id, spans, tuple(steps), tokens, elapsed))


class _Lent:
    """What a drafter under construction may use; ``close`` takes it back if construction fails."""

    def __init__(self, host: Host, target: Model, path: str | None, s: ContextSettings) -> None:
        self.target = target
        self._host, self._settings = host, s
        self._target_context: Context | None = None
        self.contexts: list[Context] = []
        self._new_model: str | None = None
        self.drafter = self._load(path) if path else None

    def _load(self, path: str) -> Model:
        models = self._host.models
        if path not in models:
            settings, load_mtp = self._host.load_settings, _has_mtp(_header(path))
            params = ModelParams.drafter(settings, load_mtp=load_mtp)
            models[path] = Model(path, replace(params, simulated=self._host.simulated))
            self._new_model = path
        return models[path]

    @property
    def target_context(self) -> Context:
        assert self._target_context is not None, "needed before it was made"
        return self._target_context

    def make_target_context(self, needs: Needs) -> Context:
        s = self._settings
        branching = needs.outputs if needs.sequences > 1 else 0
        params = ContextParams(
            n_ctx=s.n_ctx + branching,
            threads=s.threads,
            batch=max(s.n_batch, needs.outputs),
            outputs=needs.outputs,
            sequences=needs.sequences,
            recurrent_snapshots=0 if self.target.can_roll_back else needs.outputs - 1,
            kv_type=s.kv_type,
            flash_attn=s.flash_attn,
        )
        self._target_context = Context(self.target, params, self._host.pipe.abort)
        return self._target_context

    def drafter_context(
        self,
        model: Model,
        *,
        outputs: int = 1,
        sequences: int = 1,
        batch: int | None = None,
        extra: int = 0,
        mtp: bool = False,
        reads_target: bool = False,
    ) -> Context:
        s = self._settings
        params = ContextParams(
            n_ctx=s.n_ctx + extra,
            threads=s.threads,
            batch=batch or max(s.n_batch, outputs),
            outputs=outputs,
            sequences=sequences,
            kv_type=s.draft_kv_type,
            flash_attn=s.flash_attn,
            mtp=mtp,
        )
        other = self.target_context if reads_target else None
        context = Context(model, params, self._host.pipe.abort, other)
        self.contexts.append(context)
        return context

    def close(self) -> None:
        for context in self.contexts:
            context.close()
        if self._target_context is not None:
            self._target_context.close()
        if self._new_model is not None:
            self._host.models.pop(self._new_model).close()


class Host:
    """One target, its sessions, and the drafters' models (each loaded once)."""

    def __init__(self, pipe: Pipe, *, simulated: bool = False) -> None:
        """``simulated``: models are not really loaded, and sessions only measured."""
        self.pipe = pipe
        self.simulated = simulated
        self._simulation: Host | None = None
        self.target: Model | None = None
        self.load_settings = LoadSettings()
        self.models: dict[str, Model] = {}
        self.sessions: dict[str, Session] = {}
        self.drafter_contexts: dict[str, list[Context]] = {}

    def serve(self) -> None:
        self.pipe.send(m.Ready(0, replace(build_info(), missing=missing())))
        while True:
            request = self.pipe.requests.get()
            try:
                self.pipe.send(self.answer(request))
            except LocalspecError as e:
                self.pipe.send(m.Failed(request.id, type(e).__name__, e.message, e.hint))
            except Exception as e:  # noqa: BLE001  a bug: its traceback goes to the log, the engine lives on
                traceback.print_exc()
                sys.stderr.flush()
                self.pipe.send(
                    m.Failed(
                        request.id,
                        "EngineFailed",
                        f"The engine met a bug: {type(e).__name__}: {e}.",
                        "Please report it with the log.",
                    )
                )

    def answer(self, request: m.Request) -> m.Message:
        match request:
            case m.Load():
                return self.load(request)
            case m.Open():
                return self.open_unless_cancelled(request)
            case m.Close():
                self.close(request.session)
                return m.Ok(request.id)
            case m.Tokenize():
                ids = self.model.vocab.tokenize_segments(request.segments, bos=request.bos)
                return m.Tokens(request.id, tuple(ids))
            case m.Pieces():
                return m.Texts(request.id, tuple(map(self.model.vocab.piece, request.tokens)))
            case m.Generate():
                return self.generate(request)
            case m.Probe():
                session = self.session(request.session)
                equal, difference = probe(session, request.tokens, request.sizes)
                return m.Probed(request.id, equal, difference)
            case m.Replay():
                found = replay(
                    self.session(request.session), self.session(request.plain_session), request
                )
                return m.Replayed(request.id, *found)
            case m.Rounding():
                session, plain = self.session(request.session), self.session(request.plain_session)
                return m.Rounded(
                    request.id, rounding(session, plain, request.prompt, request.tokens)
                )
            case m.Costs():
                return m.Costed(request.id, costs(self.session(request.session), request.depths))
            case m.Devices():
                return m.Found(request.id, device_list())
            case m.Measure():
                return m.Measured(request.id, self.measure(request))
            case m.MeasureSession():
                session = self.session(request.session)
                uses = self._uses(session, self.drafter_contexts[request.session])
                return m.Measured(request.id, uses)
            case _:
                raise EngineFailed(f"Unknown request {type(request).__name__}.")

    @property
    def model(self) -> Model:
        if self.target is None:
            raise EngineFailed("No model is loaded.")
        return self.target

    def session(self, name: str) -> Session:
        if name not in self.sessions:
            raise EngineFailed(f"No session {name!r} is open.")
        return self.sessions[name]

    def load(self, request: m.Load) -> m.Loaded:
        for name in list(self.sessions):
            self.close(name)
        for model in (*self.models.values(), *([self.target] if self.target else ())):
            model.close()
        self.models.clear()
        self.target = None
        self.load_settings = request.settings
        header = _header(request.path)
        if header is not None and header.is_drafter_only:  # llama.cpp aborts or errs when it is run
            raise ModelFileError(
                f"{header.path.name} is {describe_kind(header)}, not a model that can run by "
                "itself.",
                "Give it with --drafter, and its target with --model.",
            )
        # loaded once for all sessions, and so with what any of them may need
        params = ModelParams.target(request.settings, load_mtp=_has_mtp(header))
        params = replace(params, simulated=self.simulated)
        self.target = model = Model(request.path, params)
        return m.Loaded(request.id, model.info())

    def open_unless_cancelled(self, request: m.Open) -> m.Opened:
        self.pipe.running(request.id)
        try:
            return self.open(request)
        except DecodeAborted:
            raise EngineFailed("Opening the session was cancelled.") from None
        finally:
            self.pipe.running(None)

    def open(self, request: m.Open) -> m.Opened:
        s = request.context
        source = self.session(request.copy_from) if request.copy_from else None
        measured: dict[str, str] = {}
        with ExitStack() as undo:
            session, drafter_contexts = self._make(request.drafter, s, undo)
            session.warm_up()
            if request.drafter.auto:
                lengths = adaptive_lengths(session, self._plain_target(session, s))
                session.lengths = lengths
                measured = lengths.costs.describe()
            if source is not None:
                session.adopt(source)
            undo.pop_all()
        if request.session in self.sessions:
            self.close(request.session)
        self.sessions[request.session] = session
        self.drafter_contexts[request.session] = drafter_contexts
        needs = session.drafter.needs
        effective = session.target.context.effective() | {"n_ctx": session.target.n_ctx} | measured
        n_max = request.drafter.n_max
        if n_max:
            effective["n_max"] = min(n_max, needs.longest or n_max)
        for c in drafter_contexts:
            effective.update({f"draft_{k}": v for k, v in c.effective().items()})
        return m.Opened(
            request.id,
            request.session,
            effective,
            (
                *_block_note(request.drafter, needs),
                *self._notes(s, session.target.n_ctx, bool(drafter_contexts)),
            ),
        )

    def _make(
        self, drafter: DrafterSettings, s: ContextSettings, undo: ExitStack
    ) -> tuple[Session, list[Context]]:
        """A session for ``drafter``, and the drafter's contexts; ``undo`` frees both."""
        family = family_of(drafter)
        takes_file = family.has_file or family.may_have_file
        lent = _Lent(self, self.model, drafter.path if takes_file else None, s)
        undo.callback(lent.close)
        needs = family.needs(drafter, lent)
        context = lent.make_target_context(needs)
        made = family.build(drafter, lent, needs)
        undo.callback(made.close)
        session = Session(self.model, context, made, self.pipe.abort)
        undo.callback(session.close)
        return session, lent.contexts

    def _plain_target(self, session: Session, s: ContextSettings) -> Callable[[int], Target] | None:
        """Makes targets that keep nothing for drafts, where keeping something is worth a look: a
        recurrent memory keeps states for rollback with every token."""
        if not session.target.keeps_states:
            return None

        def make(n_ctx: int) -> Target:
            lent = _Lent(self, self.model, None, replace(s, n_ctx=n_ctx))
            return Target(lent.make_target_context(Needs()), Needs())

        return make

    def measure(self, request: m.Measure) -> tuple[Use, ...]:
        """In a host of its own, whose models are kept for the next question about them."""
        if self._simulation is None:
            self._simulation = Host(self.pipe, simulated=True)
        host = self._simulation
        known = host.target is not None and str(host.target.path) == request.path
        if not known or host.load_settings != request.load:
            host.load(m.Load(request.id, request.path, request.load))
        with ExitStack() as stack:
            session, drafter_contexts = host._make(request.drafter, request.context, stack)
            return host._uses(session, drafter_contexts)

    def _uses(self, session: Session, drafter_contexts: Sequence[Context]) -> tuple[Use, ...]:
        uses, counted = [], {self.model}
        for device, b in buffers(session.target.context).items():
            uses.append(Use(device, "target", b.weights, b.cache, b.compute))
        if session.plain is not None:
            for device, b in buffers(session.plain.context).items():
                uses.append(Use(device, "target", 0, b.cache, b.compute))
        for context in drafter_contexts:
            loaded = context.model in counted  # the target's own MTP layers
            for device, b in buffers(context).items():
                weights = 0 if loaded else b.weights
                uses.append(Use(device, "drafter", weights, b.cache, b.compute))
            counted.add(context.model)
        return tuple(uses)

    def _notes(self, s: ContextSettings, n_ctx: int, drafter_has_cache: bool) -> list[str]:
        notes = []
        if n_ctx > s.n_ctx and s.n_ctx % CONTEXT_STEP:  # more for a tree's branches is no news
            notes.append(
                f"The context holds {n_ctx} tokens: llama.cpp rounds the {s.n_ctx} asked for up."
            )
        if s.n_ctx > self.model.n_ctx_train:
            notes.append(
                f"The context of {s.n_ctx} tokens is longer than the {self.model.n_ctx_train} "
                "the model was trained on."
            )
        if drafter_has_cache and s.draft_kv_type not in FULL_KV_TYPES:
            notes.append(
                f"A {s.draft_kv_type} drafter cache can cost most of the acceptance; f16 is safe."
            )
        return notes

    def close(self, name: str) -> None:
        session = self.sessions.pop(name, None)
        self.drafter_contexts.pop(name, None)
        if session is not None:
            session.close()

    def generate(self, request: m.Generate) -> m.Finished:
        session = self.session(request.session)
        self.pipe.running(request.id)
        try:
            generation = session.generate(
                Request(
                    prompt=request.prompt,
                    sampler=request.sampler,
                    max_tokens=request.max_tokens,
                    stop=request.stop,
                    ignore_eos=request.ignore_eos,
                    reuse=request.reuse,
                    record=request.record,
                    scores=request.scores,
                    interval=request.interval,
                ),
                Forward(self.pipe, request.id),
            )
        finally:
            self.pipe.running(None)
        return m.Finished(request.id, generation)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # frames leave by a private descriptor; whatever else writes to stdout ends in the log
    sink = os.fdopen(os.dup(1), "wb")  # buffered: a bare write may send a part and leave the rest
    os.dup2(2, 1)
    log_capture.sink = lambda line: (sys.stderr.write(line + "\n"), None)[1]
    sys.stderr.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    pipe = Pipe(sys.stdin.buffer, sink)
    try:
        Host(pipe).serve()
    except BaseException:  # noqa: BLE001  a bug, or no memory left
        _exit_with_traceback()


if __name__ == "__main__":
    main()
