"""``localspec models pull``, ``verify`` and ``rm``: what they do, and what they say.

Progress goes to stderr; the paths and results to stdout.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.prompt import Confirm

from localspec.catalog import Catalogue
from localspec.errors import DownloadCancelled, HubUnreachable, ModelFileError, UsageError
from localspec.gguf_names import quant_of
from localspec.hub import stored
from localspec.hub.download import Progress, download
from localspec.hub.files import known_damaged
from localspec.hub.leftovers import leftovers
from localspec.hub.plan import check_usable, named, plan
from localspec.hub.progress import display
from localspec.hub.stored import Stored
from localspec.paths import kind_here
from localspec.reference import (
    HubReference,
    cached_variants,
    find_cached,
    parse_reference,
    reference_of,
    snapshots,
)
from localspec.units import file_size, folded, of_size


def pull(
    model: str, quant: str | None = None, drafter: str = "auto", *, quiet: bool = False
) -> int:
    """Bring a model and its drafters into the cache. Raises the errors of ``plan``, ``download``
    and ``check_usable``; ``DownloadCancelled`` says how to go on."""
    catalogue = Catalogue.load()
    out, err = _console(), Console(stderr=True, emoji=False)
    asked = named(model, quant, catalogue)
    try:
        wanted = plan(asked, drafter, catalogue)
    except HubUnreachable as error:
        here = find_cached(asked.reference) if asked.reference else ()
        if len(here) != 1:
            raise
        if not quiet:
            _say(err, f"{error.message} What is here is used as it is.")
        _say(out, f"model  {here[0][0]}")
        return 0
    if not quiet:
        for w in wanted:
            state = file_size(w.size) if w.missing else "here already"
            shards = f", {len(w.files)} files" if len(w.files) > 1 else ""
            _say(err, f"{w.role}: {w.name}, {state}{shards}")
        if drafter == "all" and len(wanted) == 1 and wanted[0].role == "model":
            _say(
                err,
                "There is no drafter beside it; find others with: "
                f"localspec models drafters {model}",
            )
    last = Progress(())

    def report(progress: Progress) -> None:
        nonlocal last
        last = progress
        shown(progress)

    files = [file for w in wanted for file in w.files]
    try:
        with display(err, quiet=quiet or not any(w.missing for w in wanted)) as shown:
            download(files, report)
    except (KeyboardInterrupt, DownloadCancelled):
        words = ["localspec", "models", "pull", model]
        words += ["--quant", quant] if quant else []
        words += ["--drafter", drafter] if drafter != "auto" else []
        raise DownloadCancelled(
            f"Interrupted: {of_size(last.done, last.size)} are here and kept.",
            f"Go on from there with: {shlex.join(words)}",
        ) from None
    for w in wanted:
        _say(out, f"{w.role}  {w.path}")
    check_usable(wanted)
    return 0


# ---- verify and rm -----------------------------------------------------------------------------


def verify(model: str | None = None, *, quiet: bool = False) -> int:
    """Read every byte of a model, or of every GGUF in the cache. 1 when something is damaged."""
    files = list(stored.everything()) if model is None else _stored(model)
    out, err = _console(), Console(stderr=True, emoji=False)
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
    again = f"localspec models pull {first}"
    if not known_damaged(damaged[0].path):
        again = f"localspec models rm {first} --yes && {again}"
    raise ModelFileError(
        f"{len(damaged)} of {len(files)} files are not what the Hub has.",
        f"Get them anew: {again}",
    )


@dataclass(frozen=True, slots=True)
class Removal:
    """What removing a model would take away: its files, what interrupted pulls of its repo left
    (files of split models, and ``parts`` of files), and the bytes that this frees."""

    files: tuple[Stored, ...]
    parts: tuple[Path, ...]
    freed: int

    @property
    def lines(self) -> list[str]:
        lines = [str(file.reference) for file in self.files]
        if self.parts:
            files = "file" if len(self.parts) == 1 else "files"
            repo = self.parts[0].parents[1].name.removeprefix("models--").replace("--", "/")
            lines.append(f"{len(self.parts)} unfinished {files} of {repo}")
        return lines

    def carry_out(self) -> int:
        """Bytes freed."""
        return stored.remove(self.files) + stored.drop(self.parts)


def removal(model: str) -> Removal:
    """Raises ``ModelFileError`` where nothing of the model is in the cache, ``UsageError`` for
    what is not of the Hub or leaves open which is meant."""
    left = [one for one in leftovers(_place(model).repo) if not one.busy]
    parts = tuple(part for one in left for part in one.parts)
    try:
        files = _stored(model)
    except ModelFileError:
        files = _shards(model)
        if not left and not files:
            raise
    whole = [s for one in left for path in one.whole if (s := Stored.at(path)) is not None]
    files = list(dict.fromkeys([*files, *whole]))
    freed = stored.freed_by(files) + sum(p.stat().st_size for p in parts)
    return Removal(tuple(files), parts, freed)


def rm(model: str, *, yes: bool = False) -> int:
    """Remove a model from the cache, and what interrupted pulls of its repo left."""
    out = _console()
    going = removal(model)
    for line in going.lines:
        _say(out, line)
    if not yes and not _agreed(f"Remove this and free {file_size(going.freed)}?"):
        _say(out, "Nothing was removed.")
        return 1
    _say(out, f"{file_size(going.carry_out())} freed.")
    return 0


def _agreed(question: str) -> bool:
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError("Nothing was removed: there is no one to ask.", "Say --yes.")
    return Confirm.ask(question, default=False)


def _place(model: str) -> HubReference:
    """What the words mean: a path in the cache, a reference, or a name of the catalogue."""
    path = Path(model).absolute()
    at_path = None if parse_reference(model) else reference_of(path)
    if at_path is not None and at_path.file is not None:
        # of that revision, for another may be here as well
        return replace(at_path, revision=path.parents[at_path.file.count("/")].name)
    catalogue = Catalogue.load()
    name, _ = catalogue.split(model)
    if name not in catalogue.names and parse_reference(model) is None and kind_here(model):
        raise _not_pulled(model, "Whoever put that file there can take it away.")
    place = named(model, None, catalogue).reference
    if place is None:
        source = catalogue.entry(name).source
        if source.package is not None:
            raise _not_pulled(model, f"It is of the package {source.package}, which pip manages.")
        if source.asset is not None:
            raise _not_pulled(model, "It is a part of localspec.")
        raise _not_pulled(model, f"Its file is where you put it: {source.path}")
    return place


def _not_pulled(model: str, hint: str) -> UsageError:
    return UsageError(f"{model} does not come from Hugging Face.", hint)


def _stored(model: str) -> list[Stored]:
    """The files in the cache that the words mean, all of a split model; dead links too."""
    reference = _place(model)
    found = find_cached(reference)
    if not found:
        dead = [s for s in stored.everything() if s.size is None and _means(reference, s.reference)]
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


def _shards(model: str) -> list[Stored]:
    """What is there of split models that the words mean and that are not whole."""
    reference = _place(model)
    return [
        one
        for snapshot in snapshots(reference.repo, reference.revision)
        for variant in cached_variants(snapshot)
        if not variant.complete
        and any(_means(reference, HubReference(reference.repo, f)) for f in variant.files)
        for f in variant.files
        if (one := Stored.at(snapshot / f)) is not None
    ]


def _means(asked: HubReference, has: HubReference) -> bool:
    if asked.repo != has.repo or asked.file not in (None, has.file):
        return False
    return asked.quant is None or asked.quant.upper() == quant_of(has.file or "")


def _say(console: Console, text: str) -> None:
    console.print(folded(text, console.file), markup=False, highlight=False, soft_wrap=True)


def _console() -> Console:
    """Into a pipe go whole lines. No name is a picture, as rich would have ``:llama:``."""
    width = None if sys.stdout.isatty() else 500
    return Console(width=width, emoji=False, soft_wrap=True)
