"""Quantisations and settings in one table: which there are, and a whole bench of them."""

import json
from dataclasses import replace

import pytest
from gguf import GGMLQuantizationType
from tiny_models import byte_vocabulary, tiny_llama

from localspec.bench import table
from localspec.bench.bases import find_bases
from localspec.bench.command import bench, select
from localspec.bench.plan import Candidate, Plan, Prepared
from localspec.bench.result_schema import Result
from localspec.bench.runner import Runner
from localspec.bench.sessions import Host, Sessions
from localspec.bench.workloads import Prompt
from localspec.engine.client import Engine
from localspec.errors import EngineDied, NotHere, UsageError
from localspec.models.export import of_bench
from localspec.records import (
    BenchOptions,
    ContextSettings,
    DrafterSettings,
    EngineOptions,
    SamplerSettings,
)

PROMPTS = "Why is the sky blue?\nName three rivers of Europe.\nCount from one to ten, please.\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One model in two quantisations, and another model beside it."""
    where = tmp_path_factory.mktemp("quants")
    for quant in ("Q8_0", "F16"):
        kind = GGMLQuantizationType[quant]
        path = where / f"tiny-{quant}.gguf"
        tiny_llama(path, tokens=byte_vocabulary(300), n_ctx=1024, n_embd=64, quant=kind)
    tiny_llama(where / "other-Q4_0.gguf", tokens=byte_vocabulary(290))
    return where


@pytest.fixture
def options(folder, tmp_path):
    workload = tmp_path / "mine.txt"
    workload.write_text(PROMPTS)
    return BenchOptions(
        model=str(folder / "tiny-Q8_0.gguf"),
        drafters=("ngram",),
        workloads=(str(workload),),
        n_max=(2,),
        max_tokens=8,
        ignore_eos=True,
        json=str(tmp_path / "r.json"),
        engine=EngineOptions(threads=1),
    )


# ---- which there are --------------------------------------------------------------------------


def test_the_grid_is_named_by_what_differs_and_the_first_is_the_reference(options):
    assert [b.name for b, _ in find_bases(options)] == [""]
    swept = replace(options, quants=("Q8_0", "f16"), kv_types=("f16", "q8_0"), thread_counts=(1, 2))
    found = find_bases(swept)
    names = [b.name for b, _ in found]
    assert len(names) == len(set(names)) == 8
    assert (names[0], names[-1]) == ("Q8_0 kv=f16 t=1", "F16 kv=q8_0 t=2")
    assert {b.path is None for b, _ in found[:4]} == {True}
    assert [t.path.name for _, t in found[::4]] == ["tiny-Q8_0.gguf", "tiny-F16.gguf"]
    context = found[-1][0].context(ContextSettings(n_ctx=256, threads=1))
    assert (context.kv_type, context.threads, context.flash_attn) == ("q8_0", 2, "auto")


def test_one_quantisation_is_only_another_file(options):
    selected = select(replace(options, quants=("F16",)))
    assert selected.target.path.name == "tiny-F16.gguf"
    assert [c.key for c in selected.candidates] == ["baseline", "ngram n=2"]


def test_a_quantisation_is_found_by_its_path_too(options, folder):
    (first, _), (second, target) = find_bases(
        replace(options, quants=("Q8_0", str(folder / "tiny-F16.gguf")))
    )
    assert (first.name, second.name, target.path.name) == ("Q8_0", "F16", "tiny-F16.gguf")


@pytest.mark.parametrize(
    ("model", "quants", "error", "words"),
    [
        ("tiny-Q8_0.gguf", ("Q8_0", "Q2_K"), UsageError, "has no Q2_K of tiny. It has Q8_0, F16"),
        ("tiny-Q8_0.gguf", ("Q8_0", "other-Q4_0.gguf"), UsageError, "in another quantisation"),
        ("hf:a/b:Q8_0", ("Q4_K_M", "Q6_K"), NotHere, "models pull hf:a/b:Q4_K_M"),
        ("hf:a/b:Q8_0", ("Q4_K_M", "Q6_K"), NotHere, "models pull hf:a/b:Q6_K"),
        ("demo", ("Q4_1", "Q8_0"), UsageError, "Give the path of its Q8_0"),
        ("qwen3-0.6b", ("Q8_0", "Q4_0"), UsageError, "no model called"),
    ],
)
def test_what_is_not_here_is_named_with_what_to_do(
    options, folder, hub, model, quants, error, words
):
    if model.endswith(".gguf"):
        model = str(folder / model)
    quants = tuple(str(folder / q) if q.endswith(".gguf") else q for q in quants)
    with pytest.raises(error) as caught:
        find_bases(replace(options, model=model, quants=quants))
    said = f"{caught.value.message} {caught.value.hint}"
    assert words in said.replace("tiny, tiny", "tiny")


# ---- engines and contexts ---------------------------------------------------------------------


@pytest.fixture
def two_files(folder):
    """Sessions over both files, in two processes; and the candidates on them."""

    def host(path):
        engine = Engine()
        engine.load(path)
        return engine

    slow, quick = str(folder / "tiny-Q8_0.gguf"), str(folder / "tiny-F16.gguf")
    base = find_bases(BenchOptions(slow, quants=("Q8_0", "F16")))
    people = tuple(
        Candidate(f"{b.name}: {d.name}", f"{b.name}: {d.name}", d, 0.0, b)
        for b, _ in base
        for d in (DrafterSettings(), DrafterSettings("ngram", "ngram", n_max=2))
    )
    opened = []

    def make(together):
        context = ContextSettings(n_ctx=256, threads=1)
        engine = host(slow)
        prompts = tuple(
            Prepared(Prompt(f"p{i}", "w", (("user", t),)), engine.tokenize(t))
            for i, t in enumerate(PROMPTS.splitlines())
        )
        plan = Plan(prompts, people, context, SamplerSettings(), 8, 1, 3, True)
        hosts = {quick: Host(lambda: host(quick))}
        sessions = Sessions(engine, lambda: host(slow), context, together, None, hosts)
        opened.append(sessions)
        return plan, sessions

    yield make
    for sessions in opened:
        sessions.end()


def test_each_file_has_a_process_and_both_answer_in_turn(two_files):
    plan, sessions = two_files(together=True)
    pids = {}
    for candidate in plan.candidates:
        assert sessions.use(candidate)
        pids[candidate] = sessions.engine.pid
    slow, slow_drafted, quick, quick_drafted = plan.candidates
    assert pids[slow] == pids[slow_drafted] != pids[quick] == pids[quick_drafted]
    assert not sessions.use(slow)
    assert sessions.engine.pid == pids[slow]
    with pytest.raises(EngineDied):
        sessions.use(quick)
        sessions.engine._process.kill()
        sessions.engine._process.wait()
        sessions.engine.tokenize("abc")
    assert sessions.use(quick), "opened anew in a new process"
    assert sessions.engine.pid != pids[quick]
    assert not sessions.use(slow), "the other file's process was left alone"


def test_one_file_at_a_time_where_memory_holds_no_more(two_files):
    plan, sessions = two_files(together=False)
    alive = []

    def watch(event):
        alive.append(sum(e.alive for e in sessions._engines.values()))

    done = Runner(plan, sessions, watch).run()
    assert set(alive) == {1}
    assert done.state == "complete"
    sizes = {c.key: 0 for c in plan.candidates}
    for row in done.rows:
        if row.slot.phase == "main":
            sizes[row.slot.candidate.key] += 1
    slow, slow_drafted, quick, quick_drafted = sizes.values()
    assert (slow, slow_drafted, quick, quick_drafted) == (6, 3, 3, 3)


# ---- the whole of it --------------------------------------------------------------------------


def test_a_sweep_end_to_end(options, tmp_path, capsys):
    swept = replace(
        options,
        quants=("Q8_0", "F16"),
        kv_types=("f16", "q8_0"),
        flash_attns=("on", "off"),
        csv=str(tmp_path / "r.csv"),
        html=str(tmp_path / "r.html"),
        card=str(tmp_path / "r.svg"),
        engine=replace(options.engine, flash_attn="on"),
    )
    assert bench(swept) == 0, "a quantised KV cache needs flash attention: those rows say so"
    result = json.loads((tmp_path / "r.json").read_text())
    Result.model_validate(result)
    found = {(c["base"], c["method"]): c for c in result["candidates"]}
    assert len(found) == 2 * 2 * 2 * 2
    refused = [c for c in result["candidates"] if c["status"] == "refused"]
    assert {c["base"] for c in refused} == {"Q8_0 kv=q8_0 fa=off", "F16 kv=q8_0 fa=off"}
    assert len(refused) == 4
    for c in result["candidates"]:
        if c["status"] == "ok":
            wanted = next(b for b in result["bases"] if b["name"] == c["base"])
            assert c["effective"]["flash_attn"] == wanted["flash_attn"]
            assert c["effective"]["kv_type"] == wanted["kv_type"]
            assert c["runs"] == 3
    first, other = found["Q8_0 kv=f16 fa=on", "none"], found["F16 kv=f16 fa=on", "none"]
    assert first["reference_speedup"] == 1.0
    assert other["reference_speedup"] > 0
    assert other["reference_speedup_ci"] is not None
    assert other["verdict"] == "baseline"
    assert (tmp_path / "r.csv").read_text().splitlines()[0].endswith(",base")
    said = [line for line in table.alarms(result) if "quantized V cache requires" in line]
    assert len(said) == 2, "one a file, for the baseline and its drafter together"
    assert "over reference [95 %]" in capsys.readouterr().out
    winner = json.loads((tmp_path / "r.json").read_text())
    for c in winner["candidates"]:
        c["confirmed"] = False
        c["reference_speedup"], c["reference_verdict"] = 1.1, "faster"
    chosen = next(c for c in winner["candidates"] if c["base"] == "F16 kv=q8_0 fa=on")
    chosen["reference_speedup"] = 2.0
    (tmp_path / "w.json").write_text(json.dumps(winner))
    setup = of_bench(str(tmp_path / "w.json"), EngineOptions())
    assert setup.target.path.name == "tiny-F16.gguf"
    assert (setup.engine.kv_type, setup.engine.flash_attn) == ("q8_0", "on")
    assert setup.drafter.method == "none"


@pytest.mark.parametrize(
    ("drafters", "strict", "code"),
    [(("ngram",), False, 0), (("ngram",), True, 1), (("none",), False, 1)],
)
def test_a_base_that_cannot_be_opened_fails_a_strict_bench_or_one_of_nothing_else(
    options, drafters, strict, code, capsys
):
    """A quantised KV cache needs flash attention."""
    engine = replace(options.engine, flash_attn="off")
    swept = replace(
        options, kv_types=("f16", "q8_0"), drafters=drafters, strict=strict, engine=engine
    )
    assert bench(swept) == code
    said = " ".join(capsys.readouterr().out.split())
    assert "quantized V cache requires" in said
    assert ("Nothing but the baseline on kv=f16 could be measured" in said) == (
        drafters == ("none",)
    )
