"""What a chat answers with, and what its plain decoding speed hangs on; known without an engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from localspec.catalog import Target
from localspec.gguf_header import read_header
from localspec.machine import default_threads
from localspec.records import ChatOptions, EngineOptions, SamplerSettings

# A model that recommends nothing; the filters keep the defaults of SamplerSettings.
_CHAT_SAMPLING = {"temperature": 0.7}
_WHOLE = {"top_k", "repeat_last_n", "seed"}


def choose_sampler(
    options: ChatOptions, target: Target, own: Mapping[str, float]
) -> SamplerSettings:
    """What the person gave, else the catalogue recommends, else the GGUF (``own``), else ours."""
    known = {f.name for f in fields(SamplerSettings)}
    chosen: dict[str, float] = {
        **_CHAT_SAMPLING,
        **own,
        **target.sampling,
        **options.engine.sampler,
    }
    values: dict[str, Any] = {
        name: round(value) if name in _WHOLE else float(value)
        for name, value in chosen.items()
        if name in known
    }
    return SamplerSettings(**values)


def threads_of(options: EngineOptions) -> int:
    return options.threads or default_threads()


@lru_cache(maxsize=8)
def _of_file(path: Path) -> tuple[int, dict[str, float]]:
    """Bytes with all shards, and the sampler that it recommends."""
    header = read_header(path)
    return sum(file.stat().st_size for file in header.shards), header.sampling


def sampler_of(options: ChatOptions, target: Target) -> SamplerSettings:
    """What it will answer with. Raises as ``speed_setup``."""
    return choose_sampler(options, target, _of_file(target.path)[1])


def speed_setup(options: ChatOptions, target: Target) -> str:
    """Names the model and all that the speed of plain decoding hangs on, for the baselines that are
    kept. Raises ``ModelFileError`` where the target's file does not read."""
    size, _ = _of_file(target.path)
    engine = options.engine
    return json.dumps(
        {
            "model": str(target.path),
            "size": size,
            "load": asdict(engine.load),
            "threads": threads_of(engine),
            "kv_type": engine.kv_type,
            "flash_attn": engine.flash_attn,
            "sampled": sampler_of(options, target).temperature > 0,
            "llama_cpp_python": version("llama-cpp-python"),
        },
        sort_keys=True,
    )
