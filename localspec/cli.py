"""The program's entry: the version, and what becomes of every error.

The commands are in commands.py; ``localspec --version`` answers before they are imported.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from localspec import __version__, interrupts
from localspec.interrupts import INTERRUPTED
from localspec.streams import silence

if TYPE_CHECKING:
    import typer


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave the process with its exit code; without ``argv`` the process
    is this program's own."""
    args = list(sys.argv[1:] if argv is None else argv)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell: `>&-`
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        # A terminal that cannot show a character shows "?"; that is no reason to end.
        if hasattr(stream := getattr(sys, name), "reconfigure"):
            stream.reconfigure(errors="replace")
    if not args and _on_a_terminal():
        sys.exit(_app())
    if argv is None:
        interrupts.one_at_a_time()
    code = 0
    try:
        if args == ["--version"]:
            print(f"localspec {__version__}")
        else:
            code = _run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        silence(sys.stdout)
    except OSError as error:
        code = _unwritten(error)
    if argv is None:
        interrupts.no_more()
    sys.exit(interrupts.exit_code(code))


def _on_a_terminal() -> bool:
    """Can the app be drawn? Otherwise ``localspec`` alone shows its help."""
    return all(s is not None and s.isatty() for s in (sys.stdin, sys.stdout))


def _app() -> int:
    """The app, without importing a command: it has half a second to be there."""
    gc.disable()  # what a start makes is kept: the app collects once it is there
    try:
        from localspec.tui.app import run

        return run()
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  the last place where a bug can be reported
        print(_report(error, []), file=sys.stderr)
        return 1


def _run(args: list[str]) -> int:
    import typer

    from localspec.errors import LocalspecError

    try:
        from localspec.commands import app

        # Without standalone mode typer hands on its errors, and a command's exit code.
        code = app(args, prog_name="localspec", standalone_mode=False)
    except LocalspecError as error:
        return _say(error.message, error.hint, error.exit_code)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "localspec"
        return _say(_problem(error), f"See `{command} --help`.", error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  the last place where a bug can be reported
        if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
            return _unwritten(error)
        print(_report(error, args), file=sys.stderr)
        return 1
    return code if isinstance(code, int) else 0


def _unwritten(error: OSError) -> int:
    silence(sys.stdout)
    reason = error.strerror or str(error)
    return _say(f"What was to be shown could not be written: {reason}.", "Make room for it.", 1)


def _problem(error: typer.TyperException) -> str:
    """What is wrong with the command's words; typer leaves the values of options to pydantic."""
    from pydantic import ValidationError

    from localspec import validation

    found, options = error.__cause__, getattr(getattr(error, "param", None), "opts", ())
    if not isinstance(found, ValidationError) or not options:
        return error.format_message()
    first = found.errors()[0]
    said = validation.problem(first)
    if said.startswith("must "):
        return f"{options[0]} {said}, not {first['input']!r}."
    return f"{options[0]}: {said.removesuffix('.')}."


def _say(message: str, hint: str, exit_code: int) -> int:
    from localspec.units import folded

    text = "\n".join([f"localspec: {message}", *([hint] if hint else [])])
    print(folded(text, sys.stderr), file=sys.stderr)
    return exit_code


def _report(error: Exception, args: list[str]) -> str:
    """One sentence about a bug; its traceback goes into a file."""
    import platform
    import time
    import traceback
    from pathlib import Path

    import platformdirs

    details = "".join(
        [
            f"localspec {__version__}, Python {platform.python_version()}, {platform.platform()}\n",
            f"arguments: {args}\n\n",
            *traceback.format_exception(error),
        ]
    )
    said = next(iter(str(error).splitlines()), "").removesuffix(".")
    what = f"localspec: this is a bug: {': '.join(filter(None, (type(error).__name__, said)))}."
    try:
        folder = Path(platformdirs.user_log_dir("localspec", appauthor=False))
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"bug-{time.strftime('%Y%m%d-%H%M%S')}.log"
        file.write_text(details, "utf-8", errors="replace")
    except OSError:
        return f"{what} Its details:\n{details}"
    return f"{what} The details are in {file}."
