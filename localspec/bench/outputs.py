"""A result into the files that were asked for, each by the option that names it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from localspec.bench.report import to_csv, to_json, write
from localspec.bench.table import to_markdown
from localspec.errors import LocalspecError

Json = dict[str, Any]


def _html(result: Json) -> str:
    from localspec.bench.page import to_html

    return to_html(result)


def _svg(result: Json) -> str:
    from localspec.bench.drawings import to_svg

    return to_svg(result)


def _card(result: Json) -> str:
    from localspec.bench.card import to_card

    return to_card(result)


WRITERS: dict[str, Callable[[Json], str]] = {
    "--json": to_json,
    "--csv": to_csv,
    "--markdown": to_markdown,
    "--html": _html,
    "--svg": _svg,
    "--card": _card,
}

KINDS = tuple(option.removeprefix("--") for option in WRITERS)
"""The same as fields of ``BenchOptions``."""


def given(**names: str | None) -> dict[str, str]:
    """The options that were given: ``given(json="r.json", csv=None)``."""
    return {f"--{option}": name for option, name in names.items() if name is not None}


def write_all(outputs: Mapping[str, str], result: Json) -> LocalspecError | None:
    """Write every file that can be; the first failure is returned."""
    failed = None
    for option, name in outputs.items():
        try:
            write(name, WRITERS[option](result))
        except LocalspecError as error:
            failed = failed or error
    return failed
