"""The tiny models are what other tests take them for: checked with llama.cpp itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import llama_cpp.llama_cpp as ll
import numpy as np
import pytest
from numpy.typing import NDArray
from tiny_models import BOS, EOS, letter_vocabulary, tiny_llama

N_BATCH = 64


class Loaded:
    """A model with one context, over the bare API: what is tested must not be the measure."""

    def __init__(self, model: ll.llama_model_p, context: ll.llama_context_p) -> None:
        self.context = context
        self.vocab = ll.llama_model_get_vocab(model)
        self.n_vocab = ll.llama_vocab_n_tokens(self.vocab)
        self.memory = ll.llama_get_memory(context)

    def decode(self, tokens: list[int], position: int = 0) -> NDArray[np.float32]:
        """Logits of every token, decoded in one batch from ``position`` on."""
        assert ll.llama_memory_seq_rm(self.memory, 0, position, -1)
        batch = ll.llama_batch_init(N_BATCH, 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, position + i
            batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, 0, 1
        rc = ll.llama_decode(self.context, batch)
        ll.llama_batch_free(batch)
        assert rc == 0
        rows = np.ctypeslib.as_array(
            ll.llama_get_logits(self.context), shape=(len(tokens), self.n_vocab)
        )
        return rows.copy()

    def probabilities(self, tokens: list[int]) -> NDArray[np.float64]:
        logits = self.decode(tokens).astype(np.float64)
        e = np.exp(logits - logits.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    def tokenize(self, text: str) -> list[int]:
        data = text.encode()
        out = (ll.llama_token * (len(data) + 4))()
        n = ll.llama_tokenize(self.vocab, data, len(data), out, len(out), True, True)
        assert n >= 0
        return list(out[:n])

    def piece(self, token: int) -> bytes:
        buffer = bytes(64)
        n = ll.llama_token_to_piece(self.vocab, token, buffer, len(buffer), 0, False)
        return buffer[:n]


@contextmanager
def loaded(path: Path) -> Iterator[Loaded]:
    ll.llama_backend_init()
    model = ll.llama_model_load_from_file(str(path).encode(), ll.llama_model_default_params())
    assert model, f"llama.cpp does not load {path}"
    params = ll.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_threads, params.n_threads_batch = 256, N_BATCH, 1, 1
    context = ll.llama_init_from_model(model, params)
    assert context
    try:
        yield Loaded(model, context)
    finally:
        ll.llama_free(context)
        ll.llama_model_free(model)


def random_tokens(n_vocab: int, n: int = 60) -> list[int]:
    rng = np.random.default_rng(3)
    return [BOS, *(int(t) for t in rng.integers(2, n_vocab, n - 1))]


@pytest.mark.parametrize(
    "name",
    ["tiny_target", "tiny_draft", "tiny_stranger", "tiny_bytes", "tiny_silent", "tiny_mamba"],
)
def test_files_are_tiny_and_logits_finite(name: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(name)
    assert path.stat().st_size < 100_000
    with loaded(path) as model:
        assert np.isfinite(model.decode(random_tokens(model.n_vocab))).all()


@pytest.mark.parametrize("name", ["tiny_target", "tiny_draft", "tiny_bytes", "tiny_mamba"])
def test_distributions_are_peaked_but_not_settled(
    name: str, request: pytest.FixtureRequest
) -> None:
    with loaded(request.getfixturevalue(name)) as model:
        top = model.probabilities(random_tokens(model.n_vocab)).max(axis=1)
    assert 0.25 < np.median(top) < 0.65
    assert (top < 0.95).mean() > 0.8


@pytest.mark.parametrize("name", ["tiny_target", "tiny_draft", "tiny_bytes", "tiny_mamba"])
def test_distributions_depend_on_more_than_the_last_token(
    name: str, request: pytest.FixtureRequest
) -> None:
    with loaded(request.getfixturevalue(name)) as model:
        rows = [model.probabilities([BOS, first, 7, 8])[-1] for first in range(2, 8)]
    distances = [abs(a - b).sum() / 2 for i, a in enumerate(rows) for b in rows[:i]]
    assert np.mean(distances) > 0.05


@pytest.mark.parametrize("name", ["tiny_target", "tiny_bytes", "tiny_mamba"])
def test_a_batch_gives_the_rows_of_single_tokens(name: str, request: pytest.FixtureRequest) -> None:
    with loaded(request.getfixturevalue(name)) as model:
        tokens = random_tokens(model.n_vocab, 12)
        single = np.concatenate([model.decode([t], i) for i, t in enumerate(tokens)])
        np.testing.assert_allclose(model.decode(tokens), single, atol=0.02)


def test_the_draft_agrees_with_the_target_in_part(tiny_target: Path, tiny_draft: Path) -> None:
    with loaded(tiny_target) as target, loaded(tiny_draft) as draft:
        tokens = random_tokens(target.n_vocab)
        p, q = target.probabilities(tokens), draft.probabilities(tokens)
    assert 0.6 < np.minimum(p, q).sum(axis=1).mean() < 0.9
    assert 0.4 < (p.argmax(axis=1) == q.argmax(axis=1)).mean() < 0.9


def test_letters_go_round_and_pairs_merge(tiny_target: Path) -> None:
    text = "abba cab\ngag"
    with loaded(tiny_target) as model:
        tokens = model.tokenize(text)
        assert tokens[0] == BOS
        assert b"".join(model.piece(t) for t in tokens[1:]) == text.encode()
        assert model.piece(tokens[1]) == b"ab"
        assert ll.llama_vocab_is_eog(model.vocab, EOS)


@pytest.mark.parametrize("text", ["plain the text", "ß ♬ 🔥 👨‍👩‍👧 歪", "\x00\x7f\t\r\n\u00ad"])
def test_any_text_goes_round_the_byte_vocabulary(tiny_bytes: Path, text: str) -> None:
    with loaded(tiny_bytes) as model:
        tokens = model.tokenize(text)
        assert b"".join(model.piece(t) for t in tokens[1:]) == text.encode()


def test_chat_specials_are_single_tokens(tiny_bytes: Path) -> None:
    with loaded(tiny_bytes) as model:
        assert model.tokenize("<|im_start|>a<|im_end|>") == [BOS, 2, 4 + ord("a"), 3]
        assert ll.llama_vocab_is_eog(model.vocab, 3)


def test_the_stranger_differs_where_vocabularies_are_compared(
    tiny_target: Path, tiny_stranger: Path
) -> None:
    with loaded(tiny_target) as target, loaded(tiny_stranger) as stranger:
        assert target.n_vocab == stranger.n_vocab
        assert target.piece(5) != stranger.piece(5)


def test_the_silent_model_ends_whatever_the_prompt(tiny_silent: Path) -> None:
    with loaded(tiny_silent) as model:
        probabilities = model.probabilities(random_tokens(model.n_vocab))
    assert probabilities[:, EOS].min() > 0.999


def test_attention_memory_rolls_back_and_recurrent_memory_does_not(
    tiny_target: Path, tiny_mamba: Path
) -> None:
    with loaded(tiny_target) as model:
        model.decode([BOS, 5, 6, 7])
        assert ll.llama_memory_seq_rm(model.memory, 0, 2, -1)
    with loaded(tiny_mamba) as model:
        model.decode([BOS, 5, 6, 7])
        assert not ll.llama_memory_seq_rm(model.memory, 0, 2, -1)


def test_the_seed_decides_the_weights(tmp_path: Path) -> None:
    same = [tiny_llama(tmp_path / f"{i}.gguf", seed=4).read_bytes() for i in range(2)]
    other = tiny_llama(tmp_path / "2.gguf", seed=5).read_bytes()
    assert len(same[0]) == len(same[1]) == len(other)
    tail = slice(-10_000, None)
    assert same[0][tail] == same[1][tail] != other[tail]


def test_a_text_given_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="twice"):
        tiny_llama(tmp_path / "twice.gguf", tokens=[*letter_vocabulary(), b"a"])
