"""The target's side of a step: prefill, one decode that verifies a draft, rollback."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from localspec.drafters.base import Draft, Needs
from localspec.errors import EngineFailed, SpeculationRefused, UsageError
from localspec.llama import Context
from localspec.llama.context import Batch, Checkpoint, Rows


class Target:
    """Owns the target's context and the batches it is fed with."""

    def __init__(self, context: Context, needs: Needs) -> None:
        recurrent = not context.model.can_roll_back
        if recurrent and needs.sequences > 1:
            raise SpeculationRefused(
                f"{context.model.path.name} ({context.model.arch}) keeps one recurrent state a "
                "sequence, so a draft tree cannot branch it.",
                "Draft chains instead, or run without speculation: --drafter none.",
            )
        if needs.outputs > context.n_batch:
            raise UsageError(
                f"A draft of {needs.outputs - 1} tokens does not fit a context of "
                f"{context.params.n_ctx}.",
                "Draft fewer tokens (--n-max) or raise --ctx.",
            )
        for layer in needs.layers:
            context.tap_layer(layer)
        if needs.hidden:
            context.tap_hidden(outputs_only=False)
        self.context = context
        # the nodes of a tree that lie side by side need cells beyond the positions they take
        self.n_ctx = context.n_ctx - (needs.outputs if needs.sequences > 1 else 0)
        self._sequences = needs.sequences
        self._verify = Batch(needs.outputs, needs.sequences)
        self._prompt = Batch(context.n_batch)
        self._prompt.outputs[:] = 0
        self._branched = False
        self._leaf_below: list[int] = []
        # A recurrent state goes back only to states that were kept: as many as the drafts are long
        # (some architectures), else to a checkpoint taken before the draft, from where the accepted
        # tokens are decoded again.
        self._retained = context.retained_states if recurrent else 0
        self._checkpoints = recurrent and needs.rollback and self._retained < needs.outputs - 1
        self._checkpoint: Checkpoint | None = None
        self._replay = Batch(needs.outputs) if self._checkpoints else None

    @property
    def keeps_states(self) -> bool:
        """Every decode keeps recurrent states to go back to."""
        return self._retained > 0

    @property
    def rollback_method(self) -> str:
        """How rejected drafts are taken back here: shown to people."""
        if self.context.model.can_roll_back:
            return "positions"
        return "checkpoint and replay" if self._checkpoints else f"{self._retained} kept states"

    def close(self) -> None:
        self._verify.close()
        self._prompt.close()
        if self._replay is not None:
            self._replay.close()
        self.context.close()

    def take_over(self, other: Target) -> None:
        """Go on from another target's state, bit for bit."""
        self.context.clear()
        self.context.copy_state(other.context)

    def prefill(
        self,
        tokens: Sequence[int],
        start: int,
        after_chunk: Callable[[Sequence[int], int], None],
    ) -> Rows:
        """Decode ``tokens[start:]`` in chunks; ``after_chunk(chunk, position)`` follows each one.

        Returns the row after the last token, (1, n_vocab).
        """
        batch, end = self._prompt, len(tokens)
        while start < end:
            n = min(end - start, batch.capacity)
            chunk = tokens[start : start + n]
            batch.tokens[:n] = chunk
            batch.fill_positions(n, start)
            last = start + n == end
            batch.outputs[n - 1] = last
            try:
                self.context.decode(batch)
                if not last:  # the output row is read, and so waited for, after the last chunk
                    self.context.synchronize()
            finally:
                batch.outputs[n - 1] = 0
            after_chunk(chunk, start)
            start += n
        return self.context.rows(1)

    def verify(self, last: int, draft: Draft, position: int) -> Rows:
        """One target pass over ``last`` (at ``position``) and the draft: its 1 + n rows."""
        batch, n = self._verify, draft.n
        if not n:
            if self._branched:
                self._unbranch()
            batch.tokens[0], batch.positions[0] = last, position
            batch.native.n_tokens = 1
            self.context.decode(batch)
            return self.context.rows(1)
        if self._checkpoints and n and position:  # at 0 (warm-up) there is no state yet
            self._checkpoint = self.context.checkpoint()
        batch.tokens[0] = last
        batch.tokens[1 : n + 1] = draft.tokens[:n]
        batch.fill_positions(n + 1, position)
        if not draft.chain:
            self._branch(draft, position)
        elif self._branched:
            self._unbranch()
        self.context.decode(batch)
        return self.context.rows(n + 1)

    def _unbranch(self) -> None:
        self._verify.single_sequence()
        self._branched = False

    def abandon(self, length: int) -> None:
        """After an aborted decode: nothing of its batch stays, in no branch."""
        self._checkpoint = None
        for sequence in range(1, self._sequences):
            self.context.drop_sequence(sequence)
        self.context.truncate(length)

    def _branch(self, draft: Draft, position: int) -> None:
        """Give every leaf a sequence id and every node the ids of the leaves below it.

        The first leaf gets sequence 0, so that a drafter which lists its likeliest path first
        spares the copy. Copies are metadata only in the unified cache.
        """
        batch, n = self._verify, draft.n
        self._branched = True
        has_child = [False] * n
        for parent in draft.parents[:n]:
            if parent >= 0:
                has_child[parent] = True
        below: list[list[int]] = [[] for _ in range(n + 1)]
        leaves = 0
        for i in range(n):
            if has_child[i]:
                continue
            node = i
            while node >= 0:
                below[node + 1].append(leaves)
                node = int(draft.parents[node])
            below[0].append(leaves)
            leaves += 1
        if leaves > self._sequences:
            raise ValueError(f"a tree of {leaves} leaves for {self._sequences} sequences")
        for sequence in range(1, leaves):
            self.context.copy_sequence(0, sequence)
        depth = [0] * (n + 1)
        for i in range(n + 1):
            if i:
                depth[i] = depth[int(draft.parents[i - 1]) + 1] + 1
                batch.positions[i] = position + depth[i]
            batch.n_seq[i] = len(below[i])
            batch.seq_ids[i][: len(below[i])] = below[i]
        self._leaf_below = [ids[0] for ids in below]

    def keep(self, draft: Draft, node: int, length: int) -> int:
        """Roll back: of the last verified batch only the path to ``node`` stays, and in all the
        first ``length`` positions. Returns the target calls that took (0, or 1 for a replay)."""
        context = self.context
        if self._checkpoint is not None:
            return self._back_to_checkpoint(self._checkpoint, draft, length)
        if not draft.chain:
            winner = self._leaf_below[node + 1]
            if winner:
                context.drop_sequence(0)
                context.copy_sequence(winner, 0)
            for sequence in range(1, self._sequences):
                context.drop_sequence(sequence)
        if not context.truncate(length):
            raise EngineFailed("llama.cpp could not roll back a rejected draft.")
        return 0

    def rows_kept(self, draft: Draft, node: int, n: int) -> Sequence[int]:
        """Rows of the last batch that stay, ``n`` of them: the root's, then the path to ``node``.

        (After a replay the batch held just these, in this order.)
        """
        if draft.chain:
            return range(n)
        path: list[int] = []
        while node >= 0:
            path.append(node + 1)
            node = int(draft.parents[node])
        return [0, *reversed(path)][:n]

    def _back_to_checkpoint(self, checkpoint: Checkpoint, draft: Draft, length: int) -> int:
        """Only for chains: the kept tokens are a prefix of the verified batch."""
        self._checkpoint = None
        kept = length - checkpoint.length
        if kept == draft.n + 1:
            return 0  # all of the batch stays
        self.context.restore(checkpoint)
        batch, verified = self._replay, self._verify
        assert batch is not None
        if not kept:
            return 0
        batch.tokens[:kept] = verified.tokens[:kept]
        batch.fill_positions(kept, checkpoint.length)
        self.context.decode(batch)
        self.context.synchronize()
        return 1
