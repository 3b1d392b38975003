"""Adaptive drafts with every family on the trained demo files: the baseline's output, by drafts of
many sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, cast

import numpy as np
import pytest
from engine.conftest import context
from engine.test_host import NoPipe
from engine.test_switching import NEAR, drafters

import localspec.decoding.adaptive as adaptive_module
import localspec.decoding.measure as measure_module
from localspec.catalog import resolve_target
from localspec.decoding.adaptive import Adaptive
from localspec.decoding.loop import Lengths, Session
from localspec.engine import messages as m
from localspec.engine.host import Host, Pipe
from localspec.errors import LocalspecError
from localspec.llama import DecodeAborted, Model
from localspec.records import DrafterSettings, Generation, LoadSettings, SamplerSettings, Step

TOKENS, BOUND = 24, 8
TEXT = 2 * "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n\n\n" + "def"
"""Which the models go on with, so that there is something to repeat."""
GREEDY, WARM = SamplerSettings(), SamplerSettings(temperature=0.8, seed=5)
Hosts = Callable[[str], Host]


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    """One host a model, with a plain session open."""
    loaded: dict[str, Host] = {}

    def host(model: str) -> Host:
        if model not in loaded:
            loaded[model] = made = Host(cast(Pipe, NoPipe()))
            made.answer(m.Load(1, str(resolve_target(model).path), LoadSettings()))
            made.answer(m.Open(1, "plain", DrafterSettings(), context(n_ctx=256)))
        return loaded[model]

    yield host
    for made in loaded.values():
        for name in list(made.sessions):
            made.close(name)
        for model in (*made.models.values(), cast(Model, made.target)):
            model.close()


def settings(model: str, name: str) -> DrafterSettings:
    """``[ngram+]FAMILY[ tree]``, chosen step by step."""
    family, _, tree = name.partition(" ")
    pair = family.startswith("ngram+")
    own = drafters(model)[family.removeprefix("ngram+")]
    method = f"ngram+{own.method}" if pair else own.method
    return replace(own, method=method, n_max=BOUND, tree=BOUND if tree else 0, auto=True)


def generate(host: Host, session: str, sampler: SamplerSettings) -> Generation:
    prompt = cast(m.Tokens, host.answer(m.Tokenize(1, (TEXT,)))).tokens
    request = m.Generate(1, session, prompt, sampler, TOKENS, ignore_eos=True, record=True)
    return cast(m.Finished, host.answer(request)).generation


@cache
def baseline(host: Host, sampler: SamplerSettings) -> Generation:
    return generate(host, "plain", sampler)


class Cheap(Adaptive):
    """The same sizes at costs by which drafts of some tokens pay, whatever this machine is like and
    however long its steps take."""

    @classmethod
    def like(cls, measured: Adaptive) -> Cheap:
        costs = measured.costs
        made_up = replace(
            costs,
            verify=tuple(map(cls._verifying, range(len(costs.verify)))),
            rest=1e-4,
            draft=tuple(tuple(1e-4 * n for n in range(len(d))) for d in costs.draft),
            wake=(0.0,) * len(costs.wake),
        )
        return cls(made_up, measured.limits)

    @staticmethod
    def _verifying(nodes: int) -> float:
        return 0.01 + 1e-3 * nodes

    def observe(self, step: Step, accepted: Sequence[int]) -> None:
        verify = self._verifying(step.nodes)
        took = verify + step.t_accept + self.costs.rest + 1e-4 * step.nodes
        super().observe(step._replace(t_verify=verify, t_step=took), accepted)


def near_tie(host: Host, run: Generation, plain: Generation) -> bool:
    """They part where the two likeliest tokens are about as likely (greedy)."""
    at = next(i for i, (a, b) in enumerate(zip(run.tokens, plain.tokens, strict=False)) if a != b)
    prompt = cast(m.Tokens, host.answer(m.Tokenize(1, (TEXT,)))).tokens
    session = host.sessions["plain"]
    session.clear()
    row = session.target.prefill([*prompt, *plain.tokens[:at]], 0, lambda chunk, position: None)[0]
    first, second = np.sort(row)[-2:]
    return bool(second - first < NEAR)


CHAINS = ("ngram", "draft-model", "eagle3", "dflash", "dspark")
PAIRS = ("ngram+draft-model", "ngram+eagle3", "ngram+dspark")
TREES = ("draft-model tree", "eagle3 tree", "dflash tree", "ngram+draft-model tree")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        *(("demo", name) for name in (*CHAINS, *PAIRS, *TREES)),
        ("demo-mtp", "mtp"),
        ("demo-mtp", "ngram+mtp"),
    ],
)
def test_every_family_drafts_what_pays_and_says_what_the_baseline_says(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, model: str, name: str
) -> None:
    monkeypatch.setattr(measure_module, "SECONDS", 0.0)
    monkeypatch.setattr(measure_module, "ROUNDS", 1)
    host = hosts(model)
    opened = cast(
        m.Opened, host.answer(m.Open(1, "auto", settings(model, name), context(n_ctx=256)))
    )
    assert {"auto_verify_ms", "auto_draft_ms", "auto_wake_ms"} <= set(opened.settings)
    session = host.sessions["auto"]
    measured = cast(Adaptive, session.lengths)
    assert min(measured.costs.verify) > 0
    # for what follows: chosen as on a machine where drafting is cheap
    session.lengths = Cheap.like(measured)
    for sampler in (GREEDY, WARM) if name == "draft-model" else (GREEDY,):
        plain = baseline(host, sampler)
        fast = generate(host, "auto", sampler)
        if fast.tokens != plain.tokens:
            assert sampler is GREEDY and near_tie(host, fast, plain)
        sizes = {step.nodes for step in fast.steps}
        assert len(sizes) > 1 and 2 <= max(sizes) <= BOUND
        assert fast.counts.accepted > 0
        if "tree" in name and "+" not in name:
            assert any(step.nodes > step.drafted for step in fast.steps)
    host.close("auto")


class GivesUp(Lengths):
    """Drafts of three tokens for so many steps, and then none for the rest of the run."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def begin(self) -> None:
        self.done, self.gives_up = 0, False

    def limit(self, most: int) -> int:
        return min(most, 3)

    def observe(self, step: Step, accepted: Sequence[int]) -> None:
        self.done += 1
        self.gives_up = self.done >= self._steps


@pytest.fixture
def ready(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Host, Session]]:
    """demo-mtp with a plain target beside, whatever standing by costs on this machine."""
    monkeypatch.setattr(measure_module, "SECONDS", 0.0)
    monkeypatch.setattr(adaptive_module, "STANDBY_SHARE", -1.0)
    host = hosts("demo-mtp")
    host.answer(m.Open(1, "auto", settings("demo-mtp", "mtp"), context(n_ctx=256)))
    session = host.sessions["auto"]
    assert session.plain is not None
    session.lengths = GivesUp(4)
    yield host, session
    host.close("auto")


@pytest.mark.parametrize("sampler", [GREEDY, WARM])
def test_a_run_that_gives_drafting_up_goes_on_as_the_baseline(
    ready: tuple[Host, Session], sampler: SamplerSettings
) -> None:
    host, session = ready
    run = generate(host, "auto", sampler)
    assert run.tokens == baseline(host, sampler).tokens
    assert min(step.nodes for step in run.steps[:4]) > 0
    assert len(run.steps) > 5 and not any(step.nodes for step in run.steps[4:])
    # the next turn goes on from where this one moved: no state of then is lost or believed too far
    moved = sum(step.tokens for step in run.steps[:4])
    assert len(session.held) == run.prompt_tokens + moved
    prompt = cast(m.Tokens, host.answer(m.Tokenize(1, (TEXT,)))).tokens
    longer = (*prompt, *run.tokens, *prompt[:9])
    request = m.Generate(1, "auto", longer, sampler, 12, ignore_eos=True, reuse=True)
    again = cast(m.Finished, host.answer(request)).generation
    assert again.cached_tokens == run.prompt_tokens + moved
    plain = m.Generate(1, "plain", longer, sampler, 12, ignore_eos=True)
    assert again.tokens == cast(m.Finished, host.answer(plain)).generation.tokens


def test_a_run_cancelled_after_it_gave_up_leaves_the_next_one_whole(
    ready: tuple[Host, Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    host, session = ready
    assert session.plain is not None
    verify, calls = session.plain.verify, []

    def cut(*what: Any) -> Any:
        calls.append(what)
        if len(calls) == 3:
            raise DecodeAborted
        return verify(*what)

    monkeypatch.setattr(session.plain, "verify", cut)
    stopped = generate(host, "auto", GREEDY)
    assert stopped.stop == "cancelled"
    whole = baseline(host, GREEDY).tokens
    assert stopped.tokens == whole[: len(stopped.tokens)]
    monkeypatch.undo()
    assert generate(host, "auto", GREEDY).tokens == whole


def test_the_plain_target_beside_is_counted_and_made_only_where_it_pays(
    ready: tuple[Host, Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    host, session = ready
    assert session.plain is not None

    def cache_bytes() -> int:
        uses = cast(m.Measured, host.answer(m.MeasureSession(1, "auto"))).uses
        return sum(use.context for use in uses if use.role == "target")

    both = cache_bytes()
    monkeypatch.setattr(adaptive_module, "STANDBY_SHARE", 1e9)
    host.answer(m.Open(1, "auto", settings("demo-mtp", "mtp"), context(n_ctx=256)))
    assert host.sessions["auto"].plain is None
    assert 0 < cache_bytes() < both


def test_trees_are_refused_where_they_cannot_be_also_with_auto(hosts: Hosts) -> None:
    host = hosts("demo-mtp")
    with pytest.raises(LocalspecError, match="proposes no trees"):
        host.answer(m.Open(1, "auto", settings("demo-mtp", "mtp tree"), context(n_ctx=256)))
