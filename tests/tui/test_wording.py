"""Messages of the shared rooms, as the app says them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import localspec
from localspec.errors import ContextTooSmall
from localspec.tui.wording import in_app

ROOT = Path(localspec.__file__).parent
SHARED = [
    *(ROOT / f"{name}.py" for name in ("catalog", "discovery", "errors", "fit", "pairing")),
    *(
        path
        for room in ("chat", "decoding", "drafters", "engine", "hub", "llama", "models")
        for path in sorted((ROOT / room).glob("*.py"))
        if not path.stem.endswith("command") and path.stem != "export"
    ),
    *(ROOT / "bench" / f"{name}.py" for name in ("advice", "prepare")),
]
"""What the app's screens call; errors and notices from there are shown in it."""
HAS_A_KEY = re.compile(
    r"localspec (models|history|compare)\b"
    r"|(?<!\S)--(ctx|drafter|n-max|(draft-)?kv-type|gpu-layers|threads|flash-attn)\b"
)


def said() -> Iterator[tuple[str, str]]:
    """(where, text) of every string in the shared rooms that names a command or an option."""
    for path in SHARED:
        tree = ast.parse(path.read_text("utf-8"))
        notes = {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        inside: set[ast.AST] = set()
        for node in ast.walk(tree):
            if node in notes or node in inside:
                continue
            if isinstance(node, ast.JoinedStr):
                inside |= set(ast.walk(node))
                text = "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "7"
                    for part in node.values
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            else:
                continue
            if HAS_A_KEY.search(text):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", text


def test_what_has_a_key_in_the_app_is_not_said_as_a_command() -> None:
    found = list(said())
    assert len(found) > 20
    left = [(where, in_app(text)) for where, text in found]
    # a command for what the app cannot do is told as a whole
    bare = [(w, re.sub(r"`localspec (chat|bench) [^`]*`", "", text)) for w, text in left]
    assert [(w, text) for w, text in bare if HAS_A_KEY.search(text)] == []


@pytest.mark.parametrize(
    ("text", "mode", "shown"),
    [
        ("Get it with: localspec models pull qwen3-8b --quant Q4_K_M", "chat", "p on qwen3-8b,"),
        ("Get it with: localspec models pull hf:o/r:Q8_0", "chat", "F2, then a with hf:o/r:Q8_0,"),
        ("The drafter x is left out. Get it with: localspec models pull x.1", "ab", "p on x.1, "),
        ("Draft at most 2: --n-max 2.", "chat", "Draft at most 2: Ctrl+L."),
        ("Draft at most 2: --n-max 2.", "ab", "Draft at most 2: l."),
        ("Draft chains instead, or run without speculation: --drafter none.", "bench", ": o, then"),
        ("in GGUF: `localspec models search M-8B`.", "chat", "F2, then a, searches for M-8B."),
        ("in GGUF: `localspec models search M-8B`.", "add", "in GGUF: search here for M-8B."),
        (ContextTooSmall.of(9, 8).hint, "chat", "Shorten the prompt"),
        ("give a shorter prompt, or --ctx to try it.", "ab", "larger context to try it: Ctrl+T."),
        ("Close other programs.", "chat", "Close other programs."),
    ],
)
def test_the_key_of_the_mode_is_named(text: str, mode: str, shown: str) -> None:
    assert shown in in_app(text, mode)
    assert in_app(in_app(text, mode), mode) == in_app(text, mode)
