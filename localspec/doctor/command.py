"""``localspec doctor``: what this machine, this llama.cpp, the cache and the token can do."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from localspec import machine
from localspec.bench.console import make_console
from localspec.bench.report import check_writable
from localspec.doctor import bundle, checks
from localspec.doctor.findings import Finding, State
from localspec.doctor.self_test import self_test
from localspec.paths import written
from localspec.units import file_size

SCHEMA = 1
SIGNS: dict[State, tuple[str, str, str]] = {
    "ok": ("✓", "ok", "green"),
    "note": ("i", "i", "cyan"),
    "warning": ("!", "!", "yellow"),
    "broken": ("✗", "X", "bold red"),
}
"""Sign, the same in ASCII, and its style."""
NAME_WIDTH = 11


def doctor(
    *, as_json: bool, offline: bool, with_self_test: bool, report: Path | None = None
) -> int:
    """Exit code 1 if something is broken. ``report``: where to put a bundle for a bug report."""
    found = []
    if report is not None:
        check_writable({"--report": str(report)})
    logs = bundle.last_logs() if report is not None else []
    console = make_console()
    for finding in examine(offline=offline, with_self_test=with_self_test):
        found.append(finding)
        if not as_json:
            show(finding, console)
    answer = {"schema": SCHEMA, "broken": _broken(found), "checks": [asdict(f) for f in found]}
    if as_json:
        sys.stdout.write(json.dumps(answer, indent=2, ensure_ascii=False) + "\n")
    else:
        console.print()
        console.print(conclusion(found), style="bold", markup=False, highlight=False)
    if report is not None:
        file = written(report)
        size = bundle.write(file, answer, logs)
        make_console(stderr=True).print(
            f"{file} ({file_size(size)}) is for a bug report; look through it before you send it. "
            "It holds no token, no conversation and no result.",
            markup=False,
            highlight=False,
        )
    return 1 if _broken(found) else 0


def examine(*, offline: bool, with_self_test: bool) -> Iterator[Finding]:
    """The findings, each as soon as it is there."""
    versions = checks.versions()
    yield versions
    build, devices, error = None, None, None
    if versions.state != "broken":
        build, devices, error = checks.ask_engine()
    yield checks.processor(build)
    yield checks.memory(devices or ())
    yield checks.graphics(machine.gpus(), devices)
    if versions.state != "broken":
        yield checks.engine(error, build)
    later: list[Callable[[], Finding]] = [checks.cache, checks.own_files]
    later += [lambda: checks.hub(offline=offline), checks.terminal, checks.conditions]
    for check in later:
        yield check()
    if with_self_test and build is not None:
        yield self_test()


def show(finding: Finding, console: Console) -> None:
    sign, plain, style = SIGNS[finding.state]
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, width=NAME_WIDTH)
    table.add_column(overflow="fold")
    mark = plain if console.options.ascii_only else sign
    table.add_row(Text(mark, style=style), Text(finding.check), Text(finding.said))
    console.print(table)
    under = Text()
    if finding.problem:
        under.append(finding.problem, style="default" if finding.state == "note" else style)
    if finding.remedy:
        under.append(("\n" if under else "") + finding.remedy)
    if under:
        console.print(Padding(under, (0, 0, 0, NAME_WIDTH + 3), expand=False), highlight=False)
    for command in finding.commands:
        # folded by the terminal alone, so that it can be copied as one line
        console.print(Text(f"  {command}"), soft_wrap=True)


def conclusion(found: Sequence[Finding]) -> str:
    broken = [f.check for f in found if f.state == "broken"]
    warned = [f.check for f in found if f.state == "warning"]
    if broken:
        return f"Broken: {', '.join(broken)}."
    if warned:
        return f"Everything works; see what could be better: {', '.join(warned)}."
    return "Everything works."


def _broken(found: Sequence[Finding]) -> bool:
    return any(f.state == "broken" for f in found)
