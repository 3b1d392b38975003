"""A prompt deep in a context: text before the question, until the prompt has so many tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from localspec.bench.workloads import Prompt, depth_label
from localspec.errors import UsageError
from localspec.resources import asset

TEXT = "workloads/opticks.txt"
"""English prose, in the public domain (assets/workloads/README.md); never shown twice, since a text
that repeats itself would flatter every drafter."""
CLOSE = 0.01
"""A prompt may be so much shorter than asked for, as a share; it is never longer."""
ROUNDS = 8

Tokenize = Callable[[Prompt], Sequence[int]]
"""The prompt in the target's tokens, its template around it."""


def filled(prompt: Prompt, tokenize: Tokenize) -> Prompt:
    """``prompt`` with as much text before its last message as makes it ``prompt.depth`` tokens.

    Raises ``UsageError`` where the text is too short for that, or the question alone too long.
    """
    text = asset(TEXT).read_text(encoding="utf-8")
    plain = len(tokenize(prompt))
    if plain > prompt.depth:
        raise UsageError(
            f"A depth of {depth_label(prompt.depth)} tokens cannot be had: {prompt.id} alone has "
            f"{plain}.",
            "Give a greater --depth, or 0 for the prompts as they are.",
        )
    best, best_length = prompt, plain
    low, high = 0, len(text)
    take = min(high, (prompt.depth - plain) * 4)
    for _ in range(ROUNDS):
        candidate = _with_text(prompt, text[:take])
        length = len(tokenize(candidate))
        if length <= prompt.depth:
            low = take
            if length >= best_length:
                best, best_length = candidate, length
            if length >= (1 - CLOSE) * prompt.depth:
                return best
        else:
            high = take
        if low == high:
            break
        # the next guess by the text's own tokens a character, and inside what is still open
        guess = take * (prompt.depth * (1 - CLOSE / 2) - plain) / max(1, length - plain)
        take = round(guess) if low < guess < high else (low + high + 1) // 2
    if high == len(text):
        raise UsageError(
            f"A depth of {depth_label(prompt.depth)} tokens cannot be had: the text that comes "
            f"with localspec makes a prompt of {best_length:,} tokens for this model.",
            "Give a smaller --depth, or a long text of your own as a --workload.",
        )
    return best


def _with_text(prompt: Prompt, text: str) -> Prompt:
    *before, (role, question) = prompt.messages
    whole_words = text.rpartition(" ")[0]
    said = f"{whole_words}\n\n---\n\n{question}" if whole_words else question
    return replace(prompt, messages=(*before, (role, said)))
