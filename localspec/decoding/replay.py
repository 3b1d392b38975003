"""Evidence for the audit: are batch-k rows bit-equal here, and is a divergence a near tie?

DESIGN section 6: a divergence is a near tie when replaying the recorded batches makes the emitted
token the choice again, *and* the plain margin there is at most twice the largest logit difference
between the two paths at that token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from localspec.decoding.loop import Session
from localspec.decoding.sampling import Row, Sampler
from localspec.drafters.base import Draft
from localspec.errors import EngineFailed
from localspec.records import SamplerSettings


class Recorded(Protocol):
    """A speculative run to be replayed (messages.Replay)."""

    @property
    def prompt(self) -> Sequence[int]: ...
    @property
    def tokens(self) -> Sequence[int]: ...
    @property
    def drafts(self) -> Sequence[Sequence[int]]: ...
    @property
    def parents(self) -> Sequence[Sequence[int]]: ...
    @property
    def kept(self) -> Sequence[int]: ...
    @property
    def index(self) -> int: ...
    @property
    def sampler(self) -> SamplerSettings: ...
    @property
    def ignore_eos(self) -> bool: ...


def _ignore(chunk: Sequence[int], position: int) -> None:
    pass


def _draft(tokens: Sequence[int], parents: Sequence[int] = ()) -> Draft:
    draft = Draft(len(tokens))
    draft.tokens[:] = tokens
    draft.n = len(tokens)
    if parents:
        draft.chain = False
        draft.parents[:] = parents
    return draft


def _check_capacity(session: Session, tokens: int) -> None:
    """The verify batch is native memory of fixed size: more would be read from beyond its end."""
    outputs = session.drafter.needs.outputs
    if tokens > outputs:
        raise EngineFailed(f"This session verifies at most {outputs} tokens at once, not {tokens}.")


def probe(
    session: Session, tokens: Sequence[int], sizes: Sequence[int]
) -> tuple[dict[int, bool], dict[int, float]]:
    """For each batch size: are its rows bit-equal to rows of one-token decodes, and the largest
    absolute difference. ``tokens`` is the text, its last ``max(sizes)`` tokens are compared."""
    target, longest = session.target, max(sizes)
    _check_capacity(session, longest)
    start = len(tokens) - longest
    if start < 1:
        raise ValueError("the probe's text must be longer than its largest batch")
    session.clear()
    target.prefill(tokens[:start], 0, _ignore)
    plain = np.empty((longest, target.context.n_vocab), np.float32)
    for i in range(longest):
        plain[i] = target.verify(tokens[start + i], _draft(()), start + i)[0]
    equal: dict[int, bool] = {}
    difference: dict[int, float] = {}
    for size in sizes:
        session.clear()  # a fresh prefill, since a recurrent memory cannot go back
        target.prefill(tokens[:start], 0, _ignore)
        rows = target.verify(tokens[start], _draft(tokens[start + 1 : start + size]), start)
        equal[size] = bool(np.array_equal(rows, plain[:size]))
        difference[size] = float(np.abs(rows - plain[:size]).max())
    session.clear()
    return equal, difference


def replay(session: Session, plain: Session, run: Recorded) -> tuple[bool, float, float]:
    """(reproduced, margin, max_difference) of messages.Replayed, logits in nats."""
    history = [*run.prompt, *run.tokens[: run.index]]
    banned = session.model.vocab.eog if run.ignore_eos else ()
    sampler = Sampler(run.sampler, len(run.prompt), banned)
    plain_row = _plain_row(plain, run)
    row = _recorded_row(session, run)
    emitted = run.tokens[run.index]
    reproduced = sampler.sample(row.copy(), history) == emitted
    margin = _margin(sampler, plain_row, row, emitted, history)
    return reproduced, margin, float(np.abs(row - plain_row).max())


def _plain_row(session: Session, run: Recorded) -> Row:
    session.clear()
    target, position = session.target, len(run.prompt)
    row = target.prefill(run.prompt, 0, _ignore)[0]
    for token in run.tokens[: run.index]:
        row = target.verify(token, _draft(()), position)[0]
        position += 1
    copied: Row = row.copy()
    session.clear()
    return copied


def _recorded_row(session: Session, run: Recorded) -> Row:
    """The logit row of token ``index`` as the speculative run computed it: same prefill chunks,
    same verify batches, same rollbacks from cleared memory."""
    session.clear()
    _check_capacity(session, 1 + max(map(len, run.drafts), default=0))
    target = session.target
    row = target.prefill(run.prompt, 0, _ignore)[0]
    committed = [*run.prompt, run.tokens[0]]
    done = 1  # generated tokens committed; the first came from the prefill
    for drafted, parents, kept in zip(run.drafts, run.parents, run.kept, strict=True):
        if done > run.index:
            break
        draft = _draft(drafted, parents)
        rows = target.verify(committed[-1], draft, len(committed) - 1)
        emitted = run.tokens[done : done + kept]
        path = [-1]  # the nodes that were kept, from the root
        for token in emitted:
            if (node := draft.child(path[-1], token)) < 0:
                break
            path.append(node)
        if run.index < done + kept:
            row = rows[path[run.index - done] + 1]
            break
        committed += emitted
        done += kept
        if draft.n:
            target.keep(draft, path[-1], len(committed) - 1)
    copied: Row = row.copy()
    session.clear()
    return copied


def _margin(sampler: Sampler, plain: Row, recorded: Row, emitted: int, history: list[int]) -> float:
    """Twice by how much logits must differ from the plain row for ``emitted`` to be its choice.

    Greedy: the plain gap between the best token and the emitted one. Sampled with the index's own
    random number, the choice hangs on many logits and on which tokens survive the chain: here it is
    looked for on the way from the plain row to the recorded one.
    """
    if sampler.greedy:
        best = sampler.argmax(plain.copy(), history)
        return float(plain[best] - plain[emitted])
    difference = recorded - plain
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        chosen = sampler.sample((plain + np.float32(middle) * difference), history)
        low, high = (low, middle) if chosen == emitted else (middle, high)
    return 2 * high * float(np.abs(difference).max())
