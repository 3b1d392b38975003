"""Our own colours; Textual's themes can be chosen beside them."""

from __future__ import annotations

from textual.color import Color
from textual.theme import Theme

SHADES = {"text-muted": 0.6, "text-disabled": 0.38}
"""Textual's own, as shares of the foreground."""


def shaded(variables: dict[str, str]) -> dict[str, str]:
    """``variables`` with shades that text which is put together in code can have too: there Textual
    takes "auto 60%" for "auto", which is brighter than the rest."""
    foreground = Color.parse(variables["foreground"])
    if foreground.ansi is not None:  # a terminal's own palette has no shades
        return variables
    return variables | {name: foreground.with_alpha(share).hex for name, share in SHADES.items()}


DARK = Theme(
    name="localspec",
    primary="#5fafd7",
    secondary="#8787d7",
    accent="#5fd7af",
    warning="#e5b567",
    error="#e06c75",
    success="#87c38a",
    foreground="#d6dae0",
    background="#14171c",
    surface="#1a1e25",
    panel="#232933",
    dark=True,
    variables={
        "footer-key-foreground": "#5fd7af",
        "block-cursor-text-style": "none",
        "input-selection-background": "#5fafd7 35%",
        "border": "#5fafd7",
        "border-blurred": "#343c48",
    },
)

LIGHT = Theme(
    name="localspec-light",
    primary="#0f6d99",
    secondary="#5a56b0",
    accent="#0a7d62",
    warning="#9a6700",
    error="#b3333f",
    success="#2f7d32",
    foreground="#23272e",
    background="#f7f7f5",
    surface="#efefec",
    panel="#e3e4e1",
    dark=False,
    variables={"border-blurred": "#c6c8c4"},
)
