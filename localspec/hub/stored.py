"""Files of the Hub that are in the cache: are they whole, and away with them.

No network is asked: the name of a blob is its checksum. Where the cache cannot link (Windows
without developer mode) there are no blobs, and the Hub must be asked what the checksum should be.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import DownloadCancelled, DownloadFailed
from localspec.gguf_names import is_gguf
from localspec.hub import files, leftovers
from localspec.hub.download import FileProgress, Progress, Report
from localspec.paths import kind_here
from localspec.reference import HubReference, hub_cache, reference_of

_ETAG = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Stored:
    """A file of a snapshot. ``size`` is None for a dead link."""

    path: Path
    reference: HubReference
    size: int | None

    @classmethod
    def at(cls, path: Path) -> Stored | None:
        """What stands at a path of the cache; None elsewhere."""
        reference = reference_of(path)
        if reference is None:
            return None
        return cls(path, reference, path.stat().st_size if kind_here(path) == "file" else None)

    @property
    def repo_folder(self) -> Path:
        return files.repo_folder(self.reference.repo)

    @property
    def commit(self) -> str:
        return self.path.relative_to(self.repo_folder / "snapshots").parts[0]

    @property
    def blob(self) -> Path | None:
        """What it links to, first hop: a blob may itself be a link into the store that several
        repos share."""
        if not self.path.is_symlink():
            return None
        return Path(os.path.normpath(self.path.parent / self.path.readlink()))

    def promised(self) -> str:
        """The checksum that it should have. Raises ``HubError`` where only the Hub knows it."""
        blob = self.blob
        if blob is not None and _ETAG.fullmatch(blob.name):
            return blob.name
        remote = files.resolve(self.reference.repo, self.commit)
        for file in remote.files:
            if file.path == self.reference.file:
                return file.etag
        raise DownloadFailed(
            f"The Hub no longer lists {self.reference}.", "It cannot be verified; nothing is wrong."
        )


def everything() -> Iterator[Stored]:
    """Every GGUF in the cache, dead links too, by repo and name."""
    cache = hub_cache()
    if kind_here(cache) != "folder":
        return
    for path in sorted(cache.glob("models--*/snapshots/*/**/*")):
        if is_gguf(path.name) and (path.is_symlink() or path.is_file()):
            stored = Stored.at(path)
            if stored is not None:
                yield stored


def verify(
    stored: Sequence[Stored],
    report: Report = lambda _: None,
    cancel: threading.Event | None = None,
) -> list[bool]:
    """Whether each is, byte for byte, what the Hub promised. Reads every byte, and marks what is
    damaged for the next pull; ``report`` hears of it as in ``download``. Raises
    ``DownloadCancelled``, and ``HubError`` as ``promised`` does."""
    results: list[bool] = []
    progress = [FileProgress(s.path.name, s.size or 0, done=s.size or 0) for s in stored]

    for i, one in enumerate(stored):

        def note(checked: int, i: int = i) -> None:
            if cancel is not None and cancel.is_set():
                raise DownloadCancelled("Verifying was cancelled.")
            p = progress[i]
            progress[i] = FileProgress(p.path, p.size, p.done, checked, "verifying")
            report(Progress(tuple(progress)))

        if one.size is None:
            results.append(False)
        else:
            etag = one.promised()
            results.append(files.checksum(one.path, etag, note) == etag)
            if one.blob is not None:
                with suppress(OSError):  # a cache that cannot be written can still be verified
                    files.mark(one.blob, damaged=not results[-1])
        p = progress[i]
        progress[i] = FileProgress(
            p.path, p.size, p.done, p.size, "done" if results[-1] else "failed"
        )
        report(Progress(tuple(progress)))
    return results


def freed_by(stored: Iterable[Stored]) -> int:
    """Bytes that ``remove`` would free: content that another name still needs stays."""
    going = {s.path for s in stored}
    blobs = {s.blob or s.path for s in stored}
    kept = {b for b in blobs if any(p not in going for p in _names_of(b))}
    return sum(files.arrived(b) for b in blobs - kept if not b.is_symlink())


def remove(stored: Sequence[Stored]) -> int:
    """Remove files from the cache, and their content where no other name has it. Bytes freed.

    Folders and refs that nothing is left of go too, so that other tools find a sound cache.
    Raises ``DownloadFailed`` for what may not be removed.
    """
    freed = freed_by(stored)
    with _removing():
        for one in stored:
            blob = one.blob
            one.path.unlink(missing_ok=True)
            if blob is not None and not _names_of(blob):
                blob.unlink(missing_ok=True)
                files.mark(blob, damaged=False)
        for folder in {s.repo_folder for s in stored}:
            _tidy(folder)
    return freed


def drop(parts: Iterable[Path]) -> int:
    """Remove what arrived in part. Bytes freed. Raises ``DownloadFailed`` as ``remove`` does."""
    freed = 0
    with _removing():
        for part in parts:
            freed += files.arrived(part)
            part.unlink(missing_ok=True)
            leftovers.forget(part)
            _tidy(part.parent.parent)
    return freed


@contextmanager
def _removing() -> Iterator[None]:
    """Turns what the file system refuses into a sentence."""
    try:
        yield
    except OSError as error:
        raise DownloadFailed(
            f"{error.filename} cannot be removed: {error.strerror}.",
            "Get the right to write there, or close the program that uses it.",
        ) from error


def _names_of(blob: Path) -> list[Path]:
    """The files of all snapshots that link to a blob."""
    if blob.parent.name != "blobs":
        return [blob] if blob.exists() else []
    snapshots = blob.parent.parent / "snapshots"
    return [
        path
        for path in snapshots.rglob("*")
        if path.is_symlink() and os.path.normpath(path.parent / path.readlink()) == str(blob)
    ]


def _tidy(repo_folder: Path) -> None:
    """Empty snapshots with the refs to them, then an empty repo, go."""
    snapshots = repo_folder / "snapshots"
    for folder in sorted((p for p in snapshots.rglob("*") if p.is_dir()), reverse=True):
        _remove_if_empty(folder)
    for ref in [p for p in (repo_folder / "refs").rglob("*") if p.is_file()]:
        if not (snapshots / ref.read_text("utf-8").strip()).is_dir():
            ref.unlink()
    if any(p.is_file() or p.is_symlink() for p in repo_folder.rglob("*")):
        return
    for folder in sorted((p for p in repo_folder.rglob("*") if p.is_dir()), reverse=True):
        _remove_if_empty(folder)
    _remove_if_empty(repo_folder)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):  # not empty: something else is kept there
        folder.rmdir()
