import csv
import io
import json
import os
import re
from dataclasses import replace

import pytest
from rich.console import Console

from localspec.bench import page, report, table
from localspec.bench.audit import Audit, Divergence
from localspec.bench.console import make_console
from localspec.bench.runner import Status
from localspec.errors import UsageError
from localspec.records import Counts, Step, count

DRAFTED = Counts(20, 18, 20, 63, 144, 43, 144, (17, 12, 9, 5, 2, 1, 1, 1), (18,) * 8)
NAMES = {
    "schema", "created", "localspec", "machine", "build", "target", "settings", "workloads",
    "candidates", "rows",
}  # fmt: skip
CANDIDATE_NAMES = {
    "drafter", "method", "n_max", "p_min", "status", "reason", "decode_tps", "speedup",
    "speedup_ci", "verdict", "end_to_end_speedup", "accept_length", "accept_length_drafted",
    "draft_coverage", "acceptance_rate", "reach_rate", "conditional_rate", "counts", "ttft_ms",
    "drafter_prefill_ms", "prefill_tps", "share", "overhead_us_per_step", "beta", "identical",
    "divergences", "by_workload",
}  # fmt: skip
ROW_NAMES = {
    "prompt", "workload", "drafter", "n_max", "run", "order", "seed", "tokens", "target_passes",
    "drafted", "accepted", "decode_tps", "ttft_ms", "stop", "flags",
}  # fmt: skip


def make(made, *given, **more):
    return made.result(*given, **more)


@pytest.fixture
def people(made):
    long_name = "smollm2-135m-draft-q4_0-with-a-long-name"
    return [
        made.candidate(),
        made.candidate("ngram", 8),
        made.candidate("small", 3),
        made.candidate(long_name, 8),
    ]


@pytest.fixture
def prompts(made):
    return [made.prompt(f"p{i}", "chat8" if i < 4 else "code9") for i in range(8)]


@pytest.fixture
def full(made, people, prompts):
    speeds = dict(zip(people, (98.4, 134.3, 91.2, 1093.5), strict=True))
    rows = []
    for i, p in enumerate(prompts):
        for who, tps in speeds.items():
            counts = None if who is people[0] else replace(DRAFTED, decode_tokens=63 - i)
            one = made.generation(range(64 - i), tps=tps * (1 + i / 100), counts=counts)
            rows.append(made.row(who, p, one))
    same = Audit(True, 8, (), 512)
    tie = Divergence("chat8", "p1", 0, 37, "near tie", 0.0123, 0.2)
    return make(
        made,
        rows,
        people,
        prompts,
        audits={people[1].key: same, people[2].key: Audit(False, 8, (tie,)), people[3].key: same},
    )


@pytest.fixture
def empty(made, people, prompts):
    """Nothing could be measured: the silent model, or Ctrl-C in the warm-up."""
    refused = {people[2].key: Status("refused", "The vocabularies differ.")}
    return make(made, [], people, prompts, status=refused, interrupted=True)


def shown(result, width, **console):
    out = io.StringIO()
    screen = Console(file=out, width=width, **console)
    screen.print(table.render(result, screen))
    return out.getvalue()


# ---- the result -------------------------------------------------------------------------------


def test_the_result_has_the_names_that_were_promised(full, empty):
    for result in (full, empty):
        assert set(result) >= NAMES
        assert all(set(c) >= CANDIDATE_NAMES for c in result["candidates"])
        assert all(set(r) >= ROW_NAMES for r in result["rows"])
    assert set(full["candidates"][0]["share"]) == {"draft", "verify", "rollback", "overhead"}
    assert set(full["candidates"][0]["by_workload"]) == {"chat8", "code9"}
    assert full["workloads"] == [{"name": "chat8", "prompts": 4}, {"name": "code9", "prompts": 4}]
    assert full["settings"]["n_ctx"] == 512


def test_runs_are_counted_where_candidates_have_not_as_many(made, people, prompts):
    """Their tok/s are of unlike prompts: 27.2 and 63.4 stood beside a speedup of 1.79."""
    rows = [
        made.row(who, p, made.generation(tps=tps))
        for who, p, tps in (
            (people[0], prompts[0], 27.2),
            (people[1], prompts[0], 48.7),
            (people[1], prompts[1], 90.0),
            (people[2], prompts[0], 20.0),
        )
    ]
    unlike = make(made, rows, people, prompts, interrupted=True)
    one_has_none = make(made, rows[:2] + rows[3:], people, prompts, interrupted=True)
    alike = make(made, rows[:2] + rows[3:], people[:3], prompts, interrupted=True)
    for result, told, counted in ((unlike, True, True), (one_has_none, False, True), (alike, 0, 0)):
        text = shown(result, 160)
        assert ("runs: they differ, so tok/s beside each other" in text) == told
        *_, head = (line for line in text.splitlines() if "speedup [95 %]" in line)
        assert ("  runs " in head) == counted
        assert ("| runs |" in table.to_markdown(result)) == counted
        live = [c.title for c in table.live_columns(result)]
        assert live.count("runs") == 1
    *_, line = (line for line in shown(unlike, 160).splitlines() if line.startswith("ngram "))
    assert line.split()[:3] == ["ngram", "8", "2"]


@pytest.mark.parametrize(
    ("states", "interrupted", "status", "verdicts"),
    [
        (("ok", "ok", "ok"), False, "complete", ["faster", "slower"]),
        (("ok", "crashed", "ok"), False, "crashed", ["faster", "slower"]),
        (("ok", "refused", "ok"), False, "refused", [None, "slower"]),
        (("ok", "refused", "crashed"), False, "crashed", [None, "slower"]),
        (("crashed", "interrupted", "interrupted"), False, "interrupted", [None, None]),
        (("ok", "crashed", "interrupted"), True, "interrupted", [None, None]),
        (("ok", "ok", "ok"), True, "interrupted", [None, None]),
    ],
)
def test_the_whole_is_as_well_as_its_worst_part(
    made, people, prompts, states, interrupted, status, verdicts
):
    """And of runs that are not all there nobody is judged, in the file as on the screen."""
    rows = [
        made.row(who, p, made.generation(tps=tps * (1 + i / 500)))
        for i, p in enumerate(prompts)
        for who, tps in zip(people[:3], (100, 130, 70), strict=True)
    ]
    kept = {
        c.key: Status(s, given_up=s == "refused") for c, s in zip(people[:3], states, strict=True)
    }
    result = make(made, rows, people[:3], prompts, status=kept, interrupted=interrupted)
    assert result["status"] == status
    assert [c["verdict"] for c in result["candidates"]] == ["baseline", *verdicts]
    text = " ".join(shown(result, 140).split())
    for sign, word in (("▲", "faster"), ("▼", "slower")):
        assert (f"{word} {sign}" in text) == (word in verdicts)
    assert ("Stopped before the end" in text) == (status == "interrupted")


def test_a_candidate_that_was_given_up_is_not_judged_by_the_runs_it_made(made, people, prompts):
    rows = [
        made.row(who, p, made.generation(tps=tps * (1 + i / 500)))
        for i, p in enumerate(prompts[:5])
        for who, tps in zip(people[:2], (100, 130), strict=True)
    ]
    gone = {people[1].key: Status("crashed", "It died.", 2, True)}
    result = make(made, rows, people[:2], prompts, status=gone)
    assert result["candidates"][1]["verdict"] is None
    assert result["candidates"][1]["speedup"] == pytest.approx(1.3)
    assert table.verdict(result["candidates"][1], table.UNICODE) == "crashed"
    assert table.conclusions(result)[0].startswith("No drafter could be measured; the baseline")


def test_absent_figures_are_null_and_the_json_is_strict(empty):
    text = report.to_json(empty)
    assert not re.search(r"NaN|Infinity", text)
    candidate = json.loads(text)["candidates"][1]
    for name in (
        "decode_tps",
        "speedup",
        "speedup_ci",
        "accept_length",
        "share",
        "ttft_ms",
        "beta",
    ):
        assert candidate[name] is None
    assert json.loads(text)["candidates"][2]["reason"] == "The vocabularies differ."


def test_not_a_number_is_never_written(empty):
    empty["candidates"][0]["decode_tps"] = float("nan")
    with pytest.raises(ValueError, match="JSON"):
        report.to_json(empty)


def test_figures_in_the_result_are_those_of_the_rows(full):
    baseline, ngram = full["candidates"][:2]
    assert (baseline["speedup"], baseline["verdict"]) == (1.0, "baseline")
    assert ngram["speedup"] == pytest.approx(134.3 / 98.4)
    assert ngram["acceptance_rate"] == pytest.approx(43 / 144)
    assert ngram["verdict"] == "faster"
    divergence = full["candidates"][2]["divergences"][0]
    assert (divergence["token"], divergence["class"]) == (37, "near tie")


def test_csv_has_the_rows(full, empty):
    rows = list(csv.DictReader(io.StringIO(report.to_csv(full))))
    assert len(rows) == 32
    assert float(rows[1]["decode_tps"]) == pytest.approx(134.3)
    assert rows[1]["drafter"] == "ngram"
    assert report.to_csv(empty).count("\n") == 1


# ---- what a person sees -----------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 100, 140, 200])
def test_no_line_is_too_wide_and_no_number_is_cut(full, width):
    text = shown(full, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for c in full["candidates"]:
        assert f"{c['decode_tps']:.1f}" in text
        assert table.speedup(c) in text
        assert table.shares(c) in text
    for word in ("faster", "slower", "near tie"):
        assert word in text
    joined = " ".join(text.split())
    for percent in ("94 67 50 28", "90%", "30%"):
        assert percent in joined


def test_a_wide_terminal_gets_one_table_and_a_narrow_one_two(full):
    assert shown(full, 160).count("drafter") == 2  # the first is that of the workloads
    assert shown(full, 80).count("drafter") > 2


NAMES_OF_THE_DEMO = ("draft-model", "eagle3", "dflash", "dspark", "ngram")


@pytest.fixture
def quick(made, prompts):
    """What ``bench --model demo --quick`` shows: long drafts, wide intervals, every verdict."""
    people = [made.candidate(), *(made.candidate(n, 2) for n in NAMES_OF_THE_DEMO[:-1])]
    people.append(made.candidate("ngram", 8))
    speeds = dict(zip(people, (78.8, 73.1, 98.5, 46.9, 40.6, 79.0), strict=True))
    rows = []
    for i, p in enumerate(prompts[:2] + prompts[4:6]):
        for k, (who, tps) in enumerate(speeds.items()):
            counts = None if who.is_baseline else replace(DRAFTED, decode_tokens=63)
            one = made.generation(tps=tps * (1 + (i * k % 3) / 20), ttft=0.389, counts=counts)
            rows.append(made.row(who, p, one))
    same = {c.key: Audit(True, 4, (), 512) for c in people[1:]}
    return make(made, rows, people, prompts[:2] + prompts[4:6], audits=same, quick=True)


def test_the_demos_quick_bench_fits_a_small_terminal_and_its_answer_comes_last(quick):
    text = shown(quick, 80)
    lines = text.rstrip("\n").split("\n")
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert " ".join(line.strip() for line in lines[-2:]) == table.conclusions(quick)[0]
    verdicts = [line for line in lines if re.search("no difference shown|faster .|slower .", line)]
    assert len(verdicts) == 5, "a row a drafter, and none is folded"
    (head,) = [i for i, line in enumerate(lines) if line.startswith("demo (Q4_1): 4 prompts of")]
    assert lines[head + 2].split()[:5] == ["drafter", "n", "tok/s", "speedup", "[95"]
    assert head + 4 + 6 < len(lines) < head + 14


def test_a_quick_bench_that_had_no_time_for_the_tokens_asked_for_says_so(quick):
    tokens = quick["settings"]["max_tokens"]
    for asked, said in ((None, False), (tokens, False), (tokens + 16, True)):
        notes = " ".join(table.notes(quick | {"options": {"max_tokens": asked}}))
        assert (f"runs of {tokens} tokens, not of {tokens + 16}" in notes) == said


def test_a_quick_bench_at_several_depths_shows_each(made, people):
    """What falls with the depth is what was asked for; one mean over all says nothing of it."""
    texts = [made.prompt("a", "chat8"), made.prompt("b", "chat8")]
    deep = [replace(p, prompt=replace(p.prompt, workload="chat8@4k", depth=4096)) for p in texts]
    rows = [
        made.row(who, p, made.generation(tps=tps))
        for p, tps in [(p, 100) for p in texts] + [(p, 37) for p in deep]
        for who in people[:2]
    ]
    text = shown(make(made, rows, people[:2], texts + deep, quick=True), 140)
    assert "chat8:" in text
    assert "chat8@4k:" in text
    assert re.search(r"baseline .* 100\.0 .* 37\.0", text)


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_every_candidate_is_one_line_of_every_table(full, quick, width):
    """Only a name longer than its column is folded."""
    for result, names in ((quick, ("baseline", *NAMES_OF_THE_DEMO)), (full, ("baseline", "ngram"))):
        lines = shown(result, width).split("\n")
        tables = sum(line.split()[:1] == ["drafter"] for line in lines)
        for name in names:
            rows = [line for line in lines if re.match(rf"{name} +[-\d]", line)]
            assert len(rows) == tables
    assert not re.search(r"^ +(shown|near ties?|identical)", "\n".join(lines), re.M)


def test_of_long_drafts_the_first_positions_and_the_last_are_shown():
    rates = [1 - i / 20 for i in range(16)]
    assert table.reach({"reach_rate": rates}) == "100 95 90 85 80 75 70 .. 25"
    assert table.reach({"reach_rate": rates[:8]}) == "100 95 90 85 80 75 70 65"
    assert table.reach({"reach_rate": []}) == "-"


def test_one_prompt_that_was_given_is_called_that(made, people):
    one = made.prompt("prompt", "prompt")
    rows = [made.row(who, one, made.generation()) for who in people[:2]]
    result = make(made, rows, people[:2], [one])
    assert table.heading(result).startswith("demo (llama, Q4_1): the prompt given, up to 64")
    for prompts, words in (
        ([made.prompt("a", "mine")], "1 prompt of mine"),
        ([one, made.prompt("b", "prompt")], "2 prompts of prompt"),
    ):
        assert f": {words}, up to" in table.heading(make(made, [], people[:2], prompts))


def test_a_correction_is_explained_where_it_shows(full):
    said = "an interval may exclude 1 without one"
    assert said not in " ".join(table.notes(full))
    full["candidates"][1] |= {"verdict": "no difference shown", "speedup_ci": [1.01, 1.2]}
    assert said in " ".join(table.notes(full))


def test_a_pipe_gets_no_control_characters_and_an_old_terminal_no_strange_signs(full):
    assert "\x1b" not in shown(full, 140)
    raw = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    screen = Console(file=raw, width=140)
    screen.print(table.render(full, screen))
    raw.flush()
    text = raw.buffer.getvalue().decode("ascii")
    assert "faster ^" in text
    assert "slower v" in text


def test_nothing_measured_reads_na(empty):
    text = shown(empty, 80)
    assert "n/a" in text
    assert not re.search(r"\bnan\b|None", text)
    assert "small n=3 refused: The vocabularies differ." in text
    assert "Stopped before anything was measured." in text
    assert "chat8:" not in text  # no table by workload, of nothing


def test_a_mismatch_is_loud(made, people, prompts):
    wrong = Divergence("chat8", "p1", 0, 5, "MISMATCH", 3.0, 0.1, "the batches do not explain it")
    rows = [made.row(w, p, made.generation()) for p in prompts for w in people[:2]]
    result = make(
        made, rows, people[:2], prompts, audits={people[1].key: Audit(False, 8, (wrong,))}
    )
    text = shown(result, 80)
    assert "MISMATCH: ngram n=8" in text
    assert "at token 5" in " ".join(text.split())
    assert "MISMATCH" in table.to_markdown(result)
    assert result["candidates"][1]["identical"] is False


def test_no_color_is_honoured(empty, monkeypatch):
    colour = re.compile(r"\x1b\[[0-9;]*3[0-7]m")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert colour.search(shown(empty, 80, force_terminal=True)), "a refusal is red"
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colour.search(shown(empty, 80, force_terminal=True))


def test_doubtful_rows_are_named_under_the_table(made, people, prompts):
    rows = [
        made.row(people[0], prompts[0], made.generation(), flags=["short", "repeats"]),
        made.row(people[1], prompts[0], None, flags=["crashed"]),
        made.row(people[1], prompts[1], made.generation(), flags=["faulty"]),
    ]
    text = shown(make(made, rows, people[:2], prompts), 200)
    assert "short: 1 of 3 runs" in text
    assert "repeats: 1 of 3 runs" in text
    assert "crashed: 1 of 3 runs" in text
    assert "FAULTY" in text


@pytest.mark.parametrize("why", ["cancelled", "replaced", "parted", "left-out"])
def test_a_run_that_is_in_no_figure_is_not_said_to_be_short(made, people, prompts, why):
    rows = [
        made.row(people[0], prompts[0], made.generation()),
        made.row(people[1], prompts[0], made.generation(range(9)), flags=["short", why]),
    ]
    result = make(made, rows, people[:2], prompts)
    for text in (shown(result, 200), table.to_markdown(result)):
        assert f"{why}: 1 of 2 runs" in text
        assert "short:" not in text


def test_a_drafter_that_is_hardly_ever_right_is_suspected(made, people, prompts):
    """In 50 steps or more; ngram drafts cost nothing and may be rarely right."""

    def said(candidate, **changes):
        counts = replace(DRAFTED, drafted=144, accepted=3, **changes)
        rows = [made.row(candidate, p, made.generation(counts=counts)) for p in prompts[:2]]
        return " ".join(shown(make(made, rows, people[:3], prompts[:2]), 140).split())

    suspected = "small n=3: only 2.1% of 288 drafted tokens were accepted"
    assert suspected in said(people[2], steps_with_draft=25)
    assert suspected not in said(people[2], steps_with_draft=24)
    assert "were accepted" not in said(people[1], steps_with_draft=25)


def test_markdown_holds_the_table_and_escapes_bars(made, prompts):
    odd = made.candidate("a|b", 3)
    rows = [made.row(w, p, made.generation()) for p in prompts for w in (made.candidate(), odd)]
    text = table.to_markdown(make(made, rows, [made.candidate(), odd], prompts))
    header, rule, first = text.splitlines()[2:5]
    assert header.count("|") == rule.count("|") == first.count("|")
    assert "a\\|b" in text


def conclusion(made, speeds, prompts, **confirmed):
    people = [made.candidate(), made.candidate("small", 3), made.candidate("small", 8)]
    rows = [
        made.row(who, p, made.generation(tps=tps * (1 + i / 500)))
        for i, p in enumerate(prompts)
        for who, tps in zip(people, speeds, strict=True)
    ]
    for i, p in enumerate(prompts if confirmed else ()):
        again = (100.0, confirmed["again"] * (1 + (i % 3 - 1) / 200))
        for who, tps in zip(people, again, strict=False):
            rows.append(made.row(who, p, made.generation(tps=tps), phase="confirm", run=1))
    return table.conclusions(make(made, rows, people, prompts))[-1]


def test_the_answer_in_a_sentence(made, prompts):
    assert "Every drafter measured is slower" in conclusion(made, (100, 80, 70), prompts)
    assert "No drafter is shown to be faster" in conclusion(made, (100, 100, 70), prompts)
    chosen = conclusion(made, (100, 130, 110), prompts)
    assert "small n=3 is 1.30x" in chosen
    assert "chosen by the same runs" in chosen
    again = conclusion(made, (100, 130, 110), prompts, again=125)
    assert "small n=3 is 1.25x" in again
    assert "measured again on runs not used to choose it" in again
    fallen = conclusion(made, (100, 130, 70), prompts, again=100)
    assert "was not when measured again" in fallen
    assert "Too few runs" in conclusion(made, (100, 130, 110), prompts[:2])


# ---- files ------------------------------------------------------------------------------------


def test_an_output_that_cannot_be_written_is_refused_before_anything_runs(tmp_path):
    (tmp_path / "file").write_text("x")
    for path, said in (
        (tmp_path / "no" / "r.json", "does not exist"),
        (tmp_path, "is a folder"),
        (tmp_path / "file" / "r.json", "does not exist"),
    ):
        with pytest.raises(UsageError, match=said) as error:
            report.check_writable({"--json": str(path)})
        assert error.value.hint
    with pytest.raises(UsageError, match="- is no file"):
        report.check_writable({"--json": "-"})
    with pytest.raises(UsageError, match="same file"):
        report.check_writable({"--json": str(tmp_path / "r"), "--csv": f"{tmp_path}/./r"})


@pytest.mark.skipif(getattr(os, "geteuid", lambda: 0)() == 0, reason="root may write anywhere")
def test_a_folder_without_write_permission_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="cannot be written"):
        report.check_writable({"--json": str(tmp_path / "r.json")})


def test_the_check_leaves_nothing_behind_and_keeps_the_old_file(tmp_path):
    old = tmp_path / "r.json"
    old.write_text("old")
    report.check_writable({"--json": str(old), "--csv": str(tmp_path / "r.csv")})
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]
    assert old.read_text() == "old"


def test_a_file_is_written_whole_and_a_link_is_followed(tmp_path):
    real = tmp_path / "real.json"
    link = tmp_path / "link.json"
    real.write_text("old")
    link.symlink_to(real)
    report.write(str(link), "new é")
    assert real.read_text("utf-8") == "new é"
    assert link.is_symlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.json", "real.json"]


def test_a_device_is_written_to_not_replaced():
    report.check_writable({"--json": os.devnull})
    report.write(os.devnull, "x")
    assert not os.path.isfile(os.devnull)  # noqa: PTH113


def test_automatic_lengths_are_named_and_what_was_chosen_is_said(made, prompts):
    auto = made.candidate("small", 8, auto=True)
    counts = replace(DRAFTED, lengths=(15, 0, 4, 0, 0, 0, 0, 0, 1))
    rows = [
        made.row(who, p, made.generation(counts=None if who.is_baseline else counts))
        for p in prompts
        for who in (made.candidate(), auto)
    ]
    result = make(made, rows, [made.candidate(), auto], prompts)
    shown_auto = result["candidates"][1]
    assert (shown_auto["n_max"], shown_auto["n_max_bound"]) == ("auto", 8)
    assert result["candidates"][0]["n_max_bound"] is None
    assert shown_auto["counts"]["lengths"] == tuple(8 * n for n in counts.lengths)
    assert {r["n_max"] for r in result["rows"]} == {0, "auto"}
    assert table.N_MAX.cell(shown_auto, table.UNICODE) == "auto"
    text = " ".join(table.notes(result))
    assert "small n=auto: the draft length was chosen for each step, up to 8: " in text
    assert "0 in 75%, 2 in 20%, 8 in 5% of the steps" in text
    json.loads(report.to_json(result))


def test_what_n_and_the_rates_count_of_a_tree_is_said(made, prompts):
    tree = made.candidate("small", 4, tree=8)
    counts = Counts(20, 18, 20, 63, 54, 30, 126, (15, 10, 5), (18, 15, 10), lengths=(2, 0, 0, 18))
    rows = [made.row(made.candidate(), p, made.generation()) for p in prompts]
    rows += [made.row(tree, p, made.generation(counts=counts)) for p in prompts]
    text = "\n".join(table.notes(make(made, rows, [made.candidate(), tree], prompts)))
    assert "n are the levels of its trees, and the rates count levels" in text
    assert "a draft has 7.0 nodes on average" in text


def test_automatic_trees_are_named_and_their_sizes_said(made, prompts):
    auto = made.candidate("small", 8, auto=True, tree=63)
    counts = replace(DRAFTED, steps=20, steps_with_draft=15, nodes=90)
    rows = [
        made.row(who, p, made.generation(counts=None if who.is_baseline else counts))
        for p in prompts
        for who in (made.candidate(), auto)
    ]
    result = make(made, rows, [made.candidate(), auto], prompts)
    shown = result["candidates"][1]
    assert (shown["tree"], shown["tree_bound"]) == ("auto", 63)
    assert (shown["n_max"], shown["n_max_bound"]) == (8, None)
    text = " ".join(table.notes(result))
    assert "the tree's size was chosen for each step, up to 63 nodes: 6.0 on average in 75%" in text
    assert "the draft length was chosen" not in text


@pytest.fixture
def recurrent(made, prompts):
    """A target that takes rejected drafts back by checkpoint and replay."""
    drafted = made.candidate("small", 3)
    counts = replace(DRAFTED, steps=20, target_calls=34)
    slow = made.generation(counts=counts)
    slow = replace(slow, times=replace(slow.times, verify=0.4, rollback=0.262, draft=0.3, step=1.0))
    rows = [made.row(made.candidate(), p, made.generation()) for p in prompts]
    rows += [made.row(drafted, p, slow) for p in prompts]
    return make(made, rows, [made.candidate(), drafted], prompts)


def everywhere(result):
    """The terminal, Markdown, HTML: line breaks of the layout taken out."""
    for text in (shown(result, 140), table.to_markdown(result), page.to_html(result)):
        yield " ".join(text.split())


def test_replays_are_said_of_who_made_them_and_of_no_other(recurrent, full):
    for text in everywhere(recurrent):
        assert text.count("replays") == 1
        assert (
            "small n=3: replays after rejected drafts took 112 of the 272 target passes (this "
            "memory cannot be rolled back)" in text
        )
    assert not any("replays" in note for note in table.notes(full))


def test_rollback_stands_apart_from_overhead_where_it_takes_time(recurrent, full):
    for text in everywhere(recurrent):
        assert "draft/verify" in text
        assert "/rollback/overhead %" in text
        assert "30/40/26/4" in text
        assert "0/90/0/10" in text  # the baseline's, in the same column
    for text in everywhere(full):
        assert "/rollback" not in text
        assert "0/90/10" in text
    barely = json.loads(report.to_json(recurrent))
    for rollback, apart in ((0.004, False), (0.006, True)):
        barely["candidates"][1]["share"] |= {"rollback": rollback, "overhead": 0.3}
        assert ("rollback" in table.to_markdown(barely)) == apart


def test_the_widest_near_tie_is_named_with_what_explains_it(made, prompts):
    small = made.candidate("small", 3)
    rows = [
        made.row(who, p, made.generation()) for p in prompts for who in (made.candidate(), small)
    ]
    ties = tuple(
        Divergence("chat8", f"p{i}", 0, token, "near tie", margin, apart)
        for i, (token, margin, apart) in enumerate(
            [(14, 0.356, 0.5), (9, 2.087, 1.2401), (30, 1.409, 1.1), (31, None, None)]
        )
    )

    def note(*found):
        audits = {small.key: Audit(False, 8, found)}
        result = make(made, rows, [made.candidate(), small], prompts, audits=audits)
        (line,) = [n for n in table.notes(result) if "near tie" in n]
        return line

    assert (
        "4 of 8 outputs part from the baseline's at a near tie (the widest: chat8/p1 at token 9, "
        "margin 2.09 where the logits of the two ways differ by up to 1.24): rounding"
        in note(*ties)
    )
    assert "at a near tie (chat8/p0 at token 14, margin 0.356 where" in note(ties[0])
    assert "at a near tie (chat8/p3 at token 31): rounding" in note(ties[3])


def test_who_drafted_is_said_where_several_did(made, prompts):
    steps = tuple(
        Step(3, 2, 2, 2, 1, 0.0, 0.1, 0.0, 0.0, 0.1, source=i % 4 == 0) for i in range(20)
    )
    pair = made.candidate("small", 2)
    drafter = replace(pair.drafter, method="ngram+draft-model", name="ngram+small")
    pair = replace(pair, drafter=drafter)
    one = replace(made.generation(counts=count(steps)), steps=steps)
    rows = [made.row(pair, p, one) for p in prompts]
    result = make(made, rows, [made.candidate(), pair], prompts)
    by_source = result["candidates"][1]["by_source"]
    assert {name: part["counts"]["steps"] for name, part in by_source.items()} == {
        "ngram": 15 * 8,
        "draft-model": 5 * 8,
    }
    assert result["candidates"][0]["by_source"] == {}
    (line,) = [n for n in table.notes(result) if "drafted by" in n]
    assert "ngram in 75% of the steps (accept length when drafted 3.00" in line
    assert "draft-model in 25% of the steps" in line


def test_a_draft_length_that_is_not_to_be_had_is_said(made, prompts):
    """What the engine noted when it opened the candidate stands in the result and below the table;
    where lengths are chosen, the bound is the one in effect."""
    fixed, auto = made.candidate("block", 16), made.candidate("block auto", 8, auto=True)
    people = [made.candidate(), fixed, auto]
    rows = [made.row(who, p, made.generation()) for p in prompts for who in people]
    note = "block, n_max 16: the drafter's trained block allows 7, and it drafts no more."
    result = make(
        made,
        rows,
        people,
        prompts,
        effective={fixed.session: {"n_max": 7}, auto.session: {"n_max": 7}},
        notes={fixed.session: (note,), auto.session: ()},
    )
    shown, shown_auto = result["candidates"][1:]
    assert (shown["n_max"], shown["effective"]["n_max"], shown["notes"]) == (16, 7, [note])
    assert (shown_auto["n_max_bound"], shown_auto["notes"]) == (7, [])
    assert table.notes(result).count(note) == 1


@pytest.mark.parametrize("name", ["[/INST]", "[red]m", r"\[x", ":llama:", "[@click=a]x[/]"])
def test_a_name_is_no_markup_and_no_picture(made, people, prompts, name, capsys):
    """Of a drafter or a workload; whatever the console is set to."""
    people = [people[0], made.candidate(name, 3)]
    prompts = [*prompts, made.prompt("last", name)]
    rows = [
        made.row(who, p, made.generation(tps=90 + 20 * i, counts=DRAFTED if i else None))
        for p in prompts
        for i, who in enumerate(people)
    ]
    result = make(made, rows, people, prompts)
    assert shown(result, 200).count(name) >= 4  # two tables and their heads, what is said of it
    make_console().print(name)
    assert capsys.readouterr().out == f"{name}\n"
