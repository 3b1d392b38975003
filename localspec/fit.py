"""Does a model fit this machine, with which layers on the GPUs, and up to which context?

``Formula`` computes what a model takes from headers alone, so it works for a file that is still on
the Hub; ``Room`` decides.

Sources: llama.cpp's src/llama-model.cpp (which device gets which layer, create_memory),
llama-kv-cache.cpp, llama-memory-recurrent.cpp, llama-hparams.cpp, common/fit.cpp (the margin).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from typing import Literal, NamedTuple

from localspec.architectures import KEEPS_STATES, RECURRENT
from localspec.gguf_header import GGUFHeader, bytes_of
from localspec.machine import Memory
from localspec.records import ContextSettings, Device, LoadSettings

RAM = "CPU"
"""The machine's own memory, by llama.cpp's name for the device."""

MARGIN = 1 << 30
"""Bytes of every GPU that stay free: what the driver, cuBLAS and a desktop take shows in no buffer
(llama.cpp's own fit_params_target)."""
RAM_MARGIN = 1 << 29
"""The same of the machine's memory, which pages can be pushed out of."""
CONTEXT_STEP = 256
"""llama.cpp pads every context to a multiple of this."""
SMALLEST_CONTEXT = 512
"""Tokens; nothing is done with less."""

DEFAULT_LOAD = LoadSettings()

Verdict = Literal["GPU", "GPU+CPU", "CPU", "does not fit"]

_INPUT = ("token_embd.", "token_embd_norm.", "position_embd.", "token_types.", "per_layer_token_e")
_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
_EXPERTS = re.compile(r"ffn_(up|down|gate|gate_up)_(ch|)exps")
_RECURRENT_TENSORS = ("ssm_", "shortconv.", "time_mix_")


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that are needed on one device.

    ``kv``: the target's KV cache; ``recurrent``: its recurrent states, the retained ones included;
    ``compute``: buffers for a batch and its logits; ``drafter``: all of that of the drafter.
    """

    weights: int = 0
    kv: int = 0
    recurrent: int = 0
    compute: int = 0
    drafter: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.recurrent + self.compute + self.drafter

    def __add__(self, other: Need) -> Need:
        return Need(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


Needs = Mapping[str, Need]
"""By the device's name."""


class Placement(NamedTuple):
    """``gpu_layers``: how many of the last layers, the output counted as one, are on GPUs;
    ``cpu_experts``: of how many of the first layers the experts stay in RAM all the same."""

    gpu_layers: int
    cpu_experts: int = 0


@dataclass(frozen=True, slots=True)
class Fit:
    """What fits, and how: llama.cpp's n_gpu_layers and n_cpu_moe with which it does.

    ``n_ctx_max``: the largest context with which the model fits in any way, 0 where none does, at
    most the one it was trained on; ``n_ctx_gpu``: the largest with everything on GPUs.
    ``need`` and ``free`` are bytes by device. Of a verdict "does not fit", ``need`` is that of the
    placement that comes nearest.
    """

    verdict: Verdict
    gpu_layers: int
    layers: int
    cpu_experts: int
    n_ctx: int
    n_ctx_max: int
    n_ctx_gpu: int
    need: Needs
    free: Mapping[str, int]

    @property
    def fits(self) -> bool:
        return self.verdict != "does not fit"

    @property
    def total(self) -> int:
        return sum(n.total for n in self.need.values())

    @property
    def sentence(self) -> str:
        """For people: what is needed, where, and up to which context it goes."""
        need = f"{gib(self.total)} for a context of {self.n_ctx:,} tokens"
        there = ", ".join(f"{gib(free)} free on {_place(name)}" for name, free in self.free.items())
        most = f" Up to {self.n_ctx_max:,} tokens fit." if self.n_ctx_max else ""
        match self.verdict:
            case "GPU":
                return f"Fits on the GPU: {need}, {there}.{most}"
            case "CPU":
                return f"Fits in memory: {need}, {there}.{most}"
            case "GPU+CPU":
                how = (
                    f"the experts of {self.cpu_experts} layers in RAM"
                    if self.cpu_experts
                    else f"{self.gpu_layers} of {self.layers} layers on the GPU"
                )
                return f"Fits with {how}: {need}, {there}.{most}"
            case _:
                return f"Does not fit: {need}, {there}.{most}"


def gib(n_bytes: int) -> str:
    """A size for people."""
    if n_bytes < 1 << 30:
        return f"{n_bytes / (1 << 20):.0f} MiB"
    return f"{n_bytes / (1 << 30):.1f} GiB"


def _place(device: str) -> str:
    return "this machine" if device == RAM else device


def estimate(
    header: GGUFHeader,
    memory: Memory,
    *,
    n_ctx: int,
    kv_type: str = "f16",
    drafter_header: GGUFHeader | None = None,
    snapshots: int = 0,
    load: LoadSettings = DEFAULT_LOAD,
    context: ContextSettings | None = None,
) -> Fit:
    """By formula, from headers alone. ``drafter_header`` is the target's own for its MTP layers;
    ``snapshots``: the most tokens drafted a step, whose recurrent states are retained where the
    architecture can. ``context`` says more of how it is run, where that is known."""
    settings = context or ContextSettings(n_ctx=n_ctx, threads=1, kv_type=kv_type)
    return Formula(header, settings, load, memory, drafter_header, snapshots).fit(n_ctx)


# ---- which placement fits ----------------------------------------------------------------------


def gpus_of(memory: Memory, device: str = "") -> tuple[Device, ...]:
    """The devices that llama.cpp puts layers on: those named, or all GPUs, integrated ones only
    where there is no other."""
    if device:
        names = [name.strip().lower() for name in device.split(",")]
        by_name = {d.name.lower(): d for d in memory.devices if d.kind != "cpu"}
        return tuple(by_name[name] for name in names if name in by_name)
    found = tuple(d for d in memory.devices if d.kind == "gpu")
    return found or tuple(d for d in memory.devices if d.kind == "igpu")[:1]


Measure = Callable[[Placement, int], Needs]
"""What is needed with a placement and a context of so many tokens."""


@dataclass(frozen=True, slots=True)
class Room:
    """What there is, and what a model may be asked to do in it. ``layers`` counts the output as one
    (llama.cpp's n_gpu_layers for all); ``fixed`` is the placement that a person asked for."""

    memory: Memory
    gpus: tuple[Device, ...]
    layers: int
    expert_layers: int = 0
    fixed: Placement | None = None

    @property
    def free(self) -> dict[str, int]:
        return {d.name: d.free for d in self.gpus} | {RAM: self.memory.free}

    def gpus_hold(self, needs: Needs) -> bool:
        return all(needs.get(d.name, Need()).total + MARGIN <= d.free for d in self.gpus)

    def ram_holds(self, needs: Needs) -> bool:
        shared = sum(needs.get(d.name, Need()).total for d in self.gpus if d.shares_ram)
        return needs.get(RAM, Need()).total + shared + RAM_MARGIN <= self.memory.free

    def holds(self, needs: Needs) -> bool:
        return self.gpus_hold(needs) and self.ram_holds(needs)

    def place(self, measure: Measure, n_ctx: int) -> tuple[Verdict, Placement]:
        """The fastest placement that fits: all on GPUs; else, of a mixture of experts, all but the
        experts of as few layers as it takes; else as many layers as go; else none."""

        def gpus_hold(placement: Placement) -> bool:
            return self.gpus_hold(measure(placement, n_ctx))

        whole = self.fixed or Placement(self.layers if self.gpus else 0)
        candidates = [whole]
        if self.gpus and self.fixed is None and not gpus_hold(whole):
            rest = Placement(self.layers, self.expert_layers)
            if self.expert_layers and gpus_hold(rest):
                most = self.expert_layers
                kept = _most(lambda n: gpus_hold(Placement(self.layers, most - n)), most - 1)
                candidates.append(Placement(self.layers, most - kept))
            else:
                layers = _most(lambda n: gpus_hold(Placement(n)), self.layers - 1)
                candidates.append(Placement(layers))
        if self.fixed is None and self.gpus:
            candidates.append(Placement(0))
        for placement in candidates:
            if self.holds(measure(placement, n_ctx)):
                return self.verdict(placement), placement
        return "does not fit", candidates[-2] if len(candidates) > 2 else whole

    def verdict(self, placement: Placement) -> Verdict:
        if not self.gpus or placement.gpu_layers == 0:
            return "CPU"
        whole = placement.gpu_layers >= self.layers and not placement.cpu_experts
        return "GPU" if whole else "GPU+CPU"

    def fit(self, measure: Measure, n_ctx: int, n_ctx_train: int) -> Fit:
        verdict, placement = self.place(measure, n_ctx)
        whole = self.fixed or Placement(self.layers)
        most = max(n_ctx_train, n_ctx)
        n_ctx_gpu = 0
        if self.gpus and self.verdict(whole) == "GPU":
            n_ctx_gpu = _largest(lambda n: self.holds(measure(whole, n)), most)
        n_ctx_max = max(
            n_ctx_gpu,
            _largest(lambda n: self.place(measure, n)[0] != "does not fit", most),
        )
        return Fit(
            verdict=verdict,
            gpu_layers=placement.gpu_layers,
            layers=self.layers,
            cpu_experts=placement.cpu_experts,
            n_ctx=n_ctx,
            n_ctx_max=n_ctx_max,
            n_ctx_gpu=n_ctx_gpu,
            need=measure(placement, n_ctx),
            free=self.free,
        )


def _most(holds: Callable[[int], bool], most: int) -> int:
    """The largest n from 0 to ``most`` that holds, where every smaller one does too."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def _largest(holds: Callable[[int], bool], most: int) -> int:
    """The largest context up to ``most`` that holds; 0 where none does."""
    if holds(most):
        return most
    steps = _most(lambda n: n == 0 or holds(n * CONTEXT_STEP), most // CONTEXT_STEP)
    n_ctx = steps * CONTEXT_STEP
    return n_ctx if n_ctx >= SMALLEST_CONTEXT else 0


# ---- by formula --------------------------------------------------------------------------------


class Formula:
    """What a target and its drafter take, from their headers."""

    def __init__(
        self,
        header: GGUFHeader,
        context: ContextSettings,
        load: LoadSettings,
        memory: Memory,
        drafter: GGUFHeader | None = None,
        n_max: int = 0,
    ) -> None:
        self._context = context
        self._load = load
        own_heads = drafter is not None and drafter.path == header.path
        self._target = _Shape(header, outputs=n_max + 1, snapshots=n_max)
        self._drafter = _Shape(drafter, outputs=1, mtp=own_heads) if drafter else None
        fixed = None
        if load.gpu_layers >= 0 or load.n_cpu_moe:
            layers = load.gpu_layers if load.gpu_layers >= 0 else self._target.all_layers
            fixed = Placement(min(layers, self._target.all_layers), load.n_cpu_moe)
        self.room = Room(
            memory,
            gpus_of(memory, load.device),
            self._target.all_layers,
            self._target.expert_layers,
            fixed,
        )
        self.n_ctx_train = header.number("context_length") or 0

    def fit(self, n_ctx: int) -> Fit:
        return self.room.fit(self.measure, n_ctx, self.n_ctx_train)

    def measure(self, placement: Placement, n_ctx: int) -> Needs:
        s = self._context
        gpus = self.room.gpus if self._load.split != "none" else self.room.gpus[:1]
        needs = self._target.needs(placement, n_ctx, gpus, s.kv_type, s)
        if self._drafter is not None:
            every = self._drafter.all_layers
            asked = self._load.draft_gpu_layers
            there = Placement(min(asked, every) if asked >= 0 else every)
            left = [replace(d, free=max(0, d.free - _total(needs, d.name))) for d in gpus]
            drafter = self._drafter.needs(there, n_ctx, left, s.draft_kv_type, s)
            for name, need in drafter.items():
                needs[name] = needs.get(name, Need()) + Need(drafter=need.total)
        return needs


def _total(needs: Needs, device: str) -> int:
    return needs[device].total if device in needs else 0


class _Shape:
    """One model's sizes by layer, in the terms of llama.cpp's hparams."""

    def __init__(
        self, header: GGUFHeader, *, outputs: int, snapshots: int = 0, mtp: bool = False
    ) -> None:
        self._header = header
        self._outputs = outputs
        self._snapshots = snapshots if header.arch in KEEPS_STATES else 0
        self._mtp = mtp  # a context over the MTP layers of a model that is loaded already
        self._count = header.number("block_count") or 0
        self._trunk = header.layers or 0
        self._tensors: list[dict[str, tuple[int, ...]]] = [{} for _ in range(self._count)]
        self._bytes = [0] * self._count
        self._experts = [0] * self._count
        self._input = self._output = self._largest = 0
        tied = 0
        for tensor in header.tensors:
            block = _BLOCK.match(tensor.name)
            if block and int(block[1]) < self._count:
                il = int(block[1])
                self._tensors[il][block[2]] = tensor.shape
                if _EXPERTS.search(block[2]):
                    self._experts[il] += tensor.n_bytes
                else:
                    self._bytes[il] += tensor.n_bytes
            elif tensor.name.startswith(_INPUT):
                self._input += tensor.n_bytes
                tied += tensor.n_bytes if tensor.name == "token_embd.weight" else 0
            else:
                self._output += tensor.n_bytes
            if not tensor.name.startswith(_INPUT):
                self._largest = max(self._largest, tensor.n_bytes)
        # The embeddings are the output too where there is none: a copy of them goes to the GPU.
        has_output = any(t.name == "output.weight" for t in header.tensors)
        self._tied = 0 if has_output else tied

    @property
    def all_layers(self) -> int:
        """llama.cpp's n_gpu_layers for all: the MTP layers and the output are counted."""
        return self._count + 1

    @property
    def expert_layers(self) -> int:
        """Up to the last layer that has experts; 0 where none has."""
        return max((il + 1 for il, size in enumerate(self._experts) if size), default=0)

    def needs(
        self,
        placement: Placement,
        n_ctx: int,
        gpus: Sequence[Device],
        kv_type: str,
        context: ContextSettings,
    ) -> dict[str, Need]:
        place = _places(self._count, placement.gpu_layers, gpus)
        needs: dict[str, Need] = {}

        def add(device: str, need: Need) -> None:
            needs[device] = needs.get(device, Need()) + need

        cells = -(-n_ctx // CONTEXT_STEP) * CONTEXT_STEP
        for il in range(self._count):
            add(
                place[il],
                Need(
                    weights=0 if self._mtp else self._bytes[il],
                    kv=cells * self._kv_row(il, kv_type),
                    recurrent=self._state(il),
                ),
            )
            experts = RAM if il < placement.cpu_experts else place[il]
            add(experts, Need(weights=0 if self._mtp else self._experts[il]))
        if not self._mtp:
            add(RAM, Need(weights=self._input))
            add(place[-1], Need(weights=self._output))
            if place[-1] != RAM:
                add(place[-1], Need(weights=self._tied))
        compute = self._compute(cells, context)
        for device in dict.fromkeys(place):
            add(device, Need(compute=compute))
        if any(p != RAM for p in place):
            add(RAM, Need(compute=self._inputs(cells, context)))
        return needs

    # ---- caches

    def _per_layer(self, key: str, il: int) -> int | None:
        """A number that a file gives once, or for every layer."""
        value = self._header.kv.get(f"{self._header.arch}.{key}")
        if isinstance(value, tuple):
            value = value[il] if il < len(value) else None
        return int(value) if isinstance(value, int | float) else None

    def _holds_kv(self, il: int) -> bool:
        if self._trunk and (il >= self._trunk) != self._mtp:
            return False
        shared = self._header.number("attention.shared_kv_layers") or 0
        if self._header.arch == "gemma3n":
            return il < _GEMMA3N_KV_LAYERS
        return il < self._count - shared

    def _kv_row(self, il: int, kv_type: str) -> int:
        """Bytes of K and V that one position takes in this layer."""
        tensors, header = self._tensors[il], self._header
        if not self._holds_kv(il) or header.arch == "gemma4-assistant":  # the target's are used
            return 0
        if not any(name.startswith("attn_") for name in tensors):
            return 0
        is_recurrent = any(name.startswith(_RECURRENT_TENSORS) for name in tensors)
        if is_recurrent and "attn_k.weight" not in tensors:
            return 0
        heads = self._per_layer("attention.head_count", il) or 0
        heads_kv = self._per_layer("attention.head_count_kv", il)
        heads_kv = heads if heads_kv is None else heads_kv
        each = (header.number("embedding_length") or 0) // max(heads, 1)
        key = self._per_layer("attention.key_length", il) or each
        value = self._per_layer("attention.value_length", il) or each
        if header.number("attention.key_length_mla"):  # one latent row for all heads, no V
            row = bytes_of(kv_type, key * max(heads_kv, 1))
        elif "attn_k.weight" in tensors and len(tensors["attn_k.weight"]) > 1:
            k = tensors["attn_k.weight"][1]
            v = tensors.get("attn_v.weight", (0, k))[1]
            row = bytes_of(kv_type, k) + bytes_of(kv_type, v)
        else:
            row = bytes_of(kv_type, key * heads_kv) + bytes_of(kv_type, value * heads_kv)
        indexer = header.number("attention.indexer.key_length")
        if indexer and any(name.startswith("indexer") for name in tensors):
            row += bytes_of(kv_type, indexer)
        return row

    def _state(self, il: int) -> int:
        """Bytes of this layer's recurrent state, and of those retained for a rollback."""
        names = self._tensors[il]
        recurrent = any(name.startswith(_RECURRENT_TENSORS) for name in names)
        if not recurrent or self._header.arch not in RECURRENT or self._mtp:
            return 0
        header, width = self._header, self._header.number("embedding_length") or 0
        heads = self._per_layer("attention.head_count", il) or 0
        conv = header.number("ssm.conv_kernel") or 0
        if wkv := header.number("wkv.head_size"):
            shifts = header.number("token_shift_count") or (1 if header.arch == "rwkv6qwen2" else 2)
            elements = shifts * width + width * wkv
        elif cache := header.number("shortconv.l_cache"):
            elements = width * (cache - 1)
        elif head := header.number("kda.head_dim"):
            elements = 3 * (conv - 1 if conv else 3) * heads * head + head * head * heads
        else:
            inner, state = header.number("ssm.inner_size") or 0, header.number("ssm.state_size")
            groups = header.number("ssm.group_count") or 0
            elements = max(conv - 1, 0) * (inner + 2 * groups * (state or 0)) + inner * (state or 0)
        return 4 * elements * (1 + self._snapshots)

    # ---- buffers of a batch

    def _compute(self, cells: int, context: ContextSettings) -> int:
        tokens = min(context.n_batch, cells)
        width = self._header.number("embedding_length") or 0
        widest = 0
        for il in range(self._count):
            widest = max(widest, self._per_layer("feed_forward_length", il) or 0)
        logits = 4 * self._outputs * (self._header.n_vocab or 0)
        return 4 * tokens * (3 * width + 2 * widest) + 2 * tokens * cells + logits

    def _inputs(self, cells: int, context: ContextSettings) -> int:
        """What a batch for a GPU takes in RAM: its tokens, their embeddings, the mask."""
        tokens = min(context.n_batch, cells)
        return 4 * tokens * (self._header.number("embedding_length") or 0) + 2 * tokens * cells


_GEMMA3N_KV_LAYERS = 20  # n_layer_kv_from_start in src/models/gemma3n.cpp


def _places(count: int, gpu_layers: int, gpus: Sequence[Device]) -> list[str]:
    """The device of every layer and, last, of the output: the last ``gpu_layers`` of these go to
    GPUs, dealt out by their free memory (llama_model_base::load_tensors)."""
    if not gpus or gpu_layers <= 0:
        return [RAM] * (count + 1)
    start = max(count + 1 - gpu_layers, 0)
    on_gpu = min(gpu_layers, count + 1)
    free = list(accumulate(d.free for d in gpus))
    shares = [f / free[-1] if free[-1] else 1.0 for f in free]
    places = [RAM] * start
    for il in range(start, count + 1):
        i = bisect_right(shares, (il - start) / on_gpu)
        places.append(gpus[min(i, len(gpus) - 1)].name)
    return places
