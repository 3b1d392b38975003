"""Models and contexts in this process, freed at the end of the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import localspec.llama  # noqa: F401  (before numpy)
from localspec.drafters.base import Drafter, Needs
from localspec.drafters.build import family_of
from localspec.llama import Context, ContextParams, Model
from localspec.records import DrafterSettings


class Bench:
    """Lends models and contexts as the engine does (drafters.build.Resources)."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._models: dict[str, Model] = {}
        self.contexts: list[Context] = []
        self.target: Model
        self.drafter: Model | None = None

    def model(self, path: Path | str) -> Model:
        key = str(path)
        if key not in self._models:
            self._models[key] = self._stack.enter_context(Model(path))
        return self._models[key]

    def context(self, path: Path | str, *, n_ctx: int = 256, batch: int = 64) -> Context:
        params = ContextParams(n_ctx=n_ctx, threads=1, batch=batch)
        context = self._stack.enter_context(Context(self.model(path), params))
        self.contexts.append(context)
        return context

    @property
    def target_context(self) -> Context:
        return self.contexts[0]

    def drafter_context(self, model: Model, **options: object) -> Context:
        return self.context(model.path)

    def build(self, settings: DrafterSettings) -> tuple[Needs, Drafter]:
        """Both phases, as the engine goes through them; the target's context comes between."""
        family = family_of(settings)
        self.drafter = self.model(settings.path) if settings.path else None
        needs = family.needs(settings, self)
        self.context(self.target.path)
        return needs, family.build(settings, self, needs)


@pytest.fixture
def bench() -> Iterator[Bench]:
    with ExitStack() as stack:
        yield Bench(stack)
