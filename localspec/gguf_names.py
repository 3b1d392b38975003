"""What the name of a GGUF file tells: its quantisation, its place in a split model, its part.

Names only say what their publishers meant; what a file is, its header says (``gguf_header``).
Publishers differ in case (``Q4_K_M``, ``q4_k_m``), so every comparison ignores it; paths within a
repository keep theirs, for the Hub does not ignore it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

_SHARD = re.compile(r"-(?P<number>\d{5})-of-(?P<count>\d{5})$")
_QUANT = re.compile(
    r"(?<![A-Za-z0-9])"
    r"(?P<quant>(?:UD[-_]|i1[-_])?"
    r"(?:I?Q[1-8](?:_[A-Z0-9]{1,4})*|TQ[12]_0|MXFP4(?:_MOE)?|NVFP4|BF16|F16|F32|FP16|FP32))"
    r"(?![A-Za-z0-9])",
    re.IGNORECASE,
)
# llama.cpp common/download.cpp (gguf_filename_is_model), and what publishers write elsewhere in
# the name. A whole model with MTP layers is called ...-MTP-..., never mtp-... .
_PARTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("mmproj", re.compile(r"mmproj", re.IGNORECASE)),
    ("imatrix", re.compile(r"imatrix", re.IGNORECASE)),
    ("dspark", re.compile(r"(?<![a-z])dspark(?![a-z])", re.IGNORECASE)),
    ("dflash", re.compile(r"(?<![a-z])dflash2?(?![a-z])", re.IGNORECASE)),
    ("eagle3", re.compile(r"(?<![a-z])eagle-?3(?![0-9])", re.IGNORECASE)),
    ("mtp", re.compile(r"^mtp[-_]|[-_]assistant(?![a-z])", re.IGNORECASE)),
)
DRAFTER_PARTS = ("mtp", "dspark", "dflash", "eagle3")
"""Parts that draft for a target, the one to try first in front; the method of each is called the
same."""

COMMENDED = ("Q4_K_M", "UD-Q4_K_M", "UD-Q4_K_XL", "Q4_K_S", "MXFP4", "Q4_0", "IQ4_XS", "Q8_0")
"""Quantisations from the most to the least commended where nothing else decides: half the size of
Q8_0 at little loss. MXFP4 and Q4_0 stand here for models trained in them."""


def is_gguf(path: str) -> bool:
    return path.lower().endswith(".gguf")


def stem_of(path: str) -> str:
    """The file name without folder, ``.gguf`` and shard number."""
    name = PurePosixPath(path).name
    return _SHARD.sub("", name[:-5] if is_gguf(name) else name)


def quant_of(path: str) -> str | None:
    """The quantisation that the name, or else its folder, states, in upper case."""
    for text in (stem_of(path), PurePosixPath(path).parent.name):
        found = [m["quant"] for m in _QUANT.finditer(text)]
        if found:
            return found[-1].upper().replace("UD_", "UD-").replace("I1-", "i1-")
    return None


def without_quant(name: str) -> str:
    """The name of the model behind ``SmolLM2-135M-Instruct Q4_1``."""
    return _QUANT.sub("", name).strip(" -_.,")


def shard_of(path: str) -> tuple[int, int] | None:
    """Number (from 1) and count, of one file of a split model."""
    name = PurePosixPath(path).name
    match = _SHARD.search(name[:-5]) if is_gguf(name) else None
    return (int(match["number"]), int(match["count"])) if match else None


def part_of(path: str) -> str | None:
    """``mmproj``, ``imatrix``, ``mtp``, ``eagle3``, ``dflash``, ``dspark``; None for a model."""
    stem = stem_of(path)
    found = next((part for part, pattern in _PARTS if pattern.search(stem)), None)
    if found is None and "mtp" in (f.lower() for f in PurePosixPath(path).parts[:-1]):
        return "mtp"  # unsloth's folder MTP/
    return found


@dataclass(frozen=True, slots=True)
class Variant:
    """One choice within a repository or folder: a file, or all files of a split model.

    ``files`` are paths as published, the first shard first; ``size`` is in bytes, all together.
    ``complete`` is False where shards of a split model are missing.
    """

    quant: str | None
    part: str | None
    files: tuple[str, ...]
    size: int
    complete: bool = True

    @property
    def file(self) -> str:
        """The file that stands for all of them."""
        return self.files[0]

    @property
    def label(self) -> str:
        """What a person chooses it by."""
        return self.quant or stem_of(self.file)


def variants(sizes: Mapping[str, int]) -> tuple[Variant, ...]:
    """What there is to choose among files with their sizes; shards of one model are one choice.

    Models come first, then drafters, then the rest, each from small to large.
    """
    groups: dict[tuple[str, int], list[str]] = {}
    for path in sorted(sizes):
        if is_gguf(path):
            shard = shard_of(path)
            key = str(PurePosixPath(path).with_name(stem_of(path)))
            groups.setdefault((key, shard[1] if shard else 0), []).append(path)
    found = [
        Variant(
            quant=quant_of(paths[0]),
            part=part_of(paths[0]),
            files=tuple(paths),
            size=sum(sizes[p] for p in paths),
            complete=count == 0 or len(paths) == count,
        )
        for (_, count), paths in groups.items()
    ]
    rank = {None: 0} | dict.fromkeys(DRAFTER_PARTS, 1)
    return tuple(sorted(found, key=lambda v: (rank.get(v.part, 2), v.size, v.file)))


def with_quant(choices: Iterable[Variant], quant: str) -> tuple[Variant, ...]:
    """Those of a quantisation: called so, else ending so (``Q4_K_M`` finds ``UD-Q4_K_M``)."""
    choices, asked = list(choices), quant.lower().replace("_", "-")
    names = [(v, (v.quant or "").lower().replace("_", "-")) for v in choices]
    exact = tuple(v for v, name in names if name == asked)
    return exact or tuple(v for v, name in names if name.endswith("-" + asked))


def label_among(choices: Iterable[Variant], variant: Variant) -> str:
    """What tells it from the other models: its label, or its file where several share that."""
    same = [v for v in choices if v.part is None and v.label.lower() == variant.label.lower()]
    return variant.label if variant.part is None and len(same) == 1 else variant.file


def preferred(choices: Iterable[Variant]) -> Variant | None:
    """The one to take when nothing else decides; ``choices`` may hold parts, which are never it."""
    models = [v for v in choices if v.part is None and v.complete]
    for quant in COMMENDED:
        for variant in models:
            if (variant.quant or "").upper() == quant.upper():
                return variant
    return models[0] if models else None
