"""Several bases in one table: how they are arranged, paired and judged, on made-up runs."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from localspec.bench import table
from localspec.bench.analysis import analyse, winners
from localspec.bench.audit import audit, same_outputs
from localspec.bench.card import to_card
from localspec.bench.comparison import compare_results
from localspec.bench.drawings import plots
from localspec.bench.gates import below
from localspec.bench.history import best
from localspec.bench.plan import Base, Slot, in_blocks, interleaved, repeats
from localspec.bench.result_schema import Result
from localspec.bench.rows import mark_disturbed
from localspec.bench.sweep import answers, finalists

SLOW, QUICK = Base("Q8_0", None, "Q8_0"), Base("Q4_0", "/m/q4.gguf", "Q4_0")


@pytest.fixture
def people(made):
    """Baseline and one drafter, on both bases."""

    def on(base, *given):
        c = made.candidate(*given)
        key, session = f"{base.name}: {c.key}", f"{base.name}: {c.session}"
        return replace(c, key=key, session=session, base=base)

    return [on(b, *given) for b in (SLOW, QUICK) for given in ((), ("small", 3))]


@pytest.fixture
def prompts(made):
    return [made.prompt(f"p{i}") for i in range(6)]


@pytest.fixture
def rows(made, people, prompts):
    """rows(speeds, ...): each candidate on each prompt, with a little noise of the prompt's own."""

    def make(speeds, *, tokens=None, **more):
        found = []
        for i, p in enumerate(prompts):
            for k, (who, tps) in enumerate(zip(people, speeds, strict=True)):
                ids = (tokens or {}).get((k, i), range(100, 164))
                speed = tps * (1 + 0.002 * ((i * 7 + k * 3) % 5))
                found.append(made.row(who, p, made.generation(ids, tps=speed), **more))
        return found

    return make


def shown(result, width=140):
    out = io.StringIO()
    screen = Console(file=out, width=width)
    screen.print(table.render(result, screen))
    return out.getvalue()


# ---- the arrangement --------------------------------------------------------------------------


def test_bases_alternate_prompt_by_prompt(made, people, prompts):
    plan = made.plan(people, prompts)
    slots = interleaved(plan, plan.prompts, plan.candidates)
    for i in range(6):
        four = slots[4 * i : 4 * i + 4]
        assert {s.prompt for s in four} == {prompts[i]}
        assert {s.candidate for s in four} == set(people)


def test_where_they_do_not_fit_together_both_baselines_enclose_a_drafter(made, people, prompts):
    slow, slow_drafted, quick, quick_drafted = people
    plan = made.plan(people, prompts[:2])
    slots = in_blocks(plan, plan.prompts, plan.candidates)
    order = [[s.candidate for s in slots if s.block == block] for block in (0, 1)]
    assert order[0] == [slow, slow_drafted, slow_drafted, slow]
    assert order[1] == [slow, quick, quick_drafted, quick_drafted, quick, slow]
    alone = made.plan([slow, quick], prompts[:2])
    slots = in_blocks(alone, alone.prompts, alone.candidates)
    assert [s.candidate for s in slots] == [slow, quick, quick, slow]


def test_a_disturbed_run_is_made_again_beside_all_that_it_is_compared_with(made, people, prompts):
    plan = made.plan(people, prompts)

    def again(who):
        slot = Slot(0, who, prompts[0], 0, 5)
        (found,) = repeats(plan, [slot])
        return [s.candidate for s in found.slots(plan, 0, 1)], set(found.candidates)

    slow, slow_drafted, quick, quick_drafted = people
    assert again(quick_drafted) == ([slow, quick, quick_drafted], {quick_drafted})
    assert again(slow_drafted) == ([slow, slow_drafted], {slow_drafted})
    assert again(quick)[1] == {quick, quick_drafted}
    assert again(slow)[1] == set(people), "the reference is compared with every other"


def test_a_clock_that_depends_on_the_threads_disturbs_nothing(made, people, prompts, rows):
    def clocked(by_base):
        found = [
            replace(r, conditions=replace(r.conditions, clock=by_base[r.slot.candidate.base.name]))
            for r in rows([100, 130, 150, 140])
        ]
        return sum("disturbed" in r.flags for r in mark_disturbed(found))

    assert clocked({"Q8_0": 3000.0, "Q4_0": 2500.0}) == 0


# ---- the judgement ----------------------------------------------------------------------------


def test_each_row_is_over_its_own_baseline_and_over_the_reference(made, people, prompts, rows):
    plan = made.plan(people, prompts)
    found = list(analyse(plan, rows([100, 130, 150, 120])).values())
    own = [m.decode.speedup for m in found]
    over = [m.over_reference.speedup for m in found]
    assert own == [None, pytest.approx(1.3, rel=0.01), None, pytest.approx(0.8, rel=0.01)]
    assert over == [None, *(pytest.approx(x, rel=0.01) for x in (1.3, 1.5, 1.2))]
    assert [m.verdict for m in found] == [None, "faster", None, "slower"]
    assert [m.reference_verdict for m in found] == [None, "faster", "faster", "faster"]
    assert [m.candidate for m in winners({m.candidate.key: m for m in found})] == [people[2]]


def test_one_base_has_no_reference(made, people, prompts, rows):
    plan = made.plan(people[:2], prompts)
    mine = [r for r in rows([100, 130, 1, 1]) if r.slot.candidate in people[:2]]
    found = analyse(plan, mine)
    assert all(m.over_reference.speedup is None for m in found.values())
    assert answers(plan, mine, found) == ()


@pytest.mark.parametrize(
    ("speeds", "fastest", "alone", "verdict", "words"),
    [
        ([100, 130, 150, 120], 2, 2, "faster", "does not make up for it"),
        ([100, 130, 110, 100], 1, 2, "slower", "Drafting on the reference beats it"),
        ([100, 130, 110, 170], 3, 2, "slower", "Fastest: small n=3 on Q4_0"),
        ([100, 130, 90, 120], 1, 0, None, "No other base is shown to be faster"),
        ([100, 80, 90, 70], 0, 0, None, "Nothing is shown to be faster than the baseline on Q8_0"),
    ],
    ids=["base wins", "drafter wins", "both", "no better base", "nothing"],
)
def test_one_verdict(made, people, prompts, rows, speeds, fastest, alone, verdict, words):
    plan, made_rows = made.plan(people, prompts), rows(speeds)
    (answer,) = answers(plan, made_rows, analyse(plan, made_rows))
    assert (answer.fastest, answer.alone) == (people[fastest], people[alone])
    assert answer.verdict == verdict
    if verdict is not None:
        assert answer.versus.speedup == pytest.approx(speeds[alone] / speeds[1], rel=0.01)
    result = made.result(made_rows, people, prompts)
    (said,) = table.conclusions(result)
    assert words in said
    if fastest:
        assert best(result)["base"] == people[fastest].base.name


def test_all_that_the_verdict_rests_on_is_measured_again(made, people, prompts, rows):
    plan, first = made.plan(people, prompts), rows([100, 130, 150, 120])
    slow, slow_drafted, quick, _ = people
    assert finalists(plan, first, analyse(plan, first)) == [slow, quick, slow_drafted]
    second = rows([100, 120, 140, 1], phase="confirm", run=1)
    again = [r for r in second if r.slot.candidate != people[3]]
    found = analyse(plan, [*first, *again])
    assert found[quick.key].confirmed
    assert found[quick.key].over_reference.speedup == pytest.approx(1.4, rel=0.01)
    assert found[quick.key].reference_chosen.speedup == pytest.approx(1.5, rel=0.01)
    (answer,) = answers(plan, [*first, *again], found)
    assert answer.versus.speedup == pytest.approx(140 / 120, rel=0.01)
    said = " ".join(table.conclusions(made.result([*first, *again], people, prompts)))
    assert "measured again on runs not used to choose it" in said


def test_too_few_prompts_are_no_verdict(made, people, prompts, rows):
    few = [r for r in rows([100, 130, 150, 120]) if r.slot.prompt in prompts[:2]]
    (said,) = table.conclusions(made.result(few, people, prompts[:2]))
    assert said.startswith("Too few runs for a verdict")


# ---- the words --------------------------------------------------------------------------------


def test_another_bases_text_is_counted_and_never_called_identical(made, people, prompts, rows):
    other = {(k, i): range(200, 264) for k in (2, 3) for i in range(4)}
    made_rows = rows([100, 130, 150, 170], tokens=other)
    plan = made.plan(people, prompts)
    assert same_outputs(plan, made_rows, people[2]) == (2, 6)
    audits = audit(plan, made_rows, None)
    assert all(a.identical for a in audits.values()), "each beside its own base's baseline"
    assert people[2].key not in audits
    result = made.result(made_rows, people, prompts, audits=audits)
    outputs = [table.output(c, table.UNICODE) for c in result["candidates"]]
    assert outputs == ["", "✓ 6/6", "4/6 other text", "✓ 6/6"]
    assert "4 of 6 answers are not the reference's" in table.conclusions(result)[0]
    threads = [replace(c, base=replace(c.base, path=None)) for c in people]
    moved = [
        replace(r, slot=replace(r.slot, candidate=threads[people.index(r.slot.candidate)]))
        for r in made_rows
    ]
    alike = made.result(moved, threads, prompts)
    assert "answers are not the reference's" not in table.conclusions(alike)[0]


def test_the_table_has_one_row_a_base_and_drafter(made, people, prompts, rows):
    result = made.result(rows([100, 130, 150, 120]), people, prompts)
    wide, narrow = shown(result), shown(result, 80)
    assert "over reference [95 %]" in wide
    assert all(len(line.rstrip()) <= 80 for line in narrow.splitlines())
    assert "1.50x" in narrow
    assert "1.50x" in wide
    for table_of_both in (wide, narrow):
        rows_of = [table_of_both.count(f"\n{base}  baseline ") for base in ("Q8_0", "Q4_0")]
        assert rows_of[0] == rows_of[1] > 0
    assert table.to_markdown(result).count("| Q4_0 | baseline |") == 1


def test_files_pictures_and_gates_know_the_base(made, people, prompts, rows):
    result = made.result(rows([100, 130, 150, 120]), people, prompts)
    Result.model_validate(result)
    assert [b["name"] for b in result["bases"]] == ["Q8_0", "Q4_0"]
    assert {r["base"] for r in result["rows"]} == {"Q8_0", "Q4_0"}
    assert "baseline on Q4_0" in plots(result)[0].svg
    card = to_card(result)
    assert "no drafter on Q4_0" in card
    assert "as fast as the reference" in card
    assert "other text" not in card
    other = {(2, 0): range(200, 264)}
    assert "other text" in to_card(
        made.result(rows([100, 130, 150, 120], tokens=other), people, prompts)
    )
    assert below(result, 1.4) is None
    assert "baseline on Q4_0 is 1.50x" in (below(result, 1.6) or "")
    same = compare_results(result, result)
    assert len(same.changes) == 4
    assert same.missing == same.apart == ()
    moved = made.result(rows([100, 130, 150, 120]), people, prompts)
    moved["bases"][1]["file"] = "/m/q4-again.gguf"
    assert compare_results(result, moved).apart == (
        "another file of Q4_0: file q4.gguf, then q4-again.gguf",
    )


def test_advice_says_that_speculation_does_not_rescue_a_slow_base(made, people, prompts, rows):
    def said(speeds):
        result = made.result(rows(speeds), people, prompts)
        return [a["text"] for a in result["advice"] if a["rule"] == 5]

    assert said([100, 130, 150, 120]) == [
        "The baseline on Q4_0 already beats small n=3 on Q8_0: speculation does not make up for "
        "the slower base."
    ]
    assert said([100, 130, 110, 100]) == []
