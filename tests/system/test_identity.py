"""What the product promises first: the output is the target's own, for every family of drafters.

All 17 workload prompts greedily, 128 tokens, and every second one at temperature 0.8, 64 tokens, on
the real demo model. Each divergence must be a near tie by the replay rule; where the start-up probe
finds the rows of every batch size bit-equal at that length, there must be none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from localspec.chat.template import ChatTemplate
from localspec.engine.client import Engine
from localspec.machine import default_threads
from localspec.records import ContextSettings, DrafterSettings, Generation, SamplerSettings

ROOT = Path(__file__).parents[2]
TOKENS, N_MAX = {0.0: 128, 0.8: 64}, 5
"""At each temperature, the baseline's."""
PLAIN = "plain"

Prompts = dict[str, tuple[int, ...]]


@pytest.fixture(scope="module")
def engine(demo_model: Path) -> Iterator[Engine]:
    with Engine() as engine:
        engine.load(demo_model)
        yield engine


@pytest.fixture(scope="module")
def context() -> ContextSettings:
    return ContextSettings(n_ctx=512, threads=default_threads())


@pytest.fixture(scope="module")
def prompts(engine: Engine) -> Prompts:
    template = ChatTemplate.from_model(engine.model)
    found: Prompts = {}
    for name in ("chat8", "code9"):
        for line in (
            (ROOT / "assets" / "workloads" / f"{name}.jsonl").read_text("utf-8").splitlines()
        ):
            row = json.loads(line)
            messages = row.get("messages") or [{"role": "user", "content": row["prompt"]}]
            found[row["id"]] = engine.tokenize(*template.render(messages).segments)
    assert len(found) == 17
    return found


Baseline = Callable[[SamplerSettings, str], Generation]


@pytest.fixture(scope="module")
def baseline(engine: Engine, context: ContextSettings, prompts: Prompts) -> Baseline:
    """The plain run of a prompt, made once."""
    engine.open(PLAIN, DrafterSettings(), context)

    @cache
    def run(sampler: SamplerSettings, name: str) -> Generation:
        return engine.generate(
            PLAIN, prompts[name], sampler=sampler, max_tokens=TOKENS[sampler.temperature]
        )

    return run


def settings(name: str) -> DrafterSettings:
    """``NAME`` or ``NAME tree``, with lengths at which much is rejected as well."""
    method, _, tree = name.partition(" ")
    stem = FILES.get(method.removeprefix("ngram+"))
    file = ROOT / "assets" / "demo" / f"{stem}.gguf" if stem else None
    return DrafterSettings(
        method,
        name,
        str(file) if file else None,
        n_max=N_MAX,
        p_min=0.1 if file else 0.0,
        tree=8 if tree else 0,
    )


FILES = {
    "draft-model": "smollm2-135m-draft-q4_0",
    "eagle3": "smollm2-135m-eagle3-q4_0",
    "dflash": "smollm2-135m-dflash-q4_0",
    "dspark": "smollm2-135m-dspark-q4_0",
}


@pytest.mark.parametrize(
    ("name", "temperature", "tokens", "every"),
    [
        ("ngram", 0.0, 128, 1),
        ("draft-model", 0.0, 128, 1),
        ("ngram", 0.8, 64, 2),
        ("draft-model", 0.8, 64, 2),
        ("eagle3", 0.0, 48, 3),
        ("dflash", 0.8, 48, 4),
        ("dspark", 0.0, 48, 4),
        ("ngram+draft-model", 0.8, 32, 8),
        ("ngram+eagle3", 0.0, 32, 8),
        ("draft-model tree", 0.8, 32, 8),
        ("eagle3 tree", 0.0, 32, 8),
        ("dflash tree", 0.0, 32, 8),
    ],
)
def test_the_text_is_the_baselines_very_text(
    name: str,
    temperature: float,
    tokens: int,
    every: int,
    engine: Engine,
    context: ContextSettings,
    prompts: Prompts,
    baseline: Baseline,
) -> None:
    """``every``: of the prompts every one, or fewer where drafts are slow; both temperatures for
    every family are in tests/decoding and tests/drafters, on tiny models."""
    sampler = SamplerSettings(temperature=temperature, seed=11)
    chosen = settings(name)
    engine.open(name, chosen, context)
    asked = dict(list(prompts.items())[::every])
    longest = max(asked, key=lambda key: len(prompts[key]))
    text = (*prompts[longest], *baseline(sampler, longest).tokens)
    bit_equal_up_to = 0
    # of a tree a kept branch lies in other cells, so its sums have another order; and pairs decode
    # the batches of the drafters that they are made of
    if not chosen.tree and "+" not in chosen.method:
        probed = engine.probe(name, text, tuple(range(2, N_MAX + 2)))
        bit_equal_up_to = len(text) if all(probed.equal.values()) else 0
    accepted = 0
    for key, ids in asked.items():
        fast = engine.generate(name, ids, sampler=sampler, max_tokens=tokens, record=True)
        accepted += fast.counts.accepted
        wanted = baseline(sampler, key).tokens[:tokens]
        if fast.tokens == wanted:
            continue
        index = next(i for i in range(len(wanted)) if fast.tokens[i] != wanted[i])
        found = engine.replay(name, PLAIN, ids, fast, index, sampler)
        assert found.verdict == "near tie", (key, index, found)
        assert len(ids) + index >= bit_equal_up_to, (key, index, "rows are bit-equal here")
    assert accepted > 8  # the runs did speculate
    engine.close_session(name)
