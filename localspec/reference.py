"""The words for a model on the Hugging Face Hub: ``hf:owner/repo[:QUANT]``, ``hf:owner/repo/file``,
or the address of its page, and where the Hub's cache on this machine keeps it.

Reads no header and asks no network.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from localspec.errors import UsageError
from localspec.gguf_names import (
    DRAFTER_PARTS,
    Variant,
    is_gguf,
    shard_of,
    stem_of,
    variants,
    with_quant,
)
from localspec.paths import kind_here, written

DEFAULT_ENDPOINT = "https://huggingface.co"
_FORM = "It is written hf:owner/repo, hf:owner/repo:Q4_K_M or hf:owner/repo/file.gguf."
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PAGES = ("resolve", "blob", "raw", "tree")


@dataclass(frozen=True, slots=True)
class HubReference:
    """A repository on the Hub, and what of it: a ``file``, a ``quant``, or neither.

    ``revision`` is a branch, a tag or a commit; None is the repository's main branch.
    """

    repo: str
    file: str | None = None
    quant: str | None = None
    revision: str | None = None

    def __str__(self) -> str:
        """The words for it, to be typed again. A file of another revision is written as a URL."""
        if self.revision is not None:
            page = "resolve" if self.file else "tree"
            parts = [
                page,
                quote(self.revision, safe=""),
                *([quote(self.file)] if self.file else []),
            ]
            return f"{DEFAULT_ENDPOINT}/{self.repo}/" + "/".join(parts)
        if self.file is not None:
            return f"hf:{self.repo}/{self.file}"
        return f"hf:{self.repo}" + (f":{self.quant}" if self.quant else "")


def endpoint() -> str:
    """The Hub that is asked: HF_ENDPOINT (a mirror), else huggingface.co."""
    return (os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")


def parse_reference(text: str) -> HubReference | None:
    """The reference that ``text`` is; None for what is no such thing (a name, a path).

    Raises ``UsageError`` for one that is written wrong.
    """
    if text[:3].lower() == "hf:":
        return _parse_short(text)
    if text.lower().startswith(("http://", "https://")):
        return _parse_url(text)
    return None


def _parse_short(text: str) -> HubReference:
    rest = text[3:].strip().strip("/")
    parts = rest.split("/")
    if len(parts) < 2:
        raise UsageError(f"{text!r} names no repository of the Hub.", _FORM)
    quant = None
    if len(parts) == 2 and ":" in parts[1]:
        parts[1], _, quant = parts[1].partition(":")
        if not quant:
            raise UsageError(f"{text!r} names no quantisation behind its colon.", _FORM)
    return _checked(text, parts[0], parts[1], "/".join(parts[2:]) or None, quant, None)


def _parse_url(text: str) -> HubReference:
    try:
        url = urlsplit(text)
    except ValueError as error:  # a bracket that is not closed, for one
        raise UsageError(f"{text} is no address ({error}).", _FORM) from None
    hosts = {urlsplit(base).netloc for base in (DEFAULT_ENDPOINT, "https://hf.co", endpoint())}
    if url.netloc.removeprefix("www.") not in hosts:
        raise UsageError(
            f"{text} is no address of the Hugging Face Hub.",
            "Download the file yourself and give its path, or name its repository: " + _FORM,
        )
    parts = [unquote(p) for p in url.path.split("/") if p]
    if len(parts) < 2 or parts[0] in ("datasets", "spaces", "collections", "papers", "docs"):
        raise UsageError(f"{text} is not the page of a model.", _FORM)
    owner, repo, *rest = parts
    if not rest:
        return _checked(text, owner, repo, None, None, None)
    page, *rest = rest
    revision = rest[0] if page in _PAGES and rest else None
    inside = "/".join(rest[1:]) or None
    if page == "tree" and inside is not None and not is_gguf(inside):
        # a folder of one quantisation, as of split models
        return _checked(text, owner, repo, None, rest[-1], revision)
    return _checked(text, owner, repo, inside, None, revision)


def _checked(
    text: str, owner: str, repo: str, file: str | None, quant: str | None, revision: str | None
) -> HubReference:
    if not (_NAME.fullmatch(owner) and _NAME.fullmatch(repo)):
        raise UsageError(f"{text!r} names no repository of the Hub.", _FORM)
    if file is not None and (not is_gguf(file) or ".." in file.split("/")):
        raise UsageError(f"{text!r} names no GGUF file of {owner}/{repo}.", _FORM)
    return HubReference(f"{owner}/{repo}", file, quant, None if revision == "main" else revision)


# ---- the cache -----------------------------------------------------------------------------------


def hub_cache() -> Path:
    """Where huggingface_hub keeps files on this machine (huggingface_hub.constants)."""
    if cache := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return written(cache)
    if home := os.environ.get("HF_HOME"):
        return written(home) / "hub"
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return written(base) / "huggingface" / "hub"


def snapshots(repo: str, revision: str | None = None) -> Iterator[Path]:
    """The folders of a repository's revisions in the cache, the current ``revision``'s first.

    Without a ``revision`` that is main's; then come all others, newest first.
    """
    folder = hub_cache() / ("models--" + repo.replace("/", "--"))
    try:
        commit = (folder / "refs" / (revision or "main")).read_text("utf-8").strip()
    except (OSError, ValueError):
        commit = revision or ""
    named = folder / "snapshots" / commit
    if commit and kind_here(named) == "folder":
        yield named
    if revision is None:
        others = [p for p in _folders(folder / "snapshots") if p != named]
        yield from sorted(others, key=lambda p: p.stat().st_mtime, reverse=True)


def _folders(path: Path) -> list[Path]:
    try:
        return [p for p in path.iterdir() if p.is_dir()]
    except OSError:
        return []


def cached_variants(snapshot: Path) -> tuple[Variant, ...]:
    """What of a repository is in one snapshot of the cache; dead links are not there."""
    sizes: dict[str, int] = {}
    for path in snapshot.rglob("*"):
        if is_gguf(path.name) and path.is_file():
            sizes[path.relative_to(snapshot).as_posix()] = path.stat().st_size
    return variants(sizes)


def find_cached(
    reference: HubReference, *, drafters: bool = False
) -> tuple[tuple[Path, Variant], ...]:
    """Whatever in the cache the reference may mean, with its path; several where it names neither
    file nor quantisation and several are here. Only whole split models count. With ``drafters``
    the parts that draft are meant first, where it names no file."""
    for snapshot in snapshots(reference.repo, reference.revision):
        here = [v for v in cached_variants(snapshot) if v.complete]
        if reference.file is not None:
            found = [v for v in here if _same_file(v, reference.file)]
        else:
            parts = DRAFTER_PARTS if drafters else ()
            found = [v for v in here if v.part in parts] or [v for v in here if v.part is None]
            if reference.quant is not None:
                found = list(with_quant(found, reference.quant))
        if found:
            return tuple((snapshot / v.file, v) for v in found)
    return ()


def _same_file(variant: Variant, file: str) -> bool:
    if shard_of(file) is not None:  # any shard stands for its model
        return file in variant.files or stem_of(file).lower() == stem_of(variant.file).lower()
    return variant.file.lower() == file.lower()


_CACHED = re.compile(r"models--(?P<owner>[^/\\]+?)--(?P<repo>[^/\\]+)$")


def title_of(words: str) -> str:
    """The words for a model (``--model``) as a person is told of it: a file of the cache by its
    reference, any other by its name; what is no path is short already."""
    if words.startswith("hf:") or "://" in words or not is_gguf(words):
        return words
    path = Path(words)
    reference = reference_of(path)
    return str(reference) if reference is not None else path.stem


def reference_of(path: Path) -> HubReference | None:
    """The repository and file that a path within the cache stands for."""
    parts = path.parts
    for i, part in enumerate(parts[:-3]):
        match = _CACHED.fullmatch(part)
        if match and parts[i + 1] == "snapshots":
            file = "/".join(parts[i + 3 :])
            return HubReference(f"{match['owner']}/{match['repo']}", file)
    return None
