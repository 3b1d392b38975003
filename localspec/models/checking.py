"""Whether what the catalogue says of the Hub is so: repositories, file names, sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from localspec.catalog import Catalogue
from localspec.catalogue_file import Source
from localspec.errors import HubUnreachable, LocalspecError
from localspec.hub.files import RemoteRepo, resolve


@dataclass(frozen=True, slots=True)
class Checked:
    """One file of an entry; ``problem`` is empty where the Hub has it. ``size`` is what it has
    there, ``stated`` what the catalogue says, in bytes; None: unknown, not said."""

    entry: str
    file: str
    problem: str = ""
    size: int | None = None
    stated: int | None = None

    @property
    def changed(self) -> bool:
        """It is there, but of another size than the catalogue says."""
        return self.size is not None and self.stated is not None and self.size != self.stated


def check_catalogue(catalogue: Catalogue) -> Iterator[Checked]:
    """Every file of the Hub that the catalogue names; each repository is asked for once.

    Raises ``HubUnreachable`` when nobody answers.
    """
    known: dict[tuple[str, str | None], RemoteRepo | LocalspecError] = {}

    def repo(source: Source) -> RemoteRepo | LocalspecError:
        assert source.repo is not None
        key = source.repo, source.revision
        if key not in known:
            try:
                known[key] = resolve(*key)
            except HubUnreachable:
                raise
            except LocalspecError as error:
                known[key] = error
        return known[key]

    for name in catalogue.names:
        entry = catalogue.entry(name)
        sources = {name: entry.source} | {
            f"{name}/{key}": d.source for key, d in entry.drafters.items() if d.source is not None
        }
        for words, source in sources.items():
            if source.repo is not None:
                yield from _check(words, source, repo(source))


def _check(words: str, source: Source, found: RemoteRepo | LocalspecError) -> Iterator[Checked]:
    for quant, file in source.choices.items():
        entry = f"{words}:{quant}" if source.files else words
        if isinstance(found, LocalspecError):
            yield Checked(entry, file, str(found))
            continue
        variant = next((v for v in found.variants if file in v.files), None)
        if variant is None:
            yield Checked(entry, file, f"{source.repo} has no file {file}.")
        elif not variant.complete:
            yield Checked(entry, file, f"{source.repo} lacks parts of {file}.")
        else:
            yield Checked(entry, file, size=variant.size, stated=source.bytes_of(quant))
