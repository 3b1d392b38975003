"""Textual's style sheet, but each piece of CSS is parsed once for a theme.

Textual parses all of it anew for each new screen, and parts of it for each new kind of widget: 50
to 100 ms in which nothing else happens. Here it can also be parsed ahead, in another thread.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache, cached_property
from inspect import getfile
from typing import TYPE_CHECKING

from textual.css.model import RuleSet
from textual.css.parse import parse
from textual.css.stylesheet import Stylesheet
from textual.css.tokenize import tokenize_values
from textual.dom import DOMNode

if TYPE_CHECKING:
    from textual.css.tokenizer import Token
    from textual.css.types import CSSLocation

    Rules = list[RuleSet]
    Piece = tuple[str, CSSLocation, bool, str]
    """CSS, where it stands, is it a widget's own default, the type that it is scoped to."""


class _Parsed:
    """What was parsed with these variables."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = dict(variables)
        self._rules: dict[Piece, Rules] = {}

    @cached_property
    def _tokens(self) -> dict[str, list[Token]]:
        return tokenize_values(self._variables)

    def rules(self, piece: Piece) -> Rules:
        """Each with its rank in units of the tie breaker: rules in others have more of it."""
        if piece not in self._rules:
            css, read_from, is_default, scope = piece
            self._rules[piece] = list(
                parse(
                    scope,
                    css,
                    read_from,
                    variable_tokens=self._tokens,
                    is_default_rules=is_default,
                    tie_breaker=1,
                )
            )
        return self._rules[piece]


@cache
def _parsed(variables: frozenset[tuple[str, str]]) -> _Parsed:
    return _Parsed(dict(variables))


def _with(variables: Mapping[str, str]) -> _Parsed:
    return _parsed(frozenset(variables.items()))


class Sheet(Stylesheet):
    def __init__(self, *, variables: dict[str, str] | None = None) -> None:
        super().__init__(variables=variables)
        self._parsed = _with(self._variables)
        self._ranked: dict[tuple[Piece, int], Rules] = {}

    def set_variables(self, variables: dict[str, str]) -> None:
        if variables != self._variables:
            super().set_variables(variables)
            self._parsed = _with(variables)
            self._ranked = {}
            self._require_parse = True
            self._rules_map = None

    def reparse(self) -> None:
        """Nothing to do: what is new is parsed when a rule is asked for."""

    def _parse_rules(
        self,
        css: str,
        read_from: CSSLocation,
        is_default_rules: bool = False,
        tie_breaker: int = 0,
        scope: str = "",
    ) -> Rules:
        piece = (css, read_from, is_default_rules, scope)
        # A class's rules rank by how far it is from those that inherit them, so the same rules are
        # asked for with other ranks as more classes come.
        if (piece, tie_breaker) not in self._ranked:
            rules = self._parsed.rules(piece)
            self._ranked[piece, tie_breaker] = [_ranked(rule, tie_breaker) for rule in rules]
        return self._ranked[piece, tie_breaker]

    def prepare(self, variables: Mapping[str, str]) -> None:
        """Parse what is in use, and the CSS of every widget that is imported, with these variables.
        From any thread."""
        parsed = _with(variables)
        for read_from, source in list(self.source.items()):
            parsed.rules((source.content, read_from, source.is_defaults, source.scope))
        for piece in _default_pieces():
            parsed.rules(piece)


class _Rule(RuleSet):
    """Each is looked for in a set whenever a widget is styled: by its identity, as ``RuleSet`` is,
    but without a call of Python's."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__


def _ranked(rule: RuleSet, tie_breaker: int) -> RuleSet:
    other = copy.copy(rule)
    other.__class__ = _Rule
    other.tie_breaker *= tie_breaker
    return other


def _default_pieces() -> list[Piece]:
    found: list[Piece] = []
    waiting: list[type[DOMNode]] = [DOMNode]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if css := kind.__dict__.get("DEFAULT_CSS", ""):
            scope = kind._css_type_name if kind.__dict__.get("SCOPED_CSS", True) else ""
            try:
                file = getfile(kind)
            except (TypeError, OSError):  # its module is being imported by another thread
                file = kind.__name__  # as Textual calls it then
            found.append((css, (file, f"{kind.__name__}.DEFAULT_CSS"), True, scope))
    return found
