"""What a check found: a line for a person, its facts for a script, a remedy where one is needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["ok", "note", "warning", "broken"]
"""``note``: worth knowing; ``warning``: works, but worse than it could; ``broken``: does not."""


@dataclass(frozen=True, slots=True)
class Finding:
    """``problem`` and ``remedy`` are sentences; a finding that is ok has neither. ``commands`` do
    what the remedy says, each by itself."""

    check: str
    said: str
    state: State = "ok"
    problem: str = ""
    remedy: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
