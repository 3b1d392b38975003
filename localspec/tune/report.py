"""What a tuning found, as a result file and on the terminal.

The file's names: ``decision`` ("faster", "baseline", "undecided") with ``why``, and
``needs_minutes`` and ``needs_prompts`` where more would decide; ``winner``, with the names of a
benchmark's candidate, measured over the prompts held out only; ``rounds``, which chose it and whose
speedups are no result, each with its number of ``prompts`` and how many ``runs`` over them each
candidate had; ``struck_out``, what failed the audit; ``rows``, every run, of which those of phase
"main" chose and those of phase "confirm" compared, but for those flagged "left-out"; ``benchmark``,
the number under which the history has these.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from localspec.bench import report as reports
from localspec.bench.command import Selection
from localspec.bench.plan import Candidate
from localspec.bench.table import number, output, signs_of, speedup
from localspec.records import BenchOptions
from localspec.tune.course import Round, Split, Struck
from localspec.tune.display import struck_out
from localspec.tune.outcome import MOST_MINUTES
from localspec.tune.profiles import Profile, tune_command
from localspec.units import duration, many

if TYPE_CHECKING:
    from localspec.tune.command import Tuned

Json = dict[str, Any]
SCHEMA = 1
SHARED = (
    "created", "localspec", "machine", "build", "target", "settings", "options", "workloads",
    "prompts", "skipped", "warnings", "status",
)  # fmt: skip
"""Sections of a benchmark's result that a tuning's has as well."""
FLAGS = {
    "repeats": "end in a loop, which inflates the accept length and so the speedup",
    "short": "have few tokens (under 32), too few for a steady speed",
}
OPTIONS = {
    name: f"--{(option or name).replace('_', '-')}"
    for name, option in {
        "minutes": "", "drafters": "drafter", "workloads": "workload", "prompt": "",
        "depths": "depth", "temperatures": "temperature", "max_tokens": "", "system": "",
        "ctx": "", "threads": "", "kv_type": "", "draft_kv_type": "", "flash_attn": "",
        "thinking": "", "gpu_layers": "", "draft_gpu_layers": "", "n_cpu_moe": "", "device": "",
        "split": "", "top_k": "", "top_p": "", "min_p": "", "repeat_penalty": "",
        "repeat_last_n": "", "presence_penalty": "", "frequency_penalty": "", "seed": "",
    }.items()
}  # fmt: skip
"""Options of `localspec tune`, by the names of what they set."""
CAPTION = "These speedups chose, and are no result: of many the luckiest leads."


def record(
    tuned: Tuned,
    selection: Selection,
    profile: Profile | None,
    file: Path | None,
    name: str | None = None,
    benchmark: int | None = None,
) -> Json:
    """``name``: what the profile was asked to be called; ``benchmark``: the number of the
    comparison in the history."""
    result, decided, tuning = reports.result(tuned.report), tuned.outcome, tuned.tuning
    winner = None
    if decided.measured is not None:
        found = next(c for c in result["candidates"] if _same(c, decided.measured.candidate))
        winner = {
            "key": decided.measured.candidate.key,
            **found,
            **reports.figures(tuned.report, decided.measured),
            "verdict": decided.decision,
            "prompts": decided.measured.decode.prompts,
        }
    return {
        "schema": SCHEMA,
        "kind": "tune",
        **{shared: result[shared] for shared in SHARED},
        "name": name,
        "budget": {
            "seconds": tuning.budget,
            "spent": tuned.seconds,
            "choosing": tuning.chosen_after,
            "loading": tuned.loading,
        },
        "held_out": _held_out(tuning.prompts),
        "decision": decided.decision,
        "why": decided.why,
        "needs_minutes": decided.minutes and math.ceil(decided.minutes),
        "needs_prompts": decided.prompts,
        "winner": winner,
        "baseline_tps": decided.baseline and decided.baseline.figures.decode_tps,
        "rounds": [_round(r) for r in tuning.rounds],
        "struck_out": [_struck(s) for s in tuning.struck],
        "profile": None if profile is None else profile.model_dump(mode="json"),
        "profile_file": None if file is None else str(file),
        "benchmark": benchmark,
        "rows": result["rows"],
        "resume": None,
    }


def _same(candidate: Json, one: Candidate) -> bool:
    d = one.drafter
    mine = (d.name, d.method, d.draft_length, d.p_min, d.tree_size)
    return mine == tuple(candidate[k] for k in ("drafter", "method", "n_max", "p_min", "tree"))


def _held_out(parts: Split | None) -> Json | None:
    if parts is None:
        return None
    places = {
        name: [[p.prompt.workload, p.prompt.id] for p in prompts]
        for name, prompts in (("choosing", parts.choosing), ("comparing", parts.held_out))
    }
    return {"apart": parts.apart, **places}


def _round(made: Round) -> Json:
    return {
        "prompts": made.prompts,
        "runs": made.runs,
        "seconds": made.seconds,
        "candidates": [
            {
                "key": s.candidate.key,
                "speedup": s.speedup,
                "pairs": s.pairs,
                "accept_length": s.counts.accept_length,
                "kept": s.kept,
            }
            for s in made.standings
        ],
        "joined": [c.key for c in made.joined],
    }


def _struck(struck: Struck) -> Json:
    return {
        "key": struck.candidate.key,
        "mismatches": struck.audit.mismatches,
        "not_classed": struck.audit.unclassed,
        "why": f"{struck_out(struck)}.",
    }


# ---- on the terminal ----------------------------------------------------------------------------


def render(result: Json, console: Console) -> RenderableType:
    heading, took = _heading(result)
    lines: list[RenderableType] = [Text(heading, style="bold"), Text(took), Text("")]
    if result["rounds"]:
        lines += [_table(result), Text(CAPTION, style="dim"), Text("")]
    lines += [Text(s["why"], style="bold red") for s in result["struck_out"]]
    style = {"faster": "bold green", "baseline": "bold", "undecided": "bold yellow"}
    lines.append(Text(result["why"], style=style[result["decision"]]))
    lines += [Text(line) for line in _figures(result, console)]
    lines += [Text(line, overflow="fold", no_wrap=False) for line in _next(result)]
    if result["benchmark"] is not None:
        lines.append(
            Text(f"The comparison is benchmark {result['benchmark']} of `localspec history`.")
        )
    return Group(*lines)


def _heading(result: Json) -> tuple[str, str]:
    """What was tuned, and how long it took."""
    budget, settings = result["budget"], result["settings"]
    temperature = settings["temperatures"][0]
    sampling = "greedy" if temperature == 0 else f"temperature {temperature:g}"
    on = ", ".join(w["name"] for w in result["workloads"])
    return (
        f"{result['target']['name']} ({result['target']['quant']}) on {on}, {sampling}, up to "
        f"{settings['max_tokens']} tokens, {many(settings['threads'], 'thread')}",
        f"It took {duration(budget['spent'])} of {duration(budget['seconds'])}, and "
        f"{duration(budget['loading'])} before that to load.",
    )


def _table(result: Json) -> Table:
    """Every candidate as of the last round that it ran in."""
    last: dict[str, tuple[int, Json]] = {}
    for n, made in enumerate(result["rounds"], 1):
        last |= {c["key"]: (n, c) for c in made["candidates"]}
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("how it was chosen")
    for title in ("last round", "pairs", "speedup then", "accept length"):
        table.add_column(title, justify="right")
    for key, (n, c) in sorted(
        last.items(), key=lambda item: (-item[1][0], -(item[1][1]["speedup"] or 0))
    ):
        there = number(c["speedup"])
        cells = (str(n), str(c["pairs"]), there + ("x" if c["speedup"] else ""))
        table.add_row(Text(key), *cells, number(c["accept_length"]))
    return table


def _figures(result: Json, console: Console) -> list[str]:
    w = result["winner"]
    if w is None or w["speedup"] is None:
        return []
    compared = len(
        {(r["workload"], r["prompt"]) for r in result["rows"] if r["phase"] == "confirm"}
    )
    if result["held_out"]["apart"]:
        some = f"{w['prompts']} of " if w["prompts"] < compared else ""
        on = f"{some}{many(compared, 'prompt')} that had no part in choosing it"
    elif w["prompts"] > 1:
        on = "other runs of the same prompts: too few to hold some out"
    else:
        on = "other runs of this prompt; it says nothing of others"
    words, mean = signs_of(console), ", the mean over the prompts" if w["prompts"] > 1 else ""
    said = [
        f"{w['key']}: {speedup(w)}{mean}, in {w['pairs']} pairs of runs on {on}.",
        f"{number(w['decode_tps'], 1)} tok/s against {number(result['baseline_tps'], 1)}, accept "
        f"length {number(w['accept_length'])}, output {output({**w, 'verdict': None}, words)}.",
    ]
    runs = [r for r in result["rows"] if r["phase"] == "confirm"]
    disturbed = sum("disturbed" in r["flags"] for r in runs)
    if disturbed:
        out = sum("left-out" in r["flags"] for r in runs)
        so = f"; {out}, with those beside them, are left out" if out else ""
        said.append(f"Other load came into {disturbed} of the {len(runs)} runs compared{so}.")
    for flag, what in FLAGS.items():
        if flagged := sum(flag in r["flags"] for r in runs):
            said.append(f"{flagged} of the {len(runs)} runs compared {what}.")
    if result["status"] == "interrupted":
        said.append("Stopped before the end: this is what was measured until then.")
    return said


def _options(asked: Json, minutes: int) -> list[str]:
    """The options of the command line that stand for what was asked, with other ``minutes``."""
    defaults, flat = asdict(BenchOptions(model="")), dict[str, Any]()
    for given, usual in (
        (asked, defaults),
        (asked["engine"], defaults["engine"]),
        (asked["engine"]["load"], defaults["engine"]["load"]),
        (asked["engine"]["sampler"], {}),
    ):
        listed = {k: list(v) if isinstance(v, tuple) else v for k, v in given.items()}
        unusual = {k: list(v) if isinstance(v, tuple) else v for k, v in usual.items()}
        flat |= {k: v for k, v in listed.items() if v != unusual.get(k)}
    flat |= {"minutes": minutes}
    words = []
    for name, option in OPTIONS.items():
        if (value := flat.get(name)) is None:
            continue
        if isinstance(value, bool):
            value = "on" if value else "off"
        several = isinstance(value, list)
        words += [option, shlex.quote(",".join(map(str, value)) if several else str(value))]
    return words + ["--no-mmap"] * ("mmap" in flat)


def _next(result: Json) -> list[str]:
    options, minutes = result["options"], result["needs_minutes"]
    prompts = result["needs_prompts"]
    if result["decision"] == "undecided":
        said = []
        if minutes is not None and minutes <= MOST_MINUTES:
            more = f" and a workload of about {prompts} prompts" if prompts else ""
            if prompts:
                options = {**options, "workloads": (), "prompt": None}
            command = " ".join([tune_command(options["model"]), *_options(options, minutes)])
            command += f" --name {shlex.quote(result['name'])}" if result.get("name") else ""
            command += " --workload ..." if prompts else ""
            said.append(f"To decide, it needs about {many(minutes, 'minute')}{more}: {command}")
        elif minutes is not None:
            said.append("At this spread no time that anybody has would tell.")
        return [*said, "No profile was written; until then use the baseline."]
    if result["profile_file"] is None:
        return ["No profile was written (--no-save)."]
    name = result["profile"]["name"]
    says = "   (without speculation)" if result["decision"] == "baseline" else ""
    return [
        f"Kept as profile {name}, which chat, run, bench and export use:",
        f"  localspec chat --model {shlex.quote(options['model'])} --profile {name}{says}",
    ]
