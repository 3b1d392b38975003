"""The one loop on real tiny models: identity, exact stops, counts, cancelling, prefix reuse."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from decoding.conftest import Sessions, run
from scripted import ScriptedDrafter
from tiny_models import BOS, EOS, tiny_llama

from localspec.decoding.loop import Listener
from localspec.drafters.ngram import NgramDrafter
from localspec.errors import ContextTooSmall, SpeculationRefused, UsageError
from localspec.records import Span, Step, count

PROMPT = [BOS, 4, 5, 6]


def oracle(tokens: list[int], *, length: int, wrong_after: int | None = None) -> ScriptedDrafter:
    """Drafts what the baseline said; from ``wrong_after`` drafted tokens on, something else."""

    def script(committed: list[int], limit: int) -> list[int]:
        at = len(committed) - len(PROMPT)
        draft = tokens[at : at + min(limit, length)]
        if wrong_after is not None:
            draft = [t if i < wrong_after else (t + 1) % 12 for i, t in enumerate(draft)]
        return draft

    return ScriptedDrafter(script, nodes=length)


@pytest.mark.parametrize("temperature", [0.0, 0.8, 1.5])
@pytest.mark.parametrize("n_max", [1, 3, 7])
def test_deterministic_drafters_give_the_baselines_very_tokens(
    sessions: Sessions, tiny_target: Path, tiny_draft: Path, temperature: float, n_max: int
) -> None:
    for seed in range(4):
        plain = run(sessions.make(tiny_target), PROMPT, 90, temperature=temperature, seed=seed)
        for drafter in (
            NgramDrafter(n_max, 1, 3),
            sessions.draft_model(tiny_draft, n_max=n_max),
            sessions.draft_model(tiny_draft, n_max=n_max, p_min=0.4),
        ):
            fast = run(
                sessions.make(tiny_target, drafter), PROMPT, 90, temperature=temperature, seed=seed
            )
            assert fast.tokens == plain.tokens
            assert fast.counts.target_calls <= plain.counts.target_calls


def test_the_baseline_emits_one_token_a_pass(sessions: Sessions, tiny_target: Path) -> None:
    generation = run(sessions.make(tiny_target), PROMPT, 30, ignore_eos=True)
    assert len(generation.tokens) == 30
    assert generation.counts.accept_length == 1.0
    assert generation.counts.decode_tokens == generation.counts.target_calls == 29
    assert generation.counts.draft_coverage == 0.0
    assert generation.counts.acceptance_rate is None
    assert generation.counts.reach_rate == []


@pytest.mark.parametrize("right", [0, 1, 2, 4])
def test_counts_follow_from_what_was_accepted(
    sessions: Sessions, tiny_target: Path, right: int
) -> None:
    plain = run(sessions.make(tiny_target), PROMPT, 41, ignore_eos=True)
    drafter = oracle(list(plain.tokens), length=4, wrong_after=right)
    fast = run(sessions.make(tiny_target, drafter), PROMPT, 41, ignore_eos=True, record=True)
    assert fast.tokens == plain.tokens
    full = [s for s in fast.steps if s.drafted == 4]
    assert {(s.accepted, s.tokens) for s in full} == {(right, right + 1)}
    assert sum(s.tokens for s in fast.steps) == 40 == fast.counts.decode_tokens
    assert fast.counts.reach_rate[:right] == [pytest.approx(1.0, abs=0.15)] * right
    assert fast.counts.reached == count(fast.steps).reached


@pytest.mark.parametrize("budget", [1, 2, 5, 6, 7])
def test_the_budget_is_never_overrun_by_a_block(
    sessions: Sessions, tiny_target: Path, budget: int
) -> None:
    plain = run(sessions.make(tiny_target), PROMPT, 30, ignore_eos=True)
    session = sessions.make(tiny_target, oracle(list(plain.tokens), length=8))
    fast = run(session, PROMPT, budget, ignore_eos=True, record=True)
    assert fast.tokens == plain.tokens[:budget]
    assert fast.stop == "length"
    assert all(s.accepted < s.tokens for s in fast.steps)  # the budget cuts drafts, not results


def test_no_tokens_wanted_gives_none_and_no_rates(sessions: Sessions, tiny_target: Path) -> None:
    generation = run(sessions.make(tiny_target), PROMPT, 0)
    assert (generation.tokens, generation.text, generation.stop) == ((), "", "length")
    assert generation.decode_tps is None
    assert generation.counts.accept_length is None


def test_a_model_that_ends_at_once_has_one_token_and_no_rates(
    sessions: Sessions, tiny_silent: Path
) -> None:
    generation = run(sessions.make(tiny_silent, NgramDrafter(4, 1, 3)), PROMPT, 20)
    assert (generation.tokens, generation.text, generation.stop) == ((EOS,), "", "eog")
    assert generation.decode_tps is None
    assert generation.counts.accept_length is None


def test_an_end_of_generation_inside_a_draft_ends_there(
    sessions: Sessions, tiny_target: Path
) -> None:
    """Case 38: what was drafted beyond the end is discarded and not counted."""
    plain = None
    for seed in range(200):
        plain = run(sessions.make(tiny_target), PROMPT, 60, temperature=1.2, seed=seed)
        if plain.stop == "eog" and len(plain.tokens) > 6:
            break
    assert plain is not None and plain.stop == "eog"
    beyond = [*plain.tokens, 4, 5, 6, 7, 8]
    session = sessions.make(tiny_target, oracle(beyond, length=8))
    fast = run(session, PROMPT, 60, temperature=1.2, seed=seed, record=True)
    assert fast.tokens == plain.tokens
    assert (fast.stop, fast.text) == ("eog", plain.text)
    last = fast.steps[-1]
    assert last.tokens == last.accepted == last.drafted
    assert fast.counts.decode_tokens == len(plain.tokens) - 1
    assert session.held == [*PROMPT, *plain.tokens[:-1]]


@pytest.mark.parametrize("length", [1, 3, 8])
def test_a_stop_string_inside_a_draft_cuts_text_and_counts(
    sessions: Sessions, tiny_bytes: Path, length: int
) -> None:
    prompt = [BOS, 104, 105]
    plain = run(sessions.make(tiny_bytes), prompt, 60, ignore_eos=True, seed=1, temperature=1.0)
    at = next(i for i in range(8, len(plain.text) - 2) if plain.text[i : i + 2].isprintable())
    stop = plain.text[at : at + 2]
    at = plain.text.index(stop)
    cut = run(
        sessions.make(tiny_bytes),
        prompt,
        60,
        ignore_eos=True,
        seed=1,
        temperature=1.0,
        stop=(stop,),
    )
    tokens = list(plain.tokens)

    def script(committed: list[int], limit: int) -> list[int]:
        done = len(committed) - len(prompt)
        return tokens[done : done + min(limit, length)]

    fast = run(
        sessions.make(tiny_bytes, ScriptedDrafter(script, nodes=length)),
        prompt,
        60,
        ignore_eos=True,
        seed=1,
        temperature=1.0,
        stop=(stop,),
    )
    assert cut.text == fast.text == plain.text[:at]
    assert cut.stop == fast.stop == "stop"
    assert fast.tokens == cut.tokens == plain.tokens[: len(cut.tokens)]
    assert fast.counts.decode_tokens == len(fast.tokens) - 1


@pytest.mark.parametrize("length", [0, 1, 5])
def test_a_full_context_stops_at_the_same_token(
    sessions: Sessions, tiny_target: Path, length: int
) -> None:
    plain = run(sessions.make(tiny_target), PROMPT, 1000, ignore_eos=True)
    assert plain.stop == "context"
    n_ctx = 256
    # every cell is used: the last token emitted has no cell of its own
    assert len(PROMPT) + len(plain.tokens) == n_ctx + 1
    drafter = oracle(list(plain.tokens), length=length) if length else None
    fast = run(sessions.make(tiny_target, drafter), PROMPT, 1000, ignore_eos=True)
    assert (fast.stop, fast.tokens) == ("context", plain.tokens)


def test_a_prompt_that_does_not_fit_is_refused_with_both_numbers(
    sessions: Sessions, tiny_target: Path
) -> None:
    session = sessions.make(tiny_target)
    with pytest.raises(ContextTooSmall, match="256 tokens but the context holds 256"):
        run(session, [BOS] * 256)
    with pytest.raises(UsageError, match="prompt is empty"):
        run(session, [])
    assert run(session, [4] * 255, 5).stop in ("context", "eog")


class Recorder(Listener):
    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.steps: list[Step] = []
        self.prefills: list[tuple[int, int, int]] = []

    def prefill(self, done: int, total: int, cached: int) -> None:
        self.prefills.append((done, total, cached))

    def progress(
        self, spans: tuple[Span, ...], steps: Sequence[Step], tokens: int, elapsed: float
    ) -> None:
        self.spans += spans
        self.steps += steps


def test_the_listener_hears_every_step_and_all_text(sessions: Sessions, tiny_target: Path) -> None:
    heard = Recorder()
    session = sessions.make(tiny_target, NgramDrafter(3, 1, 3))
    generation = run(
        session, [BOS] + [4, 5] * 60, 40, ignore_eos=True, listener=heard, interval=0.0, record=True
    )
    assert tuple(heard.steps) == generation.steps
    assert "".join(s.text for s in heard.spans) == generation.text
    assert heard.prefills == [(64, 121, 0), (121, 121, 0)]
    assert sum(s.tokens for s in generation.spans) == len(generation.tokens)


def test_times_add_up(sessions: Sessions, tiny_target: Path, tiny_draft: Path) -> None:
    session = sessions.make(tiny_target, sessions.draft_model(tiny_draft, n_max=3))
    g = run(session, PROMPT, 60, ignore_eos=True, record=True)
    t = g.times
    assert t.step == pytest.approx(sum(s.t_step for s in g.steps)) == pytest.approx(t.decode)
    assert t.ttft + t.decode == pytest.approx(t.end_to_end)
    assert 0 < t.overhead < t.step
    assert t.draft > 0 and t.verify > 0 and t.rollback > 0


class CancelAfter(Listener):
    """Raises the abort flag after some steps, or during the prefill."""

    def __init__(self, session: object, *, steps: int | None = None, chunks: int | None = None):
        self.session, self.steps, self.chunks = session, steps, chunks

    def prefill(self, done: int, total: int, cached: int) -> None:
        if self.chunks is not None:
            self.chunks -= 1
            if self.chunks == 0:
                self.session.abort.set()  # type: ignore[attr-defined]

    def progress(
        self, spans: tuple[Span, ...], steps: Sequence[Step], tokens: int, elapsed: float
    ) -> None:
        if self.steps is not None:
            self.steps -= 1
            if self.steps == 0:
                self.session.abort.set()  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ["none", "ngram", "draft-model"])
def test_cancel_takes_effect_within_one_step_and_the_conversation_goes_on(
    sessions: Sessions, tiny_target: Path, tiny_draft: Path, method: str
) -> None:
    drafter = {
        "none": lambda: None,
        "ngram": lambda: NgramDrafter(3, 1, 3),
        "draft-model": lambda: sessions.draft_model(tiny_draft, n_max=3),
    }[method]()
    session = sessions.make(tiny_target, drafter)
    cancelled = run(
        session,
        PROMPT,
        100,
        ignore_eos=True,
        interval=0.0,
        record=True,
        listener=CancelAfter(session, steps=3),
    )
    assert cancelled.stop == "cancelled"
    assert len(cancelled.steps) == 3
    session.abort.clear()
    follow = [*PROMPT, *cancelled.tokens, 7]
    reused = run(session, follow, 30, ignore_eos=True, reuse=True)
    assert reused.cached_tokens == len(follow) - 2
    assert reused.tokens == run(sessions.make(tiny_target), follow, 30, ignore_eos=True).tokens


def test_cancel_during_prefill_keeps_what_was_evaluated(
    sessions: Sessions, tiny_target: Path
) -> None:
    session = sessions.make(tiny_target)
    prompt = [BOS, *([4, 5, 6] * 60)]
    cancelled = run(session, prompt, 20, listener=CancelAfter(session, chunks=1))
    assert (cancelled.stop, cancelled.tokens) == ("cancelled", ())
    assert session.held == prompt[:64]
    session.abort.clear()
    reused = run(session, prompt, 20, reuse=True)
    assert reused.cached_tokens == 64
    assert reused.tokens == run(sessions.make(tiny_target), prompt, 20).tokens


@pytest.mark.parametrize("method", ["none", "ngram", "draft-model"])
def test_a_reused_prefix_gives_what_a_fresh_prefill_gives(
    sessions: Sessions, tiny_target: Path, tiny_draft: Path, method: str
) -> None:
    """Turns, a regenerated answer and an edited turn, each against a fresh session."""

    def drafter() -> object:
        if method == "ngram":
            return NgramDrafter(4, 1, 3)
        return sessions.draft_model(tiny_draft, n_max=4) if method == "draft-model" else None

    session = sessions.make(tiny_target, drafter())  # type: ignore[arg-type]
    first = run(session, PROMPT, 30, ignore_eos=True, reuse=True)
    turns = [
        [*PROMPT, *first.tokens, 4, 4],
        [*PROMPT, *first.tokens[:10], 9],
        PROMPT,
        [BOS, 9, 9, 9],
    ]
    for turn in turns:
        reused = run(session, turn, 30, ignore_eos=True, reuse=True)
        fresh = run(sessions.make(tiny_target, drafter()), turn, 30, ignore_eos=True)  # type: ignore[arg-type]
        assert reused.tokens == fresh.tokens
        assert reused.counts == fresh.counts  # the drafter's own state is a fresh one's as well
    assert fresh.cached_tokens == 0 and reused.cached_tokens == 1


def test_runs_without_reuse_start_clean(sessions: Sessions, tiny_target: Path) -> None:
    session = sessions.make(tiny_target, NgramDrafter(4, 1, 3))
    runs = [run(session, PROMPT, 50, ignore_eos=True) for _ in range(2)]
    assert runs[0].counts == runs[1].counts
    assert runs[1].cached_tokens == 0


@pytest.mark.parametrize("right", [0, 1, 2, 3])
def test_a_recurrent_target_is_rolled_back_by_checkpoint_and_replay(
    sessions: Sessions, tiny_mamba: Path, right: int
) -> None:
    plain = run(sessions.make(tiny_mamba), PROMPT, 41, ignore_eos=True)
    session = sessions.make(tiny_mamba, oracle(list(plain.tokens), length=3, wrong_after=right))
    fast = run(session, PROMPT, 41, ignore_eos=True, record=True)
    assert session.target.rollback_method == "checkpoint and replay"
    assert fast.tokens == plain.tokens
    partial = [s for s in fast.steps if s.accepted < s.drafted]
    assert all(s.target_calls == 2 for s in partial)  # replays are counted
    assert all(s.target_calls == 1 for s in fast.steps if s.accepted == s.drafted)
    assert fast.counts.target_calls == len(fast.steps) + len(partial)
    assert fast.counts.replays == len(partial)
    assert plain.counts.replays == 0


def test_a_tree_is_refused_on_a_recurrent_target(sessions: Sessions, tiny_mamba: Path) -> None:
    with pytest.raises(SpeculationRefused, match="cannot branch.*--drafter none"):
        sessions.make(tiny_mamba, ScriptedDrafter(lambda t, n: [], nodes=4, sequences=2))


def test_a_recurrent_memory_starts_afresh_rather_than_go_back(
    sessions: Sessions, tiny_mamba: Path
) -> None:
    session = sessions.make(tiny_mamba)
    first = run(session, PROMPT, 10, ignore_eos=True)
    assert len(first.tokens) == 10
    shorter = run(session, [*PROMPT, *first.tokens[:3]], 10, ignore_eos=True, reuse=True)
    fresh = run(sessions.make(tiny_mamba), [*PROMPT, *first.tokens[:3]], 10, ignore_eos=True)
    assert shorter.tokens == fresh.tokens  # it could not go back, so it started afresh


def test_an_empty_draft_is_a_plain_step(sessions: Sessions, tiny_target: Path) -> None:
    """Case 38: counted as a step without a draft."""
    session = sessions.make(tiny_target, ScriptedDrafter(lambda tokens, limit: [], nodes=4))
    fast = run(session, PROMPT, 20, ignore_eos=True)
    assert fast.tokens == run(sessions.make(tiny_target), PROMPT, 20, ignore_eos=True).tokens
    assert fast.counts.steps_with_draft == 0 and fast.counts.steps == 19


# ---- trees ----------------------------------------------------------------------------------


def tree_around(tokens: list[int], prompt: list[int]) -> ScriptedDrafter:
    """The baseline's continuation is not the first branch: winners lie in other sequences."""

    def script(committed: list[int], limit: int) -> list[tuple[int, int]]:
        at = len(committed) - len(prompt)
        a, b, c = ([*tokens[at : at + 3], 4, 4, 4])[:3]
        wrong = (a + 1) % 12
        nodes = [(wrong, -1), (4, 0), (5, 1), (a, -1), ((b + 1) % 12, 3), (b, 3), (c, 5)]
        depth = {-1: 0}
        kept: list[tuple[int, int]] = []
        index = {-1: -1}
        for i, (token, parent) in enumerate(nodes):
            depth[i] = depth[parent] + 1
            if depth[i] <= limit:
                index[i] = len(kept)
                kept.append((token, index[parent]))
        return kept

    return ScriptedDrafter(script, nodes=7, sequences=3)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_tree_emits_the_baselines_tokens_along_its_right_path(
    sessions: Sessions, tiny_target: Path, temperature: float
) -> None:
    plain = run(
        sessions.make(tiny_target), PROMPT, 60, temperature=temperature, seed=3, ignore_eos=True
    )
    drafter = tree_around(list(plain.tokens), PROMPT)
    fast = run(
        sessions.make(tiny_target, drafter),
        PROMPT,
        60,
        temperature=temperature,
        seed=3,
        ignore_eos=True,
        record=True,
    )
    assert fast.tokens == plain.tokens
    assert fast.counts.accept_length == pytest.approx(4.0, abs=0.3)
    assert fast.counts.nodes > fast.counts.drafted  # nodes are reported apart from depth
    assert max(s.drafted for s in fast.steps) == 3


def test_after_a_tree_the_memory_is_that_of_the_kept_path(
    sessions: Sessions, tiny_target: Path
) -> None:
    plain = run(sessions.make(tiny_target), PROMPT, 30, ignore_eos=True)
    session = sessions.make(tiny_target, tree_around(list(plain.tokens), PROMPT))
    fast = run(session, PROMPT, 20, ignore_eos=True)
    assert session.target.context.last_position(0) == len(PROMPT) + 20 - 2
    assert [session.target.context.last_position(s) for s in (1, 2)] == [-1, -1]
    follow = [*PROMPT, *fast.tokens, 8]
    reused = run(session, follow, 20, ignore_eos=True, reuse=True)
    assert reused.tokens == run(sessions.make(tiny_target), follow, 20, ignore_eos=True).tokens


def test_a_random_pattern_of_accept_and_reject_keeps_the_next_logits(
    sessions: Sessions, tmp_path: Path, tiny_target: Path
) -> None:
    """After any pattern the tokens are those of plain decoding: no stale cell is attended."""
    noisy = tiny_llama(tmp_path / "noisy.gguf", noise=0.6, favour={0: -8.0, 1: -2.0})
    for seed in range(3):
        drafter = sessions.draft_model(noisy, n_max=6)
        fast = run(sessions.make(tiny_target, drafter), PROMPT, 200, seed=seed, temperature=0.5)
        plain = run(sessions.make(tiny_target), PROMPT, 200, seed=seed, temperature=0.5)
        assert fast.tokens == plain.tokens
