"""What the product promises first: the output is the target's own, on every shipped prompt.

All 17 workload prompts, 128 tokens, greedy and at temperature 0.8, on the real demo model. Each
divergence must be a near tie by the replay rule; where the start-up probe finds the rows of every
batch size bit-equal at that length, there must be none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from localspec.chat.template import ChatTemplate
from localspec.engine.client import Engine
from localspec.records import ContextSettings, DrafterSettings, Generation, SamplerSettings

ROOT = Path(__file__).parents[2]
TOKENS, N_MAX = 128, 5
PLAIN = "plain"

Prompts = dict[str, tuple[int, ...]]


@pytest.fixture(scope="module")
def engine(demo_model: Path) -> Iterator[Engine]:
    with Engine() as engine:
        engine.load(demo_model)
        yield engine


@pytest.fixture(scope="module")
def context() -> ContextSettings:
    return ContextSettings(n_ctx=512, threads=psutil.cpu_count(logical=False) or 1)


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


@pytest.fixture(scope="module", params=[0.0, 0.8], ids=["greedy", "T0.8"])
def plain(
    request: pytest.FixtureRequest, engine: Engine, context: ContextSettings, prompts: Prompts
) -> tuple[SamplerSettings, dict[str, Generation]]:
    sampler = SamplerSettings(temperature=request.param, seed=11)
    engine.open(PLAIN, DrafterSettings(), context)
    return sampler, {
        name: engine.generate(PLAIN, ids, sampler=sampler, max_tokens=TOKENS)
        for name, ids in prompts.items()
    }


def settings(name: str, demo_draft: Path) -> DrafterSettings:
    if name == "ngram":
        return DrafterSettings("ngram", name, n_max=N_MAX)
    return DrafterSettings("draft-model", name, str(demo_draft), n_max=N_MAX, p_min=0.1)


@pytest.mark.parametrize("name", ["ngram", "draft-model"])
def test_the_text_is_the_baselines_very_text(
    name: str,
    engine: Engine,
    context: ContextSettings,
    prompts: Prompts,
    plain: tuple[SamplerSettings, dict[str, Generation]],
    demo_draft: Path,
) -> None:
    sampler, expected = plain
    engine.open(name, settings(name, demo_draft), context)
    longest = max(prompts.values(), key=len)
    text = (*longest, *expected[next(k for k, v in prompts.items() if v is longest)].tokens)
    probed = engine.probe(name, text, tuple(range(2, N_MAX + 2)))
    bit_equal_up_to = len(text) if all(probed.equal.values()) else 0
    drafted = 0
    for key, ids in prompts.items():
        fast = engine.generate(name, ids, sampler=sampler, max_tokens=TOKENS, record=True)
        drafted += fast.counts.accepted
        if fast.tokens == expected[key].tokens:
            continue
        index = next(
            i
            for i, (a, b) in enumerate(zip(fast.tokens, expected[key].tokens, strict=False))
            if a != b
        )
        found = engine.replay(name, PLAIN, ids, fast, index, sampler)
        assert found.verdict == "near tie", (key, index, found)
        assert len(ids) + index >= bit_equal_up_to, (key, index, "rows are bit-equal here")
    assert drafted > 50  # the runs did speculate
