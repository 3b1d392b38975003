"""Every drafter that reads the target's hidden states: whatever was accepted, cancelled, left out
or reused, its next drafts are those of a drafter that read the same text in one go."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drafters.reading import Lab, Pair, opened
from numpy.typing import NDArray
from tiny_drafters import MARKOV_RANK, tiny_dflash, tiny_eagle3
from tiny_models import BOS, EOS, byte_vocabulary, letter_vocabulary, tiny_llama

from localspec.decoding.loop import Listener, Request
from localspec.decoding.sampling import Sampler
from localspec.drafters.base import Draft
from localspec.drafters.build import family_of
from localspec.drafters.dflash import DFlashDrafter
from localspec.drafters.features import TargetFeatures
from localspec.errors import DrafterError
from localspec.llama import DecodeAborted
from localspec.llama.context import Batch
from localspec.records import READER_BATCH, DrafterSettings, Generation, SamplerSettings

SPEAKS_ON = {BOS: -8.0, EOS: -8.0}
PROMPT = [0, 5, 6, 7, 8, 5, 6]
MARKOV = np.random.default_rng(5).standard_normal((12, MARKOV_RANK)).astype(np.float32)
FILES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "eagle3": ("eagle3", tiny_eagle3, {}),
    "eagle3 with 8 ids": ("eagle3", tiny_eagle3, {"d2t": [2, 4, 5, 6, 7, 9, 10, 11]}),
    "dflash": ("dflash", tiny_dflash, {}),
    "dflash causal": ("dflash", tiny_dflash, {"causal": True}),
    "dflash m-rope": ("dflash", tiny_dflash, {"m_rope": True}),
    "dflash2": ("dflash", tiny_dflash, {"selector": 4}),
    "dspark": ("dspark", tiny_dflash, {"markov": MARKOV, "anchored": False}),
    "dspark anchored": ("dspark", tiny_dflash, {"markov": MARKOV}),
}
N_MAX = 4


@pytest.fixture(scope="session")
def target(models: Path) -> Path:
    return tiny_llama(models / "read.gguf", n_layer=4, favour=SPEAKS_ON)


@pytest.fixture(scope="session")
def files(models: Path) -> dict[str, DrafterSettings]:
    made = {}
    for name, (method, build, options) in FILES.items():
        path = build(models / f"{name.replace(' ', '-')}.gguf", **options)
        made[name] = DrafterSettings(method, name, str(path), n_max=N_MAX)
    return made


@pytest.fixture(params=FILES)
def settings(request: pytest.FixtureRequest, files: dict[str, DrafterSettings]) -> DrafterSettings:
    return files[request.param]


@pytest.fixture
def lab() -> Iterator[Lab]:
    with opened() as made:
        yield made


def outcome(pair: Pair) -> tuple[list[int], NDArray[np.float32]]:
    """The next draft, and numbers it came from: the last row that was decoded for it, or the first
    of the block. They depend on everything read, where the most probable ids may not."""
    drafter: Any = pair.drafter
    drafter._eog = frozenset()  # a draft that ends at once would leave other rows
    draft = pair.draft()
    if isinstance(drafter, DFlashDrafter) and drafter.block.top_k:
        return draft, drafter.context.hidden_rows(drafter.block.size)[1:].copy()
    return draft, drafter.context.rows(1)[0].copy()


def fresh(
    lab: Lab, target: Path, settings: DrafterSettings, tokens: list[int]
) -> tuple[list[int], NDArray[np.float32]]:
    """The outcome for a drafter that knows nothing but ``tokens``."""
    return outcome(lab.pair(target, settings).begin(tokens))


def assert_as_fresh(lab: Lab, target: Path, settings: DrafterSettings, pair: Pair) -> None:
    """Consumes the pair's draft. Other batches may round otherwise; other features are far off."""
    expected, row = fresh(lab, target, settings, pair.tokens)
    draft, found = outcome(pair)
    assert draft == expected
    np.testing.assert_allclose(found, row, atol=1e-2)


def play(pair: Pair, rng: random.Random, steps: int) -> None:
    for _ in range(steps):
        pair.step(rng.randrange(N_MAX + 1), wrong=rng.randrange(4, 12), limit=rng.randrange(1, 6))


# ---- its own memory ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_after_any_pattern_of_rejections_drafts_are_those_of_a_fresh_start(
    lab: Lab, target: Path, settings: DrafterSettings, seed: int
) -> None:
    rng = random.Random(seed)
    pair = lab.pair(target, settings).begin(PROMPT)
    play(pair, rng, rng.randrange(1, 25))
    assert_as_fresh(lab, target, settings, pair)


def test_drafts_depend_on_what_was_read(lab: Lab, target: Path, settings: DrafterSettings) -> None:
    """Else the tests here could not fail: another token early on, other numbers and drafts."""
    rng = random.Random(2)
    changed = 0
    for _ in range(10):
        tokens = [0, *(rng.randrange(4, 12) for _ in range(8))]
        other = [*tokens[:4], 4 + (tokens[4] - 3) % 8, *tokens[5:]]
        draft, row = fresh(lab, target, settings, tokens)
        other_draft, other_row = fresh(lab, target, settings, other)
        finite = np.isfinite(row)
        assert np.abs(row[finite] - other_row[finite]).max() > 0.1
        changed += draft != other_draft
    assert changed


@pytest.mark.parametrize("n", [1, 31, 32, 33, READER_BATCH + 1, 3 * READER_BATCH + 5])
def test_a_prompt_may_come_in_chunks(
    lab: Lab, target: Path, settings: DrafterSettings, n: int
) -> None:
    rng = random.Random(n)
    tokens = [0, *(rng.randrange(4, 12) for _ in range(n))]
    chunks = lab.pair(target, settings, batch=7).begin(tokens)
    assert_as_fresh(lab, target, settings, chunks)


def test_the_rows_of_a_kept_path_of_a_tree_are_picked_out(
    lab: Lab, target: Path, settings: DrafterSettings
) -> None:
    """Where the verified batch was a tree, its kept rows do not follow each other."""
    pair = lab.branching_pair(target, settings, nodes=7).begin(PROMPT)
    draft = Draft(7)
    #        0 - 2 - 4      kept: 1, 3, 6
    #        1 - 3 - 5, 6
    draft.tokens[:7] = [4, 5, 6, 7, 8, 9, 10]
    draft.parents[:7] = [-1, -1, 0, 1, 2, 3, 3]
    draft.n, draft.chain = 7, False
    pair.draft()
    pair.verify(draft, 6, follow=4)
    assert pair.tokens[-4:] == [5, 7, 10, 4]
    # once only: cells that were freed are used again, in an order that rounds otherwise
    assert_as_fresh(lab, target, settings, pair)


def test_steps_without_drafts_are_read_all_the_same(
    lab: Lab, target: Path, settings: DrafterSettings
) -> None:
    """As behind another drafter that is asked first; more of them than one pass takes in."""
    rng = random.Random(3)
    pair = lab.pair(target, settings).begin(PROMPT)
    nothing = Draft(0)
    for _ in range(READER_BATCH + 10):
        pair.verify(nothing, -1, follow=rng.randrange(4, 12))
    assert_as_fresh(lab, target, settings, pair)


def test_only_kept_tokens_are_read(lab: Lab, target: Path, settings: DrafterSettings) -> None:
    pair = lab.pair(target, settings).begin(PROMPT)
    read: list[int] = []
    gather = TargetFeatures.gather

    def watch(self: TargetFeatures, rows: Any, out: Any) -> None:
        read.append(len(rows))
        gather(self, rows, out)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TargetFeatures, "gather", watch)
        kept = [pair.step(accepted, wrong=9) for accepted in (0, 2, 99, 1)]
    assert read == [k + 1 for k in kept]


# ---- cancelling -------------------------------------------------------------------------------


@pytest.mark.parametrize("nth", range(4))
def test_an_aborted_draft_leaves_the_memory_as_it_was(
    lab: Lab, target: Path, settings: DrafterSettings, nth: int
) -> None:
    """The ``nth`` pass of the draft is the one that is stopped."""
    pair = lab.pair(target, settings).begin(PROMPT)
    pair.step(2, wrong=9)
    context, passes = pair.drafter.context, 0  # type: ignore[attr-defined]
    tokens = list(pair.tokens)

    def stop(original: Any) -> Any:
        def run(batch: Batch) -> None:
            nonlocal passes
            passes += 1
            if passes > nth:
                raise DecodeAborted
            original(batch)

        return run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context, "decode", stop(context.decode))
        patch.setattr(context, "encode", stop(context.encode))
        if nth < 2 or settings.method == "eagle3":
            with pytest.raises(DecodeAborted):
                pair.draft()
        else:
            pair.draft()  # a block takes two passes: it is the verification that was stopped
    # what the loop does then
    del pair.tokens[len(tokens) :]
    pair.target.context.truncate(len(tokens) - 1)
    pair.drafter.accept(pair.tokens, ())
    # the next turn goes on from what the target holds
    longer = [*tokens, 5, 7]
    keep = pair.drafter.reusable(longer[:-1], len(tokens) - 1)
    assert keep >= len(tokens) - 2
    pair.begin(longer, keep)
    assert_as_fresh(lab, target, settings, pair)


def test_a_cancelled_prompt_can_be_gone_on_with(
    lab: Lab, target: Path, settings: DrafterSettings
) -> None:
    rng = random.Random(4)
    tokens = [0, *(rng.randrange(4, 12) for _ in range(60))]
    pair = lab.pair(target, settings)
    drafter, evaluated = pair.drafter, tokens[:-1]
    drafter.begin(evaluated, 0, Sampler(SamplerSettings(), len(evaluated)))

    def after(chunk: Any, position: int) -> None:
        drafter.process(chunk, position)
        raise DecodeAborted

    with pytest.raises(DecodeAborted):
        pair.target.prefill(evaluated, 0, after)
    assert drafter.reusable(evaluated, 32) == 32
    pair.begin(tokens, 32)
    assert_as_fresh(lab, target, settings, pair)


# ---- reuse ------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [0, 1, 4, 7, 12, 99])
@pytest.mark.parametrize("drafted", [False, True])
def test_a_new_turn_keeps_what_both_hold(
    lab: Lab, target: Path, settings: DrafterSettings, wanted: int, drafted: bool
) -> None:
    """The text parts from the old one after ``wanted`` tokens, at other tokens."""
    pair = lab.pair(target, settings).begin(PROMPT)
    play(pair, random.Random(6), 4)
    if drafted:
        pair.draft()
        pair.drafter.accept(pair.tokens, ())
    held = len(pair.tokens) - 1
    common = min(wanted, held)
    rest = [4 + (pair.tokens[common] - 3) % 8, 11, 10, 5]
    tokens = [*pair.tokens[:common], *rest]
    keep = pair.drafter.reusable(tokens[:-1], common)
    # at most one token is decoded again: the one whose hidden state was read and is gone
    assert common - 1 <= keep <= common
    pair.begin(tokens, keep)
    assert_as_fresh(lab, target, settings, pair)
    play(pair, random.Random(7), 3)
    assert_as_fresh(lab, target, settings, pair)


def test_the_end_of_a_turn_is_all_there_for_the_next(
    lab: Lab, target: Path, settings: DrafterSettings
) -> None:
    pair = lab.pair(target, settings).begin(PROMPT)
    play(pair, random.Random(6), 4)
    held = len(pair.tokens) - 1
    tokens = [*pair.tokens, 7, 5]
    assert pair.drafter.reusable(tokens, held) == held


def test_after_reset_nothing_is_there(lab: Lab, target: Path, settings: DrafterSettings) -> None:
    pair = lab.pair(target, settings).begin(PROMPT)
    play(pair, random.Random(6), 4)
    pair.drafter.reset()
    assert pair.drafter.reusable(pair.tokens, 3) == 0
    pair.begin(PROMPT)
    assert_as_fresh(lab, target, settings, pair)


def test_missing_positions_mean_no_drafts(
    lab: Lab, target: Path, settings: DrafterSettings
) -> None:
    """A pass over committed text that was stopped leaves a gap; nothing is drafted over it."""
    pair = lab.pair(target, settings).begin(PROMPT)
    pair.draft()
    pair.drafter.accept([*pair.tokens, 5, 6], (0, 1))  # as after rows that never came
    pair.drafter.accept([*pair.tokens, 5, 6, 7, 7, 7], (0,))
    tokens = [*pair.tokens, 5, 6, 7, 7, 7]
    assert pair.drafter.draft(tokens, 4).n == 0
    read = len(PROMPT) - 1 + 2
    assert pair.drafter.reusable(tokens, len(tokens) - 1) == read


# ---- in the loop ------------------------------------------------------------------------------


def generate(session: Any, prompt: list[int], n: int = 40, **options: Any) -> Generation:
    sampler = SamplerSettings(temperature=options.pop("temperature", 0.0), seed=3)
    request = Request(prompt=prompt, sampler=sampler, max_tokens=n, record=True, **options)
    found: Generation = session.generate(request, options.pop("listener", Listener()))
    return found


@pytest.mark.parametrize("temperature", [0.0, 1.2])
def test_output_is_the_baselines(
    lab: Lab, target: Path, settings: DrafterSettings, temperature: float
) -> None:
    plain = lab.session(target, DrafterSettings())
    session = lab.session(target, settings)
    for first in range(4, 10):
        prompt = [0, first, 5, first]
        expected = generate(plain, prompt, temperature=temperature)
        found = generate(session, prompt, temperature=temperature)
        assert found.tokens == expected.tokens
        assert found.counts.drafted > 30


def test_a_second_turn_drafts_as_a_new_session_does(
    lab: Lab, target: Path, settings: DrafterSettings
) -> None:
    session = lab.session(target, settings)
    first = generate(session, PROMPT, 20)
    second = [*PROMPT, *first.tokens, 4, 6]
    found = generate(session, second, 20, reuse=True)
    assert found.cached_tokens == len(PROMPT) + len(first.tokens) - 1
    other = generate(lab.session(target, settings), second, 20)
    assert (found.tokens, found.drafts) == (other.tokens, other.drafts)


def test_a_cancelled_turn_is_gone_on_with(
    lab: Lab, target: Path, settings: DrafterSettings
) -> None:
    session = lab.session(target, settings)

    class CancelLater(Listener):
        def progress(self, spans: Any, steps: Any, tokens: int, elapsed: float) -> None:
            if tokens > 8:
                session.abort.set()

    sampler = SamplerSettings()
    first = session.generate(
        Request(prompt=PROMPT, sampler=sampler, max_tokens=200, interval=0.0), CancelLater()
    )
    session.abort.clear()
    assert first.stop == "cancelled"
    second = [*PROMPT, *first.tokens, 4, 6]
    found = generate(session, second, 20, reuse=True)
    assert found.cached_tokens >= len(PROMPT) + len(first.tokens) - 2
    other = generate(lab.session(target, settings), second, 20)
    assert (found.tokens, found.drafts) == (other.tokens, other.drafts)


def test_the_context_is_never_overrun(lab: Lab, target: Path, settings: DrafterSettings) -> None:
    session = lab.session(target, settings)
    found = generate(session, PROMPT, 500)
    assert found.stop == "context"
    assert len(PROMPT) + len(found.tokens) == 257


# ---- what is drafted --------------------------------------------------------------------------


def test_drafts_are_as_long_as_allowed(lab: Lab, target: Path, settings: DrafterSettings) -> None:
    pair = lab.pair(target, settings)
    whole = pair.begin(PROMPT).draft()
    assert len(whole) == N_MAX
    for limit in (0, 1, 3):
        pair.drafter.reset()
        assert pair.begin(PROMPT).draft(limit) == whole[:limit]
        assert pair.tokens == PROMPT, "the loop's list is as it was"


def test_nothing_follows_an_end_of_generation(
    lab: Lab, target: Path, settings: DrafterSettings
) -> None:
    """Whatever is the end: here an id that these drafters like."""
    rng = random.Random(12)
    prompts = [[0, *(rng.randrange(4, 12) for _ in range(6))] for _ in range(20)]
    pair = lab.pair(target, settings)

    def drafts() -> list[list[int]]:
        found = []
        for prompt in prompts:
            pair.drafter.reset()
            pair.target.context.clear()
            found.append(pair.begin(prompt).draft())
        return found

    pair.drafter._eog = frozenset()  # type: ignore[attr-defined]
    whole = drafts()
    assert all(len(draft) == N_MAX for draft in whole)
    end = max(range(12), key=lambda i: sum(i in draft[:-1] for draft in whole))
    pair.drafter._eog = frozenset({end})  # type: ignore[attr-defined]
    cut = [draft[: draft.index(end) + 1] if end in draft else draft for draft in whole]
    assert cut != whole
    assert drafts() == cut


def test_ids_beyond_the_targets_vocabulary_are_never_drafted(lab: Lab, models: Path) -> None:
    """A drafter may have up to 128 ids more, where its output layer is its own; and fewer."""
    small, large = byte_vocabulary(300), byte_vocabulary(310)
    target = tiny_llama(models / "read300.gguf", n_layer=4, tokens=small, favour=SPEAKS_ON)
    other = tiny_llama(models / "read310.gguf", n_layer=4, tokens=large, favour={305: 30.0})
    beyond = 0
    for method, build in (("eagle3", tiny_eagle3), ("dflash", tiny_dflash)):
        path = build(
            models / f"{method}310.gguf", tokens=large, own_output=True, loud=range(300, 310)
        )
        settings = DrafterSettings(method, "x", str(path), n_max=4)
        pair = lab.pair(target, settings)
        pair.drafter._width = 310  # type: ignore[attr-defined]
        for first in range(60, 90):
            tokens = [0, first, 71, 72, first]
            pair.drafter.reset()
            pair.target.context.clear()
            beyond += max(pair.begin(tokens).draft(1)) >= 300
            assert max(fresh(lab, target, settings, tokens)[0]) < 300
        path = build(models / f"{method}300.gguf", tokens=small, own_output=True)
        settings = DrafterSettings(method, "x", str(path), n_max=4)
        pair = lab.pair(other, settings).begin([0, 70, 305, 72])
        pair.step(4, wrong=309)
        assert len(pair.draft()) > 0
    assert beyond, "nothing beyond was ever likely"


# ---- which pairings are refused ---------------------------------------------------------------


def refused(lab: Lab, target: Path, settings: DrafterSettings) -> str:
    """Before any context is made (test_pairing knows every reason)."""
    lent = lab.lend(target, settings)
    with pytest.raises(DrafterError) as caught:
        family_of(settings).needs(settings, lent)
    assert caught.value.hint
    assert not lent.contexts
    return caught.value.message


@pytest.mark.parametrize("method", ["eagle3", "dflash"])
def test_what_cannot_be_read_is_refused_before_a_context_is_made(
    lab: Lab, models: Path, target: Path, tiny_mamba: Path, tiny_target: Path, method: str
) -> None:
    build = {"eagle3": tiny_eagle3, "dflash": tiny_dflash}[method]

    def settings(name: str, **options: Any) -> DrafterSettings:
        path = build(models / f"{method}-{name}.gguf", **options)
        return DrafterSettings(method, name, str(path), n_max=4)

    fits = settings("fits")
    wide = settings("wide", **({"target_width": 64} if method == "eagle3" else {"n_embd": 64}))
    strange = settings("strange", tokens=letter_vocabulary(first="p"))
    assert "mamba" in refused(lab, tiny_mamba, fits)
    assert "3" in refused(lab, tiny_target, fits)  # it has two layers
    assert "64" in refused(lab, target, wide)
    assert "token 5 is 'q' against 'b'" in refused(lab, target, strange)


def test_a_file_of_another_method_is_refused(
    lab: Lab, target: Path, files: dict[str, DrafterSettings]
) -> None:
    for name, method in (
        ("dspark", "dflash"),
        ("dflash", "dspark"),
        ("eagle3", "dflash"),
        ("dflash", "eagle3"),
    ):
        assert method in refused(lab, target, replace(files[name], method=method))
