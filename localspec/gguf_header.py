"""What a GGUF says of itself, read in Python before llama.cpp may touch the file.

llama.cpp maps a truncated file happily and dies of it at the first use, and its complaints about
files of another kind name no remedy; so every file is looked at here first. The look is fast (long
arrays, the vocabulary above all, are stepped over, not decoded) and trusts no number in the file:
nothing is allocated by a count or a length that the file itself claims.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, with the limits of llama.cpp's
ggml/src/gguf.cpp. All multi-byte numbers are little-endian.
"""

from __future__ import annotations

import difflib
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from localspec.architectures import KNOWN, MTP, MTP_CHAINED, RESPELLED
from localspec.errors import ModelFileError
from localspec.paths import kind_here, written

# Architectures that draft for a target and cannot write text alone, by the field's name for them.
DRAFTER_FAMILIES: Mapping[str, str] = {
    "eagle3": "EAGLE-3",
    "dflash": "DFlash",
    "gemma4-assistant": "Gemma 4 MTP",
}
_METHODS = {"eagle3": "eagle3", "dflash": "dflash", "gemma4-assistant": "mtp"}
SAMPLING_KEYS = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repeat_penalty",
    "penalty_last_n": "repeat_last_n",
}
"""Of ``general.sampling.``: what a model's makers recommend, and our names for it."""
_NO_WEIGHTS = "a vocabulary without weights"

# llama.cpp loads these, but they generate no text.
_EMBEDDING_ARCHS = frozenset(
    {"bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2"}
    | {"jina-bert-v3", "eurobert", "gemma-embedding", "llama-embed", "t5encoder"}
)
_SPEECH_ARCHS = frozenset({"wavtokenizer-dec", "qwen3tts", "pockettts"})

# Parts of models that llama.cpp keeps in a file of their own (mmproj): in the language model's file
# they make it refuse the whole ("wrong number of tensors").
_FOREIGN_PARTS = {"v.": "vision", "a.": "audio", "mm.": "projector"}

# id: name, elements a block, bytes a block (ggml.c of llama-cpp-python 0.3.36).
_TENSOR_TYPES: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
    42: ("Q2_0", 64, 18),
}

_LAYOUTS = {name: (block, size) for name, block, size in _TENSOR_TYPES.values()}

# llama.h of llama-cpp-python 0.3.36, enum llama_ftype
_FILE_TYPES: Mapping[int, str] = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4",
    39: "NVFP4",
    40: "Q1_0",
    41: "Q2_0",
}

_TOKENS = "tokenizer.ggml.tokens"
_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
# Type ids of metadata values: struct code and bytes.
_SCALARS: Mapping[int, tuple[str, int]] = {
    0: ("B", 1),
    1: ("b", 1),
    2: ("H", 2),
    3: ("h", 2),
    4: ("I", 4),
    5: ("i", 4),
    6: ("f", 4),
    7: ("?", 1),
    10: ("Q", 8),
    11: ("q", 8),
    12: ("d", 8),
}
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")

_CHUNK = 1 << 20
_GLANCE = 1 << 15  # what stands before the vocabulary, chat template included, is mostly shorter
_HEADER_LIMIT = 1 << 28  # the largest vocabularies make headers of some 20 MB
_KEPT_STRING = 1 << 22  # chat templates stay far below
_KEPT_NUMBERS = 1024
_KEPT_STRINGS = 64
_NAME_LIMIT = 1 << 16  # of keys and tensor names; a longer one is damage
# What no real model comes near; more is damage, and must not keep this reader busy.
_TENSORS_LIMIT = 1 << 17
_KEYS_LIMIT = 1 << 16
_ITEMS_LIMIT = 1 << 24
_DIMS_LIMIT = 4
_ELEMENTS_LIMIT = 1 << 43  # of one tensor; more is damage, not a model
_BLOCK = re.compile(r"blk\.(\d+)\.")
_SHARD = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$", re.IGNORECASE)

AGAIN = "Download it again."


class Readable(Protocol):
    """What of a binary file is used here."""

    def seek(self, offset: int, /) -> int: ...
    def read(self, size: int, /) -> bytes: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Skipped:
    """A metadata value that was stepped over: ``length`` items, too many to be kept, in the bytes
    ``start`` to ``stop`` of the file."""

    length: int
    start: int = field(default=0, compare=False)
    stop: int = field(default=0, compare=False)

    def __len__(self) -> int:
        return self.length


Value = int | float | bool | str | tuple[int | float | bool | str, ...] | Skipped


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: ``shape`` fastest dimension first, ``offset`` from the start of the data."""

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """The header of one file. ``expected_size`` is where its last tensor ends, in bytes.

    ``shards`` are all files of a split model, this one (the first) included; ``check_model_file``
    puts the tensors of all of them into ``tensors``. ``data`` is where the first tensor starts.
    ``opener`` opens a file that is not ``path`` on this machine (one on the Hub).
    """

    path: Path
    version: int
    arch: str
    kv: dict[str, Value]
    tensors: tuple[TensorInfo, ...]
    file_size: int
    expected_size: int
    shards: tuple[Path, ...]
    data: int = 0
    opener: Callable[[], Readable] | None = field(default=None, compare=False, repr=False)

    def opened_by(self, opener: Callable[[], Readable]) -> GGUFHeader:
        return replace(self, opener=opener)

    def number(self, key: str) -> int | None:
        """An integer under the architecture's own prefix, such as ``block_count``."""
        value = self.kv.get(f"{self.arch}.{key}")
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def text(self, key: str) -> str | None:
        value = self.kv.get(key)
        return value if isinstance(value, str) else None

    @property
    def name(self) -> str:
        return self.text("general.name") or self.path.stem

    @property
    def file_type(self) -> str | None:
        """The quantisation that its makers call it by; the tensors' own types may be mixed."""
        value = self.kv.get("general.file_type")
        return _FILE_TYPES.get(value) if isinstance(value, int) else None

    @property
    def n_vocab(self) -> int | None:
        tokens = self.kv.get(_TOKENS)
        return len(tokens) if isinstance(tokens, tuple | Skipped) else self.number("vocab_size")

    @property
    def template(self) -> str | None:
        return self.text("tokenizer.chat_template")

    @property
    def sampling(self) -> dict[str, float]:
        """The sampler that its makers recommend, in the names of SamplerSettings."""
        given = ((n, self.kv.get(f"general.sampling.{key}")) for key, n in SAMPLING_KEYS.items())
        return {name: float(value) for name, value in given if isinstance(value, int | float)}

    @property
    def layers(self) -> int | None:
        """Layers of the model itself, MTP layers not counted (llama.cpp's n_layer)."""
        count = self.number("block_count")
        return None if count is None else count - (self.number("nextn_predict_layers") or 0)

    @property
    def mtp_layers(self) -> int:
        """MTP layers that are really there: some files keep the key and dropped the tensors."""
        claimed = self.number("nextn_predict_layers") or 0
        if self.arch == "gemma4-assistant":  # which is nothing else
            return claimed
        there = sum(t.name.endswith(".nextn.eh_proj.weight") for t in self.tensors)
        return claimed if there >= claimed else 0

    @property
    def runs_mtp(self) -> bool:
        """Whether llama.cpp runs the MTP layers of this file."""
        several = self.mtp_layers > 1 and self.arch not in MTP_CHAINED
        return self.mtp_layers > 0 and self.arch in MTP and not several

    @property
    def mtp_dropped(self) -> bool:
        """MTP layers are claimed, and not one tensor of them is there."""
        claimed, layers = self.number("nextn_predict_layers") or 0, self.layers or 0
        if not claimed or not layers:
            return False
        found = (_BLOCK.match(t.name) for t in self.tensors)
        return not any(m and int(m[1]) >= layers for m in found)

    @property
    def is_mtp_only(self) -> bool:
        """MTP layers in a file of their own: not one tensor of the model's own layers."""
        if not self.mtp_layers or not self.layers:
            return False
        below = (_BLOCK.match(t.name) for t in self.tensors)
        return not any(m and int(m[1]) < self.layers for m in below)

    @property
    def drafter_family(self) -> str | None:
        """ "EAGLE-3", "DFlash", "DSpark", ... of a file that can only draft; None of a model."""
        if self.arch == "dflash" and any(t.name.startswith("markov_w1") for t in self.tensors):
            return "DSpark"
        if self.is_mtp_only:
            return "MTP"
        return DRAFTER_FAMILIES.get(self.arch)

    @property
    def is_drafter_only(self) -> bool:
        return self.drafter_family is not None


def bytes_of(type_name: str, elements: int) -> int:
    """The size of so many elements of a type ("F16", "q8_0", ...), in bytes."""
    block, size = _LAYOUTS[type_name.upper()]
    return -(-elements // block) * size


@dataclass(frozen=True, slots=True)
class Glance:
    """What the beginning of a file says; ``kind`` as of ``describe_kind``, where that needs no
    tensors. ``method`` is that of a drafter by its architecture, ``mtp_layers`` only a claim."""

    arch: str
    name: str
    kind: str
    method: str | None
    n_vocab: int | None
    tokenizer: str
    mtp_layers: int


def describe_kind(header: GGUFHeader) -> str:
    """What the file is, as the end of a sentence: "a language model", "an EAGLE-3 drafter", ..."""
    kind = header.text("general.type")
    if kind == "adapter":
        return "a LoRA adapter"
    if kind == "imatrix":
        return "an importance matrix"
    if header.arch == "clip" or kind == "mmproj":
        return "a vision or audio projector (mmproj)"
    if header.drafter_family is not None:
        article = "an" if header.drafter_family[0] in "AEIOU" or header.is_mtp_only else "a"
        return f"{article} {header.drafter_family} drafter"
    if header.arch in _EMBEDDING_ARCHS:
        return "an embedding model"
    if header.arch in _SPEECH_ARCHS:
        return "a speech model"
    if not header.tensors:
        return _NO_WEIGHTS
    return "a language model"


def read_header(path: str | Path) -> GGUFHeader:
    """The header of exactly this file; says nothing about whether its data is complete.

    Raises ``ModelFileError`` when the file is missing, of another kind, or its header is damaged.
    """
    path = written(path)
    try:
        with path.open("rb") as stream:
            header = parse_header(stream, path.stat().st_size, path)
    except FileNotFoundError:
        raise ModelFileError(f"There is no file {path}.", _nearest_file(path)) from None
    except OSError as error:
        if kind_here(path) == "folder":
            raise ModelFileError(
                f"{path} is a folder, not a GGUF file.", _files_of_folder(path)
            ) from None
        reason = error.strerror or type(error).__name__
        raise ModelFileError(f"{path} cannot be read: {reason}.", "Check the file.") from None
    return replace(header, shards=_shards(path, header.kv))


def glance(path: str | Path) -> Glance:
    """What the first kilobytes of a file say, in about a millisecond.

    Raises ``ModelFileError`` when the file is missing, of another kind, damaged there, or of an
    architecture that llama.cpp does not know.
    """
    path = written(path)
    try:
        with path.open("rb") as stream:
            reader = _Reader(stream, path.stat().st_size, path, chunk=_GLANCE)
            _, n_tensors, n_kv = _read_preamble(reader)
            kv = _read_kv(reader, n_kv, glance_only=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ModelFileError(f"{path} cannot be read: {reason}.", "Check the file.") from None
    arch = kv.get("general.architecture")
    header = GGUFHeader(
        path=path,
        version=0,
        arch=arch if isinstance(arch, str) else "",
        kv=kv,
        tensors=(),
        file_size=0,
        expected_size=0,
        shards=(path,),
    )
    kind = describe_kind(header)
    if header.arch and header.arch not in KNOWN and kind == _NO_WEIGHTS:
        raise _unknown_arch(header)
    return Glance(
        arch=header.arch,
        name=header.name,
        kind="a language model" if kind == _NO_WEIGHTS and n_tensors else kind,
        method=_METHODS.get(header.arch),
        n_vocab=header.n_vocab,
        tokenizer=header.text("tokenizer.ggml.model") or "",
        mtp_layers=header.number("nextn_predict_layers") or 0,
    )


def check_model_file(path: str | Path) -> GGUFHeader:
    """The header of a model that llama.cpp may be given: whole, with all its shards.

    Any shard of a split model stands for the first. Raises ``ModelFileError`` when a file is
    missing, truncated, of another kind, or holds neither a language model nor a drafter.
    """
    header = read_header(first_shard(written(path)))
    others = [read_header(shard) for shard in header.shards if shard != header.path]
    return check_header(header, others)


def check_header(first: GGUFHeader, others: Sequence[GGUFHeader] = ()) -> GGUFHeader:
    """The same of headers that were read already, wherever from; ``others`` are those of the
    further shards, whose tensors are added."""
    for part in (first, *others):
        if part.file_size < part.expected_size:
            raise ModelFileError(
                f"{part.path} is truncated: {part.file_size:,} of {part.expected_size:,} bytes.",
                AGAIN,
            )
    header = joined(first, others)
    if not header.arch and header.text("general.type") not in ("adapter", "imatrix"):
        raise ModelFileError(
            f"{header.path} does not say which architecture it is (general.architecture).",
            "It was not made for llama.cpp; get the model from another publisher.",
        )
    if header.arch and header.arch not in KNOWN:
        raise _unknown_arch(header)
    kind = describe_kind(header)
    if not kind.endswith(("a language model", "drafter")):
        raise ModelFileError(
            f"{header.path} is {kind}, which writes no text.",
            "Give the GGUF of the language model itself.",
        )
    _check_tensor_names(header)
    return header


def joined(first: GGUFHeader, others: Sequence[GGUFHeader]) -> GGUFHeader:
    """The header of a split model with the tensors of all its shards."""
    return replace(first, tensors=tuple(t for part in (first, *others) for t in part.tensors))


def _unknown_arch(header: GGUFHeader) -> ModelFileError:
    arch = header.arch
    says = f"{header.path} calls its architecture {arch!r}, which "
    if arch in RESPELLED:
        return ModelFileError(
            f"{says}llama.cpp does not know.",
            f"Get a build of the file that spells it {RESPELLED[arch]!r}.",
        )
    for family in ("dflash", "eagle3"):
        if family in arch:
            return ModelFileError(
                f"{says}only forks of llama.cpp know.",
                f"Get a file that llama.cpp's own convert_hf_to_gguf.py made: there it is called "
                f"{family!r}.",
            )
    near = difflib.get_close_matches(arch, sorted(KNOWN), n=2, cutoff=0.7)
    return ModelFileError(
        f"{says}this llama.cpp does not know.",
        "The file was made for a newer llama.cpp or for a fork"
        + (f"; it knows {' and '.join(near)}." if near else "; get another conversion."),
    )


def _check_tensor_names(header: GGUFHeader) -> None:
    """Raise where llama.cpp would find a "wrong number of tensors"."""
    count, claimed = header.number("block_count"), header.number("nextn_predict_layers") or 0
    if header.arch in MTP and claimed and not header.mtp_layers and not header.mtp_dropped:
        raise ModelFileError(
            f"{header.path} says that it has {claimed} MTP "
            f"{'layer' if claimed == 1 else 'layers'}, of which tensors are missing "
            "(nextn.eh_proj).",
            "Get the file with all of them, or the one that was made without.",
        )
    for tensor in header.tensors:
        part = next((p for start, p in _FOREIGN_PARTS.items() if tensor.name.startswith(start)), "")
        if part:
            raise ModelFileError(
                f"{header.path} holds the {part} part of the model too ({tensor.name}), as Ollama "
                "and some forks write it; llama.cpp does not load that.",
                "Get a GGUF of the language model alone.",
            )
        block = _BLOCK.match(tensor.name)
        if block and count is not None and int(block[1]) >= count:
            raise ModelFileError(
                f"{header.path} says that it has {count} layers but holds {tensor.name}.",
                "It was made by or for a fork of llama.cpp; get another conversion.",
            )


def read_strings(header: GGUFHeader, key: str) -> list[bytes]:
    """The texts of an array of strings, also of a long one that the header steps over.

    Raises ``ModelFileError`` when the file is not what it was when its header was read.
    """
    kept = header.kv.get(key)
    if not isinstance(kept, Skipped):
        return [str(text).encode() for text in kept] if isinstance(kept, tuple) else []
    raw = raw_strings(header, key)
    texts: list[bytes] = []
    position, unpack = 0, _U64.unpack_from
    for _ in range(kept.length):
        start = position + 8
        if start > len(raw):
            break
        position = start + unpack(raw, position)[0]
        texts.append(raw[start:position])
    if len(texts) < kept.length or position != len(raw):
        raise ModelFileError(f"{header.path} changed while it was read.", "Try again.")
    return texts


def raw_strings(header: GGUFHeader, key: str) -> bytes:
    """A long array of strings as it stands in the file, each text after its length."""
    kept = header.kv.get(key)
    if not isinstance(kept, Skipped):
        return b""
    return read_bytes(header, kept.start, kept.stop - kept.start)


def read_bytes(header: GGUFHeader, start: int, length: int) -> bytes:
    """``length`` bytes of the file. Raises ``ModelFileError`` when they are not there."""
    try:
        with closing(header.opener() if header.opener else header.path.open("rb")) as stream:
            stream.seek(start)
            found = stream.read(length)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ModelFileError(f"{header.path} cannot be read: {reason}.") from None
    if len(found) < length:
        raise ModelFileError(f"{header.path} changed while it was read.", "Try again.")
    return found


def parse_header(stream: Readable, size: int, path: Path) -> GGUFHeader:
    """The header at the start of a seekable ``stream`` of ``size`` bytes; ``path`` is its name.

    Of a split model this is the one file; ``read_header`` finds the others.
    """
    reader = _Reader(stream, size, path)
    version, n_tensors, n_kv = _read_preamble(reader)
    kv = _read_kv(reader, n_kv)
    tensors = tuple(_read_tensor(reader) for _ in range(n_tensors))
    if len({t.name for t in tensors}) < n_tensors:
        raise reader.damaged("two of its tensors have the same name")

    alignment = kv.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
        raise reader.damaged(f"general.alignment is {alignment!r}")
    data = -(-reader.position // alignment) * alignment
    arch = kv.get("general.architecture")
    return GGUFHeader(
        path=path,
        version=version,
        arch=arch if isinstance(arch, str) else "",
        kv=kv,
        tensors=tensors,
        file_size=size,
        expected_size=max((data + t.offset + t.n_bytes for t in tensors), default=reader.position),
        shards=(path,),
        data=data,
    )


def _read_preamble(reader: _Reader) -> tuple[int, int, int]:
    """The version, the count of tensors and the count of metadata keys."""
    path = reader.path
    if reader.size < len(_MAGIC) or reader.peek(4) != _MAGIC:
        raise _other_kind(reader.peek(512), reader.size, path)
    reader.take(4)
    version = reader.u32()
    if version not in (2, 3):
        if version and version & 0xFFFF == 0:
            raise ModelFileError(
                f"{path} was written for big-endian machines.", "Get the little-endian file."
            )
        raise ModelFileError(
            f"{path} is GGUF version {version}; versions 2 and 3 can be loaded.",
            "Get a newer conversion of the model." if version == 1 else AGAIN,
        )
    n_tensors = reader.count("tensors", smallest=24, limit=_TENSORS_LIMIT)
    n_kv = reader.count("metadata keys", smallest=13, limit=_KEYS_LIMIT)
    return version, n_tensors, n_kv


def _read_kv(reader: _Reader, n_kv: int, *, glance_only: bool = False) -> dict[str, Value]:
    """The metadata; with ``glance_only`` what stands before the vocabulary, and its length."""
    kv: dict[str, Value] = {}
    for _ in range(n_kv):
        key, type_id = reader.name(), reader.u32()
        if key in kv:
            raise reader.damaged(f"the metadata key {key!r} stands there twice")
        if glance_only and key == _TOKENS and type_id == _ARRAY and "general.architecture" in kv:
            # llama-quantize moves general.file_type to the very end: not to be seen at a glance
            item = reader.u32()
            n = reader.count("strings", smallest=8, limit=_ITEMS_LIMIT)
            kv[key] = Skipped(n)
            if n > _KEPT_NUMBERS or item != _STRING:
                break
            reader.skip_strings(n)
            continue
        kv[key] = reader.value(type_id)
    return kv


def _read_tensor(reader: _Reader) -> TensorInfo:
    name = reader.name()
    n_dims = reader.u32()
    if n_dims > _DIMS_LIMIT:
        raise reader.damaged(f"tensor {name!r} has {n_dims} dimensions")
    shape = tuple(reader.u64() for _ in range(n_dims))
    type_id = reader.u32()
    offset = reader.u64()
    if type_id not in _TENSOR_TYPES:
        raise ModelFileError(
            f"{reader.path} holds tensor {name!r} of type {type_id}, which this llama.cpp does not "
            "know.",
            "It was made for another version or a fork; get another quantisation of the model.",
        )
    type_name, block, block_bytes = _TENSOR_TYPES[type_id]
    elements = math.prod(shape)
    if elements > _ELEMENTS_LIMIT or offset > 1 << 62:
        raise reader.damaged(f"tensor {name!r} claims the shape {shape} at {offset}")
    if shape and shape[0] % block:
        raise reader.damaged(f"tensor {name!r} has rows of {shape[0]}, no multiple of {block}")
    return TensorInfo(name, shape, type_name, offset, elements // block * block_bytes)


class _Reader:
    """Reads forward through a window of the file, and never past what the file holds."""

    def __init__(self, stream: Readable, size: int, path: Path, *, chunk: int = _CHUNK) -> None:
        self.path = path
        self.size = size
        self._stream = stream
        self._chunk = chunk
        self._window = b""
        self._base = 0  # where in the file the window starts
        self._pos = 0  # within the window

    @property
    def position(self) -> int:
        return self._base + self._pos

    def damaged(self, what: str) -> ModelFileError:
        return ModelFileError(f"{self.path} is damaged: {what}.", AGAIN)

    def _fill(self, n: int) -> None:
        """Makes the next ``n`` bytes stand in the window."""
        start = self.position
        if start + n > self.size:
            raise ModelFileError(
                f"{self.path} is truncated: it ends inside its header, after {self.size:,} bytes.",
                AGAIN,
            )
        if start + n > _HEADER_LIMIT:
            raise self.damaged(f"its header is longer than {_HEADER_LIMIT >> 20} MiB")
        self._stream.seek(start)
        self._window = self._stream.read(max(n, self._chunk))
        self._base, self._pos = start, 0
        if len(self._window) < n:  # the file shrank while it was read
            raise ModelFileError(f"{self.path} changed while it was read.", "Try again.")

    def peek(self, n: int) -> bytes:
        n = min(n, self.size - self.position)
        if self._pos + n > len(self._window):
            self._fill(n)
        return self._window[self._pos : self._pos + n]

    def take(self, n: int) -> bytes:
        if self._pos + n > len(self._window):
            self._fill(n)
        start = self._pos
        self._pos += n
        return self._window[start : self._pos]

    def skip(self, n: int) -> None:
        self._pos += n
        if self._pos > len(self._window):
            self._fill(0)

    def u32(self) -> int:
        value: int = _U32.unpack(self.take(4))[0]
        return value

    def u64(self) -> int:
        value: int = _U64.unpack(self.take(8))[0]
        return value

    def count(self, what: str, *, smallest: int, limit: int) -> int:
        """A count of things, at most ``limit``, that take at least ``smallest`` bytes each."""
        n = self.u64()
        if n > limit:
            raise self.damaged(f"its header claims {n:,} {what}")
        if n * smallest > self.size - self.position:
            raise ModelFileError(
                f"{self.path} is truncated or damaged: its {self.size:,} bytes cannot hold the "
                f"{n:,} {what} that it claims.",
                AGAIN,
            )
        return n

    def name(self) -> str:
        n = self.u64()
        if n > _NAME_LIMIT:
            raise self.damaged(f"a name in its header claims {n:,} bytes")
        return self.take(n).decode("utf-8", "replace")

    def value(self, type_id: int) -> Value:
        if type_id in _SCALARS:
            return self._numbers(type_id, 1)[0]
        if type_id == _STRING:
            n = self.u64()
            if n > _KEPT_STRING:
                self.skip(n)
                return Skipped(n)
            return self.take(n).decode("utf-8", "replace")
        if type_id != _ARRAY:
            raise self.damaged(f"its header holds a value of the unknown type {type_id}")
        item = self.u32()
        if item in _SCALARS:
            n = self.count("array items", smallest=_SCALARS[item][1], limit=_ITEMS_LIMIT)
            if n <= _KEPT_NUMBERS:
                return self._numbers(item, n)
            self.skip(n * _SCALARS[item][1])
            return Skipped(n)
        if item != _STRING:
            raise self.damaged(f"its header holds an array of the unknown type {item}")
        n = self.count("strings", smallest=8, limit=_ITEMS_LIMIT)
        if n <= _KEPT_STRINGS:
            return tuple(self.name() for _ in range(n))
        start = self.position
        self.skip_strings(n)
        return Skipped(n, start, self.position)

    def _numbers(self, type_id: int, n: int) -> tuple[int | float | bool, ...]:
        code, width = _SCALARS[type_id]
        return struct.unpack(f"<{n}{code}", self.take(n * width))

    def skip_strings(self, n: int) -> None:
        # The one hot loop: a vocabulary has a quarter of a million strings, its merges twice that.
        unpack, window, pos, end = _U64.unpack_from, self._window, self._pos, len(self._window)
        for _ in range(n):
            if pos + 8 > end:
                self._pos = pos
                self._fill(8)
                window, pos, end = self._window, 0, len(self._window)
            pos += 8 + unpack(window, pos)[0]
        self._pos = pos
        self.skip(0)


def _other_kind(head: bytes, size: int, path: Path) -> ModelFileError:
    """The error for a file that is no GGUF, naming what it is where that can be told."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if size == 0:
        kind, hint = "is empty (0 bytes)", AGAIN
    elif head[:4] in (b"ggml", b"ggmf", b"ggjt", b"ggla", b"lmgg", b"fmgg", b"tjgg", b"algg"):
        kind, hint = (
            "is in the old ggml format, which llama.cpp no longer loads",
            "Get a GGUF conversion of the model.",
        )
    elif head.startswith(b"version https://git-lfs"):
        kind, hint = (
            "is a Git LFS pointer, not the model itself",
            "Run `git lfs pull` in its folder, or download the file itself.",
        )
    elif text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        kind, hint = (
            "is a web page, not a model",
            "The download got a page instead of the file: use the download link, and log in "
            "where the model asks for it.",
        )
    elif len(head) > 10 and _U64.unpack_from(head)[0] < size and head[8:9] == b"{":
        kind, hint = (
            "is a safetensors file",
            "Get a GGUF of the model, or convert it with llama.cpp's convert_hf_to_gguf.py.",
        )
    elif head.startswith(b"PK\x03\x04") or head[:2] in (b"\x80\x02", b"\x80\x04"):
        kind, hint = (
            "is a zip archive or a PyTorch checkpoint",
            "Get a GGUF of the model; if this is an archive with a GGUF inside, unpack it.",
        )
    elif head.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf", b"\xfd7zXZ", b"BZh")):
        kind, hint = "is a compressed archive", "Unpack it and give the GGUF inside."
    elif text.startswith((b"{", b"[")):
        kind, hint = "is a JSON text, not a model", AGAIN
    elif not any(head):
        kind, hint = "holds only zeros where its header should be: an unfinished download", AGAIN
    else:
        kind, hint = (
            f"is not a GGUF file: it starts with {_shown(head[:8])}",
            "Give the path of a GGUF model file.",
        )
    return ModelFileError(f"{path} {kind}.", hint)


def _shown(head: bytes) -> str:
    """Bytes for people: as text where they are some."""
    text = head.decode("ascii", "replace")
    return repr(text) if text.isascii() and text.isprintable() else f"the bytes {head.hex(' ')}"


def first_shard(path: Path) -> Path:
    """The file that stands for the split model that ``path`` is a part of; else itself."""
    shard = _SHARD.match(path.name)
    if shard is None:
        return path
    return path.with_name(f"{shard['stem']}-00001-of-{shard['count']}{path.suffix}")


def _shards(path: Path, kv: Mapping[str, Value]) -> tuple[Path, ...]:
    """All files of the model that ``path`` belongs to; raises where one cannot be found."""
    count = kv.get("split.count", 0)
    if not isinstance(count, int) or count < 2:
        return (path,)
    shard = _SHARD.match(path.name)
    if shard is None or int(shard["count"]) != count:
        raise ModelFileError(
            f"{path} is one of the {count} parts of a split model, under a name that does not say "
            "which.",
            f"Give it back its published name, which ends in -00001-of-{count:05d}.gguf.",
        )
    if count > 99_999:
        raise ModelFileError(f"{path} is damaged: it claims {count:,} parts.", AGAIN)
    paths = tuple(
        path.with_name(f"{shard['stem']}-{i:05d}-of-{shard['count']}{path.suffix}")
        for i in range(1, count + 1)
    )
    missing = [p.name for p in paths if not p.is_file()]
    if missing:
        some = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise ModelFileError(
            f"{path.name} is a split model and {len(missing)} of its {count} parts are missing "
            f"from {path.parent}: {some}.",
            "Download the missing parts into the same folder.",
        )
    return paths


def _nearest_file(path: Path) -> str:
    try:
        names = [p.name for p in path.parent.iterdir() if p.suffix.lower() == ".gguf"]
    except OSError:
        return f"There is no folder {path.parent} either."
    near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.5)
    return f"Did you mean {' or '.join(near)}?" if near else "Check the path."


def _files_of_folder(path: Path) -> str:
    names = sorted(p.name for p in path.glob("*.gguf"))
    return f"Give one of its files: {', '.join(names[:5])}." if names else "It holds no GGUF file."
