"""The lines of the Models screen: what each stands for, and what its columns say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from localspec.errors import LocalspecError
from localspec.gguf_names import stem_of
from localspec.paths import kind_here
from localspec.reference import reference_of
from localspec.tui.pulls import Pull
from localspec.units import file_size

if TYPE_CHECKING:  # imported in other threads, after the first paint
    from localspec.catalog import Choice, DrafterSpec, Listing
    from localspec.discovery import LocalFile
    from localspec.hub.leftovers import Leftover
    from localspec.machine import Memory
    from localspec.models.overview import Overview

Kind = Literal["entry", "file", "drafter", "broken", "pull"]

HERE = "Ready on this machine"
OTHERS = "Other files here"
PULLS = "Downloads from the Hub"
CATALOGUE = "To download"
DRAFTERS = "Drafters here"
BROKEN = "Not usable"
GROUPS = (HERE, OTHERS, PULLS, CATALOGUE, DRAFTERS, BROKEN)


@dataclass(frozen=True, slots=True)
class Row:
    """One line. ``words`` are what ``--model`` and ``localspec models`` take; ``path`` is None of
    what is not here, and ``kept`` the bytes that an interrupted download left of it."""

    key: str
    group: str
    kind: Kind
    name: str
    words: str
    title: str = ""
    size: int | None = None
    path: Path | None = None
    owner: str = ""
    drafters: tuple[DrafterSpec, ...] = ()
    listing: Listing | None = None
    choice: Choice | None = None
    pull: Pull | None = None
    kept: int = 0
    about: str = ""
    """In place of drafters."""
    problem: str = ""

    def holds(self, words: Sequence[str]) -> bool:
        """Whether each of the words stands somewhere in the line."""
        methods = " ".join(f"{d.name} {d.method}" for d in self.drafters)
        text = f"{self.name} {self.title} {self.words} {methods} {self.about} {self.owner}".lower()
        return all(word in text for word in words)


def read() -> Overview:
    """What is there. Reads the disk."""
    from localspec.models.overview import overview

    return overview()


def rows(seen: Overview, pulls: Sequence[Pull]) -> list[Row]:
    """All lines by groups. Models of the catalogue keep its order. ``pulls``: those whose files
    ``seen`` may not have yet."""
    found = [
        *_entries(seen, pulls),
        *_files(seen),
        *_of_catalogue(seen),
        *(_pull_row(p) for p in pulls if p.entry is None),
        *_left(seen, pulls),
    ]
    order = {group: i for i, group in enumerate(GROUPS)}
    return sorted(found, key=lambda row: order[row.group])


def _entries(seen: Overview, pulls: Sequence[Pull]) -> Iterator[Row]:
    for line in seen.listings:
        pull = next((p for p in reversed(pulls) if p.entry == line.name), None)
        here = [c for c in line.choices if c.path is not None]
        for choice in here or [line.choices[0]]:
            words = f"{line.name}:{choice.quant}" if choice.quant and here else line.name
            missing = line.missing if choice.reference is None and not here else ""
            yield Row(
                key=f"entry {words}",
                group=HERE if here else CATALOGUE,
                kind="entry",
                name=f"{line.name} {choice.quant}" if choice.quant and here else line.name,
                words=words,
                title=line.title,
                size=choice.size,
                path=choice.path,
                drafters=line.drafters,
                listing=line,
                choice=choice,
                pull=pull if not here or (pull and pull.state != "done") else None,
                kept=sum(one.kept for one in seen.left if not here and _is_of(one, line)),
                problem=missing,
            )


def _files(seen: Overview) -> Iterator[Row]:
    from localspec.models.overview import what

    for file in seen.others:
        kind, group = _kind_of(file)
        place = str(reference_of(file.path) or file.path)
        if kind is not None:
            yield Row(
                key=f"file {file.path}",
                group=group,
                kind=kind,
                name=file.name,
                words=str(file.path),
                title=file.title,
                size=file.size,
                path=file.path,
                owner=file.owner,
                about=what(file) if kind != "broken" else "",
                problem=file.problem.replace(str(file.path), place),
            )


def _kind_of(file: LocalFile) -> tuple[Kind | None, str]:
    match file.kind:
        case "model":
            return "file", OTHERS
        case "drafter":
            return "drafter", DRAFTERS
        case "broken":
            return "broken", BROKEN
        case _:
            return None, ""


def _of_catalogue(seen: Overview) -> Iterator[Row]:
    """The catalogue's drafters that were downloaded."""
    from localspec.discovery import size_of

    once: set[Path] = set()
    for line in seen.listings:
        for drafter in line.drafters:
            path = drafter.path
            if path is None or path in once or reference_of(path) is None:
                continue
            if kind_here(path) != "file":
                continue
            once.add(path)
            yield Row(
                key=f"file {path}",
                group=DRAFTERS,
                kind="drafter",
                name=path.stem,
                words=str(path),
                size=size_of(path),
                path=path,
                about=f"{drafter.method} for {line.name}",
            )


def _pull_row(pull: Pull) -> Row:
    return Row(f"pull {pull.name}", PULLS, "pull", pull.name, pull.words, size=pull.size, pull=pull)


def _left(seen: Overview, pulls: Sequence[Pull]) -> Iterator[Row]:
    """What earlier downloads left of files that no line of the catalogue or of a download tells."""
    absent = [line for line in seen.listings if not any(c.path for c in line.choices)]
    known = {p.words for p in pulls if p.entry is None}
    on_the_way = {path for pull in pulls for path in pull.brings}
    for one in seen.left:
        if one.words in known or on_the_way.intersection([*one.parts, *one.whole]):
            continue
        if any(_is_of(one, line) for line in absent):
            continue
        name = (one.file or one.repo).rpartition("/")[2]
        yield Row(
            key=f"pull {one.words}",
            group=PULLS,
            kind="pull",
            name=one.words,
            words=one.words,
            size=one.size,
            kept=one.kept,
            problem=f"{'on its way elsewhere' if one.busy else 'stopped, p goes on'}: {name}",
        )


def _is_of(left: Leftover, line: Listing) -> bool:
    """Whether an entry's own download goes on with it."""
    asked = [c.reference for c in line.choices if c.reference and c.reference.repo == left.repo]
    if left.file is None:
        return bool(asked)
    stem = stem_of(left.file)
    return any(r.file is not None and stem_of(r.file) == stem for r in asked)


def pull_words(pull: Pull) -> str:
    """How a download stands, and what can be done."""
    files = [file.path.rsplit("/", 1)[-1] for file in pull.progress.files] if pull.progress else []
    named = ", ".join(files[:2]) + (f" and {len(files) - 2} more" if len(files) > 2 else "")
    match pull.state:
        case "asking":
            return "asking the Hub for its files; x stops that"
        case "downloading":
            return f"on its way, x stops it: {named}"
        case "cancelled":
            return f"stopped, p goes on: {named}" if named else "stopped, p begins again"
        case "failed":
            return f"p tries again: {pull.error.message}" if pull.error else "p tries again"
        case "done":
            return ""


# ---- what fits ---------------------------------------------------------------------------------


def verdicts(lines: Sequence[Row], here: Memory) -> dict[str, str]:
    """By key of the line: where it fits, ``~`` before what goes by size alone, nothing where that
    is no question or the size not known yet. Reads headers."""
    from localspec.models import overview

    found = {}
    for row in lines:
        found[row.key] = ""
        if row.choice is not None:
            found[row.key] = overview.fits(row.choice, here)
        elif row.kind in ("file", "pull") and row.size is not None:
            found[row.key] = overview.fits_by_size(row.size, here)
    return found


def begun_of(listing: Listing) -> dict[str, int]:
    """Bytes that interrupted downloads left of an entry's files, by quantisation. Asks the Hub,
    whose checksums name them."""
    from localspec.hub.files import choose, resolve

    first = listing.choices[0].reference
    if first is None:
        return {}
    remote = resolve(first.repo, first.revision)
    kept = {}
    for choice in listing.choices:
        with suppress(LocalspecError):  # the Hub has it no longer
            variant = choose(remote, choice.reference or first)
            if variant is not None:
                kept[choice.quant] = sum(f.size - f.missing for f in remote.files_of(variant))
    return {quant: left for quant, left in kept.items() if left}


def quantisations(
    listing: Listing, here: Memory, kept: Mapping[str, int]
) -> list[tuple[str, str, str]]:
    """What ``Choose`` shows of the files that an entry offers; the Hub is asked for sizes that the
    catalogue does not state. The one to take says so, and what was begun."""
    from localspec.hub.files import resolve
    from localspec.models.overview import fits, fitting_choice

    choices = list(listing.choices)
    first = choices[0].reference
    if first is not None and any(c.size is None for c in choices):
        remote = resolve(first.repo, first.revision)
        sizes = {file: v.size for v in remote.variants for file in v.files}
        choices = [
            replace(c, size=c.size or sizes.get(c.reference.file or "")) if c.reference else c
            for c in choices
        ]
    best = fitting_choice(choices, here)
    shown = []
    for choice in choices:
        size = file_size(choice.size) if choice.size is not None else "size unknown"
        words = [f"{size:>9}", verdict_words(fits(choice, here))]
        words += ["here already"] if choice.path else []
        words += [f"‖ {file_size(kept[choice.quant])} kept"] if choice.quant in kept else []
        words += ["★ recommended"] if choice is best else []
        shown.append(
            (choice.quant, choice.quant or listing.title, "  ".join(w for w in words if w))
        )
    return sorted(shown, key=lambda c: best is None or c[0] != best.quant)


def verdict_words(verdict: str) -> str:
    """A sign and a word: never colour alone."""
    rough, plain = ("~", verdict[1:]) if verdict.startswith("~") else ("", verdict)
    if not plain:
        return ""
    return "✗ too large" if plain == "does not fit" else f"✓ {rough}{plain}"


def drafter_choices(drafters: Sequence[DrafterSpec]) -> list[tuple[str, str, str]]:
    """What ``Choose`` shows of a target's drafters, the recommended one first."""

    def about(d: DrafterSpec) -> str:
        words = ["★ recommended"] if d.recommended else []
        words += [_to_download(d.size)] if d.absent else []
        return " · ".join([*words, *([d.note] if d.note else [])])

    ranked = sorted(drafters, key=lambda d: (not d.recommended, d.method == "ngram"))
    return [
        *((d.name, d.name, about(d)) for d in ranked),
        ("none", "none", "plain decoding, the baseline"),
    ]


def drafters_to_get(drafters: Sequence[DrafterSpec]) -> list[tuple[str, str, str]]:
    """What ``Choose`` shows of the drafters to bring along with their target."""
    *those, none = drafter_choices(drafters)
    sizes = [d.size for d in drafters if d.absent]
    if len(sizes) > 1:
        known = sum(size for size in sizes if size is not None)
        those.append(("all", "all", _to_download(None if None in sizes else known)))
    return [*those, none]


def with_sizes(drafters: Sequence[DrafterSpec]) -> list[DrafterSpec]:
    """The same; the Hub is asked for sizes that the catalogue does not state."""
    return [replace(d, size=_size_of(d)) if d.absent else d for d in drafters]


def _size_of(drafter: DrafterSpec) -> int | None:
    from localspec.hub.files import choose, resolve
    from localspec.reference import parse_reference

    place = parse_reference(drafter.absent)
    if drafter.size is not None or place is None:
        return drafter.size
    with suppress(LocalspecError):  # the download will say what is wrong
        variant = choose(resolve(place.repo, place.revision), place)
        return variant.size if variant is not None else None
    return None


def _to_download(size: int | None) -> str:
    return "to download" if size is None else f"{file_size(size)} to download"
