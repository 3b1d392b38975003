"""MTP: whatever was accepted, cancelled or reused, the next drafts are those of a fresh prefill."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_models import BOS, EOS, letter_vocabulary, tiny_gemma4, tiny_llama, tiny_mtp

import localspec.llama  # noqa: F401  (before numpy)
from localspec import resources
from localspec.decoding.loop import Listener, Request, Session
from localspec.drafters.base import Draft, Drafter, Needs
from localspec.drafters.mtp import MtpDrafter, build_mtp, mtp_needs
from localspec.drafters.none import NoDrafter
from localspec.engine.client import Engine
from localspec.errors import DrafterError, ModelFileError
from localspec.llama import Context, ContextParams, Model, ModelParams
from localspec.llama.context import AbortFlag, Batch
from localspec.records import ContextSettings, DrafterSettings, Generation, SamplerSettings

PROMPT = [BOS, 5, 6, 7, 8, 5, 6]
SPEAKS_ON = {BOS: -8.0, EOS: -8.0}
N_MAX = 3
# Under 64 rows: from there on attention takes another path, with other roundings.
BATCH = 32


class Kind:
    """A target and where its MTP layers are; ``own`` is None where they are in its file."""

    def __init__(self, name: str, target: Path, own: Path | None = None) -> None:
        self.name, self.target, self.own = name, target, own

    def __repr__(self) -> str:
        return self.name


NAMES = ["one head", "chained heads", "own file", "shared memory", "hybrid"]


@pytest.fixture(scope="session")
def kinds(models: Path) -> dict[str, Kind]:
    target = tiny_gemma4(models / "gemma4.gguf", favour=SPEAKS_ON)
    assistant = tiny_gemma4(models / "assistant.gguf", n_embd=32, assistant_of=64, seed=1)
    made = [
        Kind("one head", tiny_mtp(models / "mtp1.gguf", favour=SPEAKS_ON)),
        Kind("chained heads", tiny_mtp(models / "mtp3.gguf", heads=3, favour=SPEAKS_ON)),
        Kind(
            "own file",
            tiny_mtp(models / "trunk.gguf", heads=3, own_heads=False, favour=SPEAKS_ON),
            tiny_mtp(models / "heads.gguf", heads=3, trunk=False, favour=SPEAKS_ON),
        ),
        Kind("shared memory", target, assistant),
        Kind("hybrid", resources.asset("demo/tinyqwen35-mtp-q4_0.gguf")),
    ]
    return {kind.name: kind for kind in made}


@pytest.fixture(params=NAMES)
def kind(request: pytest.FixtureRequest, kinds: dict[str, Kind]) -> Kind:
    return kinds[request.param]


class Lent:
    """What the engine lends (drafters.build.Resources)."""

    def __init__(self, target: Model, drafter: Model | None, batch: int = BATCH) -> None:
        self.target, self.drafter = target, drafter
        self._batch = batch
        self.target_context: Context

    def drafter_context(self, model: Model, *, mtp: bool, reads_target: bool) -> Context:
        assert reads_target
        target = self.target_context
        params = ContextParams(n_ctx=target.n_ctx, threads=1, batch=self._batch, mtp=mtp)
        return Context(model, params, target.abort, target)


class Lab:
    """Models loaded once, contexts and sessions closed at the end of the test."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._models: dict[Path, Model] = {}

    def model(self, path: Path) -> Model:
        if path not in self._models:
            model = Model(path, ModelParams(load_mtp=True))
            self._models[path] = self._stack.enter_context(model)
        return self._models[path]

    def heads(self, kind: Kind) -> Model:
        return self.model(kind.own or kind.target)

    def lent(self, kind: Kind, batch: int = BATCH) -> Lent:
        own = self.model(kind.own) if kind.own else None
        return Lent(self.model(kind.target), own, batch)

    def session(
        self,
        kind: Kind,
        wrap: Callable[[MtpDrafter], Drafter] = lambda drafter: drafter,
        *,
        n_max: int = N_MAX,
        p_min: float = 0.0,
        batch: int = BATCH,
    ) -> Session:
        lent = self.lent(kind, batch)
        settings = DrafterSettings("mtp", "mtp", n_max=n_max, p_min=p_min)
        needs = mtp_needs(settings, lent)
        target, abort = self._target(lent.target, needs)
        lent.target_context = target
        return self._open(target, wrap(build_mtp(settings, lent, needs)), abort)

    def plain(self, kind: Kind) -> Session:
        target, abort = self._target(self.model(kind.target), Needs())
        return self._open(target, NoDrafter(), abort)

    def _target(self, model: Model, needs: Needs) -> tuple[Context, AbortFlag]:
        abort = AbortFlag()
        params = ContextParams(
            n_ctx=256,
            threads=1,
            batch=BATCH,
            outputs=needs.outputs,
            recurrent_snapshots=0 if model.can_roll_back else needs.outputs - 1,
        )
        return self._stack.enter_context(Context(model, params, abort)), abort

    def _open(self, target: Context, drafter: Drafter, abort: AbortFlag) -> Session:
        session = Session(target.model, target, drafter, abort)
        self._stack.callback(session.close)
        return session


@pytest.fixture
def lab() -> Iterator[Lab]:
    with ExitStack() as stack:
        yield Lab(stack)


def run(
    session: Session,
    prompt: Sequence[int] = PROMPT,
    n: int = 40,
    *,
    temperature: float = 0.0,
    reuse: bool = False,
    listener: Listener | None = None,
) -> Generation:
    sampler = SamplerSettings(temperature=temperature, seed=5)
    request = Request(
        prompt=prompt, sampler=sampler, max_tokens=n, ignore_eos=True, reuse=reuse, record=True
    )
    return session.generate(request, listener or Listener())


def fresh_drafts(lab: Lab, kind: Kind, tokens: Sequence[int], n: int) -> list[tuple[int, float]]:
    """What llama.cpp's draft-mtp drafts after ``tokens``, from nothing, each with its probability:
    the verbs of its common/speculative.cpp in their plainest form."""
    model, head = lab.model(kind.target), lab.heads(kind)
    shared = head.arch == "gemma4-assistant"
    heads = 1 if shared else head.mtp_layers
    drafted: list[tuple[int, float]] = []
    params = ContextParams(n_ctx=256, threads=1, batch=BATCH)
    with (
        Context(model, params) as target,
        Context(head, replace(params, mtp=True), None, target) as own,
    ):
        target.tap_hidden(outputs_only=False)
        own.tap_hidden(outputs_only=True)
        # row p: the state after token p - 1
        states = np.zeros((len(tokens) + n, head.n_embd_out), np.float32)
        batch, pairs = Batch(BATCH), Batch(BATCH)
        batch.outputs[:] = pairs.outputs[:] = 0
        features = pairs.attach_features(head.n_embd_out, tokens=True)
        last = len(tokens) - 1
        for start in range(0, last, BATCH):
            chunk = tokens[start : min(start + BATCH, last)]
            batch.tokens[: len(chunk)] = chunk
            batch.fill_positions(len(chunk), start)
            target.decode(batch)
            states[start + 1 : start + 1 + len(chunk)] = target.hidden_rows(len(chunk))

        def decode(chunk: Sequence[int], first: int, position: int) -> None:
            pairs.tokens[: len(chunk)] = chunk
            features[: len(chunk)] = states[first : first + len(chunk)]
            pairs.fill_positions(len(chunk), position)
            own.decode(pairs)

        for i in range(0 if shared else heads):
            own.truncate(0)
            own.mtp_layer(i)
            for start in range(0, last, BATCH):
                decode(tokens[start : min(start + BATCH, last)], start, start)
        path = [tokens[last]]
        for i in range(n):
            pairs.outputs[:] = 0
            if heads > 1:
                own.truncate(last)
                own.mtp_layer(i)
                pairs.outputs[i] = 1
                decode(path, last, last)
            else:
                pairs.outputs[0] = 1
                decode(path[-1:], last + i, last if shared else last + i)
            row = own.rows(1)[0].copy()
            if int(row.argmax()) in model.vocab.eog:  # the runs here ignore the end of generation
                row[list(model.vocab.eog)] = -np.inf
            p = np.exp(row - row.max())
            drafted.append((int(row.argmax()), float(p.max() / p.sum())))
            path.append(drafted[-1][0])
            states[last + i + 1 : last + i + 2] = own.hidden_row(i if heads > 1 else 0)
        batch.close()
        pairs.close()
    return drafted


Seen = tuple[list[int], list[int]]


class Force:
    """Lets MTP draft, but submits what a test wants accepted: ``right(step)`` tokens of ``truth``,
    then a wrong one. ``seen`` has what MTP itself drafted after which tokens; where ``asks(step)``
    says no, it was not even asked.
    """

    def __init__(
        self,
        truth: Sequence[int],
        right: Callable[[int], int],
        asks: Callable[[int], bool] = lambda step: True,
    ) -> None:
        self.truth = truth
        self.seen: list[Seen] = []
        self._right, self._asks = right, asks
        self._own = Draft(N_MAX)

    def __call__(self, inner: MtpDrafter) -> Drafter:
        self._inner = inner
        self.needs = inner.needs
        self.reusable, self.begin, self.process = inner.reusable, inner.begin, inner.process
        self.accept, self.reset, self.close = inner.accept, inner.reset, inner.close
        return self

    def draft(self, tokens: list[int], limit: int) -> Draft:
        step = len(self.seen)
        draft = self._own
        draft.n = min(N_MAX, limit)
        asked = self._asks(step)
        if asked:
            draft = self._inner.draft(tokens, limit)
        self.seen.append((list(tokens), draft.tokens[: draft.n].tolist() if asked else []))
        right = self._right(step)
        for i in range(draft.n):
            at = len(tokens) + i
            truth = self.truth[at] if at < len(self.truth) else 4
            draft.tokens[i] = truth if i < right else 4 + (truth - 3) % 8
        return draft


def check_drafts(lab: Lab, kind: Kind, seen: Sequence[Seen]) -> None:
    assert any(drafted for _, drafted in seen)
    for tokens, drafted in seen:
        fresh = fresh_drafts(lab, kind, tokens, len(drafted))
        assert drafted == [token for token, _ in fresh], len(tokens)


# ---- exactness ----------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("seed", range(3))
def test_any_pattern_of_accept_and_reject_gives_the_baselines_text_and_fresh_drafts(
    lab: Lab, kind: Kind, temperature: float, seed: int
) -> None:
    plain = run(lab.plain(kind), temperature=temperature)
    rng = random.Random(seed)
    force = Force([*PROMPT, *plain.tokens], lambda step: rng.randrange(N_MAX + 1))
    fast = run(lab.session(kind, force), temperature=temperature)
    assert fast.tokens == plain.tokens
    assert 0 < fast.counts.accepted < fast.counts.drafted
    check_drafts(lab, kind, force.seen)


def test_steps_that_another_drafter_drafted_are_followed(lab: Lab, kind: Kind) -> None:
    plain = run(lab.plain(kind))
    rng = random.Random(1)
    force = Force(
        [*PROMPT, *plain.tokens],
        lambda step: rng.randrange(N_MAX + 1),
        asks=lambda step: step % 3 == 2,
    )
    fast = run(lab.session(kind, force))
    assert fast.tokens == plain.tokens
    assert any(not drafted for _, drafted in force.seen)
    check_drafts(lab, kind, force.seen)


@pytest.mark.parametrize("batch", [1, 2, 3, 5])
def test_a_batch_smaller_than_a_draft(lab: Lab, kind: Kind, batch: int) -> None:
    plain = run(lab.plain(kind))
    force = Force([*PROMPT, *plain.tokens], lambda step: step % (N_MAX + 1))
    fast = run(lab.session(kind, force, batch=batch))
    assert fast.tokens == plain.tokens
    check_drafts(lab, kind, force.seen)


def test_a_full_context_stops_at_the_same_token(lab: Lab, kind: Kind) -> None:
    prompt = [BOS, *(4 + i % 8 for i in range(200))]
    plain = run(lab.plain(kind), prompt, 100)
    force = Force([*prompt, *plain.tokens], lambda step: N_MAX)
    fast = run(lab.session(kind, force), prompt, 100)
    assert plain.stop == fast.stop == "context"
    assert fast.tokens == plain.tokens


def test_p_min_stops_before_a_token_is_taken(lab: Lab, kind: Kind) -> None:
    p_min = 0.35
    force = Force([*PROMPT, *run(lab.plain(kind)).tokens], lambda step: step % 3)
    run(lab.session(kind, force, p_min=p_min))
    lengths = set()
    for tokens, drafted in force.seen:
        fresh = fresh_drafts(lab, kind, tokens, N_MAX)
        surely = next((i for i, (_, p) in enumerate(fresh) if p < p_min), N_MAX)
        # a draft may not fill the budget
        most = min(surely, len(PROMPT) + 40 - len(tokens) - 1)
        assert drafted == [token for token, _ in fresh[:most]]
        lengths.add(len(drafted))
    assert len(lengths) > 1, "a test of one length shows nothing"


def test_a_step_decodes_as_often_as_it_drafts(
    lab: Lab, kinds: dict[str, Kind], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rejected token is decoded again, and kept ones come with the first draft."""
    kind = kinds["one head"]
    force = Force([*PROMPT, *run(lab.plain(kind)).tokens], lambda step: step % (N_MAX + 1))
    session = lab.session(kind, force)
    sizes: dict[int, list[int]] = {}
    decode = Context.decode

    def counted(context: Context, batch: Batch) -> None:
        sizes.setdefault(id(context), []).append(int(batch.native.n_tokens))
        decode(context, batch)

    monkeypatch.setattr(Context, "decode", counted)
    fast = run(session)
    own = next(v for k, v in sizes.items() if k != id(session.target.context))
    assert own[0] == len(PROMPT)
    steps = [s for s in fast.steps if s.drafted]
    assert len(own) - 1 == sum(s.drafted for s in steps)
    kept = [0, *(s.accepted for s in fast.steps)]
    expected = [
        size
        for s, before in zip(steps, kept, strict=False)
        for size in [before + 1, *[1] * (s.drafted - 1)]
    ]
    assert own[1:] == expected


def test_the_trained_head_is_accepted(lab: Lab, kinds: dict[str, Kind]) -> None:
    """Near the 3.36 of its card (a prompt of its own kind, greedy, 3 tokens a draft)."""
    kind = kinds["hybrid"]
    text = "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n"
    prompt = lab.model(kind.target).vocab.tokenize(text, special=True)
    made = run(lab.session(kind), prompt, 96)
    assert made.counts.accept_length is not None
    assert made.counts.accept_length > 2.4


# ---- turns --------------------------------------------------------------------------------------


def turn(lab: Lab, kind: Kind, session: Session, force: Force, prompt: Sequence[int]) -> Generation:
    """A turn on what is held: its text is a fresh baseline's, its drafts those of nothing held."""
    plain = run(lab.plain(kind), prompt, 20)
    force.truth = [*prompt, *plain.tokens]
    force.seen.clear()
    fast = run(session, prompt, 20, reuse=True)
    assert fast.tokens == plain.tokens
    check_drafts(lab, kind, force.seen)
    return fast


def test_a_conversation_goes_on_where_it_stood(lab: Lab, kind: Kind) -> None:
    force = Force([], lambda step: step % (N_MAX + 1))
    session = lab.session(kind, force)
    prompt, expected = list(PROMPT), 0
    for said in ([9, 8], [5], [10, 11, 4] * 12, [6]):
        made = turn(lab, kind, session, force, prompt)
        assert made.cached_tokens == expected
        held = [*prompt, *made.tokens]
        expected = len(held) - 1  # the last token was never decoded
        prompt = [*held, *said]


@pytest.mark.parametrize("keep", [1, 6, 7, 12, 25])
def test_a_turn_may_go_back(lab: Lab, kind: Kind, keep: int) -> None:
    force = Force([], lambda step: step % (N_MAX + 1))
    session = lab.session(kind, force)
    first = turn(lab, kind, session, force, PROMPT)
    held = [*PROMPT, *first.tokens]
    second = turn(lab, kind, session, force, [*held[:keep], 9 if held[keep] != 9 else 8, 10, 4])
    can_go_back = lab.model(kind.target).can_roll_back
    assert second.cached_tokens <= keep
    assert second.cached_tokens >= (keep - 1 if can_go_back else 0)
    turn(lab, kind, session, force, [*held[:keep], 4, *[7] * 40])  # more than a chunk


def test_the_same_prompt_again(lab: Lab, kind: Kind) -> None:
    force = Force([], lambda step: step % (N_MAX + 1))
    session = lab.session(kind, force)
    for _ in range(3):
        turn(lab, kind, session, force, PROMPT)


def test_speculation_may_be_switched_off_and_on_again(lab: Lab, kind: Kind) -> None:
    plain, force = lab.plain(kind), Force([], lambda step: step % (N_MAX + 1))
    first = run(plain, PROMPT, 20, reuse=True)
    prompt = [*PROMPT, *first.tokens, 9, 8]
    on = lab.session(kind, force)
    on.adopt(plain)
    second = turn(lab, kind, on, force, prompt)
    assert second.cached_tokens == 0, "its states must be computed"
    prompt = [*prompt, *second.tokens, 7]
    off = lab.plain(kind)
    off.adopt(on)
    third = run(off, prompt, 20, reuse=True)
    assert third.cached_tokens == len(prompt) - 2
    assert third.tokens == run(lab.plain(kind), prompt, 20).tokens
    on.adopt(off)
    turn(lab, kind, on, force, [*prompt, *third.tokens, 6])


# ---- what is refused ----------------------------------------------------------------------------


def refused(lab: Lab, target: Path, own: Path | None = None, n_max: int = N_MAX) -> DrafterError:
    with pytest.raises(DrafterError) as caught:
        mtp_needs(DrafterSettings("mtp", "mtp", n_max=n_max), lab.lent(Kind("", target, own)))
    return caught.value


def test_a_model_without_mtp_layers_is_refused(
    lab: Lab, tiny_target: Path, kinds: dict[str, Kind]
) -> None:
    error = refused(lab, tiny_target)
    assert error.message == f"{tiny_target.name} has no MTP layers."
    assert "mtp-" in error.hint
    assert "has no MTP layers" in refused(lab, kinds["own file"].target).message


def test_mtp_layers_that_were_not_loaded_are_none(kinds: dict[str, Kind]) -> None:
    with Model(kinds["one head"].target) as model, pytest.raises(DrafterError, match="no MTP"):
        mtp_needs(DrafterSettings("mtp", "mtp", n_max=1), Lent(model, None))


def test_no_more_tokens_than_chained_heads(lab: Lab, kinds: dict[str, Kind]) -> None:
    kind = kinds["chained heads"]
    error = refused(lab, kind.target, n_max=4)
    assert "3 MTP heads, each for one token: it cannot draft 4" in error.message
    assert "--n-max 3" in error.hint
    lab.session(kind, n_max=3)
    lab.session(kinds["one head"], n_max=12)


OTHERS: dict[str, Callable[[Path], Path]] = {
    "another architecture": tiny_llama,
    "another width": lambda p: tiny_mtp(p, trunk=False, n_embd=64),
    "another depth": lambda p: tiny_mtp(p, trunk=False, n_layer=3),
    "another vocabulary": lambda p: tiny_mtp(p, trunk=False, tokens=letter_vocabulary(12, "m")),
    "no MTP layers": lambda p: tiny_mtp(p, own_heads=False),
    "an assistant": lambda p: tiny_gemma4(p, n_embd=64, assistant_of=32),
}
ASSISTANTS: dict[str, Callable[[Path], Path]] = {
    "another target's": lambda p: tiny_gemma4(p, n_embd=32, assistant_of=96),
    "other keys": lambda p: tiny_gemma4(p, n_embd=32, assistant_of=64, head=64),
    "another window": lambda p: tiny_gemma4(p, n_embd=32, assistant_of=64, window=512),
    "a whole model": lambda p: tiny_gemma4(p),
}


@pytest.mark.parametrize(
    ("name", "made"),
    [
        *(("own file", m) for m in OTHERS.values()),
        *(("shared memory", m) for m in ASSISTANTS.values()),
    ],
    ids=[*OTHERS, *ASSISTANTS],
)
def test_layers_of_another_model_are_refused(
    lab: Lab, kinds: dict[str, Kind], tmp_path: Path, name: str, made: Callable[[Path], Path]
) -> None:
    target, own = kinds[name].target, made(tmp_path / "other.gguf")
    message = refused(lab, target, own).message
    assert own.name in message
    assert target.name in message or "not what the method mtp needs" in message


# ---- in the engine ------------------------------------------------------------------------------


def test_the_engine_loads_and_runs_each_kind(kind: Kind) -> None:
    context = ContextSettings(256, threads=1, n_batch=BATCH)
    own = str(kind.own) if kind.own else None
    with Engine() as engine:
        engine.load(kind.target)
        engine.open("plain", DrafterSettings(), context)
        engine.open("fast", DrafterSettings("mtp", "mtp", own, n_max=N_MAX), context)
        plain = engine.generate("plain", PROMPT, max_tokens=30, ignore_eos=True)
        fast = engine.generate("fast", PROMPT, max_tokens=30, ignore_eos=True)
        assert fast.tokens == plain.tokens
        assert fast.counts.drafted
        # a drafter of hidden states starts a copied conversation afresh
        engine.open("fast", DrafterSettings("mtp", "mtp", own, n_max=2), context, copy_from="plain")
        goes_on = (*PROMPT, *plain.tokens, 5, 6)
        again = engine.generate("fast", goes_on, max_tokens=10, ignore_eos=True, reuse=True)
        assert again.cached_tokens == 0
        assert (
            again.tokens == engine.generate("plain", goes_on, max_tokens=10, ignore_eos=True).tokens
        )


def test_the_engine_refuses_mtp_layers_as_a_target(kinds: dict[str, Kind]) -> None:
    with Engine() as engine:
        for name in ("own file", "shared memory"):
            own = kinds[name].own
            assert own is not None
            with pytest.raises(ModelFileError, match="MTP drafter, not a model that can run"):
                engine.load(own)
        engine.load(kinds["own file"].target)
        with pytest.raises(DrafterError, match="has no MTP layers"):
            engine.open(
                "s", DrafterSettings("mtp", "mtp", n_max=2), ContextSettings(256, threads=1)
            )
