"""Where the headless commands of this room print."""

from __future__ import annotations

import os

from rich.console import Console

PLAIN_WIDTH = 140
"""Columns of a table that goes into a pipe or file, where nobody says how wide it may be."""


def make_console(*, stderr: bool = False) -> Console:
    console = Console(stderr=stderr)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(stderr=stderr, width=PLAIN_WIDTH)
    return console
