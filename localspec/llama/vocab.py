"""The vocabulary of a model: text to ids, ids to bytes, special tokens, the drafter check."""

from __future__ import annotations

import ctypes
from functools import cached_property
from typing import Any

from localspec.errors import DrafterError
from localspec.llama.library import L

# llama.cpp common/speculative.cpp: SPEC_VOCAB_MAX_SIZE_DIFFERENCE, SPEC_VOCAB_CHECK_START_TOKEN_ID
MAX_SIZE_DIFFERENCE = 128
CHECK_START = 5

NO_TEXTS, SPM = 0, 1  # tokenizer types; the first has ids only
ATTR_UNKNOWN = 1 << 0
ATTR_CONTROL = 1 << 3
ATTR_USER_DEFINED = 1 << 4


class Vocab:
    """Belongs to a Model and lives as long as it."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.size: int = L.llama_vocab_n_tokens(handle)
        self.type: int = L.llama_vocab_type(handle)
        self.bos: int = L.llama_vocab_bos(handle)
        self.eos: int = L.llama_vocab_eos(handle)
        self.mask: int = L.llama_vocab_mask(handle)
        self.add_bos: bool = bool(L.llama_vocab_get_add_bos(handle))
        self.add_eos: bool = bool(L.llama_vocab_get_add_eos(handle))
        self._pieces: dict[int, bytes] = {}
        self._buffer = ctypes.create_string_buffer(64)

    def text(self, token: int) -> str:
        """The token as written in the vocabulary ("" for an id outside it)."""
        if not 0 <= token < self.size:
            return ""
        return (L.llama_vocab_get_text(self.handle, token) or b"").decode("utf-8", "replace")

    def is_eog(self, token: int) -> bool:
        return bool(L.llama_vocab_is_eog(self.handle, token))

    @cached_property
    def eog(self) -> frozenset[int]:
        """Every end-of-generation id (a set look-up is cheaper than a call per token)."""
        return frozenset(i for i in range(self.size) if L.llama_vocab_is_eog(self.handle, i))

    @cached_property
    def special_texts(self) -> tuple[str, ...]:
        """Texts that must not become one token when a person writes them.

        What llama.cpp leaves text with parse_special off (control and unknown), and the chat markup
        that converters forget to mark as control (DeepSeek's ``<｜User｜>``). Not the other
        user-defined tokens: Gemma's runs of newlines and HTML tags are ordinary text.
        """
        get = L.llama_vocab_get_attr
        texts: dict[str, None] = {}
        for i in range(self.size):
            attr = get(self.handle, i)
            if attr & (ATTR_UNKNOWN | ATTR_CONTROL):
                texts[self.text(i)] = None
            elif attr & ATTR_USER_DEFINED:
                text = self.text(i)
                if "|" in text or "\N{FULLWIDTH VERTICAL LINE}" in text:
                    texts[text] = None
        return tuple(text for text in texts if len(text) > 1)

    def piece(self, token: int) -> bytes:
        """The bytes a token adds to the text (special tokens are rendered), cached."""
        known = self._pieces.get(token)
        if known is not None:
            return known
        n = L.llama_token_to_piece(self.handle, token, self._buffer, len(self._buffer), 0, True)
        if n < 0:
            self._buffer = ctypes.create_string_buffer(-n)
            n = L.llama_token_to_piece(self.handle, token, self._buffer, -n, 0, True)
        piece = self._buffer.raw[: max(n, 0)]
        self._pieces[token] = piece
        return piece

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """Ids of ``text`` without any BOS; ``special`` reads special tokens out of it."""
        if not text:
            return []
        data = text.encode("utf-8", "replace")  # a lone surrogate must not reach the tokenizer
        capacity = len(data) + 8
        while True:
            buffer = (ctypes.c_int32 * capacity)()
            n = L.llama_tokenize(self.handle, data, len(data), buffer, capacity, False, special)
            if n >= 0:
                return list(buffer[:n])
            capacity = -n

    def tokenize_segments(self, segments: tuple[str, ...], *, bos: bool) -> list[int]:
        """Segments tokenised one by one, so that no special token can form across a border.

        Exactly one BOS comes first where the vocabulary wants one, also when the text brings its
        own. SPM vocabularies put a space before each text they are given: on every segment but the
        first it is kept out by a leading newline that is taken off again.
        """
        ids: list[int] = []
        for i, segment in enumerate(s for s in segments if s):
            if i and self.type == SPM:
                lead = self.tokenize("\n", special=False)
                with_lead = self.tokenize("\n" + segment, special=True)
                if with_lead[: len(lead)] == lead:
                    ids += with_lead[len(lead) :]
                    continue
            ids += self.tokenize(segment, special=True)
        if bos and self.add_bos and self.bos >= 0:
            while ids and ids[0] == self.bos:
                ids.pop(0)
            ids.insert(0, self.bos)
        return ids


def check_drafter_vocab(target: Vocab, drafter: Vocab) -> None:
    """Raise DrafterError unless ``drafter`` may draft for ``target``.

    The rule of llama.cpp's common_speculative_are_compatible: same type, same BOS and EOS policy,
    sizes at most 128 apart, the same text for every id from 5 on.
    """

    def refuse(what: str) -> DrafterError:
        return DrafterError(
            f"The drafter's vocabulary does not match the target's: {what}.",
            "A drafter must share its target's tokenizer; choose one made for this model.",
        )

    if target.type != drafter.type:
        raise refuse(f"tokenizer type {drafter.type} against {target.type}")
    for name in ("bos", "eos"):
        add_t, add_d = getattr(target, f"add_{name}"), getattr(drafter, f"add_{name}")
        id_t, id_d = getattr(target, name), getattr(drafter, name)
        if add_t != add_d or (add_t and id_t != id_d):
            raise refuse(
                f"{name.upper()} is id {id_d} (added: {add_d}) against {id_t} (added: {add_t})"
            )
    if abs(target.size - drafter.size) > MAX_SIZE_DIFFERENCE:
        raise refuse(
            f"{drafter.size} tokens against {target.size}, more than {MAX_SIZE_DIFFERENCE} apart"
        )
    get = L.llama_vocab_get_text
    for i in range(CHECK_START, min(target.size, drafter.size)):
        if get(target.handle, i) != get(drafter.handle, i):
            raise refuse(f"token {i} is {drafter.text(i)!r} against {target.text(i)!r}")
