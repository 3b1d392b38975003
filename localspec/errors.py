"""The tree of errors a person can cause. Everything else is a bug and keeps its traceback.

Each error is one sentence (what is wrong, where) and a next step. The command line prints both on
stderr and ends with ``exit_code``: 2 for usage, 1 for failure (DESIGN section 8).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

_TELLING = re.compile(
    r"error|exception|assert|abort|terminate called|fail|cannot|could not|out of memory", re.I
)
"""Log lines that may say why a process ended; most lines only say what it was doing."""


class LocalspecError(Exception):
    """A problem the user can do something about.

    ``message`` says what is wrong and where, ``hint`` what to do next.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class UsageError(LocalspecError):
    """The command's words are wrong: an unknown name, an empty workload, a bad option."""

    exit_code = 2


class NameNeeded(UsageError):
    """A new entry of the catalogue needs another name; ``free`` is one that it could have."""

    def __init__(self, message: str, hint: str, free: str) -> None:
        super().__init__(message, hint)
        self.free = free


class CatalogError(LocalspecError):
    """A catalogue file (models.toml) does not say what it should; names file, key and line."""


class ModelFileError(LocalspecError):
    """A model file is missing, truncated, of another kind, or cannot be loaded."""


class NotHere(ModelFileError):
    """A model or drafter that has to be downloaded first. ``words`` name it; ``open_choice`` where
    they leave open which of a repository's quantisations is meant."""

    def __init__(self, message: str, hint: str, words: str, *, open_choice: bool = False) -> None:
        super().__init__(message, hint)
        self.words = words
        self.open_choice = open_choice


class DoesNotFit(LocalspecError):
    """The model, with its context and drafter, needs more memory than is free."""


class DrafterError(LocalspecError):
    """The drafter does not fit the target (another vocabulary, a target given as drafter, ...)."""


class SpeculationRefused(DrafterError):
    """The target's memory cannot be rolled back, so it can only be run without speculation."""


class HubError(LocalspecError):
    """Hugging Face refused something, or answered as no Hub does."""


class HubNotFound(HubError):
    """No such repo, revision or file, as far as this user may see."""


class HubUnreachable(HubError):
    """No answer for now: offline mode, no connection, a limit on requests, a fault of the Hub."""


class DownloadFailed(LocalspecError):
    """A file could not be stored whole: no room, no right to write, not the bytes promised."""


class DownloadCancelled(LocalspecError):
    """The user ended a download; what arrived is kept."""

    exit_code = 130


class StoreError(LocalspecError):
    """What is kept (conversations, results) cannot be read or written as was asked."""


class StoreUnusable(StoreError):
    """Nothing at all can be kept: no room, no right, no database."""


class ContextTooSmall(LocalspecError):
    """The prompt does not fit the context; the message has both numbers."""

    @classmethod
    def of(cls, prompt_tokens: int, n_ctx: int) -> ContextTooSmall:
        return cls(
            f"The prompt has {prompt_tokens} tokens but the context holds {n_ctx}.",
            "Shorten the prompt or raise --ctx.",
        )


class EngineDied(LocalspecError):
    """The engine process ended by itself. ``log_tail`` holds its last lines."""

    def __init__(self, how: str, log_tail: list[str], log_file: str = "") -> None:
        super().__init__(
            f"The engine process died ({how}).{_cause(how, log_tail)}",
            f"Its log is {log_file}." if log_file else "",
        )
        self.how = how
        self.log_tail = log_tail
        self.log_file = log_file


class EngineClosed(KeyboardInterrupt):
    """We have closed the engine ourselves while it was asked, for nobody wants an answer any more.
    What asked ends as Ctrl-C ends it, and keeps what it keeps then."""


class EngineFailed(LocalspecError):
    """The engine could not do what was asked but lives on."""


def _cause(how: str, log_tail: Sequence[str]) -> str:
    """Why the engine died, as far as that is known: the last thing it logged is no reason."""
    if how == "signal SIGKILL":
        return " It was killed from outside: by someone, or by the system for want of memory."
    telling = [line.strip() for line in log_tail if _TELLING.search(line)]
    return f" Its log says: {telling[-1]!r}." if telling else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint that names what is spelled alike, with a space behind it; else nothing."""
    near = difflib.get_close_matches(name, list(dict.fromkeys(known)), n=3, cutoff=0.5)
    return f"Did you mean {' or '.join(near)}? " if near else ""
