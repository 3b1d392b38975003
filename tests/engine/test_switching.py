"""Conversations on the trained demo files whose drafter is switched between turns, every family to
every other kind; and drafters that must have copied what they read."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import cast

import numpy as np
import pytest
from engine.conftest import context
from engine.test_host import NoPipe

from localspec.catalog import resolve_drafters, resolve_target
from localspec.engine import messages as m
from localspec.engine.host import Host, Pipe
from localspec.llama import Model, Rows
from localspec.records import DrafterSettings, Generation, LoadSettings, SamplerSettings

GREEDY = SamplerSettings(seed=3)
WARM = SamplerSettings(temperature=0.8, seed=3)
CONTEXT = context(n_ctx=1024)  # one thread and small batches: rows are equal bit for bit
ANSWER = 12
NEAR = 0.3
"""Logits: roundings of these models differ by some tenths (ENGINE_NOTES section 2)."""
QUESTIONS = (
    "What is the capital of France?",
    "Name three colours.",
    "Write a Python function that adds two numbers.",
    "And one that adds three.",
)
COPIED = ("none", "ngram", "draft-model", "draft tree")
READERS = ("eagle3", "dflash", "dspark", "eagle3 tree", "dflash tree", "ngram+eagle3")


def drafters(model: str) -> dict[str, DrafterSettings]:
    """Every way to draft for ``model``."""
    specs = resolve_drafters(resolve_target(model), ["all"])
    found = {"none": DrafterSettings()}
    found |= {spec.name: spec.settings(n_max=4, p_min=0.0) for spec in specs}
    for name, tree in (
        ("draft-model", "draft tree"),
        ("eagle3", "eagle3 tree"),
        ("dflash", "dflash tree"),
    ):
        if name in found:
            found[tree] = replace(found[name], tree=8)
    for name in ("eagle3", "mtp"):
        if name in found:
            found[f"ngram+{name}"] = replace(found[name], method=f"ngram+{name}")
    return found


class Chat:
    """Sessions in a host in this process; the ids of the conversation are kept as a chat does."""

    def __init__(self, host: Host, model: str) -> None:
        self.host = host
        self.drafters = drafters(model)
        self.ids: list[int] = []
        self._session: str | None = None
        self._opened = 0

    def open(self, drafter: str, copy_from: str | None = None) -> str:
        self._opened += 1
        name = f"{drafter} {self._opened}"
        self.host.answer(m.Open(1, name, self.drafters[drafter], CONTEXT, copy_from))
        return name

    def switch(self, drafter: str) -> None:
        old, self._session = self._session, self.open(drafter, self._session)
        if old is not None:
            self.host.answer(m.Close(1, old))

    def ask(self, question: str) -> None:
        start = "" if not self.ids else "\n"
        text = f"{start}<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        answer = self.host.answer(m.Tokenize(1, (text,)))
        self.ids += cast(m.Tokens, answer).tokens

    def generate(self, session: str, sampler: SamplerSettings, *, reuse: bool) -> Generation:
        request = m.Generate(1, session, tuple(self.ids), sampler, ANSWER, reuse=reuse, record=True)
        return cast(m.Finished, self.host.answer(request)).generation

    def turn(self, question: str, sampler: SamplerSettings = GREEDY) -> Generation:
        """Asked and answered in the session that the conversation is in."""
        assert self._session is not None
        self.ask(question)
        return self.generate(self._session, sampler, reuse=True)

    def fresh(self, drafter: str, sampler: SamplerSettings = GREEDY) -> Generation:
        """The same question asked of a session that has never heard of the conversation."""
        session = self.open(drafter)
        try:
            return self.generate(session, sampler, reuse=False)
        finally:
            self.host.answer(m.Close(1, session))

    def near_tie(self, run: Generation, other: Generation) -> bool:
        """They part at a token where the two likeliest are about as likely (``GREEDY``)."""
        at = next(
            i for i, (a, b) in enumerate(zip(run.tokens, other.tokens, strict=False)) if a != b
        )
        session = self.host.sessions[self.open("none")]
        prompt = [*self.ids, *run.tokens[:at]]
        row = session.target.prefill(prompt, 0, lambda chunk, position: None)[0]
        first, second = np.sort(row)[-2:]
        return bool(
            second - first < NEAR
            and {run.tokens[at], other.tokens[at]} == set(np.argsort(row)[-2:].tolist())
        )


@pytest.fixture(scope="module")
def hosts() -> Iterator[dict[str, Host]]:
    """One host a model, loaded when it is asked for the first time."""
    loaded: dict[str, Host] = {}
    yield loaded
    for host in loaded.values():
        for name in list(host.sessions):
            host.close(name)
        for model in (*host.models.values(), cast(Model, host.target)):
            model.close()


@pytest.fixture
def chat(hosts: dict[str, Host], request: pytest.FixtureRequest) -> Iterator[Chat]:
    model: str = request.param
    if model not in hosts:
        hosts[model] = Host(cast(Pipe, NoPipe()))
        hosts[model].answer(m.Load(1, str(resolve_target(model).path), LoadSettings()))
    chat = Chat(hosts[model], model)
    yield chat
    for name in list(chat.host.sessions):
        chat.host.close(name)


def equal(run: Generation, other: Generation) -> bool:
    """The same text, made of the same steps: the drafter is where a fresh one would be."""
    return (run.tokens, run.drafts) == (other.tokens, other.drafts)


def walk(kinds: Sequence[Sequence[str]], turns: int) -> list[str]:
    """A walk over drafters that begins with each once, trees last, and goes on until every kind has
    followed on every kind."""
    rng = random.Random(7)
    path = [name for members in kinds for name in members]
    rng.shuffle(path)
    path.sort(key=lambda name: "tree" in name)
    missing = {(a, b) for a in range(len(kinds)) for b in range(len(kinds))}
    kind = {name: i for i, members in enumerate(kinds) for name in members}
    for a, b in pairwise(path):
        missing.discard((kind[a], kind[b]))
    while missing and len(path) < turns:
        here = kind[path[-1]]
        step = next((s for s in sorted(missing) if s[0] == here), (here, min(missing)[0]))
        missing.discard(step)
        path.append(rng.choice([n for n in kinds[step[1]] if n != path[-1]]))
    assert not missing
    return path


@pytest.mark.parametrize("chat", ["demo"], indirect=True)
def test_whatever_drafter_follows_which_the_next_answer_is_a_fresh_sessions(chat: Chat) -> None:
    assert set(chat.drafters) == {*COPIED, *READERS}
    path = walk([COPIED, READERS], 14)
    held = 0
    for turn, drafter in enumerate(path):
        chat.switch(drafter)
        sampler = WARM if turn % 3 == 2 else GREEDY
        run = chat.turn(QUESTIONS[turn % len(QUESTIONS)], sampler)
        fresh, so_far = chat.fresh(drafter, sampler), path[: turn + 1]
        # A tree leaves the memory's cells in another order, in which sums round otherwise.
        reordered = any("tree" in name for name in so_far)
        assert equal(run, fresh) or (reordered and chat.near_tie(run, fresh)), so_far
        assert run.cached_tokens == (held if drafter in COPIED else 0)
        chat.ids += run.tokens
        held = len(chat.ids) - 1  # the last one was emitted, never evaluated


@pytest.mark.parametrize(
    ("chat", "between"),
    [*(("demo", name) for name in ("eagle3", "dflash tree", "ngram+eagle3")), ("demo-mtp", "mtp")],
    indirect=["chat"],
)
def test_a_drafter_that_was_chosen_and_left_before_a_turn_costs_no_prefill(
    chat: Chat, between: str
) -> None:
    chat.switch("none")
    chat.ids += chat.turn(QUESTIONS[0]).tokens
    held = len(chat.ids) - 1
    for name in (between, between, "ngram"):
        chat.switch(name)
    run = chat.turn(QUESTIONS[1])
    assert run.cached_tokens == held
    assert equal(run, chat.fresh("ngram"))
    chat.ids += run.tokens
    chat.switch(between)
    run = chat.turn(QUESTIONS[2])
    assert run.cached_tokens == 0  # what it reads of the target has to be made again
    assert equal(run, chat.fresh(between)) or (
        "tree" in between and chat.near_tie(run, chat.fresh(between))
    )


@pytest.mark.parametrize("chat", ["demo-mtp"], indirect=True)
def test_a_hybrid_models_state_goes_with_the_conversation(chat: Chat) -> None:
    path = ["none", "mtp", "ngram", "ngram+mtp", "mtp", "none", "ngram", "mtp"]
    assert set(path) == set(chat.drafters)
    held = 0
    for turn, drafter in enumerate(path):
        chat.switch(drafter)
        sampler = WARM if turn % 3 == 2 else GREEDY
        run = chat.turn(QUESTIONS[turn % len(QUESTIONS)], sampler)
        assert equal(run, chat.fresh(drafter, sampler)), f"turn {turn}: {path[: turn + 1]}"
        assert run.cached_tokens == (0 if "mtp" in drafter else held)
        chat.ids += run.tokens
        held = len(chat.ids) - 1


READING = ["eagle3", "dflash", "dspark", "eagle3 tree", "dflash tree"]


@pytest.mark.parametrize(
    ("chat", "drafter"),
    [*(("demo", name) for name in READING), ("demo-mtp", "mtp")],
    indirect=["chat"],
)
def test_what_a_drafter_keeps_of_the_target_it_has_copied(
    chat: Chat, drafter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hidden states it reads are llama.cpp's own memory, which the target's next decode writes
    over. Here they are spoilt as soon as the drafter has had its time with them."""
    chat.ask(QUESTIONS[2])
    expected = chat.fresh(drafter)
    assert expected.counts.accepted > 0
    session = chat.host.sessions[chat.open(drafter)]
    target, own = session.target.context, session.drafter
    spoilt = 0

    def spoil(rows: int) -> None:
        nonlocal spoilt
        views: list[Rows] = [target.layer_rows(i, rows) for i in own.needs.layers]
        views += [target.hidden_rows(rows)] if own.needs.hidden else []
        for view in views:
            assert np.isfinite(view).all()
            view[:] = np.nan
            spoilt += 1

    process, accept = own.process, own.accept

    def process_and_spoil(tokens: Sequence[int], position: int) -> None:
        process(tokens, position)
        spoil(len(tokens))

    def accept_and_spoil(tokens: list[int], rows: Sequence[int]) -> None:
        accept(tokens, rows)
        spoil(max(rows) + 1)

    monkeypatch.setattr(own, "process", process_and_spoil)
    monkeypatch.setattr(own, "accept", accept_and_spoil)
    run = chat.generate(list(chat.host.sessions)[-1], GREEDY, reuse=False)
    assert equal(run, expected)
    assert spoilt > len(run.steps)
