"""Workloads: named sets of prompts, those that come with localspec and the user's own files.

A user's file is ``.txt`` (one prompt a line, blank lines ignored) or ``.jsonl`` (one JSON object a
line: ``{"id": "...", "prompt": "..."}`` or ``{"id": "...", "messages": [{"role": "user",
"content": "..."}]}``; ``id`` may be left out). A prompt of several lines belongs into a ``.jsonl``.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from localspec import validation
from localspec.errors import UsageError
from localspec.records import ONE_PROMPT
from localspec.resources import asset

BUILT_IN = ("chat8", "code9")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation to be answered; ``messages`` are (role, content) pairs, a user's last."""

    id: str
    workload: str
    messages: tuple[tuple[str, str], ...]

    def with_system(self, system: str | None) -> list[dict[str, str]]:
        """The messages as a chat template wants them, ``system`` first unless they have one."""
        pairs = self.messages
        if system and pairs[0][0] != "system":
            pairs = (("system", system), *pairs)
        return [{"role": role, "content": content} for role, content in pairs]


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    prompts: tuple[Prompt, ...]


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid")

    role: Literal["system", "user", "assistant"]
    content: str = Field(min_length=1)


class _Line(BaseModel):
    """One line of a ``.jsonl`` workload. Further keys (a category, a source) are ignored."""

    id: str | None = None
    prompt: str | None = Field(default=None, min_length=1)
    messages: list[_Message] | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> _Line:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError('needs either "prompt" or "messages"')
        if self.messages is not None and (not self.messages or self.messages[-1].role != "user"):
            raise ValueError('the last of "messages" must have the role "user"')
        return self

    def pairs(self) -> tuple[tuple[str, str], ...]:
        if self.prompt is not None:
            return (("user", self.prompt),)
        return tuple((m.role, m.content) for m in self.messages or ())


def load(names: Sequence[str], prompt: str | None = None) -> tuple[Workload, ...]:
    """The workloads called ``names`` (default: all built-in ones), or the one prompt given.

    Raises ``UsageError`` for an unknown name, an unreadable or empty file and a line it cannot
    use (with file and line).
    """
    if prompt is not None:
        if names:
            raise UsageError("--prompt and --workload exclude each other.", "Give one of the two.")
        if not prompt.strip():
            raise UsageError("The prompt is empty.", 'Give one: --prompt "Why is it blue?".')
        one = Prompt(ONE_PROMPT, ONE_PROMPT, (("user", prompt),))
        return (Workload(ONE_PROMPT, (one,)),)
    loaded: dict[str, Workload] = {}
    for name in dict.fromkeys(names or BUILT_IN):
        workload = _load_one(name, taken=(*BUILT_IN, *loaded))
        loaded[workload.name] = workload
    return tuple(loaded.values())


def _load_one(name: str, taken: Sequence[str]) -> Workload:
    if name in BUILT_IN:
        return _read(asset(f"workloads/{name}.jsonl"), name)
    path = Path(name).expanduser()
    if path.suffix.lower() in (".txt", ".jsonl") or path.exists():
        return _read(path, path.stem if path.stem not in taken else str(path))
    near = difflib.get_close_matches(name, BUILT_IN, 1, 0.5)
    meant = f"Did you mean {near[0]}? " if near else ""
    raise UsageError(
        f"There is no workload {name!r}.",
        f"{meant}Known are {' and '.join(BUILT_IN)}; a file of your own ends in .txt or .jsonl.",
    )


def _read(path: Path, name: str) -> Workload:
    if path.is_dir():
        raise UsageError(f"The workload {path} is a folder.", "Give a .txt or .jsonl file.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UsageError(
            f"The workload file {path} does not exist.",
            f"Check the path, or use {' or '.join(BUILT_IN)}.",
        ) from None
    except OSError as error:
        raise UsageError(
            f"The workload file {path} cannot be read ({error.strerror}).",
            "Check that it may be read.",
        ) from None
    except UnicodeDecodeError:
        raise UsageError(
            f"The workload file {path} is not UTF-8 text.", "Save it as UTF-8 .txt or .jsonl."
        ) from None
    lines = [(i, line.strip()) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
    if path.suffix.lower() == ".jsonl":
        prompts = [_parse(line, path, i, name) for i, line in lines]
    elif path.suffix.lower() == ".txt":
        prompts = [Prompt(f"line-{i}", name, (("user", line),)) for i, line in lines]
    else:
        raise UsageError(
            f"The workload file {path} is neither .txt nor .jsonl.",
            "Name it .txt (one prompt a line) or .jsonl (one JSON object a line).",
        )
    if not prompts:
        raise UsageError(
            f"The workload file {path} holds no prompts.",
            "Put one prompt a line into it, or use " + " or ".join(BUILT_IN) + ".",
        )
    seen: set[str] = set()
    for prompt in prompts:
        if prompt.id in seen:
            raise UsageError(
                f"The workload file {path} has the id {prompt.id!r} twice.", "Make ids differ."
            )
        seen.add(prompt.id)
    return Workload(name, tuple(prompts))


def _parse(line: str, path: Path, number: int, workload: str) -> Prompt:
    try:
        row = _Line.model_validate_json(line)
    except ValidationError as error:
        raise UsageError(
            f"{path}, line {number}: {validation.sentence(error.errors()[0])}.",
            'A line is {"id": "...", "prompt": "..."} or {"id": "...", "messages": [...]}.',
        ) from None
    return Prompt(row.id or f"line-{number}", workload, row.pairs())
