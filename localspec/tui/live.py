"""The figures of an answer while it comes, from the engine's own steps and times."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localspec.records import Counts, Generation, Step
    from localspec.store import Baseline

WINDOW = 2.0
"""Seconds of engine time over which the live rate is taken."""
BUCKET = 0.25
"""Seconds of engine time to a point of the curve."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What the speed panel shows; None: not observed. Times are seconds a step."""

    tps: float | None = None
    live: bool = False
    speculative: bool = False
    accept_length: float | None = None
    reach: tuple[float, ...] = ()
    coverage: float | None = None
    beta: float | None = None
    draft: float | None = None
    verify: float | None = None
    rest: float | None = None
    ttft: float | None = None
    curve: tuple[float, ...] = ()
    """tok/s, one value for each ``BUCKET`` of engine time."""
    baseline: Baseline | None = None
    held: int | None = None
    n_ctx: int | None = None
    drafter: str = ""
    """Of the run that these are of, with its draft length in words; empty: nothing was answered."""
    model: str = ""
    """The words for that run's model, where it is another than the chosen one."""
    chosen: str = ""
    """The drafter and draft length that the next answer will have."""
    doing: str = ""
    """What is going on that is no decoding: reading the prompt, measuring the baseline."""

    @property
    def speedup(self) -> float | None:
        """Over the measured baseline; None without one, and for plain decoding itself."""
        if self.baseline is None or not self.tps or not self.speculative:
            return None
        return self.tps / self.baseline.tps


class Meter:
    """Adds up the steps of one answer."""

    def __init__(self) -> None:
        from localspec.records import Counts

        self.counts: Counts = Counts()
        self.seconds = 0.0
        self.ttft: float | None = None
        self._draft = self._verify = 0.0
        self._recent: deque[tuple[int, float]] = deque()
        self._recent_seconds = 0.0
        self._buckets: list[list[float]] = []

    def take(self, steps: Sequence[Step], elapsed: float | None = None) -> None:
        """``elapsed``: seconds of engine time from the submit to the end of ``steps``; None: not
        known, or no token has come."""
        from localspec.records import count

        self.counts += count(steps)
        for step in steps:
            self.seconds += step.t_step
            self._draft += step.t_draft
            self._verify += step.t_verify
            self._recent.append((step.tokens, step.t_step))
            self._recent_seconds += step.t_step
            at = int(self.seconds / BUCKET)
            if not self._buckets or at > self._buckets[-1][0]:
                self._buckets.append([at, 0.0, 0.0])
            self._buckets[-1][1] += step.tokens
            self._buckets[-1][2] += step.t_step
        if self.ttft is None and elapsed is not None:
            self.ttft = elapsed - self.seconds  # the steps follow each other without a gap
        while self._recent and self._recent_seconds - self._recent[0][1] >= WINDOW:
            self._recent_seconds -= self._recent.popleft()[1]

    @property
    def now(self) -> float | None:
        """tok/s over the last steps that take 2 seconds together."""
        if self._recent_seconds <= 0:
            return None
        return sum(tokens for tokens, _ in self._recent) / self._recent_seconds

    @property
    def curve(self) -> tuple[float, ...]:
        return tuple(tokens / seconds for _, tokens, seconds in self._buckets if seconds > 0)

    def figures(self, done: Generation | None = None) -> Figures:
        """So far; of an answer that is ``done`` the final rate and TTFT."""
        counts, steps = self.counts, self.counts.steps
        tps = self.now if done is None else done.decode_tps
        return Figures(
            tps=tps,
            live=done is None,
            speculative=counts.steps_with_draft > 0,
            accept_length=counts.accept_length,
            reach=tuple(counts.reach_rate),
            coverage=counts.draft_coverage,
            beta=counts.mean_beta,
            draft=self._draft / steps if steps else None,
            verify=self._verify / steps if steps else None,
            rest=(self.seconds - self._draft - self._verify) / steps if steps else None,
            ttft=self.ttft if done is None else done.times.ttft if done.tokens else None,
            curve=self.curve,
        )


def age(seconds: float) -> str:
    """How long ago, in a word or two."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"
