"""A smaller model of the same vocabulary drafts token by token (Leviathan et al. 2023,
Chen et al. 2023; llama.cpp's draft-simple).

Unlike llama.cpp it never re-decodes the verified tokens on the drafter: its own KV already holds
them, only the rejected tail is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from localspec.drafters.base import (
    Distribution,
    Draft,
    Needs,
    Sampling,
    common_prefix,
    top_probability,
)
from localspec.llama import Context, Model
from localspec.llama.context import Batch


class DraftModelDrafter:
    """Owns its context, not the model. ``context`` must allow one output row.

    ``p_min``: drafting stops before a token whose drafter's top probability is below it; the test
    is on the distribution, never on the drawn token, so the output stays exact.
    ``sampled``: at temperature > 0 draw from ``q`` and keep it, instead of taking the argmax.
    """

    def __init__(
        self,
        model: Model,
        context: Context,
        *,
        n_max: int,
        p_min: float,
        sampled: bool,
        target_vocab: int,
    ) -> None:
        self.context = context
        self.n_max, self.p_min, self.sampled = n_max, p_min, sampled
        self.needs = Needs(outputs=n_max + 1, rollback=True)
        # ids beyond the target's vocabulary (sizes may differ by 128) are never drafted
        self._width = min(context.n_vocab, target_vocab)
        # and one beyond the drafter's own is read as its last: decoding it would be an error
        self._last_id = context.n_vocab - 1
        self._eog = model.vocab.eog
        self._draft = Draft(n_max)
        self._single = Batch(1)
        self._prompt = Batch(context.n_batch)
        self._prompt.outputs[:] = 0
        self._scratch = np.empty(self._width, np.float32)
        self._tokens: Sequence[int] = []
        self._held = 0
        self._sampler: Sampling | None = None

    def reusable(self, tokens: Sequence[int], keep: int) -> int:
        return keep

    def begin(self, tokens: Sequence[int], keep: int, sampler: Sampling) -> None:
        common = min(common_prefix(self._tokens[: self._held], tokens), len(tokens) - 1)
        self._truncate(common)
        self._tokens = tokens
        self._sampler = sampler

    def process(self, tokens: Sequence[int], position: int) -> None:
        """Prefill the same chunk, so that the drafter's share of TTFT is seen as such."""
        self._catch_up(position + len(tokens), last_row=False)

    def _catch_up(self, end: int, *, last_row: bool) -> None:
        """Decode the committed tokens from what is held up to ``end``; normally one or two."""
        if end - self._held == 1:
            self._decode_one(self._tokens[self._held], self._held, output=last_row)
            return
        batch = self._prompt
        while self._held < end:
            n = min(end - self._held, batch.capacity)
            chunk = batch.tokens[:n]
            chunk[:] = self._tokens[self._held : self._held + n]
            np.minimum(chunk, self._last_id, out=chunk)
            batch.fill_positions(n, self._held)
            batch.outputs[n - 1] = last_row and self._held + n == end
            try:
                self.context.decode(batch)
            finally:
                batch.outputs[n - 1] = 0
            self._held += n

    def _decode_one(self, token: int, position: int, *, output: bool = True) -> None:
        batch = self._single
        batch.tokens[0] = min(token, self._last_id)
        batch.outputs[0] = output
        batch.fill_positions(1, position)
        self.context.decode(batch)
        self._held = position + 1

    def draft(self, tokens: list[int], limit: int) -> Draft:
        draft, sampler = self._draft, self._sampler
        assert sampler is not None, "draft before begin"
        self._tokens = tokens
        committed = len(tokens)
        n = min(limit, self.n_max, self.context.n_ctx - committed)
        draft.n = 0
        drawn = self.sampled and not sampler.greedy
        q: list[Distribution] | None = [] if drawn else None
        draft.q = q
        if n < 1:
            return draft
        self._catch_up(committed, last_row=True)
        while True:
            row = self.context.rows(1)[0, : self._width]
            if q is not None:
                distribution = sampler.distribution(row, tokens)
                if distribution.top < self.p_min:
                    break
                token = sampler.draw_draft(distribution, sampler.index_of(tokens))
                q.append(distribution)
            else:
                token = sampler.argmax(row, tokens)
                if self.p_min > 0 and top_probability(row, self._scratch) < self.p_min:
                    break
            draft.tokens[draft.n] = token
            draft.n += 1
            tokens.append(token)
            if draft.n == n or token in self._eog:
                break
            self._decode_one(token, len(tokens) - 1)
        del tokens[committed:]
        return draft

    def accept(self, tokens: list[int], rows: Sequence[int]) -> None:
        # what was drafted and accepted is in the cache already, all but the last draft at most
        self._truncate(len(tokens) - 1)

    def _truncate(self, length: int) -> None:
        if length < self._held:
            self.context.truncate(length)
            self._held = length

    def reset(self) -> None:
        self.context.clear()
        self._tokens, self._held = [], 0

    def close(self) -> None:
        self._single.close()
        self._prompt.close()
        self.context.close()
