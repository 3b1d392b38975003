"""What reads the terminal."""

from __future__ import annotations

import random

from localspec.tui.driver import Parser


def test_no_sequence_is_too_damaged_to_go_on() -> None:
    """Pieces of what terminals send, as they are left when bytes between them were lost."""
    ends = [*"MmutRP~I", "$y"]
    pieces = ["\x1b[", "\x1b", "\x1b[200~", "\x1b[201~", "\x1b[48;", "?2048", "<", ";", ":", *ends]
    pieces += ["0", "1", "35", "57441", "99999999999", "-", "a", "\ufffd", "\0", "\x9b"]
    draw = random.Random(1)
    for _ in range(3_000):
        parser = Parser()
        for _ in range(draw.randrange(1, 12)):
            list(parser.feed(draw.choice(pieces)))
        list(parser.tick())
        list(parser.feed("\x1b[201~\x1b\x1b[201~"))
        keys = [getattr(event, "key", "") for event in parser.feed("qz")]
        assert keys[-1] == "z"
