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
from localspec.decoding.sampling import TARGET, Row, Sampler, uniform
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
    def kept(self) -> Sequence[int]: ...
    @property
    def index(self) -> int: ...
    @property
    def sampler(self) -> SamplerSettings: ...
    @property
    def ignore_eos(self) -> bool: ...


def _ignore(chunk: Sequence[int], position: int) -> None:
    pass


def _chain(tokens: Sequence[int]) -> Draft:
    draft = Draft(len(tokens))
    draft.tokens[:] = tokens
    draft.n = len(tokens)
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
        plain[i] = target.verify(tokens[start + i], _chain(()), start + i)[0]
    equal: dict[int, bool] = {}
    difference: dict[int, float] = {}
    for size in sizes:
        session.clear()  # a fresh prefill, since a recurrent memory cannot go back
        target.prefill(tokens[:start], 0, _ignore)
        rows = target.verify(tokens[start], _chain(tokens[start + 1 : start + size]), start)
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
    margin = _margin(sampler, plain_row, emitted, history)
    return reproduced, margin, float(np.abs(row - plain_row).max())


def _plain_row(session: Session, run: Recorded) -> Row:
    session.clear()
    target, position = session.target, len(run.prompt)
    row = target.prefill(run.prompt, 0, _ignore)[0]
    for token in run.tokens[: run.index]:
        row = target.verify(token, _chain(()), position)[0]
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
    for drafted, kept in zip(run.drafts, run.kept, strict=True):
        if done > run.index:
            break
        draft = _chain(drafted)
        rows = target.verify(committed[-1], draft, len(committed) - 1)
        if run.index < done + kept:
            row = rows[run.index - done]
            break
        committed += run.tokens[done : done + kept]
        done += kept
        if draft.n:
            target.keep(draft, min(kept, draft.n) - 1, len(committed) - 1)
    copied: Row = row.copy()
    session.clear()
    return copied


def _margin(sampler: Sampler, row: Row, emitted: int, history: list[int]) -> float:
    """By how much logits would have to move for the plain row to emit ``emitted``.

    Greedy: the plain gap between its best token and the emitted one. Sampled with the index's own
    random number u: moving every logit by at most d scales each probability by at most exp(2d/T),
    so the logarithm of what a cumulative border must be scaled by to cross u, times T, is the same
    measure (compared with 2 d).
    """
    if sampler.greedy:
        best = sampler.argmax(row.copy(), history)
        return float(row[best] - row[emitted])
    p = sampler.distribution(row.copy(), history)
    if p.probability(emitted) == 0.0:  # outside the surviving set: distance to its last member
        return float(row[p.ids].min() - row[emitted])
    u = uniform(sampler.settings.seed, sampler.index_of(history), TARGET)
    upper = p.p.cumsum()
    i = int(p.ids.searchsorted(emitted))
    high, low = float(upper[i]), float(upper[i] - p.p[i])
    if low <= u < high:
        return 0.0
    border = high if u >= high else low
    grow = u / border if u >= high else (1 - u) / (1 - border)
    return sampler.settings.temperature * abs(float(np.log(grow)))
