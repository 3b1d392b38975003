"""GGUF files that are on this machine already, wherever other programs or the user put them.

Places: the Hugging Face cache, llama.cpp's, LM Studio's and Ollama's folders, and those that the
user's catalogue names. Names and sizes come from the folders; of each file only the first kilobytes
of its header are read, so that thousands of files are looked through in seconds.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from localspec.errors import LocalspecError, ModelFileError
from localspec.gguf_header import (
    Glance,
    check_model_file,
    first_shard,
    glance,
)
from localspec.gguf_names import (
    DRAFTER_PARTS,
    is_gguf,
    part_of,
    quant_of,
    shard_of,
    stem_of,
)
from localspec.paths import kind_here, written
from localspec.reference import HubReference, find_cached, hub_cache, reference_of

HUB, LLAMA_CPP, LM_STUDIO, OLLAMA = "Hugging Face", "llama.cpp", "LM Studio", "Ollama"

_ENTRIES_LIMIT = 500_000
"""Of one place; a folder with more is not a folder of models (someone named "/")."""
_LOOK_SECONDS = 3.0
"""In all for headers that must be read whole; later files are listed without."""
_NO_FOLDERS = frozenset({"node_modules", "__pycache__", "site-packages", "blobs"})
_OLLAMA_MODEL = "application/vnd.ollama.image.model"


@dataclass(frozen=True, slots=True)
class Place:
    """A folder to look through, and whose it is."""

    owner: str
    path: Path


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A GGUF on this machine; a split model is one, under its first shard.

    ``name`` are the words that stand for it. ``kind`` is ``model``, ``drafter``, ``mmproj``,
    ``other``, or ``broken`` with the ``problem`` in a sentence. ``method`` is a drafter's;
    ``has_mtp`` says whether a model has MTP layers that run, None where that was not looked at.
    ``copies`` are further files of this name, size and beginning.
    """

    name: str
    path: Path
    owner: str
    size: int
    kind: str
    arch: str = ""
    title: str = ""
    quant: str | None = None
    method: str | None = None
    has_mtp: bool | None = False
    n_vocab: int | None = None
    tokenizer: str = ""
    problem: str = ""
    copies: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Survey:
    """What is on this machine, and what of the looking was left undone."""

    files: tuple[LocalFile, ...]
    notes: tuple[str, ...] = ()

    def of_kind(self, *kinds: str) -> tuple[LocalFile, ...]:
        return tuple(f for f in self.files if f.kind in kinds)


# ---- places ------------------------------------------------------------------------------------


def places(folders: Sequence[Path] = ()) -> tuple[Place, ...]:
    """Where GGUF files may be, those that are there; each folder once."""
    home = Path.home()
    llama = os.environ.get("LLAMA_CACHE")
    known = [
        Place(HUB, hub_cache()),
        Place(LLAMA_CPP, written(llama) if llama else _cache_home() / "llama.cpp"),
        Place(LM_STUDIO, _lm_studio_home(home) / "models"),
        Place(LM_STUDIO, home / ".cache" / "lm-studio" / "models"),
        *(Place(str(folder), folder) for folder in folders),
    ]
    if own := _lm_studio_downloads(_lm_studio_home(home)):
        known.insert(3, Place(LM_STUDIO, own))
    found: dict[Path, Place] = {}
    for place in known:
        try:
            if place.path.is_dir():
                found.setdefault(place.path.resolve(), place)
        except OSError:
            continue
    return tuple(found.values())


def _cache_home() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return written(os.environ.get("XDG_CACHE_HOME") or "~/.cache")


def _lm_studio_home(home: Path) -> Path:
    try:
        return Path((home / ".lmstudio-home-pointer").read_text("utf-8").strip())
    except (OSError, ValueError):
        return home / ".lmstudio"


def _lm_studio_downloads(studio: Path) -> Path | None:
    """The folder for models that the user chose in LM Studio's settings."""
    try:
        folder = json.loads((studio / "settings.json").read_text("utf-8")).get("downloadsFolder")
    except (OSError, ValueError, AttributeError):
        return None
    return Path(folder) if isinstance(folder, str) and folder else None


def _ollama_homes() -> Iterator[Path]:
    if own := os.environ.get("OLLAMA_MODELS"):
        yield written(own)
        return
    yield Path.home() / ".ollama" / "models"
    if sys.platform.startswith("linux"):  # where its installer's service keeps them
        yield Path("/usr/share/ollama/.ollama/models")


# ---- looking -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Look:
    """One look through the machine: what it has seen, and how long it may still read."""

    until: float
    seen: set[tuple[int, int]] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    @property
    def in_time(self) -> bool:
        return time.monotonic() < self.until


def survey(folders: Sequence[Path] = ()) -> Survey:
    """Every GGUF file on this machine, duplicates once; ``folders`` are the user's own."""
    look = _Look(time.monotonic() + _LOOK_SECONDS)
    for folder in folders:
        if kind_here(folder) != "folder":
            look.notes.append(f"The folder {folder} of your catalogue is not there.")
    found: list[LocalFile] = []
    for place in places(folders):
        found += _in_place(place, look)
    for home in _ollama_homes():
        found += _in_ollama(home, look)
    return Survey(_named(_merged(found)), tuple(look.notes))


def find(reference: HubReference) -> Path | None:
    """The file on this machine that a reference names, wherever it was downloaded to."""
    cached = find_cached(reference)
    if cached:
        return cached[0][0]
    if reference.file is None or reference.revision is not None:
        return None
    for place in places():
        if place.owner == LM_STUDIO:
            path = place.path / reference.repo / reference.file
        elif place.owner == LLAMA_CPP:  # common/download.cpp, before it shared the Hub's cache
            name = f"{reference.repo}_{reference.file}".replace("/", "_")
            path = place.path / name
        else:
            continue
        if kind_here(path) == "file":
            return path
    return None


def size_of(path: Path) -> int:
    """Bytes of a model, all parts of a split one together."""
    shard = shard_of(path.name)
    if shard is None:
        return path.stat().st_size
    parts = path.parent.glob(glob.escape(stem_of(path.name)) + f"-?????-of-{shard[1]:05d}.gguf")
    return sum(p.stat().st_size for p in parts)


def _in_place(place: Place, look: _Look) -> Iterator[LocalFile]:
    groups: dict[tuple[Path, str, int], list[tuple[Path, os.stat_result]]] = {}
    for path, state in _gguf_files(place.path, look):
        if state is None:
            yield LocalFile(
                path.stem, path, place.owner, 0, "broken", problem=f"{path} is a dead link."
            )
            continue
        identity = (state.st_dev, state.st_ino)
        if identity in look.seen:
            continue
        if state.st_ino:  # some file systems give none
            look.seen.add(identity)
        shard = shard_of(path.name)
        key = (path.parent, stem_of(path.name) if shard else path.name, shard[1] if shard else 0)
        groups.setdefault(key, []).append((path, state))
    for (_, _, count), files in groups.items():
        files.sort()
        size = sum(state.st_size for _, state in files)
        yield _looked_at(files[0][0], place.owner, size, look, have=len(files), want=count)


def _gguf_files(root: Path, look: _Look) -> Iterator[tuple[Path, os.stat_result | None]]:
    """All files called .gguf under ``root``; a dead link comes with None. Every folder is looked
    through once, however many links lead to it."""
    pending, folders, entries = [root], set[tuple[int, int]](), 0
    while pending:
        folder = pending.pop()
        try:
            state = folder.stat()
            if (state.st_dev, state.st_ino) in folders and state.st_ino:
                continue
            folders.add((state.st_dev, state.st_ino))
            with os.scandir(folder) as listing:
                found = sorted(listing, key=lambda e: e.name, reverse=True)
        except OSError:
            continue  # not ours to read, or gone meanwhile
        for entry in found:
            entries += 1
            if entries > _ENTRIES_LIMIT:
                look.notes.append(
                    f"{root} holds more than {_ENTRIES_LIMIT:,} files; the rest was not looked at."
                )
                return
            try:
                if entry.is_dir():
                    if not entry.name.startswith(".") and entry.name not in _NO_FOLDERS:
                        pending.append(Path(entry.path))
                elif is_gguf(entry.name):
                    yield Path(entry.path), entry.stat() if entry.is_file() else None
            except OSError:
                continue


def _looked_at(
    path: Path, owner: str, size: int, look: _Look, *, have: int = 1, want: int = 0
) -> LocalFile:
    """What the beginning of the file, or of its first shard, says."""
    quant, part = quant_of(path.name), part_of(path.name)
    plain = LocalFile(stem_of(path.name), path, owner, size, "other", quant=quant)
    if part in ("mmproj", "imatrix"):
        return replace(plain, kind="mmproj" if part == "mmproj" else "other")
    if have < want:
        problem = f"{path} is a split model of which {have} of {want} parts are there."
        return replace(plain, kind="broken", problem=problem)
    try:
        seen = glance(first_shard(path))
    except ModelFileError as error:
        return replace(plain, kind="broken", problem=error.message)
    return _described(replace(plain, arch=seen.arch, title=seen.name), seen, part, look)


def _described(file: LocalFile, seen: Glance, part: str | None, look: _Look) -> LocalFile:
    file = replace(
        file,
        n_vocab=seen.n_vocab,
        tokenizer=seen.tokenizer,
    )
    if seen.method is not None:
        # DSpark is a DFlash with one more tensor; the name tells it more cheaply
        method = "dspark" if seen.method == "dflash" and part == "dspark" else seen.method
        return replace(file, kind="drafter", method=method)
    if seen.kind != "a language model":
        return replace(file, kind="mmproj" if "mmproj" in seen.kind else "other")
    if seen.mtp_layers:
        # Whether the layers are there, and whether anything else is, only the tensors tell.
        if not look.in_time:
            mtp = part in DRAFTER_PARTS
            return replace(file, kind="drafter" if mtp else "model", method="mtp" if mtp else None,
                           has_mtp=None)  # fmt: skip
        try:
            header = check_model_file(file.path)
        except LocalspecError as error:
            return replace(file, kind="broken", problem=error.message)
        if header.is_drafter_only:
            return replace(file, kind="drafter", method="mtp")
        return replace(file, kind="model", has_mtp=header.runs_mtp)
    return replace(file, kind="model")


# ---- Ollama --------------------------------------------------------------------------------------


def _in_ollama(home: Path, look: _Look) -> Iterator[LocalFile]:
    """Ollama's models: manifests name blobs. Those that llama.cpp cannot load are broken here."""
    for name, blob in _ollama_models(home / "manifests", home / "blobs"):
        try:
            state = blob.stat()
        except OSError:
            yield LocalFile(name, blob, OLLAMA, 0, "broken", problem=f"{blob} is not there.")
            continue
        if (state.st_dev, state.st_ino) in look.seen and state.st_ino:
            continue
        look.seen.add((state.st_dev, state.st_ino))
        file = replace(_looked_at(blob, OLLAMA, state.st_size, look), name=name)
        if file.kind == "model" and look.in_time:
            try:
                file = replace(file, quant=check_model_file(blob).file_type)
            except LocalspecError as error:
                file = replace(file, kind="broken", problem=f"{name}: {error.message}")
        yield file


def ollama_name(weights: Path) -> str | None:
    """What Ollama calls the model of this file; None of a file that is not in its store."""
    blobs = weights.absolute().parent
    if blobs.name != "blobs":
        return None
    models = _ollama_models(blobs.parent / "manifests", blobs)
    return next((name for name, blob in models if blob.name == weights.name), None)


def _ollama_models(manifests: Path, blobs: Path) -> Iterator[tuple[str, Path]]:
    """Name (``ollama:qwen3:8b``) and weights of every model that was pulled."""
    if kind_here(manifests) != "folder":
        return
    for path in sorted(manifests.rglob("*")):
        try:
            layers = json.loads(path.read_text("utf-8"))["layers"] if path.is_file() else []
            digests = [x["digest"] for x in layers if x["mediaType"] == _OLLAMA_MODEL]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        *folders, tag = path.relative_to(manifests).parts
        if folders[:2] == ["registry.ollama.ai", "library"]:
            folders = folders[2:]
        for digest in digests[:1]:
            if isinstance(digest, str) and re.fullmatch(r"sha256[:-][0-9a-f]{64}", digest):
                yield f"ollama:{'/'.join(folders)}:{tag}", blobs / digest.replace(":", "-")


# ---- the same file twice -------------------------------------------------------------------------

_HEAD = 1 << 16


def _merged(files: list[LocalFile]) -> list[LocalFile]:
    """Copies of one file (same name, size and beginning) become one entry."""
    alike: dict[tuple[str, int], list[LocalFile]] = {}
    for file in files:
        alike.setdefault((file.path.name.lower(), file.size), []).append(file)
    merged = []
    for group in alike.values():
        if len(group) == 1 or group[0].kind == "broken":
            merged += group
            continue
        by_head: dict[bytes, list[LocalFile]] = {}
        for file in group:
            by_head.setdefault(_head(file.path), []).append(file)
        merged += [
            replace(first, copies=tuple(f.path for f in rest)) for first, *rest in by_head.values()
        ]
    return merged


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return hashlib.sha256(stream.read(_HEAD)).digest()
    except OSError:
        return str(path).encode()


def _named(files: list[LocalFile]) -> tuple[LocalFile, ...]:
    """Every file under words that stand for it alone: its reference, its name, else its path."""
    names = [_name(f) for f in files]
    alone = _once(names)
    return tuple(
        replace(file, name=name if name in alone else str(file.path))
        for file, name in zip(files, names, strict=True)
    )


def _once(names: list[str]) -> set[str]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return {name for name, n in counts.items() if n == 1}


def _name(file: LocalFile) -> str:
    if file.owner == OLLAMA:
        return file.name
    reference = reference_of(file.path)
    return str(reference) if reference else stem_of(file.path.name)
