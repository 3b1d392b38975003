"""A context: decode batches, read logit rows without copying, roll the memory back."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from localspec.architectures import HIDDEN, LAST_TAPPABLE, TAPPABLE
from localspec.errors import DrafterError, EngineFailed, UsageError
from localspec.llama import unstable
from localspec.llama.library import L, bind, c_bool, c_i32, c_p, log_capture
from localspec.llama.model import Model

Rows: TypeAlias = NDArray[np.float32]

KV_TYPES = {
    "f32": 0,
    "f16": 1,
    "q4_0": 2,
    "q4_1": 3,
    "q5_0": 6,
    "q5_1": 7,
    "q8_0": 8,
    "iq4_nl": 20,
    "bf16": 30,
}
PARTIAL_ONLY = 1  # LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY: what cannot be had by dropping positions
FLASH_ATTN = {"auto": -1, "off": 0, "on": 1}

_decode = bind("llama_decode", c_i32, c_p, L.llama_batch)
_encode = bind("llama_encode", c_i32, c_p, L.llama_batch)
_get_logits = bind("llama_get_logits", c_p, c_p)
_synchronize = bind("llama_synchronize", None, c_p)
_seq_rm = bind("llama_memory_seq_rm", c_bool, c_p, c_i32, c_i32, c_i32)
_seq_cp = bind("llama_memory_seq_cp", None, c_p, c_i32, c_i32, c_i32, c_i32)
_clear = bind("llama_memory_clear", None, c_p, c_bool)


class DecodeAborted(Exception):
    """The abort flag was raised while decoding; the unfinished ubatch left no trace."""


class AbortFlag:
    """A flag that llama.cpp itself polls once a graph node (CPU backend), without entering Python.

    The poll is libc's ``strlen`` on a two-byte buffer: 0 until the first byte is set. GPU backends
    do not poll; there a prefill chunk is the unit of cancelling.
    """

    def __init__(self) -> None:
        self.raised = False
        self.buffer = ctypes.create_string_buffer(2)
        libc = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)
        self.callback = ctypes.cast(libc.strlen, L.ggml_abort_callback)
        self.address = ctypes.cast(self.buffer, c_p)

    def set(self) -> None:
        self.raised = True
        self.buffer[0] = b"\x01"

    def clear(self) -> None:
        self.raised = False
        self.buffer[0] = b"\x00"


@dataclass(frozen=True, slots=True)
class ContextParams:
    """``outputs``: the most logit rows of one decode (n_outputs_max); sizes the compute buffer.

    ``batch`` is n_batch and n_ubatch alike: a decode is one ubatch, and so one unit of cancelling.
    ``mtp`` makes a context over the model's own MTP layers. ``swa_full``: layers with a sliding
    window keep every position (llama.cpp's default), so that any rollback is possible; without it
    they keep little more than the window.
    """

    n_ctx: int
    threads: int
    batch: int = 512
    outputs: int = 1
    sequences: int = 1
    recurrent_snapshots: int = 0
    kv_type: str = "f16"
    flash_attn: str = "auto"
    mtp: bool = False
    swa_full: bool = True


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A recurrent state after ``length`` positions."""

    buffer: Any
    size: int
    length: int


class Batch:
    """A llama_batch made once; numpy views write it, only ``n_tokens`` changes between decodes.

    ``tokens`` and ``positions`` are int32, ``outputs`` int8 (1: this token's logits are wanted).
    """

    def __init__(self, capacity: int, sequences: int = 1) -> None:
        self.capacity = capacity
        self.native = L.llama_batch_init(capacity, 0, sequences)
        shape = (capacity,)
        self.tokens = np.ctypeslib.as_array(self.native.token, shape=shape)
        self.positions = np.ctypeslib.as_array(self.native.pos, shape=shape)
        self.n_seq = np.ctypeslib.as_array(self.native.n_seq_id, shape=shape)
        self.outputs = np.ctypeslib.as_array(self.native.logits, shape=shape)
        self.seq_ids = [
            np.ctypeslib.as_array(self.native.seq_id[i], shape=(sequences,))
            for i in range(capacity)
        ]
        self._steps = np.arange(capacity, dtype=np.int32)
        self._features: Rows | None = None
        self._sections: NDArray[np.int32] | None = None
        # What llama_batch_free must find again. Addresses: a pointer taken out of a structure
        # follows what is written there later.
        self._token_address = ctypes.cast(self.native.token, c_p).value
        self._position_address = ctypes.cast(self.native.pos, c_p).value
        self.single_sequence()

    def single_sequence(self) -> None:
        """Every token in sequence 0, every row an output: the shape of a chain's verification."""
        self.n_seq[:] = 1
        for ids in self.seq_ids:
            ids[0] = 0
        self.outputs[:] = 1

    def fill_positions(self, n: int, start: int) -> None:
        np.add(self._steps[:n], start, out=self.positions[:n])
        self.native.n_tokens = n
        if self._sections is not None:
            self._sections[: 4 * n].reshape(4, n)[:3] = self.positions[:n]
            self._sections[3 * n : 4 * n] = 0

    def four_positions(self) -> None:
        """Give every token four positions, as a batch without token ids must have them for M-RoPE:
        time, height and width, of which text has one, and an unused one."""
        self._sections = np.zeros(4 * self.capacity, np.int32)
        self.native.pos = self._sections.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))

    def attach_features(self, width: int, *, tokens: bool) -> Rows:
        """Give every token of the batch a row of ``width`` floats as input (llama_batch.embd):
        beside its token id, or instead of it. Returns the (capacity, width) buffer to fill."""
        features: Rows = np.zeros((self.capacity, width), np.float32)
        if not tokens:
            self.native.token = None
        self.native.embd = features.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        self._features = features
        return features

    def close(self) -> None:
        if self.native is not None:
            integers = ctypes.POINTER(ctypes.c_int32)
            self.native.token = ctypes.cast(c_p(self._token_address), integers)
            self.native.pos = ctypes.cast(c_p(self._position_address), integers)
            self.native.embd = None
            L.llama_batch_free(self.native)
            self.native = None


class Context:
    """Owns a llama_context; a context manager. Logit views die at its next decode."""

    def __init__(
        self,
        model: Model,
        params: ContextParams,
        abort: AbortFlag | None = None,
        other: Context | None = None,
    ) -> None:
        """``other`` is the target's context for drafters that read it (ctx_other)."""
        if params.mtp and not (model.params.load_mtp and model.mtp_layers):
            # llama.cpp aborts when the layers are in the file but were not loaded
            raise DrafterError(
                f"{model.path.name} was loaded without MTP layers.",
                "Choose a model whose file has them, or another drafter.",
            )
        if params.kv_type not in KV_TYPES:
            raise UsageError(
                f"Unknown KV cache type {params.kv_type!r}.", f"Choose from {', '.join(KV_TYPES)}."
            )
        for name, value in (("context", params.n_ctx), ("batch", params.batch)):
            if not 1 <= value < 2**31:  # ctypes would cut a larger number down without a word
                raise UsageError(f"A {name} of {value} tokens cannot be made.")
        self.model = model
        self.params = params
        native = L.llama_context_default_params()
        native.n_ctx = params.n_ctx
        native.n_batch = native.n_ubatch = params.batch
        native.n_seq_max = params.sequences
        native.kv_unified = params.sequences > 1
        native.n_rs_seq = params.recurrent_snapshots
        # llama.cpp aborts where a sequence could not have a row
        self.n_outputs = native.n_outputs_max = max(params.outputs, params.sequences)
        native.n_threads = native.n_threads_batch = params.threads
        native.type_k = native.type_v = KV_TYPES[params.kv_type]
        native.flash_attn_type = FLASH_ATTN[params.flash_attn]
        native.swa_full = params.swa_full
        native.no_perf = True
        if params.mtp:
            native.ctx_type = L.LLAMA_CONTEXT_TYPE_MTP
        if other is not None:
            native.ctx_other = other.handle
        self.handle: Any = L.llama_init_from_model(model.handle, native)
        if not self.handle:
            raise EngineFailed(
                f"llama.cpp cannot make a context of {params.n_ctx} tokens for {model.path.name}: "
                f"{log_capture.last() or 'no reason given'}.",
                "Try a smaller --ctx, another --kv-type, or fewer --gpu-layers.",
            )
        self.abort = abort
        if abort is not None:
            L.llama_set_abort_callback(self.handle, abort.callback, abort.address)
        self._pointer = c_p(self.handle)
        self._memory = c_p(L.llama_get_memory(self.handle))
        self.n_vocab = model.vocab.size
        self.n_ctx: int = L.llama_n_ctx(self.handle)
        # The most tokens of one decode. llama.cpp caps it by the n_ctx asked for, then pads n_ctx:
        # more tokens than this abort the process, even where the context would hold them.
        self.n_batch: int = L.llama_n_batch(self.handle)
        self._flash_attn = params.flash_attn
        if params.flash_attn == "auto":  # only the log of the creation says what was decided
            decided = log_capture.last("llama_context: flash_attn ")
            if decided.endswith("auto"):
                decided = log_capture.last("resolve_fused_ops: Flash Attention ")
            self._flash_attn = "off" if decided.endswith("disabled") else "on"
        self._taps: set[int] = set()
        self._hidden_of = 0  # tokens of a batch whose last hidden states are kept
        self._views: dict[int, Rows] = {}
        self._hidden_views: dict[tuple[int, int, int], Rows] = {}
        self._logits_address = 0
        # MTP layers are attention layers, also those of a hybrid model
        self._recurrent = not (model.can_roll_back or params.mtp)
        self._undoable = 0  # tokens that a recurrent memory can give back now
        self._window = model.sliding_window

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self.handle:
            self._views.clear()
            self._hidden_views.clear()
            L.llama_free(self.handle)
            self.handle = None

    def effective(self) -> dict[str, str | int | float | bool]:
        """The values in effect, as llama.cpp reports them."""
        return {
            "n_ctx": self.n_ctx,
            "n_batch": self.n_batch,
            "n_ubatch": int(L.llama_n_ubatch(self.handle)),
            "n_seq_max": int(L.llama_n_seq_max(self.handle)),
            "n_rs_seq": int(L.llama_n_rs_seq(self.handle)),
            "n_outputs_max": self.n_outputs,
            "threads": int(L.llama_n_threads(self.handle)),
            "threads_batch": int(L.llama_n_threads_batch(self.handle)),
            "kv_type": self.params.kv_type,
            "flash_attn": self._flash_attn,
        }

    def decode(self, batch: Batch) -> None:
        """Evaluate ``batch``. Raises DecodeAborted, or EngineFailed when llama.cpp refuses it."""
        rc = _decode(self._pointer, batch.native)
        if self._recurrent:  # of a batch all but the first token's state is kept for a rollback
            tokens = 0 if rc else batch.native.n_tokens - 1
            self._undoable = min(tokens, self.retained_states)
        if rc == 0:
            return
        if rc == 2:
            raise DecodeAborted
        if rc == 1:
            raise EngineFailed(
                f"The context of {self.n_ctx} tokens is full.", "Raise --ctx or start afresh."
            )
        raise EngineFailed(
            f"llama_decode failed with {rc}: {log_capture.last() or 'no reason given'}.",
            "This is a bug of localspec or llama.cpp; please report it with the log.",
        )

    def encode(self, batch: Batch) -> None:
        """Run the encoder over ``batch`` (EAGLE-3's feature projection)."""
        rc = _encode(self._pointer, batch.native)
        if rc == 2:
            raise DecodeAborted
        if rc:
            raise EngineFailed(f"llama_encode failed with {rc}: {log_capture.last()}.")

    def causal(self, on: bool) -> None:
        L.llama_set_causal_attn(self.handle, on)

    # ---- hidden states (llama-ext.h); views live until the next decode or encode ----------------

    def tap_layer(self, layer: int) -> None:
        """Keep the input of ``layer`` for every token of each decode; of layer n_layer: what leaves
        the last one. Raises DrafterError where the architecture has no such taps and llama.cpp
        would abort."""
        arch, last = self.model.arch, self.model.layers
        there = arch in LAST_TAPPABLE if layer == last else 0 <= layer < last
        if arch not in TAPPABLE or not there:
            raise DrafterError(
                f"llama.cpp gives no hidden states of layer {layer} of {self.model.path.name} "
                f"({self.model.arch}, {self.model.layers} layers).",
                "This drafter cannot be used with this target.",
            )
        unstable.call("llama_set_embeddings_layer_inp")(self._pointer, layer, True)
        self._taps.add(layer)

    def tap_hidden(self, *, outputs_only: bool) -> None:
        """Keep the last hidden state (MTP layers read it) of every token, or of output rows.
        Raises DrafterError on an architecture that has none, where llama.cpp would give what
        lies in its buffer."""
        if self.model.arch not in HIDDEN:
            raise DrafterError(
                f"llama.cpp gives no last hidden state of {self.model.path.name} "
                f"({self.model.arch}).",
                "This drafter cannot be used with this target.",
            )
        unstable.call("llama_set_embeddings_nextn")(self._pointer, True, outputs_only)
        self._hidden_of = self.n_outputs if outputs_only else self.n_batch

    @property
    def output_bytes(self) -> int:
        """The size of the buffer that the largest batch is read from: logits and tapped states."""
        states = self._hidden_of * self.model.n_embd_out
        return 4 * (self.n_outputs * self.n_vocab + states) + self.tap_bytes

    @property
    def tap_bytes(self) -> int:
        """The size of the tapped layers' inputs for the largest batch, where they are computed."""
        return 4 * len(self._taps) * self.n_batch * self.model.n_embd

    def layer_rows(self, layer: int, n: int) -> Rows:
        """Inputs of ``layer`` for the ``n`` tokens of the last decode, (n, n_embd)."""
        address = unstable.call("llama_get_embeddings_layer_inp")(self._pointer, layer)
        return self._floats(address, n, self.model.n_embd)

    def hidden_rows(self, n: int, width: int | None = None) -> Rows:
        """The first ``n`` hidden rows kept by ``tap_hidden``, (n, width)."""
        address = unstable.call("llama_get_embeddings_nextn")(self._pointer)
        return self._floats(address, n, width or self.model.n_embd_out)

    def hidden_row(self, i: int, width: int | None = None) -> Rows:
        """The hidden row of batch token ``i``, (width,)."""
        address = unstable.call("llama_get_embeddings_nextn_ith")(self._pointer, i)
        row: Rows = self._floats(address, 1, width or self.model.n_embd_out)[0]
        return row

    def mtp_layer(self, offset: int) -> None:
        """Which of several MTP heads the next decode runs (0: the first)."""
        unstable.call("llama_set_nextn_layer_offset")(self._pointer, offset)

    def _floats(self, address: int | None, n: int, width: int) -> Rows:
        if not address:
            raise EngineFailed("llama.cpp kept no hidden states for the last batch.")
        key = (address, n, width)
        rows = self._hidden_views.get(key)
        if rows is None:
            if len(self._hidden_views) > 256:  # the buffer has moved, more than once
                self._hidden_views.clear()
            array = (ctypes.c_float * (n * width)).from_address(address)
            rows = self._hidden_views[key] = np.ctypeslib.as_array(array).reshape(n, width)
        return rows

    def synchronize(self) -> None:
        _synchronize(self._pointer)

    def rows(self, n: int) -> Rows:
        """The ``n`` output rows of the last decode, float32 (n, n_vocab), in batch order: a view of
        llama.cpp's own buffer, valid until the next decode. Waits for the device."""
        address = _get_logits(self._pointer)
        if address != self._logits_address:
            self._views.clear()
            self._logits_address = address
        view = self._views.get(n)
        if view is None:
            array = (ctypes.c_float * (n * self.n_vocab)).from_address(address)
            view = np.ctypeslib.as_array(array).reshape(n, self.n_vocab)
            self._views[n] = view
        return view

    def clear(self) -> None:
        _clear(self._memory, True)

    def truncate(self, position: int, sequence: int = 0) -> bool:
        """Drop every position >= ``position``; False, and nothing is dropped, when the memory
        cannot go back so far.

        llama.cpp alone would say that it can, and go on with a wrong state, where a recurrent
        memory must give back more tokens than the last decode had (less one), and where what a
        sliding window needs was overwritten (ENGINE_NOTES section 2).
        """
        if self._recurrent:
            back = self.last_position(sequence) + 1 - position
            if back > self._undoable:
                return False
            if back > 0:
                self._undoable = 0
        elif self._window:
            first = int(L.llama_memory_seq_pos_min(self._memory, sequence))
            if first > max(0, position - self._window + 1):
                return False
        return bool(_seq_rm(self._memory, sequence, position, -1))

    def drop_sequence(self, sequence: int) -> None:
        _seq_rm(self._memory, sequence, -1, -1)

    def copy_sequence(self, source: int, target: int) -> None:
        """Metadata only in a unified cache."""
        _seq_cp(self._memory, source, target, -1, -1)

    @cached_property
    def retained_states(self) -> int:
        """Recurrent states kept for rollback (n_rs_seq), 0 where the architecture keeps none."""
        return int(L.llama_n_rs_seq(self.handle))

    def last_position(self, sequence: int = 0) -> int:
        """-1 when the sequence is empty."""
        return int(L.llama_memory_seq_pos_max(self._memory, sequence))

    def checkpoint(self) -> Checkpoint:
        """A copy of the recurrent part of sequence 0's state (attention cells are not copied)."""
        size = L.llama_state_seq_get_size_ext(self.handle, 0, PARTIAL_ONLY)
        buffer = (ctypes.c_uint8 * size)()
        written = L.llama_state_seq_get_data_ext(self.handle, buffer, size, 0, PARTIAL_ONLY)
        if not written:
            raise EngineFailed("llama.cpp gave no copy of the recurrent state.")
        return Checkpoint(buffer, written, self.last_position() + 1)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Back to ``checkpoint``: its recurrent state, attention cut to its length."""
        read = L.llama_state_seq_set_data_ext(
            self.handle, checkpoint.buffer, checkpoint.size, 0, PARTIAL_ONLY
        )
        if not read or not self.truncate(checkpoint.length):
            raise EngineFailed("The recurrent state could not be restored.")

    def copy_state(self, source: Context) -> None:
        """Take over the whole state of the source's sequence 0, bit for bit."""
        size = L.llama_state_seq_get_size(source.handle, 0)
        buffer = (ctypes.c_uint8 * size)()
        written = L.llama_state_seq_get_data(source.handle, buffer, size, 0)
        if not written or not L.llama_state_seq_set_data(self.handle, buffer, written, 0):
            raise EngineFailed("The conversation's state could not be copied to the new context.")
