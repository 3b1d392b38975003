"""What ``models pull`` brings: the model that the words mean, and the drafters that go with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from localspec.catalog import Catalogue, DrafterSpec
from localspec.errors import HubNotFound, ModelFileError, UsageError, did_you_mean
from localspec.gguf_header import AGAIN, check_model_file
from localspec.gguf_names import DRAFTER_PARTS, Variant, part_of
from localspec.hub.files import (
    RemoteFile,
    RemoteRepo,
    choose,
    drafters_in,
    known_damaged,
    resolve,
)
from localspec.reference import HubReference, parse_reference, reference_of

_FORM = "Name a model of `localspec models list`, or hf:OWNER/REPO, with :QUANT or /FILE.gguf."


class OpenChoice(UsageError):
    """The words leave open which of a repo's models is meant."""

    def __init__(self, remote: RemoteRepo) -> None:
        super().__init__(
            f"{remote.repo} holds several models: name one.",
            f"See what it offers: localspec models inspect hf:{remote.repo}",
        )
        self.remote = remote


@dataclass(frozen=True, slots=True)
class Named:
    """What the words for a model mean: on the Hub, and in the catalogue where that knows it.

    ``here`` is a file on this machine that serves, whoever downloaded it.
    """

    reference: HubReference | None
    entry: str | None = None
    quant: str | None = None
    here: Path | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """A model or drafter: ``files`` to be in the cache, the first of a split one first; none where
    it is ``here`` already."""

    role: str
    name: str
    files: tuple[RemoteFile, ...] = ()
    here: Path | None = None

    @property
    def path(self) -> Path:
        return self.here or self.files[0].local

    @property
    def size(self) -> int:
        return sum(f.size for f in self.files)

    @property
    def missing(self) -> int:
        return sum(f.missing for f in self.files)


def named(model: str, quant: str | None, catalogue: Catalogue) -> Named:
    """Raises ``UsageError`` for words that mean nothing, ``ModelFileError`` for a catalogue model
    that is not on the Hub and not here."""
    reference = parse_reference(model)
    if reference is not None:
        if quant is not None and reference.file is not None:
            raise UsageError(
                f"{model} names a file already, and --quant {quant} another.",
                "Leave out one of them.",
            )
        return Named(
            replace(reference, quant=quant or reference.quant), catalogue.of_repo(reference.repo)
        )
    name, inside = catalogue.split(model)
    if name not in catalogue.names:
        raise UsageError(
            f"There is no model called {model!r}.",
            did_you_mean(model, catalogue.names) + _FORM,
        )
    choice = catalogue.chosen(name, quant or inside)
    here = catalogue.locate(name) if choice.reference is None else choice.path
    if choice.reference is not None and here is not None and known_damaged(here):
        here = None  # to be fetched again
    return Named(choice.reference, name, choice.quant or None, here)


def plan(model: Named, drafter: str, catalogue: Catalogue) -> list[Wanted]:
    """The target first. Raises ``OpenChoice``, and the errors of ``resolve`` and ``choose``."""
    ask = cache(resolve)
    if model.here is not None:
        target = None
        wanted = [Wanted("model", model.entry or model.here.name, here=model.here)]
    else:
        assert model.reference is not None
        remote = ask(model.reference.repo, model.reference.revision)
        target = _target(remote, model)
        wanted = [_wanted(_role(target), remote, target)]
    elsewhere = parse_reference(drafter)
    if elsewhere is not None:
        there = ask(elsewhere.repo, elsewhere.revision)
        variant = choose(there, elsewhere)
        if variant is None:
            raise OpenChoice(there)
        more = [_wanted(f"drafter {variant.part or 'draft-model'}", there, variant)]
    elif drafter == "none" or (target is not None and target.part is not None):
        more = []
    elif model.entry is not None:
        more = []
        for spec in _listed(catalogue, model.entry, drafter):
            again = None
            if spec.path is not None and known_damaged(spec.path):
                again = reference_of(spec.path)
            if spec.path is not None and again is None:
                more.append(Wanted(f"drafter {spec.name}", spec.path.name, here=spec.path))
            elif (reference := again or parse_reference(spec.absent)) is not None:
                there = ask(reference.repo, reference.revision)
                variant = choose(there, reference)
                assert variant is not None  # the catalogue names a file
                more.append(_wanted(f"drafter {spec.name}", there, variant))
    else:
        assert target is not None  # what is here already is of the catalogue
        more = [_wanted(f"drafter {v.part}", remote, v) for v in _beside(remote, drafter)]
    return list({w.path: w for w in reversed([*wanted, *more])}.values())[::-1]


def check_usable(wanted: Sequence[Wanted]) -> None:
    """Raises ``ModelFileError`` for the first file that arrived as the Hub has it and is damaged
    or of a kind that cannot be run all the same. Projectors and the like are not looked at."""
    for w in wanted:
        if part_of(w.path.name) in ("mmproj", "imatrix"):
            continue
        try:
            check_model_file(w.path)
        except ModelFileError as error:
            hint = error.hint
            if hint == AGAIN:
                hint = (
                    "What arrives is checked against the Hub, so it was most likely published like "
                    "this: choose another file or repository."
                )
            reason = error.message.replace(str(w.path), w.path.name)
            raise ModelFileError(
                f"{w.name} is here, but cannot be used: {reason}",
                f"{hint} `localspec models rm {reference_of(w.path) or w.path}` removes it.",
            ) from error


def _target(remote: RemoteRepo, model: Named) -> Variant:
    assert model.reference is not None
    try:
        variant = choose(remote, model.reference)
    except HubNotFound:
        if model.reference.file is None or model.quant is None:
            raise
        # The catalogue's file was published anew, under another name or in parts.
        by_quant = replace(model.reference, file=None, quant=model.quant)
        variant = choose(remote, by_quant)
    if variant is None:
        raise OpenChoice(remote)
    return variant


def _wanted(role: str, remote: RemoteRepo, variant: Variant) -> Wanted:
    revision = None if remote.revision == "main" else remote.revision
    return Wanted(
        role,
        str(HubReference(remote.repo, variant.file, revision=revision)),
        remote.files_of(variant),
    )


def _role(variant: Variant) -> str:
    return f"drafter {variant.part}" if variant.part in DRAFTER_PARTS else "model"


def _listed(catalogue: Catalogue, entry: str, word: str) -> list[DrafterSpec]:
    """The catalogue's drafters that ``word`` means; those without a file need no download."""
    listed = catalogue.drafters(entry)
    if word == "all":
        return list(listed)
    if word == "auto":
        return [d for d in listed if d.recommended]
    found = [d for d in listed if word in (d.name, d.method)]
    if not found:
        names = ", ".join(d.name for d in listed)
        raise UsageError(
            f"The catalogue has no drafter {word} for {entry}.",
            did_you_mean(word, [d.name for d in listed])
            + f"It has {names}. One of a repo is written hf:OWNER/REPO/FILE.gguf.",
        )
    return found


def _beside(remote: RemoteRepo, word: str) -> list[Variant]:
    """The drafters in the target's own repo that ``word`` means, one of each method."""
    every = drafters_in(remote)
    parts = [part for part in DRAFTER_PARTS if any(v.part == part for v in every)]
    chosen = [_best([v for v in every if v.part == part]) for part in parts]
    if word == "auto":
        return chosen[:1]
    if word == "all":
        return chosen
    found = [v for v in chosen if v.part == word] or [
        v for v in every if word.lower() in (v.file.lower(), v.label.lower())
    ]
    if not found:
        names = [*parts, *(v.file for v in every)]
        raise HubNotFound(
            f"{remote.repo} has no drafter {word}.",
            did_you_mean(word, names)
            + (f"It has {', '.join(names)}." if names else "It has no drafters at all.")
            + " One of another repo is written hf:OWNER/REPO/FILE.gguf.",
        )
    return found


def _best(drafters: Sequence[Variant]) -> Variant:
    """Q8_0, the one that is taken of several beside a target (``catalog``), else the smallest."""
    return next((v for v in drafters if v.quant == "Q8_0"), drafters[0])
