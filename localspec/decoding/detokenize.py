"""Tokens to text: valid UTF-8 only, stop strings across tokens, spans that know their origin."""

from __future__ import annotations

import codecs
from collections.abc import Callable

from localspec.records import Span


class Detokenizer:
    """Feed tokens, collect spans.

    Bytes are held until they are valid UTF-8; text is held while it could still become a stop
    string. A span's ``tokens`` counts the tokens whose text ends in it. Without stop strings
    nothing hangs on the text, so tokens become text only when it is taken, not inside a step.
    ``joined`` False: a span for each token, so that the text of each step can be told.
    """

    def __init__(
        self, piece: Callable[[int], bytes], stop: tuple[str, ...] = (), *, joined: bool = True
    ) -> None:
        self._joined = joined
        self._piece = piece
        self._stop = tuple(s for s in stop if s)
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._held: list[Span] = []  # text that may be the beginning of a stop string
        self._waiting_tokens = 0
        self._out: list[Span] = []
        self._unread: list[tuple[int, bool]] = []

    def feed(self, token: int, drafted: bool) -> bool:
        """True when ``token`` completed a stop string; the text is then cut exactly before it."""
        if self._stop:
            return self._read(token, drafted)
        self._unread.append((token, drafted))
        return False

    def _read_all(self) -> None:
        for token, drafted in self._unread:
            self._read(token, drafted)
        self._unread.clear()

    def _read(self, token: int, drafted: bool) -> bool:
        text = self._utf8.decode(self._piece(token))
        self._waiting_tokens += 1
        if not text:
            return False
        span = Span(text, drafted, self._waiting_tokens)
        self._waiting_tokens = 0
        if not self._stop:
            self._emit(span)
            return False
        self._held.append(span)
        held = "".join(s.text for s in self._held)
        found = min((i for i in map(held.find, self._stop) if i >= 0), default=-1)
        if found >= 0:
            self._release(found)
            self._held.clear()
            return True
        keep = max(_overlap(held, stop) for stop in self._stop)
        self._release(len(held) - keep)
        return False

    def skip(self) -> None:
        """A token without text (end of generation) is counted with the text before it."""
        self._read_all()
        self._waiting_tokens += 1

    def finish(self) -> None:
        """No more tokens: what is held is text after all; an invalid tail becomes U+FFFD once."""
        self._read_all()
        self._release(sum(len(s.text) for s in self._held))
        tail = self._utf8.decode(b"", final=True)
        if tail:
            self._emit(Span(tail, False, self._waiting_tokens))
            self._waiting_tokens = 0

    def take(self) -> tuple[Span, ...]:
        """The spans ready since the last call; if ``joined``, neighbours of one origin are one."""
        self._read_all()
        spans = tuple(self._out)
        self._out.clear()
        return spans

    def _release(self, characters: int) -> None:
        while characters > 0 and self._held:
            first = self._held[0]
            if len(first.text) <= characters:
                self._held.pop(0)
                self._emit(first)
                characters -= len(first.text)
            else:
                self._emit(Span(first.text[:characters], first.drafted, 0))
                self._held[0] = Span(first.text[characters:], first.drafted, first.tokens)
                return

    def _emit(self, span: Span) -> None:
        if self._joined and self._out and self._out[-1].drafted == span.drafted:
            last = self._out[-1]
            self._out[-1] = Span(last.text + span.text, last.drafted, last.tokens + span.tokens)
        else:
            self._out.append(span)


def _overlap(text: str, stop: str) -> int:
    """Length of the longest suffix of ``text`` that begins ``stop``."""
    for n in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:n]):
            return n
    return 0
