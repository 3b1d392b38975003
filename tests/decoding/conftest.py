"""Sessions over tiny real models, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scripted import ScriptedDrafter

import localspec.llama  # noqa: F401  (before numpy)
from localspec.decoding.loop import Listener, Request, Session
from localspec.drafters.base import Drafter
from localspec.drafters.draft_model import DraftModelDrafter
from localspec.drafters.ngram import NgramDrafter
from localspec.drafters.none import NoDrafter
from localspec.llama import Context, ContextParams, Model
from localspec.llama.context import AbortFlag
from localspec.records import Generation, SamplerSettings

MakeSession = Callable[..., Session]


class Sessions:
    """Makes sessions that are closed at the end of the test; models are loaded once."""

    def __init__(self) -> None:
        self._models: dict[Path, Model] = {}
        self._open: list[Session] = []

    def model(self, path: Path) -> Model:
        if path not in self._models:
            self._models[path] = Model(path)
        return self._models[path]

    def make(self, path: Path, drafter: Drafter | None = None, *, n_ctx: int = 256) -> Session:
        """A session of ``drafter`` (default: the one that proposes nothing) on the model."""
        model, drafter, abort = self.model(path), drafter or NoDrafter(), AbortFlag()
        needs = drafter.needs
        params = ContextParams(
            n_ctx=n_ctx,
            threads=1,
            batch=max(64, needs.outputs),
            outputs=needs.outputs,
            sequences=needs.sequences,
        )
        session = Session(model, Context(model, params, abort), drafter, abort)
        self._open.append(session)
        return session

    def draft_model(
        self, path: Path, *, n_max: int, p_min: float = 0.0, sampled: bool = False, n_ctx: int = 256
    ) -> DraftModelDrafter:
        model = self.model(path)
        context = Context(model, ContextParams(n_ctx=n_ctx, threads=1, batch=64))
        return DraftModelDrafter(
            model,
            context,
            n_max=n_max,
            p_min=p_min,
            sampled=sampled,
            target_vocab=model.vocab.size,
        )

    def close(self) -> None:
        for session in self._open:
            session.close()
        for model in self._models.values():
            model.close()


@pytest.fixture
def sessions() -> Iterator[Sessions]:
    made = Sessions()
    yield made
    made.close()


def run(
    session: Session,
    prompt: list[int],
    max_tokens: int = 40,
    *,
    temperature: float = 0.0,
    seed: int = 0,
    listener: Listener | None = None,
    **options: object,
) -> Generation:
    """One generation; sampler fields other than temperature and seed by ``sampler=``."""
    sampler = options.pop("sampler", SamplerSettings(temperature=temperature, seed=seed))
    request = Request(prompt=prompt, sampler=sampler, max_tokens=max_tokens, **options)  # type: ignore[arg-type]
    return session.generate(request, listener or Listener())


__all__ = ["NgramDrafter", "ScriptedDrafter", "Sessions", "run"]
