"""How the engine runs, in every mode: threads, context, layers on the GPU, cache types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import msgspec
from textual.app import ComposeResult
from textual.containers import Grid, VerticalScroll
from textual.widgets import Select, Static

from localspec.limits import MOST_THREADS
from localspec.tui.screens.form import Form, number, select
from localspec.tui.settings import AS_USUAL, CacheType, EngineSettings, Flash
from localspec.tui.widgets.footer import Footer

# name in EngineSettings, what is shown, what it is about (in 30 cells, for 80 columns), its bounds
NUMBERS = (
    ("threads", "Threads", "of target and drafter", f"from 1 to {MOST_THREADS}"),
    ("ctx", "Context", "tokens that a chat holds", "from 1 on"),
    ("gpu_layers", "GPU layers", "of the target", "from 0 on"),
    ("draft_gpu_layers", "Drafter's GPU layers", "", "from 0 on"),
    ("n_cpu_moe", "MoE layers on the CPU", "whose experts stay there", "from 0 on"),
)
CHOICES = (
    ("kv_type", "KV cache", "of the target", get_args(CacheType)),
    ("draft_kv_type", "Drafter's KV cache", "", get_args(CacheType)),
    ("flash_attn", "Flash attention", "", get_args(Flash)),
)


@dataclass(frozen=True, slots=True)
class Usual:
    """What the engine takes where nothing is given."""

    threads: int
    cores: int
    ctx: int

    def words(self, name: str) -> str:
        which = "the cores" if self.threads == self.cores else "one draws"
        return {
            "threads": f"{self.threads} ({which})",
            "ctx": f"up to {self.ctx:,}",
            "gpu_layers": "as many as fit",
            "draft_gpu_layers": "all",
            "n_cpu_moe": "none",
        }[name]


class EngineSettingsScreen(Form[EngineSettings]):
    AUTO_FOCUS = "#threads"
    DEFAULT_CSS = """
    EngineSettingsScreen Grid { grid-columns: 22 18 1fr; margin-bottom: 1; }
    """

    def __init__(self, now: EngineSettings, usual: Usual) -> None:
        super().__init__()
        self._now, self._usual = now, usual

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog") as box:
            box.border_title = "How the engine runs, in every mode (from the next answer on)"
            with Grid():
                for name, title, what, _ in NUMBERS:
                    value = getattr(self._now, name)
                    shown = "" if value is None else str(value)
                    yield from self.line(title, number(shown, self._usual.words(name), name), what)
                for name, title, what, values in CHOICES:
                    field = select([(v, v) for v in values], getattr(self._now, name), name)
                    yield from self.line(title, field, what)
            yield Static(
                "What is left empty is chosen. The model is loaded anew, and a baseline is "
                "remembered for each of these settings by itself.",
                classes="dim",
            )
            yield from self.buttons()
        yield Footer(show_command_palette=False)

    def action_save(self) -> None:
        given: dict[str, int | str] = {}
        for name, title, _, bounds in NUMBERS:
            if not (text := self.text(name)):
                continue
            try:
                given[name] = int(text)
                msgspec.convert(given, EngineSettings)
            except (ValueError, msgspec.ValidationError):
                self.complain(name, f"{title}: a whole number {bounds}.")
                return
        for name, *_ in CHOICES:
            given[name] = self.choice(name)
        self.dismiss(msgspec.convert(given, EngineSettings))

    def unset(self) -> None:
        super().unset()
        for name, *_ in CHOICES:
            self.query_one(f"#{name}", Select).value = getattr(AS_USUAL, name)
