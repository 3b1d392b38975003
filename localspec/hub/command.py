"""``localspec models pull``, ``verify`` and ``rm``: what they do, and what they say.

Progress goes to stderr; the paths and results to stdout.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.prompt import Confirm

from localspec.errors import (
    DownloadCancelled,
    HubNotFound,
    HubUnreachable,
    ModelFileError,
    UsageError,
    did_you_mean,
)
from localspec.gguf_names import DRAFTER_PARTS, Variant, preferred
from localspec.hub import stored
from localspec.hub.download import Progress, download
from localspec.hub.files import RemoteFile, RemoteRepo, choose, drafters_in, resolve
from localspec.hub.progress import display, of_size
from localspec.hub.stored import Stored
from localspec.reference import HubReference, find_cached, parse_reference, reference_of
from localspec.units import file_size

NOT_OF_THE_HUB = "It is written hf:OWNER/REPO, hf:OWNER/REPO:QUANT or hf:OWNER/REPO/FILE.gguf."


@dataclass(frozen=True, slots=True)
class Wanted:
    """One model or drafter to be brought: the files of a split one, the first first."""

    role: str
    files: tuple[RemoteFile, ...]

    @property
    def reference(self) -> HubReference:
        first = self.files[0]
        return HubReference(
            first.repo, first.path, revision=None if first.revision == "main" else first.revision
        )


def pull(
    model: str, quant: str | None = None, drafter: str = "auto", *, quiet: bool = False
) -> int:
    """Bring a model and its drafters into the cache. Raises the errors of ``resolve``, ``choose``
    and ``download``."""
    reference = referred(model, quant)
    out, err = Console(width=_width(), soft_wrap=True), Console(stderr=True)
    again = f"localspec models pull {model}" + (f" --quant {quant}" if quant else "")
    try:
        wanted = plan(reference, drafter)
    except HubUnreachable as error:
        here = find_cached(reference)
        if len(here) != 1:
            raise
        if not quiet:
            _say(err, f"{error.message} What is here is used as it is.")
        _say(out, f"model  {here[0][0]}")
        return 0
    except _OpenChoice as error:
        _list(out, error.remote)
        raise UsageError(error.message, error.hint) from None
    files = [file for w in wanted for file in w.files]
    missing = sum(f.missing for f in files)
    if not quiet:
        for w in wanted:
            state = "here already" if not sum(f.missing for f in w.files) else ""
            size = file_size(sum(f.size for f in w.files))
            shards = f", {len(w.files)} files" if len(w.files) > 1 else ""
            _say(err, f"{w.role}: {w.reference}, {state or size}{shards}")
    last = Progress(())

    def report(progress: Progress) -> None:
        nonlocal last
        last = progress
        shown(progress)

    try:
        with display(err, quiet=quiet or not missing) as shown:
            download(files, report)
    except (KeyboardInterrupt, DownloadCancelled):
        raise DownloadCancelled(
            f"Interrupted: {of_size(last.done, last.size)} are here and kept.",
            f"Go on from there with: {again}",
        ) from None
    for w in wanted:
        _say(out, f"{w.role}  {w.files[0].local}")
    return 0


def referred(model: str, quant: str | None = None) -> HubReference:
    """What on the Hub the words mean. Raises ``UsageError`` for words that mean nothing there."""
    reference = parse_reference(model)
    if reference is None:
        raise UsageError(f"{model} is nothing that the Hub has.", NOT_OF_THE_HUB)
    if quant is None:
        return reference
    if reference.file is not None:
        raise UsageError(
            f"{model} names a file already, and --quant {quant} another.", "Leave out one of them."
        )
    return replace(reference, quant=quant)


class _OpenChoice(UsageError):
    """The reference leaves open which of several models is meant."""

    def __init__(self, remote: RemoteRepo) -> None:
        best = preferred(remote.variants)
        assert best is not None
        super().__init__(
            f"{remote.repo} holds several models: name one.",
            f"Recommended for most: localspec models pull hf:{remote.repo}:{best.label}",
        )
        self.remote = remote


def plan(reference: HubReference, drafter: str) -> list[Wanted]:
    """The target that a reference means, and the drafters that go with it."""
    remote = resolve(reference.repo, reference.revision)
    target = choose(remote, reference)
    if target is None:
        raise _OpenChoice(remote)
    wanted = [Wanted(_role(target), remote.files_of(target))]
    for found in _drafters(remote, target, drafter):
        if found.files[0].local not in {f.local for w in wanted for f in w.files}:
            wanted.append(found)
    return wanted


def _role(variant: Variant) -> str:
    return f"drafter {variant.part}" if variant.part in DRAFTER_PARTS else "model"


def _drafters(remote: RemoteRepo, target: Variant, word: str) -> list[Wanted]:
    if word == "none" or (target.part is not None and word in ("auto", "all")):
        return []
    if (elsewhere := parse_reference(word)) is not None:
        there = resolve(elsewhere.repo, elsewhere.revision)
        variant = choose(there, elsewhere)
        if variant is None:
            raise _OpenChoice(there)
        return [Wanted(f"drafter {variant.part or 'draft-model'}", there.files_of(variant))]
    beside = drafters_in(remote)
    parts = [part for part in DRAFTER_PARTS if any(v.part == part for v in beside)]
    chosen = [_closest([v for v in beside if v.part == part], target) for part in parts]
    if word == "auto":
        chosen = chosen[:1]
    elif word != "all":
        chosen = [v for v in chosen if v.part == word] or [
            v for v in beside if word.lower() in (v.file.lower(), v.label.lower())
        ]
        if not chosen:
            names = [*parts, *(v.file for v in beside)]
            raise HubNotFound(
                f"{remote.repo} has no drafter {word}.",
                did_you_mean(word, names)
                + (f"It has {', '.join(names)}." if names else "It has no drafters at all.")
                + " One of another repo is written hf:OWNER/REPO/FILE.gguf.",
            )
    return [Wanted(f"drafter {v.part}", remote.files_of(v)) for v in chosen]


def _closest(drafters: Sequence[Variant], target: Variant) -> Variant:
    """In the target's own quantisation, else the smallest."""
    same = [v for v in drafters if v.quant == target.quant]
    return (same or list(drafters))[0]


def _list(out: Console, remote: RemoteRepo) -> None:
    best = preferred(remote.variants)
    for variant in remote.variants:
        if variant.part is None:
            mark = "  recommended" if variant == best else ""
            files = f"  {len(variant.files)} files" if len(variant.files) > 1 else ""
            _say(out, f"{variant.label:<16} {file_size(variant.size):>9}{files}{mark}")


# ---- verify and rm -----------------------------------------------------------------------------


def verify(model: str | None = None, *, quiet: bool = False) -> int:
    """Read every byte of a model, or of every GGUF in the cache. 1 when something is damaged."""
    files = list(stored.everything()) if model is None else _stored(model)
    out, err = Console(width=_width(), soft_wrap=True), Console(stderr=True)
    if not files:
        _say(out, "There is no GGUF in the cache.")
        return 0
    try:
        with display(err, quiet=quiet) as shown:
            results = stored.verify(files, shown)
    except KeyboardInterrupt:
        raise DownloadCancelled("Interrupted: not everything was verified.") from None
    for file, right in zip(files, results, strict=True):
        state = "ok" if right else "damaged" if file.size is not None else "its content is gone"
        _say(out, f"{state:<8}  {file.reference}")
    damaged = [f for f, right in zip(files, results, strict=True) if not right]
    if not damaged:
        return 0
    first = damaged[0].reference
    raise ModelFileError(
        f"{len(damaged)} of {len(files)} files are not what the Hub has.",
        f"Get them anew: localspec models rm {first} --yes && localspec models pull {first}",
    )


def rm(model: str, *, yes: bool = False) -> int:
    """Remove a model from the cache, and what interrupted pulls of its repo left."""
    out = Console(width=_width(), soft_wrap=True)
    repo = _place(model).repo
    parts = stored.unfinished(repo)
    try:
        files = _stored(model)
    except ModelFileError:
        if not parts:
            raise
        files = []
    freed = stored.freed_by(files) + sum(p.stat().st_size for p in parts)
    for file in files:
        _say(out, f"{file.reference}")
    if parts:
        _say(out, f"{len(parts)} unfinished files of {repo}")
    if not yes and not _agreed(f"Remove this and free {file_size(freed)}?"):
        _say(out, "Nothing was removed.")
        return 1
    stored.remove(files)
    stored.drop(parts)
    _say(out, f"{file_size(freed)} freed.")
    return 0


def _agreed(question: str) -> bool:
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError("Nothing was removed: there is no one to ask.", "Say --yes.")
    return Confirm.ask(question, default=False)


def _place(model: str) -> HubReference:
    """What the words mean: a reference, or a path in the cache."""
    at_path = None if parse_reference(model) else reference_of(Path(model).absolute())
    return at_path or referred(model)


def _stored(model: str) -> list[Stored]:
    """The files in the cache that the words mean, all of a split model; dead links too."""
    reference = _place(model)
    found = find_cached(reference)
    if not found:
        dead = [s for s in stored.everything() if _means(reference, s.reference)]
        if dead:
            return dead
        raise ModelFileError(
            f"{model} is not in the cache.", "`localspec models list` shows what is here."
        )
    if len(found) > 1:
        names = ", ".join(f"hf:{reference.repo}/{variant.file}" for _, variant in found)
        raise UsageError(f"Of {reference.repo} several models are here.", f"Name one: {names}")
    first, variant = found[0]
    snapshot = first.parents[variant.file.count("/")]
    return [s for f in variant.files if (s := Stored.at(snapshot / f)) is not None]


def _means(asked: HubReference, has: HubReference) -> bool:
    return asked.repo == has.repo and asked.file in (None, has.file)


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _width() -> int | None:
    """Into a pipe go whole lines."""
    return None if sys.stdout.isatty() else 500
