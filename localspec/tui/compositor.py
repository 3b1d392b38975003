"""What a layout has changed: which widgets have to be told of their size, and what is to be painted
again."""

from __future__ import annotations

from collections.abc import Iterable

from textual._compositor import Compositor, CompositorMap, ReflowResult
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget


class KeepingCompositor(Compositor):
    """Compares a layout with what the screen was told of last. Textual's compares it with its last
    map of everything. Since that was made, what is in sight may have been scrolled: if it stands
    where it stood before, it stays painted where it was meanwhile. Or somebody has asked for a
    new map: what that one has changed is then neither painted nor told of its size."""

    def __init__(self) -> None:
        super().__init__()
        self._told: CompositorMap = {}

    def reflow(self, parent: Widget, size: Size) -> ReflowResult:
        self._full_map = self._told
        changed = super().reflow(parent, size)
        self._told = self._full_map
        self._full_map_invalidated = False
        return changed

    def reflow_visible(self, parent: Widget, size: Size) -> set[Widget]:
        exposed = super().reflow_visible(parent, size)
        self._told = {**self._told, **(self._visible_map or {})}
        return exposed

    def _get_renders(
        self, crop: Region | None = None
    ) -> Iterable[tuple[Region, Region, list[Strip]]]:
        """The lines of ``crop`` alone: Textual makes all lines of every widget that it touches."""
        crop = crop or self.size.region
        for widget, (region, clip) in self.visible_widgets.items():
            seen = clip.intersection(crop._replace(x=clip.x, width=clip.width))
            if crop.overlaps(region) and (shown := region.intersection(seen)):
                yield region, seen, widget.render_lines(shown.translate(-region.offset))

    def clear(self) -> None:
        super().clear()
        self._told = {}
