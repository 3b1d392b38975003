"""How the commands about models print: tables, or --json; remarks go to stderr."""

from __future__ import annotations

import json
import sys

from rich.console import Console
from rich.table import Table

from localspec import machine
from localspec.engine.client import Engine
from localspec.errors import LocalspecError
from localspec.fit import Fit
from localspec.machine import Memory
from localspec.units import file_size, folded

_PIPE_WIDTH = 500
"""Into a pipe go whole lines: rich would fold them at 80 columns."""
CONTEXT = 4096
"""Tokens for which "fits" is said, where nothing else is asked for."""
WIDE = 110
"""Columns from which on there is room for what is nice to have."""


def console() -> Console:
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(width=width, markup=False, emoji=False, highlight=False)


def say(text: str) -> None:
    console = Console(stderr=True, markup=False, emoji=False, highlight=False, soft_wrap=True)
    console.print(folded(text, sys.stderr))


def write_json(answer: object) -> None:
    sys.stdout.write(json.dumps(answer, indent=2, ensure_ascii=False) + "\n")


def memory() -> Memory:
    """What models can be put into here. llama.cpp, in the engine, knows the GPUs; where the engine
    does not start there are none for it."""
    try:
        with Engine() as engine:
            return machine.memory(engine.devices())
    except LocalspecError:
        return machine.memory()


def table_of(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in columns:
        right = name in ("size", "downloads", "likes")
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    return table


def size(n_bytes: int | None) -> str:
    return "" if n_bytes is None else file_size(n_bytes)


def fit_json(fit: Fit) -> dict[str, object]:
    return {
        "verdict": fit.verdict,
        "n_ctx": fit.n_ctx,
        "n_ctx_max": fit.n_ctx_max,
        "gpu_layers": fit.gpu_layers,
        "bytes": fit.total,
    }
