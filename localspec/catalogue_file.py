"""A catalogue file (models.toml): what it may say; errors in it name the line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from localspec import resources, validation
from localspec.errors import CatalogError, UsageError
from localspec.gguf_names import is_gguf, quant_of
from localspec.limits import LONGEST_DRAFT
from localspec.paths import written

METHODS_WITH_FILE = ("draft-model", "eagle3", "dflash", "dspark")
"""Those that need a GGUF of their own; the MTP layers of ``mtp`` may stand in the target's."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_Quant = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


def _path(words: str) -> str:
    try:
        written(words)
    except UsageError as error:
        raise ValueError(error.message.rstrip(".")) from None
    return words


_Path = Annotated[str, AfterValidator(_path)]
_Bytes = Annotated[int, Field(gt=0)]


class Source(_Table):
    """Where a file is: exactly one of ``path``, ``package`` with ``file``, ``asset``, ``repo``.

    A ``repo`` of the Hugging Face Hub has one ``file``, or ``files`` by quantisation, the first of
    which is the default; ``size`` and ``sizes`` are their bytes where known, a split model's all
    together. ``revision`` pins a branch, tag or commit.
    """

    path: _Path | None = None
    package: str | None = None
    file: str | None = None
    install: str | None = None
    asset: str | None = None
    repo: str | None = None
    revision: str | None = None
    files: dict[_Quant, str] = {}
    size: _Bytes | None = None
    sizes: dict[_Quant, _Bytes] = {}

    @model_validator(mode="after")
    def _exactly_one(self) -> Source:
        if sum(x is not None for x in (self.path, self.package, self.asset, self.repo)) != 1:
            raise ValueError("give exactly one of path, package, asset, repo")
        if self.package is not None and self.file is None:
            raise ValueError("package and file go together")
        if self.file is not None and self.package is None and self.repo is None:
            raise ValueError("file goes with package or repo")
        if self.repo is not None and not _REPO.fullmatch(self.repo):
            raise ValueError("a repo is owner/name")
        if self.repo is None and (self.files or self.sizes or self.size or self.revision):
            raise ValueError("files, size, sizes and revision go with repo")
        if self.repo is not None and (self.file is None) == (not self.files):
            raise ValueError("repo goes with either file or files")
        if unknown := sorted(self.sizes.keys() - self.files.keys()):
            raise ValueError(f"sizes has {unknown[0]}, which files has not")
        wrong = [f for f in (self.file, *self.files.values()) if f and not is_gguf(f)]
        if wrong and self.repo is not None:
            raise ValueError(f"{wrong[0]} is no GGUF file")
        return self

    @property
    def choices(self) -> dict[str, str]:
        """The files of a ``repo`` by quantisation, the default first."""
        return self.files or ({quant_of(self.file) or "": self.file} if self.file else {})

    def bytes_of(self, quant: str) -> int | None:
        return self.sizes.get(quant) if self.files else self.size


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
    n_max: int | None = Field(default=None, ge=1, le=LONGEST_DRAFT)
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


NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""The names of entries and of drafters."""
_Name = Annotated[str, Field(pattern=NAME)]


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
    """``folders`` are looked through for GGUF files, beside the places of other programs."""

    folders: list[_Path] = []
    models: dict[_Name, ModelEntry] = {}


# ---- reading -----------------------------------------------------------------------------------


def read_catalogue(path: Path) -> CatalogueFile:
    """What one file says. Raises ``CatalogError`` naming file, line and key."""
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
        return CatalogueFile.model_validate(raw)
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
