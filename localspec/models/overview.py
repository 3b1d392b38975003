"""What can be run here or downloaded: the catalogue, the files on this machine, and what fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec import catalog, discovery
from localspec.catalog import Catalogue, Choice, Listing
from localspec.discovery import LocalFile
from localspec.errors import LocalspecError
from localspec.fit import Verdict, estimate, gpus_of
from localspec.gguf_header import check_model_file
from localspec.hub.leftovers import Leftover, leftovers
from localspec.machine import Memory
from localspec.models.output import CONTEXT
from localspec.paths import real


@dataclass(frozen=True, slots=True)
class Overview:
    """``others`` are the files that no entry of the catalogue names; ``left`` is what interrupted
    downloads from the Hub left; ``notes`` say what could not be looked at; ``own_file`` is the
    person's own catalogue, there or not."""

    listings: tuple[Listing, ...]
    others: tuple[LocalFile, ...]
    left: tuple[Leftover, ...]
    notes: tuple[str, ...]
    own_file: Path


def overview() -> Overview:
    """Looks into folders and reads beginnings of files; asks no network."""
    catalogue = Catalogue.load()
    listings = catalogue.listings()
    survey = discovery.survey(catalogue.folders)
    listed = {real(c.path) for line in listings for c in line.choices if c.path}
    drafting = {real(d.path) for line in listings for d in line.drafters if d.path}
    left = tuple(one for one in leftovers() if one.kept)
    on_the_way = {real(path) for one in left for path in one.whole}
    known = listed | drafting | on_the_way
    others = tuple(f for f in survey.files if real(f.path) not in known)
    return Overview(tuple(listings), others, left, survey.notes, catalog.user_file())


def shown(line: Listing) -> Choice:
    """The file of an entry whose size and fit are told: the first that is here, else the first."""
    return next((c for c in line.choices if c.path), line.choices[0])


def what(file: LocalFile) -> str:
    """What a file is, in a few words."""
    if file.kind == "drafter":
        return f"{file.method} drafter"
    head = {True: ", MTP head", None: ", MTP?", False: ""}[file.has_mtp]
    return f"{file.arch} {file.quant or ''}".strip() + head


# ---- what fits -----------------------------------------------------------------------------------


def fits(choice: Choice, here: Memory) -> str:
    """A verdict, behind ``~`` where it goes by size alone; empty where it cannot be told."""
    if choice.path is not None:
        return file_fits(choice.path, here)
    return "" if choice.size is None else fits_by_size(choice.size, here)


def file_fits(path: Path, here: Memory) -> str:
    """By formula, from the file's header."""
    try:
        return estimate(check_model_file(path), here, n_ctx=CONTEXT).verdict
    except LocalspecError:
        return ""


def fits_by_size(size: int, here: Memory) -> str:
    """A guess for what has no header here: the file, and a tenth of it for everything else."""
    return "~" + rough_verdict(size, here)


def rough_verdict(size: int, here: Memory) -> Verdict:
    need = size + size // 10
    gpus = gpus_of(here)
    if gpus and need <= sum(d.free for d in gpus):
        return "GPU"
    beside = sum(d.free for d in gpus if not d.shares_ram)
    if need > here.free + beside:
        return "does not fit"
    return "GPU+CPU" if beside else "CPU"


def fitting_choice(choices: Sequence[Choice], here: Memory) -> Choice | None:
    """The quantisation of an entry to take: its first, the one its entry commends, where that
    fits; else the largest that does. None where none does."""
    known = [c for c in choices if c.size is not None]
    fitting = [c for c in known if rough_verdict(c.size or 0, here) != "does not fit"]
    if choices and (choices[0] in fitting or not known):
        return choices[0]
    return max(fitting, key=lambda c: c.size or 0, default=None)


def first_download(listings: Sequence[Listing], here: Memory) -> tuple[Listing, Choice] | None:
    """What to begin with where no model is here: of the models that have a drafter of their own,
    the largest that a GPU holds wholly; without a GPU the smallest, for each token reads all of
    it."""
    offered = [
        (line, choice)
        for line in listings
        if any(d.recommended and d.method != "ngram" for d in line.drafters)
        and (choice := line.choices[0]).size is not None
        and choice.reference is not None
    ]

    def size(offer: tuple[Listing, Choice]) -> int:
        return offer[1].size or 0

    on_gpu = [o for o in offered if rough_verdict(size(o), here) == "GPU"]
    if on_gpu:
        return max(on_gpu, key=size)
    rest = [o for o in offered if rough_verdict(size(o), here) != "does not fit"]
    return min(rest, key=size, default=None)
