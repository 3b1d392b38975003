"""What a repository of the Hub offers: its quantisations, which fit this machine, which to take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from localspec import discovery
from localspec.errors import LocalspecError
from localspec.fit import Fit, estimate
from localspec.gguf_header import GGUFHeader, joined
from localspec.gguf_names import COMMENDED, Variant, preferred
from localspec.hub.files import RemoteRepo, words_for
from localspec.hub.remote import read_remote
from localspec.machine import Memory
from localspec.models.output import CONTEXT
from localspec.reference import HubReference


@dataclass(frozen=True, slots=True)
class Offer:
    """One file, or split model, of a repository. ``words`` are what to type for it; ``fit`` is None
    of parts and where it cannot be told; ``recommended`` of at most one."""

    variant: Variant
    words: str
    here: bool
    fit: Fit | None = None
    recommended: bool = False


def offers(remote: RemoteRepo, memory: Memory, n_ctx: int = CONTEXT) -> tuple[Offer, ...]:
    """Everything to choose from, models first. Reads one header, of the smallest model; the others
    are taken to have the same shapes in more bytes."""
    found = remote.variants
    models = [v for v in found if v.part is None and v.complete]
    header = _header(remote, models)
    offered = []
    for variant in found:
        fit = None
        if header is not None and variant in models:
            fit = estimate(scaled(header, variant.size), memory, n_ctx=n_ctx)
        offered.append(Offer(variant, words_for(remote, variant), _is_here(remote, variant), fit))
    best = recommend(offered)
    return tuple(replace(o, recommended=o is best) for o in offered)


def recommend(offered: Sequence[Offer]) -> Offer | None:
    """The one to take: of those that fit best (all of it on a GPU before a part of it), the
    quantisation most commended, else the largest. None where nothing fits."""
    models = [o for o in offered if o.variant.part is None and o.variant.complete]
    known = [o for o in models if o.fit is not None]
    for verdict in ("GPU", "GPU+CPU", "CPU"):
        fitting = [o for o in known if o.fit is not None and o.fit.verdict == verdict]
        if fitting:
            return _commended(fitting) or fitting[-1]
    return None if known else _commended(models)


def _commended(offered: Sequence[Offer]) -> Offer | None:
    best = preferred([o.variant for o in offered if (o.variant.quant or "") in COMMENDED])
    return next((o for o in offered if o.variant is best), None)


def scaled(header: GGUFHeader, size: int) -> GGUFHeader:
    """The header of the same model in ``size`` bytes: another quantisation of it."""
    own = sum(t.n_bytes for t in header.tensors)
    share = size / own if own else 1.0
    tensors = tuple(replace(t, n_bytes=round(t.n_bytes * share)) for t in header.tensors)
    return replace(header, tensors=tensors)


def _header(remote: RemoteRepo, models: Sequence[Variant]) -> GGUFHeader | None:
    try:
        return joined(*read_remote(remote, models[0])) if models else None
    except LocalspecError:
        return None  # sizes alone are worth listing


def _is_here(remote: RemoteRepo, variant: Variant) -> bool:
    return discovery.find(HubReference(remote.repo, variant.file)) is not None
