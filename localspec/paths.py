"""Paths as people write them: on the command line, in a field of the app, in a catalogue, in the
environment. Such words may be no path at all (``~nobody``), and what they name may be nothing that
can be looked at: a name too long for the disk, a folder of somebody else's."""

from __future__ import annotations

import os
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Literal

from localspec.errors import UsageError
from localspec.units import shortened

Kind = Literal["file", "folder", "other"]
"""``other``: a device or a pipe."""
_WIDEST = 120


def written(words: str | os.PathLike[str]) -> Path:
    """The path that is meant, with the home folder in place of ``~``. Looks at no disk.

    Raises ``UsageError`` for what can be no path.
    """
    path = Path(words)
    try:
        os.fsencode(path)
        path = path.expanduser()
    except RuntimeError:  # pathlib's for a user who is not known
        home = _shown(Path(path.parts[0]))
        raise UsageError(
            f"There is no home folder {home}, with which {_shown(path)} begins.",
            f"Write the whole path, or .{os.sep}{_shown(path)} for what lies here.",
        ) from None
    except ValueError:  # half a character: no file can be called so
        raise UsageError(f"{_shown(path)!r} cannot be a path.", "Give another.") from None
    if "\0" in str(path):
        raise UsageError(f"{_shown(path)!r} has a NUL in it, as no path may.", "Give another.")
    return path


def kind_of(path: Path) -> Kind | None:
    """What is there, links followed; None where nothing is.

    Raises ``UsageError`` where that cannot be told.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{_shown(path)} cannot be looked at ({reason}).",
            "Give another path, or see to it that this one may be read.",
        ) from None
    return "file" if S_ISREG(mode) else "folder" if S_ISDIR(mode) else "other"


def kind_here(words: str | os.PathLike[str]) -> Kind | None:
    """What is there; None, too, where that cannot be told. For words that may be meant otherwise,
    and for places that are only tried."""
    try:
        return kind_of(written(words))
    except UsageError:
        return None


def real(path: Path) -> Path:
    """Where it leads, links followed as far as they can be: unlike pathlib's ``resolve`` it raises
    for no circle of them."""
    return Path(os.path.realpath(path))


def _shown(path: Path) -> str:
    return shortened(str(path), _WIDEST)
