"""A file that is written whole or not at all: others may read it, or the disk be full."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new file beside ``path``, which takes its place unless an error is raised; nothing is left
    then. Raises ``OSError``."""
    handle, name = tempfile.mkstemp(prefix=".localspec-", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    beside = Path(name)
    try:
        yield beside
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
