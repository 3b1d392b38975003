"""Bench."""

from __future__ import annotations

from collections.abc import Iterable

from textual.widget import Widget
from textual.widgets import Static

from localspec.tui.screens.base import ModeScreen


class BenchScreen(ModeScreen):
    MODE = "bench"

    def body(self) -> Iterable[Widget]:
        yield Static("`localspec bench` measures until this screen is there.", classes="dim")
