"""What becomes longer at its end. Textual draws all of a widget that gets another height, and lays
its screen out once more: that finds everything where the first layout has put it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual._styles_cache import StylesCache
from textual.geometry import Region, Size

if TYPE_CHECKING:
    from textual.widget import Widget as _Base
else:
    _Base = object  # style sheets follow the first base that is a widget


class SeenLines(StylesCache):
    """What was never drawn need not be noted as changed."""

    def set_dirty(self, *regions: Region) -> None:
        if not regions:
            self.clear()
        for region in regions:
            span = region.line_range
            self._dirty_lines.update(y for y in self._cache if y in span)


class Growing(_Base):
    """A base before that of a widget of thousands of lines. ``KEEPS``: it says itself which of
    them have changed."""

    KEEPS: ClassVar[bool] = False

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._styles_cache = SeenLines()

    def _size_updated(
        self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True
    ) -> bool:
        if size.width == self._size.width:
            layout = False
            if self.KEEPS:
                self._size = size
        return super()._size_updated(size, virtual_size, container_size, layout)
