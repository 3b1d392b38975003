"""A loaded GGUF."""

from __future__ import annotations

import contextlib
import ctypes
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from localspec.errors import ModelFileError, UsageError
from localspec.gguf_header import SAMPLING_KEYS, GGUFHeader, check_model_file
from localspec.llama import unstable
from localspec.llama.library import L, c_p, cpu_buffer_type, devices, log_capture
from localspec.llama.vocab import Vocab
from localspec.records import LoadSettings, ModelInfo
from localspec.units import parameters


class _BufferOverride(ctypes.Structure):
    """llama_model_tensor_buft_override (llama.h); llama_cpp has no binding of it."""

    _fields_ = [("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p)]


SPLIT_MODES = {"none": 0, "layer": 1, "row": 2}


@dataclass(frozen=True, slots=True)
class ModelParams:
    """LoadSettings as they apply to one model; ``load_mtp`` loads the MTP layers of the file.

    ``simulated``: only the metadata are read, and nothing is allocated; the model and its contexts
    tell what they would take (llama.memory), and must not be decoded with.
    """

    gpu_layers: int = -1
    n_cpu_moe: int = 0
    device: str = ""
    split: str = "layer"
    mmap: bool = True
    check_tensors: bool = False
    load_mtp: bool = False
    simulated: bool = False

    @classmethod
    def target(cls, s: LoadSettings, *, load_mtp: bool = False) -> ModelParams:
        return cls(s.gpu_layers, s.n_cpu_moe, s.device, s.split, s.mmap, s.check_tensors, load_mtp)

    @classmethod
    def drafter(cls, s: LoadSettings, *, load_mtp: bool = False) -> ModelParams:
        return cls(s.draft_gpu_layers, 0, s.device, s.split, s.mmap, s.check_tensors, load_mtp)


class Model:
    """Owns a llama_model; a context manager. Raises ModelFileError when it cannot be loaded."""

    def __init__(self, path: str | Path, params: ModelParams = ModelParams()) -> None:
        self.path = Path(path)
        self.params = params
        self._keep_alive: list[Any] = []
        native = L.llama_model_default_params()
        native.n_gpu_layers = params.gpu_layers
        native.split_mode = SPLIT_MODES[params.split]
        mapped = params.mmap and not params.simulated  # llama.cpp aborts on both
        native.load_mode = L.LLAMA_LOAD_MODE_MMAP if mapped else L.LLAMA_LOAD_MODE_NONE
        native.no_alloc = params.simulated
        native.check_tensors = params.check_tensors and not params.simulated
        native.load_mtp = params.load_mtp
        if params.device:
            native.devices = self._devices(params.device)
        if params.n_cpu_moe:
            native.tensor_buft_overrides = self._experts_on_cpu(params.n_cpu_moe)
        self.handle = L.llama_model_load_from_file(str(self.path).encode(), native)
        if not self.handle and (overrides := self._without_mtp()) is not None:
            native.kv_overrides = overrides
            self.handle = L.llama_model_load_from_file(str(self.path).encode(), native)
        if not self.handle:
            reason = log_capture.last("error") or log_capture.last()
            raise ModelFileError(
                f"llama.cpp cannot load {self.path}: {reason or 'no reason given'}.",
                "Check the file with `localspec doctor` or download it again.",
            )
        self.vocab = Vocab(L.llama_model_get_vocab(self.handle))

    def _devices(self, wanted: str) -> c_p:
        found = {name.lower(): handle for handle, name, _ in devices()}
        chosen = []
        for name in wanted.split(","):
            if name.strip().lower() not in found:
                raise UsageError(
                    f"This llama.cpp build has no device {name.strip()!r}.",
                    f"It has: {', '.join(found)}.",
                )
            chosen.append(found[name.strip().lower()])
        array = (ctypes.c_void_p * (len(chosen) + 1))(*[c.value for c in chosen], None)
        self._keep_alive.append(array)
        return ctypes.cast(array, c_p)

    def _without_mtp(self) -> Any:
        """What makes a file load whose MTP layers were dropped, but not the keys that claim them.
        None for others: some architectures of llama.cpp look at the tensors themselves."""
        try:
            header = check_model_file(self.path)
        except ModelFileError:
            return None
        if not header.mtp_dropped or not header.layers:
            return None
        counts = {"nextn_predict_layers": 0, "block_count": header.layers}
        array = (L.llama_model_kv_override * (len(counts) + 1))()  # the last one has an empty key
        for entry, (key, value) in zip(array, counts.items(), strict=False):
            entry.tag = L.LLAMA_KV_OVERRIDE_TYPE_INT
            entry.key = f"{header.arch}.{key}".encode()
            entry.value.val_i64 = value
        self._keep_alive.append(array)
        return array

    def _experts_on_cpu(self, layers: int) -> c_p:
        """llama.cpp's --n-cpu-moe: expert tensors of the first layers stay in CPU buffers."""
        buffer_type = cpu_buffer_type()
        array = (_BufferOverride * (layers + 1))()  # the last one stays NULL
        for i in range(layers):
            pattern = rf"blk\.{i}\.ffn_(up|down|gate|gate_up)_(ch|)exps".encode()
            self._keep_alive.append(pattern)
            array[i].pattern = pattern
            array[i].buffer_type = buffer_type
        self._keep_alive.append(array)
        return ctypes.cast(array, c_p)

    def __enter__(self) -> Model:
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
            L.llama_model_free(self.handle)
            self.handle = None

    def meta(self, key: str) -> str | None:
        """A metadata value as text, or None."""
        buffer = ctypes.create_string_buffer(256)
        n = L.llama_model_meta_val_str(self.handle, key.encode(), buffer, len(buffer))
        if n >= len(buffer):
            buffer = ctypes.create_string_buffer(n + 1)
            n = L.llama_model_meta_val_str(self.handle, key.encode(), buffer, len(buffer))
        return None if n < 0 else buffer.raw[:n].decode("utf-8", "replace")

    @cached_property
    def arch(self) -> str:
        return self.meta("general.architecture") or "unknown"

    @cached_property
    def can_roll_back(self) -> bool:
        """Attention memory drops positions; recurrent and hybrid memory cannot simply do so."""
        recurrent = L.llama_model_is_recurrent(self.handle) or L.llama_model_is_hybrid(self.handle)
        return not recurrent

    @cached_property
    def layers(self) -> int:
        return int(L.llama_model_n_layer(self.handle))

    @cached_property
    def n_embd(self) -> int:
        return int(L.llama_model_n_embd(self.handle))

    @cached_property
    def n_embd_out(self) -> int:
        return int(L.llama_model_n_embd_out(self.handle))

    @cached_property
    def mtp_layers(self) -> int:
        """MTP heads (nextn layers) in the file; whether they were loaded is ``params.load_mtp``."""
        return int(L.llama_model_n_layer_nextn(self.handle))

    @cached_property
    def target_layers(self) -> tuple[int, ...]:
        """The target layers whose inputs this drafter reads (EAGLE-3, DFlash); () for others."""
        n = unstable.call("llama_model_target_layer_ids_n")(self.handle)
        ids = unstable.call("llama_model_target_layer_ids")(self.handle)
        return tuple(int(ids[i]) for i in range(n))

    @cached_property
    def header(self) -> GGUFHeader:
        """What the file says of itself, tensors above all, which llama.cpp has no call to tell."""
        return check_model_file(self.path)

    @cached_property
    def selector_top_k(self) -> int:
        """Candidates a position of DFlash2's selector; 0 for others."""
        return int(unstable.call("llama_model_dflash_selector_top_k")(self.handle))

    @cached_property
    def m_rope(self) -> bool:
        """A position without a token has four sections (M-RoPE)."""
        return bool(L.llama_model_rope_type(self.handle) == L.LLAMA_ROPE_TYPE_MROPE)

    @cached_property
    def sliding_window(self) -> int:
        """Positions that layers with a sliding window look back; 0 where no layer has one."""
        return int(L.llama_model_n_swa(self.handle))

    @cached_property
    def n_ctx_train(self) -> int:
        return int(L.llama_model_n_ctx_train(self.handle))

    def _size_bytes(self) -> int:
        """Size of the file, or of all files of a split model."""
        try:
            files = self.header.shards
        except ModelFileError:  # llama.cpp reads more than we do
            files = (self.path,)
        return sum(file.stat().st_size for file in files)

    def info(self) -> ModelInfo:
        n_params = int(L.llama_model_n_params(self.handle))
        quant = L.llama_ftype_name(L.llama_model_ftype(self.handle)).decode()
        sampling: dict[str, float] = {}
        for key, name in SAMPLING_KEYS.items():
            value = self.meta(f"general.sampling.{key}")
            if value is not None:
                with contextlib.suppress(ValueError):
                    sampling[name] = float(value)
        return ModelInfo(
            path=str(self.path),
            arch=self.arch,
            # not llama_model_desc: it names the size by the layers, "256M" for one of 135M
            description=f"{self.arch} {parameters(n_params)} {quant}",
            quant=quant,
            size_bytes=self._size_bytes(),
            n_params=n_params,
            n_ctx_train=self.n_ctx_train,
            n_vocab=self.vocab.size,
            n_layer=self.layers,
            template=self.meta("tokenizer.chat_template"),
            bos=self.vocab.text(self.vocab.bos),
            eos=self.vocab.text(self.vocab.eos),
            add_bos=self.vocab.add_bos,
            special_tokens=self.vocab.special_texts,
            sampling=sampling,
            can_roll_back=self.can_roll_back,
        )
