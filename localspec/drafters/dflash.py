"""DFlash (llama.cpp's draft-dflash) and DSpark (draft-dspark): a block of tokens in one pass.

The drafter's keys and values at a position are projections of the target's hidden states there.
Behind them it reads the last committed token and a mask for every token to come, all attending to
each other, and predicts the whole block. Three kinds:

- DFlash: row i of the block predicts token i, the most probable one is taken;
- DFlash2: a selector scores the candidates of each row against those of the row before, and the
  draft is a walk along the best scores;
- DSpark: each row's logits know the token taken before it (a Markov head in llama.cpp's graph),
  and a confidence head says how likely a row's token is to be accepted.

Unlike llama.cpp, which shortens the block to the draft's length, the block is always the trained
one and the draft is cut from it: a mask attends to the masks behind it, so a drafter that was
trained on one block length drafts worse with another. And only the kept tokens of a verified batch
are injected, not all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from localspec.drafters.base import Draft, Needs, Sampling, top_probability
from localspec.drafters.features import Backlog, TargetFeatures, check_reader
from localspec.drafters.tree import marginal_tree, tree_needs
from localspec.errors import DrafterError
from localspec.llama import Context, Model, Rows
from localspec.llama.context import Batch
from localspec.records import READER_BATCH, DrafterSettings

if TYPE_CHECKING:
    from localspec.drafters.build import Resources

MARKOV, CONFIDENCE = "markov_w1.weight", "conf_proj.weight"


@dataclass(frozen=True, slots=True)
class Block:
    """The trained block: ``size`` tokens, of which row ``first`` predicts the first drafted one.

    ``top_k`` candidates a row where a selector walks (else 0); ``confidence``: rows have a
    probability of being accepted.
    """

    size: int
    first: int
    mask: int
    causal: bool
    top_k: int
    confidence: bool

    @property
    def drafts(self) -> int:
        return self.size - self.first

    @classmethod
    def of(cls, model: Model) -> Block:
        def flag(key: str, default: bool) -> bool:
            value = model.meta(f"dflash.{key}")
            return default if value is None else value == "true"

        tensors = {t.name for t in model.header.tensors}
        anchored = MARKOV in tensors and flag("sample_from_anchor", True)
        return cls(
            size=int(model.meta("dflash.block_size") or 16),
            first=0 if anchored else 1,
            mask=model.vocab.mask,
            causal=flag("attention.causal", False),
            top_k=model.selector_top_k,
            confidence=CONFIDENCE in tensors and flag("has_confidence_head", True),
        )


def dflash_needs(settings: DrafterSettings, resources: Resources) -> Needs:
    """Raises DrafterError where the drafter cannot read the target, or is not of the method."""
    target, model = resources.target, resources.drafter
    assert model is not None
    check_reader(target, model, settings.method)
    block = Block.of(model)
    if block.drafts < 1:
        raise DrafterError(
            f"{model.path.name} cannot draft: its blocks are {block.size} token long.",
            "The file is damaged, or made for a fork of llama.cpp; get another conversion.",
        )
    needs = Needs(
        outputs=_n_max(settings, block) + 1,
        rollback=True,
        layers=model.target_layers,
        longest=block.drafts,
    )
    if not settings.tree:
        return needs
    if block.top_k:
        raise DrafterError(
            f"{model.path.name} chooses its drafts by a walk, which gives one path and no tree.",
            "Draft a chain with it: leave out --tree.",
        )
    return tree_needs(needs, settings.tree)


def _n_max(settings: DrafterSettings, block: Block) -> int:
    """No drafter drafts more than it was trained to."""
    return min(settings.n_max, block.drafts)


def build_dflash(settings: DrafterSettings, resources: Resources, needs: Needs) -> DFlashDrafter:
    model = resources.drafter
    assert model is not None
    block = Block.of(model)
    n_max = _n_max(settings, block)
    context = resources.drafter_context(
        model,
        outputs=1 if block.top_k else block.first + n_max,
        batch=max(READER_BATCH, block.size),
        reads_target=True,
    )
    return DFlashDrafter(
        model,
        context,
        TargetFeatures(resources.target_context, model.target_layers),
        needs,
        block=block,
        n_max=n_max,
        p_min=settings.p_min,
        tree=settings.tree,
        target_vocab=resources.target.vocab.size,
    )


class DFlashDrafter:
    """Owns its context, whose batch must hold a block, with an output row for each drafted token
    and those before it.

    ``p_min``: drafting stops before a token whose probability is below it: the drafter's top
    probability, with DFlash2 among the selector's candidates, with DSpark's confidence head its
    word. ``tree``: nodes of a DDTree over the rows' distributions (0: a chain).
    """

    def __init__(
        self,
        model: Model,
        context: Context,
        features: TargetFeatures,
        needs: Needs,
        *,
        block: Block,
        n_max: int,
        p_min: float,
        tree: int,
        target_vocab: int,
    ) -> None:
        self.context, self.needs, self.block = context, needs, block
        self.n_max, self.p_min, self.tree = n_max, p_min, bool(tree)
        self.limits = [tree or n_max]
        context.causal(block.causal)
        context.tap_hidden(outputs_only=not block.top_k)
        # ids beyond the target's vocabulary (sizes may differ by 128) are never drafted, and one
        # beyond the drafter's own is read as its last: decoding it would be an error
        self._width = min(context.n_vocab, target_vocab)
        self._last_id = context.n_vocab - 1
        self._eog = model.vocab.eog
        self._draft = Draft(tree or n_max)
        self._noise = Batch(block.size)
        self._noise.tokens[:] = block.mask
        self._injection = Batch(context.n_batch)
        self._injection.outputs[:] = 0
        inputs = self._injection.attach_features(features.width, tokens=False)
        if model.m_rope:
            self._injection.four_positions()
        self._scratch = np.empty(self._width, np.float32)
        self._backlog = Backlog(features, inputs, self._inject)
        self._sampler: Sampling | None = None

    def reusable(self, tokens: Sequence[int], keep: int) -> int:
        return min(keep, self._backlog.end)

    def begin(self, tokens: Sequence[int], keep: int, sampler: Sampling) -> None:
        self._backlog.rewind(keep)
        self.context.truncate(self._backlog.held)
        self._sampler = sampler

    def process(self, tokens: Sequence[int], position: int) -> None:
        self._backlog.add(range(len(tokens)), position)
        self._inject()

    def _inject(self) -> None:
        """Keys and values of what is in the backlog."""
        n = self._backlog.n
        if n:
            self._injection.fill_positions(n, self._backlog.held)
            self.context.decode(self._injection)
            self._backlog.taken(n)

    def draft(self, tokens: list[int], limit: int) -> Draft:
        draft, block, context = self._draft, self.block, self.context
        base, draft.n = len(tokens) - 1, 0
        # shorter only where the context ends
        size = min(block.size, context.n_ctx - base, context.n_batch)
        n = min(limit, self.n_max, size - block.first)
        if n < 1 or self._backlog.end != base:
            return draft
        self._inject()
        noise, rows = self._noise, block.first + n
        noise.tokens[0] = min(tokens[-1], self._last_id)
        noise.fill_positions(size, base)
        noise.outputs[:] = 0
        if not block.top_k:
            noise.outputs[:rows] = 1
        context.decode(noise)
        context.truncate(base)
        if block.top_k:
            self._walk(context.hidden_rows(size)[block.first : rows])
        elif self.tree:
            logits = context.rows(rows)[block.first :, : self._width]
            marginal_tree(draft, logits, nodes=self.limits[0], leaves=self.needs.sequences)
        else:
            self._read(tokens, rows)
        return draft

    def _read(self, tokens: list[int], rows: int) -> None:
        """The most probable token of each row."""
        draft, sampler, first = self._draft, self._sampler, self.block.first
        assert sampler is not None, "draft before begin"
        confidence = None
        if self.p_min > 0 and self.block.confidence:
            confidence = self.context.hidden_rows(rows)[:, 0]
        logits = self.context.rows(rows)[:, : self._width]
        committed = len(tokens)
        for i in range(first, rows):
            if confidence is not None and confidence[i] < self.p_min:
                break
            token = sampler.argmax(logits[i], tokens)
            if (
                confidence is None
                and self.p_min > 0
                and top_probability(logits[i], self._scratch) < self.p_min
            ):
                break
            draft.tokens[draft.n] = token
            draft.n += 1
            tokens.append(token)
            if token in self._eog:
                break
        del tokens[committed:]

    def _walk(self, lattice: Rows) -> None:
        """DFlash2. A row of the lattice: the ids of ``top_k`` candidates, then for each candidate
        of the row before (in the first row: the same for all) the scores of this row's."""
        draft, k = self._draft, self.block.top_k
        chosen = 0
        for row in lattice:
            scores = row[k + chosen * k : k + (chosen + 1) * k]
            chosen = int(scores.argmax())
            chance = 1 / np.exp(scores - scores[chosen]).sum()
            if chance < self.p_min:
                break
            token = int(row[chosen])
            if token >= self._width:
                break
            draft.tokens[draft.n], draft.chances[draft.n] = token, chance
            draft.n += 1
            if token in self._eog:
                break

    def accept(self, tokens: list[int], rows: Sequence[int]) -> None:
        if rows:
            self._backlog.add(rows, len(tokens) - 1 - len(rows))

    def reset(self) -> None:
        self.context.clear()
        self._backlog.rewind(0)

    def close(self) -> None:
        self._noise.close()
        self._injection.close()
        self.context.close()
