"""Prompt look-up: draft what followed the last occurrence of the current suffix (Saxena 2023;
llama.cpp's ngram-simple; vLLM's ngram)."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.drafters.base import Draft, Needs, Sampling, common_prefix


class NgramIndex:
    """Where each n-gram of a growing token list last occurred: O(1) a token, undone by truncation.

    An n-gram is entered once the token after it is known, so a look-up of the suffix can never find
    the suffix itself. For n in [n_min, n_max] a dict maps the n-gram to the position after it; the
    log remembers what each entry replaced.
    """

    def __init__(self, n_min: int, n_max: int) -> None:
        self.n_min, self.n_max = n_min, n_max
        self.tokens: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}
        self._log: list[tuple[tuple[int, ...], int | None]] = []
        self._log_size: list[int] = []

    def append(self, token: int) -> None:
        """``token`` follows: every n-gram that ends just before it now has a continuation."""
        end = len(self.tokens)
        for n in range(self.n_min, min(self.n_max, end) + 1):
            gram = tuple(self.tokens[end - n :])
            self._log.append((gram, self._after.get(gram)))
            self._after[gram] = end
        self.tokens.append(token)
        self._log_size.append(len(self._log))

    def truncate(self, length: int) -> None:
        """Take back all tokens from ``length`` on, as if they had never been appended."""
        if length >= len(self.tokens):
            return
        keep = self._log_size[length - 1] if length else 0
        while len(self._log) > keep:
            gram, before = self._log.pop()
            if before is None:
                del self._after[gram]
            else:
                self._after[gram] = before
        del self.tokens[length:]
        del self._log_size[length:]

    def lookup(self) -> int:
        """The position after the last earlier occurrence of the longest matching suffix, or -1."""
        size = len(self.tokens)
        for n in range(min(self.n_max, size), self.n_min - 1, -1):
            found = self._after.get(tuple(self.tokens[size - n :]))
            if found is not None:
                return found
        return -1


class NgramDrafter:
    """Longest suffix match from ``n_max`` tokens down to ``n_min``, most recent occurrence first.

    A copy that reaches the end of the text goes on over its own draft, as a repeating text does.
    """

    def __init__(self, draft_max: int, ngram_min: int, ngram_max: int) -> None:
        self.index = NgramIndex(ngram_min, ngram_max)
        self.draft_max = draft_max
        self.needs = Needs(outputs=draft_max + 1, rollback=True)
        self._draft = Draft(draft_max)

    def reusable(self, tokens: Sequence[int], keep: int) -> int:
        return keep

    def begin(self, tokens: Sequence[int], keep: int, sampler: Sampling) -> None:
        index = self.index
        index.truncate(common_prefix(index.tokens, tokens))
        self._extend(tokens)

    def _extend(self, tokens: Sequence[int]) -> None:
        index = self.index
        for i in range(len(index.tokens), len(tokens)):
            index.append(tokens[i])

    def process(self, tokens: Sequence[int], position: int) -> None:
        pass

    def draft(self, tokens: list[int], limit: int) -> Draft:
        self._extend(tokens)  # the first token comes from the prefill, without an accept
        draft = self._draft
        draft.n = 0
        start = self.index.lookup()
        if start < 0:
            return draft
        n = min(limit, self.draft_max)
        period = len(tokens) - start
        known = tokens[start : start + n]
        while len(known) < n:
            known.append(known[len(known) - period])
        draft.tokens[:n] = known
        draft.n = n
        return draft

    def accept(self, tokens: list[int], rows: Sequence[int]) -> None:
        self._extend(tokens)

    def reset(self) -> None:
        self.index.truncate(0)

    def close(self) -> None:
        pass
