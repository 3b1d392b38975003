"""Does a model fit this machine, with which layers on the GPUs, and up to which context?

``Formula`` computes what a model takes from headers alone, so it works for a file that is still on
the Hub; ``refine`` corrects it, for files that are here, by what llama.cpp itself would allocate
(``Engine.memory``). ``Room`` decides, from either.

Sources: llama.cpp's src/llama-model.cpp (which device gets which layer, create_memory),
llama-kv-cache.cpp, llama-memory-recurrent.cpp, llama-hparams.cpp, common/fit.cpp (the margin).
"""

from __future__ import annotations

import platform
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from typing import Literal, NamedTuple

from localspec.architectures import KEEPS_STATES, RECURRENT
from localspec.errors import UsageError
from localspec.gguf_header import GGUFHeader, bytes_of
from localspec.machine import Memory
from localspec.records import READER_BATCH, ContextSettings, Device, LoadSettings, Use

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
_FARTHEST, _LARGEST_CONTEXT = 16, 1 << 24
"""How often its trained context a model may be asked for, and the most tokens of any: llama.cpp
makes a cell of each even to simulate, and no scaling of positions goes nearly so far."""
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


def check_context(header: GGUFHeader, n_ctx: int) -> None:
    """Raises ``UsageError`` for a context beyond all sense."""
    trained = header.number("context_length") or 0
    most = min(max(_FARTHEST * trained, 1 << 17), _LARGEST_CONTEXT)
    most = most if trained else _LARGEST_CONTEXT
    if n_ctx > most:
        own = f"; {header.name} was trained with {trained:,}" if trained else ""
        raise UsageError(
            f"A context of {n_ctx:,} tokens is more than can be asked for{own}.",
            f"Give --ctx a number up to {most:,}.",
        )


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
        most = n_ctx_train or n_ctx
        n_ctx_gpu = 0
        if self.gpus and self.verdict(whole) == "GPU":
            n_ctx_gpu = _largest(lambda n: self.holds(measure(whole, n)), most)
        n_ctx_max = max(
            n_ctx_gpu,
            _largest(lambda n: self.place(measure, n)[0] != "does not fit", most),
            0 if verdict == "does not fit" else n_ctx,
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


# ---- by simulation -----------------------------------------------------------------------------

_ROUNDS = 4
Simulate = Callable[[Placement, int], tuple[Use, ...]]


def refine(formula: Formula, simulate: Simulate, n_ctx: int) -> Fit:
    """What ``formula`` decides, corrected by what llama.cpp says of the placements it decides on
    (and of the largest context), until it stands by them."""
    exact: dict[tuple[Placement, int], Needs] = {}
    off: dict[str, int] = {}

    def measure(placement: Placement, n_ctx: int) -> Needs:
        if (placement, n_ctx) in exact:
            return exact[placement, n_ctx]
        return {
            device: need + Need(compute=off.get(device, 0))
            for device, need in formula.measure(placement, n_ctx).items()
        }

    room, trained = formula.room, formula.n_ctx_train
    for _ in range(_ROUNDS):
        fit = room.fit(measure, n_ctx, trained)
        questions = [(Placement(fit.gpu_layers, fit.cpu_experts), n_ctx)]
        if fit.n_ctx_max:
            questions.append((room.place(measure, fit.n_ctx_max)[1], fit.n_ctx_max))
        if fit.n_ctx_gpu not in (0, fit.n_ctx_max):
            questions.append((Placement(room.layers), fit.n_ctx_gpu))
        new = [q for q in dict.fromkeys(questions) if q not in exact]
        if not new:
            break
        for question in new:
            guess = formula.measure(*question)
            found = exact[question] = _needs_of(simulate(*question), guess)
            off = {d: _total(found, d) - _total(guess, d) for d in guess.keys() | found.keys()}
    return room.fit(measure, n_ctx, trained)


def _needs_of(uses: Sequence[Use], guess: Needs) -> dict[str, Need]:
    """llama.cpp gives a context in one figure; what of it is recurrent is known exactly."""
    needs: dict[str, Need] = {}
    for use in uses:
        if use.role == "drafter":
            need = Need(drafter=use.weights + use.context + use.compute)
        else:
            known = guess[use.device].recurrent if use.device in guess else 0
            recurrent = min(use.context, known)
            need = Need(use.weights, use.context - recurrent, recurrent, use.compute)
        needs[use.device] = needs.get(use.device, Need()) + need
    return needs


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
        self._target = _Shape(header, outputs=n_max + 1, snapshots=n_max, drafter=drafter)
        self._drafter = _Shape(drafter, outputs=n_max + 1, mtp=own_heads) if drafter else None
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
        self,
        header: GGUFHeader,
        *,
        outputs: int,
        snapshots: int = 0,
        mtp: bool = False,
        drafter: GGUFHeader | None = None,
    ) -> None:
        """``drafter`` reads hidden states of this model where it is of a family that does."""
        self._header = header
        self._wide = header.number("embedding_length") or 0
        self._read_layers = _read_layers(header)
        self._taps = len(_read_layers(drafter)) if drafter else 0
        self._hidden = int(drafter is not None and drafter.mtp_layers > 0)
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
                self._largest = max(self._largest, tensor.n_bytes)
            elif tensor.name.startswith(_INPUT):
                self._input += tensor.n_bytes
                tied += tensor.n_bytes if tensor.name == "token_embd.weight" else 0
            else:
                self._output += tensor.n_bytes
        # The embeddings are the output too where there is none: a copy of them goes to the GPU, and
        # to where the CPU backend lays matrices out anew.
        types = {t.name: t.type for t in header.tensors}
        self._tied = 0 if "output.weight" in types else tied
        self._repacked = _repacked(types.get("token_embd.weight", ""))

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
            if place[-1] != RAM or self._repacked:
                add(place[-1], Need(weights=self._tied))
        compute = self._compute(cells, context)
        some_in_ram = RAM in place or placement.cpu_experts > 0
        for device in dict.fromkeys(place):
            # weights that lie in RAM are copied to a GPU for a large batch (op_offload)
            copied = self._largest if device != RAM and some_in_ram else 0
            add(device, Need(compute=compute + copied))
        if RAM not in place:
            add(RAM, Need(compute=self._inputs(cells, context)))
        add(RAM, Need(compute=self._outputs_buffer(cells, context)))
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
        each = self._wide // max(heads, 1)
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
        header, width = self._header, self._wide
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

    # ---- buffers of a batch: measured, not derived. ggml shares memory between the tensors of a
    # graph, so what counts is the widest place in it; the terms below were fitted to simulations of
    # ten architectures at the sizes of real models (benchmarks/fit.py shows how far they are off).

    def _compute(self, cells: int, context: ContextSettings) -> int:
        """Bytes of the buffer that a batch is computed in."""
        tokens = self._tokens(cells, context)
        masks = 2 if self._header.number("attention.sliding_window") else 1
        layers = range(self._count)
        flash = context.flash_attn != "off"
        widest = max((self._width(il, 0 if flash else cells, masks) for il in layers), default=0)
        state = max((self._state(il) for il in layers), default=0) // (1 + self._snapshots)
        attends = any(self._kv_row(il, "f16") for il in layers)
        mask = 2 * tokens * cells * masks if flash and attends else 0
        body = tokens * (widest + self._taps * self._wide)
        rows = tokens if self._header.drafter_family and self._read_layers else self._outputs
        head = rows * ((self._header.n_vocab or 0) + 2 * self._wide)
        return 4 * max(body, head) + mask + 2 * state

    def _tokens(self, cells: int, context: ContextSettings) -> int:
        """The most tokens of one decode."""
        return min(READER_BATCH if self._read_layers else context.n_batch, cells)

    def _width(self, il: int, scores: int, masks: int) -> int:
        """Floats a token at the widest place of this layer; ``scores``: over how many cells every
        head's attention scores stand there at once (without flash attention)."""
        wide, tensors = self._wide, self._tensors[il]

        def out(name: str) -> int:
            shape = tensors.get(f"{name}.weight", ())
            return shape[1] if len(shape) > 1 else 0

        feed = 4 * wide + 3 * (self._per_layer("feed_forward_length", il) or 0)
        used = self._per_layer("expert_used_count", il) or 0
        if used and self._experts[il]:
            shape = next(s for name, s in tensors.items() if name.startswith("ffn_down_exps"))
            each = used * shape[0]
            feed = max(5 * wide + 3 * each, 3 * wide + 2 * used * wide + each)
        attend = recur = 0
        heads = self._per_layer("attention.head_count", il) or 0
        if self._kv_row(il, "f16"):
            key = self._per_layer("attention.key_length", il) or wide // max(heads, 1)
            queries = max(out("attn_q"), heads * key)
            attend = 3 * wide + 2 * queries + 2 * out("attn_k") + scores * (heads + masks)
        inner = self._header.number("ssm.inner_size") or 0
        if "ssm_in.weight" in tensors:  # Mamba
            recur = wide + 6 * inner
        elif any(name.startswith("ssm_") for name in tensors):  # gated delta nets
            recur = 3 * wide + 2 * out("attn_qkv") + 2 * inner
        read = len(self._read_layers) * (self._header.number("target_hidden_size") or wide)
        return max(feed, attend, recur, 2 * read)

    def _outputs_buffer(self, cells: int, context: ContextSettings) -> int:
        """Bytes of what a batch is read from, which lies in RAM: logits, tapped hidden states."""
        tokens = self._tokens(cells, context)
        states = (self._taps + self._hidden) * tokens * self._wide
        rows = tokens if self._header.arch == "eagle3" else self._outputs
        return 4 * (rows * (self._header.n_vocab or 0) + states)

    def _inputs(self, cells: int, context: ContextSettings) -> int:
        """What a batch for a GPU takes in RAM: its tokens, their embeddings, the mask."""
        tokens = self._tokens(cells, context)
        return 4 * tokens * self._wide + 2 * tokens * cells


# The types whose matrices the CPU backend lays out anew (ggml-cpu/repack.cpp), by processor.
_REPACKED = frozenset({"Q4_0", "Q4_K", "Q2_K", "IQ4_NL", "MXFP4"})
_REPACKED_ON_ARM = _REPACKED | {"Q5_K", "Q6_K", "Q8_0"}


def _repacked(type_name: str) -> bool:
    arm = platform.machine().lower() in ("arm64", "aarch64")
    return type_name in (_REPACKED_ON_ARM if arm else _REPACKED)


def _read_layers(header: GGUFHeader) -> tuple[object, ...]:
    """The target's layers that an EAGLE-3 or DFlash drafter reads."""
    found = header.kv.get(f"{header.arch}.target_layers")
    return found if isinstance(found, tuple) else ()


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
