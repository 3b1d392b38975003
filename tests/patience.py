"""How long what a test waits for may take."""

from __future__ import annotations

FOREVER = 120.0
"""Seconds after which it will not come at all, on however slow or busy a machine."""
