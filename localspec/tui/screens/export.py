"""A result into a file: the name's ending says what kind."""

from __future__ import annotations

import asyncio
from typing import Any

from textual.screen import Screen

from localspec.errors import LocalspecError
from localspec.paths import kind_of, written
from localspec.tui.screens.dialogs import Ask, Confirm
from localspec.tui.wording import in_app

KINDS = {
    ".json": "--json",
    ".csv": "--csv",
    ".md": "--markdown",
    ".html": "--html",
    "card.svg": "--card",
    ".svg": "--svg",
}
"""By the end of the name, the first that fits."""


async def export(screen: Screen[Any], result: dict[str, Any]) -> None:
    """Ask for a name until it can be written, or the person gives up."""
    from localspec.bench.outputs import write_all
    from localspec.bench.report import check_writable

    name = f"localspec-{result['target']['name']}.json".replace("/", "-")
    note = (
        ".json: everything; .csv: the runs; .md: the tables; .html: a page; .svg: the plots; "
        "card.svg: a card to share"
    )
    while True:
        given = await screen.app.push_screen_wait(Ask("Export", name, note=note))
        if given is None:
            return
        name = given
        try:
            path = written(name)
            kind = kind_of(path)
        except LocalspecError as error:
            note = str(error)
            continue
        if kind == "folder":
            note = f"{path} is a folder. Give the name of a file in it."
            continue
        option = next((o for end, o in KINDS.items() if path.name.lower().endswith(end)), None)
        if option is None:
            note = f"The name must end in {', '.join(KINDS)}."
            continue
        if kind == "file" and not await screen.app.push_screen_wait(
            Confirm("Replace the file?", str(path), "Replace")
        ):
            continue
        try:
            check_writable({option: name})
            failed = await asyncio.to_thread(write_all, {option: name}, result)
        except LocalspecError as error:
            failed = error
        if failed is None:
            screen.notify(str(path.resolve()), title="Written", markup=False)
            return
        note = in_app(str(failed), screen.app.current_mode)
