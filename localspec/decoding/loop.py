"""The one decode loop: prefill, then draft, verify, accept, roll back until something stops it.

The baseline runs through it with the drafter that proposes nothing, so that an A/B compares the
method and nothing else (DESIGN section 3).
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

from localspec.decoding.acceptance import Acceptance, accept
from localspec.decoding.detokenize import Detokenizer
from localspec.decoding.sampling import Sampler
from localspec.decoding.scores import Witness, score
from localspec.decoding.target import Target
from localspec.drafters.base import Draft, Drafter, common_prefix
from localspec.drafters.none import NoDrafter
from localspec.errors import ContextTooSmall, UsageError
from localspec.llama import Context, DecodeAborted, Model
from localspec.llama.context import AbortFlag
from localspec.records import (
    Generation,
    SamplerSettings,
    Scores,
    Span,
    Step,
    StopReason,
    Times,
    count,
)


@dataclass(frozen=True, slots=True)
class Request:
    """One generation; the fields of messages.Generate, without the wire."""

    prompt: Sequence[int]
    sampler: SamplerSettings
    max_tokens: int
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    reuse: bool = False
    record: bool = False
    scores: bool = False
    interval: float = 0.05


class Listener:
    """What a caller may hear while it runs. Called from the loop: must return at once.

    ``progress`` comes at most once an interval, and once more at the end with what is left.
    """

    def prefill(self, done: int, total: int, cached: int) -> None: ...

    def progress(
        self, spans: tuple[Span, ...], steps: Sequence[Step], tokens: int, elapsed: float
    ) -> None: ...


class Lengths(Protocol):
    """Chooses how far each step may draft (decoding.adaptive), from counts and times alone."""

    def begin(self) -> None: ...

    def limit(self, most: int) -> int:
        """The most tokens to draft in the step that comes; under 1 the drafter is not asked."""

    def observe(self, step: Step, accepted: Sequence[int]) -> None:
        """After the step; ``accepted``: the ranks of the drafted nodes that were accepted."""

    gives_up: bool
    """The rest of the run had better be decoded where nothing is kept ready for drafts."""


_EMPTY = Draft(0)
_ROOT: Sequence[int] = range(1)


class _Record:
    """What a run has produced so far, and how much of it the listener has heard."""

    def __init__(self, text: Detokenizer, listener: Listener) -> None:
        self.text = text
        self.spans: list[Span] = []
        self.steps: list[Step] = []
        self.drafts: list[tuple[int, ...]] = []
        self.parents: list[tuple[int, ...]] = []
        self.scores: list[Scores] = []
        self._listener = listener
        self._heard = 0

    def report(self, tokens: int, elapsed: float) -> None:
        """Tell the listener all that is new."""
        fresh, steps = self.text.take(), self.steps[self._heard :]
        if fresh or steps:
            self._listener.progress(fresh, steps, tokens, elapsed)
            self.spans += fresh
            self._heard = len(self.steps)


class Session:
    """A target context and a drafter over one conversation's memory.

    ``held`` are the ids whose keys and values the target holds; a generation with ``reuse`` keeps
    the longest common prefix of them, one without it starts from cleared memory.

    ``plain`` is a target to which a run may move, for good, when ``lengths`` gives drafting up.
    What the session holds is then what it held when the run moved.
    """

    def __init__(self, model: Model, context: Context, drafter: Drafter, abort: AbortFlag) -> None:
        self.model = model
        self.target = Target(context, drafter.needs)
        self.drafter = drafter
        self.abort = abort
        self.lengths: Lengths | None = None
        self.plain: Target | None = None
        self.held: list[int] = []
        self._unread: list[int] = []
        """Held like ``held``, but the drafter has not read it: of no use to it, but to others."""

    def close(self) -> None:
        self.drafter.close()
        self.target.close()
        if self.plain is not None:
            self.plain.close()

    def clear(self) -> None:
        self.target.context.clear()
        self.drafter.reset()
        self.held, self._unread = [], []

    def adopt(self, other: Session) -> None:
        """Take over another session's conversation state (DESIGN section 3, switching).

        A drafter that reads the target's hidden states needs them for the whole conversation: the
        next turn prefills it again. Until then the state is kept, for another switch.
        """
        self.clear()
        ids = other.held or other._unread
        if ids:
            self.target.context.copy_state(other.target.context)
        if self.drafter.needs.reads_target:
            self._unread = list(ids)
        else:
            self.held = list(ids)

    def warm_up(self) -> None:
        """Decode every verify batch size once (graph reserve and caches), then clear."""
        outputs = self.drafter.needs.outputs
        draft = Draft(outputs)
        # a tree's sizes are many; the largest reserves the graph for all
        for n in range(outputs) if self.drafter.needs.sequences == 1 else (0, outputs - 1):
            draft.n = n
            self.target.verify(0, draft, 0)
            self.target.context.synchronize()
            self.clear()

    def _keep_prefix(self, prompt: Sequence[int], reuse: bool) -> int:
        self._unread = []
        keep = common_prefix(self.held, prompt) if reuse else 0
        keep = min(keep, len(prompt) - 1)  # at least one token must be evaluated for a row
        keep = self.drafter.reusable(prompt, keep)
        context = self.target.context
        if keep and not self._go_back(keep):
            keep = 0
        if not keep:
            context.clear()
            if not reuse:
                self.drafter.reset()
        self.held = list(prompt[:keep])
        return keep

    def _go_back(self, length: int) -> bool:
        """Cut the memory to ``length`` positions, if it can be done without a wrong state.

        A recurrent memory cannot go back between generations, also not out of a decode that was
        cancelled half way; and its "yes" cannot be trusted: llama.cpp answers a rollback longer
        than the last decode with a wrong state (ENGINE_NOTES section 2).
        """
        context = self.target.context
        if not self.model.can_roll_back:
            return length == len(self.held) and context.last_position() == length - 1
        return context.truncate(length) and context.last_position() == length - 1

    def _after_abort(self) -> None:
        """A decode stopped half way leaves a recurrent state that belongs to no position."""
        if not self.model.can_roll_back:
            self.clear()

    def generate(self, request: Request, listener: Listener) -> Generation:
        """Run one generation to its stop. Raises ContextTooSmall, UsageError, EngineFailed."""
        n_prompt, n_ctx = len(request.prompt), self.target.n_ctx
        if not n_prompt:
            raise UsageError("The prompt is empty.", "Give at least one token of text.")
        if n_prompt >= n_ctx:
            raise ContextTooSmall.of(n_prompt, n_ctx)
        was_enabled = gc.isenabled()
        gc.disable()  # the loop makes no cycles; a collection in it would land in some step's time
        try:
            return self._run(request, listener)
        except BaseException:
            self.clear()  # somewhere in a step: what the memories hold is not what is on record
            raise
        finally:
            if was_enabled:
                gc.enable()

    def _run(self, request: Request, listener: Listener) -> Generation:
        clock = perf_counter
        submitted = clock()
        target, abort, lengths, plain = self.target, self.abort, self.lengths, self.plain
        drafter: Drafter = self.drafter
        n_ctx = target.n_ctx
        eog = self.model.vocab.eog
        n_prompt = len(request.prompt)
        tokens = list(request.prompt)
        sampler = Sampler(request.sampler, n_prompt, eog if request.ignore_eos else ())
        text = Detokenizer(self.model.vocab.piece, request.stop, joined=not request.record)
        record = _Record(text, listener)
        steps = record.steps
        stop: StopReason | None = None
        result = Acceptance()
        drafter_prefill = 0.0

        keep = self._keep_prefix(request.prompt, request.reuse)
        began = clock()
        witness = Witness(sampler) if request.scores else None
        drafter.begin(request.prompt, keep, witness or sampler)
        if lengths is not None:
            lengths.begin()
        drafter_prefill += clock() - began

        def after_chunk(chunk: Sequence[int], position: int) -> None:
            nonlocal drafter_prefill
            self.held.extend(chunk)
            began = clock()
            drafter.process(chunk, position)
            drafter_prefill += clock() - began
            listener.prefill(position + len(chunk), n_prompt, keep)
            if abort.raised:
                raise DecodeAborted

        def finished(times: Times) -> Generation:
            text.finish()
            record.report(len(tokens) - n_prompt, times.end_to_end)
            return Generation(
                text="".join(s.text for s in record.spans),
                tokens=tuple(tokens[n_prompt:]),
                stop=stop or "cancelled",
                prompt_tokens=n_prompt,
                cached_tokens=keep,
                counts=count(steps),
                times=times,
                spans=tuple(record.spans),
                steps=tuple(steps) if request.record else (),
                drafts=tuple(record.drafts),
                parents=tuple(record.parents),
                scores=tuple(record.scores),
            )

        def take_in(first: int, accepted: int) -> StopReason | None:
            """Text of the tokens from ``first`` on; cuts ``tokens`` at the exact stop."""
            for i in range(first, len(tokens)):
                token = tokens[i]
                if token in eog:
                    text.skip()
                    del tokens[i + 1 :]
                    return "eog"
                if text.feed(token, i - first < accepted):
                    del tokens[i + 1 :]
                    return "stop"
            if len(tokens) - n_prompt >= request.max_tokens:
                return "length"
            return "context" if len(tokens) > n_ctx else None

        try:
            rows = target.prefill(tokens, keep, after_chunk)
        except DecodeAborted:
            self._after_abort()
            elapsed = clock() - submitted
            return finished(Times(prefill=elapsed, end_to_end=elapsed))
        prefill_done = clock()
        if request.max_tokens > 0:
            accept(_EMPTY, rows, sampler, tokens, eog, result)
            stop = take_in(n_prompt, 0)
        else:
            stop = "length"
        first = now = next_report = clock()
        aborted = False
        moved: int | None = None

        while stop is None:
            start = now
            if abort.raised:
                stop = "cancelled"
                break
            before = len(tokens)
            # a draft may fill neither the budget nor the context: one token more is emitted
            limit = min(n_prompt + request.max_tokens - before - 1, n_ctx - before)
            if lengths is not None:
                if plain is not None and lengths.gives_up:
                    plain.take_over(target)
                    target, drafter, lengths, moved = plain, NoDrafter(), None, before - 1
                else:
                    limit = lengths.limit(limit)
            drafting = clock()
            try:
                draft = drafter.draft(tokens, limit) if limit > 0 else _EMPTY
                drafted_at = clock()
                rows = target.verify(tokens[-1], draft, before - 1)
            except DecodeAborted:
                del tokens[before:]
                target.abandon(before - 1)
                drafter.accept(tokens, ())
                stop, aborted = "cancelled", True
                break
            verified_at = clock()
            accept(draft, rows, sampler, tokens, eog, result)
            accepted = result.accepted
            stop = take_in(before, accepted)
            if witness is not None:
                record.scores.append(score(draft, rows, witness, tokens, before))
            accepted_at = clock()
            emitted = len(tokens) - before
            calls, depth, rows_kept = 1, 0, _ROOT
            if draft.n:
                depth = draft.depth()
                if stop is not None and emitted <= accepted:
                    accepted = depth = emitted  # stopped inside the draft: what follows is void
            rolled_at = accepted_at
            try:
                if draft.n:
                    calls += target.keep(draft, result.node, len(tokens) - 1)
                    rows_kept = target.rows_kept(draft, result.node, emitted)
                rolled_at = clock()
                drafter.accept(tokens, rows_kept)
            except DecodeAborted:  # the step's tokens are verified, and so they are emitted
                stop, aborted = stop or "cancelled", True
            now = clock()
            steps.append(
                Step(
                    emitted,
                    depth,
                    accepted,
                    draft.n,
                    calls,
                    (drafted_at - drafting) + (now - rolled_at),
                    verified_at - drafted_at,
                    accepted_at - verified_at,
                    rolled_at - accepted_at,
                    now - start,
                    result.beta,
                    result.beta_positions,
                    draft.source,
                )
            )
            if lengths is not None:
                lengths.observe(steps[-1], draft.ranks_of(rows_kept))
            if request.record:
                record.drafts.append(tuple(draft.tokens[: draft.n].tolist()))
                tree = () if draft.chain else draft.parents[: draft.n].tolist()
                record.parents.append(tuple(tree))
            if now >= next_report:
                record.report(len(tokens) - n_prompt, now - submitted)
                next_report = now + request.interval

        self.held = tokens[:-1] if len(tokens) > n_prompt else tokens[:]
        if moved is not None:
            self.held = tokens[:moved]
        elif aborted:
            self._after_abort()
        return finished(
            Times(
                ttft=first - submitted,
                prefill=prefill_done - submitted - drafter_prefill,
                drafter_prefill=drafter_prefill,
                decode=now - first,
                end_to_end=now - submitted,
                draft=sum(s.t_draft for s in steps),
                verify=sum(s.t_verify for s in steps),
                accept=sum(s.t_accept for s in steps),
                rollback=sum(s.t_rollback for s in steps),
                step=now - first,
            )
        )
