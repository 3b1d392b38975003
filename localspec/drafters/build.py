"""From settings to a drafter: one entry a family.

In two phases, since a target context is built to a drafter's needs, and some drafters' contexts are
built upon the target's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, Protocol

from localspec.drafters.base import Drafter, Needs
from localspec.drafters.dflash import build_dflash, dflash_needs
from localspec.drafters.draft_model import DraftModelDrafter
from localspec.drafters.eagle3 import build_eagle3, eagle3_needs
from localspec.drafters.mixed import MixedDrafter
from localspec.drafters.mtp import build_mtp, mtp_needs
from localspec.drafters.ngram import NgramDrafter
from localspec.drafters.none import NoDrafter
from localspec.drafters.tree import FRONTIER, Branches, DraftModelTree, tree_needs
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
        extra: int = 0,
        mtp: bool = False,
        reads_target: bool = False,
    ) -> Context:
        """A context like the target's; ``batch``: the most tokens of one decode, where fewer do;
        ``extra``: cells beyond the target's, for branches;
        ``reads_target`` ties it to the target's (ctx_other)."""


class Family(NamedTuple):
    """``needs`` may refuse a pairing (DrafterError) before any context is made.

    ``has_file``: it needs a GGUF of its own; ``may_have_file``: it can do without.
    """

    needs: Callable[[DrafterSettings, Resources], Needs]
    build: Callable[[DrafterSettings, Resources, Needs], Drafter]
    has_file: bool = False
    may_have_file: bool = False
    trees: bool = False


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
    needs = _chain_needs(settings, resources)
    return tree_needs(needs, settings.tree) if settings.tree else needs


def _draft_model(settings: DrafterSettings, resources: Resources, needs: Needs) -> Drafter:
    model = resources.drafter
    assert model is not None
    if settings.tree:
        return DraftModelTree(
            model,
            resources.drafter_context(
                model,
                outputs=FRONTIER,
                sequences=Branches.SEQUENCES,
                extra=FRONTIER * settings.n_max,
            ),
            n_max=settings.n_max,
            nodes=settings.tree,
            target_vocab=resources.target.vocab.size,
        )
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
    "draft-model": Family(_draft_model_needs, _draft_model, has_file=True, trees=True),
    "mtp": Family(mtp_needs, build_mtp, may_have_file=True),
    "eagle3": Family(eagle3_needs, build_eagle3, has_file=True, trees=True),
    "dflash": Family(dflash_needs, build_dflash, has_file=True, trees=True),
    "dspark": Family(dflash_needs, build_dflash, has_file=True),
}


def _mixed(behind: Family, own: DrafterSettings) -> Family:
    """The n-gram drafter before ``behind``, which takes its ``own`` settings and is held to its own
    needs: the n-gram drafter may draft more tokens than it can, or than its tree has nodes."""
    own_needs = Needs()

    def needs(settings: DrafterSettings, resources: Resources) -> Needs:
        nonlocal own_needs
        own_needs = found = behind.needs(own, resources)
        return replace(found, outputs=max(found.outputs, settings.n_max + 1), rollback=True)

    def build(settings: DrafterSettings, resources: Resources, needs: Needs) -> Drafter:
        drafter = behind.build(own, resources, own_needs)
        return MixedDrafter(_ngram(settings, resources, needs), drafter)

    return behind._replace(needs=needs, build=build)


def family_of(settings: DrafterSettings) -> Family:
    """Raises DrafterError when the settings name no family that can be run."""
    first, _, second = settings.method.partition("+")
    if second:
        if first != "ngram" or second in ("none", "ngram"):
            raise DrafterError(
                f"{settings.method!r} is no pair of drafters.",
                "ngram can be tried before a drafter of another kind: ngram+draft-model.",
            )
        own = replace(settings, method=second)
        return _mixed(family_of(own), own)
    family = FAMILIES.get(settings.method)
    if family is None:
        raise DrafterError(
            f"Drafter method {settings.method!r} is not built in this version.",
            f"Choose from {', '.join(FAMILIES)}.",
        )
    if settings.method != "none" and settings.n_max < 1:
        raise DrafterError("A drafter must draft at least one token.", "Raise --n-max.")
    if settings.tree and not family.trees:
        raise DrafterError(
            f"The drafter {settings.method} proposes no trees.",
            f"These do: {', '.join(name for name, f in FAMILIES.items() if f.trees)}.",
        )
    if family.has_file and not settings.path:
        raise DrafterError(
            f"The drafter {settings.method} needs a GGUF file.", "Give --drafter a path."
        )
    return family
