"""Each of the five rules where it holds, and data where it must not be said."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from made_runs import MODEL

import localspec.bench.advice as advice_module
from localspec.bench import history
from localspec.bench.advice import OtherQuant, advice
from localspec.bench.analysis import analyse
from localspec.bench.audit import Audit, Divergence
from localspec.bench.command import _other_quants
from localspec.bench.goodness import fit
from localspec.bench.table import advised
from localspec.records import Counts, Times

STEPS, PASS = 40, 0.010


@pytest.fixture
def report(made):
    """A bench of two workloads; a drafter's run is told by its accept length, and by what a step
    spends on drafting and verifying, in plain passes."""

    def generation(length, draft, verify, drafted=2, accepted=None):
        tokens = int(STEPS * length)
        accepted = tokens - STEPS if accepted is None else accepted
        counts = Counts(STEPS, STEPS, STEPS, tokens, STEPS * drafted, accepted)
        seconds = STEPS * PASS * (draft + verify)
        times = Times(
            decode=seconds, end_to_end=seconds, step=seconds,
            draft=STEPS * PASS * draft, verify=STEPS * PASS * verify,
        )  # fmt: skip
        return replace(made.generation(range(tokens + 1), counts=counts), times=times)

    def run(
        *drafters,
        audits=None,
        state="complete",
        other_quants=(),
        name="small",
        workloads=("chat", "code"),
    ):
        base = made.candidate()
        who = [made.candidate(name, n) for n, *_ in drafters]
        prompts = [made.prompt(f"{w}{i}", w) for w in workloads for i in range(4)]
        rows = []
        for number, p in enumerate(prompts):
            wobble = 1 + 0.01 * (number % 4)
            rows.append(made.row(base, p, generation(1.0, 0.0, 1.0)))
            for candidate, (_, chat, code, draft, verify, *more) in zip(who, drafters, strict=True):
                length = chat if p.prompt.workload == "chat" else code
                found = generation(length, draft * wobble, verify * wobble, **(more or [{}])[0])
                rows.append(made.row(candidate, p, found))
        plan = made.plan([base, *who], prompts)
        audits = {who[0].key: audits} if audits else {}
        return SimpleNamespace(
            measurement=SimpleNamespace(plan=plan, state=state, judged=rows),
            table=analyse(plan, rows),
            audits=audits,
            target="demo",
            options=None,
            other_quants=other_quants,
        )

    return run


PAYS = (2, 2.0, 2.0, 0.2, 1.2)
DEAR = (2, 1.4, 1.4, 0.6, 1.1)


def rules(found):
    return [a.rule for a in advice(found)]


def test_where_a_drafter_pays_and_all_is_well_nothing_is_said(report):
    assert advice(report(PAYS)) == ()


def test_1_drafting_costs_more_than_it_brings(report):
    (said,) = advice(report(DEAR))
    assert said.rule == 1
    assert "small n=2: an accept length of 1.40 at a draft cost of 0.6" in said.text
    assert "cannot pay; it needs 1.7" in said.text
    assert "--n-max auto" in said.next
    (shortest,) = advice(report((1, *DEAR[1:])))
    assert "a lighter drafter" in shortest.next
    assert "or ngram" in shortest.next
    (measured,) = advice(report(DEAR, name="ngram"))
    assert "ngram, which" not in measured.next


def test_1_is_not_said_where_another_length_pays_nor_where_drafting_is_cheap(report):
    assert rules(report(DEAR, (3, *PAYS[1:]))) == []
    assert rules(report((2, 1.05, 1.05, 0.1, 1.2, {"accepted": 20}))) == []


def test_2_hardly_anything_is_accepted(report):
    (said, *_) = advice(report((2, 1.0, 1.0, 0.1, 1.05, {"accepted": 1})))
    assert said.rule == 2
    assert "small n=2: 1.2% of 640 drafted tokens were accepted" in said.text
    assert "localspec models drafters demo" in said.next


def test_2_is_not_said_of_ngram_which_guesses_nor_of_a_poor_rate(report):
    assert 2 not in rules(report((2, 1.0, 1.0, 0.1, 1.05, {"accepted": 1}), name="ngram"))
    assert 2 not in rules(report((2, 1.0, 1.0, 0.1, 1.05, {"accepted": 8})))


WRONG = Divergence("chat", "p", 0, 3, "MISMATCH")
TIE = Divergence("chat", "p", 0, 3, "near tie")


@pytest.mark.parametrize("audit", [Audit(False, 1, (WRONG,)), Audit(fit=fit([0.5] * 200))])
def test_2_a_fast_drafter_that_failed_the_audit_is_advised_against(report, audit):
    (said,) = advice(report(PAYS, audits=audit))
    assert (said.rule, said.text.startswith("small n=2 failed the audit")) == (2, True)


def test_2_a_near_tie_is_no_failure(report):
    assert rules(report(PAYS, audits=Audit(False, 1, (TIE,)))) == []


def test_3_workloads_gain_differently(report):
    (said,) = advice(report((2, 1.3, 2.6, 0.1, 1.1)))
    assert said.rule == 3
    assert "small n=2: code goes 2.1" in said.text
    assert "chat 1.07x" in said.text
    assert "a profile for texts like code and another for those like chat" in said.next
    assert "localspec tune --model demo --workload" in said.next
    (loses,) = advice(report((2, 1.1, 2.6, 0.1, 1.1)))
    assert loses.next == said.next


def test_3_is_not_said_of_alike_workloads_of_one_nor_where_both_lose(report):
    assert rules(report((2, 2.0, 2.1, 0.2, 1.1))) == []
    assert rules(report(PAYS, workloads=("chat",))) == []
    assert 3 not in rules(report((2, 1.1, 1.4, 0.3, 1.3)))


def test_4_a_target_so_light_that_verifying_is_dear(report):
    (said,) = advice(report((2, 1.8, 1.8, 0.1, 2.0)))
    assert said.rule == 4
    assert "accept length 1.80" in said.text
    assert "takes 2.03 plain ones" in said.text
    assert "100.0 tok/s alone" in said.text


def test_4_is_not_said_of_one_while_another_came_nearer_and_is_undecided(report):
    dear, undecided = (2, 1.8, 1.8, 0.1, 2.0), (3, 1.525, 1.525, 0.1, 1.4)
    assert rules(report(dear)) == [4]
    assert rules(report(dear, undecided)) == []


def test_4_is_not_said_where_drafts_are_not_accepted_anyway(report):
    assert rules(report((2, 1.1, 1.1, 0.1, 2.0))) == []


def test_5_another_quants_baseline_beats_the_best_here(report):
    faster = (OtherQuant("Q4_0", 150.0), OtherQuant("Q2_K", 180.0))
    (said,) = advice(report(PAYS, other_quants=faster))
    assert said.rule == 5
    assert "The baseline of Q2_K (180.0 tok/s" in said.text
    assert "beats the best here (14" in said.text


def test_5_is_not_said_where_the_drafter_beats_it_or_it_is_a_little_faster(report):
    assert rules(report(PAYS, other_quants=(OtherQuant("Q4_0", 120.0),))) == []
    assert rules(report(PAYS, other_quants=(OtherQuant("Q4_0", 143.0),))) == []


def test_a_part_of_the_runs_teaches_nothing(report):
    assert advice(report(DEAR, state="interrupted")) == ()


def test_a_drafter_that_does_not_fit_is_told_of_once(report):
    bad = (2, 1.0, 1.0, 0.5, 1.05, {"accepted": 1})
    assert rules(report(bad, (3, *bad[1:]), (4, *bad[1:]))) == [2]


def test_only_the_weightiest_are_said(report, monkeypatch):
    made = report(
        PAYS,
        (3, 1.3, 2.6, 0.1, 1.1),
        audits=Audit(False, 1, (WRONG,)),
        other_quants=(OtherQuant("Q4", 300),),
    )
    assert rules(made) == [2, 5, 3]
    monkeypatch.setattr(advice_module, "MOST", 2)
    assert rules(made) == [2, 5]


def test_it_is_in_the_result_and_under_the_table(made):
    base, p = made.candidate(), made.prompt("p")
    result = made.result([made.row(base, p, made.generation())], [base], [p])
    assert result["advice"] == []
    result["advice"] = [{"rule": 1, "text": "It cannot pay.", "next": "Try ngram."}]
    assert advised(result) == ["It cannot pay. Try ngram."]
    del result["advice"]  # of a result that was kept before there was any
    assert advised(result) == []


def test_other_quants_come_from_the_history_of_this_machine(made, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    base, p = made.candidate(), made.prompt("p")
    past = made.result([made.row(base, p, made.generation(tps=150.0))], [base], [p])
    history.keep(past)
    history.keep({**past, "target": {**past["target"], "name": "Small-Q4_1"}})
    other = replace(MODEL, quant="Q8_0")
    known = (OtherQuant("Q4_1", pytest.approx(150.0)),)
    assert _other_quants("demo", other, {"cpu": "EPYC"}) == known
    assert _other_quants("Small-Q8_0", other, {"cpu": "EPYC"}) == known, "called after its file"
    assert _other_quants("demo", MODEL, {"cpu": "EPYC"}) == ()
    assert _other_quants("demo", other, {"cpu": "Xeon"}) == ()
    assert _other_quants("stranger", other, {"cpu": "EPYC"}) == ()
