"""Where text is written."""

from __future__ import annotations

from textual.geometry import Offset
from textual.widgets import TextArea


class Writing(TextArea):
    """Textual's, which looks for the cursor while an edit is being taken back: where the scrollbar
    goes with it, in a line that there is no more, and the app ends."""

    def scroll_cursor_visible(self, center: bool = False, animate: bool = False) -> Offset:
        if self.cursor_location != self.clamp_visitable(self.cursor_location):
            return Offset()  # it is set to where it belongs afterwards, and scrolled to
        return super().scroll_cursor_visible(center, animate)
