"""Workloads: named sets of prompts, those that come with localspec and the user's own files
(``prompt_files``), and what puts them deep into a context."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.bench import prompt_files
from localspec.errors import UsageError
from localspec.paths import kind_here, kind_of, written
from localspec.records import ONE_PROMPT
from localspec.resources import asset

BUILT_IN = {
    "chat8": "everyday questions",
    "code9": "programming tasks",
    "rewrite": "edit this file: most of the answer stands in the prompt",
    "summarise": "long texts, short answers",
    "json": "structured output",
    "reasoning": "problems to be thought through",
    "multilingual": "ten questions, nine languages",
    "long-context": "questions about 4k and 16k tokens of text",
}
"""Those that come with localspec, and what they hold."""
DEFAULT = ("chat8", "code9")
SPEED_BENCH, OF_EACH, OF_ONE = "speed-bench", 2, 16
"""NVIDIA's, from the Hub: so many prompts of each of its categories, or of one
("speed-bench:math"). There are 80 of each, more than there is time for at concurrency 1."""

SPEED_BENCHES = (SPEED_BENCH, "speedbench")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation to be answered; ``messages`` are (role, content) pairs, a user's last.

    ``depth``: so many tokens long is the whole prompt to be, by a text put before what the user
    says last (``bench.depth``); 0: as it is.
    """

    id: str
    workload: str
    messages: prompt_files.Messages
    depth: int = 0

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


def load(names: Sequence[str], prompt: str | None = None) -> tuple[Workload, ...]:
    """The workloads called ``names`` (default: ``DEFAULT``), or the one prompt given.

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
    for name in dict.fromkeys(names or DEFAULT):
        workload = _load_one(name, taken=(*BUILT_IN, *loaded))
        loaded[workload.name] = workload
    return tuple(loaded.values())


def at_depths(workloads: Sequence[Workload], depths: Sequence[int]) -> tuple[Workload, ...]:
    """Every workload at each of these depths, in tokens (0: as it is), called "chat8@4k"."""
    if not depths:
        return tuple(workloads)
    return tuple(_at_depth(w, depth) for depth in dict.fromkeys(depths) for w in workloads)


def _at_depth(workload: Workload, depth: int) -> Workload:
    if not depth:
        return workload
    name = f"{workload.name}@{depth_label(depth)}"
    prompts = (replace(p, workload=name, depth=depth) for p in workload.prompts)
    return Workload(name, tuple(prompts))


def one_question(prompts: Sequence[Prompt]) -> bool:
    """Are they one prompt, at one or several depths? It stands for no others: what can be told of
    it, depth by depth, is told by running it again and again."""
    return len({p.id for p in prompts}) == 1 and len({p.depth for p in prompts}) == len(prompts)


def depth_label(depth: int) -> str:
    """ "4k" of 4096, "1000" of 1000."""
    return f"{depth // 1024}k" if depth and depth % 1024 == 0 else str(depth)


def _load_one(name: str, taken: Sequence[str]) -> Workload:
    if name in BUILT_IN:
        return _read(asset(f"workloads/{name}.jsonl"), name)
    path = written(name)
    if _is_path(name, path):
        own = path.resolve().name if kind_of(path) == "folder" else path.stem
        return _read(path, own if own not in taken else str(path))
    found, category = _named(name)
    if found in SPEED_BENCHES:
        return _speed_bench(category)
    near = difflib.get_close_matches(name, BUILT_IN, 1, 0.5)
    meant = f"Did you mean {near[0]}? " if near else ""
    raise UsageError(
        f"There is no workload {name!r}.",
        f"{meant}Known are {', '.join((*BUILT_IN, SPEED_BENCH))}; one of your own is a folder, or "
        f"a file that ends in {', '.join(prompt_files.ENDINGS)}.",
    )


def on_the_hub(name: str) -> bool:
    """Is the Hub asked for the workload of this name? Raises ``UsageError`` as ``load`` does for
    a path that can be none."""
    if name in BUILT_IN or _is_path(name, written(name)):
        return False
    return _named(name)[0] in SPEED_BENCHES


def _named(name: str) -> tuple[str, str]:
    """A name and its category: "speed-bench" and "math" of "speed_bench:math"."""
    found, _, category = name.lower().replace("_", "-").partition(":")
    return found, category


def _is_path(name: str, path: Path) -> bool:
    has_ending = path.suffix.lower() in prompt_files.ENDINGS
    looks_so = has_ending or len(path.parts) > 1 or name.endswith(("/", os.sep))
    return looks_so or kind_here(path) is not None


def _speed_bench(category: str) -> Workload:
    from localspec.hub import speed_bench  # the Hub's client is slow to import

    groups: dict[str, list[speed_bench.Question]] = {}
    for question in speed_bench.questions():
        if prompt_files.PLACEHOLDER not in question.turns[0]:
            groups.setdefault(question.category.lower().replace("_", "-"), []).append(question)
    if not groups:
        raise UsageError(
            "SPEED-Bench is published with placeholders in place of its prompts.",
            "Fetch them with the script that NVIDIA publishes for it, and give the .jsonl that it "
            "writes: --workload FILE.jsonl.",
        )
    if category and category not in groups:
        raise UsageError(
            f"SPEED-Bench has no category {category!r} whose prompts are published.",
            f"There are {', '.join(sorted(groups))}.",
        )
    name = f"{SPEED_BENCH}:{category}" if category else SPEED_BENCH
    chosen = (
        groups[category][:OF_ONE]
        if category
        else [question for group in groups.values() for question in group[:OF_EACH]]
    )
    return Workload(
        name, tuple(Prompt(q.question_id, name, (("user", q.turns[0]),)) for q in chosen)
    )


def _read(path: Path, name: str) -> Workload:
    found = prompt_files.read(path)
    return Workload(name, tuple(Prompt(p.id, name, p.messages, p.depth) for p in found))
