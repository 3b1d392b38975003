"""What the app remembers from one start to the next: a small JSON file among the user's settings.

msgspec reads it, which every engine message needs anyway: pydantic alone takes a fifth of the time
in which the app must have painted.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import platformdirs

from localspec.whole_file import replacing


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


def settings_file() -> Path:
    return Path(platformdirs.user_config_dir("localspec", appauthor=False)) / "settings.json"


class SettingsStore:
    """The settings and their file. A file that does not read is put aside, not overwritten."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or settings_file()
        self.problem = ""
        self.values = self._read()

    def change(self, **values: Any) -> None:
        """Set fields and write the file; a folder that cannot be written is told once."""
        for name, value in values.items():
            setattr(self.values, name, value)
        try:
            self._write()
        except OSError as error:
            self.problem = f"Settings cannot be kept in {self.path}: {error.strerror or error}."

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
