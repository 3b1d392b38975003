"""What a GGUF says of itself, put together for people and for --json, from its header alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from localspec.architectures import RECURRENT, TAPPABLE
from localspec.errors import ModelFileError
from localspec.gguf_header import (
    GGUFHeader,
    check_header,
    describe_kind,
    joined,
    read_header,
)


@dataclass(frozen=True, slots=True)
class Inspection:
    """The facts of one model or drafter; what it does not say is None.

    ``size`` is in bytes, all ``files`` together; ``parameters`` is counted from the tensors, and
    ``active`` how many of them a token uses in a mixture of experts. ``mix`` gives the parameters
    and bytes of each tensor type, the largest share first. ``problem`` says why llama.cpp would
    not load it as a target or drafter; ``complete`` whether all bytes are there.
    """

    name: str
    where: str
    kind: str
    arch: str
    files: int
    size: int
    complete: bool
    problem: str
    parameters: int
    active: int | None
    quant: str | None
    mix: tuple[tuple[str, int, int], ...]
    context: int | None
    layers: int | None
    width: int | None
    heads: int | None
    kv_heads: int | None
    experts: int | None
    experts_used: int | None
    recurrent: bool
    vocab: int | None
    tokenizer: str | None
    template: str | None
    mtp_layers: int
    mtp_claimed: int
    mtp_runs: bool
    tappable: bool
    method: str | None
    target_layers: tuple[int, ...]
    block_size: int | None
    draft_vocab: int | None
    licence: str | None
    made_from: tuple[str, ...]

    @property
    def can_think(self) -> bool:
        """Whether its template can switch thinking."""
        return self.template is not None and "enable_thinking" in self.template


def inspect_file(header: GGUFHeader) -> Inspection:
    """A file of this machine, whose header is read; reads those of its further shards."""
    others = [read_header(shard) for shard in header.shards if shard != header.path]
    return inspect(header, others, str(header.path))


def inspect(first: GGUFHeader, others: Sequence[GGUFHeader], where: str) -> Inspection:
    """What the headers of a file, or of all shards of a split model, say. Reads nothing more."""
    header = joined(first, others)
    kind = describe_kind(header)
    problem = ""
    try:
        check_header(first, others)
    except ModelFileError as error:
        problem = f"{error.message} {error.hint}".strip()
    parameters = sum(math.prod(t.shape) for t in header.tensors)
    return Inspection(
        name=header.name,
        where=where,
        kind=kind,
        arch=header.arch,
        files=1 + len(others),
        size=sum(h.file_size for h in (first, *others)),
        complete=all(h.file_size >= h.expected_size for h in (first, *others)),
        problem=problem,
        parameters=parameters,
        active=_active(header, parameters),
        quant=header.file_type,
        mix=_mix(header),
        context=header.number("context_length"),
        layers=header.layers,
        width=header.number("embedding_length"),
        heads=_per_layer(header, "attention.head_count"),
        kv_heads=_per_layer(header, "attention.head_count_kv"),
        experts=header.number("expert_count") or None,
        experts_used=header.number("expert_used_count") or None,
        recurrent=header.arch in RECURRENT,
        vocab=header.n_vocab,
        tokenizer=_tokenizer(header),
        template=header.template,
        mtp_layers=header.mtp_layers,
        mtp_claimed=header.number("nextn_predict_layers") or 0,
        mtp_runs=header.runs_mtp,
        tappable=header.arch in TAPPABLE,
        method=method_of_drafter(header),
        target_layers=_ints(header, "target_layers"),
        block_size=header.number("block_size"),
        draft_vocab=next((t.shape[0] for t in header.tensors if t.name == "d2t"), None),
        licence=header.text("general.license"),
        made_from=made_from(header),
    )


def method_of_drafter(header: GGUFHeader) -> str | None:
    """The method of a file that can only draft; None of a model."""
    families = {"EAGLE-3": "eagle3", "DFlash": "dflash", "DSpark": "dspark"}
    family = header.drafter_family
    return None if family is None else families.get(family, "mtp")


def _active(header: GGUFHeader, parameters: int) -> int | None:
    """Of a mixture of experts, the parameters that one token uses."""
    count, used = header.number("expert_count"), header.number("expert_used_count")
    if not count or not used:
        return None
    experts = sum(math.prod(t.shape) for t in header.tensors if "_exps." in t.name)
    return parameters - experts + experts * used // count if experts else None


def _mix(header: GGUFHeader) -> tuple[tuple[str, int, int], ...]:
    shares: dict[str, tuple[int, int]] = {}
    for tensor in header.tensors:
        count, size = shares.get(tensor.type, (0, 0))
        shares[tensor.type] = (count + math.prod(tensor.shape), size + tensor.n_bytes)
    ranked = sorted(shares.items(), key=lambda item: -item[1][1])
    return tuple((name, count, size) for name, (count, size) in ranked)


def _per_layer(header: GGUFHeader, key: str) -> int | None:
    """A number that may be given for each layer: then the largest."""
    found = header.kv.get(f"{header.arch}.{key}")
    if isinstance(found, tuple):
        return max((n for n in found if isinstance(n, int)), default=None)
    return header.number(key)


def _ints(header: GGUFHeader, key: str) -> tuple[int, ...]:
    found = header.kv.get(f"{header.arch}.{key}")
    return tuple(n for n in found if isinstance(n, int)) if isinstance(found, tuple) else ()


def _tokenizer(header: GGUFHeader) -> str | None:
    names = [header.text(f"tokenizer.ggml.{key}") for key in ("model", "pre")]
    return " ".join(n for n in names if n) or None


def made_from(header: GGUFHeader) -> tuple[str, ...]:
    """The models it says it was made from, as owner/name where it gives their address."""
    count = header.kv.get("general.base_model.count")
    found = []
    for i in range(count if isinstance(count, int) else 0):
        url = header.text(f"general.base_model.{i}.repo_url") or ""
        name = header.text(f"general.base_model.{i}.name") or ""
        found.append(url.partition("huggingface.co/")[2].strip("/") or name)
    return tuple(name for name in found if name)
