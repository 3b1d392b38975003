"""The downloads of the app: each in a thread of its own, whichever screen is shown.

A thread writes what it knows into its ``Pull`` (whole frozen values), and the screen reads that
when it draws. What arrived stays: the same pull, started again, goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from textual.message import Message

from localspec.errors import DownloadCancelled, LocalspecError, ModelFileError
from localspec.gguf_names import DRAFTER_PARTS, part_of

if TYPE_CHECKING:  # they bring huggingface_hub: imported in the thread of the first download
    from localspec.hub.download import Progress

State = Literal["asking", "downloading", "done", "cancelled", "failed"]


class Pull:
    """One download: a model with its drafter. ``words``, ``quant`` and ``drafter`` are those of
    ``localspec models pull``; ``entry`` the model of the catalogue that it is.

    ``use``: the changes of the app's setup that use it; ``wished``: the person wants that once it
    is here, and has chosen no other model since.
    """

    def __init__(self, words: str, quant: str | None, drafter: str, entry: str | None) -> None:
        self.words, self.quant, self.drafter, self.entry = words, quant, drafter, entry
        self.use: dict[str, str] = {}
        self.wished = False
        self.state: State = "asking"
        self.progress: Progress | None = None
        self.brings: frozenset[Path] = frozenset()
        """Where its files come to lie, whole and in part."""
        self.path: Path | None = None
        """Of the model, once it is here."""
        self.error: LocalspecError | None = None
        """Why it failed; where it is done: why what is here cannot be used."""
        self.cancel = threading.Event()

    @property
    def name(self) -> str:
        return f"{self.words}:{self.quant}" if self.quant else self.words

    @property
    def drafts(self) -> bool:
        """Is it a drafter? Of one in a repository of its own only who wants it can tell."""
        if self.use:
            return self.use["model"] != self.name
        return self.path is not None and part_of(self.path.name) in DRAFTER_PARTS

    @property
    def size(self) -> int | None:
        """Bytes of all its files; None: not known yet."""
        return self.progress.size if self.progress is not None else None

    @property
    def active(self) -> bool:
        return self.state in ("asking", "downloading")

    @property
    def unfinished(self) -> bool:
        return self.state in ("cancelled", "failed")


class PullEnded(Message):
    """To the app: a download is done, cancelled or failed. ``bug`` is what nobody foresaw."""

    def __init__(self, pull: Pull, bug: Exception | None = None) -> None:
        self.pull, self.bug = pull, bug
        super().__init__()


class Pulls:
    """All downloads since the app was opened, the earliest first; ``ended`` counts those that came
    to an end. ``post`` takes messages from any thread (``App.post_message``)."""

    def __init__(self, post: Callable[[Message], object]) -> None:
        self.all: list[Pull] = []
        self.ended = 0
        self._post = post
        self._closed = False

    @property
    def active(self) -> list[Pull]:
        return [pull for pull in self.all if pull.active]

    def start(
        self,
        words: str,
        quant: str | None = None,
        drafter: str = "auto",
        *,
        entry: str | None = None,
        use: dict[str, str] | None = None,
        wished: bool = False,
    ) -> Pull:
        """Begin, or go on with, a download. One that is running already is returned as it is."""
        key = (words, quant, drafter)
        same = next((p for p in self.all if (p.words, p.quant, p.drafter) == key), None)
        if same is not None and same.active:
            same.use = use or same.use
            if wished:
                self.wish(same)
            return same
        pull = Pull(words, quant, drafter, entry)
        pull.use = use or {}
        if wished:
            self.wish(pull)
        if same is None:
            self.all.append(pull)
        else:
            pull.progress = same.progress  # what it had, until it says anew
            pull.brings = same.brings
            pull.use = use or same.use
            self.all[self.all.index(same)] = pull
        threading.Thread(target=self._run, args=(pull,), daemon=True, name="pull").start()
        return pull

    def wish(self, pull: Pull) -> None:
        """It is to be used once it is here; of several wishes the last one counts."""
        self.drop_wishes()
        pull.wished = True

    def drop_wishes(self, model: str | None = None) -> None:
        """Whatever comes is only brought, not used; ``model``: what is for that one."""
        for pull in self.all:
            if model is None or pull.use.get("model") == model:
                pull.wished = False

    def forget(self, pull: Pull) -> None:
        """Take an ended download off the list; what arrived stays on the disk."""
        if not pull.active and pull in self.all:
            self.all.remove(pull)

    def close(self) -> None:
        """The app ends: so do the downloads, and nobody is told."""
        self._closed = True
        for pull in self.active:
            pull.cancel.set()

    def _run(self, pull: Pull) -> None:
        bug = None
        try:
            self._download(pull)
            pull.state = "done"
        except DownloadCancelled:
            pull.state = "cancelled"
        except LocalspecError as error:
            pull.error, pull.state = error, "failed"
        except Exception as error:  # noqa: BLE001  the app raises it, where it is seen
            bug, pull.state = error, "failed"
        self.ended += 1
        if not self._closed:
            self._post(PullEnded(pull, bug))

    def _download(self, pull: Pull) -> None:
        from localspec.catalog import Catalogue
        from localspec.hub.download import download
        from localspec.hub.plan import check_usable, named, plan

        def report(progress: Progress) -> None:
            pull.progress, pull.state = progress, "downloading"

        catalogue = Catalogue.load()
        wanted = plan(named(pull.words, pull.quant, catalogue), pull.drafter, catalogue)
        if pull.cancel.is_set():
            raise DownloadCancelled("The download was cancelled.")
        files = [file for w in wanted for file in w.files]
        pull.brings = frozenset(path for file in files for path in (file.local, file.part))
        download(files, report, pull.cancel)
        pull.path = wanted[0].path
        try:
            check_usable(wanted)
        except ModelFileError as error:
            pull.error = error
