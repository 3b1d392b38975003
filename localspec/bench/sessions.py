"""The contexts of a benchmark on loaded engines: opened when needed, all at once or one by one, and
opened anew after an engine has died.

An engine process holds one file of the target, and serves all bases that differ in their settings
alone. Each further file (another quantisation) has a process of its own; only one ever decodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from localspec.bench.plan import Candidate
from localspec.engine.client import Engine
from localspec.errors import DrafterError, EngineClosed, EngineDied, LocalspecError
from localspec.records import ContextSettings, DrafterSettings

Connect = Callable[[], Engine]
"""Starts an engine process and loads the target into it."""
Check = Callable[[ContextSettings, DrafterSettings], None]
"""Raises for what must not be opened."""


@dataclass(frozen=True, slots=True)
class Host:
    """How a file of the target is loaded, and what may then be opened."""

    connect: Connect
    check: Check | None = None


class Sessions:
    """``together`` False: at most one context exists at a time. It becomes False by itself when a
    context cannot be made beside the others but can be alone.

    ``engine`` is the one that serves the session used last.
    """

    def __init__(
        self,
        engine: Engine,
        connect: Connect,
        context: ContextSettings,
        together: bool,
        check: Check | None = None,
        others: Mapping[str, Host] | None = None,
    ) -> None:
        """``engine`` has the plan's own file loaded; ``others``: by path the further ones."""
        self.engine = engine
        self.together = together
        self.settings: dict[str, dict[str, str | int | float | bool]] = {}
        self.notes: dict[str, tuple[str, ...]] = {}
        self._hosts: dict[str | None, Host] = {None: Host(connect, check)}
        self._hosts.update(others or {})
        self._engines: dict[str | None, Engine] = {None: engine}
        self._path: str | None = None
        self._context = context
        self._open: dict[str, str | None] = {}

    def use(self, candidate: Candidate, *beside: str) -> bool:
        """Make sure that the candidate's session is open, and where contexts do not fit together
        that no other is except those named in ``beside``. True when it had to be opened, and so is
        still cold. Raises what ``Engine.open`` raises."""
        session = candidate.session
        if not self.together:
            self._close_all_but(session, *beside)
            self._end_all_but(candidate.base.path)
        self._turn_to(candidate.base.path)
        if session in self._open:
            return False
        try:
            self._open_one(candidate)
        except (DrafterError, EngineDied):
            raise
        except LocalspecError:
            if not self._open and len(self._engines) == 1:
                raise
            self._close_all_but()
            self._end_all_but(candidate.base.path)
            self._open_one(candidate)
            self.together = False
        return True

    def restart(self) -> None:
        """A new process in place of ``engine``, with the same file; all of its contexts are
        gone."""
        self.engine.close()
        self._forget(self._path)
        self.engine = self._engines[self._path] = self._hosts[self._path].connect()

    def drop(self, session: str) -> None:
        """Free a context that is not needed any more."""
        if session in self._open:
            engine = self._engines[self._open.pop(session)]
            if engine.alive:
                engine.close_session(session)

    def close(self) -> None:
        """Free all contexts; the engine of the plan's own file lives on with it loaded, if it
        lives: none is started for what is over."""
        with suppress(EngineDied, EngineClosed):  # just now, and they with it
            self._close_all_but()
        self._end_all_but(None)

    def end(self) -> None:
        """End every engine."""
        for engine in self._engines.values():
            engine.close()

    def _turn_to(self, path: str | None) -> None:
        """Make the engine of that file the one that is asked, starting it where it must be."""
        known = self._engines.get(path)
        if known is None:
            known = self._engines[path] = self._hosts[path].connect()
        self._path, self.engine = path, known
        if not known.alive:
            self.restart()

    def _open_one(self, candidate: Candidate) -> None:
        context, session = candidate.base.context(self._context), candidate.session
        check = self._hosts[self._path].check
        if check is not None:
            check(context, candidate.drafter)
        opened = self.engine.open(session, candidate.drafter, context)
        self._open[session] = self._path
        self.settings[session] = opened.settings
        self.notes[session] = opened.notes

    def _close_all_but(self, *keep: str) -> None:
        for other, path in sorted(self._open.items()):
            if other not in keep:
                if self._engines[path].alive:
                    self._engines[path].close_session(other)
                self._open.pop(other, None)

    def _end_all_but(self, keep: str | None) -> None:
        """The other files' processes; what they hold has to fit too."""
        for path in [p for p in self._engines if p != keep]:
            self._engines.pop(path).close()
            self._forget(path)

    def _forget(self, path: str | None) -> None:
        self._open = {s: p for s, p in self._open.items() if p != path}
