"""What ``localspec tune`` may try: drafter x n_max x p_min x chain or tree.

It starts from few settings of every drafter and goes on, one step at a time, from those that do
well: all combinations would be hundreds, of which no budget of minutes could tell the best.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TypeVar

from localspec.bench.plan import TREE_DEPTH, Candidate
from localspec.catalog import AFTER_NGRAM, METHODS_WITH_TREES, P_MIN, DrafterSpec
from localspec.records import DrafterSettings, DraftLength, TreeSize

Number = TypeVar("Number", int, float)

LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Draft lengths that are tried from a neighbour on."""
P_MINS = (0.0, 0.3, 0.5, 0.7)
TREES = (8, 16, 32)


@dataclass(frozen=True, slots=True)
class Setting:
    """A drafter and how it is run; ``p_min`` None: as recommended."""

    spec: DrafterSpec
    n_max: DraftLength
    p_min: float | None = None
    tree: TreeSize = 0

    def settings(self) -> DrafterSettings:
        n_max: DraftLength | None = self.n_max
        if self.tree:
            n_max = None if self.tree == "auto" else TREE_DEPTH
        return self.spec.settings(n_max=n_max, p_min=self.p_min, tree=self.tree)

    @property
    def key(self) -> str:
        if self.tree:
            return f"{self.spec.name} tree={self.tree}"
        how = "" if self.p_min is None else f" p_min={self.p_min:g}"
        return f"{self.spec.name} n={self.n_max}{how}"


class Space:
    def __init__(self, specs: Sequence[DrafterSpec], temperature: float = 0.0) -> None:
        self.temperature = temperature
        self.baseline = Candidate("baseline", "baseline", DrafterSettings(), temperature)
        names = [s.name for s in specs]
        self._specs = [
            s if names.count(s.name) == 1 else replace(s, name=str(s.path))
            for s in specs
            if s.method != "none"
        ]
        self._settings: dict[str, Setting] = {}

    def setting(self, candidate: Candidate) -> Setting | None:
        """What a candidate of this space is made from; None for the baseline."""
        return self._settings.get(candidate.key)

    def first(self) -> list[Candidate]:
        """Where tuning starts: every drafter as recommended, then each with an adaptive length,
        and so on, so that those who come first are of all drafters. The recommended one leads."""
        ordered = sorted(self._specs, key=lambda spec: not spec.recommended)
        in_turn = zip_longest(*(self._starts(spec) for spec in ordered))
        return self._distinct(s for turn in in_turn for s in turn if s is not None)

    def near(self, candidate: Candidate) -> list[Candidate]:
        """One step away from a candidate: an adaptive length, shorter and longer drafts, another
        ``p_min``, n-gram drafts before its own; or fewer and more nodes of a tree."""
        setting = self._settings[candidate.key]
        return self._distinct(self._steps(setting))

    def _distinct(self, settings: Iterator[Setting]) -> list[Candidate]:
        found: dict[str, Candidate] = {}
        for setting in settings:
            drafter = setting.settings()
            if setting.tree:
                drafter = replace(drafter, name=f"{drafter.name} tree={setting.tree}")
            self._settings.setdefault(setting.key, setting)
            made = Candidate(setting.key, setting.key, drafter, self.temperature)
            found.setdefault(setting.key, made)
        return list(found.values())

    def _starts(self, spec: DrafterSpec) -> Iterator[Setting]:
        usual = spec.settings().n_max
        yield Setting(spec, usual)
        yield Setting(spec, "auto")
        yield Setting(spec, min(2 * usual, spec.limit or 2 * usual))
        if spec.method in METHODS_WITH_TREES:
            yield Setting(spec, usual, tree="auto")

    def _steps(self, setting: Setting) -> Iterator[Setting]:
        spec = setting.spec
        if setting.tree:
            for nodes in TREES if setting.tree == "auto" else _beside(setting.tree, TREES):
                yield replace(setting, tree=nodes)
            return
        if setting.n_max == "auto":
            yield replace(setting, n_max=spec.settings().n_max)
        else:
            yield replace(setting, n_max="auto")
            for n in _beside(setting.n_max, LENGTHS):
                if n <= (spec.limit or n):
                    yield replace(setting, n_max=n)
        if spec.method == "ngram":
            return
        usual = P_MIN if spec.p_min is None else spec.p_min
        at = usual if setting.p_min is None else setting.p_min
        for p in _beside(at, P_MINS):
            yield replace(setting, p_min=None if p == usual else p)
        if not spec.method.startswith(AFTER_NGRAM):
            behind = replace(
                spec, name=AFTER_NGRAM + spec.name, method=AFTER_NGRAM + spec.method, note=""
            )
            yield replace(setting, spec=replace(behind, recommended=False))


def _beside(at: Number, ladder: Sequence[Number]) -> list[Number]:
    """The next lower and the next higher step of a ladder."""
    lower: list[Number] = [x for x in ladder if x < at]
    higher: list[Number] = [x for x in ladder if x > at]
    return lower[-1:] + higher[:1]
