import pytest

from localspec.bench.audit import audit, expected_seconds, first_difference
from localspec.engine.messages import Probed, Replayed
from localspec.errors import EngineDied, EngineFailed


class Evidence:
    """An engine that answers the audit's questions as told."""

    def __init__(self, equal=lambda length: True, replayed=None, rounded=0.1):
        self.engine = self
        self.equal, self.replayed = equal, replayed or Replayed(1, True, 0.1, 0.2)
        self.rounded = rounded
        self.probed, self.asked, self.restarts = [], [], 0

    def use(self, candidate, *beside): ...

    def restart(self):
        self.restarts += 1

    def probe(self, session, tokens, sizes):
        self.probed.append((len(tokens), sizes))
        equal = self.equal(len(tokens))
        return Probed(1, dict.fromkeys(sizes, equal), dict.fromkeys(sizes, 0.0))

    def rounding(self, session, plain, prompt, tokens):
        return self.rounded

    def replay(self, session, plain, prompt, run, index, sampler, ignore_eos, sampled):
        self.asked.append((session, plain, index, sampler.seed))
        if isinstance(self.replayed, Exception):
            raise self.replayed
        return self.replayed


@pytest.fixture
def pair(made):
    """A baseline's and a candidate's run of one prompt, and the audit of them."""

    def run(plain, other, evidence, *, n_max=3, prompt_tokens=10, temperature=0.0, sampled=False):
        base = made.candidate(temperature=temperature)
        drafter = made.candidate("small", n_max, temperature, sampled=sampled)
        p = made.prompt("p", tokens=prompt_tokens)
        rows = [made.row(base, p, made.generation(plain)), made.row(drafter, p, other)]
        return audit(made.plan([base, drafter], [p]), rows, evidence)[drafter.key]

    return run


TEXT = tuple(range(40))
PARTED = (*TEXT[:20], 99, *TEXT[21:])


def test_the_first_difference():
    assert first_difference((1, 2, 3), (1, 2, 3)) is None
    assert first_difference((1, 2, 3), (1, 5, 3)) == 1
    assert first_difference((1, 2), (1, 2, 3)) == 2
    assert first_difference((), ()) is None


def test_the_same_tokens_are_identical(made, pair):
    found = pair(TEXT, made.generation(TEXT), Evidence())
    assert (found.identical, found.compared, found.divergences) == (True, 1, ())


def test_a_divergence_is_a_near_tie_where_rows_are_not_bit_equal_and_the_replay_says_so(made, pair):
    evidence = Evidence(equal=lambda length: False)
    found = pair(TEXT, made.generation(PARTED), evidence)
    assert found.identical is False
    (d,) = found.divergences
    assert (d.token, d.kind, d.margin) == (20, "near tie", 0.1)
    assert evidence.asked == [("small n=3", "baseline", 20, 5)]
    assert found.mismatches == 0


@pytest.mark.parametrize("verdict", [Replayed(1, False, 0.1, 0.2), Replayed(1, True, 0.5, 0.2)])
def test_what_the_replay_does_not_explain_is_a_mismatch(made, pair, verdict):
    evidence = Evidence(equal=lambda length: False, replayed=verdict)
    assert pair(TEXT, made.generation(PARTED), evidence).mismatches == 1


def test_where_rows_are_bit_equal_no_tie_is_forgiven(made, pair):
    found = pair(TEXT, made.generation(PARTED), Evidence())
    assert found.mismatches == 1
    assert "bit-equal" in found.divergences[0].why


def test_the_probe_speaks_only_for_the_length_it_was_made_at(made, pair):
    """Above 256 cells the CPU's attention takes another path (ENGINE_NOTES section 2)."""
    evidence = Evidence(equal=lambda length: length <= 256)
    below = pair(TEXT, made.generation(PARTED), evidence, prompt_tokens=230)
    assert below.strict_up_to == 256
    assert below.divergences[0].kind == "MISMATCH"
    above = pair(TEXT, made.generation(PARTED), evidence, prompt_tokens=240)
    assert above.divergences[0].kind == "near tie"


def test_the_probe_tries_every_batch_size_in_use_up_to_the_longest_reach(made, pair):
    evidence = Evidence()
    pair(TEXT, made.generation(PARTED), evidence, n_max=5, prompt_tokens=100)
    every = (2, 3, 4, 5, 6)
    between = [(length, (6,)) for length in (110, 121, 132, 142, 153)]
    assert evidence.probed == [(100, every), *between, (164, every)]


def test_rows_that_are_alike_at_a_few_places_only_prove_nothing(made, pair):
    """Without flash attention they are so by chance: a tie there is no error."""
    for lucky in (1, 2, 3):
        met = []
        evidence = Evidence(
            equal=lambda length, n=lucky, met=met: met.append(length) or len(met) <= n
        )
        found = pair(TEXT, made.generation(PARTED), evidence, prompt_tokens=100)
        assert found.strict_up_to == 0
        assert [d.kind for d in found.divergences] == ["near tie"]


def test_where_nothing_differs_nothing_is_probed(made, pair):
    evidence = Evidence()
    assert pair(TEXT, made.generation(TEXT), evidence).strict_up_to is None
    assert evidence.probed == []


def test_a_candidates_batches_are_probed_once_for_all_its_divergences(made):
    base, drafter = made.candidate(), made.candidate("small", 3)
    prompts = [made.prompt(f"p{i}") for i in range(3)]
    rows = [
        made.row(who, p, made.generation(tokens))
        for p in prompts
        for who, tokens in ((base, TEXT), (drafter, PARTED))
    ]
    evidence = Evidence(equal=lambda length: False)
    found = audit(made.plan([base, drafter], prompts), rows, evidence)[drafter.key]
    assert (len(found.divergences), len(evidence.asked), len(evidence.probed)) == (3, 3, 1)


def test_how_long_it_will_take_is_told_before_and_as_it_goes(made):
    base, p = made.candidate(), made.prompt("p")
    same, one, two = (made.candidate(name, 3) for name in ("same", "one", "two"))
    plan = made.plan([base, same, one, two], [p])
    texts = {base: TEXT, same: TEXT, one: PARTED, two: PARTED}
    rows = [made.row(who, p, made.generation(tokens)) for who, tokens in texts.items()]
    assert expected_seconds(plan, rows[:2]) == 0
    expected = expected_seconds(plan, rows)
    # 10 and 74 tokens, each prefilled 4 times, five lengths between them twice, the whole text 3
    # times, and the prompt twice, at 10 / 0.05 s; on 74 tokens and on 10 a batch of each size, and
    # between the largest, and 4 + 1 single rows, 3 times the rows of the roundings, and twice the
    # run's 40 tokens, at 100 tok/s
    prefills = 84 * 4 + (20 + 31 + 42 + 52 + 63) * 2 + 3 * 50 + 20
    passes = 2 * (3 + 1 + 4) + 5 * (1 + 1 + 4) + 3 * 48 + 2 * 40
    assert expected == pytest.approx(2 * (prefills / 200 + passes / 100))
    told = []
    audit(plan, rows, Evidence(), lambda candidate, seconds: told.append((candidate, seconds)))
    assert [c for c, _ in told] == [one, two]
    assert told[0][1] == pytest.approx(expected)
    assert 0 < told[1][1] < expected / 10, "it went faster than that"


def test_an_output_that_ends_early_is_a_mismatch(made, pair):
    found = pair(TEXT, made.generation(TEXT[:-3]), Evidence(equal=lambda length: False))
    assert found.mismatches == 1
    assert found.divergences[0].token == 37


def test_deterministic_drafts_are_compared_at_any_temperature_sampled_ones_are_not(made, pair):
    ours = made.generation(TEXT)
    assert pair(TEXT, ours, Evidence(), temperature=0.8).identical is True
    assert pair(PARTED, ours, Evidence(), temperature=0.8, sampled=True).identical is None
    assert pair(TEXT, ours, Evidence(), sampled=True).identical is True


@pytest.mark.parametrize("trouble", [EngineDied("signal SIGABRT", []), EngineFailed("no", "")])
def test_a_divergence_that_cannot_be_replayed_stays_unclassed(made, pair, trouble):
    evidence = Evidence(equal=lambda length: False, replayed=trouble)
    found = pair(TEXT, made.generation(PARTED), evidence)
    assert (found.identical, found.mismatches, found.unclassed) == (False, 0, 1)
    assert evidence.restarts == isinstance(trouble, EngineDied)


def test_without_an_engine_outputs_are_compared_but_not_classed(made, pair):
    assert pair(TEXT, made.generation(TEXT), None).identical is True
    assert pair(TEXT, made.generation(PARTED), None).unclassed == 1


def test_cut_and_crashed_runs_are_not_compared(made, pair):
    assert pair(TEXT, made.generation(TEXT[:5], stop="cancelled"), Evidence()).identical is None
    assert pair(TEXT, None, Evidence()).identical is None


def test_the_same_divergence_in_a_repetition_is_classed_once(made):
    base, drafter, p = made.candidate(), made.candidate("small", 3), made.prompt("p")
    evidence = Evidence(equal=lambda length: False)
    rows = [
        made.row(who, p, made.generation(tokens), run=run)
        for run in range(3)
        for who, tokens in ((base, TEXT), (drafter, PARTED))
    ]
    found = audit(made.plan([base, drafter], [p], runs=3), rows, evidence)[drafter.key]
    assert len(evidence.asked) == len(found.divergences) == found.compared == 1


# ---- the teacher-forced form ------------------------------------------------------------------


def replayed(differences, unlike=(), places=()):
    return Replayed(1, True, 0.1, 0.2, tuple(differences), unlike, places)


QUIET = (0.1,) * 40
STALE = (*QUIET[:30], 0.5, 0.4, *QUIET[32:])


def test_rows_further_apart_than_roundings_are_a_mismatch_behind_a_near_tie_too(made, pair):
    """The divergence, at token 20, is a near tie by itself; the fault comes ten tokens later."""
    for differences, kind in ((QUIET, "near tie"), (STALE, "MISMATCH")):
        evidence = Evidence(equal=lambda length: False, replayed=replayed(differences))
        found = pair(TEXT, made.generation(PARTED), evidence)
        (d,) = found.divergences
        assert (d.token, d.kind) == (20, kind)
        assert (found.followed, found.rounding) == (40, 0.1)
    assert "0.5 apart from the plain ones, where roundings explain 0.3, at token 30" in d.why


def test_what_roundings_explain_is_measured_not_fixed(made, pair):
    evidence = Evidence(equal=lambda length: False, replayed=replayed(STALE), rounded=0.4)
    assert pair(TEXT, made.generation(PARTED), evidence).mismatches == 0


def test_where_rows_are_bit_equal_no_difference_is_forgiven(made, pair):
    """Strict up to 256 tokens: the near tie comes behind that, a row differed before."""
    early, late = (0.0,) * 5 + (0.01,) + (0.0,) * 34, (0.0,) * 20 + (0.01,) + (0.0,) * 19
    for differences, wrong in ((early, 1), (late, 0)):
        evidence = Evidence(equal=lambda length: length <= 256, replayed=replayed(differences))
        found = pair(TEXT, made.generation(PARTED), evidence, prompt_tokens=240)
        assert found.mismatches == wrong


def test_a_token_that_its_own_row_does_not_choose_is_a_mismatch_wherever_it_is(made, pair):
    evidence = Evidence(equal=lambda length: False, replayed=replayed(QUIET, unlike=(33,)))
    (d,) = pair(TEXT, made.generation(PARTED), evidence).divergences
    assert (d.kind, d.why) == ("MISMATCH", "the recorded batches choose another token at token 33")


# ---- sampled drafts ---------------------------------------------------------------------------

UNIFORM = tuple((i + 0.5) / 40 for i in range(40))


@pytest.fixture
def drawn(made, pair):
    def run(evidence):
        ours = made.generation(PARTED)
        return pair(TEXT, ours, evidence, temperature=0.8, sampled=True)

    return run


def test_runs_of_sampled_drafts_are_followed_and_their_tokens_fit(drawn):
    found = drawn(Evidence(lambda length: False, replayed(QUIET, places=UNIFORM)))
    assert (found.identical, found.mismatches, found.followed) == (None, 0, 40)
    assert found.fit.tokens == 40
    assert found.fit.fits


@pytest.mark.parametrize(
    "places", [(*UNIFORM[:39], 0.0), (*UNIFORM[:39], 1e-7), tuple(x**3 for x in UNIFORM)]
)
def test_tokens_that_do_not_fit_are_a_mismatch(drawn, places):
    found = drawn(Evidence(lambda length: False, replayed(QUIET, places=places)))
    assert (found.identical, found.mismatches) == (None, 1)


def test_a_wrong_state_behind_a_sampled_draft_is_a_mismatch_at_its_token(drawn):
    """Its tokens fit: they were drawn from what the wrong state made of them."""
    found = drawn(Evidence(lambda length: False, replayed(STALE, places=UNIFORM)))
    (d,) = found.divergences
    assert (d.kind, d.token, found.fit.fits, found.mismatches) == ("MISMATCH", 30, True, 1)
    assert found.identical is None
