"""Whoever wants out presses Ctrl-C until the prompt is back."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from patience import FOREVER


def slow_to_end(folder: Path) -> dict[str, str]:
    """The environment of a program that takes a later Ctrl-C for another wish only after as long as
    it needs to end here, whatever that is: the seconds of a person are a machine's of its speed."""
    patched = folder / "slow-to-end"
    patched.mkdir()
    (patched / "sitecustomize.py").write_text(
        f"from localspec import interrupts\ninterrupts.PATIENCE = {FOREVER}\n"
    )
    path = os.pathsep.join(filter(None, (str(patched), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


def press_ctrl_c(process: subprocess.Popen[Any]) -> None:
    """Over and over until it ends; as a terminal does, to the group that ``process`` leads."""
    while process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.01)
