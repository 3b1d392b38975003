"""Text to ids: one BOS, no forged special tokens, any text whatever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import BOS, byte_vocabulary, tiny_llama

from localspec.llama import Model, Vocab

IM_START, IM_END = 2, 3  # of byte_vocabulary


@pytest.fixture(scope="module")
def vocab(tiny_bytes: Path) -> Iterator[Vocab]:
    with Model(tiny_bytes) as model:
        yield model.vocab


@pytest.fixture(scope="module")
def spm(tiny_spm: Path) -> Iterator[Vocab]:
    with Model(tiny_spm) as model:
        yield model.vocab


def text_of(vocab: Vocab, ids: list[int]) -> bytes:
    return b"".join(vocab.piece(i) for i in ids)


def test_exactly_one_bos_comes_first(vocab: Vocab) -> None:
    for segments in [("hello",), ("<s>", "hello"), ("<s>hello",), ("<s><s>", "<s>hello")]:
        ids = vocab.tokenize_segments(segments, bos=True)
        assert ids[0] == BOS
        assert ids.count(BOS) == 1
        assert text_of(vocab, ids[1:]) == b"hello"


def test_a_bos_that_is_not_asked_for_is_not_added(vocab: Vocab) -> None:
    assert text_of(vocab, vocab.tokenize_segments(("hello",), bos=False)) == b"hello"
    assert vocab.tokenize_segments((), bos=False) == []
    assert vocab.tokenize_segments((), bos=True) == [BOS]


def test_a_vocabulary_that_wants_no_bos_gets_none(models: Path) -> None:
    path = tiny_llama(models / "no-bos-bytes.gguf", tokens=byte_vocabulary(300), add_bos=False)
    with Model(path) as model:
        assert BOS not in model.vocab.tokenize_segments(("hello",), bos=True)


def test_special_tokens_are_read_within_a_segment_only(vocab: Vocab) -> None:
    assert vocab.tokenize_segments(("<|im_end|>",), bos=False) == [IM_END]
    for cut in range(1, len("<|im_end|>")):
        halves = ("<|im_end|>"[:cut], "<|im_end|>"[cut:])
        ids = vocab.tokenize_segments(halves, bos=False)
        assert IM_END not in ids
        assert text_of(vocab, ids) == b"<|im_end|>"


@given(st.lists(st.text(), max_size=4))
def test_any_text_goes_round(vocab: Vocab, segments: list[str]) -> None:
    joined = "".join(segments)
    ids = vocab.tokenize_segments(tuple(segments), bos=False)
    if not any(s in joined for s in vocab.special_texts):
        assert text_of(vocab, ids) == joined.encode()


@pytest.mark.parametrize(
    "text", ["a\ud83d", "\udc80b", "a\x00b", "\x00", "\ufffe", "e\u0301", "\u3000"]
)
def test_odd_text_does_not_crash(vocab: Vocab, text: str) -> None:
    ids = vocab.tokenize_segments((text,), bos=True)
    assert text_of(vocab, ids[1:]) == text.encode("utf-8", "replace")


def test_special_text_as_plain_text(vocab: Vocab) -> None:
    ids = vocab.tokenize("<|im_start|>x", special=False)
    assert IM_START not in ids
    assert text_of(vocab, ids) == b"<|im_start|>x"


def test_special_texts_are_listed(vocab: Vocab) -> None:
    assert vocab.special_texts == ("<s>", "</s>", "<|im_start|>", "<|im_end|>")
    assert vocab.eog == {1, 3}, "llama.cpp takes <|im_end|> for an end by its name"
    assert all(vocab.is_eog(i) == (i in vocab.eog) for i in range(vocab.size))


def test_ids_outside_the_vocabulary_have_no_text(vocab: Vocab) -> None:
    assert vocab.text(-1) == vocab.text(300) == ""


# ---- SentencePiece ----------------------------------------------------------------------------


def test_spm_puts_one_space_before_the_text_and_none_inside(spm: Vocab) -> None:
    ids = spm.tokenize_segments(("hello", "world"), bos=True)
    assert [spm.text(i) for i in ids] == ["<s>", "▁hello", "world"]


def test_spm_keeps_the_spaces_of_the_text(spm: Vocab) -> None:
    ids = spm.tokenize_segments(("hello", " world", "<|im_end|>", "hello"), bos=False)
    assert [spm.text(i) for i in ids] == ["▁hello", "▁world", "<|im_end|>", "hello"]


def test_spm_segments_that_start_with_newlines_keep_them_all(spm: Vocab) -> None:
    ids = spm.tokenize_segments(("hello", "\n\nhello"), bos=False)
    assert text_of(spm, ids).lstrip() == b"hello\n\nhello"


def test_spm_special_tokens_do_not_form_across_a_border(spm: Vocab) -> None:
    ids = spm.tokenize_segments(("<|im_", "end|>"), bos=False)
    assert 3 not in ids
    assert text_of(spm, ids).lstrip() == b"<|im_end|>"


def test_spm_has_one_bos(spm: Vocab) -> None:
    ids = spm.tokenize_segments(("<s>", "hello"), bos=True)
    assert ids.count(1) == 1
    assert ids[0] == 1
