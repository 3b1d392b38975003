"""The user's own prompts: text, JSON lines, JSON, saved conversations, folders of them.

``.txt``: one prompt a line, blank lines ignored. ``.jsonl``: one object a line, with one of
``prompt`` (text), ``messages`` (OpenAI's roles and contents), ``turns`` (what a user says, of which
the first is asked: the others would need answers) or ``body`` (a request of OpenAI's batches, with
``messages``); ``id`` or ``custom_id`` may name it, ``depth`` puts it behind so many tokens of text.
``.json``: a list of such objects or of texts, or one conversation, of which every question is asked
with what came before it: what ``/save`` and the chat's export write. ``.md``: the whole file is one
prompt. In a folder a ``.txt``, too, is one prompt, and the others are as they would be alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from localspec import validation
from localspec.errors import UsageError
from localspec.paths import kind_of

ENDINGS = (".txt", ".jsonl", ".json", ".md")
LINE = 'Each is {"id": "...", "prompt": "..."} or {"id": "...", "messages": [...]}.'
PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED"
"""What stands in SPEED-Bench's published files in place of prompts under another licence."""

Messages = tuple[tuple[str, str], ...]
"""(role, content) pairs."""


@dataclass(frozen=True, slots=True)
class Found:
    """A prompt of a file; its last message is the user's. ``depth``: see ``workloads.Prompt``."""

    id: str
    messages: Messages
    depth: int = 0


def read(path: Path) -> list[Found]:
    """The prompts of a file or folder.

    Raises ``UsageError`` for one that cannot be read or used, with the place in it.
    """
    kind = kind_of(path)
    found = _folder(path) if kind == "folder" else _file(path)
    if not found:
        what = "folder" if kind == "folder" else "file"
        raise UsageError(
            f"The workload {what} {path} holds no prompts.",
            f"Put prompts into it ({', '.join(ENDINGS)}), or use a workload of localspec's.",
        )
    seen: set[str] = set()
    for prompt in found:
        if prompt.id in seen:
            raise UsageError(
                f"The workload file {path} has the id {prompt.id!r} twice.", "Make ids differ."
            )
        seen.add(prompt.id)
    return found


def _folder(folder: Path) -> list[Found]:
    found = []
    try:
        inside = sorted(folder.iterdir())
    except OSError as error:
        raise UsageError(
            f"The workload folder {folder} cannot be read ({error.strerror}).",
            "Check that it may be read.",
        ) from None
    for path in inside:
        if kind_of(path) != "file" or path.suffix.lower() not in ENDINGS:
            continue
        if path.suffix.lower() in (".txt", ".md"):
            found += _whole(path)
        else:
            found += [Found(f"{path.stem}/{p.id}", p.messages, p.depth) for p in _file(path)]
    return found


def _file(path: Path) -> list[Found]:
    ending = path.suffix.lower()
    if kind_of(path) and ending not in ENDINGS:
        raise UsageError(
            f"The workload file {path} is none of {', '.join(ENDINGS)}.",
            "Name it .txt (one prompt a line), .md (one prompt), .jsonl or .json.",
        )
    if ending == ".md":
        return _whole(path)
    text = _text(path)
    if ending == ".json":
        return _json(text, path)
    lines = [(i, line.strip()) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
    if ending == ".txt":
        return [Found(f"line-{i}", (("user", line),)) for i, line in lines]
    return [_one(_decode(line, f"{path}, line {i}"), f"{path}, line {i}", i) for i, line in lines]


def _whole(path: Path) -> list[Found]:
    text = _text(path).strip()
    return [Found(path.name, (("user", text),))] if text else []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UsageError(
            f"The workload file {path} does not exist.",
            "Check the path, or use a workload of localspec's.",
        ) from None
    except OSError as error:
        raise UsageError(
            f"The workload file {path} cannot be read ({error.strerror}).",
            "Check that it may be read.",
        ) from None
    except UnicodeDecodeError:
        raise UsageError(
            f"The workload file {path} is not UTF-8 text.", "Save it as UTF-8."
        ) from None


def _decode(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"{where}: this is not valid JSON ({error}).", LINE) from None


def _json(text: str, path: Path) -> list[Found]:
    if not text.strip():
        return []
    content = _decode(text, str(path))
    if isinstance(content, dict) and "messages" in content:
        return _conversation(content, path)
    if not isinstance(content, list):
        content = [content]
    elif content and all(isinstance(m, dict) and "role" in m for m in content):
        return _conversation({"messages": content}, path)
    return [_one(item, f"{path}, item {i}", i) for i, item in enumerate(content, 1)]


def _conversation(content: dict[str, Any], path: Path) -> list[Found]:
    """Every question of it, each with all that came before."""
    line = _checked(content, str(path))
    pairs = line.pairs()
    questions = [i for i, (role, _) in enumerate(pairs, 1) if role == "user"]
    return [Found(f"turn-{n}", pairs[:end], line.depth) for n, end in enumerate(questions, start=1)]


def _one(item: Any, where: str, number: int) -> Found:
    line = _checked({"prompt": item} if isinstance(item, str) else item, where)
    pairs = line.pairs()
    if PLACEHOLDER in pairs[-1][1]:
        raise UsageError(
            f"{where}: this is SPEED-Bench's placeholder, not its prompt.",
            "Fetch the full prompts first, with the script that NVIDIA publishes for it.",
        )
    return Found(line.id or line.custom_id or f"line-{number}", pairs, line.depth)


def _checked(content: Any, where: str) -> _Line:
    try:
        return _Line.model_validate(content)
    except ValidationError as error:
        raise UsageError(f"{where}: {validation.sentence(error.errors()[0])}.", LINE) from None


class _Part(BaseModel):
    """A part of a message's content as OpenAI has them; models that see are not run here."""

    type: Literal["text"]
    text: str


class _Message(BaseModel):
    # what else a recorded message holds (a name, a refusal, token counts) is no part of the prompt
    model_config = ConfigDict(extra="ignore")

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[_Part]

    @model_validator(mode="after")
    def _says_something(self) -> _Message:
        if self.role == "user" and not self.text.strip():
            raise ValueError("what the user says must not be empty")
        return self

    @property
    def text(self) -> str:
        return (
            self.content if isinstance(self.content, str) else "".join(p.text for p in self.content)
        )


class _Body(BaseModel):
    messages: list[_Message]


class _Line(BaseModel):
    """One prompt. Further keys (a category, a source) are ignored."""

    id: str | None = None
    custom_id: str | None = None
    prompt: str | None = Field(default=None, min_length=1)
    messages: list[_Message] | None = None
    turns: list[str] | None = Field(default=None, min_length=1)
    body: _Body | None = None
    system: str = ""
    depth: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _one_of_them(self) -> _Line:
        given = [w for w in (self.prompt, self.messages, self.turns, self.body) if w is not None]
        if len(given) != 1:
            raise ValueError('needs either "prompt" or "messages"')
        if not any(role == "user" for role, _ in self.pairs()):
            raise ValueError('one of "messages" must have the role "user"')
        return self

    def pairs(self) -> Messages:
        """Up to the user's last message: the answer that a recorded conversation ends with is what
        is generated anew."""
        messages = self.body.messages if self.body else self.messages
        if messages is None:
            return (("user", self.prompt or (self.turns or [""])[0]),)
        system: Sequence[tuple[str, str]] = [("system", self.system)] if self.system else []
        pairs = [*system, *((_ROLES.get(m.role, m.role), m.text) for m in messages)]
        while pairs and pairs[-1][0] != "user":
            pairs.pop()
        return tuple(pairs)


_ROLES = {"developer": "system"}
"""OpenAI's newer name for it, which chat templates do not know."""
