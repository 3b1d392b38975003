"""Evidence for the audit: are batch-k rows bit-equal here, and what do the recorded batches of a
run say next to the plain path over the same tokens (DESIGN section 6)?

The teacher-forced form: a run's batches are replayed (prefill chunks, verifies, rollbacks) while
the plain context is fed the tokens that the run emitted, and at every emitted token the row that
decided is set next to the plain row. Three things can be seen so, at every token:

* a token that its row does not choose (a deterministic draft): a fault of acceptance;
* where in its row's distribution the token lies (a sampled draft): see ``place``;
* how far the two rows are apart. A wrong state (a stale cell, a wrong branch kept) reproduces in
  the replay, but its rows part from the plain ones by more than roundings do. How far roundings
  take rows apart is measured by ``rounding``, on the same machine, model and text.

Distances are root mean squares over the vocabulary of the logits' differences, less their mean,
which no softmax sees. Measured (SmolLM2 Q4_1, 96 tokens): 0 for chains; 0.12 and 0.23 at the most
once a tree's branch was kept, the same as ``rounding`` finds without any tree (0.12 and 0.21);
0.9 to 3.1 at the first token after one cell was made stale, and over 0.24 for a dozen tokens more.
The largest difference of any logit parts them less well (1.5 from roundings, 6.4 to 20 from the
cell).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

import numpy as np

from localspec.decoding.loop import Session
from localspec.decoding.sampling import AUDIT, Row, Sampler, uniform
from localspec.drafters.base import Draft
from localspec.errors import EngineFailed
from localspec.records import SamplerSettings

ROUNDED = 48
"""Rows, the last of a text, from which the size of roundings is known."""


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
    def index(self) -> int | None: ...
    @property
    def sampler(self) -> SamplerSettings: ...
    @property
    def ignore_eos(self) -> bool: ...
    @property
    def sampled(self) -> bool: ...


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


class Evidence(NamedTuple):
    """The fields of messages.Replayed."""

    reproduced: bool
    margin: float
    max_difference: float
    differences: tuple[float, ...]
    unlike: tuple[int, ...]
    places: tuple[float, ...]


def replay(session: Session, plain: Session, run: Recorded) -> Evidence:
    """Set the replayed rows of ``run`` next to the plain path's, at every token it emitted."""
    _check_capacity(session, 1 + max(map(len, run.drafts), default=0))
    history = list(run.prompt)
    banned = session.model.vocab.eog if run.ignore_eos else ()
    sampler = Sampler(run.sampler, len(run.prompt), banned)
    differences, unlike, places = [], [], []
    margin = max_difference = 0.0
    rows = zip(_recorded_rows(session, run), _plain_rows(plain, run), run.tokens, strict=False)
    for i, (row, plain_row, emitted) in enumerate(rows):
        differences.append(_distance(row, plain_row))
        if i == run.index:
            max_difference = float(np.abs(row - plain_row).max())
            margin = _margin(sampler, plain_row, row, emitted, history)
        if run.sampled and not sampler.greedy:
            places.append(_place(sampler, row, history, emitted))
        elif sampler.sample(row.copy(), history) != emitted:
            unlike.append(i)
        history.append(emitted)
    session.clear()
    plain.clear()
    reproduced = run.index not in unlike
    return Evidence(
        reproduced, margin, max_difference, tuple(differences), tuple(unlike), tuple(places)
    )


def rounding(
    session: Session, plain: Session, prompt: Sequence[int], tokens: Sequence[int]
) -> float:
    """The largest distance that other roundings alone put between rows of this text.

    The last rows are computed three times from clean memory without a draft or a rollback: one by
    one in the plain context; the same with every position one higher, which is the same model to
    a rotary or relative embedding (the scores depend on distances alone) with other roundings
    everywhere; and in the session's verify batches of every size in turn. So it knows nothing of
    the machinery that is audited. An architecture with absolute positions makes it too large, and
    the audit less sharp, never a false alarm.
    """
    room = min(plain.target.n_ctx, session.target.n_ctx) - 1
    text = [*prompt, *tokens][:room]
    start = max(1, len(text) - ROUNDED)
    singles = np.stack([r.copy() for r in _single_rows(plain, text, start, 0)])
    found = 0.0
    for other in (_single_rows(plain, text, start, 1), _batch_rows(session, text, start)):
        for row, single in zip(other, singles, strict=True):
            found = max(found, _distance(row, single))
    session.clear()
    plain.clear()
    return found


def _single_rows(session: Session, text: Sequence[int], start: int, shift: int) -> Iterator[Row]:
    """The rows after ``text[start - 1:]``, token by token, every position ``shift`` higher."""
    session.clear()
    target = session.target
    yield target.prefill([text[0]] * shift + list(text[:start]), shift, _ignore)[0]
    for position in range(start, len(text)):
        yield target.verify(text[position], _draft(()), position + shift)[0]


def _batch_rows(session: Session, text: Sequence[int], start: int) -> Iterator[Row]:
    """The same rows from verify batches of 1, 2, ... tokens up to the session's largest, over and
    over."""
    session.clear()
    target, largest = session.target, session.drafter.needs.outputs
    yield target.prefill(text[:start], 0, _ignore)[0]
    position, size = start, largest
    while position < len(text):
        rest = text[position : position + size]
        yield from target.verify(rest[0], _draft(rest[1:]), position)
        position += len(rest)
        size = size - 1 or largest


def _distance(a: Row, b: Row) -> float:
    """Root mean square of the difference, less its mean; tokens that both rule out do not count."""
    with np.errstate(invalid="ignore"):
        difference = a - b
    finite = np.isfinite(difference)
    if not finite.all():
        if not np.array_equal(a[~finite], b[~finite]):
            return float("inf")
        difference = difference[finite]
    return float(difference.std(dtype=np.float64)) if len(difference) else 0.0


def _place(sampler: Sampler, row: Row, history: list[int], emitted: int) -> float:
    """The randomised probability integral transform of ``emitted``: uniform on [0, 1], and
    independent of the others, for tokens drawn from their rows' distributions, whatever those are.

    Tokens are ordered from the least likely on, so that a token that hardly could be drawn has a
    place near 0, and one that the sampler rules out is at 0.
    (Randomised quantile residuals: Dunn and Smyth 1996; Brockwell 2007.)
    """
    p = sampler.distribution(row.copy(), history)
    own = p.probability(emitted)
    if own <= 0:
        return 0.0
    below, equal = float(p.p[p.p < own].sum()), float(p.p[p.p == own].sum())
    return below + uniform(sampler.settings.seed, sampler.index_of(history), AUDIT) * equal


def _plain_rows(session: Session, run: Recorded) -> Iterator[Row]:
    """The row that decides each of ``run.tokens``, when all before it are as they are."""
    session.clear()
    target, position = session.target, len(run.prompt)
    yield target.prefill(run.prompt, 0, _ignore)[0]
    for token in run.tokens[:-1]:
        yield target.verify(token, _draft(()), position)[0]
        position += 1


def _recorded_rows(session: Session, run: Recorded) -> Iterator[Row]:
    """The row that decided each of ``run.tokens`` as the run computed it: same prefill chunks, same
    verify batches, same rollbacks from cleared memory."""
    session.clear()
    target = session.target
    yield target.prefill(run.prompt, 0, _ignore)[0]
    committed = [*run.prompt, run.tokens[0]]
    done = 1  # generated tokens committed; the first came from the prefill
    for drafted, parents, kept in zip(run.drafts, run.parents, run.kept, strict=True):
        draft = _draft(drafted, parents)
        rows = target.verify(committed[-1], draft, len(committed) - 1)
        emitted = run.tokens[done : done + kept]
        path = [-1]  # the nodes that were kept, from the root
        for token in emitted:
            if (node := draft.child(path[-1], token)) < 0:
                break
            path.append(node)
        for node in islice(path, kept):
            yield rows[node + 1]
        committed += emitted
        done += kept
        if draft.n:
            target.keep(draft, path[-1], len(committed) - 1)


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
