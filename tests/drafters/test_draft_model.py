"""The draft model: its own keys and values are kept, rolled back, and never computed twice."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from drafters.conftest import Bench
from numpy.typing import NDArray
from tiny_models import EOS, byte_vocabulary, letter_vocabulary, tiny_llama

from localspec.decoding.sampling import Sampler
from localspec.drafters.draft_model import DraftModelDrafter
from localspec.errors import DrafterError
from localspec.llama import Context, DecodeAborted
from localspec.llama.context import Batch
from localspec.records import DrafterSettings, SamplerSettings

PROMPT = [0, 5, 6, 7, 8, 5, 6]
GREEDY = SamplerSettings()
HOT = SamplerSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def drafter_on(
    bench: Bench,
    path: Path,
    *,
    n_max: int = 4,
    p_min: float = 0.0,
    sampled: bool = False,
    target_vocab: int | None = None,
    batch: int = 64,
) -> DraftModelDrafter:
    model = bench.model(path)
    return DraftModelDrafter(
        model,
        bench.context(path, batch=batch),
        n_max=n_max,
        p_min=p_min,
        sampled=sampled,
        target_vocab=target_vocab or model.vocab.size,
    )


def begin(
    drafter: DraftModelDrafter, prompt: Sequence[int], settings: SamplerSettings = GREEDY
) -> list[int]:
    """As the loop does: the target decodes the prompt in one chunk and emits its first token, here
    the last of ``prompt``."""
    evaluated = prompt[:-1]
    drafter.begin(evaluated, 0, Sampler(settings, len(evaluated)))
    drafter.process(evaluated, 0)
    return list(prompt)


def fresh_row(bench: Bench, path: Path, tokens: Sequence[int]) -> NDArray[np.float32]:
    """The row after ``tokens``, by a new context that knows nothing else.

    In chunks of 32: attention over 64 rows and more takes another path, with other roundings.
    """
    context, batch = bench.context(path), Batch(32)
    for start in range(0, len(tokens), 32):
        chunk = tokens[start : start + 32]
        batch.tokens[: len(chunk)] = chunk
        batch.fill_positions(len(chunk), start)
        batch.outputs[:] = 0
        batch.outputs[len(chunk) - 1] = 1
        context.decode(batch)
    row = context.rows(1)[0].copy()
    batch.close()
    return row


def probabilities(row: NDArray[np.float32]) -> NDArray[np.float64]:
    e = np.exp(row.astype(np.float64) - row.max())
    return np.asarray(e / e.sum())


def watch(context: Context) -> list[list[int]]:
    """The positions of every decode on ``context`` from now on."""
    seen: list[list[int]] = []
    original = context.decode

    def decode(batch: Batch) -> None:
        seen.append(batch.positions[: batch.native.n_tokens].tolist())
        original(batch)

    context.decode = decode  # type: ignore[method-assign]
    return seen


def step(
    drafter: DraftModelDrafter, tokens: list[int], accepted: int, wrong: int, limit: int = 4
) -> int:
    """Draft, keep ``accepted`` of it at most, emit one token more; how many were kept."""
    draft = drafter.draft(tokens, limit)
    kept = min(accepted, draft.n)
    tokens += draft.tokens[:kept].tolist()
    follow = wrong
    if kept < draft.n and draft.tokens[kept] == wrong:
        follow = 4 + (wrong - 3) % 8
    tokens.append(follow)
    drafter.accept(tokens, range(kept + 1))
    return kept


# ---- its own memory ---------------------------------------------------------------------------


@pytest.mark.parametrize("accepted", range(5))
def test_after_a_verification_one_or_two_tokens_are_new(
    bench: Bench, tiny_draft: Path, accepted: int
) -> None:
    drafter = drafter_on(bench, tiny_draft)
    tokens = begin(drafter, PROMPT)
    step(drafter, tokens, accepted, wrong=9)
    seen = watch(drafter.context)
    draft = drafter.draft(tokens, 4)
    assert draft.n == 4
    # The last drafted token was never decoded: where it was kept, it comes with the bonus token.
    new = 2 if accepted == 4 else 1
    assert seen[0] == list(range(len(tokens) - new, len(tokens)))
    assert seen[1:] == [[len(tokens) + i] for i in range(3)]


@pytest.mark.parametrize("seed", range(12))
def test_no_committed_token_is_decoded_twice(bench: Bench, tiny_draft: Path, seed: int) -> None:
    rng = random.Random(seed)
    drafter = drafter_on(bench, tiny_draft, p_min=rng.choice([0.0, 0.35]))
    tokens = begin(drafter, PROMPT)
    seen = watch(drafter.context)
    for _ in range(20):
        before = len(tokens)
        start = len(seen)
        kept = step(drafter, tokens, rng.randrange(5), wrong=rng.randrange(4, 12))
        decoded = [p for positions in seen[start:] for p in positions]
        assert decoded == sorted(set(decoded)), "a position twice within one draft"
        assert min(decoded, default=before) >= before - 2
        # What stays held is all of the committed text that was decoded: the next step goes on.
        assert drafter._held == min(before + kept, max(decoded, default=before - 1) + 1)


@pytest.mark.parametrize("seed", range(12))
def test_after_any_pattern_of_rejections_the_memory_is_that_of_a_fresh_prefill(
    bench: Bench, tiny_draft: Path, seed: int
) -> None:
    rng = random.Random(seed)
    drafter = drafter_on(bench, tiny_draft, p_min=rng.choice([0.0, 0.35]))
    tokens = begin(drafter, PROMPT)
    for _ in range(rng.randrange(1, 25)):
        step(drafter, tokens, rng.randrange(5), rng.randrange(4, 12), limit=rng.randrange(1, 5))
    drafter.p_min = 0.0
    drafter.draft(tokens, 1)  # one token: the row it was taken from is still there
    row = drafter.context.rows(1)[0]
    np.testing.assert_array_equal(row, fresh_row(bench, tiny_draft, tokens))


@pytest.mark.parametrize("keep", [0, 1, 4, 12])
def test_a_new_generation_keeps_the_common_prefix(
    bench: Bench, tiny_draft: Path, keep: int
) -> None:
    drafter = drafter_on(bench, tiny_draft)
    tokens = begin(drafter, PROMPT)
    for _ in range(4):
        step(drafter, tokens, 2, wrong=9)
    second = [*tokens[:keep], *([10, 4, 10] if keep else [3, 4, 10])]
    seen = watch(drafter.context)
    drafter.begin(second[:-1], keep, Sampler(GREEDY, len(second) - 1))
    drafter.process(second[keep:-1], keep)
    assert seen[0] == list(range(keep, len(second) - 1))
    drafter.draft(second, 1)
    np.testing.assert_array_equal(drafter.context.rows(1)[0], fresh_row(bench, tiny_draft, second))


def test_the_same_prompt_again_needs_its_last_token_only(bench: Bench, tiny_draft: Path) -> None:
    drafter = drafter_on(bench, tiny_draft)
    begin(drafter, PROMPT)
    seen = watch(drafter.context)
    begin(drafter, PROMPT)
    assert seen == [[len(PROMPT) - 2]]


def test_a_prompt_longer_than_its_batch_is_decoded_in_parts(bench: Bench, tiny_draft: Path) -> None:
    drafter = drafter_on(bench, tiny_draft, batch=3)
    seen = watch(drafter.context)
    tokens = begin(drafter, PROMPT)
    assert seen == [[0, 1, 2], [3, 4, 5]]
    drafter.draft(tokens, 1)
    np.testing.assert_array_equal(drafter.context.rows(1)[0], fresh_row(bench, tiny_draft, tokens))


def test_after_reset_it_starts_from_nothing(bench: Bench, tiny_draft: Path) -> None:
    drafter = drafter_on(bench, tiny_draft)
    step(drafter, begin(drafter, PROMPT), 3, wrong=9)
    drafter.reset()
    assert drafter.context.last_position() == -1
    seen = watch(drafter.context)
    begin(drafter, PROMPT)
    assert seen == [list(range(len(PROMPT) - 1))]


def test_an_aborted_catch_up_leaves_no_output_row_behind(bench: Bench, tiny_draft: Path) -> None:
    """Two rows wanted of a context that allows one would abort the process."""
    drafter = drafter_on(bench, tiny_draft)
    tokens = begin(drafter, PROMPT)
    step(drafter, tokens, 4, wrong=9)  # two tokens are new: the next catch-up is a batch
    original = drafter.context.decode

    def abort(batch: Batch) -> None:
        raise DecodeAborted

    drafter.context.decode = abort  # type: ignore[method-assign]
    with pytest.raises(DecodeAborted):
        drafter.draft(tokens, 4)
    drafter.context.decode = original  # type: ignore[method-assign]
    assert not drafter._prompt.outputs.any()
    drafter.accept(tokens, ())
    drafter.draft(tokens, 1)
    np.testing.assert_array_equal(drafter.context.rows(1)[0], fresh_row(bench, tiny_draft, tokens))


def test_the_context_is_never_overrun(bench: Bench, tiny_draft: Path) -> None:
    drafter = drafter_on(bench, tiny_draft, batch=256)
    rng = random.Random(5)
    tokens = begin(drafter, [0, *(rng.randrange(4, 12) for _ in range(250))])
    while len(tokens) < 256:
        step(drafter, tokens, 4, wrong=9, limit=256 - len(tokens))
    assert drafter.draft(tokens, 4).n == 0


# ---- what it drafts ---------------------------------------------------------------------------


def test_greedy_drafts_are_the_argmax_of_each_path(bench: Bench, tiny_draft: Path) -> None:
    drafter = drafter_on(bench, tiny_draft)
    tokens = begin(drafter, PROMPT)
    draft = drafter.draft(tokens, 4)
    assert tokens == PROMPT, "the loop's list is as it was"
    path = list(PROMPT)
    for token in draft.tokens[: draft.n]:
        assert token == fresh_row(bench, tiny_draft, path).argmax()
        path.append(int(token))
    assert draft.q is None


@pytest.mark.parametrize("p_min", [0.2, 0.3, 0.4, 0.5])
def test_p_min_stops_before_a_token_is_taken(bench: Bench, tiny_draft: Path, p_min: float) -> None:
    rng = random.Random(7)
    drafter = drafter_on(bench, tiny_draft, p_min=p_min)
    lengths = set()
    for _ in range(12):
        prompt = [0, *(rng.randrange(4, 12) for _ in range(6))]
        draft = drafter.draft(begin(drafter, prompt), 4)
        path, expected = list(prompt), 0
        while expected < 4:
            row = fresh_row(bench, tiny_draft, path)
            if probabilities(row).max() < p_min:
                break
            path.append(int(row.argmax()))
            expected += 1
            if path[-1] == EOS:
                break
        assert draft.tokens[: draft.n].tolist() == path[len(prompt) :]
        lengths.add(draft.n)
    assert len(lengths) > 1, "a test of one length shows nothing"


def test_p_min_never_looks_at_the_drawn_token(bench: Bench, tiny_draft: Path) -> None:
    """Whatever is drawn, a draft of this prompt has its first token, or never has it; improbable
    tokens stay in drafts that p_min allowed."""
    drafter = drafter_on(bench, tiny_draft, p_min=0.3, sampled=True)
    rng = random.Random(11)
    outcomes, improbable = set(), 0
    for _ in range(10):
        prompt = [0, *(rng.randrange(4, 12) for _ in range(6))]
        lengths: dict[tuple[int, ...], bool] = {}
        for seed in range(12):
            settings = SamplerSettings(temperature=1.0, top_k=0, top_p=1, min_p=0, seed=seed)
            draft = drafter.draft(begin(drafter, prompt, settings), 3)
            assert draft.q is not None
            assert len(draft.q) == draft.n
            drawn = draft.tokens[: draft.n].tolist()
            for i in range(draft.n + 1):
                went_on = i < draft.n
                if i < 3 and (i == 0 or drawn[i - 1] != EOS):
                    assert lengths.setdefault(tuple(drawn[:i]), went_on) == went_on
            for q, token in zip(draft.q, drawn, strict=True):
                assert q.top >= 0.3
                improbable += q.probability(token) < 0.3
        outcomes |= set(lengths.values())
    assert outcomes == {True, False}
    assert improbable


def test_q_is_the_distribution_that_the_token_was_drawn_from(
    bench: Bench, tiny_draft: Path
) -> None:
    drafter = drafter_on(bench, tiny_draft, sampled=True)
    tokens = begin(drafter, PROMPT, HOT)
    draft = drafter.draft(tokens, 4)
    assert draft.q is not None
    path = list(PROMPT)
    for q, token in zip(draft.q, draft.tokens[: draft.n].tolist(), strict=True):
        p = probabilities(fresh_row(bench, tiny_draft, path))
        np.testing.assert_allclose([q.probability(i) for i in range(len(p))], p, atol=1e-6)
        path.append(token)


def test_an_end_of_generation_ends_the_draft(bench: Bench, tiny_silent: Path) -> None:
    drafter = drafter_on(bench, tiny_silent)
    draft = drafter.draft(begin(drafter, PROMPT), 4)
    assert draft.tokens[: draft.n].tolist() == [EOS]


@pytest.mark.parametrize("sampled", [False, True])
def test_ids_beyond_the_targets_vocabulary_are_never_drafted(
    bench: Bench, models: Path, sampled: bool
) -> None:
    path = tiny_llama(models / "wide.gguf", tokens=byte_vocabulary(310), favour={305: 30.0})
    drafter = drafter_on(bench, path, target_vocab=300, sampled=sampled)
    tokens = begin(drafter, [0, 70, 71, 72], HOT if sampled else GREEDY)
    assert fresh_row(bench, path, tokens).argmax() == 305
    draft = drafter.draft(tokens, 4)
    assert draft.n == 4
    assert (draft.tokens[:4] < 300).all()


def test_an_id_that_only_the_target_has_does_not_break_the_drafter(
    bench: Bench, tiny_bytes: Path
) -> None:
    drafter = drafter_on(bench, tiny_bytes, target_vocab=310)
    tokens = begin(drafter, [0, 70, 305, 72])
    draft = drafter.draft(tokens, 4)
    assert draft.n == 4
    tokens += [*draft.tokens[:4].tolist(), 309]
    drafter.accept(tokens, range(5))
    assert drafter.draft(tokens, 4).n == 4


# ---- which drafters are refused ---------------------------------------------------------------


def refused(bench: Bench, target: Path, path: Path) -> str:
    bench.target = bench.model(target)
    with pytest.raises(DrafterError) as caught:
        bench.build(DrafterSettings("draft-model", "x", str(path), n_max=4))
    assert not bench.contexts, "refused before a context is made"
    return str(caught.value)


def test_a_drafter_of_the_same_vocabulary_is_taken(
    bench: Bench, tiny_target: Path, tiny_draft: Path
) -> None:
    bench.target = bench.model(tiny_target)
    settings = DrafterSettings("draft-model", "x", str(tiny_draft), n_max=4)
    needs, drafter = bench.build(settings)
    assert needs == drafter.needs
    assert (needs.outputs, needs.rollback, needs.reads_target) == (5, True, False)


def test_the_first_differing_token_is_named(
    bench: Bench, tiny_target: Path, tiny_stranger: Path
) -> None:
    assert "token 5 is 'q' against 'b'" in refused(bench, tiny_target, tiny_stranger)


def test_another_size_is_refused(bench: Bench, tiny_target: Path, tiny_bytes: Path) -> None:
    assert "300 tokens against 12, more than 128 apart" in refused(bench, tiny_target, tiny_bytes)


def test_another_bos_rule_is_refused(bench: Bench, models: Path, tiny_target: Path) -> None:
    path = tiny_llama(models / "no-bos.gguf", add_bos=False)
    message = refused(bench, tiny_target, path)
    assert "BOS is id 0 (added: False) against 0 (added: True)" in message


def test_a_few_tokens_more_are_allowed(bench: Bench, models: Path, tiny_target: Path) -> None:
    wider = (*letter_vocabulary(12), b"h", b"i")
    path = tiny_llama(models / "wider.gguf", tokens=wider)
    bench.target = bench.model(tiny_target)
    bench.build(DrafterSettings("draft-model", "x", str(path), n_max=4))


def test_a_recurrent_draft_model_is_refused(
    bench: Bench, tiny_target: Path, tiny_mamba: Path
) -> None:
    assert "recurrent state" in refused(bench, tiny_target, tiny_mamba)


def test_unknown_methods_and_missing_files_are_refused(bench: Bench, tiny_target: Path) -> None:
    bench.target = bench.model(tiny_target)
    with pytest.raises(DrafterError, match="'telepathy' is not built.*none, ngram, draft-model"):
        bench.build(DrafterSettings("telepathy", "x", n_max=4))
    with pytest.raises(DrafterError, match="needs a GGUF file"):
        bench.build(DrafterSettings("draft-model", "x", n_max=4))
    with pytest.raises(DrafterError, match="at least one token"):
        bench.build(DrafterSettings("ngram", "x", n_max=0))
