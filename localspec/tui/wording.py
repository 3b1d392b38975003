"""What messages say of commands and options, said with the keys of the app.

Errors and notices come from rooms that the command line shares, and name its way. Here is the one
place that knows the app's.
"""

from __future__ import annotations

import re

_DRAFTER = {"chat": "Ctrl+D", "ab": "d", "bench": "o"}
_LENGTH = {"chat": "Ctrl+L", "ab": "l", "bench": "o"}
_X = r"(?P<x>[^\s`]*[^\s`.,])"
"""A name, a path or a place on the Hub."""
_ON_HUB = r"(?P<x>hf:[^\s`]*[^\s`.,])"
_PULL = r"Get it with:? `?localspec models pull "

_WAYS: tuple[tuple[str, str], ...] = (
    # models
    (rf"{_PULL}{_ON_HUB}`?\.?", "F2, then a with {x}, gets it."),
    (rf"{_PULL}{_X}(?: --quant \S+)?`?\.?", "F2, then p on {x}, gets it."),
    (rf"See what it offers: localspec models inspect {_X}\.?", "F2, then a with {x}, shows it."),
    (rf"`localspec models inspect {_X}`", "F2, then a with {x},"),
    (rf"`localspec models search {_X}`", "{search} for {x}"),
    (rf"localspec models drafters {_X}", "F2, then d on {x}"),
    (rf"`localspec models rm {_X}`", "F2, then Del on it,"),
    (r"`localspec models rm`", "F2, then Del,"),
    (r"a model of `localspec models list`", "a model of the list (F2)"),
    (r"`localspec models list`", "F2"),
    (r"`localspec history`", "F6"),
    (r"`localspec compare`", "F6, where Space marks two and c compares them"),
    # drafters
    (r"run without speculation: --drafter none", "run without speculation: {drafter}, then none"),
    (r"to be given with --drafter", "to be added with F2, then a"),
    (
        r"Give it with --drafter, and its target with --model",
        "Choose its target with F2: d there offers its drafters",
    ),
    (r"give it with --drafter", "choose it as its drafter: d"),
    (r"Give --drafter a path", "Choose one with {drafter}"),
    (r": --n-max \d+", ": {length}"),
    (r"Raise --n-max", "Choose more with {length}"),
    (
        r"Draft fewer tokens \(--n-max\) or raise --ctx",
        "Draft fewer tokens ({length}), or give the chat a larger context (Ctrl+T)",
    ),
    (r"\(--n-max auto\)", "(length auto)"),
    (r"or leave out --tree", "or choose others"),
    # the engine
    (
        r"Shorten the prompt or raise --ctx\.",
        "Shorten the prompt, or give the chat a larger context: Ctrl+T.",
    ),
    (
        r"Raise --ctx or start afresh\.",
        "Ctrl+T gives it a larger context, Ctrl+N begins a new conversation.",
    ),
    (
        r"Try a smaller --ctx, another --kv-type, or fewer --gpu-layers\.",
        "Try a smaller context, another KV cache, or fewer GPU layers: Ctrl+T.",
    ),
    (r"or --ctx to try it\.", "or a larger context to try it: Ctrl+T."),
    (r"Raise --ctx, or leave it out: it is", "Ctrl+T: raise Context, or leave it empty: it is"),
    (r"Give --ctx a number up to", "Ctrl+T takes a context of up to"),
    (r" fits: --ctx (?P<x>\d+)\.", " fits: Ctrl+T, then Context {x}."),
    (r"Leave out --gpu-layers: it is", "Ctrl+T: leave GPU layers empty, they are"),
    (r"try --draft-kv-type f16", "try f16: Ctrl+T, Drafter's KV cache"),
    (r"--no-fit-check tries it", "`localspec chat --no-fit-check` tries it"),
    # bench and its files
    (
        r"--resume: runs made now would not compare with those in the file:",
        "Runs made now would not compare with those that are kept:",
    ),
    (r"^--(?:json|csv|markdown|html|svg|card): the folder", "The folder"),
    (r"^--(?:json|csv|markdown|html|svg|card): ", ""),
    (r"Give --(?:json|csv|markdown|html|svg|card) another path\.", "Write another name."),
    # the rest
    (r"--thinking was left out", "the setting (Ctrl+G) was left out"),
    (r"--workload FILE", "its field in Bench: FILE"),
)
"""(expression, the app's words); ``{drafter}`` and ``{length}`` are the keys that choose them,
``{search}`` the one that searches the Hub."""


def in_app(text: str, mode: str = "chat") -> str:
    """``text`` with the keys of the app in place of the commands and options that do the same;
    ``mode``: where it is read; "add" is the dialog that adds a model."""
    keys = {
        "drafter": _DRAFTER.get(mode, "F3, then Ctrl+D"),
        "length": _LENGTH.get(mode, "F3, then Ctrl+L"),
        "search": "search here" if mode == "add" else "F2, then a, searches",
    }
    for pattern, way in _WAYS:
        if found := re.search(pattern, text):  # once is enough: no message says it twice
            words = way.format(**keys, **found.groupdict())
            text = text[: found.start()] + words + text[found.end() :]
    return text


JOINER = "\u200d"
"""Of several emoji that are one."""


def one_line(text: str) -> str:
    """For one row of the screen: without tabs, line breaks, and marks that turn the direction."""
    shown = "".join(c if c.isprintable() or c == JOINER else " " for c in text)
    return " ".join(shown.split())
