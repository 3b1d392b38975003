"""Profiles: what ``localspec tune`` found, kept for chat, run, bench and export.

One JSON file a profile, in the folder of the user's settings, to be read and edited by hand.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib import metadata
from itertools import count
from pathlib import Path
from typing import Any, Literal

import platformdirs
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from localspec import machine, units, validation
from localspec.bench.report import write
from localspec.bench.resume import sha256_of
from localspec.catalog import AFTER_NGRAM, Target
from localspec.errors import LocalspecError, UsageError, did_you_mean
from localspec.paths import kind_here, real
from localspec.records import DrafterSettings, DraftLength, EngineOptions, TreeSize

AUTO = "auto"
"""Instead of a name: the latest profile of the model."""
ENDING = ".json"
MOSTLY = 0.5
NAME = r"[A-Za-z0-9][A-Za-z0-9._+-]*"


class ProfileError(LocalspecError):
    """A profile cannot be read, or does not hold any more."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class File(_Part):
    """Enough to see that a file is another one. ``modified``: seconds since the epoch."""

    path: str
    size_bytes: int
    modified: float
    sha256: str | None = None

    @classmethod
    def of(cls, path: Path) -> File:
        found = path.stat()
        return cls(
            path=str(path.resolve()),
            size_bytes=found.st_size,
            modified=found.st_mtime,
            sha256=sha256_of(path),
        )

    def is_still(self, path: Path) -> bool | None:
        """None: it was written to since, and is too large to be sure that it is another."""
        found = path.stat()
        if found.st_size != self.size_bytes:
            return False
        if found.st_mtime == self.modified:
            return True
        return None if self.sha256 is None else sha256_of(path) == self.sha256


class Drafting(_Part):
    """The drafter and how it is run; ``n_max`` and ``tree`` may be "auto"."""

    name: str
    method: str
    file: File | None = None
    n_max: int | Literal["auto"]
    p_min: float
    tree: int | Literal["auto"] = 0


class Measured(_Part):
    """The winner against the baseline, on prompts that were not used to choose it. ``repeating``:
    the share of the runs whose text ended in a loop, which drafters are good at."""

    speedup: float
    interval: tuple[float, float]
    decode_tps: float | None = None
    baseline_tps: float | None = None
    accept_length: float | None = None
    prompts: int
    pairs: int
    this_prompt_only: bool = False
    repeating: float | None = None


class Profile(_Part):
    """``drafter`` None: the baseline won. ``settings`` are those of the measurement, to be read."""

    version: Literal[1] = 1
    name: str = Field(pattern=f"^{NAME}$")
    created: AwareDatetime
    model: str
    target: File
    workloads: tuple[str, ...]
    drafter: Drafting | None
    measured: Measured | None
    machine: dict[str, Any]
    build: dict[str, Any]
    settings: dict[str, Any] = Field(default_factory=dict)
    localspec: str

    def sentence(self) -> str:
        """What it says, in one sentence."""
        return self.told(self.created.date().isoformat())

    def told(self, day: str) -> str:
        """The same, with when it was tuned in the words of ``day``."""
        m = self.measured
        on = "one prompt" if m is not None and m.this_prompt_only else ", ".join(self.workloads)
        if self.drafter is None:
            best = f" (the best drafter: {speedup(m)})" if m else ""
            return f"the baseline is fastest on {on}{best}, tuned {day}"
        gain = f" is {speedup(m)} on {on}" if m else f" on {on}"
        if m is not None and (m.repeating or 0.0) > MOSTLY:
            gain += ", in texts that mostly ran into loops"
        return f"{label(self.drafter)}{gain}, tuned {day}"


def label(drafter: Drafting) -> str:
    if drafter.tree:
        return f"{drafter.name} tree={drafter.tree}"
    stops = "" if drafter.method == "ngram" else f" p_min={drafter.p_min:g}"
    return f"{drafter.name} n={drafter.n_max}{stops}"


def speedup(m: Measured) -> str:
    return units.speedup(m.speedup, m.interval)


# ---- files --------------------------------------------------------------------------------------


def folder() -> Path:
    return Path(platformdirs.user_config_dir("localspec", appauthor=False)) / "profiles"


def file_of(name: str) -> Path:
    if not re.fullmatch(NAME, name):
        raise UsageError(
            f"{name!r} cannot be the name of a profile: it has only letters, digits and . _ + -.",
            "Choose another name.",
        )
    return folder() / f"{name}{ENDING}"


def names() -> list[str]:
    return sorted(p.stem for p in folder().glob(f"*{ENDING}")) if folder().is_dir() else []


def read(name: str) -> Profile:
    """Raises ``UsageError`` where there is none of that name, ``ProfileError`` for a file that is
    none."""
    path = file_of(name)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        known = names()
        raise UsageError(
            f"There is no profile called {name!r}.",
            did_you_mean(name, known)
            + ("`localspec profiles` lists them." if known else "`localspec tune` makes one."),
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"The profile {path} cannot be read: {error}.", _ANEW) from None
    try:
        return Profile.model_validate_json(text)
    except ValidationError as error:
        said = validation.sentence(error.errors()[0])
        raise ProfileError(f"The profile {path} is damaged: {said}.", _ANEW) from None


_ANEW = "Mend it, or make it anew with `localspec tune`."


def own_name(name: str, target: Path) -> str:
    """``name``, or one like it, if that is taken by a profile of another file."""
    tried = name
    for n in count(2):
        if tried not in names() or _taken_by(tried) in (None, str(target.resolve())):
            break
        tried = f"{name}-{n}"
    return tried


def _taken_by(name: str) -> str | None:
    try:
        return read(name).target.path
    except ProfileError:
        return None  # it is moved aside, and may be


def keep(profile: Profile) -> Path:
    """Write it. What has its name and is no profile of the same target is moved aside first."""
    path = file_of(profile.name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and _taken_by(profile.name) != profile.target.path:
            path.replace(_free(path))
    except OSError as error:
        raise ProfileError(f"{path} cannot be written: {error.strerror}.", "") from None
    write(str(path), profile.model_dump_json(indent=1) + "\n")
    return path


def _free(path: Path) -> Path:
    """A name beside it that nothing has yet, and that is no profile's."""
    beside = (path.with_name(f"{path.name}.{n}") for n in range(1, 10_000))
    return next(p for p in beside if not p.exists())


def remove(name: str) -> None:
    path = file_of(name)
    if not kind_here(path):
        read(name)
    path.unlink()


def named(model: str, workloads: Iterable[str]) -> str:
    """The usual name: of target and workload."""
    words = f"{model}-{'+'.join(workloads)}"
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", words).strip("-._+")[:100] or "profile"


# ---- use ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setup:
    """The words of the options that a profile stands for; ``remarks``: what to tell a person."""

    drafter: str
    n_max: DraftLength | None = None
    p_min: float | None = None
    tree: TreeSize = 0
    remarks: tuple[str, ...] = ()


def pick(words: str, target: Target, model: str) -> tuple[Profile, tuple[str, ...]]:
    """The profile called ``words``, or the target's latest ("auto"), and remarks. Raises
    ``UsageError`` where there is none, ``ProfileError`` where it does not hold."""
    if words != AUTO:
        profile = read(words)
        if not _is_of(profile, target):
            raise UsageError(
                f"The profile {words} is of {profile.model} ({profile.target.path}), not of "
                f"{target.name}.",
                f"Make one with: {tune_command(model)}",
            )
        return profile, ()
    mine, unread = of_target(target)
    if not mine:
        raise UsageError(
            " ".join([f"There is no profile of {target.name}.", *unread]),
            f"Make one with: {tune_command(model)}",
        )
    return mine[0], unread


def of_target(target: Target) -> tuple[list[Profile], tuple[str, ...]]:
    """Its profiles, the latest first, and what cannot be read of all there are."""
    found, unread = [], []
    for name in names():
        try:
            found.append(read(name))
        except ProfileError as error:
            unread.append(str(error))
    mine = [p for p in found if _is_of(p, target)]
    return sorted(mine, key=lambda p: p.created, reverse=True), tuple(unread)


def tune_command(model: str) -> str:
    return f"localspec tune --model {shlex.quote(model)}"


def _is_of(profile: Profile, target: Target) -> bool:
    if profile.target.path == str(target.path.resolve()):
        return True
    found = (
        File.of(target.path) if target.path.stat().st_size == profile.target.size_bytes else None
    )
    return found is not None and found.sha256 is not None and found.sha256 == profile.target.sha256


def setup(words: str, target: Target, model: str, engine: EngineOptions | None = None) -> Setup:
    """What the profile stands for, for a target that was called ``model`` and runs by ``engine``.

    Raises ``ProfileError`` where a file is gone or another one by now; another machine or build is
    a remark, and so are other settings of the engine: the profile says how to draft only.
    """
    profile, remarks = pick(words, target, model)
    again = f"Tune again: {tune_command(model)}"
    stale = f"The profile {profile.name} does not hold any more:"
    same = profile.target.is_still(target.path)
    if same is False:
        raise ProfileError(f"{stale} {target.path} was changed since.", again)
    doubts = [] if same else [f"{target.path.name} was written to since"]
    drafter = profile.drafter
    if drafter is not None and drafter.file is not None:
        path = Path(drafter.file.path)
        if kind_here(path) != "file":
            raise ProfileError(f"{stale} its drafter {path} is gone.", again)
        same = drafter.file.is_still(path)
        if same is False:
            raise ProfileError(f"{stale} its drafter {path} was changed since.", again)
        doubts += [] if same else [f"{path.name} was written to since"]
    doubts += [*_other_machine(profile), *_other_build(profile)]
    if engine is not None:
        doubts += _other_settings(profile, engine)
    said = [f"profile {profile.name}: {profile.sentence()}."]
    if drafter is None:
        said.append("It goes on without speculation.")
    if doubts:
        said.append(f"That need not hold now: {'; '.join(doubts)}. {again}")
    return replace(as_options(profile, target), remarks=(*remarks, *said))


def as_options(profile: Profile, target: Target) -> Setup:
    """What it says, whether that holds or not."""
    drafter = profile.drafter
    if drafter is None:
        return Setup("none")
    # a tree has no p_min: one that is kept for it would be that of the chain used in its place
    p_min = None if drafter.tree else drafter.p_min
    return Setup(_words(drafter, target), drafter.n_max, p_min, drafter.tree)


def _words(drafter: Drafting, target: Target) -> str:
    """What --drafter takes: the target's own name for it, so that it is called the same."""
    first, name = "", drafter.name
    if drafter.method.startswith(AFTER_NGRAM):
        first, name = AFTER_NGRAM, name.removeprefix(AFTER_NGRAM)
    method = drafter.method.removeprefix(AFTER_NGRAM)
    path = Path(drafter.file.path) if drafter.file else None
    for own in target.drafters:
        known = real(own.path) if own.path else None
        if (own.name, own.method, known) == (name, method, path):
            return first + name
    return first + (str(path) if path else method)


def _other_machine(profile: Profile) -> Iterable[str]:
    now = machine.describe()
    if profile.machine.get("cpu") != now.get("cpu"):
        yield f"it was tuned on {profile.machine.get('cpu')}, and this is {now.get('cpu')}"
    elif profile.machine.get("logical_cpus") != now.get("logical_cpus"):
        yield (
            f"it was tuned with {profile.machine.get('logical_cpus')} processors, and here are "
            f"{now.get('logical_cpus')}"
        )


def _other_settings(profile: Profile, engine: EngineOptions) -> Iterable[str]:
    here = {
        "kv_type": engine.kv_type,
        "draft_kv_type": engine.draft_kv_type,
        "n_cpu_moe": engine.load.n_cpu_moe,
        "device": engine.load.device,
        "split": engine.load.split,
        "threads": engine.threads or machine.default_threads(),
    }
    for name, now in here.items():
        then = profile.settings.get(name, now)
        if then != now:
            option = f"--{name.replace('_', '-')}"
            yield f"it was tuned with {option} {then or 'unset'}, not with {now or 'none'}"


def _other_build(profile: Profile) -> Iterable[str]:
    then, now = profile.build.get("llama_cpp_python"), metadata.version("llama-cpp-python")
    if then != now:
        yield f"it was tuned with llama-cpp-python {then}, and this is {now}"


def drafting(settings: DrafterSettings, name: str) -> Drafting:
    return Drafting(
        name=name,
        method=settings.method,
        file=File.of(Path(settings.path)) if settings.path else None,
        n_max=settings.draft_length,
        p_min=settings.p_min,
        tree=settings.tree_size,
    )
