"""Chat templates: the Jinja source inside a GGUF, rendered as transformers and llama-server do.

A template is outside code, so it runs in Jinja's immutable sandbox with a deadline, and whatever it
raises is its own failure: the conversation goes on with the ChatML fallback and a notice. Message
text cannot forge a special token: see ``Rendered.segments``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox
from jinja2.exceptions import SecurityError

from localspec.chat.thinking import TAGS, split_thinking
from localspec.records import ModelInfo

Message = Mapping[str, str]

# The same fallback as llama.cpp (common/chat.cpp, CHATML_TEMPLATE_SRC).
CHATML = """\
{%- for message in messages -%}
  {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\n' -}}
{%- endif -%}
"""
_CHATML_END = "<|im_end|>"

_DEADLINE = 2.0
"""Seconds a rendering may take; real templates need milliseconds."""

_LARGEST = 1_000_000
"""The longest sequence, and the largest power, a template may build by ``*`` and ``**``."""

_NO_SYSTEM = "The model's template takes no system message: it was put before the first message."
_NO_SWITCH = "The model's template has no switch for thinking; --thinking was left out."


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered conversation.

    ``segments`` joined are ``text``. They are to be tokenised one by one with special tokens read:
    a border lies inside every special token's text that came from a message, so that it stays text.
    ``notices`` are sentences for the person; ``stop`` are stop strings that the fallback needs.
    """

    text: str
    segments: tuple[str, ...]
    notices: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()

    def rest(self, start: int) -> tuple[str, ...]:
        """The segments of ``text[start:]``."""
        pieces = []
        for segment in self.segments:
            if start < len(segment):
                pieces.append(segment[max(start, 0) :])
            start -= len(segment)
        return tuple(pieces)


class _Generation(jinja2.ext.Extension):
    """transformers' ``{% generation %}`` block: marks assistant text for training; only its body
    matters here."""

    tags = {"generation"}  # noqa: RUF012  (an instance variable in the base class)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Refused(jinja2.TemplateError):
    """The template called raise_exception."""


class _Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """Jinja's sandbox, also bounded in time and size: nested loops stop at a deadline, and
    ``'x' * 10**9`` or ``10 ** 10 ** 10`` are refused (Jinja itself bounds only ``range``)."""

    intercepted_binops = frozenset({"*", "**"})

    def __init__(self) -> None:
        # transformers' options (utils/chat_template_utils.py), which template authors write for.
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_Generation, jinja2.ext.loopcontrols],
        )
        self.deadline = 0.0
        self.globals["raise_exception"] = _raise_exception
        self.filters["tojson"] = _tojson

    def tick(self) -> None:
        """Called in every turn of a loop and every call of a macro."""
        if time.monotonic() > self.deadline:
            raise SecurityError(f"it runs for more than {_DEADLINE:g} s")

    def compile_bounded(self, source: str) -> tuple[jinja2.Template, set[str]]:
        """The template with a tick in every loop and macro, and the variables it asks for."""
        tree = self.parse(source)
        variables = jinja2.meta.find_undeclared_variables(tree)
        bodies: list[jinja2.nodes.For | jinja2.nodes.Macro] = [
            *tree.find_all(jinja2.nodes.For),
            *tree.find_all(jinja2.nodes.Macro),
        ]
        for node in bodies:
            tick = jinja2.nodes.Call(jinja2.nodes.EnvironmentAttribute("tick"), [], [], None, None)
            node.body.insert(0, jinja2.nodes.ExprStmt(tick).set_lineno(node.lineno))
        return self.from_string(tree), variables

    def call_binop(
        self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any
    ) -> Any:
        if operator == "**":
            if not (abs(left) <= _LARGEST and abs(right) <= 64):
                raise SecurityError("it computes a number that is too large")
        else:
            for sequence, count in ((left, right), (right, left)):
                repeated = isinstance(sequence, (str, list, tuple)) and isinstance(count, int)
                if repeated and len(sequence) * count > _LARGEST:
                    raise SecurityError("it builds a text that is too long")
        return super().call_binop(context, operator, left, right)


def _raise_exception(message: str) -> None:
    raise _Refused(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes HTML, wrong in a prompt; transformers replaces it likewise.
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


class ChatTemplate:
    """The template of one model; ``source`` None or "" means the model has none.

    ``now`` is the date that date-dependent templates see. It is fixed for the life of the template:
    a conversation that crosses midnight keeps its prefix, and with it the KV cache.
    """

    def __init__(
        self,
        source: str | None,
        bos: str = "",
        eos: str = "",
        special_tokens: Iterable[str] = (),
        *,
        add_bos: bool = False,
        now: datetime | None = None,
    ) -> None:
        self.bos = bos
        self.eos = eos
        self.add_bos = add_bos
        # A one-character token has no inside where a border could lie; none is known to exist.
        self._special = tuple(s for s in special_tokens if len(s) > 1)
        self._now = now or datetime.now()
        self._sandbox = _Sandbox()
        self._fallback, _ = self._sandbox.compile_bounded(CHATML)
        self._source = source or ""
        self._template: jinja2.Template | None = None
        self._variables: set[str] = set()
        self._notice = ""
        if not self._source:
            self._notice = "The model has no chat template; ChatML is used instead."
            return
        try:
            self._template, self._variables = self._sandbox.compile_bounded(self._source)
        except (jinja2.TemplateError, RecursionError, ValueError) as error:
            self._notice = _because("cannot be read", error)

    @classmethod
    def from_model(cls, info: ModelInfo, *, now: datetime | None = None) -> ChatTemplate:
        return cls(
            info.template,
            info.bos,
            info.eos,
            info.special_tokens,
            add_bos=info.add_bos,
            now=now,
        )

    @property
    def has_thinking_switch(self) -> bool:
        return not self._variables.isdisjoint({"enable_thinking", "thinking"})

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        thinking: bool | None = None,
    ) -> Rendered:
        """The prompt for ``messages`` ({"role", "content"}; a system message comes first).

        ``thinking`` None leaves the template its own default. A literal BOS text at the start is
        removed when the vocabulary adds a BOS, so that there is exactly one.
        """
        notices = []
        if thinking is not None and self._template and not self.has_thinking_switch:
            notices.append(_NO_SWITCH)
        failure = self._notice
        if self._template is not None:
            try:
                text, merged = self._with_system(messages, add_generation_prompt, thinking)
            # The template is outside code: it may raise anything, and the chat goes on.
            except Exception as error:  # noqa: BLE001
                failure = _because("failed", error)
            else:
                return self._finish(text, [*notices, _NO_SYSTEM] if merged else notices)
        text = self._run(self._fallback, messages, add_generation_prompt, None)
        # Where "<|im_end|>" is no token of the vocabulary, generation ends at its text.
        stop = () if _CHATML_END in self._special else (_CHATML_END,)
        return self._finish(text, [failure], stop)

    def _with_system(
        self, messages: Sequence[Message], add_generation_prompt: bool, thinking: bool | None
    ) -> tuple[_Marked, bool]:
        """Render; a system message that is refused (Gemma-2) or left out goes into turn one."""
        template = self._template
        assert template is not None
        if not messages or messages[0]["role"] != "system":
            return self._run(template, messages, add_generation_prompt, thinking), False
        system, rest = messages[0]["content"], messages[1:]
        try:
            marked = self._run(template, messages, add_generation_prompt, thinking)
        except _Refused:
            if not rest:
                raise
        else:
            if not rest or not system.strip() or system.strip() in marked.plain:
                return marked, False
            without = self._run(template, rest, add_generation_prompt, thinking)
            if without.plain != marked.plain:  # it is there in another form
                return marked, False
        # Joined as llama.cpp joins them (common/chat.cpp, system_message_not_supported).
        first = {**rest[0], "content": f"{system}\n{rest[0]['content']}"}
        merged = [first, *rest[1:]]
        return self._run(template, merged, add_generation_prompt, thinking), True

    def _run(
        self,
        template: jinja2.Template,
        messages: Sequence[Message],
        add_generation_prompt: bool,
        thinking: bool | None,
    ) -> _Marked:
        sentinel = _unused_character(self._source, messages)
        variables: dict[str, Any] = {
            "messages": [self._guarded(message, sentinel) for message in messages],
            "add_generation_prompt": add_generation_prompt,
            "bos_token": self.bos,
            "eos_token": self.eos,
            # No "tools": some templates loop over it without asking, and undefined is empty.
            "strftime_now": self._now.strftime,
            # llama-server gives these two; templates of Llama 3 and Firefunction read them.
            "date_string": self._now.strftime("%d %b %Y"),
            "datetime": self._now.strftime("%b %d %Y"),
        }
        if thinking is not None:
            variables |= {"enable_thinking": thinking, "thinking": thinking}
        self._sandbox.deadline = time.monotonic() + _DEADLINE
        return _Marked(template.render(variables), sentinel)

    def _guarded(self, message: Message, sentinel: str) -> dict[str, str]:
        """The message with the sentinel inside each text of a special token, after its first
        character, where neither a trim nor a test of the first character meets it."""
        content = message["content"]
        guarded: dict[str, str] = dict(message)
        special = self._special
        if message["role"] == "assistant":
            # A model's own thinking tags are read by templates (to leave earlier thinking out).
            special = tuple(s for s in special if s not in TAGS)
            if "<|channel|>" in self._source and "<|channel|>" in content:
                # gpt-oss takes thinking apart from the answer and refuses its tags in the text.
                thought, content = split_thinking(content)
                if thought:
                    guarded["thinking"] = _insert(sentinel, thought, special)
        guarded["content"] = _insert(sentinel, content, special)
        return guarded

    def _finish(self, marked: _Marked, notices: list[str], stop: tuple[str, ...] = ()) -> Rendered:
        text = marked.text
        if self.add_bos and self.bos and text.startswith(self.bos):
            text = text[len(self.bos) :]
        segments = tuple(piece for piece in text.split(marked.sentinel) if piece)
        return Rendered("".join(segments), segments, tuple(notices), stop)


@dataclass(frozen=True, slots=True)
class _Marked:
    """Rendered text that still holds the sentinels."""

    text: str
    sentinel: str

    @property
    def plain(self) -> str:
        return self.text.replace(self.sentinel, "")


def _because(what: str, error: BaseException) -> str:
    reason = str(error).strip() or type(error).__name__
    return f"The model's chat template {what} ({reason}); ChatML is used instead."


def _unused_character(source: str, messages: Sequence[Message]) -> str:
    """A character, private-use if possible, that neither the template nor any message contains."""
    used = set(source).union(*(message["content"] for message in messages))
    return next(chr(code) for code in range(0xE000, 0x110000) if chr(code) not in used)


def _insert(sentinel: str, content: str, special: Iterable[str]) -> str:
    """``content`` with ``sentinel`` after the first character of every text of a special token,
    overlapping ones included."""
    places = set()
    for token in special:
        at = content.find(token)
        while at >= 0:
            places.add(at + 1)
            at = content.find(token, at + 1)
    if not places:
        return content
    borders = [0, *sorted(places), len(content)]
    pieces = (content[a:b] for a, b in pairwise(borders))
    return sentinel.join(pieces)
