"""History."""

from __future__ import annotations

from collections.abc import Iterable

from textual.widget import Widget
from textual.widgets import Static

from localspec.tui.screens.base import ModeScreen


class HistoryScreen(ModeScreen):
    MODE = "history"

    def body(self) -> Iterable[Widget]:
        yield Static("Past runs will be kept here.", classes="dim")
