"""``localspec bench``: baseline against every drafter of a target, measured and reported."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import platformdirs

from localspec import interrupts, machine
from localspec.bench import gates, history
from localspec.bench import report as reports
from localspec.bench import resume as resuming
from localspec.bench import table as tables
from localspec.bench.advice import OtherQuant
from localspec.bench.analysis import Measured, analyse, so_far
from localspec.bench.audit import Audit, audit
from localspec.bench.bases import find_bases
from localspec.bench.console import make_console
from localspec.bench.cost_model import CostModel, cost_models
from localspec.bench.outputs import KINDS, given, write_all
from localspec.bench.plan import WITHOUT_P_MIN, Candidate, Plan, make_candidates
from localspec.bench.prepare import fit_together, fitting_of, make_plan, temperatures
from localspec.bench.progress import Quiet, display
from localspec.bench.runner import Comparing, Measurement, Runner
from localspec.bench.sessions import Host, Sessions
from localspec.bench.workloads import Workload, at_depths, load
from localspec.catalog import Target, left_out, not_of_trees, resolve_drafters
from localspec.engine.client import Engine, connect
from localspec.engine.fitting import Fitting
from localspec.errors import DoesNotFit, LocalspecError, UsageError
from localspec.interrupts import INTERRUPTED
from localspec.paths import kind_here
from localspec.records import BenchOptions, DrafterSettings, LoadSettings, ModelInfo

Conduct = Callable[[Runner, Sessions, Quiet], tuple[Measurement, Mapping[str, Audit]]]
"""Makes the runs of a measurement and audits them."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What is to be measured, as far as it is known without an engine. ``remarks``: what a person
    should know about the choice."""

    options: BenchOptions
    workloads: tuple[Workload, ...]
    target: Target
    candidates: tuple[Candidate, ...]
    remarks: tuple[str, ...] = ()


def select(options: BenchOptions) -> Selection:
    """Look up what the options name. Raises ``LocalspecError`` for what cannot be measured."""
    check(options)
    workloads = at_depths(load(options.workloads, options.prompt), options.depths)
    bases = find_bases(options)
    asked = options.drafters or ("all",)
    candidates = [
        candidate
        for base, target in bases
        for candidate in make_candidates(
            resolve_drafters(target, asked),
            n_max=options.n_max,
            p_min=options.p_min,
            sampled=options.sampled,
            trees=options.trees,
            temperatures=temperatures(options),
            quick=options.quick,
            chains=options.chains,
            base=base,
        )
    ]
    if (
        options.fail_below is not None
        and len(bases) == 1
        and all(c.is_baseline for c in candidates)
    ):
        raise UsageError(
            "--fail-below judges a drafter's speedup, and none is measured.",
            "Name one with --drafter, or leave --fail-below out.",
        )
    remarks = dict.fromkeys(line for _, target in bases for line in left_out(target, asked))
    if options.trees:
        remarks |= dict.fromkeys(not_of_trees(options.p_min, sampled=options.sampled))
    if any(c.drafter.name.endswith(WITHOUT_P_MIN) for c in candidates):
        remarks[
            "A tree has no p_min, so the chain as deep drafts without one as well (p_min=0)."
        ] = None
    return Selection(options, workloads, bases[0][1], tuple(candidates), tuple(remarks))


def bench(options: BenchOptions) -> int:
    """Run the benchmark, print the table, write the files. Returns the exit code.

    Raises ``LocalspecError`` for what cannot be measured at all.
    """
    unfinished = None
    if options.resume is not None:
        unfinished = resuming.read(options.resume)
        options = resuming.merged(options, unfinished.options)
    outputs = given(**{kind: getattr(options, kind) for kind in KINDS})
    reports.check_writable(outputs)
    if options.save:
        history.check()
    elif options.fail_on_regression is not None:
        history.past()  # which it is compared with
    selection = select(options)
    with display(make_console(stderr=True), quiet=options.quiet) as show:
        report = measure(selection, show, unfinished)
    interrupts.keeping()
    result = reports.result(report)
    failed = write_all(
        outputs, result
    )  # first: a table cut by a closed pipe must not cost the files
    console = make_console()
    console.print(tables.render(result, console))
    new = history.has_new(result)
    if not new and not options.quiet:
        make_console(stderr=True).print(history.NOTHING_NEW, markup=False)
    ended = any(r["tokens"] and "cancelled" not in r["flags"] for r in result["rows"])
    if result["resume"] is not None and ended:
        _say_how_to_go_on(options, result, failed)
    code = _exit_code(report, strict=options.strict)
    if code != INTERRUPTED:
        failed = failed or gates.failure(options, result)
        if options.fail_on_regression is not None and not options.quiet:
            make_console(stderr=True).print(gates.against(result), markup=False, highlight=False)
    if options.save and result["rows"] and new:
        failed = _save(result) or failed
    if failed is not None and code != INTERRUPTED:
        raise failed
    return code


def _save(result: reports.Json) -> LocalspecError | None:
    """Into the history; last, so that a gate compares with what was there before."""
    try:
        history.keep(result)
    except LocalspecError as error:
        return error
    return None


def _say_how_to_go_on(
    options: BenchOptions, result: reports.Json, failed: LocalspecError | None
) -> None:
    """What is finished of an interrupted bench is kept, asked for or not."""
    name = options.json
    if name is None or failed is not None or kind_here(name) != "file":
        folder = Path(platformdirs.user_state_dir("localspec", appauthor=False))
        name = str(folder / "interrupted.json")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            reports.write(name, reports.to_json(result))
        except (OSError, LocalspecError):
            return
    if not options.quiet:
        make_console(stderr=True).print(
            f"Go on with: localspec bench --resume {shlex.quote(name)}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def everything(
    runner: Runner, sessions: Sessions, show: Quiet
) -> tuple[Measurement, Mapping[str, Audit]]:
    """All runs of the plan, and the audit of them."""
    measurement = runner.run()
    return measurement, _audit(measurement, sessions, show)


def measure(
    selection: Selection,
    show: Quiet,
    unfinished: resuming.Unfinished | None = None,
    shared: Callable[..., Engine] | None = None,
    conduct: Conduct = everything,
) -> reports.Report:
    """Make the runs that ``conduct`` wants. ``shared`` gives an engine that is not ended
    afterwards, only its contexts are; without it there is one for this measurement alone. An
    observer may raise KeyboardInterrupt to end the measurement, as Ctrl-C does."""
    options, target, candidates = selection.options, selection.target, selection.candidates
    log_file = Path(options.engine.log_file) if options.engine.log_file else None
    fittings = _fittings(selection)
    fitting = fittings[None]
    others = {path: f for path, f in fittings.items() if path is not None}

    def starts(path: str | None) -> Callable[[], Engine]:
        def choose(engine: Engine) -> LoadSettings:
            for one in others.values():  # in the memory as it is before anything is loaded
                with suppress(DoesNotFit):  # said of its own candidates, when it is to be loaded
                    one.choose(engine)
            return fittings[path].choose(engine)

        file = target.path if path is None else Path(path)
        how = (shared or connect) if path is None else connect
        return partial(how, file, options.engine.load, log_file, choose)

    start = starts(None)
    for remark in selection.remarks:
        show.say(remark)
    engine = start()
    sessions = None
    try:
        model, build = engine.model, engine.build
        plan = make_plan(options, selection.workloads, target, candidates, engine, show.say)
        for note in fitting.notes:
            show.say(note)
        fitting.check(plan.context, DrafterSettings())
        loads = {path: f.load for path, f in others.items()}
        needed, together = fit_together(plan, engine, fitting.load, loads)
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
        hosts = {path: Host(starts(path), f.check) for path, f in others.items()}
        sessions = Sessions(engine, start, plan.context, together, fitting.check, hosts)
        report = partial(
            reports.Report,
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
            other_quants=_other_quants(target.name, model, described) if not others else (),
        )
        runner = Runner(plan, sessions, show, earlier=earlier)
        show.follow(lambda: _unjudged(report, runner.so_far()))
        measurement, audits = conduct(runner, sessions, show)
        table = analyse(measurement.plan, measurement.judged)
        costs = None
        if options.cost_model and not measurement.interrupted:
            costs = _costs(measurement, table, sessions, show)
    finally:
        if sessions is not None:
            sessions.close() if shared else sessions.end()
        elif shared is None:
            engine.close()
    return report(
        measurement=measurement,
        table=table,
        audits=audits,
        cost_models=costs,
    )


def _fittings(selection: Selection) -> dict[str | None, Fitting]:
    """How each file of the target is loaded; None: its own."""
    by_file: dict[str | None, list[Candidate]] = {}
    for candidate in selection.candidates:
        by_file.setdefault(candidate.base.path, []).append(candidate)
    own = selection.target
    return {
        path: fitting_of(
            selection.options,
            own if path is None else replace(own, path=Path(path)),
            members,
            selection.workloads,
        )
        for path, members in by_file.items()
    }


def _other_quants(
    target: str, model: ModelInfo, described: Mapping[str, Any]
) -> tuple[OtherQuant, ...]:
    """What the history knows of the same target in other quantisations on this machine."""
    try:
        earlier = history.past()
    except LocalspecError:
        return ()  # it is no part of the measurement
    return tuple(
        OtherQuant(p.quant, p.baseline_tps)
        for p in earlier
        if _without(p.target, p.quant) == _without(target, model.quant)
        and (p.machine, p.status) == (described.get("cpu") or "", "complete")
        and p.quant != model.quant
        and p.baseline_tps
    )


def _without(name: str, quant: str) -> str:
    """The name of a target that is called after its file, without the quantisation."""
    return name.lower().replace(quant.lower(), "")


def _unjudged(report: Callable[..., reports.Report], made: Measurement) -> reports.Report:
    return report(measurement=made, table=so_far(made.plan, made.rows), audits={})


def check(options: BenchOptions) -> None:
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


def _costs(
    measurement: Measurement, table: Mapping[str, Measured], sessions: Sessions, show: Quiet
) -> tuple[CostModel, ...] | None:
    """Ctrl-C here leaves the measurement whole, and None: the exit code tells."""
    show.say("Measuring what drafting and verifying cost ...")
    try:
        found, left_out = cost_models(measurement.plan, table, sessions)
    except KeyboardInterrupt:
        sessions.engine.close()  # it measures on
        show.say("Stopped: the cost model is left out, the benchmark is whole.")
        return None
    for line in left_out:
        show.say(line)
    return tuple(found)


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
    """What cannot be opened is an answer, told in its row, unless nothing else was asked for."""
    asked = report.options is not None and report.options.cost_model
    made = report.measurement
    if made.interrupted or (asked and report.cost_models is None):
        return INTERRUPTED
    if any(s.state not in ("ok", "refused") for s in made.status.values()):
        return 1
    rivals = [c for c in made.plan.candidates if c not in made.plan.references]
    refused = [c for c in rivals if made.status[c.key].state == "refused"]
    if refused and (strict or len(refused) == len(rivals)):
        return 1
    differs = any(a.mismatches or a.unclassed for a in report.audits.values())
    return 1 if strict and differs else 0
