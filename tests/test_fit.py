"""What fits where, decided from headers alone: machines of every kind, made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.fit import MARGIN, RAM, RAM_MARGIN, Formula, Placement, estimate, refine
from localspec.gguf_header import GGUFHeader, TensorInfo, bytes_of
from localspec.machine import Memory
from localspec.records import ContextSettings, Device, LoadSettings, Use

GIB = 1 << 30


def header(
    arch: str = "llama",
    *,
    n_layer: int = 32,
    n_embd: int = 4096,
    n_ff: int = 14336,
    n_head: int = 32,
    n_head_kv: int = 8,
    vocab: int = 128256,
    n_ctx: int = 131072,
    experts: int = 0,
    quant: str = "Q4_K",
    path: str = "model.gguf",
) -> GGUFHeader:
    """The header of a model of ordinary shape; nothing of it is on any disk."""
    head = n_embd // n_head
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (n_embd, vocab),
        "output_norm.weight": (n_embd,),
        "output.weight": (n_embd, vocab),
    }
    for il in range(n_layer):
        shapes |= {
            f"blk.{il}.attn_q.weight": (n_embd, n_embd),
            f"blk.{il}.attn_k.weight": (n_embd, n_head_kv * head),
            f"blk.{il}.attn_v.weight": (n_embd, n_head_kv * head),
            f"blk.{il}.attn_output.weight": (n_embd, n_embd),
        }
        kinds = {"gate": (n_embd, n_ff), "up": (n_embd, n_ff), "down": (n_ff, n_embd)}
        for kind, shape in kinds.items():
            name = f"blk.{il}.ffn_{kind}"
            shapes |= (
                {f"{name}_exps.weight": (*shape, experts)} if experts else {f"{name}.weight": shape}
            )
    tensors, offset = [], 0
    for name, shape in shapes.items():
        size = 1
        for n in shape:
            size *= n
        kind = quant if len(shape) > 1 else "F32"
        tensors.append(TensorInfo(name, shape, kind, offset, bytes_of(kind, size)))
        offset += tensors[-1].n_bytes
    kv: dict[str, int] = {
        "block_count": n_layer,
        "embedding_length": n_embd,
        "feed_forward_length": n_ff,
        "attention.head_count": n_head,
        "attention.head_count_kv": n_head_kv,
        "context_length": n_ctx,
        "vocab_size": vocab,
    } | ({"expert_count": experts, "expert_used_count": 2} if experts else {})
    return GGUFHeader(
        path=Path(path),
        version=3,
        arch=arch,
        kv={f"{arch}.{key}": value for key, value in kv.items()},
        tensors=tuple(tensors),
        file_size=offset,
        expected_size=offset,
        shards=(Path(path),),
    )


def gpu(gib: float, name: str = "CUDA0", kind: str = "gpu") -> Device:
    return Device(name, "a card", kind, int(gib * GIB), int(gib * GIB))  # type: ignore[arg-type]


def machine(ram: float, *devices: Device) -> Memory:
    return Memory(int(ram * GIB), int(ram * GIB), devices)


SMALL = header()  # 8 B, 4.2 GiB
BIG = header(n_layer=80, n_embd=8192, n_ff=28672, n_head=64, path="big.gguf")  # 70 B, 37 GiB
MIXTURE = header(experts=8, path="mixture.gguf")  # 47 B, 25 GiB, nearly all of it experts


def test_a_model_that_the_gpu_holds_goes_there_wholly() -> None:
    fit = estimate(SMALL, machine(32, gpu(24)), n_ctx=8192)
    assert (fit.verdict, fit.gpu_layers, fit.cpu_experts) == ("GPU", 33, 0)
    assert fit.n_ctx_max == fit.n_ctx_gpu > 100_000
    assert fit.need["CUDA0"].kv == 8192 * 32 * 2 * 8 * 128 * 2
    assert "Fits on the GPU" in fit.sentence


def test_without_a_gpu_the_same_model_runs_in_ram() -> None:
    fit = estimate(SMALL, machine(32), n_ctx=8192)
    assert (fit.verdict, fit.gpu_layers) == ("CPU", 0)
    assert set(fit.need) == {RAM}


def test_of_a_model_too_big_for_the_gpu_as_many_layers_go_there_as_fit() -> None:
    memory = machine(64, gpu(24))
    fit = estimate(BIG, memory, n_ctx=8192)
    assert fit.verdict == "GPU+CPU"
    assert 30 < fit.gpu_layers < 60
    formula = Formula(BIG, ContextSettings(8192, 1), LoadSettings(), memory)
    here = formula.measure(Placement(fit.gpu_layers), 8192)["CUDA0"].total
    one_more = formula.measure(Placement(fit.gpu_layers + 1), 8192)["CUDA0"].total
    assert here + MARGIN <= 24 * GIB < one_more + MARGIN


def test_of_a_mixture_of_experts_the_experts_of_the_first_layers_stay_in_ram() -> None:
    fit = estimate(MIXTURE, machine(64, gpu(16)), n_ctx=8192)
    assert fit.verdict == "GPU+CPU"
    assert fit.gpu_layers == fit.layers
    assert 8 < fit.cpu_experts < 28


def test_two_gpus_share_the_layers_by_what_is_free_on_them() -> None:
    fit = estimate(BIG, machine(64, gpu(32), gpu(24, "CUDA1")), n_ctx=4096)
    assert fit.verdict == "GPU"
    first, second = fit.need["CUDA0"].weights, fit.need["CUDA1"].weights
    assert first / second == pytest.approx(32 / 24, rel=0.1)


def test_an_integrated_gpu_is_used_only_where_there_is_no_other_and_shares_the_ram() -> None:
    shared = gpu(20, "Vulkan0", "igpu")
    assert "Vulkan0" not in estimate(SMALL, machine(32, gpu(24), shared), n_ctx=4096).need
    assert estimate(SMALL, machine(32, shared), n_ctx=4096).verdict == "GPU"
    assert estimate(SMALL, machine(4, shared), n_ctx=4096).verdict == "does not fit"


def test_what_fits_nowhere_says_up_to_which_context_it_would() -> None:
    memory = machine(8)
    fit = estimate(SMALL, memory, n_ctx=131072)
    assert fit.verdict == "does not fit"
    assert 8192 < fit.n_ctx_max < 32768
    most = estimate(SMALL, memory, n_ctx=fit.n_ctx_max)
    assert most.verdict == "CPU"
    assert most.total + RAM_MARGIN <= 8 * GIB
    assert estimate(SMALL, memory, n_ctx=fit.n_ctx_max + 256).verdict == "does not fit"
    assert estimate(BIG, memory, n_ctx=512).n_ctx_max == 0


def test_a_quantised_cache_takes_less() -> None:
    full = estimate(SMALL, machine(32), n_ctx=32768).need[RAM].kv
    q8 = estimate(SMALL, machine(32), n_ctx=32768, kv_type="q8_0").need[RAM].kv
    assert q8 / full == pytest.approx(34 / 64)


def test_a_drafter_takes_from_the_targets_room() -> None:
    memory = machine(64, gpu(24))
    alone = estimate(BIG, memory, n_ctx=8192)
    together = estimate(BIG, memory, n_ctx=8192, drafter_header=SMALL)
    assert together.need["CUDA0"].drafter > 5 * GIB
    assert together.gpu_layers < alone.gpu_layers


def test_layers_that_a_person_asks_for_are_not_replaced() -> None:
    load = LoadSettings(gpu_layers=81)
    fit = estimate(BIG, machine(64, gpu(24)), n_ctx=8192, load=load)
    assert (fit.verdict, fit.gpu_layers) == ("does not fit", 81)
    load = LoadSettings(gpu_layers=20)
    assert estimate(BIG, machine(64, gpu(24)), n_ctx=8192, load=load).gpu_layers == 20


def test_a_device_named_is_the_one_that_is_filled() -> None:
    load = LoadSettings(device="CUDA1")
    fit = estimate(SMALL, machine(64, gpu(24), gpu(12, "CUDA1")), n_ctx=4096, load=load)
    assert set(fit.need) == {"CUDA1", RAM}


def test_what_llama_cpp_says_corrects_the_formula() -> None:
    """A simulation that finds 3 GiB more on the GPU than the formula: fewer layers, less context,
    and the figures shown are the simulation's."""
    memory = machine(64, gpu(24))
    formula = Formula(BIG, ContextSettings(8192, 1), LoadSettings(), memory)
    asked: list[tuple[Placement, int]] = []

    def simulate(placement: Placement, n_ctx: int) -> tuple[Use, ...]:
        asked.append((placement, n_ctx))
        more = {"CUDA0": 3 * GIB}
        return tuple(
            Use(d, "target", n.weights, n.kv + n.recurrent, n.compute + more.get(d, 0))
            for d, n in formula.measure(placement, n_ctx).items()
        )

    guess, fit = formula.fit(8192), refine(formula, simulate, 8192)
    assert fit.verdict == guess.verdict == "GPU+CPU"
    assert 4 <= guess.gpu_layers - fit.gpu_layers <= 8
    need = formula.measure(Placement(fit.gpu_layers), 8192)["CUDA0"].total + 3 * GIB
    assert fit.need["CUDA0"].total == need <= 24 * GIB - MARGIN
    assert len(asked) <= 6  # a simulation of a large model takes up to a second


def test_a_simulation_that_agrees_is_asked_no_more_than_it_takes() -> None:
    formula = Formula(SMALL, ContextSettings(8192, 1), LoadSettings(), machine(32, gpu(24)))
    asked = []

    def simulate(placement: Placement, n_ctx: int) -> tuple[Use, ...]:
        asked.append(n_ctx)
        needs = formula.measure(placement, n_ctx)
        return tuple(Use(d, "target", n.weights, n.kv, n.compute) for d, n in needs.items())

    assert refine(formula, simulate, 8192) == formula.fit(8192)
    assert asked == [8192, 131072]
