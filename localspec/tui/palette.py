"""The command palette: every key that does something here, without anybody listing them twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from typing import Any

from textual import on
from textual.binding import Binding
from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widgets import Input
from textual.worker import WorkerCancelled, WorkerFailed

from localspec.tui.screens.base import Dialog

OURS = "localspec."


class Palette(CommandPalette, Dialog[None]):
    """Textual's, laid out and painted as our dialogs are."""

    @on(Input.Submitted)
    async def _find_first(self) -> None:
        """Enter means what the words find, also where it comes before that is listed: what was
        found for the letters before them would be done. Comes before Textual's own handler."""
        for worker in list(self.workers):
            if worker.group == self._GATHER_COMMANDS_GROUP and worker.node is self:
                with suppress(WorkerCancelled, WorkerFailed):
                    await worker.wait()


def actions(screen: Screen[Any]) -> Iterator[tuple[str, Binding, DOMNode]]:
    """(keys as shown, binding, whose it is) of the actions that can be done on ``screen`` now;
    moving the cursor and the like, which are Textual's own, are left out. What only letters do is
    among them while these are written somewhere: Escape comes before them."""
    seen: dict[tuple[int, str], list[str]] = {}
    found: dict[tuple[int, str], tuple[Binding, DOMNode]] = {}
    for active in screen.active_bindings.values():
        binding, node = active.binding, active.node
        if not active.enabled or not binding.description or binding.system:
            continue
        if binding.action not in _our_actions(type(node)):
            continue
        key = (id(node), binding.action)
        found.setdefault(key, (binding, node))
        shown = screen.app.get_key_display(binding)
        if shown not in (keys := seen.setdefault(key, [])):
            keys.append(shown)
    writing = screen.focused is not None and screen.focused.check_consume_key("a", "a")
    for _, binding in screen._bindings if writing else ():
        key = (id(screen), binding.action)
        if not binding.description or key in found:
            continue
        if binding.action not in _our_actions(type(screen)):
            continue
        if screen.app._check_action_state(binding.action, screen):
            found[key] = (binding, screen)
            seen[key] = [f"esc {screen.app.get_key_display(binding)}"]
    for key, (binding, node) in found.items():
        yield " ".join(seen[key]), binding, node


@cache
def _our_actions(kind: type[DOMNode]) -> frozenset[str]:
    """The actions of bindings that our own classes declare; a subclass of a widget of Textual's
    has many more."""
    ours = (c for c in kind.__mro__ if c.__module__.startswith(OURS))
    bindings = (b for c in ours for b in Binding.make_bindings(c.__dict__.get("BINDINGS", ())))
    return frozenset(b.action for b in bindings)


class ActionsProvider(Provider):
    """Everything that has a key on this screen, then what the app offers besides. One provider: of
    several, Textual lists first whichever is ready first."""

    def _commands(self) -> Iterator[tuple[str, str, Callable[[], Any]]]:
        for keys, binding, node in actions(self.screen):
            run = partial(self.app.run_action, binding.action, node)
            yield binding.description, f"{binding.tooltip or binding.description}  ({keys})", run
        for command in self.app.get_system_commands(self.screen):
            yield command.title, command.help, command.callback

    async def discover(self) -> Hits:
        for title, text, run in self._commands():
            yield DiscoveryHit(title, run, help=text)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for title, text, run in self._commands():
            score = max(matcher.match(title), 0.8 * matcher.match(text))
            if score > 0:
                yield Hit(score, matcher.highlight(title), run, help=text)
