"""What a repo on the Hub holds, and where the cache that all Hugging Face tools share keeps it.

The layout is huggingface_hub's: ``blobs/<etag>`` holds the bytes, ``snapshots/<commit>/<path>``
links to them, ``refs/<branch>`` names the commit. The ETag of a file is its SHA-256, or its git id
where it is stored in git itself: the name of a blob is its checksum.
"""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from huggingface_hub import hf_hub_url
from huggingface_hub.file_download import are_symlinks_supported, repo_folder_name
from huggingface_hub.hf_api import ModelInfo

from localspec.errors import HubError, HubNotFound, UsageError, did_you_mean
from localspec.gguf_names import DRAFTER_PARTS, Variant, label_among, stem_of, variants, with_quant
from localspec.hub import client, leftovers
from localspec.paths import kind_here
from localspec.reference import HubReference, hub_cache

_COMMIT = re.compile(r"[0-9a-f]{40}")
_ETAG = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file at one commit, as the Hub lists it. ``size`` is in bytes, ``etag`` its checksum."""

    repo: str
    commit: str
    path: str
    size: int
    etag: str
    revision: str = "main"

    def __post_init__(self) -> None:
        # All of these come from the server and become names of files here.
        inside = PurePosixPath(self.path)
        odd = inside.is_absolute() or ".." in inside.parts or "\\" in self.path
        if odd or not _COMMIT.fullmatch(self.commit) or not _ETAG.fullmatch(self.etag):
            raise HubError(
                f"The Hub lists a file of {self.repo} in a way that is not safe to store: "
                f"{self.path!r}, {self.etag!r}.",
                f"Look at {client.page(self.repo)}, and check HF_ENDPOINT.",
            )

    @property
    def sha256(self) -> str | None:
        return self.etag if len(self.etag) == 64 else None

    @property
    def url(self) -> str:
        """Of these very bytes: the commit is in it."""
        return hf_hub_url(self.repo, self.path, revision=self.commit)

    @property
    def blob(self) -> Path:
        return repo_folder(self.repo) / "blobs" / self.etag

    @property
    def part(self) -> Path:
        """What has arrived so far. Its name holds the ETag, so it is never part of another file."""
        return self.blob.with_name(f"{self.etag}.part")

    @property
    def lock(self) -> Path:
        """The lock that huggingface_hub takes for the same file."""
        folder = repo_folder(self.repo)
        return folder.parent / ".locks" / folder.name / f"{self.etag}.lock"

    @property
    def local(self) -> Path:
        """Where the file is once it is here."""
        return repo_folder(self.repo) / "snapshots" / self.commit / self.path

    @property
    def is_here(self) -> bool:
        return _has_size(self.local, self.size) and not _mark(self.blob).exists()

    @property
    def blob_is_here(self) -> bool:
        """Its bytes are, perhaps under another name or commit."""
        return _has_size(self.blob, self.size) and not _mark(self.blob).exists()

    @property
    def missing(self) -> int:
        """Bytes that have not arrived."""
        if self.is_here or self.blob_is_here:
            return 0
        return self.size - min(self.size, arrived(self.part))


@dataclass(frozen=True, slots=True)
class RemoteRepo:
    """A repo at one commit. ``info`` is what else the Hub says of it: tags, card, gating."""

    repo: str
    revision: str
    commit: str
    files: tuple[RemoteFile, ...]
    info: ModelInfo

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The GGUFs to choose among, the shards of a split model as one."""
        return variants({f.path: f.size for f in self.files})

    def files_of(self, variant: Variant) -> tuple[RemoteFile, ...]:
        by_path = {f.path: f for f in self.files}
        return tuple(by_path[path] for path in variant.files)


def resolve(repo: str, revision: str | None = None) -> RemoteRepo:
    """The files of a repo as they are now, in one question to the Hub.

    Raises ``HubNotFound`` with the nearest names for a repo that is not there, ``HubUnreachable``
    when nobody answers, ``HubError`` for what the Hub refuses.
    """
    try:
        info = client.ask(
            lambda: client.api().model_info(
                repo, revision=revision, files_metadata=True, timeout=client.timeout()
            ),
            repo,
        )
    except HubNotFound as error:
        raise HubNotFound(error.message, did_you_mean(repo, _similar(repo)) + error.hint) from error
    commit, branch = info.sha or "", revision or "main"
    files = tuple(
        RemoteFile(
            repo=repo,
            commit=commit,
            path=s.rfilename,
            size=s.lfs.size if s.lfs else s.size or 0,
            etag=s.lfs.sha256 if s.lfs else s.blob_id or "",
            revision=branch,
        )
        for s in info.siblings or ()
    )
    return RemoteRepo(repo, branch, commit, files, info)


def _similar(repo: str) -> list[str]:
    """Names of repos that may have been meant; none when the Hub does not tell."""
    owner, _, name = repo.partition("/")
    words = re.split(r"[-_. ]+", name)
    found: list[str] = []
    try:
        with client.hub_errors(repo):
            for asked in ({"author": owner}, {"search": name}, {"search": words[0]}):
                found += [m.id for m in client.api().list_models(limit=100, **asked)]
    except (HubError, UsageError):
        pass
    return found


def choose(remote: RemoteRepo, reference: HubReference) -> Variant | None:
    """What of the repo the reference means; None where it names neither file nor quantisation and
    there is more than one model. Raises ``HubNotFound`` with what there is instead."""
    found = remote.variants
    if not found:
        raise HubNotFound(
            f"{remote.repo} holds no GGUF file.",
            "Search for a repo of the same model whose name ends in GGUF: "
            f"`localspec models search {remote.repo.partition('/')[2]}`.",
        )
    models = tuple(v for v in found if v.part is None) or found
    if reference.file is not None:
        named = [v for v in found if reference.file in v.files] or [
            v for v in found if reference.file.lower() in (f.lower() for f in v.files)
        ]
        if not named:
            raise HubNotFound(
                f"{remote.repo} has no file {reference.file}.",
                did_you_mean(reference.file, [f for v in found for f in v.files])
                + f"See {client.page(remote.repo)}/tree/{remote.revision}.",
            )
    elif reference.quant is not None:
        named = list(with_quant(models, reference.quant))
        if not named:
            raise HubNotFound(
                f"{remote.repo} has no {reference.quant}.",
                f"It has {', '.join(dict.fromkeys(v.label for v in models))}.",
            )
        if len(named) > 1:
            raise UsageError(
                f"{remote.repo} has several files of {reference.quant}.",
                "Name one: " + ", ".join(f"hf:{remote.repo}/{v.file}" for v in named),
            )
    elif len(models) == 1:
        named = [models[0]]
    else:
        return None
    variant = named[0]
    if not variant.complete:
        raise HubNotFound(
            f"{remote.repo} lacks some of the files of {variant.file}.",
            f"See {client.page(remote.repo)}/tree/{remote.revision}; perhaps it is being uploaded.",
        )
    return variant


def words_for(remote: RemoteRepo, variant: Variant) -> str:
    """What to type for a variant: its quantisation where that means it alone, else its file."""
    revision = None if remote.revision == "main" else remote.revision
    alone = label_among(remote.variants, variant) == variant.quant
    if alone and variant.quant and revision is None:
        return str(HubReference(remote.repo, quant=variant.quant))
    return str(HubReference(remote.repo, variant.file, revision=revision))


def drafters_in(remote: RemoteRepo) -> tuple[Variant, ...]:
    """The drafters that lie in the same repo as their target."""
    return tuple(v for v in remote.variants if v.part in DRAFTER_PARTS)


# ---- the cache -------------------------------------------------------------------------------


def repo_folder(repo: str) -> Path:
    return hub_cache() / repo_folder_name(repo_id=repo, repo_type="model")


def arrived(path: Path) -> int:
    """Bytes of a file that may not be there."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _has_size(path: Path, size: int) -> bool:
    # A dead link has no size; an empty file is a file.
    return kind_here(path) == "file" and path.stat().st_size == size


def _mark(blob: Path) -> Path:
    """Is there where ``models verify`` found the blob damaged, so that a pull fetches it again;
    until then it can still be used."""
    return blob.with_name(f"{blob.name}.damaged")


def mark(blob: Path, *, damaged: bool) -> None:
    """Keeps what verifying a blob found. Raises ``OSError``."""
    if damaged:
        _mark(blob).touch()
    else:
        _mark(blob).unlink(missing_ok=True)


def known_damaged(path: Path) -> bool:
    """Whether a model at a path of the cache, or a shard of it, was found damaged."""
    if kind_here(path) != "file":
        return False
    shards = [p for p in path.parent.iterdir() if stem_of(p.name) == stem_of(path.name)]
    return any(p.is_symlink() and _mark(p.parent / p.readlink()).exists() for p in shards)


def prepare(files: Iterable[RemoteFile]) -> None:
    """The folders that the files need. Raises ``OSError``."""
    for file in files:
        for folder in (file.blob.parent, file.local.parent, file.lock.parent):
            folder.mkdir(parents=True, exist_ok=True)


def hand_over(file: RemoteFile, blob: Path) -> None:
    """Make the whole file ``blob`` the file of its snapshot, at once. Raises ``OSError``."""
    if not are_symlinks_supported(hub_cache()):
        blob.replace(file.local)
    else:
        if blob != file.blob:
            blob.replace(file.blob)
            mark(file.blob, damaged=False)
        link = _beside(file.local)  # what is there may be a dead link
        link.symlink_to(os.path.relpath(file.blob, file.local.parent))
        link.replace(file.local)
    leftovers.forget(file.part)
    refer(file)


def refer(file: RemoteFile) -> None:
    """Let the file's branch mean its commit here, too. Raises ``OSError``."""
    ref = repo_folder(file.repo) / "refs" / file.revision
    if file.revision == file.commit or (ref.is_file() and ref.read_text("utf-8") == file.commit):
        return
    ref.parent.mkdir(parents=True, exist_ok=True)
    new = _beside(ref)
    new.write_text(file.commit, "utf-8")
    new.replace(ref)


def _beside(path: Path) -> Path:
    """A name for what takes the place of ``path`` at once."""
    return path.with_name(f".{uuid.uuid4().hex}.tmp")


def checksum(path: Path, etag: str, note: Callable[[int], None] = lambda _: None) -> str:
    """What the ETag of the file at ``path`` would be: SHA-256, or git's where ``etag`` is one.

    ``note`` hears of the bytes read so far, and ends it by raising.
    """
    if len(etag) == 64:
        digest = hashlib.sha256()
    else:
        digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    done, block = 0, bytearray(_BLOCK)
    view = memoryview(block)
    with path.open("rb", buffering=0) as file:
        while n := file.readinto(block):
            digest.update(view[:n])
            done += n
            note(done)
    return digest.hexdigest()
