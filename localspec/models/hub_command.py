"""``localspec models drafters``, ``search``, ``add``, ``check``, and what a repository offers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from localspec import resources
from localspec.catalog import Catalogue, catalogue_name, locate
from localspec.catalogue_file import read_catalogue
from localspec.errors import (
    HubError,
    HubNotFound,
    HubUnreachable,
    LocalspecError,
    NotHere,
    UsageError,
)
from localspec.gguf_header import GGUFHeader, check_header, check_model_file
from localspec.gguf_names import label_among
from localspec.hub import client, files
from localspec.hub.files import RemoteRepo
from localspec.hub.plan import OpenChoice
from localspec.hub.remote import read_remote
from localspec.machine import Memory
from localspec.models import output, own
from localspec.models.checking import Checked, check_catalogue
from localspec.models.command import inspect_model
from localspec.models.drafters import (
    CHECKED_ON_HUB,
    Candidate,
    Found,
    find_drafters,
    listed_drafters,
)
from localspec.models.offers import Offer, offers
from localspec.reference import HubReference, find_cached, parse_reference, reference_of
from localspec.units import file_size

_SEARCHED = 20


def remote_headers(reference: HubReference) -> tuple[GGUFHeader, list[GGUFHeader]]:
    """The headers of what a reference means on the Hub, read by ranges."""
    remote = files.resolve(reference.repo, reference.revision)
    variant = files.choose(remote, reference)
    if variant is None:
        models = [v for v in remote.variants if v.part is None]
        labels = [label_among(models, v) for v in models]
        raise UsageError(
            f"{reference} holds several models: {', '.join(labels)}.",
            f"Name one, such as {files.words_for(remote, models[0])}.",
        )
    return read_remote(remote, variant)


# ---- what a repository offers --------------------------------------------------------------------


def offers_of(remote: RemoteRepo, reference: HubReference, here: Memory) -> tuple[Offer, ...]:
    """What the repository offers. Raises ``HubNotFound`` where it has no GGUF, or not the one that
    the reference names."""
    files.choose(remote, reference)
    return offers(remote, here)


def list_repository(reference: HubReference, *, as_json: bool) -> int:
    try:
        remote = files.resolve(reference.repo, reference.revision)
    except HubUnreachable:
        cached = find_cached(reference)
        if len(cached) == 1:  # then it is what was meant
            return inspect_model(str(reference_of(cached[0][0])), as_json=as_json)
        raise
    offered = offers_of(remote, reference, output.memory())
    if as_json:
        output.write_json([_offer_json(o) for o in offered])
        return 0
    console = output.console()
    table = output.table_of("file", "size", "fits", "here", "")
    for o in offered:
        shards = f" ({len(o.variant.files)} files)" if len(o.variant.files) > 1 else ""
        part = f" ({o.variant.part})" if o.variant.part else ""
        label = label_among(remote.variants, o.variant)
        table.add_row(
            label + shards + part,
            file_size(o.variant.size),
            o.fit.verdict if o.fit else "",
            "not usable" if o.problem else "yes" if o.here else "",
            "recommended" if o.recommended else "" if o.variant.complete else "incomplete",
        )
    console.print(table)
    for o in offered:
        if o.problem:
            console.print(f"\nWhat is here cannot be used: {o.problem}", soft_wrap=True)
            if o.path is not None and (words := reference_of(o.path)):
                console.print(f"To remove it: localspec models rm {words}", soft_wrap=True)
    best = next((o for o in offered if o.recommended), None)
    if best is not None and best.here:
        console.print(f"\nThe recommended one is here: --model {best.words}")
    elif best is not None:
        console.print(f"\nGet the recommended one with: localspec models pull {best.words}")
    elif any(o.fit is not None and not o.problem for o in offered):
        others = "the others" if any(o.problem for o in offered) else "them"
        console.print(
            f"\nNone of {others} fits this machine with a context of {output.CONTEXT:,} tokens."
        )
    return 0


def _offer_json(offer: Offer) -> dict[str, Any]:
    v = offer.variant
    return {
        "words": offer.words,
        "quant": v.quant,
        "part": v.part,
        "files": list(v.files),
        "size_bytes": v.size,
        "complete": v.complete,
        "here": offer.here,
        "problem": offer.problem or None,
        "fit": output.fit_json(offer.fit) if offer.fit else None,
        "recommended": offer.recommended,
    }


def choose_one(error: OpenChoice) -> UsageError:
    """Lists on stdout what a repository offers; returns the error with the one to take."""
    offered = _models_of(error.remote)
    console = output.console()
    for line in _choices(error.remote, offered):
        console.print(line, soft_wrap=True)
    words = _words_to_get(error.remote, offered)
    if any(o.recommended for o in offered):
        return UsageError(error.message, f"Recommended here: localspec models pull {words}")
    return UsageError(
        error.message,
        f"None of them fits this machine with a context of {output.CONTEXT:,} tokens; to have one "
        f"all the same: localspec models pull {words}",
    )


def _models_of(remote: RemoteRepo) -> list[Offer]:
    return [o for o in offers(remote, output.memory()) if o.variant.part is None]


def _choices(remote: RemoteRepo, offered: Sequence[Offer]) -> list[str]:
    """A line each: its name, size, parts, whether it fits, and which to take."""
    lines = []
    for o in offered:
        n = len(o.variant.files)
        words = [f"{label_among(remote.variants, o.variant):<16} {file_size(o.variant.size):>9}"]
        words += [f"{n} files"] * (n > 1)
        words += [o.fit.verdict] if o.fit else []
        words += ["recommended"] * o.recommended
        lines.append("  ".join(words))
    return lines


def _words_to_get(remote: RemoteRepo, offered: Sequence[Offer]) -> str:
    best = next((o for o in offered if o.recommended), None)
    return best.words if best else f"hf:{remote.repo}:QUANT"


def choice_explained(error: NotHere) -> NotHere:
    """The same error with what the repository offers in its hint, where the Hub answers."""
    reference = parse_reference(error.words)
    if reference is None or not error.open_choice:
        return error
    try:
        remote = files.resolve(reference.repo, reference.revision)
        offered = _models_of(remote)
    except LocalspecError as failed:
        return NotHere(error.message, f"{failed.message} {failed.hint}".strip(), error.words)
    hint = "\n".join(["It offers:", *(f"  {line}" for line in _choices(remote, offered))])
    hint += f"\nGet one with: localspec models pull {_words_to_get(remote, offered)}"
    return NotHere(error.message, hint if offered else error.hint, error.words)


# ---- drafters and search -------------------------------------------------------------------------


def drafters_of(words: str, *, ask_hub: bool = True) -> Found:
    """The drafters of the target that the words mean. Raises ``UsageError`` for a drafter."""
    catalogue = Catalogue.load()
    place = locate(words)
    reference = reference_of(place) if isinstance(place, Path) else place
    entry = catalogue_name(words, catalogue)
    if entry is None and reference is not None:
        entry = catalogue.of_repo(reference.repo)
    if isinstance(place, Path):
        header = check_model_file(place)
    else:
        try:
            header = check_header(*remote_headers(place))
        except HubNotFound:
            raise
        except HubError as error:
            known = listed_drafters(catalogue.drafters(entry)) if entry is not None else ()
            if not known:
                raise
            return Found(known, (f"They are the catalogue's, not checked: {error.message}",))
    if header.is_drafter_only:
        raise UsageError(f"{words} is a drafter itself.", "Give the target that it drafts for.")
    return find_drafters(header, catalogue, entry=entry, reference=reference, ask_hub=ask_hub)


def list_drafters(words: str, *, as_json: bool = False, offline: bool = False) -> int:
    found = drafters_of(words, ask_hub=not offline)
    if as_json:
        output.write_json(
            [asdict(c) | {"path": str(c.path) if c.path else None} for c in found.candidates]
        )
    else:
        _print_candidates(output.console(), words, found.candidates)
    for note in found.notes:
        output.say(note)
    return 0


def _print_candidates(console: Console, words: str, found: Sequence[Candidate]) -> None:
    good = [c for c in found if c.fits is not False]
    if good:
        table = output.table_of("drafter", "method", "size", "fits", "from")
        for c in good:
            fits = "yes" if c.fits else "not checked"
            where = "here" if c.here and c.source != "own" else c.source
            table.add_row(c.words, c.method, output.size(c.size), fits, where)
        console.print(table)
        for c in good[:1]:
            console.print(f"\nBest: {c.note or c.method}. " + _use(words, c))
    else:
        console.print(f"No drafter for {words} was found; ngram needs no file and always works.")
    bad = [c for c in found if c.fits is False]
    if bad:
        console.print("\nFound, but of no use with this target:")
        for c in bad:
            console.print(f"  {c.words}: {c.why}")
    if sum(c.source == "Hub" and c.fits is None for c in found):
        console.print(
            f"\nThe headers of the first {CHECKED_ON_HUB} candidates of the Hub were looked at; "
            "`localspec models inspect` looks at another."
        )


def _use(words: str, best: Candidate) -> str:
    if best.here:
        return f"Use it with: --model {words} --drafter {best.words}"
    return f"Get it with: localspec models pull {best.words}"


@dataclass(frozen=True, slots=True)
class FoundRepo:
    """A repository with GGUF files. ``words`` are what to type for it."""

    words: str
    downloads: int | None
    likes: int | None
    updated: str | None
    licence: str | None
    gated: bool


def search_hub(text: str) -> list[FoundRepo]:
    """Models with GGUF files on the Hub, by words in their names, most downloaded first."""
    found = client.listed(f"the search for {text!r}", limit=_SEARCHED, search=text, filter="gguf")
    return [
        FoundRepo(
            words=f"hf:{m.id}",
            downloads=m.downloads,
            likes=m.likes,
            updated=m.last_modified.date().isoformat() if m.last_modified else None,
            licence=next(
                (t.partition(":")[2] for t in m.tags or () if t.startswith("license:")), None
            ),
            gated=bool(m.gated),
        )
        for m in found
    ]


def nothing_found(text: str) -> HubNotFound:
    return HubNotFound(
        f"The Hub has no GGUF model whose name has the words {text!r}.",
        "Search for fewer words, such as the model's name alone.",
    )


def search(words: Sequence[str], *, as_json: bool = False) -> int:
    text = " ".join(words)
    rows = search_hub(text)
    if as_json:
        output.write_json([asdict(row) for row in rows])
        return 0
    if not rows:
        raise nothing_found(text)
    console = output.console()
    table = output.table_of("repository", "downloads", "likes", "updated", "licence")
    for row in rows:
        gated = " (gated)" if row.gated else ""
        table.add_row(
            f"{row.words}{gated}",
            f"{row.downloads or 0:,}",
            f"{row.likes or 0:,}",
            row.updated or "",
            row.licence or "",
        )
    console.print(table)
    console.print(f"\nWhat one offers: localspec models inspect {rows[0].words}")
    return 0


# ---- add and check -------------------------------------------------------------------------------


def add(words: str, drafters: Sequence[str], name: str | None = None) -> int:
    """Writes an entry into the user's own catalogue."""
    path, entry = own.add(words, drafters, name)
    console = output.console()
    console.print(f"Added {entry} to {path}.")
    if entry in read_catalogue(resources.catalogue_file()).models:
        console.print(f"It takes the place of the {entry} that comes with localspec.")
    console.print(f"Use it with: localspec bench --model {entry}", soft_wrap=True)
    return 0


def check(*, as_json: bool = False) -> int:
    """Asks the Hub about every entry. 1 when a file is not there, or not of the size that the
    catalogue says."""
    results = list(check_catalogue(Catalogue.load()))
    wrong = [r for r in results if r.problem]
    changed = [r for r in results if r.changed]
    if as_json:
        output.write_json([asdict(r) | {"changed": r.changed} for r in results])
    else:
        console = output.console()
        for r in results:
            console.print(f"{r.entry:<24} {_state(r)}", soft_wrap=True)
        right = len(results) - len(wrong) - len(changed)
        said = [f"{right} of {len(results)} files are as stated"]
        said += [f"{len(changed)} of another size"] if changed else []
        said += [f"{len(wrong)} not to be had"] if wrong else []
        console.print(f"\n{', '.join(said)}.")
    return 1 if wrong or changed else 0


def _state(checked: Checked) -> str:
    if checked.problem:
        return f"WRONG  {checked.problem}"
    if checked.changed:
        return f"SIZE   {checked.size:,} bytes; the catalogue says {checked.stated:,}"
    return f"ok     {file_size(checked.size or 0)}"
