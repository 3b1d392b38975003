"""Our own colours; Textual's themes can be chosen beside them.

A terminal of 16 colours shows the nearest of them, which of soft colours are grey and white: there
our themes, by the same names, have strong ones that are among the 16.
"""

from __future__ import annotations

from dataclasses import replace

from textual.color import Color
from textual.theme import Theme

SHADES = {"text-muted": 0.6, "text-disabled": 0.38}
"""Textual's own, as shares of the foreground."""


CURSOR_SHARE = 0.4
"""Of the primary colour, behind the line under a cursor."""


def shaded(variables: dict[str, str]) -> dict[str, str]:
    """``variables`` with shades that text which is put together in code can have too (there Textual
    takes "auto 60%" for "auto", which is brighter than the rest), and with ``line-cursor`` and
    ``line-cursor-text``."""
    foreground, primary = (Color.parse(variables[name]) for name in ("foreground", "primary"))
    if foreground.ansi is not None:  # a terminal's own palette has no shades
        ground, text = (variables[f"block-cursor-{part}"] for part in ("background", "foreground"))
        return {"line-cursor": ground, "line-cursor-text": text, **variables}
    line = {"line-cursor": primary.with_alpha(CURSOR_SHARE).hex}
    variables = {**line, "line-cursor-text": variables["foreground"], **variables}
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

_RED, _GREEN, _BLUE, _MAGENTA = "#aa0000", "#00aa00", "#0000aa", "#aa00aa"
_GREY, _LIGHT_GREY = "#555555", "#aaaaaa"
FEW_DARK = Theme(
    name=DARK.name,
    primary="#55ffff",
    secondary="#ff55ff",
    accent="#55ff55",
    warning="#ffff55",
    error="#ff5555",
    success="#55ff55",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel=_BLUE,
    dark=True,
    variables={
        "footer-key-foreground": "#55ff55",
        "block-cursor-text-style": "none",
        "border": "#55ffff",
        "border-blurred": _GREY,
        "line-cursor": _BLUE,
        "text-primary": "#55ffff",
        "text-warning": "#ffff55",
        "text-error": "#ff5555",
        "text-success": "#55ff55",
    },
)
FEW_LIGHT = Theme(
    name=LIGHT.name,
    primary=_BLUE,
    secondary=_MAGENTA,
    accent=_BLUE,
    warning=_MAGENTA,
    error=_RED,
    success=_GREEN,
    foreground="#000000",
    background="#ffffff",
    surface="#ffffff",
    panel=_LIGHT_GREY,
    dark=False,
    variables={
        "footer-key-foreground": _BLUE,
        "border": _BLUE,
        "border-blurred": _LIGHT_GREY,
        "line-cursor": "#55ffff",
        "text-primary": _BLUE,
        "text-warning": _MAGENTA,
        "text-error": _RED,
        "text-success": _GREEN,
    },
)


def themes(*, few_colours: bool, no_colour: bool) -> tuple[Theme, Theme]:
    """Ours, as the terminal can show them. Without colours blue is as black, and cyan as white."""
    if not few_colours:
        return DARK, LIGHT
    if not no_colour:
        return FEW_DARK, FEW_LIGHT
    return (
        replace(FEW_DARK, panel=_GREY, variables=FEW_DARK.variables | {"line-cursor": _GREY}),
        replace(FEW_LIGHT, variables=FEW_LIGHT.variables | {"line-cursor": _LIGHT_GREY}),
    )
