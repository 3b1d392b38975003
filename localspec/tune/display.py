"""Shows a tuning while it runs, on stderr: the bar is the budget."""

from __future__ import annotations

from rich.console import Console
from rich.progress import TextColumn

from localspec.bench.plan import Candidate
from localspec.bench.progress import Lines, Live, Quiet
from localspec.bench.runner import Comparing, Event, Notice, Ran, Running, WarmingUp
from localspec.tune.course import CHOOSING, Begun, Round, Struck, Tuning
from localspec.units import duration, many

SHOWN = 3


def beginning(begun: Begun, tuning: Tuning) -> str:
    parts, budget = begun.prompts, tuning.budget
    if not begun.start:
        return f"budget {duration(budget)}, which is too small here"
    all_of = len(tuning.first)
    some = f"{len(begun.start)} of {all_of}" if len(begun.start) < all_of else f"{all_of}"
    others = f"{len(parts.held_out)} others" if parts.apart else "other runs of them"
    return (
        f"budget {duration(budget)}, loading not counted: {duration(CHOOSING * budget)} to choose "
        f"among {some} candidates and what lies near the best of them, on "
        f"{many(len(parts.choosing), 'prompt')}; the rest to compare the best with the baseline "
        f"on {others}"
    )


def round_over(number: int, made: Round) -> str:
    best = ", ".join(
        f"{s.candidate.key} {s.speedup:.2f}x" for s in made.standings[:SHOWN] if s.speedup
    )
    dropped = sum(not s.kept for s in made.standings)
    candidates = many(len(made.standings), "candidate")
    runs = f"{many(made.runs, 'run')} each"
    if made.fewest < made.runs:
        runs = f"up to {runs}"
    said = [f"round {number}, {candidates}, {runs} over {many(made.prompts, 'prompt')}"]
    said.append(f": {best}" if best else ": nothing could be measured")
    said.append(f"; {dropped} dropped" if dropped else "")
    if made.joined:
        said.append(f"; {', '.join(c.key for c in made.joined)} join")
    return "".join(said)


def struck_out(struck: Struck) -> str:
    audit = struck.audit
    if audit.mismatches:
        why = "FAILED THE AUDIT: its output is not the baseline's"
    elif audit.unclassed:
        why = "is left out: it could not be made sure that its output is the baseline's"
    else:
        why = "is left out: none of its runs could be compared with the baseline's"
    return f"{struck.candidate.key} {why}. It is not picked, however fast"


class TuneLines(Lines):
    """For a pipe: the rounds, and nothing between them."""

    def __call__(self, event: Event) -> None:
        if isinstance(event, WarmingUp | Notice | Comparing):
            super().__call__(event)


class TuneLive(Live):
    def __init__(self, console: Console) -> None:
        super().__init__(console, TextColumn("{task.percentage:>3.0f} %"))
        self.tuning: Tuning | None = None

    def __call__(self, event: Event) -> None:
        tuning = self.tuning
        if tuning is None or not isinstance(event, Running | Ran | Comparing):
            if isinstance(event, WarmingUp | Notice):
                super().__call__(event)
            return
        if isinstance(event, Comparing):
            self._spent(tuning, f"audit: {event.candidate.key}")
            return
        slot = event.slot if isinstance(event, Running) else event.row.slot
        if isinstance(event, Running):
            tps = event.tps
        else:
            tps = event.row.generation.decode_tps if event.row.generation else None
        stage = "comparing" if slot.phase == "confirm" else f"round {len(tuning.rounds) + 1}"
        self._spent(tuning, f"{stage}: {slot.candidate.key}", f"{tps:.1f} tok/s" if tps else "")

    def _spent(self, tuning: Tuning, what: str, speed: str = "") -> None:
        spent, budget = min(tuning.elapsed, tuning.budget), tuning.budget
        self._show(what, round(spent), max(round(budget), 1), speed, duration(budget - spent))


class Teller:
    """Says what a tuning decides as it goes along."""

    def __init__(self, show: Quiet, tuning: Tuning) -> None:
        self._show, self._tuning = show, tuning

    def __call__(self, what: Begun | Round | Struck | Candidate) -> None:
        match what:
            case Begun():
                self._show.say(beginning(what, self._tuning))
            case Round():
                self._show.say(round_over(len(self._tuning.rounds), what))
            case Struck():
                self._show.say(struck_out(what))
            case Candidate():
                self._show.say(f"comparing {what.key} with the baseline")


def display(console: Console, *, quiet: bool) -> Quiet:
    if quiet:
        return Quiet()
    return TuneLive(console) if console.is_terminal else TuneLines(console)
