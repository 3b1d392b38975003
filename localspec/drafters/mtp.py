"""The model's own multi-token prediction layers draft (Gloeckle et al. 2024, DeepSeek-V3;
llama.cpp's draft-mtp).

An MTP head reads pairs: at position p the token there and the target's last hidden state *after
the token before it*. It predicts the token at p + 1, and a hidden state of its own which, paired
with that token, predicts one further. Three kinds, all with heads in the target's file, or in a
file of their own:

- one head that goes on over its own states, token by token;
- several chained heads, one a drafted token: head i reads the whole draft so far, under its own
  keys and values, so drafts are no longer than there are heads;
- assistants that share the target's memory (Gemma 4): they hold no keys and values, and draft
  every token at the position of the last committed one.

Unlike llama.cpp, which decodes every verified batch once more, only kept tokens are decoded, and
these together with the first drafted one: a step costs as many decodes as it drafts tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from localspec.architectures import MTP, MTP_CHAINED, MTP_OUTPUT_ROWS
from localspec.drafters.base import Draft, Needs, Sampling, top_probability
from localspec.drafters.features import check_reader
from localspec.errors import DrafterError, EngineFailed
from localspec.llama import Context, DecodeAborted, Rows
from localspec.llama.context import Batch
from localspec.records import DrafterSettings

if TYPE_CHECKING:
    from localspec.drafters.build import Resources

ASSISTANTS = frozenset({"gemma4-assistant"})
"""Architectures that share their target's memory."""


def mtp_needs(settings: DrafterSettings, resources: Resources) -> Needs:
    """Raises DrafterError where there are no MTP layers, or none that fit the target."""
    target, own = resources.target, resources.drafter
    head, n_max = own or target, settings.n_max
    if own is not None:
        check_reader(target, own, "mtp")
    if not (head.params.load_mtp and head.mtp_layers):
        raise DrafterError(
            f"{head.path.name} has no MTP layers.",
            "Get the file of this model that has them (published as MTP-GGUF, or as a file mtp-... "
            "to be given with --drafter), or choose another drafter.",
        )
    heads = 1 if head.arch in ASSISTANTS else head.mtp_layers
    if head.arch not in MTP | ASSISTANTS or (heads > 1 and head.arch not in MTP_CHAINED):
        raise DrafterError(
            f"llama.cpp does not run the {heads} MTP layer{'s' * (heads > 1)} of a {head.arch} "
            f"model ({head.path.name}).",
            "Choose another drafter.",
        )
    if 1 < heads < n_max:
        raise DrafterError(
            f"{head.path.name} has {heads} MTP heads, each for one token: it cannot draft {n_max}.",
            f"Draft at most {heads}: --n-max {heads}.",
        )
    return Needs(outputs=n_max + 1, rollback=True, hidden=True)


def build_mtp(settings: DrafterSettings, resources: Resources, needs: Needs) -> MtpDrafter:
    head = resources.drafter or resources.target
    return MtpDrafter(
        resources.drafter_context(head, mtp=True, reads_target=True),
        resources.target_context,
        needs,
        n_max=settings.n_max,
        p_min=settings.p_min,
    )


class MtpDrafter:
    """Owns its MTP context, made upon the target's, which must keep its hidden states.

    The memory holds the pairs of the positions below ``_held``, for every head. The pairs of the
    next ``_queued`` positions lie ready in ``_batch``; they are decoded with the next draft.
    ``_hidden`` is the target's state after position ``_next - 1``, which the pair at ``_next`` will
    need; ``_next`` is -1 where the target has yet to decode that position once more.
    """

    def __init__(
        self, context: Context, target: Context, needs: Needs, *, n_max: int, p_min: float
    ) -> None:
        model = context.model
        self.context, self.needs = context, needs
        self.n_max, self.p_min = n_max, p_min
        self._target = target
        self._shared = model.arch in ASSISTANTS
        self._heads = 1 if self._shared else model.mtp_layers
        self._eog = model.vocab.eog
        width = model.n_embd_out
        context.tap_hidden(outputs_only=model.arch in MTP_OUTPUT_ROWS)
        self._batch = Batch(1 if self._shared else context.n_batch)
        self._batch.outputs[:] = 0
        self._features = self._batch.attach_features(width, tokens=True)
        self._single = Batch(1)
        self._single_features = self._single.attach_features(width, tokens=True)
        # ids beyond the target's vocabulary (sizes may differ by 128) are never drafted, and one
        # beyond the drafter's own is read as its last: decoding it would be an error
        self._width = min(context.n_vocab, target.n_vocab)
        self._last_id = context.n_vocab - 1
        self._scratch = np.empty(self._width, np.float32)
        self._draft = Draft(n_max)
        self._sampler: Sampling | None = None
        self._hidden = np.zeros(width, np.float32)
        self._held = self._queued = self._next = 0
        self._drafted = False  # the memory may hold more than ``_held`` pairs

    # ---- what is committed -----------------------------------------------------------------------

    def reusable(self, tokens: Sequence[int], keep: int) -> int:
        """The state before position ``keep`` is known only at the end of what was processed; from
        elsewhere the target decodes one token again to give it."""
        if 0 <= self._next <= keep:
            return self._next
        there = keep if self._shared else min(keep, self._held + self._queued)
        return max(there - 1, 0)

    def begin(self, tokens: Sequence[int], keep: int, sampler: Sampling) -> None:
        self._sampler = sampler
        if keep == self._next:
            return
        if keep == 0:
            self.reset()
            return
        self._hold(keep + 1)  # the pair at ``keep`` is there, only the state that follows is not
        self._next = -1

    def process(self, tokens: Sequence[int], position: int) -> None:
        n = len(tokens)
        hidden = self._target.hidden_rows(n)
        if not self._shared:
            held = self._held + self._queued
            try:
                self._flush()
                self._pair(tokens, hidden, held - position)
                self._flush()
            except DecodeAborted:
                self._hold(held)
                raise
        self._hidden[:] = hidden[n - 1]
        self._next = position + n

    def accept(self, tokens: list[int], rows: Sequence[int]) -> None:
        end, n = len(tokens) - 1, len(rows)
        if not n:
            self._hold(end)
            return
        hidden = self._target.hidden_rows(rows[-1] + 1)
        if len(hidden) > n:  # of a tree some rows between are not kept
            hidden = hidden[list(rows)]
        if not self._shared:
            there = self._held + self._queued
            if self._drafted:
                self._hold(there)  # away with the draft
            try:
                self._pair(tokens[end - n : end], hidden, there - (end - n))
            except DecodeAborted:
                self._hold(self._next)
                raise
        self._hidden[:] = hidden[n - 1]
        self._next = end

    def _pair(self, tokens: Sequence[int], hidden: Rows, first: int) -> None:
        """Queue the pairs of ``tokens[first:]``; ``hidden[i]`` is the state after ``tokens[i]``."""
        batch, features, n = self._batch, self._features, len(tokens)
        if n == 1 and not first and self._queued < batch.capacity:  # every step without a draft
            batch.tokens[self._queued] = min(tokens[0], self._last_id)
            features[self._queued] = self._hidden
            self._queued += 1
            return
        while first < n:
            if self._queued == batch.capacity:
                self._flush()
            q = self._queued
            k = min(n - first, batch.capacity - q)
            batch.tokens[q : q + k] = tokens[first : first + k]
            np.minimum(batch.tokens[q : q + k], self._last_id, out=batch.tokens[q : q + k])
            if first:
                features[q : q + k] = hidden[first - 1 : first + k - 1]
            else:
                features[q] = self._hidden
                features[q + 1 : q + k] = hidden[: k - 1]
            self._queued += k
            first += k

    def _flush(self) -> None:
        """Decode the queue under every head."""
        if self._queued:
            for head in range(self._heads):
                self._run(head, self._queued, output=False)
            self._held += self._queued
            self._queued = 0

    def _hold(self, length: int) -> None:
        """Drop all pairs from position ``length`` on, and whatever was drafted."""
        if self._shared:
            return
        self._queued = max(0, min(self._queued, length - self._held))
        self._held = min(self._held, length)
        self._truncate()

    def _truncate(self) -> None:
        self._drafted = False
        if not self.context.truncate(self._held):
            raise EngineFailed("llama.cpp could not roll back the memory of the MTP layers.")

    def _run(self, head: int, n: int, *, output: bool) -> None:
        """Decode the first ``n`` pairs of the batch, from position ``_held`` on.

        Each head has keys and values of its own in the same cells, so where there are several each
        must find these cells free: it is then given the very ones that the head before it had.
        """
        batch = self._batch
        if self._heads > 1:
            self._truncate()
            self.context.mtp_layer(head)
        batch.fill_positions(n, self._held)
        batch.outputs[n - 1] = output
        try:
            self.context.decode(batch)
        finally:
            batch.outputs[n - 1] = 0

    # ---- drafting --------------------------------------------------------------------------------

    def draft(self, tokens: list[int], limit: int) -> Draft:
        draft, sampler = self._draft, self._sampler
        assert sampler is not None, "draft before begin"
        draft.n = 0
        committed = len(tokens)
        n = min(limit, self.n_max, self.context.n_ctx - committed)
        if self._heads > 1:
            n = min(n, self._batch.capacity)
        if n < 1:
            return draft
        if self._queued + n > self._batch.capacity:
            self._flush()
        row = steps = 0
        self._drafted = True
        while steps < n:
            state = self.context.hidden_row(row) if steps else self._hidden
            row = self._step(steps, tokens[-1], state, committed - 1)
            steps += 1
            logits = self.context.rows(1)[0, : self._width]
            token = sampler.argmax(logits, tokens)
            if self.p_min > 0 and top_probability(logits, self._scratch) < self.p_min:
                break
            draft.tokens[draft.n] = token
            draft.n += 1
            tokens.append(token)
            if token in self._eog:
                break
        del tokens[committed:]
        if self._heads > 1:  # heads that drafted nothing need the committed pairs all the same
            for head in range(steps, self._heads):
                self._run(head, self._queued + 1, output=False)
            self._held += self._queued + 1
            self._queued = 0
        return draft

    def _step(self, i: int, token: int, state: Rows, position: int) -> int:
        """Decode drafting step ``i``: ``token`` paired with ``state``. ``position`` is that of the
        last committed token. Returns the row of the batch that holds the result."""
        token = min(token, self._last_id)
        if self._shared or (i and self._heads == 1):
            self._single.tokens[0] = token
            self._single_features[0] = state
            self._single.fill_positions(1, position if self._shared else position + i)
            self.context.decode(self._single)
            return 0
        row = self._queued + i
        self._batch.tokens[row] = token
        self._features[row] = state
        self._run(i, row + 1, output=True)
        if self._heads == 1:  # all that is decoded now is committed
            self._held += row + 1
            self._queued = 0
        return row

    def reset(self) -> None:
        if not self._shared:
            self.context.clear()
        self._hidden[:] = 0
        self._held = self._queued = self._next = 0

    def close(self) -> None:
        self._batch.close()
        self._single.close()
        self.context.close()
