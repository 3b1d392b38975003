"""Models and contexts in this process, freed at the end of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gguf
import pytest

import localspec.llama  # noqa: F401  (before numpy)
from localspec.llama import Context, ContextParams, Model
from localspec.llama.context import AbortFlag

MakeContext = Callable[..., Context]


@pytest.fixture
def make_context() -> Iterator[MakeContext]:
    """``make_context(path, abort=None, **params)``: one thread and 256 cells unless told."""
    with ExitStack() as stack:
        models: dict[Path, Model] = {}

        def make(path: Path, abort: AbortFlag | None = None, **params: Any) -> Context:
            if path not in models:
                models[path] = stack.enter_context(Model(path))
            given = ContextParams(**{"n_ctx": 256, "threads": 1, "batch": 64, **params})
            return stack.enter_context(Context(models[path], given, abort))

        yield make


@pytest.fixture(scope="session")
def tiny_spm(models: Path, tiny_bytes: Path) -> Path:
    """The weights of ``tiny_bytes`` under a SentencePiece vocabulary: ``<unk> <s> </s>``, a control
    token, all bytes, the space sign, letters and words with and without a space before them."""
    words = ["▁", *"abcdehlorw", "▁h", "▁he", "he", "ll", "llo", "hello", "▁hello"]
    words += ["wo", "▁w", "▁wo", "ld", "rld", "world", "▁world"]
    texts = ["<unk>", "<s>", "</s>", "<|im_end|>", *(f"<0x{b:02X}>" for b in range(256)), *words]
    texts += [f"<pad{i}>" for i in range(300 - len(texts))]
    kinds = gguf.TokenType
    types = [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * 256]
    types += [kinds.NORMAL] * len(words)
    types += [kinds.UNUSED] * (300 - len(types))
    source = gguf.GGUFReader(tiny_bytes)
    path = models / "spm.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for field in source.fields.values():
        if field.name.startswith(("llama.", "general.file_type")):
            writer.add_key_value(field.name, field.contents(), field.types[0])
    writer.add_tokenizer_model("llama")
    writer.add_token_list(texts)
    writer.add_token_scores([float(len(t)) if t in words else 0.0 for t in texts])
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(True)
    for tensor in source.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
