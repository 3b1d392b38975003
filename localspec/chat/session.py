"""A chat with a model: the engine process, one open session in it, and the conversation.

Used by the line-based commands and by the TUI. It prints nothing: ``take_notices`` hands over what
the person should read. When the engine dies the conversation lives on, and the next question starts
a new engine.
"""

from __future__ import annotations

import secrets
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from localspec.catalog import (
    AFTER_NGRAM,
    DrafterSpec,
    left_out,
    resolve_drafters,
    resolve_target,
)
from localspec.chat.conversation import Conversation, Message, Prompt
from localspec.chat.settings import choose_sampler, threads_of
from localspec.chat.template import ChatTemplate
from localspec.engine.client import Engine, Stream, connect
from localspec.engine.fitting import Fitting
from localspec.engine.messages import Chunk, Prefill
from localspec.errors import (
    ContextTooSmall,
    EngineDied,
    EngineFailed,
    LocalspecError,
    SpeculationRefused,
    UsageError,
)
from localspec.limits import LONGEST_DRAFT
from localspec.paths import kind_here
from localspec.records import (
    FULL_KV_TYPES,
    SUSPECT_RATE,
    ChatOptions,
    ContextSettings,
    Counts,
    DrafterSettings,
    DraftLength,
    Generation,
    ModelInfo,
    SamplerSettings,
    StopReason,
    Times,
)

CHAT_CONTEXT = 4096
"""Context of a chat when --ctx is not given (less when the model was trained on less)."""

RUN_ANSWER = 1024
"""Tokens that ``run`` leaves for the answer when neither --ctx nor --max-tokens is given."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the engine was asked for the last answer: enough to ask it again."""

    prompt: Prompt
    sampler: SamplerSettings


@dataclass(frozen=True, slots=True)
class Origin:
    """What is kept of an answer, beside its text, so that it can be asked for once more exactly:
    the file of its model, its ids and why it ended, its sampler with its seed, and a checksum of
    its prompt's ids. All JSON values."""

    model: str
    ids: tuple[int, ...]
    stop: StopReason
    sampler: dict[str, Any]
    prompt: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the answers of a chat."""

    answers: int = 0
    counts: Counts = field(default_factory=Counts)
    times: Times = field(default_factory=Times)
    prompt_tokens: int = 0
    cached_tokens: int = 0

    def add(self, run: Generation) -> Totals:
        return Totals(
            self.answers + 1,
            self.counts + run.counts,
            self.times + run.times,
            self.prompt_tokens + run.prompt_tokens,
            self.cached_tokens + run.cached_tokens,
        )


class ChatSession:
    """Blocking; for one thread, except that an Answer may be cancelled from any.

    ``with ChatSession(options) as chat: for event in chat.ask("Hello"): ...``
    """

    def __init__(
        self,
        options: ChatOptions,
        *,
        connect: Callable[..., Engine] = connect,
        record: bool = False,
    ) -> None:
        """``record``: answers keep their steps and drafts (``Generation.steps``)."""
        self.options = options
        self.record = record
        self.target = resolve_target(options.model)
        self._specs: dict[tuple[str, str | None], DrafterSpec] = {}
        self._notices: list[str] = []
        self.drafter = self._choose_drafter(options.drafter)
        self.totals = Totals()
        self._counts: dict[DrafterSettings, Counts] = {}
        self.last: Generation | None = None
        self.last_seed: int | None = None
        self._asked: Asked | None = None
        self._evaluated: int | None = None
        self.settings: dict[str, str | int | float | bool] = {}
        self.n_ctx = self._n_ctx_asked = 0
        self._connect = connect
        self._fitting: Fitting | None = None
        self._engine: Engine | None = None
        self._session: str | None = None
        self._opened = 0
        self._again = 0
        self._told: set[str] = set()
        self._speculating = self.drafter
        self._model: ModelInfo | None = None
        self._conversation: Conversation | None = None

    # ---- life ---------------------------------------------------------------------------

    def __enter__(self) -> ChatSession:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
        self._engine, self._session = None, None

    @property
    def is_whole(self) -> bool:
        """Are its files still there? A running engine goes on with one that was removed."""
        drafter = [Path(self.drafter.path)] if self.drafter.path else []
        return all(kind_here(path) == "file" for path in (self.target.path, *drafter))

    @property
    def engine(self) -> Engine:
        """The running engine with the model loaded; started when there is none."""
        if self._engine is not None and not self._engine.alive:
            self._engine, self._session = None, None
        if self._engine is None:
            given = self.options.engine
            log_file = Path(given.log_file) if given.log_file else None
            self._fitting = Fitting(
                self.target.path,
                given.load,
                self._context(given.ctx or CHAT_CONTEXT),
                [self.drafter],
                given=given.ctx is not None,
                refuse=given.fit_check,
            )
            self._engine = self._connect(
                self.target.path, given.load, log_file, self._fitting.choose
            )
            self._notices += self._fitting.notes
            self._model = self._engine.model
        return self._engine

    @property
    def model(self) -> ModelInfo:
        if self._model is None:
            _ = self.engine
        assert self._model is not None
        return self._model

    @property
    def conversation(self) -> Conversation:
        if self._conversation is None:
            thinking = self.options.engine.thinking
            self._conversation = Conversation(
                ChatTemplate.from_model(self.model),
                self.options.system or self.target.system or "",
                self.target.thinking if thinking is None else thinking,
            )
        return self._conversation

    @property
    def sampler(self) -> SamplerSettings:
        return choose_sampler(self.options, self.target, self.model.sampling)

    @property
    def held(self) -> int | None:
        """Tokens of the conversation in the context; None: the next answer finds out, as after the
        engine died and in a conversation that was opened again."""
        if self._conversation is not None and not self._conversation.messages:
            return 0
        return None if self._session is None else self._evaluated

    def _tell_once(self, text: str) -> None:
        """Keep a sentence for the person that need not be said twice in a chat."""
        if text not in self._told:
            self._told.add(text)
            self._notices.append(text)

    def take_notices(self) -> list[str]:
        notices, self._notices = self._notices, []
        return notices

    # ---- answers ------------------------------------------------------------------------

    def start(self) -> None:
        """Start the engine, load the model and open the session, as far as that is not done."""
        self._open(self._chat_context())

    def ask(self, text: str) -> Answer:
        """Add a question and answer it."""
        self.start()
        undo = self._undo()
        self._again = 0
        self.conversation.ask(text)
        return self._answer(self._seed(), undo)

    def regenerate(self) -> Answer:
        """Answer the last question again, with another seed."""
        self.start()
        undo = self._undo()
        if not self.conversation.drop_answer():
            raise UsageError("There is no answer to generate again.", "Ask something first.")
        self._again += 1
        return self._answer(self._seed(), undo)

    def edit(self, text: str) -> Answer:
        """Put ``text`` in place of the last question and answer it."""
        self.start()
        undo = self._undo()
        if not self.conversation.drop_turn():
            raise UsageError("There is no question to change.", "Ask something first.")
        self._again = 0
        self.conversation.ask(text)
        return self._answer(self._seed(), undo)

    @property
    def origin(self) -> Origin | None:
        """Of the last answer; None where the engine died in it."""
        asked, last = self._asked, self.last
        if asked is None or last is None:
            return None
        prompt = _checksum(asked.prompt)
        return Origin(self.model.path, last.tokens, last.stop, asdict(asked.sampler), prompt)

    def begin(
        self,
        messages: Sequence[tuple[Message, Origin | None]] = (),
        *,
        system: str = "",
        thinking: bool | None = None,
    ) -> None:
        """Another conversation, with the ``messages`` it has so far, and the settings of its last
        answer. Where an answer's origin is known and its prompt comes out as it was, its ids are
        kept to as if it had been given just now; so the last can be run again."""
        self.start()
        self._conversation = conversation = Conversation(
            ChatTemplate.from_model(self.model), system, thinking
        )
        self._asked = self._evaluated = self.last = None
        for message, origin in messages:
            self._asked = None
            if origin is not None and origin.model == self.model.path and origin.ids:
                with suppress(ContextTooSmall):
                    prompt = conversation.prompt(self._tokenize, self.n_ctx, self._reserve)
                    if _checksum(prompt) == origin.prompt:
                        counts, ids = Counts(), origin.ids
                        self.last = Generation(
                            message.content, ids, origin.stop, len(prompt.ids), 0, counts, Times()
                        )
                        self._asked = Asked(prompt, SamplerSettings(**origin.sampler))
                        conversation.answered(prompt, self.last)
                        continue
            conversation.messages.append(message)

    def score(
        self,
        drafter: DrafterSettings | None = None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Generation:
        """The last answer once more, from the same seed, with what target and drafter thought of
        each token; the conversation stays as it is. ``drafter``: the one that the answer was made
        with, where another may have been chosen since then. ``cancelled``: as for ``baseline``.
        An answer that ended by itself has room for a draft beyond its end, as it had."""
        asked, last = self._last_asked()
        room = max(map(len, last.drafts), default=0) if last.stop in ("eog", "stop") else 0
        if drafter is not None and drafter != self.drafter:
            with self._beside("chat-scores", drafter) as session:
                return self._once_more(session, asked, last, cancelled, room, scores=True).drain()
        assert self._session is not None
        again = self._once_more(self._session, asked, last, cancelled, room, scores=True).drain()
        self._evaluated = again.prompt_tokens + len(again.tokens)
        return again

    def baseline(
        self, heard: Callable[[Chunk], object], cancelled: Callable[[], bool] = lambda: False
    ) -> Generation:
        """The last answer once more without a drafter: the speed to compare with, and the text that
        it should have. ``cancelled``: was this, while it could not be yet?"""
        asked, last = self._last_asked()
        with self._beside("chat-baseline", DrafterSettings()) as session:
            stream = self._once_more(session, asked, last, cancelled)
            for event in stream:
                if isinstance(event, Chunk):
                    heard(event)
            return stream.result

    def near_tie(self, drafter: DrafterSettings, plain: Generation) -> bool:
        """Does the last answer, made with ``drafter``, part from ``plain``, its baseline, where two
        tokens were as likely as roundings can tell? By a replay of its steps, as of a benchmark's
        runs. "No" proves no fault: the prompt is read in other batches here than it was."""
        asked, last = self._last_asked()
        index = last.parts_from(plain)
        if index is None or not last.drafts or (drafter.sampled and asked.sampler.temperature > 0):
            return False
        with (
            self._beside("chat-plain", DrafterSettings()) as beside,
            self._beside("chat-drafted", drafter) as session,
        ):
            prompt = asked.prompt.ids
            found = self.engine.replay(session, beside, prompt, last, index, asked.sampler)
        return found.verdict == "near tie"

    @contextmanager
    def _beside(self, name: str, drafter: DrafterSettings) -> Iterator[str]:
        """Another session, in a context of its own that starts from the conversation's state."""
        context = self._context(self._n_ctx_asked)
        self.engine.open(name, drafter, context, self._session)
        try:
            yield name
        finally:
            if self.engine.alive:
                self.engine.close_session(name)

    def _last_asked(self) -> tuple[Asked, Generation]:
        self.start()
        if self._asked is None or self.last is None or not self.last.tokens:
            raise UsageError(
                "The last answer cannot be run again: its prompt is not known any more.",
                "Ask something, or have it answered anew.",
            )
        return self._asked, self.last

    def _once_more(
        self,
        session: str,
        asked: Asked,
        last: Generation,
        cancelled: Callable[[], bool],
        room: int = 0,
        *,
        scores: bool = False,
    ) -> Stream:
        stream = self.engine.stream(
            session,
            asked.prompt.ids,
            sampler=asked.sampler,
            max_tokens=len(last.tokens) + room,
            stop=(*self.options.stop, *asked.prompt.stop),
            reuse=True,
            record=True,
            scores=scores,
        )
        if cancelled():
            stream.cancel()
        return stream

    def complete(self, prompt: str) -> Answer:
        """One completion for ``run``: ``prompt`` is a question, or raw text with --raw.

        The context is the smallest that holds the prompt and the answer.
        """
        undo = None
        if self.options.raw:
            ready = Prompt(prompt, self.engine.tokenize(prompt))
        else:
            undo = self._undo()
            self.conversation.ask(prompt)
            # The template's whole prompt first, so that the context can be measured to it.
            ready = self.conversation.prompt(self._tokenize, 2**31, 0)
        self._open(self._run_context(len(ready.ids)))
        if len(ready.ids) >= self.n_ctx:
            raise ContextTooSmall.of(len(ready.ids), self.n_ctx)
        return self._stream(ready, self._seed(), undo)

    def _answer(self, seed: int, undo: Callable[[], None]) -> Answer:
        try:
            prompt = self.conversation.prompt(self._tokenize, self.n_ctx, self._reserve)
            if prompt.dropped:
                turns = "turn was" if prompt.dropped == 1 else f"{prompt.dropped} turns were"
                self._notices.append(
                    f"The oldest {turns} dropped from the context of {self.n_ctx} tokens."
                )
            return self._stream(prompt, seed, undo)
        except BaseException as error:
            undo()
            self._forget_if_dead(error)
            raise

    @property
    def _reserve(self) -> int:
        """Tokens that a prompt leaves for its answer at the least."""
        return min(self.options.max_tokens or self.n_ctx // 4, self.n_ctx // 4)

    def _undo(self) -> Callable[[], None]:
        """What makes the conversation, and what of it is in the context, what they are now."""
        turns, evaluated = self.conversation.turns, self._evaluated

        def undo() -> None:
            self.conversation.restore(turns)
            self._evaluated = evaluated

        return undo

    def _stream(self, prompt: Prompt, seed: int, undo: Callable[[], None] | None) -> Answer:
        for text in prompt.notices:
            self._tell_once(text)
        assert self._session is not None
        asked = Asked(prompt, replace(self.sampler, seed=seed))
        stream = self.engine.stream(
            self._session,
            prompt.ids,
            sampler=asked.sampler,
            # More than fits: then the engine ends at the context's end and says so.
            max_tokens=self.n_ctx if self.options.max_tokens is None else self.options.max_tokens,
            stop=(*self.options.stop, *prompt.stop),
            reuse=True,
            record=self.record,
        )
        self.last_seed = seed
        return Answer(self, stream, asked, undo)

    def _seed(self) -> int:
        if "seed" in self.options.engine.sampler:
            return self.sampler.seed + self._again
        return secrets.randbelow(2**31)

    def _tokenize(self, segments: tuple[str, ...], bos: bool) -> tuple[int, ...]:
        return self.engine.tokenize(*segments, bos=bos)

    # ---- drafter ------------------------------------------------------------------------

    def use_drafter(self, name: str) -> None:
        """Speculate with the drafter called ``name`` (as --drafter) from the next answer on."""
        self._switch(self._choose_drafter(name))

    def speculate(self, *, on: bool) -> None:
        """Switch speculation off, or on again with the drafter that was used last."""
        if not on:
            self._switch(DrafterSettings())
        elif self.drafter.method == "none":
            again = self._speculating
            self._switch(self._choose_drafter("auto") if again.method == "none" else again)

    def draft_length(self, n_max: DraftLength) -> None:
        if n_max != "auto" and n_max < 1:
            raise UsageError(f"A draft of {n_max} tokens is none.", "Use /spec off for that.")
        if n_max != "auto" and n_max > LONGEST_DRAFT:
            raise UsageError(
                f"A draft of {n_max} tokens is too long.", f"Use {LONGEST_DRAFT} or fewer."
            )
        if self.drafter.method == "none":
            raise UsageError("Speculation is off, so there is no draft.", "Use /spec on first.")
        before = self.options
        self.options = replace(before, n_max=n_max)
        try:
            self._switch(self._settings(self._specs[self.drafter.method, self.drafter.path]))
        except BaseException:
            self.options = before
            raise

    def _choose_drafter(self, name: str) -> DrafterSettings:
        if name in ("all", f"{AFTER_NGRAM}all"):
            raise UsageError(
                f"{name} stands for several drafters, and an answer is made with one drafter.",
                "`localspec bench` compares them all.",
            )
        specs = resolve_drafters(self.target, (name,))
        self._notices += left_out(self.target, (name,))
        chosen = next((spec for spec in specs if spec.method != "none"), None)
        if chosen is None:
            return DrafterSettings()
        settings = self._settings(chosen)
        self._specs[settings.method, settings.path] = chosen
        return settings

    def _settings(self, drafter: DrafterSpec) -> DrafterSettings:
        o = self.options
        return drafter.settings(n_max=o.n_max, p_min=o.p_min, sampled=o.sampled, tree=o.tree)

    def _switch(self, drafter: DrafterSettings) -> None:
        """A new session with the needs of the drafter and the state of the old one.

        Where it fails or is interrupted, all stays as it was.
        """
        before = self.drafter
        if drafter == before:
            return
        self.drafter = drafter
        old, self._session = self._session, None
        if old is not None and self._engine is not None and self._engine.alive:
            try:
                self._open(self._n_ctx_asked, copy_from=old)
            except (LocalspecError, KeyboardInterrupt) as error:
                self.drafter = before
                self._session = old
                self._forget_if_dead(error)
                raise
            self._engine.close_session(old)
        if drafter.method != "none":
            self._speculating = drafter

    # ---- context ------------------------------------------------------------------------

    def _chat_context(self) -> int:
        wanted = self.options.engine.ctx
        return wanted or min(self.model.n_ctx_train or CHAT_CONTEXT, CHAT_CONTEXT)

    def _run_context(self, prompt_tokens: int) -> int:
        if self.options.engine.ctx:
            return self.options.engine.ctx
        answer = RUN_ANSWER if self.options.max_tokens is None else self.options.max_tokens
        needed = prompt_tokens + answer + self.drafter.n_max + 1
        needed = -(-needed // 256) * 256  # llama.cpp pads the cache to this anyway
        return min(needed, self.model.n_ctx_train) if self.model.n_ctx_train else needed

    def _open(self, n_ctx: int, copy_from: str | None = None) -> None:
        engine = self.engine
        if self._session is not None:
            return
        self._n_ctx_asked = n_ctx
        context = self._context(n_ctx)
        if self._fitting is not None:
            self._fitting.check(context, self.drafter)
        self._opened += 1
        name = f"chat-{self._opened}"
        try:
            opened = engine.open(name, self.drafter, context, copy_from)
        except SpeculationRefused as error:
            if self.options.drafter != "auto" or copy_from is not None:
                raise
            # Nobody asked for this drafter by name: go on without it and say why.
            self._tell_once(f"Speculation is off: {error}")
            self.drafter = DrafterSettings()
            opened = engine.open(name, self.drafter, context, copy_from)
        if copy_from is None:
            self._evaluated = None
        self._session = name
        self.settings = dict(opened.settings)
        self.n_ctx = int(opened.settings.get("n_ctx", n_ctx))
        for note in opened.notes:
            self._tell_once(note)

    def _context(self, n_ctx: int) -> ContextSettings:
        given = self.options.engine
        return ContextSettings(
            n_ctx=n_ctx,
            threads=threads_of(given),
            kv_type=given.kv_type,
            draft_kv_type=given.draft_kv_type,
            flash_attn=given.flash_attn,
        )

    # ---- the rest -----------------------------------------------------------------------

    def save(self, path: Path) -> None:
        self.conversation.save(
            path,
            self.model.path,
            {
                "model": self.target.name,
                "drafter": asdict(self.drafter),
                "sampler": asdict(self.sampler),
                "engine": self.settings,
            },
        )

    def load(self, path: Path) -> None:
        self._conversation = Conversation.load(path, self.conversation.template, self.model.path)

    def _finished(self, answer: Answer) -> None:
        run = answer.stream.result
        if run.text or answer.undo is None:  # else the answer before it is the last one still
            self.last, self._asked = run, answer.asked
        # a last token that the context has no room for was drawn all the same
        self._evaluated = min(run.prompt_tokens + len(run.tokens), self.n_ctx)
        self.totals = self.totals.add(run)
        self._suspect(run.counts)
        if answer.undo is None:
            return
        if run.text:
            self.conversation.answered(answer.prompt, run)
            return
        answer.undo()
        if run.stop == "cancelled":
            why = "The answer was stopped before its first token"
        elif self.options.max_tokens == 0:
            return  # none was asked for
        else:
            why = "The model gave an empty answer"
        self._notices.append(f"{why}; the conversation is as before the question.")

    def _suspect(self, counts: Counts) -> None:
        """Say once of a drafter that its drafts are hardly ever right."""
        drafter = self.drafter
        so_far = self._counts.get(drafter, Counts()) + counts
        self._counts[drafter] = so_far
        if so_far.hardly_accepted and drafter.method != "ngram":
            kv_type = self.options.engine.draft_kv_type
            self._tell_once(
                f"{drafter.name}: hardly any of its drafted tokens are accepted (under "
                f"{SUSPECT_RATE:.0%}). "
                + (
                    "Is it made for this model?"
                    if kv_type in FULL_KV_TYPES
                    else f"Its {kv_type} cache may be why: try --draft-kv-type f16."
                )
            )

    def _broke(self, answer: Answer, error: LocalspecError) -> None:
        self._forget_if_dead(error)
        if answer.undo is None:
            return
        if answer.text:
            self.conversation.broken_off(answer.text)
            self._asked = None
        else:
            answer.undo()

    def _forget_if_dead(self, error: BaseException) -> None:
        if isinstance(error, EngineDied) and self._engine is not None:
            self._engine.close()
            self._engine, self._session = None, None


def _checksum(prompt: Prompt) -> int:
    return zlib.crc32(array("q", prompt.ids).tobytes())


class Answer(Iterator[Prefill | Chunk]):
    """The events of one answer; iterate to the end, also after ``cancel``.

    ``text`` is what has arrived so far. At the end the conversation holds the answer, also one that
    was cancelled or broken off; when there is no text at all, it is as if it had not been asked.
    """

    def __init__(
        self,
        chat: ChatSession,
        stream: Stream,
        asked: Asked,
        undo: Callable[[], None] | None,
    ) -> None:
        self.stream = stream
        self.asked = asked
        self.prompt = asked.prompt
        self.undo = undo  # None: the answer belongs to no conversation
        self.text = ""
        self._chat = chat
        self._done = False

    @property
    def result(self) -> Generation:
        return self.stream.result

    def cancel(self) -> None:
        self.stream.cancel()

    def __next__(self) -> Prefill | Chunk:
        if self._done:
            raise StopIteration
        try:
            event = next(self.stream)
        except StopIteration:
            self._done = True
            self._chat._finished(self)
            raise
        except (EngineDied, EngineFailed) as error:
            self._done = True
            self._chat._broke(self, error)
            raise
        if isinstance(event, Chunk):
            self.text += "".join(span.text for span in event.spans)
        return event
