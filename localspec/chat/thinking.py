"""Thinking and answer in generated text: the tags that models write around their thinking."""

from __future__ import annotations

from collections.abc import Iterable

# Opening and closing tag by family: Qwen, DeepSeek, GLM, SmolLM3 and many more; Mistral;
# Seed-OSS; Command R7B; Gemma 4; gpt-oss.
_PAIRS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought\n", "<channel|>"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
)
# What gpt-oss writes between the end of its thinking and the header of its answer.
_BETWEEN = "<|end|><|start|>assistant"

TAGS = frozenset(tag for pair in _PAIRS for tag in pair)


class ThinkingSplitter:
    """Cuts streamed text into thinking and answer; tags count as thinking.

    ``prompt`` is the rendered prompt: some templates end it with an open thinking tag, and then the
    text starts inside.
    """

    def __init__(self, prompt: str = "") -> None:
        self._held = ""
        self._end = ""
        stripped = prompt.rstrip()
        for start, end in _PAIRS:
            if stripped.endswith(start.rstrip()):
                self._end = end

    def feed(self, text: str) -> list[tuple[bool, str]]:
        """The pieces that are certain now, as (is thinking, text). A tail that may be the beginning
        of a tag is held back until the next text."""
        self._held += text
        pieces: list[tuple[bool, str]] = []
        while self._held:
            wanted = [self._end] if self._end else [start for start, _ in _PAIRS]
            found = [(at, tag) for tag in wanted if (at := self._held.find(tag)) >= 0]
            if found:
                at, tag = min(found)
                if self._end:
                    _append(pieces, True, self._held[: at + len(tag)])
                    self._end = ""
                else:
                    _append(pieces, False, self._held[:at])
                    _append(pieces, True, tag)
                    self._end = dict(_PAIRS)[tag]
                self._held = self._held[at + len(tag) :]
            else:
                keep = max(_overlap(self._held, tag) for tag in wanted)
                certain = len(self._held) - keep
                _append(pieces, bool(self._end), self._held[:certain])
                self._held = self._held[certain:]
                break
        return pieces

    def finish(self) -> list[tuple[bool, str]]:
        """What was held back, when no more text comes."""
        pieces: list[tuple[bool, str]] = []
        _append(pieces, bool(self._end), self._held)
        self._held = ""
        return pieces


class SpanSplitter:
    """The same for spans: each piece also keeps whether it was drafted."""

    def __init__(self, prompt: str = "") -> None:
        self._splitter = ThinkingSplitter(prompt)
        self._waiting: list[tuple[str, bool]] = []

    def feed(self, runs: Iterable[tuple[str, bool]]) -> list[tuple[str, bool, bool]]:
        """``runs`` are (text, was it drafted); the pieces (text, drafted, thinking) that are
        certain now, without the tags."""
        runs = list(runs)
        self._waiting += runs
        return self._take(self._splitter.feed("".join(text for text, _ in runs)))

    def finish(self) -> list[tuple[str, bool, bool]]:
        return self._take(self._splitter.finish())

    def _take(self, pieces: list[tuple[bool, str]]) -> list[tuple[str, bool, bool]]:
        out = []
        for thinking, piece in pieces:
            tag = thinking and any(piece.endswith(tag) for tag in TAGS)
            whole = piece
            for tag_text in TAGS if tag else ():
                whole = whole.removesuffix(tag_text)
            at = 0
            while at < len(piece):
                text, drafted = self._waiting[0]
                part = text[: len(piece) - at]
                if len(part) < len(text):
                    self._waiting[0] = (text[len(part) :], drafted)
                else:
                    self._waiting.pop(0)
                shown = part[: max(len(whole) - at, 0)]
                at += len(part)
                if shown:
                    out.append((shown, drafted, thinking))
        return out


def split_thinking(text: str, prompt: str = "") -> tuple[str, str]:
    """(thinking, answer) of a whole text, both without tags."""
    splitter = ThinkingSplitter(prompt)
    parts = {True: "", False: ""}
    for is_thinking, piece in splitter.feed(text) + splitter.finish():
        parts[is_thinking] += piece
    thought = parts[True]
    for tag in TAGS:
        thought = thought.replace(tag, "")
    return thought.removesuffix(_BETWEEN), parts[False]


def _append(pieces: list[tuple[bool, str]], is_thinking: bool, text: str) -> None:
    if text:
        pieces.append((is_thinking, text))


def _overlap(text: str, tag: str) -> int:
    """The length of the longest end of ``text`` that is a proper beginning of ``tag``."""
    return next(
        (n for n in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:n])), 0
    )
