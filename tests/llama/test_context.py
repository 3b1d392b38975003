"""Contexts over tiny real models."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from llama.conftest import MakeContext
from numpy.typing import NDArray
from tiny_models import tiny_llama

from localspec.errors import EngineFailed, UsageError
from localspec.llama import Context, DecodeAborted, log_capture
from localspec.llama.context import AbortFlag, Batch
from localspec.llama.library import L

TEXT = [0, 5, 6, 7, 8, 5, 6, 9, 10, 4]


def decode(
    context: Context, tokens: Sequence[int], start: int = 0, *, every: bool = False
) -> NDArray[np.float32]:
    """Logits of the last token, or of every one."""
    batch = Batch(len(tokens))
    batch.tokens[:] = tokens
    batch.fill_positions(len(tokens), start)
    batch.outputs[:] = every
    batch.outputs[-1] = 1
    try:
        context.decode(batch)
        return context.rows(len(tokens) if every else 1).copy()
    finally:
        batch.close()


def test_logits_are_llama_cpps_own_memory(make_context: MakeContext, tiny_target: Path) -> None:
    context = make_context(tiny_target, outputs=4)
    decode(context, TEXT[:4], every=True)
    rows = context.rows(4)
    own = np.ctypeslib.as_array(L.llama_get_logits(context.handle), (4, 12))
    assert rows.ctypes.data == own.ctypes.data
    assert rows.shape == (4, 12)
    assert not rows.flags.owndata
    for i in range(4):
        expected = np.ctypeslib.as_array(L.llama_get_logits_ith(context.handle, i), (12,))
        assert rows[i].ctypes.data == expected.ctypes.data


def test_a_view_follows_the_next_decode(make_context: MakeContext, tiny_target: Path) -> None:
    context = make_context(tiny_target, outputs=4)
    first = decode(context, TEXT[:4], every=True)
    view = context.rows(4)
    second = decode(context, TEXT[4:8], 4, every=True)
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(view, second)


@pytest.mark.parametrize("outputs", [1, 9])
def test_output_rows_are_as_many_as_asked(
    make_context: MakeContext, tiny_target: Path, outputs: int
) -> None:
    """They size the compute buffer; llama.cpp's default is a whole batch of them."""
    log_capture.ring.clear()
    make_context(tiny_target, outputs=outputs)
    assert log_capture.last("llama_context: n_outputs_max ").split()[-1] == str(outputs)


def test_all_threads_settings_are_one(make_context: MakeContext, tiny_target: Path) -> None:
    context = make_context(tiny_target, threads=2)
    assert L.llama_n_threads(context.handle) == L.llama_n_threads_batch(context.handle) == 2
    effective = context.effective()
    assert effective["threads"] == effective["threads_batch"] == 2


def test_effective_settings_are_llama_cpps(make_context: MakeContext, tiny_target: Path) -> None:
    effective = make_context(tiny_target, n_ctx=300, batch=400, outputs=3).effective()
    assert effective["n_ctx"] == 512, "llama.cpp pads it"
    assert effective["n_batch"] == effective["n_ubatch"] == 300, "and caps the batch before that"
    assert effective["n_outputs_max"] == 3


def test_a_batch_is_never_longer_than_llama_cpp_allows(
    make_context: MakeContext, tiny_target: Path
) -> None:
    """It aborts the process at one token more, however many the context would hold."""
    context = make_context(tiny_target, n_ctx=100, batch=512)
    assert context.n_ctx == 256
    assert context.n_batch == 100
    decode(context, [5] * context.n_batch)


@pytest.mark.parametrize("asked", ["auto", "on", "off"])
def test_flash_attention_is_reported_as_decided(
    make_context: MakeContext, tiny_target: Path, asked: str
) -> None:
    log_capture.ring.clear()
    context = make_context(tiny_target, flash_attn=asked)
    assert context.effective()["flash_attn"] == ("on" if asked == "auto" else asked)
    # what the decision is read from: an upgrade that changes this sentence must be seen
    said = log_capture.last("resolve_fused_ops: Flash Attention ")
    assert said.endswith("enabled") == (asked == "auto")


def test_flash_attention_that_a_device_lacks_is_off(
    make_context: MakeContext, tiny_target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = L.llama_init_from_model

    def unsupported(*args: object) -> object:
        handle = create(*args)
        log_capture.ring.append("resolve_fused_ops: Flash Attention not supported, set to disabled")
        return handle

    monkeypatch.setattr(L, "llama_init_from_model", unsupported)
    context = make_context(tiny_target)
    monkeypatch.undo()
    log_capture.ring.append("resolve_fused_ops: Flash Attention enabled")  # of another context
    assert context.effective()["flash_attn"] == "off"


def test_an_unknown_cache_type_is_a_usage_error(
    make_context: MakeContext, tiny_target: Path
) -> None:
    with pytest.raises(UsageError, match="'q3_7'.*f32, f16, q4_0"):
        make_context(tiny_target, kv_type="q3_7")


def test_a_cache_type_that_does_not_fit_says_why(
    make_context: MakeContext, tiny_target: Path
) -> None:
    with pytest.raises(EngineFailed, match="block size 32 does not divide n_embd_head_k=16"):
        make_context(tiny_target, kv_type="q8_0")


@pytest.mark.parametrize("kv_type", ["f32", "f16", "bf16", "q8_0", "q4_0"])
def test_cache_types(make_context: MakeContext, models: Path, kv_type: str) -> None:
    path = tiny_llama(models / "one-head.gguf", n_head=1)
    context = make_context(path, kv_type=kv_type)
    assert np.isfinite(decode(context, TEXT)).all()
    assert context.effective()["kv_type"] == kv_type


@pytest.mark.parametrize("n_ctx", [0, -1, 2**32 + 256])
def test_an_impossible_context_is_a_usage_error(
    make_context: MakeContext, tiny_target: Path, n_ctx: int
) -> None:
    with pytest.raises(UsageError, match=f"A context of {n_ctx} tokens"):
        make_context(tiny_target, n_ctx=n_ctx)
    with pytest.raises(UsageError, match="A batch of 0 tokens"):
        make_context(tiny_target, batch=0)


def test_a_full_context_is_an_error_and_keeps_its_state(
    make_context: MakeContext, tiny_target: Path
) -> None:
    context = make_context(tiny_target, batch=256)
    decode(context, [5] * 256)
    with pytest.raises(EngineFailed, match="context of 256 tokens is full"):
        decode(context, [5], 256)
    assert context.last_position() == 255
    assert context.truncate(3)
    decode(context, [6], 3)


def test_a_token_outside_the_vocabulary_is_an_error(
    make_context: MakeContext, tiny_target: Path
) -> None:
    context = make_context(tiny_target)
    for wrong in (12, -1):
        with pytest.raises(EngineFailed, match="llama_decode failed with -1"):
            decode(context, [0, wrong])
        assert context.last_position() == -1
    decode(context, TEXT)


# ---- aborting ---------------------------------------------------------------------------------


def test_a_raised_flag_stops_a_decode_without_a_trace(
    make_context: MakeContext, tiny_target: Path
) -> None:
    abort = AbortFlag()
    context = make_context(tiny_target, abort)
    decode(context, TEXT[:4])
    abort.set()
    with pytest.raises(DecodeAborted):
        decode(context, TEXT[4:], 4)
    assert context.last_position() == 3
    abort.clear()
    row = decode(context, TEXT[4:], 4)
    np.testing.assert_array_equal(row, decode(make_context(tiny_target), TEXT))


def test_a_flag_raised_by_another_thread_stops_a_long_prefill(
    make_context: MakeContext, models: Path
) -> None:
    path = tiny_llama(models / "slow.gguf", n_embd=512, n_ff=2048, n_layer=8, n_head=8, n_ctx=8192)
    abort = AbortFlag()
    context = make_context(path, abort, n_ctx=8192, batch=8192)
    tokens = [5 + i % 5 for i in range(8000)]  # several seconds of one ubatch
    running = threading.Event()

    def raise_it() -> None:
        running.wait()
        time.sleep(0.2)  # well into it
        abort.set()

    thread = threading.Thread(target=raise_it)
    thread.start()
    original = context.decode

    def decode_and_tell(batch: Batch) -> None:
        running.set()
        original(batch)

    context.decode = decode_and_tell  # type: ignore[method-assign]
    with pytest.raises(DecodeAborted):
        decode(context, tokens)
    thread.join()
    assert context.last_position() == -1
    abort.clear()
    context.decode = original  # type: ignore[method-assign]
    row = decode(context, tokens[:64])
    np.testing.assert_array_equal(row, decode(make_context(path), tokens[:64]))


# ---- memory -----------------------------------------------------------------------------------


def test_truncation_takes_positions_back(make_context: MakeContext, tiny_target: Path) -> None:
    context = make_context(tiny_target)
    decode(context, [*TEXT[:6], 4, 4, 4])
    assert context.truncate(6)
    assert context.last_position() == 5
    row = decode(context, TEXT[6:], 6)
    np.testing.assert_array_equal(row, decode(make_context(tiny_target), TEXT))


def test_a_recurrent_memory_says_that_it_cannot(
    make_context: MakeContext, tiny_mamba: Path
) -> None:
    context = make_context(tiny_mamba)
    decode(context, TEXT)
    assert not context.truncate(6)
    assert context.truncate(len(TEXT)), "there is nothing to take back"


@pytest.mark.parametrize("name", ["tiny_target", "tiny_mamba"])
@pytest.mark.parametrize("other", [{}, {"n_ctx": 512, "outputs": 5}, {"sequences": 4}])
def test_a_state_saved_and_loaded_gives_the_same_logits(
    make_context: MakeContext, request: pytest.FixtureRequest, name: str, other: dict[str, int]
) -> None:
    path: Path = request.getfixturevalue(name)
    source, target = make_context(path), make_context(path, **other)
    decode(source, TEXT[:8])
    decode(target, [4, 4])
    target.clear()
    target.load_state(source.save_state())
    assert target.last_position() == 7
    np.testing.assert_array_equal(decode(target, TEXT[8:], 8), decode(source, TEXT[8:], 8))


def test_a_state_that_does_not_fit_is_an_error(
    make_context: MakeContext, tiny_target: Path
) -> None:
    source, target = make_context(tiny_target, n_ctx=512), make_context(tiny_target)
    for start in range(0, 320, 64):
        decode(source, [5] * 64, start)
    with pytest.raises(EngineFailed, match="could not be copied"):
        target.load_state(source.save_state())


def test_sequences_share_cells(make_context: MakeContext, tiny_target: Path) -> None:
    context = make_context(tiny_target, sequences=3)
    decode(context, TEXT[:6])
    context.copy_sequence(0, 2)
    context.drop_sequence(0)
    assert context.last_position(0) == -1
    assert context.last_position(2) == 5
    context.copy_sequence(2, 0)
    context.drop_sequence(2)
    row = decode(context, TEXT[6:], 6)
    np.testing.assert_array_equal(row, decode(make_context(tiny_target), TEXT))


def test_closing_twice_is_harmless(make_context: MakeContext, tiny_target: Path) -> None:
    context = make_context(tiny_target)
    context.close()
    context.close()
    batch = Batch(4)
    batch.close()
    batch.close()
