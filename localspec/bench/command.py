"""``localspec bench``: baseline against every drafter of a target, measured and reported."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import platformdirs
from rich.console import Console

from localspec import machine
from localspec.bench import report as reports
from localspec.bench import resume as resuming
from localspec.bench import table as tables
from localspec.bench.analysis import analyse
from localspec.bench.audit import Audit, audit
from localspec.bench.plan import Candidate, Plan, make_candidates
from localspec.bench.prepare import fit_together, fitting_of, make_plan, temperatures
from localspec.bench.progress import Quiet, display
from localspec.bench.runner import Comparing, Measurement, Runner
from localspec.bench.sessions import Sessions
from localspec.bench.workloads import Workload, load
from localspec.catalog import Target, left_out, resolve_drafters, resolve_target
from localspec.engine.client import connect
from localspec.errors import LocalspecError, UsageError
from localspec.records import BenchOptions, DrafterSettings, LoadSettings

PLAIN_WIDTH = 140
"""Columns of a table that goes into a pipe or file, where nobody says how wide it may be."""
INTERRUPTED = 130


def bench(options: BenchOptions) -> int:
    """Run the benchmark, print the table, write the files. Returns the exit code.

    Raises ``LocalspecError`` for what cannot be measured at all.
    """
    unfinished = None
    if options.resume is not None:
        unfinished = resuming.read(options.resume)
        options = resuming.merged(options, unfinished.options)
    outputs = {
        option: name
        for option, name in (
            ("--json", options.json),
            ("--csv", options.csv),
            ("--markdown", options.markdown),
        )
        if name is not None
    }
    reports.check_writable(outputs)
    _check(options)
    workloads = load(options.workloads, options.prompt)
    target = resolve_target(options.model)
    asked = options.drafters or ("all",)
    drafters = resolve_drafters(target, asked)
    candidates = make_candidates(
        drafters,
        n_max=options.n_max,
        p_min=options.p_min,
        sampled=options.sampled,
        trees=options.trees,
        temperatures=temperatures(options),
        quick=options.quick,
    )
    with display(_console(stderr=True), quiet=options.quiet) as show:
        for remark in left_out(target, asked):
            show.say(remark)
        report = _measure(options, workloads, target, candidates, unfinished, show)
    result = reports.result(report)
    failed = _write(outputs, result)  # first: a table cut by a closed pipe must not cost the files
    console = _console()
    console.print(tables.render(result, console))
    if result["resume"] is not None and any(r["tokens"] for r in result["rows"]):
        _say_how_to_go_on(options, result, failed)
    if failed is not None:
        raise failed
    return _exit_code(report, strict=options.strict)


def _write(outputs: Mapping[str, str], result: reports.Json) -> LocalspecError | None:
    """Write every file that can be; the first failure is returned."""
    writers = {"--json": reports.to_json, "--csv": reports.to_csv, "--markdown": tables.to_markdown}
    failed = None
    for option, name in outputs.items():
        try:
            reports.write(name, writers[option](result))
        except LocalspecError as error:
            failed = failed or error
    return failed


def _say_how_to_go_on(
    options: BenchOptions, result: reports.Json, failed: LocalspecError | None
) -> None:
    """What is finished of an interrupted bench is kept, asked for or not."""
    name = options.json
    if name is None or failed is not None or not Path(name).expanduser().is_file():
        folder = Path(platformdirs.user_state_dir("localspec", appauthor=False))
        name = str(folder / "interrupted.json")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            reports.write(name, reports.to_json(result))
        except (OSError, LocalspecError):
            return
    if not options.quiet:
        _console(stderr=True).print(
            f"Go on with: localspec bench --resume {shlex.quote(name)}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def _measure(
    options: BenchOptions,
    workloads: Sequence[Workload],
    target: Target,
    candidates: tuple[Candidate, ...],
    unfinished: resuming.Unfinished | None,
    show: Quiet,
) -> reports.Report:
    log_file = Path(options.engine.log_file) if options.engine.log_file else None
    fitting = fitting_of(options, target, candidates)
    start = partial(connect, target.path, options.engine.load, log_file, fitting.choose)
    engine = start()
    sessions = None
    try:
        model, build = engine.model, engine.build
        plan = make_plan(options, workloads, target, candidates, engine, show.say)
        for note in fitting.notes:
            show.say(note)
        fitting.check(plan.context, DrafterSettings())
        needed, together = fit_together(plan, engine, fitting.load)
        warnings = machine.warnings(engine.pid, needed if together else None)
        for warning in warnings:
            show.say(f"warning: {warning}")
        sha256 = resuming.sha256_of(Path(model.path))
        described = machine.describe()
        facts = resuming.facts_of(plan, model, sha256, build, described, fitting.load)
        earlier = None
        if unfinished is not None:
            resuming.check(unfinished.facts, facts)
            plan, earlier = resuming.earlier(plan, unfinished)
        sessions = Sessions(engine, start, plan.context, together, fitting.check)
        measurement = Runner(plan, sessions, show, earlier=earlier).run()
        audits = _audit(measurement, sessions, show)
    finally:
        (sessions.engine if sessions else engine).close()
    return reports.Report(
        measurement=measurement,
        table=analyse(measurement.plan, measurement.judged),
        audits=audits,
        target=target.name,
        model=model,
        build=build,
        machine=described,
        sha256=sha256,
        effective=sessions.settings,
        notes=sessions.notes,
        asked=_asked(options, target, plan, fitting.load),
        warnings=tuple(warnings),
        options=options,
        facts=facts,
        before=unfinished.sittings if unfinished is not None else (),
    )


def _check(options: BenchOptions) -> None:
    if options.runs is not None and options.runs < 1:
        raise UsageError("--runs must be 1 or more.", "Leave it out for one run a prompt.")
    if options.max_tokens is not None and options.max_tokens < 2:
        raise UsageError(
            f"--max-tokens {options.max_tokens} leaves nothing to measure: decode speed counts "
            "from the first token to the last.",
            "Give 32 or more.",
        )
    if any(t < 0 for t in options.temperatures):
        raise UsageError("--temperature cannot be negative.", "Use 0 for greedy decoding.")
    if options.p_min is not None and not 0 <= options.p_min <= 1:
        raise UsageError("--p-min is a probability.", "Give a number from 0 to 1.")


def _audit(measurement: Measurement, sessions: Sessions, show: Quiet) -> Mapping[str, Audit]:
    plan, rows = measurement.plan, measurement.rows
    if not measurement.interrupted:
        try:
            return audit(plan, rows, sessions, lambda c, seconds: show(Comparing(c, seconds)))
        except KeyboardInterrupt:
            measurement.interrupted = True
    return audit(plan, rows, None)


def _asked(
    options: BenchOptions, target: Target, plan: Plan, loaded: LoadSettings
) -> dict[str, Any]:
    sampler = {k: v for k, v in asdict(plan.sampler).items() if k not in ("seed", "temperature")}
    return {
        **asdict(loaded),
        "draft_kv_type": options.engine.draft_kv_type,
        "sampler": sampler,
        "temperatures": list(dict.fromkeys(c.temperature for c in plan.candidates)),
        "system": options.system if options.system is not None else target.system,
        "thinking": options.engine.thinking
        if options.engine.thinking is not None
        else target.thinking,
    }


def _exit_code(report: reports.Report, *, strict: bool) -> int:
    if report.measurement.interrupted:
        return INTERRUPTED
    if any(s.state != "ok" for s in report.measurement.status.values()):
        return 1
    differs = any(a.mismatches or a.unclassed for a in report.audits.values())
    return 1 if strict and differs else 0


def _console(*, stderr: bool = False) -> Console:
    console = Console(stderr=stderr)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(stderr=stderr, width=PLAIN_WIDTH)
    return console
