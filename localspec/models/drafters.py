"""Drafters for a target: its own MTP head, the catalogue's, those on this machine, and the Hub's.

A candidate is checked by its header, one on the Hub by ranges of its first megabytes. Links between
models are what publishers write: ``base_model`` tags, names, and words such as eagle3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from huggingface_hub import ModelInfo

from localspec import discovery
from localspec.catalog import Catalogue, DrafterSpec
from localspec.errors import LocalspecError
from localspec.gguf_header import GGUFHeader, check_header, check_model_file
from localspec.gguf_names import (
    DRAFTER_PARTS,
    Variant,
    is_gguf,
    part_of,
    variants,
    without_quant,
)
from localspec.hub import client, files
from localspec.hub.remote import read_remote
from localspec.models.inspection import made_from
from localspec.pairing import MAX_SIZE_DIFFERENCE, check_pairing
from localspec.reference import HubReference, parse_reference

CHECKED_ON_HUB = 6
"""Candidates whose headers are fetched: a large vocabulary makes each some 15 MB."""
_FOUND_LIMIT = 40
_DRAFT_SHARE = 0.5
"""A draft model is at most this large, as a share of its target: a larger one cannot pay."""
_MODELS_CHECKED = 12

# llama.cpp common/arg.cpp: which kind is taken where several lie beside the target
_ORDER = ("mtp", "dspark", "dflash", "eagle3", "draft-model", "ngram")
_WORDS = {
    "eagle3": ("eagle3", "eagle-3"),
    "dflash": ("dflash",),
    "dspark": ("dspark",),
    "mtp": ("assistant", "mtp-head"),
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """One drafter. ``words`` are what --drafter takes; ``source`` is ``own``, ``catalogue``,
    ``here`` or ``Hub``; ``fits`` is None where that was not checked, ``why`` says why not."""

    words: str
    method: str
    source: str
    here: bool
    fits: bool | None = None
    why: str = ""
    size: int | None = None
    note: str = ""
    downloads: int | None = None
    recommended: bool = False
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """``notes`` say what could not be looked at."""

    candidates: tuple[Candidate, ...]
    notes: tuple[str, ...] = ()


def find_drafters(
    target: GGUFHeader,
    catalogue: Catalogue,
    *,
    entry: str | None = None,
    reference: HubReference | None = None,
    ask_hub: bool = True,
) -> Found:
    """Everything that may draft for ``target``, best first.

    ``entry`` is its name in the catalogue, ``reference`` where on the Hub it is from.
    """
    notes: list[str] = []
    found = list(_own(target))
    if entry is not None:
        found += _of_catalogue(target, catalogue.drafters(entry), ask_hub)
    found += _on_machine(target, catalogue.folders)
    if ask_hub:
        try:
            source = catalogue.entry(entry).source if entry is not None else None
            if reference is None and source is not None and source.repo is not None:
                reference = HubReference(source.repo)
            titles = [catalogue.entry(entry).title] if entry is not None else []
            known = {c.words for c in found}
            found += _on_hub(target, [*titles, target.name], reference, known)
        except LocalspecError as error:
            notes.append(f"The Hub was not searched: {error.message} {error.hint}".strip())
    once: dict[str | Path, Candidate] = {}
    for candidate in found:
        once.setdefault(candidate.path or candidate.words, candidate)
    return Found(tuple(sorted(once.values(), key=_rank)), tuple(notes))


def _rank(candidate: Candidate) -> tuple[bool, int, bool, bool, int, int]:
    fits = {True: 0, None: 1, False: 2}[candidate.fits]
    return (
        candidate.source != "own",
        fits,
        not candidate.recommended,
        not candidate.here,
        _ORDER.index(candidate.method) if candidate.method in _ORDER else len(_ORDER),
        -(candidate.downloads or 0),
    )


# ---- what is known or here -----------------------------------------------------------------------


def _own(target: GGUFHeader) -> Iterator[Candidate]:
    if target.runs_mtp:
        yield Candidate(
            "mtp", "mtp", "own", here=True, fits=True, note="the model has its own MTP head"
        )


def _of_catalogue(
    target: GGUFHeader, specs: Sequence[DrafterSpec], ask_hub: bool
) -> Iterator[Candidate]:
    for spec in specs:
        if spec.method == "ngram" or (spec.method == "mtp" and not spec.absent and not spec.path):
            continue  # needs no file; the model's own head is told from its header
        plain = _listed(spec)
        if not spec.absent:
            if spec.path is not None:
                yield _checked_file(target, plain, spec.path)
            continue
        reference = parse_reference(spec.absent)
        if reference is None or not ask_hub:
            yield plain
            continue
        try:
            remote = files.resolve(reference.repo, reference.revision)
            variant = files.choose(remote, reference)
        except LocalspecError as error:
            yield replace(plain, fits=None, why=error.message)
            continue
        if variant is not None:
            yield _checked_remote(target, plain, remote, variant)


def _listed(spec: DrafterSpec) -> Candidate:
    own_head = spec.method == "mtp" and not spec.absent and not spec.path
    return Candidate(
        spec.absent or spec.name,
        spec.method,
        "own" if own_head else "catalogue",
        here=not spec.absent,
        note=spec.note,
        recommended=spec.recommended,
    )


def listed_drafters(specs: Sequence[DrafterSpec]) -> tuple[Candidate, ...]:
    """What the catalogue says of a target whose header cannot be read: nothing is checked."""
    found = [replace(_listed(s), size=s.size) for s in specs if s.method != "ngram"]
    return tuple(sorted(found, key=_rank))


def _on_machine(target: GGUFHeader, folders: Sequence[Path]) -> Iterator[Candidate]:
    size = target.file_size
    survey = discovery.survey(folders)
    models = [
        f
        for f in survey.of_kind("model")
        if f.size <= _DRAFT_SHARE * size
        and abs((f.n_vocab or 0) - (target.n_vocab or 0)) <= MAX_SIZE_DIFFERENCE
        and f.path != target.path
    ]
    models.sort(key=lambda f: f.size)
    for file in (*survey.of_kind("drafter"), *models[:_MODELS_CHECKED]):
        plain = Candidate(
            file.name, file.method or "draft-model", "here", here=True, size=file.size
        )
        candidate = _checked_file(target, plain, file.path)
        # a small model that does not fit was never meant as a drafter: no need to tell
        if candidate.fits or file.kind == "drafter":
            yield candidate


def _checked_file(target: GGUFHeader, plain: Candidate, path: Path) -> Candidate:
    def read() -> GGUFHeader:
        return check_model_file(path)

    return _checked(target, replace(plain, path=path.resolve()), read)


def _checked_remote(
    target: GGUFHeader, plain: Candidate, remote: files.RemoteRepo, variant: Variant
) -> Candidate:
    def read() -> GGUFHeader:
        return check_header(*read_remote(remote, variant))

    return _checked(target, replace(plain, size=variant.size), read)


def _checked(target: GGUFHeader, plain: Candidate, read: Callable[[], GGUFHeader]) -> Candidate:
    try:
        header = read()
        method = check_pairing(target, header)
    except LocalspecError as error:
        return replace(plain, fits=False, why=error.message)
    return replace(plain, method=method, fits=True, size=plain.size or header.file_size)


# ---- the Hub -------------------------------------------------------------------------------------


def _on_hub(
    target: GGUFHeader, titles: Sequence[str], reference: HubReference | None, known: set[str]
) -> list[Candidate]:
    bases = _bases(target, reference)
    # publishers name a drafter after the model as it was released, not after a conversion of it
    named = [base.rpartition("/")[2] for base in bases] or [without_quant(titles[0])]
    repos = _repositories(bases, dict.fromkeys(named), reference)
    plain = [c for info in repos for c in _candidates(info) if c.words not in known]
    plain.sort(key=_rank)
    possible = [c for c in plain if c.fits is None]
    with ThreadPoolExecutor(max_workers=3) as pool:
        looked = pool.map(lambda c: _looked_into(target, c), possible[:CHECKED_ON_HUB])
        return [*looked, *possible[CHECKED_ON_HUB:], *(c for c in plain if c.fits is not None)]


def _looked_into(target: GGUFHeader, candidate: Candidate) -> Candidate:
    reference = parse_reference(candidate.words)
    assert reference is not None
    try:
        remote = files.resolve(reference.repo)
        variant = files.choose(remote, reference)
    except LocalspecError as error:
        return replace(candidate, why=error.message)
    if variant is None:
        return candidate
    return _checked_remote(target, candidate, remote, variant)


def _bases(target: GGUFHeader, reference: HubReference | None) -> list[str]:
    """The models, owner/name, that the target is a conversion of."""
    found = [name for name in made_from(target) if "/" in name]
    if not found and reference is not None:
        info = client.ask(lambda: client.api().model_info(reference.repo), reference.repo)
        tags = [t.split(":")[-1] for t in info.tags or () if t.startswith("base_model:")]
        found = [t for t in tags if "/" in t]
    return list(dict.fromkeys(found))


def _repositories(
    bases: Iterable[str], names: Iterable[str], reference: HubReference | None
) -> list[ModelInfo]:
    asked: list[dict[str, str]] = [{"filter": f"base_model:{base}"} for base in bases]
    asked += [{"search": f"{name} {word}"} for name in names for word in ("eagle3", "dflash",
              "dspark", "mtp", "draft")]  # fmt: skip
    if reference is not None:
        asked.append({"search": reference.repo})
    found: dict[str, ModelInfo] = {}
    for question in asked:
        what = f"the search for {next(iter(question.values()))!r}"
        listed = client.listed(what, limit=_FOUND_LIMIT, **question)
        for info in listed:
            found.setdefault(info.id, info)
    return list(found.values())


def _candidates(info: ModelInfo) -> Iterator[Candidate]:
    """The drafters of a repository, by its files' names or its own: one a method."""
    names = [s.rfilename for s in info.siblings or ()]
    method_of_repo = _method_named(info)
    ggufs = [n for n in names if is_gguf(n)]
    by_method: dict[str, list[Variant]] = {}
    for variant in variants(dict.fromkeys(ggufs, 0)):
        part = part_of(variant.file)
        method = part if part in DRAFTER_PARTS else method_of_repo if part is None else None
        if method is not None:
            by_method.setdefault(method, []).append(variant)
    for method, choices in by_method.items():
        best = next((v for v in choices if v.quant == "Q8_0"), choices[0])
        words = str(HubReference(info.id, best.file))
        yield Candidate(words, method, "Hub", here=False, downloads=info.downloads)
    if not ggufs and method_of_repo is not None:
        yield Candidate(
            f"hf:{info.id}",
            method_of_repo,
            "Hub",
            here=False,
            fits=False,
            why="It is published as safetensors only: llama.cpp's convert_hf_to_gguf.py "
            "--target-model-dir makes a GGUF of it.",
            downloads=info.downloads,
        )


def _method_named(info: ModelInfo) -> str | None:
    """The method that a repository's name or tags speak of."""
    said = " ".join([info.id, *(info.tags or ())]).lower()
    return next((m for m, words in _WORDS.items() if any(w in said for w in words)), None)
