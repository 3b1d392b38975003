"""What interrupted pulls left in the cache: files that arrived in part, and split models of which
only some files are there.

A part is called by its checksum; a note beside it says which file it becomes. No network is asked,
and huggingface_hub, which is slow to import, is not needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, ValidationError

from localspec.gguf_names import shard_of, stem_of
from localspec.paths import kind_here
from localspec.reference import HubReference, cached_variants, find_cached, hub_cache

if TYPE_CHECKING:
    from localspec.hub.files import RemoteFile


class _Note(BaseModel):
    """Which file of the repository a part becomes; ``size`` is the whole file's, in bytes."""

    model_config = ConfigDict(frozen=True)

    file: str
    size: int
    revision: str


@dataclass(frozen=True, slots=True)
class Leftover:
    """A model, or drafter, of which not all is there. ``file`` stands for it; None where only the
    Hub could tell which of the repository's it is.

    ``parts`` are of files that arrived in part, ``whole`` the files of a split model that are there
    already; ``kept`` bytes of its ``size`` in all. ``busy``: a pull is at it now.
    """

    repo: str
    file: str | None
    revision: str | None
    parts: tuple[Path, ...]
    whole: tuple[Path, ...]
    kept: int
    size: int | None
    busy: bool

    @property
    def words(self) -> str:
        """What ``models pull`` goes on by, and ``models rm`` removes."""
        return str(HubReference(self.repo, self.file, revision=self.revision))


# ---- notes ---------------------------------------------------------------------------------------


def note(file: RemoteFile) -> None:
    """Keeps which file its part becomes. Raises ``OSError``."""
    said = _Note(file=file.path, size=file.size, revision=file.revision)
    _beside(file.part).write_text(said.model_dump_json(), "utf-8")


def forget(part: Path) -> None:
    """The part is no more: nor is its note. Raises ``OSError``."""
    _beside(part).unlink(missing_ok=True)


def _noted(part: Path) -> _Note | None:
    try:
        return _Note.model_validate_json(_beside(part).read_bytes())
    except (OSError, ValidationError):
        return None


def _beside(part: Path) -> Path:
    return part.with_suffix(".begun")


# ---- looking -------------------------------------------------------------------------------------


def leftovers(repo: str | None = None) -> tuple[Leftover, ...]:
    """All of the cache, or of one repository, by repository and name."""
    name = "*" if repo is None else repo.replace("/", "--")
    if kind_here(hub_cache()) != "folder":
        return ()
    folders = sorted(hub_cache().glob(f"models--{name}"))
    return tuple(one for folder in folders for one in _of(folder))


@dataclass(slots=True)
class _Found:
    """What is known so far of one leftover."""

    parts: dict[Path, _Note | None]
    whole: dict[str, Path]
    commit: str = ""


def _of(folder: Path) -> Iterator[Leftover]:
    repo = folder.name.removeprefix("models--").replace("--", "/")
    found: dict[tuple[str, int] | None, _Found] = {}
    for part in sorted((folder / "blobs").glob("*.part")):
        said = _noted(part)
        key = _model_of(said.file) if said is not None else None
        found.setdefault(key, _Found({}, {})).parts[part] = said
    for snapshot in sorted((folder / "snapshots").glob("*")):
        for variant in cached_variants(snapshot) if snapshot.is_dir() else ():
            if variant.complete:
                continue
            key = _model_of(variant.file)
            if key not in found and find_cached(HubReference(repo, variant.file)):
                continue  # whole in another revision: nothing to go on with
            one = found.setdefault(key, _Found({}, {}))
            one.whole |= {f: snapshot / f for f in variant.files}
            one.commit = snapshot.name
    for key, one in found.items():
        yield _leftover(folder, repo, key, one)


def _leftover(folder: Path, repo: str, key: tuple[str, int] | None, found: _Found) -> Leftover:
    notes = [n for n in found.parts.values() if n is not None]
    sizes = {n.file: n.size for n in notes} | {f: _size(p) for f, p in found.whole.items()}
    all_known = key is not None and len(sizes) == max(1, key[1])
    revision = notes[0].revision if notes else _branch(folder, found.commit)
    return Leftover(
        repo=repo,
        file=min(sizes, default=None),
        revision=None if revision == "main" else revision,
        parts=tuple(found.parts),
        whole=tuple(found.whole.values()),
        kept=sum(map(_size, [*found.parts, *found.whole.values()])),
        size=sum(sizes.values()) if all_known else None,
        busy=any(map(_is_locked, found.parts)),
    )


def _model_of(file: str) -> tuple[str, int]:
    """The same for all files of a split model; and how many these are, 0 for one that is not."""
    shard = shard_of(file)
    return str(PurePosixPath(file).with_name(stem_of(file))), shard[1] if shard else 0


def _branch(folder: Path, commit: str) -> str | None:
    """What means this commit here; None where nothing does any more."""
    refs = folder / "refs"
    for ref in [refs / "main", *sorted(refs.rglob("*"))]:
        with suppress(OSError, ValueError):
            if ref.read_text("utf-8").strip() == commit:
                return ref.relative_to(refs).as_posix()
    return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # gone meanwhile
        return 0


def _is_locked(part: Path) -> bool:
    folder = part.parent.parent
    lock = folder.parent / ".locks" / folder.name / f"{part.stem}.lock"
    if not lock.exists():
        return False
    try:
        with FileLock(lock, timeout=0):
            return False
    except Timeout:
        return True
