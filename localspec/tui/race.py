"""Race replay: two recorded runs side by side at the speed they really had.

The engine does one thing at a time, so two runs cannot be watched at once; their timelines can.
Only engine time counts here: when a run was made, and what drawing it cost, is not in it.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a screen is drawn before anything of the engine is imported
    from localspec.records import Generation, Span, Step

SPEEDS = (1.0, 2.0, 0.5)


def text_of_passes(spans: Sequence[Span], steps: Sequence[Step]) -> list[str]:
    """The text of each pass of the target: first the token that reading the prompt gave, then that
    of each step, of spans that each hold a token. A character belongs to the pass that completed
    it; the last texts are missing where their tokens are no whole characters yet."""
    if not spans:
        return []
    ends = list(accumulate((step.tokens for step in steps), initial=1))
    texts = [""] * len(ends)
    token = 0
    place = 0
    for span in spans:
        token += span.tokens
        last = token if span.tokens else token + 1  # a span of 0 begins the next token's text
        while place < len(ends) - 1 and ends[place] < last:
            place += 1
        texts[place] += span.text
    return texts


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run as it went: the text of each pass, the tokens until its end, and that end in seconds
    since the prompt was sent."""

    texts: tuple[str, ...]
    tokens: tuple[int, ...]
    times: tuple[float, ...]

    @classmethod
    def of(cls, run: Generation) -> Timeline:
        """Of a run made with ``record``."""
        return cls(
            tuple(text_of_passes(run.spans, run.steps)),
            tuple(accumulate((s.tokens for s in run.steps), initial=1)),
            tuple(accumulate((s.t_step for s in run.steps), initial=run.times.ttft)),
        )

    @property
    def end(self) -> float:
        return self.times[-1]

    @property
    def total(self) -> int:
        return self.tokens[-1]

    def passes_at(self, seconds: float) -> int:
        """How many passes had ended by then."""
        return bisect_right(self.times, seconds)

    def tokens_at(self, seconds: float) -> int:
        done = self.passes_at(seconds)
        return self.tokens[done - 1] if done else 0

    def pass_of(self, token: int) -> int:
        """The pass that gave the token of this index."""
        return min(bisect_right(self.tokens, token), len(self.tokens) - 1)


class ReplayClock:
    """Seconds since the start of a replay: can be paused, restarted, and run at another speed; and
    stands still as long as nobody sees it, running or not."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at, self._since = 0.0, clock()
        self._running, self._seen = False, True
        self._speed = 1.0

    @property
    def speed(self) -> float:
        return self._speed

    @property
    def running(self) -> bool:
        return self._running

    @property
    def moving(self) -> bool:
        return self._running and self._seen

    @property
    def now(self) -> float:
        gone = self._clock() - self._since if self.moving else 0.0
        return self._at + gone * self._speed

    def start(self) -> None:
        self._go_on(running=True)

    def pause(self) -> None:
        self._go_on(running=False)

    def restart(self) -> None:
        self._go_on(running=True)
        self._at = 0.0

    def cover(self) -> None:
        self._go_on(seen=False)

    def uncover(self) -> None:
        self._go_on(seen=True)

    def set_speed(self, speed: float) -> None:
        self._go_on(speed=speed)

    def _go_on(
        self, *, running: bool | None = None, seen: bool | None = None, speed: float | None = None
    ) -> None:
        """Otherwise from here on; where it stands does not jump."""
        self._at, self._since = self.now, self._clock()
        self._running = self._running if running is None else running
        self._seen = self._seen if seen is None else seen
        self._speed = self._speed if speed is None else speed


class Race:
    """Two timelines under one clock. It ends when the slower one has arrived."""

    def __init__(
        self, baseline: Timeline, drafted: Timeline, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.runners = (baseline, drafted)
        self.clock = ReplayClock(clock)

    @property
    def end(self) -> float:
        return max(r.end for r in self.runners)

    @property
    def now(self) -> float:
        return min(self.clock.now, self.end)

    @property
    def over(self) -> bool:
        return self.clock.now >= self.end

    def behind(self, runner: Timeline) -> float | None:
        """Seconds after the other that this one arrived: 0 or less for the first; None as long as
        it has not arrived."""
        if self.now < runner.end:
            return None
        other = next(r for r in self.runners if r is not runner)
        return runner.end - other.end

    def toggle(self) -> None:
        """Pause or go on; from the end, again from the start."""
        if self.over:
            self.clock.restart()
        elif self.clock.running:
            self.clock.pause()
        else:
            self.clock.start()

    def next_speed(self) -> None:
        at = SPEEDS.index(self.clock.speed)
        self.clock.set_speed(SPEEDS[(at + 1) % len(SPEEDS)])
