"""Past results: kept, found again, compared prompt by prompt, and judged for scripts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_runs import candidate, generation, prompt, result, row
from typer.testing import CliRunner

from localspec.bench import gates, history
from localspec.bench.comparison import compare_results, record
from localspec.bench.past_table import measured as in_words
from localspec.bench.past_table import remarks
from localspec.bench.resume import HASH_OF_FILE, SIZE_OF_FILE
from localspec.commands import app
from localspec.errors import UsageError
from localspec.records import BenchOptions
from localspec.store import Store

BASELINE, SMALL, NGRAM = (
    candidate(),
    candidate("small", 3, path="/m/small.gguf"),
    candidate("ngram", 8),
)
PROMPTS = [prompt(f"p{i}", "chat8" if i < 4 else "code9") for i in range(8)]
SPEEDS = {BASELINE: 100.0, SMALL: 130.0, NGRAM: 90.0}


def measured(
    speeds: Mapping[Any, float] = SPEEDS, prompts: Any = PROMPTS, seed: int = 1, **more: Any
) -> dict[str, Any]:
    """A result in which each candidate runs at about its speed: prompts differ by some percent, in
    another way for each ``seed``."""
    rows = [
        row(who, p, generation(tps=tps * (1 + 0.01 * math.sin(seed * 7 + 3 * i + len(who.key)))))
        for i, p in enumerate(prompts)
        for who, tps in speeds.items()
    ]
    more.setdefault("sha256", "a" * 64)
    more.setdefault("facts", {f"{SMALL.key}: {HASH_OF_FILE}": "b" * 64})
    return result(rows, list(speeds), prompts, **more)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store that the commands use."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return Store()


def kept(store: Store, *results: dict[str, Any]) -> list[int]:
    for i, made in enumerate(results):
        made["created"] = f"2026-11-2{i}T10:00:00+00:00"
    return [history.keep(made, store) for made in results]


# ---- kept and found ---------------------------------------------------------------------------


def test_a_result_comes_back_as_it_was(store: Store) -> None:
    made = measured()
    (number,) = kept(store, made)
    assert history.read(str(number), store) == json.loads(json.dumps(made))
    (line,) = history.past(store=store)
    assert (line.target, line.quant, line.prompts) == ("demo", "Q4_1", 8)
    assert (line.workloads, line.drafters) == (("chat8", "code9"), ("small", "ngram"))
    assert line.best is not None
    assert (line.best["name"], line.best["verdict"]) == ("small n=3", "faster")
    assert line.baseline_tps == pytest.approx(100, rel=0.01)


def test_the_latest_comes_first_and_is_called_last(store: Store) -> None:
    kept(store, measured(), measured({BASELINE: 50.0, NGRAM: 60.0}))
    assert [p.id for p in history.past(store=store)] == [2, 1]
    assert history.read("last", store)["candidates"][0]["decode_tps"] < 60


def test_words_are_looked_for_in_everything_that_the_list_shows(store: Store) -> None:
    kept(store, measured(), measured({BASELINE: 50.0, NGRAM: 60.0}, quick=True))

    def found(*words: str) -> list[int]:
        return [p.id for p in history.past(words, store)]

    assert found("small") == [1]
    assert found("NGRAM", "quick") == [2]
    assert found("2026-11-20") == [1]
    assert found("2") == [2, 1]
    assert found("nothing") == []


def test_a_number_is_never_given_twice(store: Store) -> None:
    kept(store, measured(), measured())
    store.delete_bench(2)
    assert kept(store, measured()) == [3]
    with pytest.raises(UsageError, match="No benchmark has number 2"):
        history.read("2", store)
    for digits in (19, 30, 5000):
        with pytest.raises(UsageError, match="No benchmark has number 9"):
            history.read("9" * digits, store)


def test_a_file_of_bench_is_read_too(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    file.write_text(json.dumps(measured()))
    assert history.read(str(file), store)["target"]["name"] == "demo"
    for text, said in (
        ("not JSON", "no result of localspec bench"),
        ('{"candidates": []}', "no result of localspec bench"),
        (json.dumps(measured() | {"schema": 99}), "schema 99"),
    ):
        file.write_text(text)
        with pytest.raises(UsageError, match=said):
            history.read(str(file), store)
    with pytest.raises(UsageError, match="no number, and no file"):
        history.read("nowhere.json", store)


# ---- compared ---------------------------------------------------------------------------------


def test_the_speedups_of_the_rows_are_those_of_the_table() -> None:
    """The comparison reads rows: it must come to the figures that the result itself has."""
    again = [
        row(who, p, generation(tps=tps * (1 + i / 100)), phase="confirm", run=1)
        for i, p in enumerate(PROMPTS)
        for who, tps in ((BASELINE, 100.0), (SMALL, 125.0))
    ]
    plain = measured()
    rows = [
        row(who, p, generation(tps=SPEEDS[who] * (1 + i / 50)))
        for i, p in enumerate(PROMPTS)
        for who in SPEEDS
    ]
    confirmed = result([*rows, *again], list(SPEEDS), PROMPTS)
    assert confirmed["candidates"][1]["confirmed"]
    for made in (plain, confirmed):
        flat = json.loads(json.dumps(made))
        for r in flat["rows"]:
            r["decode_tps"] = 100.0
        for c in compare_results(flat, made).changes[1:]:
            assert c.speedup.speedup == pytest.approx(c.after["speedup"])


def test_a_slower_drafter_is_a_regression_and_a_steady_one_is_none() -> None:
    before = measured()
    after = measured({BASELINE: 100.0, SMALL: 110.0, NGRAM: 90.0}, seed=2)
    changes = {c.after["drafter"]: c for c in compare_results(before, after).changes}
    small = changes["small"]
    assert small.speedup.speedup == pytest.approx(110 / 130, rel=0.01)
    assert small.regressions() == ["tok/s", "speedup"]
    assert small.regressions(0.10) == ["tok/s", "speedup"]
    assert small.regressions(0.20) == []
    assert changes["ngram"].regressions() == changes["none"].regressions() == []


def test_an_interval_on_one_side_without_a_verdict_is_explained() -> None:
    compared = compare_results(measured(), measured(seed=2))
    first, *rest = compared.changes
    assert not any("chance" in line for line in remarks(compared))
    low = replace(first.tps, speedup=0.88, interval=(0.79, 0.98))
    doubtful = replace(first, tps=low, tps_verdict="no difference shown")
    lines = remarks(replace(compared, changes=(doubtful, *rest)))
    assert any("chance (Holm's correction)" in line for line in lines)
    shown = replace(doubtful, tps_verdict="slower")
    assert not any("chance" in li for li in remarks(replace(compared, changes=(shown, *rest))))


def test_a_slower_machine_moves_speeds_and_leaves_speedups() -> None:
    after = measured({who: tps * 0.8 for who, tps in SPEEDS.items()}, seed=2)
    compared = compare_results(measured(), after)
    assert [c.regressions() for c in compared.changes] == [["tok/s"]] * 3
    assert record(compared)["candidates"][1]["speedup_change"]["verdict"] == "no difference shown"


def test_what_differs_is_said() -> None:
    before = measured()
    after = measured(
        machine={"cpu": "Xeon"},
        sha256="c" * 64,
        facts={f"{SMALL.key}: {HASH_OF_FILE}": "d" * 64},
        asked={"gpu_layers": 20},
    )
    after["build"]["llama_cpp"] = "b2"
    compared = compare_results(before, after)
    assert compared.apart == (
        "another machine: processor EPYC, then Xeon",
        f"another target: hash {'a' * 12}, then {'c' * 12}",
        f"another drafter small n=3: hash {'b' * 12}, then {'d' * 12}",
    )
    assert compared.versions == ("llama.cpp b1 (0c1e57098), then b2",)
    assert compared.settings == ("gpu_layers -1, then 20",)
    assert compare_results(before, measured()).apart == ()


def test_a_file_without_a_hash_is_known_by_its_size() -> None:
    """Those over a gigabyte are not hashed."""

    def large(size: int) -> dict[str, Any]:
        return measured(sha256=None, facts={f"{SMALL.key}: {SIZE_OF_FILE}": size})

    assert compare_results(large(9), large(9)).apart == ()
    assert compare_results(large(9), large(8)).apart == (
        "another drafter small n=3: bytes 9, then 8",
    )


def test_only_the_same_prompts_are_paired() -> None:
    longer = [prompt("p0", "chat8", tokens=11), *PROMPTS[1:]]
    compared = compare_results(measured(), measured(prompts=longer))
    assert compared.prompts == 7
    assert compared.missing == ("1 prompt only in the first", "1 prompt only in the second")
    few = compare_results(measured(), measured(prompts=PROMPTS[:2]))
    assert not few.judged
    assert few.changes[1].regressions() == []


def test_the_figures_shown_are_those_that_the_change_is_of() -> None:
    """The prompts of one result alone are in none of them: here they are twice as fast."""
    rows = [
        row(who, p, generation(tps=tps * (2 if i >= 3 else 1 + i / 10)))
        for i, p in enumerate(PROMPTS)
        for who, tps in SPEEDS.items()
    ]
    before = result(rows, list(SPEEDS), PROMPTS)
    after = measured({who: tps * 0.5 for who, tps in SPEEDS.items()}, prompts=PROMPTS[:3])
    compared = compare_results(before, after)
    for change in compared.changes:
        assert change.tps.speedup is not None and change.tps_of is not None
        first, second = change.tps_of
        assert second / first == pytest.approx(change.tps.speedup)
        assert change.tps.speedup == pytest.approx(0.455, rel=0.02)
        assert change.before["decode_tps"] > 1.3 * first
    small = compared.changes[1]
    assert small.speedup_of is not None
    assert small.speedup_of[1] / small.speedup_of[0] == pytest.approx(small.speedup.speedup)
    assert record(compared)["candidates"][1]["decode_tps"] == list(small.tps_of or ())
    said = "means (geometric) over the 3 prompts that both have, as the changes are."
    assert any(line.endswith(said) for line in remarks(compared))
    without = [r for r in rows if r.slot.candidate != SMALL or r.slot.prompt != PROMPTS[0]]
    fewer = compare_results(result(without, list(SPEEDS), PROMPTS), after)
    assert any(line.endswith("; small n=3 over 2 of them.") for line in remarks(fewer))


def test_candidates_of_one_alone_are_named() -> None:
    compared = compare_results(
        measured(), measured({BASELINE: 100.0, candidate("small", 5): 130.0})
    )
    assert compared.missing == (
        "small n=3 only in the first",
        "ngram n=8 only in the first",
        "small n=5 only in the second",
    )


def test_what_was_not_compared_is_named_with_its_temperature_where_there_are_several() -> None:
    """ "baseline only in the first" stood there twice, word for word."""
    both = {candidate(temperature=t): 100.0 for t in (0.0, 0.8)}
    warm = {candidate(temperature=1.0): 100.0}
    assert compare_results(measured(both), measured(warm)).missing == (
        "baseline T=0 only in the first",
        "baseline T=0.8 only in the first",
        "baseline T=1 only in the second",
    )


# ---- for scripts ------------------------------------------------------------------------------


def test_fail_below_asks_for_the_lower_end_of_the_interval() -> None:
    made = measured()
    low = made["candidates"][1]["speedup_ci"][0]
    assert 1.28 < low < 1.3
    assert gates.below(made, 1.28) is None
    said = gates.below(made, 1.3)
    assert said is not None
    assert "small n=3 is 1.30x [1.2" in said
    few = measured(prompts=PROMPTS[:2])
    assert "No drafter has an interval" in (gates.below(few, 1.0) or "")


def test_where_a_winner_was_measured_again_its_own_interval_decides() -> None:
    made = measured()
    made["candidates"][1] |= {"confirmed": True, "speedup_ci": [1.1, 1.2]}
    made["candidates"][2]["speedup_ci"] = [1.4, 1.5]
    assert gates.below(made, 1.2) is not None


def test_a_regression_is_looked_for_in_the_last_benchmark_of_the_same(store: Store) -> None:
    options = BenchOptions("demo", fail_on_regression=0.05)
    slower = measured({BASELINE: 100.0, SMALL: 110.0, NGRAM: 90.0}, seed=2)
    assert gates.failure(options, slower, store) is None
    assert "no benchmark of the same to compare with" in gates.against(slower, store)
    kept(
        store,
        measured(),
        measured(machine={"cpu": "Xeon"}),
        measured(asked={"gpu_layers": 3}),
        measured(interrupted=True),
        measured(prompts=PROMPTS[:2]),
    )
    failed = gates.failure(options, slower, store)
    assert failed is not None
    assert failed.message.startswith("small n=3 lost 15.")
    assert "against benchmark 1)" in failed.message
    assert gates.failure(replace(options, fail_on_regression=0.2), slower, store) is None
    assert "compared with benchmark 1." in gates.against(slower, store)


# ---- the commands -----------------------------------------------------------------------------


@pytest.fixture
def command(store: Store, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setenv("COLUMNS", "140")
    kept(
        store,
        measured(),
        measured({BASELINE: 100.0, SMALL: 110.0, NGRAM: 90.0}, seed=2, machine={"cpu": "EPYC"}),
    )
    return lambda *words: CliRunner().invoke(app, list(words))


def test_history_lists_filters_and_limits(command: Callable[..., Any]) -> None:
    shown = command("history").stdout
    assert shown.index("2026-11-21") < shown.index("2026-11-20")
    assert "1.30x [1.2" in shown
    assert "8 prompts of chat8, code9" in shown
    limited = command("history", "--limit", "1")
    assert "2026-11-20" not in limited.stdout
    assert "1 older" in limited.stderr
    nobody = " ".join(command("history", "--filter", "nobody").stderr.split())
    assert nobody == (
        "No benchmark of the history has nobody in it; `localspec history` lists what there is."
    )
    lines = json.loads(command("history", "--json", "-f", "2026-11-20").stdout)
    assert [line["id"] for line in lines] == [1]
    command("history", "rm", "1", "2")
    empty = "The history is empty; `localspec bench` adds to it."
    assert empty in command("history", "--filter", "nobody").stderr


def test_a_prompt_of_ones_own_is_called_that(store: Store) -> None:
    def told(*prompts: Any) -> str:
        kept(store, measured(prompts=prompts))
        return in_words(history.past(store=store)[0])

    one = prompt("prompt", "prompt")
    assert told(one) == "one prompt of yours"
    assert told(one, prompt("prompt", "prompt@4k")) == "one prompt of yours at 0, 4k tokens"
    assert told(prompt("p", "mine")) == "1 prompt of mine"
    assert told(one, prompt("p", "prompt")) == "2 prompts of prompt"


@pytest.mark.parametrize("columns", [80, 140])
def test_history_and_compare_fit_the_terminal_and_cut_nothing(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for words in (("history",), ("compare", "1", "2")):
        shown = command(*words).stdout
        assert max(map(len, shown.splitlines())) <= columns
        assert "…" not in shown
        assert "small" in shown


def test_a_past_result_is_shown_written_and_removed(
    command: Callable[..., Any], tmp_path: Path
) -> None:
    assert "small n=3 is 1.30x" in command("history", "show", "1").stdout
    names = [str(tmp_path / f"r.{kind}") for kind in ("json", "csv", "md")]
    words = ("--json", names[0], "--csv", names[1], "--markdown", names[2])
    assert command("history", "show", "last", *words).exit_code == 0
    assert json.loads(Path(names[0]).read_text())["target"]["name"] == "demo"
    assert "| baseline |" in Path(names[2]).read_text()
    with pytest.raises(UsageError, match="number 9"):
        CliRunner().invoke(app, ["history", "rm", "1", "9"], catch_exceptions=False)
    assert command("history", "rm", "1").exit_code == 0
    assert "2026-11-20" not in command("history").stdout


def test_compare_marks_what_is_slower_and_fails_when_asked(command: Callable[..., Any]) -> None:
    compared = command("compare", "1", "2")
    assert compared.exit_code == 0
    assert "REGRESSION" in compared.stdout
    said = " ".join(compared.stdout.split())
    assert "REGRESSION, by 8 prompts that both have: small n=3 lost 15." in said
    marked = [line for line in compared.stdout.splitlines() if line.startswith("▼")]
    assert marked and all("small" in line for line in marked)
    failed = command("compare", "1", "2", "--fail-on-regression", "5%")
    assert isinstance(failed.exception, gates.GateFailed)
    assert "small n=3 lost 15." in failed.exception.message
    assert command("compare", "1", "2", "--fail-on-regression", "25").exit_code == 0
    assert command("compare", "2", "1", "--fail-on-regression", "5%").exit_code == 0
    facts = json.loads(command("compare", "1", "2", "--json").stdout)
    assert facts["candidates"][1]["regressions"] == ["tok/s", "speedup"]
    assert facts["comparable"] is True


def test_what_cannot_be_compared_fails_a_script(command: Callable[..., Any], store: Store) -> None:
    kept(store, measured(machine={"cpu": "Xeon"}))
    shown = command("compare", "1", "3")
    assert "Not comparable: another machine: processor EPYC, then Xeon." in shown.stdout
    failed = command("compare", "1", "3", "--fail-on-regression", "5%").exception
    assert isinstance(failed, gates.GateFailed)
    assert "not comparable" in failed.message


def test_a_percentage_is_checked(command: Callable[..., Any]) -> None:
    for word in ("many", "-3%", "100%", "nan"):
        refused = command("compare", "1", "2", "--fail-on-regression", word)
        assert refused.exit_code == 2
