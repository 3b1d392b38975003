"""``localspec tune``: spends a budget of minutes on finding the fastest setup, and keeps it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from localspec import __version__, interrupts
from localspec.bench import history
from localspec.bench import report as reports
from localspec.bench.analysis import analyse
from localspec.bench.audit import Audit, audit
from localspec.bench.command import Selection, check, measure
from localspec.bench.console import make_console
from localspec.bench.plan import QUICK_TOKENS, Candidate
from localspec.bench.prepare import temperatures
from localspec.bench.progress import Quiet
from localspec.bench.runner import Comparing, Measurement, Runner
from localspec.bench.sessions import Sessions
from localspec.bench.workloads import at_depths, load
from localspec.catalog import left_out, resolve_drafters, resolve_target
from localspec.errors import LocalspecError, UsageError
from localspec.interrupts import INTERRUPTED
from localspec.records import BenchOptions
from localspec.tune import profiles
from localspec.tune.course import Tuning, confirming, rows_of
from localspec.tune.display import Teller, TuneLive, display
from localspec.tune.outcome import Outcome, leave_out, outcome
from localspec.tune.report import record, render
from localspec.tune.space import Space

MINUTES = 3.0


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """``bench``: model, drafters, prompts and engine, as for a benchmark. ``name``: of the profile;
    None: of model and workload. ``save`` False: no profile is written, and nothing kept in the
    history."""

    bench: BenchOptions
    minutes: float = MINUTES
    name: str | None = None
    save: bool = True


@dataclass(frozen=True, slots=True)
class Tuned:
    """``seconds``: of the measurement; ``loading``: before it began."""

    tuning: Tuning
    report: reports.Report
    outcome: Outcome
    seconds: float
    loading: float


def tune(options: TuneOptions) -> int:
    """Tune, print what was found, write the profile. Returns the exit code.

    Raises ``LocalspecError`` for what cannot be measured at all.
    """
    bench = options.bench
    outputs = {"--json": bench.json} if bench.json else {}
    reports.check_writable(outputs)
    if options.save:
        history.check()
    selection, space = select(options)
    with display(make_console(stderr=True), quiet=bench.quiet) as show:
        tuned = search(options, selection, space, show)
    interrupts.keeping()
    profile = file = None
    if tuned.outcome.decision != "undecided":
        profile = make_profile(options, selection, space, tuned)
        if options.save:
            file = profiles.keep(profile)
    number = failed = None
    compared = comparison(tuned)
    if options.save and compared is not None:
        try:
            number = history.keep(reports.result(compared))
        except LocalspecError as error:  # what was found is to be seen all the same
            failed = error
    result = record(tuned, selection, profile, file, options.name, number)
    if bench.json:
        reports.write(bench.json, reports.to_json(result))
    console = make_console()
    console.print(render(result, console))
    if failed is not None and not tuned.report.measurement.interrupted:
        raise failed
    return INTERRUPTED if tuned.report.measurement.interrupted else 0


def comparison(tuned: Tuned) -> reports.Report | None:
    """The benchmark that a tuning ends with: its winner and the baseline on the prompts held out,
    by the very runs of which it tells, those that it left out among them, flagged. None where there
    are no pairs, or not all of them."""
    report, winner = tuned.report, tuned.outcome.candidate
    made = report.measurement
    if winner is None or made.interrupted:
        return None
    rows = [replace(r, slot=replace(r.slot, phase="main")) for r in confirming(made.rows)]
    used = {r.slot.prompt for r in rows}
    pair = (made.plan.baseline_of(winner), winner)
    plan = replace(
        made.plan,
        prompts=tuple(p for p in made.plan.prompts if p in used),
        candidates=pair,
        runs=len({r.slot.run for r in rows}),
    )
    table = analyse(plan, rows)
    if table[winner.key].decode.speedup is None:
        return None
    final = tuned.outcome.audit
    return replace(
        report,
        measurement=replace(
            made, plan=plan, rows=rows, status={c.key: made.status[c.key] for c in pair}
        ),
        table=table,
        audits={winner.key: final} if final is not None else {},
        options=None,  # no benchmark was asked for: it cannot be asked for again
        origin="tune",
    )


def select(options: TuneOptions) -> tuple[Selection, Space]:
    """What is to be measured. Raises ``LocalspecError`` for what cannot be."""
    bench = options.bench
    check(bench)
    if options.name is not None:
        profiles.file_of(options.name)
    workloads = at_depths(load(bench.workloads, bench.prompt), bench.depths)
    if sum(len(w.prompts) for w in workloads) == 2:
        raise UsageError(
            "Two prompts are too few to compare by: they say nothing about their own spread.",
            "Give one, for a profile of that prompt only, or three and more.",
        )
    target = resolve_target(bench.model)
    if options.name is not None and profiles.own_name(options.name, target.path) != options.name:
        raise UsageError(
            f"There is a profile {options.name} of another model.",
            f"Choose another name, or remove it: localspec profiles rm {options.name}",
        )
    asked = bench.drafters or ("all",)
    specs = resolve_drafters(target, asked)
    space = Space(specs, temperatures(bench)[0])
    first = space.first()
    if not first:
        raise UsageError(
            "There is no drafter to choose among.", "Leave out --drafter, or name some."
        )
    bench = replace(bench, max_tokens=bench.max_tokens or QUICK_TOKENS, runs=1)
    remarks = tuple(left_out(target, asked))
    return Selection(bench, workloads, target, (space.baseline, *first), remarks), space


def search(options: TuneOptions, selection: Selection, space: Space, show: Quiet) -> Tuned:
    began = time.monotonic()
    found: list[tuple[Tuning, Outcome, float, float]] = []

    def conduct(
        runner: Runner, sessions: Sessions, show: Quiet
    ) -> tuple[Measurement, Mapping[str, Audit]]:
        loading = time.monotonic() - began

        def audited(made: Measurement, candidate: Candidate) -> Audit:
            return _audit(made, candidate, sessions, show)

        tuning = Tuning(
            space,
            [c for c in selection.candidates if not c.is_baseline],
            60 * options.minutes,
            audited,
            drop=lambda c: sessions.drop(c.session),
        )
        tuning.tell = Teller(show, tuning)
        if isinstance(show, TuneLive):
            show.tuning = tuning
        measurement = runner.run(tuning)
        final = None
        if tuning.winner is not None:
            final = _final_audit(measurement, tuning.winner, sessions, show)
        run = {r.slot.candidate.key for r in measurement.rows}
        plan = measurement.plan
        plan = replace(plan, candidates=tuple(c for c in plan.candidates if c.key in run))
        measurement = replace(measurement, plan=plan, rows=leave_out(measurement.rows))
        decided = outcome(tuning, measurement, final)
        found.append((tuning, decided, tuning.elapsed, loading))
        audits = {s.candidate.key: s.audit for s in tuning.struck}
        if tuning.winner is not None and final is not None:
            audits[tuning.winner.key] = final
        return measurement, audits

    report = measure(selection, show, conduct=conduct)
    tuning, decided, seconds, loading = found[0]
    return Tuned(tuning, report, decided, seconds, loading)


def _audit(
    made: Measurement, candidate: Candidate, sessions: Sessions | None, show: Quiet
) -> Audit:
    pair = (made.plan.baseline_of(candidate), candidate)
    plan, rows = replace(made.plan, candidates=pair), rows_of(made.rows, pair)
    found = audit(plan, rows, sessions, lambda c, seconds: show(Comparing(c, seconds)))
    return found[candidate.key]


def _final_audit(made: Measurement, winner: Candidate, sessions: Sessions, show: Quiet) -> Audit:
    """Of the runs on the prompts held out; Ctrl-C leaves differences unclassed."""
    held_out = replace(made, rows=confirming(made.rows))
    if not made.interrupted:
        try:
            return _audit(held_out, winner, sessions, show)
        except KeyboardInterrupt:
            made.interrupted = True
    return _audit(held_out, winner, None, show)


def make_profile(
    options: TuneOptions, selection: Selection, space: Space, tuned: Tuned
) -> profiles.Profile:
    decided, report = tuned.outcome, tuned.report
    winner, measured, baseline = decided.candidate, decided.measured, decided.baseline
    assert winner is not None and measured is not None and baseline is not None
    comparison = measured.decode
    assert comparison.speedup is not None and comparison.interval is not None
    setting = space.setting(winner)
    assert setting is not None
    workloads = tuple(w.name for w in selection.workloads)
    result: dict[str, Any] = reports.result(report)
    runs = confirming(report.measurement.rows)
    return profiles.Profile(
        name=options.name
        or profiles.own_name(
            profiles.named(selection.target.name, workloads), selection.target.path
        ),
        created=datetime.now(UTC).replace(microsecond=0),
        model=selection.target.name,
        target=profiles.File.of(Path(report.model.path)),
        workloads=workloads,
        drafter=profiles.drafting(winner.drafter, setting.spec.name)
        if decided.decision == "faster"
        else None,
        measured=profiles.Measured(
            speedup=comparison.speedup,
            interval=comparison.interval,
            decode_tps=measured.figures.decode_tps,
            baseline_tps=baseline.figures.decode_tps,
            accept_length=measured.figures.counts.accept_length,
            prompts=comparison.prompts,
            pairs=comparison.pairs,
            this_prompt_only=comparison.prompts == 1,
            repeating=sum("repeats" in r.flags for r in runs) / len(runs),
        ),
        machine=result["machine"],
        build=result["build"],
        settings=result["settings"],
        localspec=__version__,
    )
