"""The keys of a screen in its last line, as one widget.

Textual's footer is a widget for each key, made anew whenever the focus moves: some 30 ms each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

from textual.content import Content
from textual.events import Leave, MouseDown, MouseMove
from textual.screen import Screen
from textual.widget import Widget


@dataclass(frozen=True, slots=True)
class Key:
    key: str
    shown: str
    description: str
    tooltip: str
    enabled: bool

    @property
    def width(self) -> int:
        return Content(f" {self.shown} {self.description} ").cell_length


class Footer(Widget):
    """Keys that do not fit whole are left out; the palette's stays in sight at the right. Of the
    keys that do the same here a single letter is shown, which works only where nothing is being
    written."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "footer--key",
        "footer--description",
        "footer--hover",
        "footer--disabled",
        "footer--edge",
    }
    DEFAULT_CSS = """
    Footer {
        dock: bottom;
        height: 1;
        color: $footer-foreground;
        background: $footer-background;
        text-wrap: nowrap;
        & > .footer--key {
            color: $footer-key-foreground;
            background: $footer-key-background;
            text-style: bold;
        }
        & > .footer--description {
            color: $footer-description-foreground;
            background: $footer-description-background;
        }
        & > .footer--hover {
            color: $footer-key-foreground;
            background: $block-hover-background;
        }
        & > .footer--disabled { text-style: dim; }
        & > .footer--edge { color: $foreground 20%; }
    }
    """

    def __init__(self, *, show_command_palette: bool = True) -> None:
        super().__init__()
        self._with_palette = show_command_palette
        self._keys: list[Key] = []
        self._palette: Key | None = None
        self._hovered: Key | None = None

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._bindings_changed)

    def on_unmount(self) -> None:
        self.screen.bindings_updated_signal.unsubscribe(self)

    def _bindings_changed(self, screen: Screen[object]) -> None:
        if self.is_attached and screen is self.screen and self.app.app_focus:
            self.call_after_refresh(self._read)

    def _read(self) -> None:
        if not self.is_attached:  # the screen was closed meanwhile
            return
        active = self.screen.active_bindings
        keys: dict[str, Key] = {}
        for binding, enabled, tooltip in (
            (a.binding, a.enabled, a.tooltip) for a in active.values()
        ):
            shown = self.app.get_key_display(binding)
            known = keys.get(binding.action)
            if (binding.show and known is None) or (
                known is not None and len(shown) == 1 < len(known.shown)
            ):
                keys[binding.action] = Key(
                    binding.key, shown, binding.description, tooltip, enabled
                )
        palette = active.get(self.app.COMMAND_PALETTE_BINDING) if self._with_palette else None
        self._palette = palette and Key(
            palette.binding.key,
            self.app.get_key_display(palette.binding),
            palette.binding.description,
            palette.binding.tooltip or palette.binding.description,
            palette.enabled,
        )
        self._keys = list(keys.values())
        self.refresh()

    def get_content_width(self, container: object, viewport: object) -> int:
        return self.app.size.width

    def render(self) -> Content:
        keys = Content().join(map(self._shown, self._in_sight()))
        if self._palette is None:
            return keys
        edge = Content.styled("▏", ".footer--edge")
        palette = edge + self._shown(self._palette)[1:]
        return keys.truncate(self._room(), pad=True) + palette

    def _room(self) -> int:
        return max(self.size.width - (self._palette.width if self._palette else 0), 0)

    def _in_sight(self) -> list[Key]:
        room, ends = self._room(), accumulate(key.width for key in self._keys)
        return [key for key, end in zip(self._keys, ends, strict=True) if end <= room]

    def _shown(self, key: Key) -> Content:
        parts = Content.assemble(
            (f" {key.shown} ", ".footer--key"),
            (f"{key.description} ", ".footer--description"),
        )
        if not key.enabled:
            parts = parts.stylize(".footer--disabled")
        return parts.stylize(".footer--hover") if key is self._hovered else parts

    # ---- mouse --------------------------------------------------------------------------------

    def _at(self, x: int) -> Key | None:
        if self._palette is not None and x >= self.size.width - self._palette.width:
            return self._palette
        for key in self._in_sight():
            x -= key.width
            if x < 0:
                return key
        return None

    def on_mouse_down(self, event: MouseDown) -> None:
        key = self._at(event.x)
        if key is not None and key.enabled:
            self.app.simulate_key(key.key)
        elif key is not None:
            self.app.bell()

    def on_mouse_move(self, event: MouseMove) -> None:
        key = self._at(event.x)
        if key is not self._hovered:
            self._hovered = key
            self.tooltip = key.tooltip if key else None
            self.refresh()

    def on_leave(self, _event: Leave) -> None:
        self._hovered = None
        self.refresh()
