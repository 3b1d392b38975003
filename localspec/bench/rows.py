"""One measured run, and what makes it doubtful.

Flags: ``short`` (fewer than 32 tokens), ``repeats`` (the text ends in a loop, which inflates the
accept length), ``context`` (ended because the context was full), ``disturbed`` (other load or the
clock was unlike the rest of the measurement, or the machine stood still), ``left-out`` (disturbed,
or beside a run that was, in a tuning's comparison that has others enough; not in any figure),
``replaced`` (measured again; not in any figure),
``parted`` (of a prompt left half measured by an interruption and measured again; in no figure),
``pairing`` (a baseline's run made only to sit next to a repeated one; in the speedup, not in the
baseline's own figures), ``faulty`` (a greedy repetition gave other tokens), ``crashed`` (the engine
died; no figures), ``cancelled`` (cut by the user; not in any figure).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from localspec.bench.plan import Base, Slot
from localspec.bench.statistics import Pair, log_ratio
from localspec.records import Generation

Flag = Literal[
    "short",
    "repeats",
    "context",
    "disturbed",
    "left-out",
    "replaced",
    "parted",
    "pairing",
    "faulty",
    "crashed",
    "cancelled",
]

IN_NO_FIGURE: frozenset[Flag] = frozenset({"left-out", "replaced", "parted", "cancelled"})
SHORT = 32
LOOP_WINDOW = 48
LOOP_LONGEST = 24
LOOP_SHARE = 0.9
DISTURBED = 0.05
STOOD_STILL = 0.6
"""Of the usual processor time: a run that had less was held up, whoever or whatever did it."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The machine during a run: the share of all cores that other processes used (0 to 1), the
    mean clock in MHz, and the processor time that our own processes had a second, in cores; None
    where it cannot be read."""

    other_load: float | None = None
    clock: float | None = None
    own_cores: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A run that was made. ``generation`` is None where the engine died. ``sitting`` counts from 0
    how often the measurement had been interrupted and resumed before."""

    slot: Slot
    generation: Generation | None
    flags: frozenset[Flag] = frozenset()
    conditions: Conditions = Conditions()
    sitting: int = 0

    def flagged(self, *flags: Flag) -> Row:
        return replace(self, flags=self.flags | set(flags))

    @property
    def place(self) -> tuple[str, str, int]:
        """Which prompt of which workload, and which of its runs: the same for all candidates."""
        prompt = self.slot.prompt.prompt
        return prompt.workload, prompt.id, self.slot.run

    @property
    def counts_for_figures(self) -> bool:
        """Whether the run is in its candidate's own figures."""
        return self.in_pairs and "pairing" not in self.flags

    @property
    def in_pairs(self) -> bool:
        """Whether the run is compared with others."""
        return self.generation is not None and not self.flags & IN_NO_FIGURE


def flags_of(generation: Generation) -> frozenset[Flag]:
    """What can be told from a run by itself; one that was cut is fit for nothing, short or not."""
    if generation.stop == "cancelled":
        return frozenset({"cancelled"})
    flags: set[Flag] = set()
    if len(generation.tokens) < SHORT:
        flags.add("short")
    if repeats_itself(generation.tokens):
        flags.add("repeats")
    if generation.stop == "context":
        flags.add("context")
    return frozenset(flags)


def repeats_itself(tokens: Sequence[int]) -> bool:
    """Do the last 48 tokens repeat with some period up to 24? One in ten may differ, so that a
    counter inside the loop does not hide it."""
    tail = tokens[-LOOP_WINDOW:]
    if len(tail) < LOOP_WINDOW:
        return False
    for period in range(1, LOOP_LONGEST + 1):
        same = sum(a == b for a, b in zip(tail, tail[period:], strict=False))
        if same >= LOOP_SHARE * (len(tail) - period):
            return True
    return False


def mark_disturbed(rows: Sequence[Row]) -> list[Row]:
    """Flag runs during which other load or the clock lay more than 5 % from the median of the runs
    made together (in one sitting, and those that confirm a winner apart): 5 points of the machine's
    cores, 5 % of the clock. Each base by itself: a processor runs slower with more threads. And
    runs in which our own processes hardly computed: the machine slept, or stood still.

    Against the median and not against the reading before the run: a steady load hits all
    candidates alike and spoils no comparison, a single reading of a short run is mostly noise.
    """
    together: dict[tuple[int, bool, Base], list[int]] = {}
    for i, row in enumerate(rows):
        group = row.sitting, row.slot.phase == "confirm", row.slot.candidate.base
        together.setdefault(group, []).append(i)
    marked = list(rows)
    for members in together.values():
        for i, row in zip(members, _mark_disturbed([rows[i] for i in members]), strict=True):
            marked[i] = row
    return marked


def _mark_disturbed(rows: Sequence[Row]) -> list[Row]:
    loads = [r.conditions.other_load for r in rows if r.conditions.other_load is not None]
    clocks = [r.conditions.clock for r in rows if r.conditions.clock]
    load = median(loads) if loads else None
    clock = median(clocks) if clocks else None
    own = [r.conditions.own_cores for r in rows if r.conditions.own_cores is not None]
    usual = median(own) if own else 0.0

    def disturbed(c: Conditions) -> bool:
        by_load = (
            load is not None and c.other_load is not None and abs(c.other_load - load) > DISTURBED
        )
        by_clock = (
            clock is not None and bool(c.clock) and abs((c.clock or 0) / clock - 1) > DISTURBED
        )
        stood_still = c.own_cores is not None and c.own_cores < STOOD_STILL * usual
        return by_load or by_clock or stood_still

    return [r.flagged("disturbed") if disturbed(r.conditions) else r for r in rows]


def mark_faulty(rows: Sequence[Row]) -> list[Row]:
    """Flag greedy runs whose tokens differ from the same candidate's first run of that prompt."""
    first: dict[tuple[str, str, str], tuple[int, ...]] = {}
    marked = []
    for row in rows:
        slot, generation = row.slot, row.generation
        greedy = slot.candidate.temperature == 0
        if generation is not None and greedy and generation.stop != "cancelled":
            key = (slot.candidate.key, slot.prompt.prompt.workload, slot.prompt.prompt.id)
            if first.setdefault(key, generation.tokens) != generation.tokens:
                row = row.flagged("faulty")
        marked.append(row)
    return marked


def pair_up(rows: Iterable[Row], candidate: str, baseline: str) -> list[tuple[Row, Row]]:
    """The candidate's runs, each with the baseline's run next to it; runs without are left out."""

    def place(row: Row) -> tuple[object, ...]:
        s = row.slot
        return s.phase, s.block, s.run, s.prompt.prompt.workload, s.prompt.prompt.id

    usable = [r for r in rows if r.in_pairs]
    partners = {place(r): r for r in usable if r.slot.candidate.key == baseline}
    return [
        (r, partners[place(r)])
        for r in usable
        if r.slot.candidate.key == candidate and r.counts_for_figures and place(r) in partners
    ]


def speed_pairs(paired: Iterable[tuple[Row, Row]], *, end_to_end: bool = False) -> list[Pair]:
    """Log speed ratios of paired runs; pairs without a speed (too few tokens) are left out."""

    def speed(generation: Generation | None) -> float | None:
        if generation is None:
            return None
        if not end_to_end:
            return generation.decode_tps
        seconds = generation.times.end_to_end
        return len(generation.tokens) / seconds if seconds > 0 else None

    found = []
    for row, partner in paired:
        ratio = log_ratio(speed(row.generation), speed(partner.generation))
        if ratio is not None:
            prompt = row.slot.prompt.prompt
            found.append(Pair(prompt.workload, prompt.id, ratio))
    return found
