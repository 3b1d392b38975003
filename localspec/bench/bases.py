"""What is to be put under the drafters: the grid of a target's quantisations and context settings.

The first value of each is the reference's. A quantisation is another file of the same model, looked
for where the model itself is from: the catalogue, a repository's files here, the model's folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TypeVar

from localspec.bench.plan import ONLY_BASE, Base
from localspec.catalog import Catalogue, Target, find_hub_file, locate, resolve_target
from localspec.errors import NotHere, UsageError
from localspec.gguf_header import check_model_file
from localspec.gguf_names import is_gguf, quant_of, stem_of, variants, with_quant, without_quant
from localspec.pairing import check_same_model
from localspec.paths import kind_here
from localspec.records import BenchOptions, FlashAttention
from localspec.reference import HubReference, parse_reference, reference_of

T = TypeVar("T")


def find_bases(options: BenchOptions) -> tuple[tuple[Base, Target], ...]:
    """Every base with its target; the first is the reference. Raises ``NotHere`` for quantisations
    that are to be downloaded first, ``UsageError`` for what is none of this model."""
    targets = find_targets(options.model, options.quants)
    quants = _names(targets) if len(targets) > 1 else [""]
    kv_types: Sequence[str | None] = _several(options.kv_types)
    flash: Sequence[FlashAttention | None] = _several(options.flash_attns)
    threads: Sequence[int | None] = _several(options.thread_counts)
    found = []
    for (number, quant), kv, fa, n in product(enumerate(quants), kv_types, flash, threads):
        words = (
            quant,
            f"kv={kv}" if kv else "",
            f"fa={fa}" if fa else "",
            f"t={n}" if n else "",
        )
        name = " ".join(word for word in words if word)
        path = str(targets[number].path) if number else None
        base = Base(name, path, quant, kv, fa, n) if name else ONLY_BASE
        found.append((base, targets[number]))
    return tuple(found)


def _several(values: Sequence[T]) -> Sequence[T | None]:
    """A single value is the benchmark's own, and tells no bases apart."""
    return values if len(values) > 1 else (None,)


def _names(targets: Sequence[Target]) -> list[str]:
    """What to call each file: by its quantisation, where that tells them apart."""
    names = [quant_of(t.path.as_posix()) or stem_of(t.path.name) for t in targets]
    often = Counter(names)
    return [
        name if often[name] == 1 else stem_of(t.path.name)
        for name, t in zip(names, targets, strict=True)
    ]


# ---- quantisations ------------------------------------------------------------------------------


def find_targets(model: str, quants: Sequence[str]) -> tuple[Target, ...]:
    """The model in each quantisation; as it is named, where none is asked for."""
    if not quants:
        return (resolve_target(model),)
    found: dict[Path, Target] = {}
    missing: list[NotHere] = []
    for quant in quants:
        try:
            target = _target(model, quant)
        except NotHere as error:
            missing.append(error)
        else:
            found.setdefault(target.path.resolve(), target)
    if len(missing) > 1:
        raise NotHere(
            " ".join(error.message for error in missing),
            " ".join(error.hint or "" for error in missing),
            missing[0].words,
        )
    if missing:
        raise missing[0]
    first, *others = found.values()
    header = check_model_file(first.path)
    for other in others:
        check_same_model(header, check_model_file(other.path))
    return tuple(found.values())


def _target(model: str, quant: str) -> Target:
    if is_gguf(quant):
        return resolve_target(quant)
    reference = parse_reference(model)
    if reference is not None:
        return _of_repository(replace(reference, file=None, quant=quant))
    catalogue = Catalogue.load()
    name, _ = catalogue.split(model)
    if name in catalogue.names and kind_here(model) != "file":
        return _of_catalogue(catalogue, name, quant)
    path = locate(model)
    assert isinstance(path, Path)  # of a reference it was seen above
    return _beside(path, quant)


def _of_catalogue(catalogue: Catalogue, name: str, quant: str) -> Target:
    if any(choice.quant for choice in catalogue.choices(name)):
        return catalogue.target(name, quant)
    only = catalogue.target(name)
    if _is_called(only.path, quant):
        return only
    raise UsageError(
        f"The catalogue's {name} is one file, of {_called(only.path)}.",
        f"Give the path of its {quant} in place of that word.",
    )


def _of_repository(reference: HubReference) -> Target:
    return resolve_target(str(find_hub_file(reference)))


def _beside(path: Path, quant: str) -> Target:
    """The file of the same model in the same folder, or repository."""
    own = check_model_file(path).path
    if _is_called(own, quant):
        return resolve_target(str(own))
    reference = reference_of(own)
    if reference is not None:
        return _of_repository(replace(reference, file=None, quant=quant))
    model = without_quant(stem_of(own.name)).lower()
    sizes = {p.name: p.stat().st_size for p in own.parent.iterdir() if is_gguf(p.name)}
    there = [
        v
        for v in variants(sizes)
        if v.part is None and v.complete and without_quant(stem_of(v.file)).lower() == model
    ]
    found = with_quant(there, quant)
    if len(found) == 1:
        return resolve_target(str(own.parent / found[0].file))
    known = ", ".join(v.file if found else v.label for v in (found or there))
    raise UsageError(
        f"{own.parent} has several files of {model} in {quant}: {known}."
        if found
        else f"{own.parent} has no {quant} of {model}. It has {known}.",
        f"Give the path of its {quant} in place of that word.",
    )


def _is_called(path: Path, quant: str) -> bool:
    return (_called(path) or "").lower() == quant.lower()


def _called(path: Path) -> str | None:
    return quant_of(path.as_posix()) or check_model_file(path).file_type
