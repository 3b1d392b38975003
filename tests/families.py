"""Every drafter family with a target of its own, on tiny models (the hybrid is a trained one)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType
from tiny_drafters import MARKOV_RANK, tiny_dflash, tiny_eagle3
from tiny_models import BOS, EOS, tiny_gemma4, tiny_llama, tiny_mtp, tiny_recurrent

from localspec.records import DrafterSettings
from localspec.resources import asset

SPEAKS_ON = {BOS: -8.0, EOS: -8.0}
N_MAX, NODES = 3, 6


@dataclass(frozen=True)
class Case:
    target: Path
    drafter: DrafterSettings


def every_family(folder: Path) -> dict[str, Case]:
    """``NAME``: alone; ``ngram+NAME``: behind an n-gram drafter."""
    made = dict(_families(folder))
    for name, case in list(made.items()):
        if name.partition(" ")[0] not in ("none", "ngram"):
            method = f"ngram+{case.drafter.method}"
            own = replace(case.drafter, method=method, name=f"ngram+{name}")
            made[own.name] = Case(case.target, own)
    return made


def _families(folder: Path) -> Iterator[tuple[str, Case]]:
    # Trees in F32: their kept paths lie in other cells, where sums of quantised activations would
    # round otherwise, enough to flip near ties.
    exact = GGMLQuantizationType.F32
    target = tiny_llama(folder / "target.gguf", n_layer=4, favour=SPEAKS_ON)
    plain = tiny_llama(folder / "target-f32.gguf", n_layer=4, favour=SPEAKS_ON, quant=exact)
    draft = tiny_llama(folder / "draft.gguf", n_layer=4, favour=SPEAKS_ON, noise=0.15)
    draft_f32 = tiny_llama(
        folder / "draft-f32.gguf", n_layer=4, favour=SPEAKS_ON, noise=0.15, quant=exact
    )
    recurrent = tiny_recurrent(folder / "recurrent.gguf", favour=SPEAKS_ON)
    markov = np.random.default_rng(5).standard_normal((12, MARKOV_RANK)).astype(np.float32)
    eagle3 = tiny_eagle3(folder / "eagle3.gguf")
    eagle3_f32 = tiny_eagle3(folder / "eagle3-f32.gguf", quant=exact)
    dflash = tiny_dflash(folder / "dflash.gguf")
    dflash_f32 = tiny_dflash(folder / "dflash-f32.gguf", quant=exact)
    dflash2 = tiny_dflash(folder / "dflash2.gguf", selector=4)
    dspark = tiny_dflash(folder / "dspark.gguf", markov=markov)

    def case(
        name: str, on: Path, file: Path | None = None, *, tree: int = 0, sampled: bool = False
    ) -> tuple[str, Case]:
        method = name.partition(" ")[0].removesuffix("2")
        path = str(file) if file else None
        n_max = N_MAX if method != "none" else 0
        return name, Case(
            on,
            DrafterSettings(
                method, name, path, n_max=n_max, tree=tree, sampled=sampled, ngram_min=1
            ),
        )

    yield case("none", target)
    yield case("none recurrent", recurrent)
    yield case("ngram", target)
    yield case("ngram recurrent", recurrent)
    yield case("draft-model", target, draft)
    yield case("draft-model recurrent", recurrent, draft)
    yield case("draft-model sampled", target, draft, sampled=True)
    yield case("draft-model tree", plain, draft_f32, tree=NODES)
    yield case("eagle3", target, eagle3)
    yield case("eagle3 tree", plain, eagle3_f32, tree=NODES)
    yield case("dflash", target, dflash)
    yield case("dflash2", target, dflash2)
    yield case("dflash tree", plain, dflash_f32, tree=NODES)
    yield case("dspark", target, dspark)
    yield case("mtp", tiny_mtp(folder / "mtp1.gguf", favour=SPEAKS_ON))
    yield case("mtp chained", tiny_mtp(folder / "mtp3.gguf", heads=3, favour=SPEAKS_ON))
    yield case(
        "mtp own file",
        tiny_mtp(folder / "trunk.gguf", heads=3, own_heads=False, favour=SPEAKS_ON),
        tiny_mtp(folder / "heads.gguf", heads=3, trunk=False, favour=SPEAKS_ON),
    )
    yield case(
        "mtp shared memory",
        tiny_gemma4(folder / "gemma4.gguf", favour=SPEAKS_ON),
        tiny_gemma4(folder / "assistant.gguf", n_embd=32, assistant_of=64, seed=1),
    )
    yield case("mtp hybrid", asset("demo/tinyqwen35-mtp-q4_0.gguf"))


NAMES = (
    "none",
    "none recurrent",
    "ngram",
    "ngram recurrent",
    "draft-model",
    "draft-model recurrent",
    "draft-model sampled",
    "draft-model tree",
    "eagle3",
    "eagle3 tree",
    "dflash",
    "dflash2",
    "dflash tree",
    "dspark",
    "mtp",
    "mtp chained",
    "mtp own file",
    "mtp shared memory",
    "mtp hybrid",
)
"""Of ``every_family``, those that are no mixtures."""
MIXED = tuple(f"ngram+{name}" for name in NAMES[4:])
