"""``localspec profiles``: what tuning has kept."""

from __future__ import annotations

import sys

from localspec.models import output
from localspec.tune import profiles


def list_profiles(*, as_json: bool) -> int:
    found, unread = [], []
    for name in profiles.names():
        try:
            found.append(profiles.read(name))
        except profiles.ProfileError as error:
            unread.append(str(error))
    found.sort(key=lambda p: p.created, reverse=True)
    if as_json:
        output.write_json([p.model_dump(mode="json") for p in found])
    elif found:
        table = output.table_of("name", "what it says")
        for p in found:
            table.add_row(p.name, p.sentence())
        output.console().print(table)
    elif not unread:
        output.say("There are no profiles; `localspec tune` makes one.")
    for problem in unread:
        output.say(problem)
    return 1 if unread else 0


def show(name: str) -> int:
    profile = profiles.read(name)
    sys.stdout.write(profiles.file_of(name).read_text("utf-8"))
    output.say(f"{profiles.file_of(name)}\n{profile.model}: {profile.sentence()}.")
    return 0


def remove(name: str) -> int:
    profiles.remove(name)
    return 0
