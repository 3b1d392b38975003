"""A result as one HTML file that needs nothing else: tables, plots, settings, every run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

import jinja2

from localspec.bench import svg
from localspec.bench.drawings import plots
from localspec.bench.table import (
    COSTS,
    UNICODE,
    advised,
    alarms,
    columns,
    conclusions,
    cost_notes,
    costs_heading,
    costs_shown,
    heading,
    notes,
    winning,
    workload_rows,
)

Json = dict[str, Any]


def to_html(result: Json) -> str:
    source = resources.files("localspec.bench").joinpath("templates/report.html.jinja")
    # names and paths are the user's: everything but our own drawings is escaped
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(source.read_text(encoding="utf-8"))
    row_names = [n for n in (result["rows"] or [{}])[0] if n not in ("block", "sitting")]
    return template.render(
        result=result,
        heading=heading(result),
        conclusions=conclusions(result),
        alarms=alarms(result),
        advised=advised(result),
        costs=[
            (costs_heading(model), costs_shown(model), cost_notes(model))
            for model in result.get("cost_model") or ()
        ],
        cost_columns=COSTS,
        notes=notes(result),
        columns=columns(result),
        signs=UNICODE,
        plots=[plot.svg for plot in plots(result)],
        workloads=result["workloads"],
        by_workload=workload_rows(result),
        facts=list(_facts(result)),
        row_names=row_names,
        cell=_cell,
        font=svg.FONT,
        ink=svg.INK,
        soft=svg.SOFT,
        faint=svg.FAINT,
        paper=svg.PAPER,
        winning=winning,
        red=svg.RED,
        green=svg.GREEN,
    )


def _facts(result: Json) -> Iterator[tuple[str, str]]:
    """Machine, build, files, settings, as name and value."""
    groups: tuple[tuple[str, Any], ...] = (
        ("machine", result["machine"]),
        ("build", result["build"]),
        ("target", result["target"]),
        ("settings", result["settings"]),
    )
    for group, content in groups:
        for name, value in _flat(content):
            if value not in (None, "", []):
                yield f"{group}: {name.replace('_', ' ')}", _cell(value)
    for c in result["candidates"]:
        if c["file"]:
            yield f"drafter: {c['drafter']}", f"{c['file']} (SHA-256 {c['sha256'] or 'not taken'})"


def _flat(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from ((f"{name} {inner}", v) for inner, v in _flat(value))
        else:
            yield name, value


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
