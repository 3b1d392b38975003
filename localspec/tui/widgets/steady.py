"""Text that changes many times a second in a place that seldom does."""

from __future__ import annotations

from textual.content import Content
from textual.visual import VisualType
from textual.widgets import Static


class Steady(Static):
    """The screen is laid out anew only where the text is of another size (a Static always does
    that, which takes as long as painting it), and nothing is painted where it is the same."""

    def update(self, content: VisualType = "", *, layout: bool = True) -> None:
        before, height = self.visual, self._height()
        if isinstance(content, Content) and isinstance(before, Content) and content.is_same(before):
            return
        super().update(content, layout=False)
        if layout and (height is None or height != self._height()):
            self.refresh(layout=True)

    def _height(self) -> int | None:
        """In lines; None: it has no size yet, or its width is that of its text."""
        size = self.content_size
        if not size or self.styles.is_auto_width:
            return None
        if not self.styles.is_auto_height:
            return size.height
        return self.get_content_height(size, size, size.width)
