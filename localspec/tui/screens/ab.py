"""A/B."""

from __future__ import annotations

from collections.abc import Iterable

from textual.widget import Widget
from textual.widgets import Static

from localspec.tui.screens.base import ModeScreen


class ABScreen(ModeScreen):
    MODE = "ab"

    def body(self) -> Iterable[Widget]:
        yield Static("One prompt with and without the drafter, side by side.", classes="dim")
