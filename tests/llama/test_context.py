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
from tiny_models import tiny_gemma4, tiny_llama

from localspec.errors import DrafterError, EngineFailed, UsageError
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


# What llama.cpp says "yes" to, and then computes something else (ENGINE_NOTES section 2). Each test
# shows first that it still does: where it no longer does, the guard can go.


def native_truncate(context: Context, position: int) -> bool:
    return bool(L.llama_memory_seq_rm(L.llama_get_memory(context.handle), 0, position, -1))


@pytest.mark.parametrize("decoded", [1, 2, 3, 5, 7])
def test_a_recurrent_memory_gives_back_no_more_than_the_last_decode(
    make_context: MakeContext, demo_hybrid: Path, decoded: int
) -> None:
    """Of a decode of n tokens n - 1 can be taken back, if so many states are kept (4 here)."""
    tokens = [100 + 37 * i for i in range(10 + decoded)]

    def after(position: int) -> NDArray[np.float32]:
        fresh = make_context(demo_hybrid)
        decode(fresh, tokens[:position])
        return decode(fresh, [7, 8], position)

    def filled() -> Context:
        context = make_context(demo_hybrid, recurrent_snapshots=4)
        decode(context, tokens[:10])
        decode(context, tokens[10:], 10)
        return context

    can = min(4, decoded - 1)
    for back in range(1, 7):
        context, position = filled(), 10 + decoded - back
        assert context.truncate(position) == (back <= can)
        if back <= can:
            np.testing.assert_array_equal(decode(context, [7, 8], position), after(position))
            continue
        assert context.last_position() == 9 + decoded, "a refusal changes nothing"
        if native_truncate(context, position):
            wrong = np.abs(decode(context, [7, 8], position) - after(position)).max()
            assert wrong > 0.5
        else:
            assert back > 4


def test_a_recurrent_memory_goes_back_once_a_decode(
    make_context: MakeContext, demo_hybrid: Path
) -> None:
    context = make_context(demo_hybrid, recurrent_snapshots=4)
    decode(context, TEXT)
    assert context.truncate(8)
    assert not context.truncate(7)
    assert context.truncate(8), "there is nothing to take back"
    decode(context, TEXT[:3], 8)
    assert context.truncate(9)


def test_an_aborted_decode_cannot_be_taken_back_in_part(
    make_context: MakeContext, demo_hybrid: Path
) -> None:
    abort = AbortFlag()
    context = make_context(demo_hybrid, abort, recurrent_snapshots=4)
    decode(context, TEXT)
    abort.set()
    with pytest.raises(DecodeAborted):
        decode(context, TEXT, len(TEXT))
    assert not context.truncate(len(TEXT) - 1)


WINDOW = 16


@pytest.fixture(scope="module")
def tiny_window(models: Path) -> Path:
    return tiny_gemma4(models / "window.gguf", window=WINDOW, n_ctx=1024)


def test_a_window_is_kept_in_full_unless_told(make_context: MakeContext, tiny_window: Path) -> None:
    long = [4 + (i * i * 7 + i // 3) % 8 for i in range(600)]
    full = fill(make_context(tiny_window, n_ctx=1024), long)
    assert full.truncate(300)
    same = fill(make_context(tiny_window, n_ctx=1024), long[:300])
    row, expected = decode(full, [7], 300), decode(same, [7], 300)
    assert np.abs(row - expected).max() < 0.05, "other batch shapes, no more"


def test_a_sliding_window_goes_back_only_to_where_it_is_whole(
    make_context: MakeContext, tiny_window: Path
) -> None:
    long = [4 + (i * i * 7 + i // 3) % 8 for i in range(600)]

    def filled() -> Context:
        return fill(make_context(tiny_window, n_ctx=1024, swa_full=False), long)

    def after(position: int) -> NDArray[np.float32]:
        fresh = fill(make_context(tiny_window, n_ctx=1024), long[:position])
        return decode(fresh, [7], position)

    context = filled()
    first = int(L.llama_memory_seq_pos_min(L.llama_get_memory(context.handle), 0))
    assert first > WINDOW, "positions were overwritten"
    whole = first + WINDOW - 1  # the token there looks back to the first position that is left
    assert not context.truncate(whole - 1)
    assert context.last_position() == len(long) - 1, "a refusal changes nothing"
    assert context.truncate(whole)
    assert np.abs(decode(context, [7], whole) - after(whole)).max() < 0.05
    context = filled()
    assert native_truncate(context, whole - WINDOW)
    assert np.abs(decode(context, [7], whole - WINDOW) - after(whole - WINDOW)).max() > 0.2


def test_a_sliding_window_never_stands_in_the_way_of_a_rejected_draft(
    make_context: MakeContext, tiny_window: Path
) -> None:
    context = make_context(tiny_window, n_ctx=1024, swa_full=False, outputs=9)
    position = 0
    for step in range(100):
        decode(context, [4 + (step + i) % 8 for i in range(9)], position)
        position += 1 + step % 9
        assert context.truncate(position)


def fill(context: Context, tokens: Sequence[int]) -> Context:
    for start in range(0, len(tokens), context.n_batch):
        decode(context, tokens[start : start + context.n_batch], start)
    return context


def test_an_architecture_without_a_last_hidden_state_is_refused(
    make_context: MakeContext, tiny_target: Path, demo_hybrid: Path
) -> None:
    """llama.cpp would hand out whatever lies in its buffer."""
    with pytest.raises(DrafterError, match="no last hidden state of target.gguf .llama."):
        make_context(tiny_target).tap_hidden(outputs_only=False)
    make_context(demo_hybrid).tap_hidden(outputs_only=False)


def test_an_architecture_without_layer_taps_is_refused(
    make_context: MakeContext, tiny_mamba: Path, tiny_target: Path
) -> None:
    """llama.cpp aborts the process at the next decode."""
    with pytest.raises(DrafterError, match="no hidden states of layer 0 of mamba.gguf .mamba, 2"):
        make_context(tiny_mamba).tap_layer(0)
    context = make_context(tiny_target)
    for outside in (-1, 2):
        with pytest.raises(DrafterError, match=f"layer {outside} of target.gguf"):
            context.tap_layer(outside)
    context.tap_layer(1)
    decode(context, TEXT)
    assert np.isfinite(context.layer_rows(1, len(TEXT))).all()


def test_mtp_layers_that_were_not_loaded_make_no_context(
    make_context: MakeContext, demo_hybrid: Path, tiny_target: Path
) -> None:
    """llama.cpp aborts the process where the file has them and they were not loaded."""
    for path in (demo_hybrid, tiny_target):
        with pytest.raises(DrafterError, match=f"{path.name} was loaded without MTP layers"):
            make_context(path, mtp=True)


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
    target.copy_state(source)
    assert target.last_position() == 7
    np.testing.assert_array_equal(decode(target, TEXT[8:], 8), decode(source, TEXT[8:], 8))


def test_a_state_that_does_not_fit_is_an_error(
    make_context: MakeContext, tiny_target: Path
) -> None:
    source, target = make_context(tiny_target, n_ctx=512), make_context(tiny_target)
    for start in range(0, 320, 64):
        decode(source, [5] * 64, start)
    with pytest.raises(EngineFailed, match="could not be copied"):
        target.copy_state(source)


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
