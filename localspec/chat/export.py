"""A kept conversation as a file: Markdown for people, JSON that ``/load`` reads."""

from __future__ import annotations

from pathlib import Path

from localspec.chat.conversation import Message, _Saved, write
from localspec.chat.thinking import split_thinking
from localspec.reference import title_of
from localspec.store import Talk


def export(talk: Talk, path: Path) -> None:
    """Write ``talk`` as JSON where ``path`` ends in .json, else as Markdown. Raises UsageError."""
    write(path, to_json(talk) if path.suffix.lower() == ".json" else to_markdown(talk))


def to_json(talk: Talk) -> str:
    """The form of ``/save``, without token ids; what is known of each answer is in settings."""
    saved = _Saved(
        model=talk.model,
        system=talk.system,
        thinking=talk.thinking,
        messages=[Message(turn.role, turn.content) for turn in talk.turns],
        settings={
            "title": talk.title,
            "answers": [
                {name: fact for name, fact in turn.facts.items() if name != "origin"}
                for turn in talk.turns
                if turn.facts
            ],
        },
    )
    return saved.model_dump_json(indent=1) + "\n"


def to_markdown(talk: Talk) -> str:
    parts = [f"# {talk.title}", f"Model: {title_of(talk.model)}"]
    if talk.system:
        parts += ["## System", talk.system]
    for turn in talk.turns:
        if turn.role == "user":
            parts += ["## Question", turn.content]
            continue
        thinking, answer = split_thinking(turn.content, turn.facts.get("prompt_end", ""))
        parts.append("## Answer")
        if thinking.strip():
            quoted = "\n".join(f"> {line}".rstrip() for line in thinking.strip().splitlines())
            parts.append(f"> *Thinking*\n>\n{quoted}")
        parts.append(answer.strip())
        tps = turn.facts.get("tps")
        if tps is not None:
            parts.append(f"*{turn.facts['tokens']} tokens, {tps:.1f} tok/s*")
    return "\n\n".join(parts) + "\n"
