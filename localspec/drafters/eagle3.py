"""EAGLE-3 (Li et al. 2025; llama.cpp's draft-eagle3): one decoder layer that goes on from the
target's own hidden states.

An encoder makes of the target's states at position p one row g(p). At its own position p the
decoder reads the pair (token p + 1, g(p)) and predicts token p + 2; while it drafts, its own state
at p stands for g(p + 1), which the target has not computed. Where it was trained with a vocabulary
of its own, llama.cpp has put the logits back at the target's ids (d2t), -inf elsewhere.

Unlike llama.cpp, which passes every verified batch through encoder and decoder and then decodes
the last pair once more, only kept tokens are encoded, and decoded together with the first draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from localspec.drafters.base import Draft, Needs, Sampling, common_prefix, top_probability
from localspec.drafters.features import Backlog, TargetFeatures, check_reader
from localspec.drafters.tree import FRONTIER, Branches, Candidates, grow, tree_needs
from localspec.llama import Context, Model, Rows
from localspec.llama.context import Batch
from localspec.records import READER_BATCH, DrafterSettings

if TYPE_CHECKING:
    from localspec.drafters.build import Resources


def eagle3_needs(settings: DrafterSettings, resources: Resources) -> Needs:
    """Raises DrafterError where the drafter cannot read the target."""
    target, model = resources.target, resources.drafter
    assert model is not None
    check_reader(target, model, "eagle3")
    needs = Needs(
        outputs=settings.n_max + 1,
        rollback=True,
        layers=tuple(i for i in model.target_layers if i < target.layers),
        hidden=target.layers in model.target_layers,
    )
    return tree_needs(needs, settings.tree) if settings.tree else needs


def build_eagle3(settings: DrafterSettings, resources: Resources, needs: Needs) -> Eagle3Drafter:
    model = resources.drafter
    assert model is not None
    chunk = max(READER_BATCH, settings.n_max + 1)
    context = resources.drafter_context(
        model,
        outputs=chunk,
        batch=chunk,
        sequences=Branches.SEQUENCES if settings.tree else 1,
        extra=FRONTIER * settings.n_max if settings.tree else 0,
        reads_target=True,
    )
    kind = Eagle3Tree if settings.tree else Eagle3Drafter
    return kind(
        model,
        context,
        TargetFeatures(resources.target_context, model.target_layers, hidden=True),
        needs,
        n_max=settings.n_max,
        p_min=settings.p_min,
        target_vocab=resources.target.vocab.size,
    )


class Eagle3Drafter:
    """Owns its context, which must allow an output row for every token of a batch: the encoder
    wants that, and the decoder's graph ignores which rows are wanted.

    ``p_min``: drafting stops before a token whose drafter's top probability is below it.
    """

    def __init__(
        self,
        model: Model,
        context: Context,
        features: TargetFeatures,
        needs: Needs,
        *,
        n_max: int,
        p_min: float,
        target_vocab: int,
    ) -> None:
        self.context, self.needs = context, needs
        self.n_max, self.p_min = n_max, p_min
        context.tap_hidden(outputs_only=True)
        # ids beyond the target's vocabulary (sizes may differ by 128) are never drafted, and one
        # beyond the drafter's own is read as its last: decoding it would be an error
        self._width = min(context.n_vocab, target_vocab)
        self._last_id = context.n_vocab - 1
        self._eog = model.vocab.eog
        self._draft = Draft(n_max)
        self._encoder = Batch(context.n_batch)
        inputs = self._encoder.attach_features(features.width, tokens=False)
        self._pairs = Batch(context.n_batch)
        self._pair_rows = self._pairs.attach_features(model.n_embd, tokens=True)
        self._single = Batch(1)
        self._single_row = self._single.attach_features(model.n_embd, tokens=True)
        self._scratch = np.empty(self._width, np.float32)
        self._backlog = Backlog(features, inputs, self._decode_known)
        self._tokens: Sequence[int] = []
        self._sampler: Sampling | None = None

    def _pairs_of(self, tokens: Sequence[int]) -> int:
        """How many of the pairs held belong to ``tokens``: a pair reads the token after it too."""
        common = common_prefix(self._tokens[: self._backlog.held + 1], tokens)
        return min(self._backlog.held, max(common - 1, 0))

    def reusable(self, tokens: Sequence[int], keep: int) -> int:
        pairs = self._pairs_of(tokens)
        return min(keep, self._backlog.end if pairs == self._backlog.held else pairs)

    def begin(self, tokens: Sequence[int], keep: int, sampler: Sampling) -> None:
        pairs = self._pairs_of(tokens)
        if pairs < self._backlog.held:
            self._backlog.rewind(pairs)
        self._backlog.rewind(keep)
        self.context.truncate(self._backlog.held)
        self._tokens, self._sampler = tokens, sampler

    def process(self, tokens: Sequence[int], position: int) -> None:
        self._backlog.add(range(len(tokens)), position)
        self._decode_known()  # here, so that the drafter's share of TTFT is seen as such

    def _decode_known(self) -> None:
        """Decode the pairs in the backlog whose token is known: of a prompt all but the last."""
        n = min(self._backlog.n, len(self._tokens) - 1 - self._backlog.held)
        if n > 0:
            self._decode(n, output=False)

    def _decode(self, n: int, *, output: bool) -> None:
        """Encode the first ``n`` rows of the backlog and decode their pairs."""
        context, pairs, position = self.context, self._pairs, self._backlog.held
        self._encoder.fill_positions(n, position)
        context.encode(self._encoder)
        self._pair_rows[:n] = context.hidden_rows(n)
        chunk = pairs.tokens[:n]
        chunk[:] = self._tokens[position + 1 : position + 1 + n]
        np.minimum(chunk, self._last_id, out=chunk)
        pairs.fill_positions(n, position)
        pairs.outputs[:n] = output
        context.decode(pairs)
        self._backlog.taken(n)

    def draft(self, tokens: list[int], limit: int) -> Draft:
        draft, sampler, context = self._draft, self._sampler, self.context
        assert sampler is not None, "draft before begin"
        self._tokens = tokens
        committed, draft.n = len(tokens), 0
        n, due = min(limit, self.n_max), self._backlog.n
        if n < 1 or not due or self._backlog.end != committed - 1:
            return draft
        self._decode(due, output=True)
        i, single = due - 1, self._single
        while True:
            row = context.rows(i + 1)[i, : self._width]
            token = sampler.argmax(row, tokens)
            if self.p_min > 0 and top_probability(row, self._scratch) < self.p_min:
                break
            draft.tokens[draft.n] = token
            draft.n += 1
            tokens.append(token)
            if draft.n == n or token in self._eog:
                break
            self._single_row[0] = context.hidden_row(i)
            single.tokens[0] = token
            single.fill_positions(1, len(tokens) - 2)
            context.decode(single)
            i = 0
        del tokens[committed:]
        return draft

    def accept(self, tokens: list[int], rows: Sequence[int]) -> None:
        self._tokens = tokens
        self.context.truncate(self._backlog.held)  # the drafted pairs, kept or not: their rows were
        if rows:  # not the target's
            self._backlog.add(rows, len(tokens) - 1 - len(rows))

    def reset(self) -> None:
        self.context.clear()
        self._backlog.rewind(0)
        self._tokens = []

    def close(self) -> None:
        self._encoder.close()
        self._pairs.close()
        self._single.close()
        self.context.close()


class Eagle3Tree(Eagle3Drafter):
    """EAGLE-3 that proposes trees of at most ``limits[0]`` nodes; ``p_min`` has no part in
    it. Its context has ``Branches.SEQUENCES`` sequences and room for ``FRONTIER`` branches.
    """

    def __init__(
        self,
        model: Model,
        context: Context,
        features: TargetFeatures,
        needs: Needs,
        *,
        n_max: int,
        p_min: float,
        target_vocab: int,
    ) -> None:
        super().__init__(
            model, context, features, needs, n_max=n_max, p_min=p_min, target_vocab=target_vocab
        )
        self.limits = [needs.outputs - 1]
        self._draft = Draft(self.limits[0])
        self._branches = Branches(context)
        self._inputs = self._branches.batch.attach_features(model.n_embd, tokens=True)
        self._states: dict[int, Rows] = {}  # the decoder's state where a node was expanded

    def draft(self, tokens: list[int], limit: int) -> Draft:
        draft, context = self._draft, self.context
        self._tokens = tokens
        draft.n = 0
        depth, due = min(limit, self.n_max), self._backlog.n
        if depth < 1 or not due or self._backlog.end != len(tokens) - 1:
            return draft
        self._decode(due, output=True)
        self._states = {-1: context.hidden_row(due - 1).copy()}
        try:
            grow(
                draft,
                context.rows(due)[due - 1, : self._width],
                self._expand,
                depth=depth,
                nodes=self.limits[0],
                leaves=self.needs.sequences,
                ends=self._eog,
            )
        finally:
            self._branches.clear()
        return draft

    def _expand(self, found: Candidates, frontier: list[int], level: int) -> Rows:
        batch, n = self._branches.batch, len(frontier)
        self._branches.place(found, frontier, level)
        for i, node in enumerate(frontier):
            batch.tokens[i] = min(found.tokens[node], self._last_id)
            self._inputs[i] = self._states[found.parents[node]]
        batch.positions[:n] = len(self._tokens) - 2 + level
        batch.native.n_tokens = n
        self.context.decode(batch)
        states = self.context.hidden_rows(n).copy()
        self._states |= {node: states[i] for i, node in enumerate(frontier)}
        return self.context.rows(n)[:, : self._width]

    def close(self) -> None:
        self._branches.batch.close()
        super().close()
