"""From settings to a drafter: one entry a family.

In two phases, since a target context is built to a drafter's needs, and some drafters' contexts are
built upon the target's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from localspec.drafters.base import Drafter, Needs
from localspec.drafters.dflash import build_dflash, dflash_needs
from localspec.drafters.draft_model import DraftModelDrafter
from localspec.drafters.eagle3 import build_eagle3, eagle3_needs
from localspec.drafters.mtp import build_mtp, mtp_needs
from localspec.drafters.ngram import NgramDrafter
from localspec.drafters.none import NoDrafter
from localspec.errors import DrafterError
from localspec.llama import Context, Model
from localspec.llama.vocab import check_drafter_vocab
from localspec.records import DrafterSettings


class Resources(Protocol):
    """What the engine lends: the target, the drafter's own model (None where it has no file)."""

    target: Model
    drafter: Model | None

    @property
    def target_context(self) -> Context:
        """Only in the second phase."""

    def drafter_context(
        self,
        model: Model,
        *,
        outputs: int = 1,
        sequences: int = 1,
        batch: int | None = None,
        mtp: bool = False,
        reads_target: bool = False,
    ) -> Context:
        """A context like the target's; ``batch``: the most tokens of one decode, where fewer do;
        ``reads_target`` ties it to the target's (ctx_other)."""


class Family(NamedTuple):
    """``needs`` may refuse a pairing (DrafterError) before any context is made.

    ``has_file``: it needs a GGUF of its own; ``may_have_file``: it can do without.
    """

    needs: Callable[[DrafterSettings, Resources], Needs]
    build: Callable[[DrafterSettings, Resources, Needs], Drafter]
    has_file: bool = False
    may_have_file: bool = False


def _chain_needs(settings: DrafterSettings, resources: Resources) -> Needs:
    return Needs(outputs=settings.n_max + 1, rollback=True)


def _ngram(settings: DrafterSettings, resources: Resources, needs: Needs) -> Drafter:
    return NgramDrafter(settings.n_max, settings.ngram_min, settings.ngram_max)


def _draft_model_needs(settings: DrafterSettings, resources: Resources) -> Needs:
    model = resources.drafter
    assert model is not None
    check_drafter_vocab(resources.target.vocab, model.vocab)
    if not model.can_roll_back:
        raise DrafterError(
            f"{model.path.name} ({model.arch}) keeps a recurrent state, which cannot be rolled "
            "back to a rejected draft, so it cannot draft.",
            "Choose a draft model with attention memory.",
        )
    return _chain_needs(settings, resources)


def _draft_model(settings: DrafterSettings, resources: Resources, needs: Needs) -> Drafter:
    model = resources.drafter
    assert model is not None
    return DraftModelDrafter(
        model,
        resources.drafter_context(model),
        n_max=settings.n_max,
        p_min=settings.p_min,
        sampled=settings.sampled,
        target_vocab=resources.target.vocab.size,
    )


FAMILIES: dict[str, Family] = {
    "none": Family(lambda s, r: Needs(), lambda s, r, n: NoDrafter()),
    "ngram": Family(_chain_needs, _ngram),
    "draft-model": Family(_draft_model_needs, _draft_model, has_file=True),
    "mtp": Family(mtp_needs, build_mtp, may_have_file=True),
    "eagle3": Family(eagle3_needs, build_eagle3, has_file=True),
    "dflash": Family(dflash_needs, build_dflash, has_file=True),
    "dspark": Family(dflash_needs, build_dflash, has_file=True),
}


def family_of(settings: DrafterSettings) -> Family:
    """Raises DrafterError when the settings name no family that can be run."""
    family = FAMILIES.get(settings.method)
    if family is None:
        raise DrafterError(
            f"Drafter method {settings.method!r} is not built in this version.",
            f"Choose from {', '.join(FAMILIES)}.",
        )
    if settings.method != "none" and settings.n_max < 1:
        raise DrafterError("A drafter must draft at least one token.", "Raise --n-max.")
    if family.has_file and not settings.path:
        raise DrafterError(
            f"A {settings.method} drafter needs a GGUF file.", "Give --drafter a path."
        )
    return family
