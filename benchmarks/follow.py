"""Our loop led along a run of llama-server, so that every step of the two can be compared.

Before each step both have seen the same tokens and kept the same of every draft, whatever happened
before: the drafter is asked, its draft is compared with the server's and replaced by it, and what
the server kept and emitted is kept and emitted here. So a parting is counted once and hides nothing
after it. Where nothing parts, nothing was replaced: the run is the one that the loop makes alone.

Used by peer_drafts.py, and on recorded runs by tests/drafters/test_peer.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from in_process import host_of

import localspec.llama  # noqa: F401  (before numpy)
from localspec.catalog import DrafterSpec, resolve_drafters, resolve_target
from localspec.decoding import loop
from localspec.decoding.acceptance import Acceptance, accept
from localspec.decoding.loop import Listener, Request, Session
from localspec.decoding.sampling import Sampler, softmax, top_k_ids
from localspec.drafters.base import Draft, Drafter, Sampling
from localspec.engine import messages as m
from localspec.llama import Rows
from localspec.records import ContextSettings, DrafterSettings, SamplerSettings
from localspec.resources import asset

NGRAM = 3
"""Length of the n-grams that are looked up where n-gram drafters are compared."""

FILES = {"dflash-block8": "demo/smollm2-135m-dflash-block8-q4_0.gguf"}
"""Drafters that the catalogue does not have."""

Candidates = dict[int, float]
"""The likeliest tokens of one drafted position, the drafted one first, with their probabilities.
Of the ten likeliest, as llama.cpp's drafters have them; its log has three of them. Empty where a
drafter has none (n-grams)."""


@dataclass(frozen=True)
class ServerStep:
    """``draft`` as it was submitted, ``accepted`` of it kept, ``emitted`` in all."""

    draft: tuple[int, ...]
    candidates: tuple[Candidates, ...]
    accepted: int
    emitted: tuple[int, ...]


@dataclass(frozen=True)
class ServerRun:
    """One greedy completion. ``forced``: how much of each draft was kept, whatever the target said
    (None: what the target said). ``first`` is the token that came from the prompt."""

    model: str
    drafter: str
    n_max: int
    forced: int | None
    prompt: tuple[int, ...]
    first: int
    steps: tuple[ServerStep, ...]

    @property
    def emitted(self) -> int:
        return 1 + sum(len(s.emitted) for s in self.steps)

    @property
    def settings(self) -> DrafterSettings:
        """Ours for the same. An n-gram is ``NGRAM`` long, as it is for the server."""
        if self.drafter == "ngram":
            return DrafterSettings(
                "ngram", "ngram", n_max=self.n_max, ngram_min=NGRAM, ngram_max=NGRAM
            )
        return self.spec.settings(n_max=self.n_max, p_min=0.0)

    @property
    def spec(self) -> DrafterSpec:
        name = str(asset(FILES[self.drafter])) if self.drafter in FILES else self.drafter
        (spec,) = resolve_drafters(resolve_target(self.model), [name])
        return spec

    def as_json(self) -> dict[str, Any]:
        steps = [
            {
                "draft": s.draft,
                "candidates": [list(c.items()) for c in s.candidates],
                "accepted": s.accepted,
                "emitted": s.emitted,
            }
            for s in self.steps
        ]
        names = ("model", "drafter", "n_max", "forced", "prompt", "first")
        return {name: getattr(self, name) for name in names} | {"steps": steps}

    @classmethod
    def of_json(cls, recorded: dict[str, Any]) -> ServerRun:
        steps = tuple(
            ServerStep(
                tuple(s["draft"]),
                tuple({int(token): p for token, p in c} for c in s["candidates"]),
                s["accepted"],
                tuple(s["emitted"]),
            )
            for s in recorded["steps"]
        )
        return cls(**recorded | {"prompt": tuple(recorded["prompt"]), "steps": steps})


@dataclass(frozen=True)
class Parting:
    """Where a draft, or what the target emits, first differs in a step.

    ``margin`` is what lies between the two tokens in probability, the larger of what our drafter
    says and what the server's says; infinite where there is no token to compare. ``what`` parted:
    the draft, the target's tokens, or how many of a draft were kept.
    """

    what: str
    step: int
    position: int
    ours: int | None
    theirs: int | None
    margin: float


@dataclass
class Followed:
    """``compared`` steps, of which ``equal`` had the same draft. ``shifts``: for each candidate of
    the server's at a position of ours that follows the same tokens, by how much the probabilities
    differ. ``partings`` of drafts, ``target_partings`` of what was kept and emitted."""

    compared: int = 0
    equal: int = 0
    shifts: list[float] = field(default_factory=list)
    partings: list[Parting] = field(default_factory=list)
    target_partings: list[Parting] = field(default_factory=list)


def follow(session: Session, run: ServerRun) -> Followed:
    """Generate along ``run`` from an empty memory."""
    found = Followed()
    inner = session.drafter
    led = Led(inner, run, found, session.model.vocab.eog)
    request = Request(run.prompt, SamplerSettings(temperature=0), run.emitted)
    session.drafter, loop.accept = cast(Drafter, led), led.accept_tokens
    try:
        made = session.generate(request, Listener())
    finally:
        session.drafter, loop.accept = inner, accept
    if len(made.tokens) != run.emitted:
        raise RuntimeError(f"{run.emitted} tokens to follow, {len(made.tokens)} made")
    return found


class Led:
    """Stands before a drafter in the loop, and leads both."""

    def __init__(self, inner: Drafter, run: ServerRun, found: Followed, eog: Set[int]) -> None:
        self.needs = inner.needs
        self.reusable, self.process = inner.reusable, inner.process
        self.reset, self.close = inner.reset, inner.close
        self._inner, self._run, self._found = inner, run, found
        self._eog = eog
        self._step = -1  # of the prompt comes one token, without a step
        self._agreed: int | None = None  # tokens before the first that was put into its draft

    def begin(self, tokens: Sequence[int], keep: int, sampler: Sampling) -> None:
        self._seen = Watched(sampler)
        self._inner.begin(tokens, keep, self._seen)

    def draft(self, tokens: list[int], limit: int) -> Draft:
        self._seen.rows.clear()
        draft = self._inner.draft(tokens, limit)
        theirs = self._run.steps[self._step]
        if self._run.drafter != "ngram" or both_look_up(tokens, theirs):
            self._compare(draft.tokens[: draft.n].tolist(), theirs, len(tokens))
        draft.tokens[: len(theirs.draft)] = theirs.draft
        draft.n = len(theirs.draft)
        return draft

    def _compare(self, ours: list[int], theirs: ServerStep, committed: int) -> None:
        found = self._found
        found.compared += 1
        n = len(theirs.draft)
        if self._run.drafter == "ngram":
            ours = ours[:n]  # by intent: llama.cpp's copies end with the text, ours go on
        if ours and ours[-1] in self._eog:
            n = min(n, len(ours))  # by intent: nothing is drafted after the end
        same = 0
        while same < min(n, len(ours)) and ours[same] == theirs.draft[same]:
            same += 1
        for mine, other in zip(self._seen.rows, theirs.candidates[: same + 1], strict=False):
            found.shifts += [abs(mine.get(token, 0.0) - p) for token, p in other.items()]
        if same == n == len(ours):
            found.equal += 1
            return
        self._agreed = committed + same
        token = ours[same] if same < len(ours) else None
        other_token = theirs.draft[same] if same < n else None
        margin = float("inf")
        if token is not None and other_token is not None and self._seen.rows:
            mine, other = self._seen.rows[same], theirs.candidates[same]
            margin = max(
                mine[token] - mine.get(other_token, 0.0),
                # a token that was not logged is no likelier than the last that was
                other[other_token] - other.get(token, min(other.values())),
            )
        found.partings.append(Parting("draft", self._step, same, token, other_token, margin))

    def accept(self, tokens: list[int], rows: Sequence[int]) -> None:
        if self._agreed is not None and not self.needs.reads_target:
            # it takes what was kept for its own draft, and may hold other tokens there
            tokens = tokens[: self._agreed + 1]
        self._agreed = None
        self._inner.accept(tokens, rows)
        self._step += 1

    def accept_tokens(
        self,
        draft: Draft,
        rows: Rows,
        sampler: Sampler,
        tokens: list[int],
        eog: Set[int],
        result: Acceptance,
    ) -> None:
        """In the place of acceptance.accept, which is asked, or of the server's forced one."""
        if self._step < 0:
            self._step, accepted, emitted = 0, 0, (self._run.first,)
        else:
            theirs = self._run.steps[self._step]
            accepted, emitted = theirs.accepted, theirs.emitted
        path, start = list(tokens), len(tokens)
        if self._run.forced is None or not draft.n:
            accept(draft, rows, sampler, path, eog, result)
        else:
            keep(self._run.forced, draft, rows, sampler, path, eog, result)
        self._check(path[start:], result.accepted, emitted, accepted, rows)
        tokens += emitted
        result.accepted, result.node = accepted, accepted - 1

    def _check(
        self, ours: list[int], kept: int, theirs: tuple[int, ...], accepted: int, rows: Rows
    ) -> None:
        for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
            if a != b:
                p = softmax(rows[i])
                parting = Parting("target", self._step, i, a, b, float(p[a] - p[b]))
                self._found.target_partings.append(parting)
                return
        if len(ours) != len(theirs) or kept != accepted:
            parting = Parting("kept", self._step, accepted, None, None, float("inf"))
            self._found.target_partings.append(parting)


def keep(
    n: int,
    draft: Draft,
    rows: Rows,
    sampler: Sampler,
    tokens: list[int],
    eog: Set[int],
    result: Acceptance,
) -> None:
    """The first ``n`` drafted tokens, as llama-server keeps them under ``--spec-synth-rates`` of n
    ones and then zeros (server-context.cpp: an end of generation is not kept)."""
    result.accepted = 0
    for token in draft.tokens[: min(n, draft.n)].tolist():
        if token in eog:
            break
        tokens.append(token)
        result.accepted += 1
    tokens.append(sampler.sample(rows[result.accepted], tokens))


def both_look_up(tokens: Sequence[int], theirs: ServerStep) -> bool:
    """Where ngram-simple drafts and the two agree on what is the last occurrence: it does not see
    one that the suffix overlaps in all but one token (one token, over and over)."""
    return bool(theirs.draft) and tokens[-NGRAM - 1 : -1] != tokens[-NGRAM:]


class Watched:
    """A sampler that remembers the candidates of every row a drafter took its token from."""

    def __init__(self, sampler: Sampling) -> None:
        self.rows: list[Candidates] = []
        self.greedy = sampler.greedy
        self.distribution, self.draw_draft = sampler.distribution, sampler.draw_draft
        self.index_of = sampler.index_of
        self._argmax = sampler.argmax

    def argmax(self, row: Any, tokens: list[int]) -> int:
        token = self._argmax(row, tokens)
        ids = top_k_ids(row, 10)
        self.rows.append(dict(zip(ids.tolist(), softmax(row[ids]).tolist(), strict=True)))
        return token


@contextmanager
def loaded(model: Path, *, n_ctx: int, threads: int) -> Iterator[Any]:
    """A host over ``model``, in this process, and what its sessions are to be opened with."""
    host, _ = host_of(model)
    context = ContextSettings(n_ctx, threads, flash_attn="on")

    def opened(settings: DrafterSettings) -> Session:
        host.answer(m.Open(2, "s", settings, context))
        return host.session("s")

    try:
        yield host, opened
    finally:
        host.close("s")
        for made in (*host.models.values(), host.model):
            made.close()
