"""The checks of ``localspec doctor``. Each looks at one thing and raises nothing that a machine can
cause: what does not work is what it is there to say."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import platformdirs
from rich.console import Console

from localspec import __version__, machine
from localspec.catalog import Catalogue, user_file
from localspec.doctor.findings import Finding
from localspec.engine.client import Engine
from localspec.errors import HubError, LocalspecError
from localspec.machine import Gpu
from localspec.paths import kind_here
from localspec.records import LLAMA_CPP_PYTHON, BuildInfo, Device
from localspec.reference import hub_cache
from localspec.store import Store
from localspec.units import file_size

GIB = 1 << 30
LITTLE_DISK = 5 * GIB
"""Bytes; less does not hold a model worth measuring."""
SMALL_TERMINAL = (80, 24)
VERSIONS = ("llama-cpp-python", "huggingface-hub", "textual", "numpy", "scipy")
WHEELS = "https://abetlen.github.io/llama-cpp-python/whl"
"""Where llama-cpp-python publishes wheels for each backend (its README)."""


def compiled(option: str) -> str:
    """The command that compiles llama-cpp-python here with this option of CMake."""
    build = f"{_INSTALL} --no-cache-dir --no-binary llama-cpp-python"
    if sys.platform == "win32":
        return f'$env:CMAKE_ARGS = "-D{option}=on"; {build}'
    return f'CMAKE_ARGS="-D{option}=on" {build}'


def ready_made(wheel: str) -> str:
    """The command that installs the published wheel of this name."""
    return f"{_INSTALL} --extra-index-url {WHEELS}/{wheel}"


_INSTALL = f"pip install --force-reinstall --no-deps 'llama-cpp-python=={LLAMA_CPP_PYTHON}'"
_VULKAN = ("Vulkan", "vulkan", "GGML_VULKAN", "the Vulkan SDK")
BACKENDS = {
    "NVIDIA": (("CUDA", "cu124", "GGML_CUDA", "the CUDA toolkit"), _VULKAN),
    "AMD": (("ROCm", "rocm72", "GGML_HIP", "ROCm"), _VULKAN),
    "Intel": (_VULKAN,),
    "Apple": (("Metal", "metal", "GGML_METAL", "Xcode's command line tools"),),
}
"""By vendor: llama.cpp's backends, the published wheel of each (cu124: CUDA 12.4), the option that
compiles it in, and what that needs."""


def how_to_use(vendor: str) -> tuple[str, tuple[str, ...]]:
    """A sentence and the commands: each a way to a llama.cpp that uses the GPU."""
    ways = BACKENDS[vendor]
    commands = [c for _, wheel, option, _ in ways for c in (ready_made(wheel), compiled(option))]
    names = "; ".join(
        f"{name} as a published wheel or compiled here, which needs {needs}"
        for name, _, _, needs in ways
    )
    return f"Install one that uses it, by one of these: {names}.", tuple(commands)


# ---- versions -----------------------------------------------------------------------------------


def versions() -> Finding:
    found: dict[str, str | None] = {}
    for package in VERSIONS:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    system = f"{platform.system()} {platform.release()}"
    facts = {"localspec": __version__, "python": platform.python_version(), "os": system, **found}
    said = f"localspec {__version__}, Python {platform.python_version()}, {system}"
    absent = [name for name, version in found.items() if version is None]
    if absent:
        return Finding(
            "versions",
            said,
            "broken",
            f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed.",
            "Install localspec anew.",
            facts,
            ("pip install --upgrade --force-reinstall localspec",),
        )
    installed = (found["llama-cpp-python"] or "").partition("+")[0]
    if installed != LLAMA_CPP_PYTHON:
        return Finding(
            "versions",
            said,
            "broken",
            f"llama-cpp-python {installed} is installed; localspec needs {LLAMA_CPP_PYTHON} "
            "exactly, because it uses calls that change between versions.",
            "Install that one.",
            facts,
            (f"pip install 'llama-cpp-python=={LLAMA_CPP_PYTHON}'",),
        )
    return Finding("versions", said, facts=facts)


# ---- the machine --------------------------------------------------------------------------------


def processor(build: BuildInfo | None) -> Finding:
    facts: dict[str, object] = dict(machine.describe())
    features = machine.cpu_features()
    built = _built_for(build)
    facts["features"], facts["compiled_for"] = features, built
    cores, logical = facts["cores"] or "?", facts["logical_cpus"] or "?"
    threads = facts["default_threads"]
    plural = "" if threads == 1 else "s"
    said = f"{facts['cpu']}: {cores} cores, {logical} logical; {threads} thread{plural} by default"
    if features:
        said += f"; {' '.join(features)}"
    unused = [f for f in features or () if built is not None and f not in built]
    if unused:
        return Finding(
            "processor",
            said,
            "warning",
            f"llama.cpp was compiled without {', '.join(unused)}, which this processor has.",
            "Compile it here.",
            facts,
            (compiled("GGML_NATIVE"),),
        )
    return Finding("processor", said, facts=facts)


def _built_for(build: BuildInfo | None) -> list[str] | None:
    """The CPU features in llama.cpp's account of itself: "CPU : AVX = 1 | AVX2 = 1 | ..."."""
    if build is None or " : " not in build.system_info:
        return None
    pairs = (part.partition("=") for part in build.system_info.split(" : ", 1)[1].split("|"))
    return [name.strip() for name, _, value in pairs if value.strip() not in ("", "0")]


def conditions() -> Finding:
    """What would spoil a measurement now: load, battery, governor."""
    found = machine.warnings()
    facts = {"warnings": found}
    if not found:
        return Finding("conditions", "nothing that would disturb a measurement", facts=facts)
    said = "a measurement would be disturbed now"
    remedy = "Close other programs and plug the machine in before you measure."
    return Finding("conditions", said, "note", " ".join(found), remedy, facts)


def memory(devices: Sequence[Device]) -> Finding:
    found = machine.memory(devices)
    facts: dict[str, object] = {"total": found.total, "free": found.free}
    said = f"{found.free / GIB:.1f} of {found.total / GIB:.1f} GiB free"
    if found.free < GIB:
        return Finding(
            "memory",
            said,
            "warning",
            "That is too little for all but the smallest models.",
            "Close other programs.",
            facts,
        )
    return Finding("memory", said, facts=facts)


# ---- llama.cpp ----------------------------------------------------------------------------------


def engine(error: LocalspecError | None, build: BuildInfo | None) -> Finding:
    if build is None:
        why = error.message if error is not None else "The engine did not start."
        hint = error.hint if error is not None else ""
        remedy = f"{hint} Or compile it anew here.".strip()
        again = (compiled("GGML_NATIVE"),)
        return Finding("llama.cpp", "does not start", "broken", why, remedy, commands=again)
    backends = ", ".join(build.backends)
    said = f"{build.llama_cpp} (llama-cpp-python {build.llama_cpp_python}), backends: {backends}"
    facts = {
        "llama_cpp": build.llama_cpp,
        "llama_cpp_python": build.llama_cpp_python,
        "backends": list(build.backends),
        "system_info": build.system_info,
        "missing": list(build.missing),
    }
    if build.missing:
        return Finding(
            "llama.cpp",
            said,
            "warning",
            f"This build lacks {', '.join(build.missing)}: some of EAGLE-3, DFlash, DSpark and MTP "
            "are refused; everything else works.",
            "Compile it here.",
            facts,
            (compiled("GGML_NATIVE"),),
        )
    return Finding("llama.cpp", said, facts=facts)


def graphics(known: Sequence[Gpu], devices: Sequence[Device] | None) -> Finding:
    """The GPUs that the operating system sees against those that llama.cpp can use."""
    usable = [d for d in devices or () if d.kind in ("gpu", "igpu")]
    facts = {
        "machine": [{"vendor": g.vendor, "name": g.name, "driver": g.driver} for g in known],
        "llama_cpp": [
            {"name": d.name, "description": d.description, "total": d.total, "free": d.free}
            for d in usable
        ],
    }
    if usable:
        said = "; ".join(
            f"{d.name}: {d.description}, {d.free / GIB:.1f} of {d.total / GIB:.1f} GiB free"
            for d in usable
        )
        return Finding("GPU", said, facts=facts)
    if not known:
        return Finding("GPU", "none: models run on the processor", facts=facts)
    said = ", ".join(dict.fromkeys(g.name for g in known))
    if devices is None:
        return Finding("GPU", f"{said}; whether llama.cpp can use it is not known", facts=facts)
    # an Intel GPU beside the processor seldom gains anything
    main = next((g for g in known if g.vendor != "Intel"), known[0])
    if main.driver is False:
        return Finding(
            "GPU",
            said,
            "warning" if main.vendor != "Intel" else "note",
            f"The {main.vendor} GPU is there, but no driver for it: nothing can use it.",
            f"Install {main.vendor}'s driver; in a container, hand the device in (--gpus all, or "
            "--device /dev/kfd --device /dev/dri).",
            facts,
        )
    remedy, commands = how_to_use(main.vendor)
    return Finding(
        "GPU",
        said,
        "warning" if main.vendor != "Intel" else "note",
        f"The {main.vendor} GPU is there, but this llama.cpp is built for the processor only.",
        remedy,
        facts,
        commands,
    )


def ask_engine() -> tuple[BuildInfo | None, tuple[Device, ...] | None, LocalspecError | None]:
    """What llama.cpp says of itself and its devices, or why it says nothing."""
    try:
        with Engine() as started:
            return started.build, started.devices(), None
    except LocalspecError as error:
        return None, None, error


# ---- files --------------------------------------------------------------------------------------


def cache() -> Finding:
    """The folder of downloaded models: may it be written, is there room?"""
    try:
        folder = hub_cache()
    except LocalspecError as error:
        return Finding("cache", "HF_HOME", "broken", error.message, error.hint)
    there = next((p for p in (folder, *folder.parents) if kind_here(p) == "folder"), Path("/"))
    facts: dict[str, object] = {"folder": str(folder), "exists": kind_here(folder) == "folder"}
    try:
        free = shutil.disk_usage(there).free
    except OSError as error:
        return Finding(
            "cache",
            str(folder),
            "broken",
            f"It cannot be looked at ({error.strerror}).",
            "Set HF_HOME to a folder of yours.",
            facts,
        )
    facts["free"] = free
    said = f"{folder}, {file_size(free)} free"
    if not os.access(there, os.W_OK):
        return Finding(
            "cache",
            said,
            "broken",
            f"{there} may not be written: no model can be downloaded.",
            "Change its owner, or set HF_HOME to a folder of yours.",
            facts,
        )
    if free < LITTLE_DISK:
        return Finding(
            "cache",
            said,
            "warning",
            "That is too little for most models.",
            "`localspec models rm` frees what it downloaded; HF_HOME moves the cache.",
            facts,
        )
    return Finding("cache", said, facts=facts)


def own_files() -> Finding:
    """The user's catalogue, the history, and the folders that both lie in."""
    places = {
        "data": platformdirs.user_data_dir("localspec", appauthor=False),
        "state": platformdirs.user_state_dir("localspec", appauthor=False),
        "log": platformdirs.user_log_dir("localspec", appauthor=False),
    }
    facts: dict[str, object] = {**places, "catalogue": str(user_file())}
    for name in places.values():
        there = next((p for p in (Path(name), *Path(name).parents) if kind_here(p)), Path("/"))
        if not os.access(there, os.W_OK):
            return Finding(
                "files",
                name,
                "broken",
                f"{there} may not be written: benchmarks and conversations are not kept.",
                "Change its owner, or set XDG_DATA_HOME and XDG_STATE_HOME.",
                facts,
            )
    try:
        models = len(Catalogue.load().names)
        kept = len(Store().benches())
    except LocalspecError as error:
        return Finding("files", "damaged", "broken", error.message, error.hint, facts)
    facts |= {"models": models, "benchmarks": kept}
    return Finding(
        "files", f"{models} models in the catalogue, {kept} benchmarks kept", facts=facts
    )


# ---- the Hub ------------------------------------------------------------------------------------


def hub(*, offline: bool) -> Finding:
    """Is there a token, does the Hub take it, and can the Hub be reached?"""
    from huggingface_hub import constants, get_token

    from localspec.hub import client

    token = get_token()
    where = "HF_TOKEN" if os.environ.get("HF_TOKEN") else "the file of `hf auth login`"
    facts: dict[str, object] = {
        "endpoint": constants.ENDPOINT,
        "token": token is not None,
        "offline": bool(constants.HF_HUB_OFFLINE),
    }
    has = f"a token from {where}" if token else "no token"
    if offline or constants.HF_HUB_OFFLINE:
        why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "--offline"
        return Finding("Hub", f"{constants.ENDPOINT} not asked ({why}); {has}", facts=facts)
    once = client.Backoff(attempts=1)
    try:
        if token:
            facts["account"] = client.ask(_account, "your account", once)
        else:
            client.ask(lambda: list(client.listed("models", limit=1)), "models", once)
    except LocalspecError as error:
        facts["reachable"] = False
        said = f"{constants.ENDPOINT}; {has}"
        return Finding("Hub", said, "warning", error.message, error.hint, facts)
    facts["reachable"] = True
    as_whom = f", as {facts['account']}" if token else " (enough for all but gated models)"
    return Finding("Hub", f"{constants.ENDPOINT} answers; {has}{as_whom}", facts=facts)


def _account() -> str:
    from huggingface_hub.errors import HfHubHTTPError

    from localspec.hub import client

    try:
        name: str = client.api().whoami()["name"]
    except HfHubHTTPError as error:
        if error.response.status_code != 401:
            raise
        raise HubError(
            "The Hub does not accept your token.",
            "Make a new one and log in with `hf auth login`, or set HF_TOKEN; or remove it.",
        ) from None
    return name


# ---- the terminal -------------------------------------------------------------------------------


def terminal(console: Console | None = None) -> Finding:
    console = console or Console()
    width, height = console.size
    colours = {"truecolor": "16 million colours", "256": "256 colours", "standard": "16 colours"}
    colour = colours.get(console.color_system or "", "no colours")
    encoding = console.encoding.lower()
    facts = {
        "terminal": console.is_terminal,
        "term": os.environ.get("TERM"),
        "width": width,
        "height": height,
        "colours": console.color_system,
        "encoding": encoding,
        "ssh": "SSH_CONNECTION" in os.environ,
        "tmux": "TMUX" in os.environ,
    }
    if not console.is_terminal:
        return Finding("terminal", "none here: output goes into a pipe or file", facts=facts)
    said = f"{width}x{height}, {colour}, {encoding}"
    problems, remedies = [], []
    if (width, height) < SMALL_TERMINAL or height < SMALL_TERMINAL[1]:
        problems.append("It is smaller than 80x24, for which the app is made.")
        remedies.append("Make the window larger.")
    if not encoding.startswith("utf"):
        problems.append("It shows no UTF-8: bars and signs are drawn in ASCII.")
        remedies.append("Set a UTF-8 locale, such as LANG=C.UTF-8.")
    if console.color_system is None and "NO_COLOR" not in os.environ:
        problems.append("It has no colours.")
        remedies.append("Set TERM, for example to xterm-256color.")
    if problems:
        return Finding("terminal", said, "note", " ".join(problems), " ".join(remedies), facts)
    return Finding("terminal", said, facts=facts)
