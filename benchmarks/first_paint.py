"""From process start to the first picture on a terminal: localspec and an empty app in turn.

    python benchmarks/first_paint.py --runs 15

Both are started on a pty of 140x45, with folders of their own for settings; a run ends when the
first frame's last byte has come. The empty app (one label) is the floor: what Python, Textual and
the terminal's set-up cost by themselves. Processor time is the process's own, all its threads.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import select
import signal
import sys
import tempfile
import termios
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pairs import begin, machine, median_interval
from terminal import ANSWER, ASKED, SIZE

AT_MOST = 0.5
LOCALSPEC = "from localspec.cli import main; main([])"
EMPTY = """
from textual.app import App
from textual.widgets import Label

class Empty(App):
    def compose(self):
        yield Label("1 Models 2 Chat 3 A/B 4 Bench 5 History")

Empty().run()
"""
SIGN, FRAME_END = b"History", b"\x1b[?2026l"
"""A word that both show, and what ends a frame (synchronised output)."""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Paint:
    wall: float
    processor: float


def paint(code: str, settings: dict[str, object]) -> Paint:
    """One start of ``python -c code``, ended by force after its first frame."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "localspec")
        config.mkdir()
        (config / "settings.json").write_text(json.dumps(settings))
        environment = {
            **os.environ,
            **{f"XDG_{name}_HOME": folder for name in ("CONFIG", "DATA", "STATE")},
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LC_TERMINAL": "",
        }
        began = time.perf_counter()
        pid, terminal = pty.fork()
        if not pid:
            termios.tcsetwinsize(1, SIZE[::-1])
            os.execve(sys.executable, [sys.executable, "-c", code], environment)
        try:
            return _wait(pid, terminal, began)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(terminal)


def _wait(pid: int, terminal: int, began: float) -> Paint:
    shown = b""
    while not (SIGN in shown and FRAME_END in shown[shown.index(SIGN) :]):
        if not select.select([terminal], [], [], 20)[0]:
            raise SystemExit(f"Nothing was drawn in 20 s: {shown[-500:]!r}")
        shown += os.read(terminal, 65536)
        if ASKED in shown:
            os.write(terminal, ANSWER)
            shown = shown.replace(ASKED, b"")
    wall = time.perf_counter() - began
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return Paint(wall, (int(fields[11]) + int(fields[12])) / TICKS)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = begin(parser)
    sides = {"localspec": LOCALSPEC, "empty app": EMPTY}
    found: dict[str, list[Paint]] = {name: [] for name in sides}
    for i in range(options.runs + 1):
        for name in sides if i % 2 else reversed(sides):
            run = paint(sides[name], {"model": "demo"})
            if i:  # the first compiles modules and fills the page cache
                found[name].append(run)
    medians = {}
    for name, runs in found.items():
        walls = [run.wall for run in runs]
        medians[name] = median(walls)
        interval = median_interval(walls)
        around = f"95 % {interval[0]:.3f} to {interval[1]:.3f}" if interval else "no interval"
        print(
            f"{name:9}: first paint after {median(walls):.3f} s ({around}), processor time "
            f"{median(run.processor for run in runs):.2f} s, {len(runs)} runs"
        )
    kept = medians["localspec"] < AT_MOST
    print(f"localspec: wanted < {AT_MOST} s: {'kept' if kept else 'MISSED'}")
    if options.json:
        document = {
            "script": "first_paint",
            "machine": machine(),
            "at_most": AT_MOST,
            "seconds": {name: [run.wall for run in runs] for name, runs in found.items()},
            "processor_seconds": {n: [r.processor for r in runs] for n, runs in found.items()},
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return int(not kept)


if __name__ == "__main__":
    sys.exit(main())
