"""The contexts of a benchmark on one loaded engine: opened when needed, all at once or one by one,
and opened anew after the engine has died."""

from __future__ import annotations

from collections.abc import Callable

from localspec.engine.client import Engine
from localspec.errors import DrafterError, EngineDied, LocalspecError
from localspec.records import ContextSettings, DrafterSettings

Connect = Callable[[], Engine]
"""Starts an engine process and loads the target into it."""


class Sessions:
    """``together`` False: at most one context exists at a time. It becomes False by itself when a
    context cannot be made beside the others but can be alone."""

    def __init__(
        self,
        engine: Engine,
        connect: Connect,
        context: ContextSettings,
        together: bool,
        check: Callable[[ContextSettings, DrafterSettings], None] | None = None,
    ) -> None:
        """``check`` raises for what must not be opened."""
        self.engine = engine
        self._check = check
        self.together = together
        self.settings: dict[str, dict[str, str | int | float | bool]] = {}
        self.notes: dict[str, tuple[str, ...]] = {}
        self._connect = connect
        self._context = context
        self._open: set[str] = set()

    def use(self, session: str, drafter: DrafterSettings, *beside: str) -> bool:
        """Make sure that ``session`` is open, and where contexts do not fit together that no other
        is except those named in ``beside``. True when it had to be opened, and so is still cold.
        Raises what ``Engine.open`` raises."""
        if not self.engine.alive:
            self.restart()
        if not self.together:
            self._close_all_but(session, *beside)
        if session in self._open:
            return False
        try:
            self._open_one(session, drafter)
        except (DrafterError, EngineDied):
            raise
        except LocalspecError:
            if not self._open:
                raise
            self._close_all_but()
            self._open_one(session, drafter)
            self.together = False
        return True

    def restart(self) -> None:
        """A new engine process with the same target; every context is gone."""
        self.engine.close()
        self._open.clear()
        self.engine = self._connect()

    def close(self) -> None:
        """Free all contexts; the engine lives on with its target loaded."""
        if self.engine.alive:
            self._close_all_but()

    def _open_one(self, session: str, drafter: DrafterSettings) -> None:
        if self._check is not None:
            self._check(self._context, drafter)
        opened = self.engine.open(session, drafter, self._context)
        self._open.add(session)
        self.settings[session] = opened.settings
        self.notes[session] = opened.notes

    def _close_all_but(self, *keep: str) -> None:
        for other in sorted(self._open - set(keep)):
            self.engine.close_session(other)
            self._open.discard(other)
