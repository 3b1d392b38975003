"""From settings to a drafter: one entry a family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from localspec.drafters.base import Drafter
from localspec.drafters.draft_model import DraftModelDrafter
from localspec.drafters.ngram import NgramDrafter
from localspec.drafters.none import NoDrafter
from localspec.errors import DrafterError
from localspec.llama import Context, Model
from localspec.llama.vocab import check_drafter_vocab
from localspec.records import DrafterSettings


class Resources(Protocol):
    """What the engine lends a drafter: the target, other models, contexts like the target's."""

    target: Model

    def drafter_model(self, path: str) -> Model: ...

    def drafter_context(self, model: Model, outputs: int) -> Context: ...


def _ngram(settings: DrafterSettings, resources: Resources) -> Drafter:
    return NgramDrafter(settings.n_max, settings.ngram_min, settings.ngram_max)


def _draft_model(settings: DrafterSettings, resources: Resources) -> Drafter:
    if not settings.path:
        raise DrafterError("A draft model needs a GGUF file.", "Give --drafter a path.")
    model = resources.drafter_model(settings.path)
    check_drafter_vocab(resources.target.vocab, model.vocab)
    if not model.can_roll_back:
        raise DrafterError(
            f"{model.path.name} ({model.arch}) keeps a recurrent state, which cannot be rolled "
            "back to a rejected draft, so it cannot draft.",
            "Choose a draft model with attention memory.",
        )
    return DraftModelDrafter(
        model,
        resources.drafter_context(model, 1),
        n_max=settings.n_max,
        p_min=settings.p_min,
        sampled=settings.sampled,
        target_vocab=resources.target.vocab.size,
    )


def _none(settings: DrafterSettings, resources: Resources) -> Drafter:
    return NoDrafter()


FAMILIES: dict[str, Callable[[DrafterSettings, Resources], Drafter]] = {
    "none": _none,
    "ngram": _ngram,
    "draft-model": _draft_model,
}


def build_drafter(settings: DrafterSettings, resources: Resources) -> Drafter:
    """Raises DrafterError when the family is unknown or the drafter does not fit the target."""
    family = FAMILIES.get(settings.method)
    if family is None:
        raise DrafterError(
            f"Drafter method {settings.method!r} is not built in this version.",
            f"Choose from {', '.join(FAMILIES)}.",
        )
    if settings.method != "none" and settings.n_max < 1:
        raise DrafterError("A drafter must draft at least one token.", "Raise --n-max.")
    return family(settings, resources)
