"""Makes the runs of a plan: warm-up, the measured rows, repeats of doubtful ones, confirmation.

Prints nothing: it tells an observer what happens, so that the command line and the TUI can show it
in their own ways. A candidate that the drafter's checks refuse, or whose runs kill the engine, does
not stop the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Literal, Protocol

from localspec.bench.analysis import analyse
from localspec.bench.audit import expected_seconds
from localspec.bench.plan import (
    Candidate,
    Phase,
    Plan,
    Prepared,
    Repeat,
    Slot,
    in_blocks,
    interleaved,
    repeats,
    spread,
)
from localspec.bench.rows import SHORT, Conditions, Row, flags_of, mark_disturbed, mark_faulty
from localspec.bench.sessions import Sessions
from localspec.bench.sweep import finalists
from localspec.engine.messages import Chunk
from localspec.errors import EngineDied, LocalspecError
from localspec.machine import LoadMeter, Sample
from localspec.records import Generation

State = Literal["ok", "crashed", "refused", "interrupted"]

WARM_UP_TOKENS = 24
CHUNK_SECONDS = 0.5
"""How often a run reports while it is measured: drawing competes with the engine for cores."""
CRASHES = 2
"""A candidate whose runs end the engine this often is given up; once may come from outside."""
REPEATED_SHARE = 0.25
"""The most rows that are measured again, as a share of all."""
FINALISTS = 4
"""Candidates that are usually measured again where there are several bases."""
SHORTEST_READING = 0.3
"""Seconds under which the system's account of processor time, in ticks, says too little."""
QUICK_SECONDS = 60.0
QUICK_FEWEST = 4


class Meter(Protocol):
    """``machine.LoadMeter``: what happened since the last sample."""

    def sample(self) -> Sample: ...


class Watch:
    """Conditions over one run: other load averaged over time, the clock over readings made while
    the engine works (an idle processor's clock says nothing)."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._began = self._last = time.monotonic()
        self._own = 0.0
        self._loads: list[tuple[float, float]] = []
        self._clocks: list[float] = []

    def look(self, *, working: bool = True, at_most_every: float = 0.0) -> None:
        if time.monotonic() - self._last < at_most_every:
            return
        sample, now = self._meter.sample(), time.monotonic()
        if sample.other_load is not None:
            self._loads.append((now - self._last, sample.other_load))
        if sample.clock and working:
            self._clocks.append(sample.clock)
        self._own += sample.own_seconds
        self._last = now

    def conditions(self) -> Conditions:
        self.look(working=False)
        seconds = sum(s for s, _ in self._loads)
        load = sum(s * x for s, x in self._loads) / seconds if seconds > 0 else None
        wall = self._last - self._began
        own = self._own / wall if wall > SHORTEST_READING and self._own else None
        return Conditions(load, fmean(self._clocks) if self._clocks else None, own)


@dataclass
class Status:
    """How a candidate fared so far."""

    state: State = "ok"
    reason: str | None = None
    crashes: int = 0
    given_up: bool = False


@dataclass(frozen=True, slots=True)
class WarmingUp:
    """``seconds``: about what there is to do from here on, as soon as there is a speed."""

    session: str
    number: int
    total: int
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Starting:
    """A phase starts: ``rows`` runs on so many prompts. ``seconds``: about what there is to do from
    here to the end of the measurement. ``again``: how long a winner, should there be one, is then
    measured for; that is not in it. ``kept``: runs of an earlier sitting, which are not made."""

    phase: Phase
    rows: int
    prompts: int
    seconds: float
    again: float = 0.0
    kept: int = 0


@dataclass(frozen=True, slots=True)
class Running:
    """A run goes on. ``tps`` is of the tokens since the last event, in engine time; ``chunk`` is
    what came since, None as the run begins; ``eta``, here and below, are the seconds to the end of
    the measurement."""

    slot: Slot
    done: int
    total: int
    tokens: int
    tps: float | None
    eta: float
    chunk: Chunk | None = None


@dataclass(frozen=True, slots=True)
class Ran:
    """A run ended."""

    row: Row
    done: int
    total: int
    eta: float


@dataclass(frozen=True, slots=True)
class Comparing:
    """The runs are made, and the differences of one candidate's output are being classed."""

    candidate: Candidate
    eta: float


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence for the person."""

    text: str


Event = WarmingUp | Starting | Running | Ran | Comparing | Notice
Observer = Callable[[Event], None]
Enough = Callable[[Phase, Sequence[Row]], bool]
"""Asked before each run of the main phase, and before what is repeated, with the rows so far: is
the rest not needed? It decides by the precision that was reached, never by who is ahead; it may
also wait."""


@dataclass
class Earlier:
    """What was measured of a plan before it was interrupted. ``blocks``: per phase, whether it was
    arranged in blocks."""

    rows: list[Row]
    status: dict[str, Status]
    blocks: dict[Phase, bool]


@dataclass
class Measurement:
    """What was measured. The plan's prompts are those really used (``--quick`` takes fewer)."""

    plan: Plan
    rows: list[Row] = field(default_factory=list)
    status: dict[str, Status] = field(default_factory=dict)
    interrupted: bool = False
    together: bool = True
    blocks: dict[Phase, bool] = field(default_factory=dict)

    @property
    def state(self) -> Literal["complete", "interrupted", "crashed", "refused"]:
        """The worst that befell the whole or any candidate of it."""
        states = {s.state for s in self.status.values()}
        if self.interrupted or "interrupted" in states:
            return "interrupted"
        if "crashed" in states:
            return "crashed"
        return "refused" if "refused" in states else "complete"

    @property
    def judged(self) -> list[Row]:
        """The rows that figures are made of: a winner that was not measured again to the end counts
        as not measured again."""
        if not self.interrupted:
            return self.rows
        return [r for r in self.rows if r.slot.phase != "confirm"]


@dataclass(frozen=True, slots=True)
class Batch:
    """Runs to be made together: every candidate, a baseline among them, on each (run, prompt)."""

    phase: Phase
    candidates: tuple[Candidate, ...]
    work: tuple[tuple[int, Prepared], ...]


class Course(Protocol):
    """Decides what is run as it goes along."""

    def batches(self, made: Callable[[], Measurement]) -> Iterator[Batch]:
        """What to run next; ``made`` tells what was measured so far."""

    def is_over(self) -> bool:
        """Asked before each run of the main phase: is the rest of the batch not needed?"""


class Runner:
    def __init__(
        self,
        plan: Plan,
        sessions: Sessions,
        tell: Observer,
        meter: Callable[[Iterable[int]], Meter] = LoadMeter,
        earlier: Earlier | None = None,
        *,
        enough: Enough = lambda _phase, _rows: False,
        interval: float = CHUNK_SECONDS,
    ) -> None:
        self._enough = enough
        self._interval = interval
        self._plan = plan
        self._sessions = sessions
        self._meter = meter
        self._tell = tell
        self._rows: list[Row] = []
        self._status = {c.key: Status() for c in plan.candidates}
        self._blocks: dict[Phase, bool] = {}
        self._sitting = 0
        if earlier is not None:
            self._rows = list(earlier.rows)
            self._status |= earlier.status
            self._blocks = dict(earlier.blocks)
            self._sitting = 1 + max((r.sitting for r in earlier.rows), default=0)
        self._seconds: dict[str, list[float]] = {}
        self._expected: dict[str, float] = {}
        self._after = 0.0
        self._began = 0.0

    def run(self, course: Course | None = None) -> Measurement:
        """Measure the plan's candidates, or what a ``course`` asks for, which need not be among
        them: their contexts are opened when they are needed. Raises only when the baseline cannot
        be run at all."""
        self._began = time.monotonic()
        interrupted = False
        try:
            if course is not None:
                self._enough = lambda _phase, _rows: course.is_over()
                self._warm_up(self._plan.baselines)
                for batch in course.batches(self.so_far):
                    self._do(self._arranged(batch))
            else:
                self._warm_up(self._plan.candidates)
                self._choose_prompts()
                self._do(self._schedule("main", self._plan.candidates))
                self._repeat_unsound()
                self._confirm()
        except KeyboardInterrupt:
            interrupted = True
            self._cut_short("stopped by the user")
        except LocalspecError as error:  # a new engine could not be started
            if not any(r.sitting == self._sitting for r in self._rows):
                raise
            self._tell(Notice(str(error)))
            self._cut_short(error.message)
        if self._baseline_lost():
            self._cut_short("there is no baseline to compare it with")
        made = self.so_far()
        return replace(made, rows=mark_faulty(mark_disturbed(made.rows)), interrupted=interrupted)

    def so_far(self) -> Measurement:
        """What is there; an observer may ask between runs."""
        return Measurement(
            self._plan,
            list(self._rows),
            self._status,
            together=self._sessions.together,
            blocks=self._blocks,
        )

    # ---- phases -------------------------------------------------------------------------------

    def _warm_up(self, warmed: Sequence[Candidate]) -> None:
        """One short generation per context. Gives the speeds that the estimate is made from."""
        members: dict[str, list[Candidate]] = {}
        for c in warmed:
            members.setdefault(c.session, []).append(c)
        said: set[str] = set()
        for number, (session, candidates) in enumerate(members.items(), 1):
            seconds = None
            if number > 1:
                each = self._elapsed() / (number - 1)
                seconds = self._foreseen(each * (len(members) - number + 1))
            self._tell(WarmingUp(session, number, len(members), seconds))
            one = candidates[0]
            generation = None
            while generation is None and not self._status[one.key].given_up:
                try:
                    self._sessions.use(one)
                    generation = self._warm(one)
                except EngineDied as error:
                    self._crashed(candidates, error, "It is tried again.")
                except LocalspecError as error:
                    if one in self._plan.references:
                        raise
                    self._refused(self._resting_on(candidates), error)
            if generation is None and one in self._plan.references:
                reason = self._status[one.key].reason or ""
                raise LocalspecError(f"The baseline cannot be run: {reason}")
            for note in self._sessions.notes.get(session, ()):
                if note not in said:
                    self._tell(Notice(note))
                    said.add(note)
            if generation is not None:
                seconds = self._expect(generation)
                self._expected.update({c.key: seconds for c in candidates})

    def _warm(self, candidate: Candidate) -> Generation:
        """A short run; ``open`` has decoded every verify batch size already."""
        prompt = min(self._plan.prompts, key=lambda p: len(p.tokens))
        tokens = min(WARM_UP_TOKENS, self._plan.max_tokens)
        return self._generate(candidate, prompt, self._plan.sampler.seed, tokens)

    def _choose_prompts(self) -> None:
        """``--quick``: as many prompts as fit a minute, spread over the workloads; where not even
        the fewest fit, shorter runs too."""
        if not self._plan.quick or self._rows:  # a resumed one has chosen
            return
        count, tokens = self._fitting(sum(self._expected.values()), self._elapsed())
        share = tokens / self._plan.max_tokens
        self._expected = {k: v * share for k, v in self._expected.items()}
        prompts = spread(self._plan.prompts, count)
        self._plan = replace(self._plan, prompts=prompts, max_tokens=tokens)

    def _fitting(self, each: float, gone: float) -> tuple[int, int]:
        """How many prompts, of how many tokens, fit the minute of which ``gone`` seconds are gone,
        where a run of all candidates on a prompt takes ``each``."""
        prompts, tokens = len(self._plan.prompts), self._plan.max_tokens
        if not self._plan.quick or each <= 0:
            return prompts, tokens
        each *= self._plan.runs
        left = QUICK_SECONDS - gone
        count = min(prompts, max(QUICK_FEWEST, int(left / each)))
        return count, tokens if each * QUICK_FEWEST <= left else min(tokens, SHORT)

    def _schedule(self, phase: Phase, candidates: Sequence[Candidate]) -> list[Slot]:
        usable = [c for c in candidates if not self._lost(c)]
        blocks = self._blocks.setdefault(phase, not self._sessions.together)
        arrange = in_blocks if blocks else interleaved
        return arrange(
            self._plan,
            self._plan.prompts,
            usable,
            first_run=self._plan.runs if phase == "confirm" else 0,
            phase=phase,
            order=len(self._rows),
        )

    def _arranged(self, batch: Batch) -> list[Slot]:
        new = [c for c in batch.candidates if c.key not in self._status]
        self._plan = replace(self._plan, candidates=(*self._plan.candidates, *new))
        self._status |= {c.key: Status() for c in new}
        arrange = interleaved if self._sessions.together else in_blocks
        by_run: dict[int, list[Prepared]] = {}
        for run, prompt in batch.work:
            by_run.setdefault(run, []).append(prompt)
        slots: list[Slot] = []
        for run, prompts in by_run.items():
            slots += arrange(
                replace(self._plan, runs=1, order_seed=self._plan.order_seed + len(self._rows)),
                prompts,
                batch.candidates,
                first_run=run,
                phase=batch.phase,
                order=len(self._rows) + len(slots),
            )
        return slots

    def _repeat_unsound(self) -> None:
        """Make disturbed and crashed runs again, once, as far as the share of rows (and the minute
        of ``--quick``) allows. A repeat takes the place of the first run only when all of it went
        well."""
        if any(r.slot.phase == "confirm" for r in self._rows):
            return  # in an earlier sitting, and what was confirmed rests on it
        self._rows = mark_disturbed(self._rows)
        made = self._to_repeat(0.0)
        try:
            self._do([slot for _, slots in made.values() for slot in slots])
        finally:
            for number, (repeat, slots) in made.items():
                self._settle(repeat, number, len(slots))

    def _to_repeat(self, seconds: float) -> dict[int, tuple[Repeat, list[Slot]]]:
        """The repeats of unsound runs and their slots, by block, as far as they are allowed
        ``seconds`` from now."""
        unsound = [
            r.slot
            for r in self._rows
            if r.slot.phase == "main"
            and r.flags & {"disturbed", "crashed"}
            and not r.flags & {"replaced", "parted"}
            and not self._status[r.slot.candidate.key].given_up
        ]
        first = len(self._rows)
        block = 1 + max((r.slot.block for r in self._rows), default=0)
        slots: list[Slot] = []
        made: dict[int, tuple[Repeat, list[Slot]]] = {}
        for repeat in repeats(self._plan, unsound):
            more = repeat.slots(self._plan, first + len(slots), block + len(made))
            if slots and len(slots) + len(more) > REPEATED_SHARE * first:
                break
            ends = self._elapsed() + seconds + self._estimate(slots + more)
            if self._plan.quick and ends > QUICK_SECONDS:
                break
            made[block + len(made)] = repeat, more
            slots += more
        return made

    def _settle(self, repeat: Repeat, block: int, runs: int) -> None:
        """Decide which of the first and the repeated runs count."""
        again = [r for r in self._rows if r.slot.phase == "repeat" and r.slot.block == block]
        went_well = len(again) == runs and all(r.generation for r in again)
        went_well = went_well and not any("cancelled" in r.flags for r in again)
        for i, row in enumerate(self._rows):
            s = row.slot
            if s.phase == "repeat" and s.block == block:
                if not went_well:
                    self._rows[i] = row.flagged("replaced")
                elif s.candidate not in repeat.candidates:
                    self._rows[i] = row.flagged("pairing")
            elif (
                went_well
                and s.phase == "main"
                and not row.flags & {"parted", "cancelled"}
                and s.candidate in repeat.candidates
                and (s.prompt, s.run) == (repeat.prompt, repeat.run)
            ):
                self._rows[i] = row.flagged("replaced")

    def _confirm(self) -> None:
        """Measure the winner of each temperature again, against the baseline, on runs that were not
        used to choose it; with several bases, also the fastest base alone and the reference's best
        drafter. With a single candidate nothing was chosen."""
        chosen_by = [r for r in self._rows if r.slot.phase != "confirm"]
        again = finalists(self._plan, chosen_by, analyse(self._plan, chosen_by))
        if again and self._confirms():
            self._do(self._schedule("confirm", again))

    def _confirms(self) -> bool:
        references = self._plan.references
        chosen_from = {c.session for c in self._plan.candidates if c not in references}
        return not self._plan.quick and len(chosen_from) > 1

    # ---- runs ---------------------------------------------------------------------------------

    def _do(self, slots: Sequence[Slot]) -> None:
        whole, slots = len(slots), self._missing(slots)
        if not slots:
            return
        self._look_ahead(slots[0].phase, slots)
        phase, prompts = slots[0].phase, len({s.prompt for s in slots})
        seconds = self._estimate(slots)
        again = 0.0
        if phase == "main" and self._confirms():
            each = seconds / len(slots)
            again = FINALISTS if len(self._plan.bases) > 1 else 2
            again *= each * len(self._plan.prompts) * self._plan.runs
        kept = whole - len(slots)
        self._tell(Starting(phase, len(slots), prompts, seconds + self._after, again, kept))
        block = -1
        for done, slot in enumerate(slots):
            if self._baseline_lost():
                return
            if self._lost(slot.candidate):
                continue
            if self._out_of_time(slots, done):
                return
            asked = phase == "main" or (phase == "repeat" and slot.block != block)
            if asked and self._enough(phase, self._rows):
                return
            block = slot.block
            self._one(slot, done, len(slots), slots[done + 1 :])

    def _missing(self, slots: Sequence[Slot]) -> list[Slot]:
        """The slots that no earlier sitting has filled. What belongs together and was left half
        made is made again as a whole: runs of different days are no pairs."""
        if not self._sitting or not slots:
            return list(slots)
        blocks = self._blocks.get(slots[0].phase, False)

        def group(slot: Slot) -> tuple[object, ...]:
            return slot.phase, slot.block, *(() if blocks else (slot.run, slot.prompt))

        def place(slot: Slot) -> tuple[object, ...]:
            return slot.phase, slot.block, slot.run, slot.prompt, slot.candidate

        made = {place(r.slot) for r in self._rows if not r.flags & {"parted", "cancelled"}}
        open_groups = {group(s) for s in slots if place(s) not in made}
        for i, row in enumerate(self._rows):
            if group(row.slot) in open_groups and "cancelled" not in row.flags:
                self._rows[i] = row.flagged("parted")
        order = len(self._rows)
        missing = [s for s in slots if group(s) in open_groups]
        return [replace(s, order=order + i) for i, s in enumerate(missing)]

    def _out_of_time(self, slots: Sequence[Slot], done: int) -> bool:
        """``--quick`` on a machine slower than its warm-up promised: the prompts that were not
        begun are left out, beyond the fewest. Decided by the clock alone, never by a speedup."""
        begun = list(dict.fromkeys(s.prompt for s in slots[:done]))
        slot = slots[done]
        if (
            not self._plan.quick
            or self._sitting
            or slot.phase != "main"
            or slot.prompt in begun
            or len(begun) < QUICK_FEWEST
            or self._elapsed() < QUICK_SECONDS
        ):
            return False
        self._plan = replace(self._plan, prompts=tuple(begun))
        self._tell(Notice(f"The minute is over: {len(begun)} prompts were measured."))
        return True

    def _one(self, slot: Slot, done: int, total: int, rest: Sequence[Slot]) -> None:
        """Make one run and keep its row. An interrupted run is kept too, marked."""
        candidate = slot.candidate
        began = time.monotonic()
        watch: Watch | None = None

        def progress(tokens: int, tps: float | None, chunk: Chunk | None = None) -> None:
            if watch is not None:
                watch.look(at_most_every=CHUNK_SECONDS / 2)
            gone = time.monotonic() - began
            eta = max(0.0, self._estimate([slot]) - gone) + self._estimate(rest)
            self._tell(Running(slot, done, total, tokens, tps, eta + self._after, chunk))

        try:
            if self._sessions.use(candidate):
                self._warm(candidate)
            began = time.monotonic()
            progress(0, None)
            watch = Watch(self._meter((self._sessions.engine.pid,)))
            generation = self._generate(
                candidate, slot.prompt, slot.seed, self._plan.max_tokens, progress
            )
            conditions = watch.conditions()
        except EngineDied as error:
            crashed = Row(slot, None, frozenset({"crashed"}), sitting=self._sitting)
            self._keep(crashed, done, total, rest)
            self._crashed([candidate], error, "Its other runs go on.")
            return
        except LocalspecError as error:
            self._refused([candidate], error)
            return
        self._seconds.setdefault(candidate.key, []).append(time.monotonic() - began)
        row = Row(slot, generation, flags_of(generation), conditions, self._sitting)
        self._keep(row, done, total, rest)
        if generation.stop == "cancelled":
            raise KeyboardInterrupt

    def _generate(
        self,
        candidate: Candidate,
        prompt: Prepared,
        seed: int,
        max_tokens: int,
        progress: Callable[[int, float | None, Chunk], None] | None = None,
    ) -> Generation:
        """One clean run: cleared memory, nothing reused. Ctrl-C ends it as "cancelled"."""
        stream = self._sessions.engine.stream(
            candidate.session,
            prompt.tokens,
            sampler=self._plan.sampler_of(candidate, seed),
            max_tokens=max_tokens,
            stop=prompt.stop,
            ignore_eos=self._plan.ignore_eos,
            reuse=False,
            record=True,
            interval=self._interval,
        )
        tokens = 0
        try:
            for event in stream:
                if isinstance(event, Chunk) and progress is not None:
                    new = sum(step.tokens for step in event.steps)
                    seconds = sum(step.t_step for step in event.steps)
                    tokens += new
                    progress(tokens, new / seconds if seconds > 0 else None, event)
        except KeyboardInterrupt:
            stream.cancel()
            for _ in stream:
                pass
            if progress is None:
                raise
            return replace(stream.result, stop="cancelled")
        return stream.result

    def _keep(self, row: Row, done: int, total: int, rest: Sequence[Slot]) -> None:
        self._rows.append(row)
        self._look_ahead(row.slot.phase, rest)
        self._tell(Ran(row, done + 1, total, self._estimate(rest) + self._after))

    # ---- trouble ------------------------------------------------------------------------------

    def _crashed(self, candidates: Sequence[Candidate], error: EngineDied, then: str) -> None:
        """``then``: what follows, unless they are given up. Whether a run is made again is known
        only when the others are made."""
        for candidate in candidates:
            status = self._status[candidate.key]
            status.state = "crashed"
            status.reason = error.message
            status.crashes += 1
            status.given_up = status.crashes >= CRASHES
        which = candidates[0]
        then = "It is given up." if self._status[which.key].given_up else then
        self._tell(Notice(f"{which.key}: {error.message} {then}"))
        self._sessions.restart()

    def _refused(self, candidates: Sequence[Candidate], error: LocalspecError) -> None:
        for candidate in candidates:
            status = self._status[candidate.key]
            status.state, status.reason, status.given_up = "refused", error.message, True
        self._tell(Notice(f"{candidates[0].key}: {error}"))

    def _cut_short(self, reason: str) -> None:
        for candidate in self._plan.candidates:
            status = self._status[candidate.key]
            if status.state == "ok" and not self._complete(candidate):
                status.state, status.reason = "interrupted", reason

    def _baseline_lost(self) -> bool:
        return all(self._status[b.key].given_up for b in self._plan.references)

    def _lost(self, candidate: Candidate) -> bool:
        """Is there nothing more to be had of it, or nothing to compare it with?"""
        needed = candidate, self._plan.baseline_of(candidate)
        return any(self._status[c.key].given_up for c in needed)

    def _resting_on(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """They, and where a base cannot be run by itself all that is on it."""
        bases = {c.base for c in candidates if c.is_baseline}
        more = [c for c in self._plan.candidates if c.base in bases and c not in candidates]
        return [*candidates, *more]

    def _complete(self, candidate: Candidate) -> bool:
        made = {
            (r.slot.prompt, r.slot.run)
            for r in self._rows
            if r.slot.candidate == candidate and r.counts_for_figures
        }
        return len(made) == len(self._plan.prompts) * self._plan.runs

    # ---- time ---------------------------------------------------------------------------------

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _expect(self, warm: Generation) -> float:
        """Seconds a run of this plan takes, from the speeds of a warm-up run, at full length."""
        prompt = sum(len(p.tokens) for p in self._plan.prompts) / len(self._plan.prompts)
        prefill = prompt / warm.prefill_tps if warm.prefill_tps else warm.times.ttft
        tps = warm.decode_tps
        decode = self._plan.max_tokens / tps if tps else warm.times.end_to_end
        return prefill + decode

    def _estimate(self, slots: Sequence[Slot]) -> float:
        """Seconds that slots take, from measured runs of their candidates as soon as there are."""
        return sum(self._each(slot.candidate) for slot in slots)

    def _each(self, candidate: Candidate) -> float:
        """Seconds that a run takes: the mean of those seen. Before the first one it is as the
        warm-up promised, corrected by how far its promises are off over all candidates; those
        not run yet count as kept, for a single run may have met with an accident."""
        if seen := self._seconds.get(candidate.key):
            return fmean(seen)
        promised = sum(self._expected.values())
        came = sum(
            fmean(self._seconds[k]) if k in self._seconds else v for k, v in self._expected.items()
        )
        return self._expected.get(candidate.key, 0.0) * (came / promised if promised else 1.0)

    def _look_ahead(self, phase: Phase, rest: Sequence[Slot]) -> None:
        """What will follow the ``rest`` of a phase, by the rows so far: repeats of unsound runs and
        the classing of differences."""
        self._after = expected_seconds(self._plan, self._rows)
        if phase == "main":
            kept, self._rows = self._rows, mark_disturbed(self._rows)
            again = self._to_repeat(self._estimate(rest))
            self._rows = kept
            self._after += self._estimate([s for _, slots in again.values() for s in slots])

    def _foreseen(self, warming_up: float) -> float:
        """Seconds to go while candidates are still being warmed up, which takes ``warming_up``
        more: those to come are taken to be like those seen."""
        seen = len(self._expected)
        each = sum(self._expected.values()) / seen * len(self._plan.candidates) if seen else 0.0
        count, tokens = self._fitting(each, self._elapsed() + warming_up)
        runs = count * self._plan.runs
        return warming_up + each * runs * tokens / self._plan.max_tokens
