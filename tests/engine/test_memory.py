"""What llama.cpp would take, by its own simulation and by our formula, against what it does take.

The models are of ten architectures, all zeros: large enough that weights, caches and buffers all
count, small enough to be loaded in a moment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import shapes
from engine.conftest import NGRAM, PLAIN

from localspec.engine.client import Engine
from localspec.errors import ModelFileError
from localspec.fit import RAM, Formula, Need, Placement
from localspec.gguf_header import check_model_file
from localspec.machine import Memory, memory
from localspec.records import ContextSettings, DrafterSettings, LoadSettings, Use

MIB = 1 << 20
# Mapped, a weight that is laid out anew is there twice, once as pages that nobody needs any more.
READ = LoadSettings(mmap=False)
CONTEXT = ContextSettings(n_ctx=2048, threads=1, n_batch=256)
IN_RAM = Placement(0)

Write = Callable[[Path], Path]
SMALL: dict[str, Write] = {
    "grouped queries": lambda p: shapes.llama(
        p, n_layer=6, n_embd=512, n_ff=1536, n_head=8, n_head_kv=2, vocab=4000
    ),
    "sliding window": lambda p: shapes.gemma3(
        p, n_layer=8, n_embd=512, n_ff=1536, n_head=4, n_head_kv=2, head=128, vocab=4000
    ),
    "mixture of experts": lambda p: shapes.qwen3moe(
        p,
        n_layer=4,
        n_embd=512,
        n_ff=256,
        n_expert=16,
        n_used=4,
        n_head=8,
        n_head_kv=2,
        head=64,
        vocab=4000,
    ),
    "latent attention": lambda p: shapes.deepseek2(
        p, n_layer=27, n_embd=256, n_ff=768, n_head=4, rank=128, vocab=4000
    ),
    "Mamba": lambda p: shapes.mamba(p, n_layer=12, n_embd=512, vocab=4000),
    "gated delta nets": lambda p: shapes.qwen35(
        p,
        n_layer=8,
        n_embd=512,
        n_ff=1536,
        n_head=4,
        n_head_kv=2,
        head=128,
        k_heads=4,
        v_heads=8,
        vocab=4000,
    ),
    "all in one matrix": lambda p: shapes.phi3(
        p, n_layer=6, n_embd=512, n_ff=1536, n_head=8, vocab=4000
    ),
    "short convolutions": lambda p: shapes.lfm2(
        p, n_layer=9, n_embd=512, n_ff=1536, n_head=8, n_head_kv=2, vocab=4000
    ),
}
LARGE: dict[str, Write] = {
    "grouped queries": lambda p: shapes.llama(
        p, n_layer=80, n_embd=8192, n_ff=28672, n_head=64, n_head_kv=8, vocab=4000
    ),
    "sliding window": lambda p: shapes.gemma3(
        p, n_layer=34, n_embd=2560, n_ff=10240, n_head=8, n_head_kv=4, head=256, vocab=4000
    ),
    "mixture of experts": lambda p: shapes.qwen3moe(
        p,
        n_layer=48,
        n_embd=2048,
        n_ff=768,
        n_expert=128,
        n_used=8,
        n_head=32,
        n_head_kv=4,
        head=128,
        vocab=4000,
    ),
    "latent attention": lambda p: shapes.deepseek2(
        p, n_layer=27, n_embd=2048, n_ff=10944, n_head=16, rank=512, vocab=4000
    ),
    "Mamba": lambda p: shapes.mamba(p, n_layer=64, n_embd=2560, vocab=4000),
    "gated delta nets": lambda p: shapes.qwen35(
        p,
        n_layer=32,
        n_embd=4096,
        n_ff=12288,
        n_head=16,
        n_head_kv=4,
        head=256,
        k_heads=16,
        v_heads=32,
        vocab=4000,
    ),
    "all in one matrix": lambda p: shapes.phi3(
        p, n_layer=32, n_embd=3072, n_ff=8192, n_head=32, vocab=4000
    ),
    "short convolutions": lambda p: shapes.lfm2(
        p, n_layer=16, n_embd=2048, n_ff=8192, n_head=32, n_head_kv=8, vocab=4000
    ),
}


@pytest.fixture(scope="module")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "engine.log"


@pytest.fixture(scope="module")
def engine(log_file: Path) -> Iterator[Engine]:
    with Engine(log_file=log_file) as engine:
        yield engine


def by_formula(
    path: Path,
    context: ContextSettings = CONTEXT,
    drafter: DrafterSettings = PLAIN,
) -> Need:
    header = check_model_file(path)
    own = header if drafter.method == "mtp" else None
    if drafter.path:
        own = check_model_file(drafter.path)
    formula = Formula(header, context, READ, memory(), own, drafter.n_max)
    return formula.measure(IN_RAM, context.n_ctx)[RAM]


def total(uses: Sequence[Use]) -> int:
    return sum(u.weights + u.context + u.compute for u in uses)


def of(uses: Sequence[Use], role: str) -> Use:
    (use,) = (u for u in uses if u.role == role)
    return use


def logged(text: str, kind: str) -> float:
    """The sum of what the log says of buffers of this kind, in bytes."""
    sizes = re.findall(rf"\b{kind} buffer size = +([\d.]+) MiB", text)
    return sum(float(size) for size in sizes) * MIB


@pytest.mark.parametrize("shape", SMALL)
def test_simulation_and_formula_say_what_is_taken_after_loading(
    shape: str, engine: Engine, log_file: Path, tmp_path: Path
) -> None:
    path = SMALL[shape](tmp_path / "model.gguf")
    simulated = engine.memory(path, CONTEXT, READ)
    formula = by_formula(path)
    start = log_file.stat().st_size
    engine.load(path, READ)
    engine.open("s", PLAIN, CONTEXT)
    real = engine.session_memory("s")
    log = log_file.read_text("utf-8")[start:]

    # by llama.cpp's log, a witness of its own
    use = of(real, "target")
    assert use.weights == pytest.approx(logged(log, "model"), abs=0.02 * MIB)
    assert use.context == pytest.approx(logged(log, "KV") + logged(log, "RS"), abs=0.03 * MIB)
    assert use.compute == pytest.approx(logged(log, "compute") + 4 * 4000, abs=0.02 * MIB)

    would = of(simulated, "target")
    assert (would.weights, would.context) == (use.weights, use.context)
    assert would.compute == pytest.approx(use.compute, rel=0.1)
    assert formula.weights == pytest.approx(use.weights, rel=0.01)
    assert formula.kv + formula.recurrent == pytest.approx(use.context, rel=0.01)
    assert formula.total == pytest.approx(total(real), rel=0.1)


@pytest.mark.parametrize("flash_attn", ["on", "off"])
@pytest.mark.parametrize("shape", LARGE)
def test_formula_and_simulation_agree_at_the_sizes_of_real_models(
    shape: str, flash_attn: str, engine: Engine, models: Path
) -> None:
    path = models / f"{shape}.gguf"
    if not path.exists():
        LARGE[shape](path)
    for n_ctx in (4096, 32768):
        context = ContextSettings(n_ctx, threads=1, flash_attn=flash_attn)  # type: ignore[arg-type]
        use = of(engine.memory(path, context), "target")
        formula = by_formula(path, context)
        assert formula.weights == pytest.approx(use.weights, rel=0.001)
        assert formula.kv + formula.recurrent == use.context
        assert formula.compute == pytest.approx(use.compute, rel=0.15)
        assert formula.total == pytest.approx(total([use]), rel=0.02)


@pytest.mark.parametrize("kv_type", ["q8_0", "q4_0", "bf16", "f32"])
def test_every_cache_type_is_counted_by_its_own_size(
    kv_type: str, engine: Engine, tmp_path: Path
) -> None:
    path = SMALL["grouped queries"](tmp_path / "model.gguf")
    context = replace(CONTEXT, kv_type=kv_type)
    assert by_formula(path, context).kv == of(engine.memory(path, context), "target").context


def demo_drafters() -> dict[str, DrafterSettings]:
    folder = Path(__file__).parents[2] / "assets" / "demo"
    files = {
        "draft-model": "smollm2-135m-draft-q4_0.gguf",
        "eagle3": "smollm2-135m-eagle3-q4_0.gguf",
        "dflash": "smollm2-135m-dflash-q4_0.gguf",
        "dspark": "smollm2-135m-dspark-q4_0.gguf",
    }
    return {
        method: DrafterSettings(method, method, str(folder / file), n_max=5)
        for method, file in files.items()
    }


@pytest.mark.parametrize("method", demo_drafters())
def test_a_drafter_and_its_context_are_counted(
    method: str, engine: Engine, demo_model: Path
) -> None:
    drafter = demo_drafters()[method]
    simulated = engine.memory(demo_model, CONTEXT, READ, drafter)
    engine.load(demo_model, READ)
    engine.open("s", drafter, CONTEXT)
    real = engine.session_memory("s")
    assert total(simulated) == pytest.approx(total(real), rel=0.01)
    theirs = of(real, "drafter")
    drafters = theirs.weights + theirs.context + theirs.compute
    formula = by_formula(demo_model, CONTEXT, drafter)
    assert formula.drafter == pytest.approx(drafters, rel=0.1)
    assert formula.total == pytest.approx(total(real), rel=0.1)


def test_mtp_layers_draft_from_weights_that_are_loaded_already(
    engine: Engine, demo_hybrid: Path
) -> None:
    drafter = DrafterSettings("mtp", "mtp", n_max=4)
    simulated = engine.memory(demo_hybrid, CONTEXT, READ, drafter)
    engine.load(demo_hybrid, READ)
    engine.open("s", drafter, CONTEXT)
    real = engine.session_memory("s")
    assert of(real, "drafter").weights == of(simulated, "drafter").weights == 0
    assert of(real, "drafter").context == of(simulated, "drafter").context > 0
    assert total(simulated) == pytest.approx(total(real), rel=0.01)
    assert by_formula(demo_hybrid, CONTEXT, drafter).total == pytest.approx(total(real), rel=0.1)


def test_the_states_retained_for_a_rollback_are_counted(engine: Engine, demo_hybrid: Path) -> None:
    plain = of(engine.memory(demo_hybrid, CONTEXT, READ), "target")
    drafts = of(engine.memory(demo_hybrid, CONTEXT, READ, NGRAM), "target")
    one = by_formula(demo_hybrid).recurrent
    assert drafts.context - plain.context == NGRAM.n_max * one
    assert by_formula(demo_hybrid, CONTEXT, NGRAM).recurrent == (1 + NGRAM.n_max) * one


def test_a_simulation_leaves_an_open_session_as_it_is(
    engine: Engine, demo_hybrid: Path, tiny_target: Path
) -> None:
    engine.load(tiny_target)
    small = replace(CONTEXT, n_ctx=256, n_batch=32)
    engine.open("s", PLAIN, small)
    prompt = engine.tokenize("abc")
    before = engine.generate("s", prompt, max_tokens=20).tokens
    taken = engine.session_memory("s")
    engine.memory(demo_hybrid, CONTEXT)
    assert engine.session_memory("s") == taken
    assert engine.generate("s", prompt, max_tokens=20).tokens == before


def test_a_file_that_is_not_there_is_said_and_the_engine_lives_on(
    engine: Engine, tiny_target: Path, tmp_path: Path
) -> None:
    with pytest.raises(ModelFileError):
        engine.memory(tmp_path / "none.gguf", CONTEXT)
    assert engine.memory(tiny_target, replace(CONTEXT, n_ctx=256))


def test_a_model_of_any_size_is_judged_without_being_read(
    engine: Engine, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Memory(total=32 << 30, free=16 << 30)
    monkeypatch.setattr(engine, "free_memory", lambda: small)
    path = models / "grouped queries.gguf"
    if not path.exists():
        LARGE["grouped queries"](path)
    fit = engine.fit(path, ContextSettings(4096, threads=1))
    assert fit.need[RAM].weights > 60 << 30
    assert (fit.verdict, fit.n_ctx_max) == ("does not fit", 0)


def test_the_fit_of_a_small_model_is_by_simulation(engine: Engine, demo_model: Path) -> None:
    fit = engine.fit(demo_model, CONTEXT)
    assert fit.verdict == "CPU"
    assert fit.total == total(engine.memory(demo_model, CONTEXT))
    assert fit.n_ctx_max == 8192


def test_the_processor_is_a_device_with_this_machines_memory(engine: Engine) -> None:
    (cpu,) = (d for d in engine.devices() if d.kind == "cpu")
    assert cpu.name == RAM
    assert cpu.total == pytest.approx(psutil.virtual_memory().total, rel=0.05)
