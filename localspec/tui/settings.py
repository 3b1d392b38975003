"""What the app remembers from one start to the next: a small JSON file among the user's settings.

msgspec reads it, which every engine message needs anyway: pydantic alone takes a fifth of the time
in which the app must have painted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import platformdirs

from localspec.limits import MOST_THREADS
from localspec.whole_file import replacing

if TYPE_CHECKING:  # the first paint does not wait for it
    from localspec.records import EngineOptions

CacheType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]
Flash = Literal["auto", "on", "off"]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Threads = Annotated[int, msgspec.Meta(ge=1, le=MOST_THREADS)]
Layers = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class EngineSettings(msgspec.Struct, kw_only=True, frozen=True):
    """How the engine runs, as the command line's options of these names; None: as chosen by it."""

    ctx: AtLeastOne | None = None
    """Of a chat; measurements take as much as their prompts need."""
    threads: Threads | None = None
    gpu_layers: Layers | None = None
    draft_gpu_layers: Layers | None = None
    n_cpu_moe: Layers | None = None
    kv_type: CacheType = "f16"
    draft_kv_type: CacheType = "f16"
    flash_attn: Flash = "auto"

    def options(
        self, sampler: Mapping[str, float] | None = None, thinking: bool | None = None
    ) -> EngineOptions:
        """As a chat takes them, with its own settings."""
        from localspec.machine import threads_beside_drawing
        from localspec.records import EngineOptions, LoadSettings

        given = {
            name: value
            for name in ("gpu_layers", "draft_gpu_layers", "n_cpu_moe")
            if (value := getattr(self, name)) is not None
        }
        return EngineOptions(
            ctx=self.ctx,
            threads=self.threads or threads_beside_drawing(),
            load=LoadSettings(**given),
            kv_type=self.kv_type,
            draft_kv_type=self.draft_kv_type,
            flash_attn=self.flash_attn,
            sampler=dict(sampler or {}),
            thinking=thinking,
        )

    def measuring(self) -> EngineOptions:
        """As ``bench`` takes them."""
        return msgspec.structs.replace(self, ctx=None).options()

    def __str__(self) -> str:
        """What is not as usual, but the context, in the words of a bench's bases: "kv=q8_0 t=1";
        "" where all is."""
        short = {
            "kv": self.kv_type,
            "draft-kv": self.draft_kv_type,
            "fa": self.flash_attn,
            "t": self.threads,
            "gpu": self.gpu_layers,
            "draft-gpu": self.draft_gpu_layers,
            "cpu-moe": self.n_cpu_moe,
        }
        usual = ("f16", "auto", None)
        return " ".join(f"{name}={value}" for name, value in short.items() if value not in usual)


AS_USUAL = EngineSettings()


class Settings(msgspec.Struct, kw_only=True):
    """Unknown keys of a newer version are passed over."""

    theme: str = "localspec"
    """Colour theme."""
    model: str | None = None
    """The target chosen last: a catalogue name or the path of a GGUF."""
    drafter: str = "auto"
    """Its drafter, as ``--drafter``."""
    n_max: int | str | None = None
    """Draft length, "auto", or None: as the drafter's makers recommend."""
    p_min: float | None = None
    """The drafter's probability under which a draft ends; None: as its makers recommend."""
    tree: int | str = 0
    """Nodes of a draft tree, "auto", or 0: chains."""
    tint: bool = True
    """Show which text was drafted."""
    panel: bool = True
    """Show the speed panel beside the chat."""
    thinking: bool | None = None
    """Thinking on or off; None: as the model's catalogue entry says."""
    system: str | None = None
    """System message of new conversations; None: the model's own."""
    max_tokens: int | None = None
    """The most tokens of an answer; None: as many as the context holds."""
    sampler: dict[str, float] = {}
    """Sampler settings that were changed by hand."""
    engine: EngineSettings = AS_USUAL
    """How the engine runs, in every mode."""


def settings_file() -> Path:
    return Path(platformdirs.user_config_dir("localspec", appauthor=False)) / "settings.json"


class SettingsStore:
    """The settings and their file. A file that does not read is put aside, not overwritten."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or settings_file()
        self.problem = ""
        """What was wrong last, to be told at the start."""
        self.tell: Callable[[str], None] = lambda _problem: None
        """Hears of what goes wrong from then on."""
        self._unwritten_told = False
        self.values = self._read()

    def change(self, **values: Any) -> None:
        """Set fields and write the file; a folder that cannot be written is told once."""
        for name, value in values.items():
            setattr(self.values, name, value)
        try:
            self._write()
        except OSError as error:
            self.problem = f"Settings cannot be kept in {self.path}: {error.strerror or error}."
            if not self._unwritten_told:
                self._unwritten_told = True
                self.tell(self.problem)

    def _read(self) -> Settings:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Settings)
        except FileNotFoundError:
            return Settings()
        except (OSError, msgspec.DecodeError) as error:
            aside = self.path.with_suffix(".json.bad")
            with contextlib.suppress(OSError):
                self.path.replace(aside)
            self.problem = f"{self.path} does not read ({error}); it is kept as {aside.name}."
            return Settings()

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # whole or not at all: another localspec may read it now
        with replacing(self.path) as beside:
            text = msgspec.json.format(msgspec.json.encode(self.values), indent=1)
            beside.write_bytes(text + b"\n")
