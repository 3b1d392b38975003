"""What the first paint does not wait for: imported after it in a thread, before it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from textual.screen import Screen

SCREENS = {
    "models": ("localspec.tui.screens.models", "ModelsScreen"),
    "chat": ("localspec.tui.screens.chat", "ChatScreen"),
    "ab": ("localspec.tui.screens.ab", "ABScreen"),
    "bench": ("localspec.tui.screens.bench", "BenchScreen"),
    "history": ("localspec.tui.screens.history", "HistoryScreen"),
}
"""Module and class of each mode's screen."""
DIALOGS = (
    "localspec.tui.screens.explain",
    "localspec.tui.screens.dialogs",
    "localspec.tui.screens.conversations",
    "localspec.tui.screens.chat_settings",
    "localspec.tui.screens.engine_settings",
    "localspec.tui.screens.inspector",
    "localspec.tui.screens.model_dialogs",
)
NEEDED = (
    "plotext",
    "psutil",
    "pydantic",
    "localspec.bench.prompt_files",
    "localspec.catalog",
    "localspec.bench.comparison",
)
"""By the other screens than the first three: each takes long by itself."""
FURTHER = (
    "localspec.chat.thinking",
    "localspec.engine.messages",
    "localspec.store",
    "markdown_it",
    "textual.highlight",
    "textual.widgets._toast",
)
"""Imported by functions on the event loop when they are first called."""
LANGUAGES = ("python", "javascript", "typescript", "css", "sql", "markdown")
"""Those whose rules of highlighting take long to compile: up to 60 ms when the first such code is
shown."""
_imported: set[str] = set()


def make(mode: str) -> Callable[[], Screen[Any]]:
    """A maker of the mode's screen; it imports what is not imported yet."""
    module, name = SCREENS[mode]
    return lambda: getattr(import_module(module), name)()


def imported(mode: str) -> bool:
    """Can the mode be shown at once?"""
    return SCREENS[mode][0] in _imported


def bring(*modules: str) -> None:
    """Import them. Not for the event loop."""
    for module in modules:
        import_module(module)
        _imported.add(module)


def pieces() -> Iterator[Callable[[], object]]:
    """What brings everything, bit by bit; nothing of it is for the event loop."""
    models, chat, ab, *others = (module for module, _ in SCREENS.values())
    for module in (models, chat, ab, *NEEDED, *others, *DIALOGS, *FURTHER):
        yield partial(bring, module)
    for language in LANGUAGES:
        yield partial(_compile, language)


def _compile(language: str) -> None:
    from textual.highlight import highlight

    highlight("", language=language)
