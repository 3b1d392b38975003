"""What a repository of the Hub offers: its quantisations, which fit this machine, which to take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from localspec import discovery
from localspec.errors import LocalspecError, ModelFileError
from localspec.fit import Fit, estimate
from localspec.gguf_header import GGUFHeader, check_model_file, joined
from localspec.gguf_names import COMMENDED, Variant, part_of, preferred
from localspec.hub.files import RemoteRepo, words_for
from localspec.hub.remote import read_remote
from localspec.machine import Memory
from localspec.models.output import CONTEXT
from localspec.reference import HubReference


@dataclass(frozen=True, slots=True)
class Offer:
    """One file, or split model, of a repository. ``words`` are what to type for it; ``path`` is
    where it is on this machine, None where it is not, and ``problem`` why what is there cannot be
    used; ``fit`` is None of parts and where it cannot be told; ``recommended`` of at most one."""

    variant: Variant
    words: str
    path: Path | None = None
    problem: str = ""
    fit: Fit | None = None
    recommended: bool = False

    @property
    def here(self) -> bool:
        return self.path is not None


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
        path = discovery.find(HubReference(remote.repo, variant.file))
        problem = _problem(path) if path is not None else ""
        offered.append(Offer(variant, words_for(remote, variant), path, problem, fit))
    best = recommend(offered)
    return tuple(replace(o, recommended=o is best) for o in offered)


def recommend(offered: Sequence[Offer]) -> Offer | None:
    """The one to take: of those that fit best (all of it on a GPU before a part of it), the
    quantisation most commended, else the largest. None where nothing fits."""
    models = [o for o in offered if o.variant.part is None and o.variant.complete and not o.problem]
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


def _problem(path: Path) -> str:
    """Why a file that is here cannot be used. Projectors and the like are not looked at."""
    if part_of(path.name) in ("mmproj", "imatrix"):
        return ""
    try:
        check_model_file(path)
    except ModelFileError as error:
        return error.message.replace(str(path), path.name)
    return ""
