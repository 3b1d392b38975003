"""``localspec models list`` and ``inspect``; nothing here asks the network."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from localspec.catalog import Listing, locate
from localspec.discovery import LocalFile
from localspec.fit import Fit, estimate
from localspec.gguf_header import GGUFHeader, joined, read_header
from localspec.hub.leftovers import Leftover
from localspec.machine import Memory
from localspec.models import output
from localspec.models.inspection import Inspection, inspect, inspect_file
from localspec.models.overview import fits, fits_by_size, overview, shown, what
from localspec.reference import parse_reference
from localspec.units import file_size, parameters

# ---- list ----------------------------------------------------------------------------------------


def list_models(*, as_json: bool = False) -> int:
    seen = overview()
    here = output.memory()
    if as_json:
        output.write_json(
            {
                "catalogue": [_listing_json(line, here) for line in seen.listings],
                "files": [_file_json(f, here) for f in seen.others],
                "unfinished": [_left_json(one) for one in seen.left],
                "notes": list(seen.notes),
                "own_catalogue": str(seen.own_file),
            }
        )
        return 0
    console = output.console()
    wide = console.width >= output.WIDE
    title = ["title"] if wide else []
    table = output.table_of("model", *title, "size", "fits", "here", "drafters")
    for line in seen.listings:
        choice = shown(line)
        cells = [
            line.name,
            *([line.title] if wide else []),
            output.size(choice.size),
            fits(choice, here),
        ]
        table.add_row(*cells, _here(line), _drafters(line))
    console.print(table)
    console.print(
        "\nSizes and fits: of what is here, else of the first quantisation, for "
        f"{output.CONTEXT:,} tokens (~: by size alone). Drafters: * auto, - not here. "
        "Get a model with `localspec models pull NAME`."
    )
    for line in seen.listings:
        if line.missing and not any(c.reference for c in line.choices):
            console.print(line.missing)
    _print_files(console, seen.others, here, wide=wide)
    for one in seen.left:
        console.print(_left(one), soft_wrap=True)
    for note in seen.notes:
        output.say(note)
    state = "is read too" if seen.own_file.is_file() else "is read too when it is there"
    console.print(f"\nYour own catalogue, {seen.own_file}, {state}.")
    return 0


def _print_files(
    console: Console, others: Sequence[LocalFile], here: Memory, *, wide: bool
) -> None:
    usable = [f for f in others if f.kind in ("model", "drafter")]
    if usable:
        owner = ["from"] if wide else []
        table = output.table_of("also on this machine", "size", "fits", "what", *owner)
        for file in usable:
            verdict = fits_by_size(file.size, here) if file.kind == "model" else ""
            cells = [file.name, output.size(file.size), verdict, what(file)]
            table.add_row(*cells, *([file.owner] if wide else []))
        console.print()
        console.print(table)
    for file in others:
        if file.kind == "broken":
            console.print(f"not usable: {file.problem}")
    copies = [f for f in others if f.copies]
    for file in copies:
        more = ", ".join(str(c) for c in file.copies)
        console.print(f"{file.name} is here more than once: {file.path}, {more}.")


def _left(one: Leftover) -> str:
    """What an interrupted download left, and what can be done."""
    words = shlex.quote(one.words)
    of = "" if one.size is None else f" of {file_size(one.size)}"
    here = f"unfinished: {one.words}, {file_size(one.kept)}{of} are here"
    if one.busy:
        return f"{here}; it is being downloaded."
    return f"{here}. Go on: localspec models pull {words}; remove: localspec models rm {words}"


def _here(line: Listing) -> str:
    if not any(c.quant for c in line.choices):
        return "yes" if line.path else "no"
    return ", ".join(c.quant for c in line.choices if c.path) or "no"


def _drafters(line: Listing) -> str:
    return ", ".join(
        ("-" if d.absent else "") + d.name + ("*" if d.recommended else "") for d in line.drafters
    )


def _listing_json(line: Listing, here: Memory) -> dict[str, Any]:
    return {
        "name": line.name,
        "title": line.title,
        "licence": line.licence,
        "files": [
            {
                "quant": c.quant or None,
                "path": _text(c.path),
                "reference": _text(c.reference),
                "size_bytes": c.size,
                "fits": fits(c, here) or None,
            }
            for c in line.choices
        ],
        "drafters": [
            {
                "name": d.name,
                "method": d.method,
                "path": _text(d.path),
                "pull": d.absent or None,
                "recommended": d.recommended,
                "note": d.note,
            }
            for d in line.drafters
        ],
    }


def _file_json(file: LocalFile, here: Memory) -> dict[str, Any]:
    verdict = fits_by_size(file.size, here) if file.kind == "model" else None
    copies = [str(c) for c in file.copies]
    return {**asdict(file), "path": str(file.path), "copies": copies, "fits": verdict}


def _left_json(one: Leftover) -> dict[str, Any]:
    return {
        "pull": one.words,
        "here_bytes": one.kept,
        "size_bytes": one.size,
        "being_downloaded": one.busy,
    }


def _text(value: object) -> str | None:
    return None if value is None else str(value)


# ---- inspect -------------------------------------------------------------------------------------


def inspect_model(words: str, *, as_json: bool = False, with_fit: bool = False) -> int:
    reference = parse_reference(words)
    if reference is not None and reference.file is None and reference.quant is None:
        from localspec.models.hub_command import list_repository

        return list_repository(reference, as_json=as_json)
    found, header = inspected(words)
    fit = fit_of(found, header, output.memory()) if with_fit else None
    if as_json:
        said = None if fit is None else output.fit_json(fit)
        output.write_json({**_inspection_json(found), "fit": said})
        return 0
    _print_inspection(output.console(), found, fit)
    return 0


def inspected(words: str) -> tuple[Inspection, GGUFHeader]:
    """The facts of a file here, or still on the Hub, and its header."""
    place = locate(words)
    if isinstance(place, Path):
        header = read_header(place)
        return inspect_file(header), header
    from localspec.models.hub_command import remote_headers

    first, others = remote_headers(place)
    return inspect(first, others, f"hf:{first.path.as_posix()}"), joined(first, others)


def fit_of(found: Inspection, header: GGUFHeader, here: Memory) -> Fit | None:
    """None of what is no whole model."""
    if found.method is not None or found.problem or not header.layers:
        return None
    shards = [read_header(s) for s in header.shards if s != header.path]
    return estimate(joined(header, shards), here, n_ctx=output.CONTEXT)


def _print_inspection(console: Console, found: Inspection, fit: Fit | None) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for name, text in facts(found, fit):
        if text:
            table.add_row(name, text)
    console.print(table)


def facts(found: Inspection, fit: Fit | None) -> Iterable[tuple[str, str]]:
    """What is told of a file, as name and text; some texts are empty."""
    i = found
    yield "name", i.name
    yield "file", i.where + (f" ({i.files} files)" if i.files > 1 else "")
    yield "what", i.kind
    yield "architecture", i.arch + (" (recurrent states)" if i.recurrent else "")
    active = f", {parameters(i.active)} active" if i.active else ""
    yield "parameters", f"{parameters(i.parameters)}{active}"
    yield "size", file_size(i.size) + ("" if i.complete else ", TRUNCATED")
    total = sum(size for _, _, size in i.mix) or 1
    mix = ", ".join(
        f"{name} {size / total:.0%}" for name, _, size in i.mix if size / total >= 0.005
    )
    yield "quantisation", f"{i.quant or 'not stated'} (bytes: {mix})" if mix else i.quant or ""
    yield "context", "" if i.context is None else f"{i.context:,} tokens"
    heads = f", {i.heads} heads, {i.kv_heads} of keys and values" if i.heads and i.kv_heads else ""
    yield "layers", f"{i.layers}, {i.width} wide{heads}" if i.layers else ""
    yield "experts", f"{i.experts_used} of {i.experts}" if i.experts else ""
    yield "vocabulary", f"{i.vocab:,} tokens ({i.tokenizer})" if i.vocab else ""
    thinking = ", thinking can be switched" if i.can_think else ""
    yield "template", f"{len(i.template):,} characters{thinking}" if i.template else "none"
    yield "MTP head", _mtp(i)
    yield "drafts for", _drafts_for(i)
    yield "can be drafted", _drafted(i)
    yield "licence", i.licence or "not stated"
    yield "made from", ", ".join(i.made_from)
    yield "fits", fit.sentence if fit else ""
    yield "problem", i.problem


def _mtp(i: Inspection) -> str:
    if i.method is not None or not i.mtp_claimed:
        return "" if i.method is not None else "none"
    if not i.mtp_layers:
        return f"stated ({i.mtp_claimed}), but its tensors were left out"
    if not i.mtp_runs:
        return f"{i.mtp_layers} layers, which this llama.cpp does not run"
    return f"{i.mtp_layers} {'layer' if i.mtp_layers == 1 else 'layers'}: --drafter mtp"


def _drafts_for(i: Inspection) -> str:
    if i.method is None:
        return ""
    parts = [f"method {i.method}"]
    if i.target_layers:
        parts.append(f"reads the target's layers {', '.join(map(str, i.target_layers))}")
    if i.block_size:
        parts.append(f"blocks of {i.block_size}")
    if i.draft_vocab:
        parts.append(f"drafts from {i.draft_vocab:,} tokens")
    return ", ".join(parts)


def _drafted(i: Inspection) -> str:
    if i.method is not None or i.kind != "a language model":
        return ""
    reads = "EAGLE-3, DFlash, " if i.tappable else ""
    own_head = "its own MTP head, " if i.mtp_runs else ""
    return f"by {own_head}{reads}a draft model of its vocabulary, ngram"


def _inspection_json(found: Inspection) -> dict[str, Any]:
    mix = [{"type": t, "parameters": n, "bytes": size} for t, n, size in found.mix]
    return {**asdict(found), "mix": mix, "can_think": found.can_think}
