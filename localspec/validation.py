"""What pydantic finds wrong with outside data, in words for the person who wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_KINDS = {
    "string": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list": "a list",
    "tuple": "a list",
    "dict": "an object",
    "mapping": "an object",
    "model": "an object",
    "model_attributes": "an object",
    "dataclass": "an object",
}
_BOUNDS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def problem(found: ErrorDetails) -> str:
    """The problem of one error, to stand behind the name of what has it: "must be text"."""
    kind, context = found["type"], found.get("ctx", {})
    if kind == "missing":
        return "is missing"
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return "this key is not known"
    if kind == "string_pattern_mismatch":
        return "a name has only letters, digits, '.', '_' and '-'"
    if kind == "json_invalid":
        return f"this is not valid JSON ({context['error']})"
    if kind == "literal_error":
        return f"must be {context['expected']}"
    if kind in ("string_too_short", "too_short"):
        return "must not be empty"
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return f"must be {words} {context[key]:g}"
    for ending in ("_type", "_parsing", "_from_float"):
        if kind.endswith(ending) and (what := _KINDS.get(kind.removesuffix(ending))):
            return f"must be {what}"
    said = found["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    return said[0].lower() + said[1:]


def place(found: ErrorDetails) -> str:
    """Where it is: "messages.3.role"; empty for the whole."""
    return ".".join(str(part) for part in found["loc"])


def sentence(found: ErrorDetails) -> str:
    """Both in one, without a full stop."""
    where = place(found)
    return f"{where}: {problem(found)}" if where else problem(found)
