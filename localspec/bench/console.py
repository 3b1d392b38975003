"""Where the headless commands of this room print."""

from __future__ import annotations

import os

from rich.console import Console

PLAIN_WIDTH = 140
"""Columns of a table that goes into a pipe or file, where nobody says how wide it may be."""


def make_console(*, stderr: bool = False) -> Console:
    """Names of models, files and workloads go through it: what is in brackets is no markup, and
    ``:llama:`` is no picture."""
    plain = Console(stderr=stderr, markup=False, emoji=False)
    if not plain.is_terminal and "COLUMNS" not in os.environ:
        plain = Console(stderr=stderr, width=PLAIN_WIDTH, markup=False, emoji=False)
    return plain
