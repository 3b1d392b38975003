"""What drafters that read the target's hidden states share: the states of several layers side by
side in one row a token, the rows that wait to be taken in, and which pairings are refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from localspec.llama import Context, Model, Rows
from localspec.llama.vocab import NO_TEXTS, check_drafter_vocab
from localspec.pairing import check_pairing


def copy_rows(source: Rows, rows: Sequence[int], out: Rows) -> None:
    """``out[j] = source[rows[j]]``. A copy, since ``source`` dies at the context's next decode."""
    if isinstance(rows, range) and rows.step == 1:
        out[:] = source[rows.start : rows.stop]
    else:  # the kept path of a tree
        out[:] = source[list(rows)]


class TargetFeatures:
    """The inputs of ``layers`` of the target, concatenated: (n, width) rows.

    ``hidden``: the layer number one past the last stands for the target's last hidden state.
    """

    def __init__(self, target: Context, layers: Sequence[int], *, hidden: bool = False) -> None:
        self._target = target
        self._layers = tuple(layers)
        self._hidden = target.model.layers if hidden else None
        self._part = target.model.n_embd
        self.width = len(self._layers) * self._part

    def gather(self, rows: Sequence[int], out: Rows) -> None:
        """Row j of ``out`` gets the states of the target's last batch's token ``rows[j]``."""
        n = max(rows) + 1
        for i, layer in enumerate(self._layers):
            if layer == self._hidden:
                source = self._target.hidden_rows(n, self._part)
            else:
                source = self._target.layer_rows(layer, n)
            copy_rows(source, rows, out[:, i * self._part : (i + 1) * self._part])


class Backlog:
    """The drafter's memory holds positions 0 to ``held``; the features of the ``n`` positions after
    them stand in ``buffer``, the input of its next pass over known text.

    So ``accept`` only copies, unless no draft came for long, and decoding is part of ``draft``.
    """

    def __init__(self, features: TargetFeatures, buffer: Rows, take_in: Callable[[], None]) -> None:
        """``take_in`` makes room by a pass over what is in the buffer; it calls ``taken``."""
        self._features, self._buffer, self._take_in = features, buffer, take_in
        self.held = 0
        self.n = 0

    @property
    def end(self) -> int:
        return self.held + self.n

    def add(self, rows: Sequence[int], position: int) -> None:
        """Copy the features of the target's batch rows ``rows``: the positions from ``position``.

        They are dropped where others before them are missing, as after an aborted pass; then there
        are no drafts until the prompt is evaluated again from ``end`` on.
        """
        if position != self.end:
            return
        capacity, done = len(self._buffer), 0
        while done < len(rows):
            if self.n == capacity:
                self._take_in()
            part = rows[done : done + capacity - self.n]
            self._features.gather(part, self._buffer[self.n : self.n + len(part)])
            self.n += len(part)
            done += len(part)

    def taken(self, n: int) -> None:
        """The first ``n`` positions of the buffer are in the drafter's memory now."""
        if n < self.n:
            self._buffer[: self.n - n] = self._buffer[n : self.n]
        self.held += n
        self.n -= n

    def rewind(self, keep: int) -> None:
        """Forget what lies at ``keep`` and beyond."""
        self.n = max(0, min(self.n, keep - self.held))
        self.held = min(self.held, keep)


def check_reader(target: Model, drafter: Model, method: str) -> None:
    """Refuse (DrafterError) a drafter that cannot read ``target`` or is not of ``method``."""
    check_pairing(target.header, drafter.header, method)
    if drafter.vocab.type != NO_TEXTS:
        check_drafter_vocab(target.vocab, drafter.vocab)
