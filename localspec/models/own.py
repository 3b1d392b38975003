"""The user's own catalogue, written: an entry for a model and its drafters."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from localspec import catalog
from localspec.catalog import Catalogue, locate
from localspec.catalogue_file import NAME, read_catalogue
from localspec.errors import LocalspecError, NameNeeded, UsageError
from localspec.gguf_header import GGUFHeader, check_header, check_model_file
from localspec.gguf_names import stem_of
from localspec.hub.files import choose, resolve
from localspec.hub.remote import read_remote
from localspec.pairing import check_pairing
from localspec.paths import kind_of
from localspec.reference import HubReference, parse_reference, reference_of
from localspec.whole_file import replacing


def add(words: str, drafters: Sequence[str], name: str | None = None) -> tuple[Path, str]:
    """Appends an entry for ``words`` with ``drafters`` to the user's file; returns file and name.

    Both may be paths, references to the Hub, or names of local files. Each is looked at first, and
    a drafter that does not fit is refused. Raises ``NameNeeded`` for a name that is taken or is
    none, and whatever the looks raise; the file stays as it was then.
    """
    target, source, stem = _looked_at(words)
    if target.is_drafter_only:
        raise UsageError(f"{words} is a drafter.", "Add its target, and give it with --drafter.")
    entry = name or re.sub(r"[^a-z0-9._-]+", "-", stem.lower()).strip("-._")
    if not re.fullmatch(NAME, entry):
        raise NameNeeded(
            f"{entry!r} cannot be the name of a model: a name has only letters, digits and . _ -, "
            "with a letter or digit first.",
            "Give another with --name.",
            "",
        )
    path = catalog.user_file()
    taken = read_catalogue(path).models if kind_of(path) == "file" else {}
    if entry in taken:
        free = next(x for i in count(2) if (x := f"{entry}-{i}") not in taken)
        raise NameNeeded(
            f"Your catalogue {path} has a model {entry} already.",
            "Choose another with --name.",
            free,
        )
    lines = ["", f"[models.{_key(entry)}]", f"title = {_string(target.name)}"]
    if licence := target.text("general.license"):
        lines.append(f"licence = {_string(licence)}")
    lines.append(f"source = {source}")
    used: set[str] = set()
    for words_of_drafter in drafters:
        header, source, stem = _looked_at(words_of_drafter)
        method = check_pairing(target, header)
        key = method if method not in used else re.sub(r"[^A-Za-z0-9._-]+", "-", stem)
        used.add(key)
        lines += ["", f"[models.{_key(entry)}.drafters.{_key(key)}]", f"method = {_string(method)}"]
        lines.append(f"source = {source}")
        if len(used) == 1:
            lines.append("recommended = true")
    if target.runs_mtp and "mtp" not in used:
        lines += ["", f"[models.{_key(entry)}.drafters.mtp]", 'method = "mtp"']
        lines += [] if used else ["recommended = true"]
    _append(path, lines)
    return path, entry


def _looked_at(words: str) -> tuple[GGUFHeader, str, str]:
    """The header of what the words mean, its source for the catalogue, and a name for it."""
    place = locate(words)
    if isinstance(place, Path):
        header = check_model_file(place)
        path = header.path.absolute()
        stored = reference_of(path)
        if stored is not None:  # of the cache: its snapshot goes with the next pull or rm
            asked = parse_reference(words)
            size = sum(shard.stat().st_size for shard in {header.path, *header.shards})
            stored = replace(stored, revision=asked.revision if asked else None)
            return header, _source(stored, size), stem_of(path.name)
        return header, f"{{ path = {_string(str(path))} }}", stem_of(path.name)
    remote = resolve(place.repo, place.revision)
    variant = choose(remote, place)
    if variant is None:
        raise UsageError(
            f"{words} leaves open which of its files is meant.",
            f"`localspec models inspect hf:{place.repo}` lists them.",
        )
    header = check_header(*read_remote(remote, variant))
    found = replace(place, file=variant.file)
    return header, _source(found, variant.size), stem_of(variant.file)


def _source(place: HubReference, size: int) -> str:
    assert place.file is not None
    parts = [f"repo = {_string(place.repo)}", f"file = {_string(place.file)}"]
    if place.revision is not None:
        parts.append(f"revision = {_string(place.revision)}")
    parts.append(f"size = {size}")
    return "{ " + ", ".join(parts) + " }"


def _append(path: Path, lines: Iterable[str]) -> None:
    """Adds to the file."""
    before = path.read_text("utf-8") if path.is_file() else "# See the top of localspec's own.\n"
    _write(path, before.rstrip("\n") + "\n" + "\n".join(lines) + "\n")


def has(name: str) -> bool:
    """Whether the user's own catalogue has an entry of that name."""
    path = catalog.user_file()
    return kind_of(path) == "file" and name in read_catalogue(path).models


def forget(name: str) -> Path:
    """Takes the entry out of the user's file, which it returns; the model's files stay, and so
    does all else that the file says. Raises ``UsageError`` where it cannot be told which lines
    are the entry's."""
    path = catalog.user_file()
    text = path.read_text("utf-8")
    starts = tuple(f"[models.{key}{end}" for key in (name, _string(name)) for end in "].")
    kept, going = [], False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            going = line.lstrip().startswith(starts)
        if not going:
            kept.append(line)
    said, left = tomllib.loads(text), tomllib.loads("".join(kept))
    del said["models"][name]
    if {"models": {}} | left != said:
        raise UsageError(
            f"{name} is written in {path} in a way that is not taken out here.",
            "Delete its lines in that file.",
        )
    _write(path, "".join(kept))
    return path


def _write(path: Path, text: str) -> None:
    """The whole file at once or not at all: it is read again before it takes the old one's
    place."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as beside:
            beside.write_text(text, encoding="utf-8")
            read_catalogue(beside)
    except OSError as error:
        raise LocalspecError(
            f"Your catalogue {path} cannot be written: {error.strerror}.", "Check the folder."
        ) from None
    Catalogue.load()


def _string(text: str) -> str:
    """A TOML string: JSON's escapes are TOML's, but DEL, which TOML wants escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _string(name)
