"""A conversation: its messages, and the ids the engine was given and produced for them.

The ids matter as much as the text. Tokenising an answer again may give other ids than the model
generated, and then the KV cache behind them is lost. So a prompt is the rendered conversation with
the longest known beginning replaced by the very ids that were used for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pydantic

from localspec import validation
from localspec.chat.template import ChatTemplate
from localspec.errors import ContextTooSmall, UsageError
from localspec.records import Generation

_GIVE_SAVED = "Give a file that /save wrote."

Tokenize = Callable[[tuple[str, ...], bool], tuple[int, ...]]
"""Ids of segments; the flag asks for a BOS where the vocabulary wants one."""


@dataclass(frozen=True, slots=True)
class Message:
    role: Literal["user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A beginning of the conversation whose exact ids are known: ``text`` is what they say."""

    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the engine is to continue. ``text`` is what the template rendered, ``dropped`` how many
    turns were dropped from the context to make room for this one."""

    text: str
    ids: tuple[int, ...]
    stop: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    dropped: int = 0


Turns = tuple[tuple[Message, ...], int]
"""A conversation's messages, and which of them is the oldest one in the context."""


@dataclass
class Conversation:
    """``messages`` alternate user, assistant, ...; ``first`` is the oldest one still in the context
    (older turns were dropped from it, not from the transcript)."""

    template: ChatTemplate
    system: str = ""
    thinking: bool | None = None
    messages: list[Message] = field(default_factory=list)
    first: int = 0
    marks: list[Mark] = field(default_factory=list)

    # ---- turns ----------------------------------------------------------------------------

    def ask(self, text: str) -> None:
        self.messages.append(Message("user", text))

    def answered(self, prompt: Prompt, run: Generation) -> None:
        """The engine answered ``prompt``: keep the text and the ids."""
        self.messages.append(Message("assistant", run.text))
        self._mark(prompt.text, prompt.ids)
        if run.stop == "stop":
            return  # the text was cut at the stop string, the ids were not: they do not match
        # The template writes the end of the turn itself, so an end-of-generation id stays out.
        ids = run.tokens[:-1] if run.stop == "eog" else run.tokens
        if ids:
            self._mark(prompt.text + run.text, prompt.ids + ids)

    def broken_off(self, text: str) -> None:
        """The engine died while answering; ``text`` is what had arrived, its ids are unknown."""
        self.messages.append(Message("assistant", text))

    def drop_answer(self) -> bool:
        """Remove the last answer, so that another one can be generated; was there one?"""
        if not self.messages or self.messages[-1].role != "assistant":
            return False
        self.messages.pop()
        return True

    def drop_turn(self) -> bool:
        """Remove the last question, with its answer where it has one; was there one?"""
        self.drop_answer()
        if not self.messages:
            return False
        self.messages.pop()
        return True

    @property
    def turns(self) -> Turns:
        """What to ``restore`` where nothing comes of what is begun now."""
        return tuple(self.messages), self.first

    def restore(self, turns: Turns) -> None:
        """As it was then, with the turns that were dropped from the context since."""
        messages, self.first = turns
        self.messages[:] = messages

    def reset(self) -> None:
        """Forget all turns; the system message stays."""
        self.messages.clear()
        self.marks.clear()
        self.first = 0

    # ---- prompt ---------------------------------------------------------------------------

    def prompt(self, tokenize: Tokenize, n_ctx: int, reserve: int) -> Prompt:
        """The prompt for the last question, with at least ``reserve`` tokens left for the answer.

        When they are not, the oldest turns are dropped until half the context is free, not just
        enough of it: each drop costs a new prefill of all that follows, so it must be seldom.
        Raises ContextTooSmall when the last question alone does not fit; then none is dropped.
        """
        first, last = self.first, len(self.messages) - 1
        prompt = self._render(tokenize, first)
        if len(prompt.ids) + reserve > n_ctx:
            while first < last and len(prompt.ids) > n_ctx // 2:
                first += 2
                prompt = self._render(tokenize, first)
        if len(prompt.ids) >= n_ctx:
            raise ContextTooSmall.of(len(prompt.ids), n_ctx)
        dropped, self.first = (first - self.first) // 2, first
        return replace(prompt, dropped=dropped)

    def _render(self, tokenize: Tokenize, first: int) -> Prompt:
        system = [{"role": "system", "content": self.system}] if self.system else []
        turns = [{"role": m.role, "content": m.content} for m in self.messages[first:]]
        rendered = self.template.render([*system, *turns], thinking=self.thinking)
        known = [mark for mark in self.marks if rendered.text.startswith(mark.text)]
        best = max(known, key=lambda mark: len(mark.text), default=None)
        if best is None:
            ids = tokenize(rendered.segments, True)
        else:
            ids = best.ids + tokenize(rendered.rest(len(best.text)), False)
        return Prompt(rendered.text, ids, rendered.stop, rendered.notices)

    def _mark(self, text: str, ids: tuple[int, ...]) -> None:
        # Marks that do not begin this text belong to an answer or a system message that is gone.
        kept = [m for m in self.marks if text.startswith(m.text) and m.text != text]
        self.marks = [*kept, Mark(text, ids)]

    # ---- files ----------------------------------------------------------------------------

    def save(self, path: Path, model: str, settings: dict[str, Any]) -> None:
        """Write the conversation as JSON. ``model`` says whose ids these are."""
        saved = _Saved(
            model=model,
            system=self.system,
            thinking=self.thinking,
            messages=self.messages,
            first=self.first,
            marks=self.marks,
            settings=settings,
        )
        write(path, saved.model_dump_json(indent=1) + "\n")

    @classmethod
    def load(cls, path: Path, template: ChatTemplate, model: str) -> Conversation:
        """Read what ``save`` wrote. Ids of another model mean nothing here and are left out."""
        try:
            saved = _Saved.model_validate_json(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UsageError(
                f"The conversation {path} cannot be read: {error.strerror or error}.", _GIVE_SAVED
            ) from error
        except UnicodeDecodeError as error:
            raise UsageError(
                f"{path} is not a saved conversation: it is not UTF-8 text.", _GIVE_SAVED
            ) from error
        except pydantic.ValidationError as error:
            raise UsageError(
                f"{path} is not a saved conversation: {validation.sentence(error.errors()[0])}.",
                _GIVE_SAVED,
            ) from error
        return cls(
            template,
            saved.system,
            saved.thinking,
            saved.messages,
            saved.first,
            saved.marks if saved.model == model else [],
        )


def write(path: Path, text: str) -> None:
    """Write a conversation's text. Raises UsageError where the file cannot be written."""
    try:
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(
            f"The conversation cannot be written to {path}: {error.strerror or error}.",
            "Choose another file; the conversation goes on.",
        ) from error


class _Saved(pydantic.BaseModel):
    """The file that ``save`` writes."""

    format: Literal["localspec conversation 1"] = "localspec conversation 1"
    model: str
    system: str = ""
    thinking: bool | None = None
    messages: list[Message]
    first: int = 0
    marks: list[Mark] = []
    settings: dict[str, Any] = {}

    @pydantic.model_validator(mode="after")
    def _whole_turns(self) -> _Saved:
        roles = [message.role for message in self.messages]
        if roles != ["user", "assistant"] * (len(roles) // 2):
            raise ValueError("the messages are not questions and answers in turn")
        if self.first % 2 or not 0 <= self.first <= len(roles):
            raise ValueError("first does not point at a question")
        return self
