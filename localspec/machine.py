"""The machine a measurement is made on: cores, memory, power, and what else is running.

Every reading may be absent (a container, a virtual machine, another operating system); absent is
None, never a guess. GPUs are llama.cpp's to report, inside the engine.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from localspec.records import Device

_ROOT = Path("/")
# Cores below this share of the fastest are efficiency cores. Not 1: the favoured turbo cores of one
# kind report a few percent more than their siblings.
_PERFORMANCE_SHARE = 0.75
# Other load that is warned of: 5 % of the machine, as runs that differ by that much are
# "disturbed", and a quarter of a processor at least. The rows of a matrix are dealt out evenly, so
# one thread that shares its processor with so much can hold up all of them by about as much; what
# a machine at rest does, and what the clock's ticks make of half a second, stays below.
_COMPETING_SHARE = 0.05
_COMPETING_PROCESSORS = 0.25
_COMPETING_SECONDS = 0.5
_LOW_MEMORY = 0.08
# Drawing costs a sixth where every processor decodes.
_MANY = 6
_GIB = 1 << 30
# Drivers whose "powersave" scales with load like the others' "schedutil".
_ACTIVE_DRIVERS = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")


# ---- threads ---------------------------------------------------------------------------------


def default_threads() -> int:
    """The physical performance cores that this process may use, at least 1.

    Second hardware threads and efficiency cores slow a decode down (the matrix rows are dealt out
    evenly, so all wait for the slowest), and more threads than a container's quota are throttled.
    """
    cores = _linux_cores(_allowed_cpus(), _ROOT) if sys.platform == "linux" else None
    if cores is None and sys.platform == "darwin":
        cores = _as_int(_output_of("sysctl", "-n", "hw.perflevel0.physicalcpu"))
    if cores is None:
        cores = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    return min(cores, _processors())


def threads_beside_drawing() -> int:
    """``default_threads``, less one where they would take all of many processors: a screen that is
    drawn slows the thread beside it, and all others wait for that one. Of two that one less would
    lose more than it gains (benchmarks/tui_cost.py)."""
    threads = default_threads()
    return threads - 1 if _MANY <= threads == _processors() else threads


def _processors() -> int:
    """That this process may keep busy, at least 1."""
    allowed = len(_allowed_cpus())
    quota = _cgroup_limit(_ROOT) if sys.platform == "linux" else None
    return max(1, min(allowed, int(quota) if quota else allowed))


def _allowed_cpus() -> set[int]:
    process = psutil.Process()
    if hasattr(process, "cpu_affinity"):  # absent on macOS
        return set(process.cpu_affinity())
    return set(range(psutil.cpu_count() or 1))


def _linux_cores(allowed: set[int], root: Path) -> int | None:
    """Physical performance cores among the ``allowed`` CPUs; None where /sys says nothing."""
    cpus = root / "sys/devices/system/cpu"
    siblings = {
        cpu: text
        for cpu in allowed
        if (text := _text(cpus / f"cpu{cpu}/topology/thread_siblings_list"))
    }
    if not siblings:
        return None
    intel = _cpu_list(_text(root / "sys/devices/cpu_core/cpus"))
    speed = {cpu: _as_int(_text(cpus / f"cpu{cpu}/cpu_capacity")) or 0 for cpu in siblings}
    fastest = max(speed.values())
    fast = {cpu for cpu, v in speed.items() if v >= _PERFORMANCE_SHARE * fastest}
    # A process bound to efficiency cores uses those.
    chosen = (intel & siblings.keys()) or fast
    return len({siblings[cpu] for cpu in chosen})


def _cpu_list(text: str | None) -> set[int]:
    """The numbers of a kernel list such as ``0-3,8``."""
    found: set[int] = set()
    for part in (text or "").split(","):
        first, _, last = part.partition("-")
        low, high = _as_int(first), _as_int(last or first)
        if low is not None and high is not None:
            found.update(range(low, high + 1))
    return found


def _cgroup_limit(root: Path) -> float | None:
    """The processors that the container's quota allows: the tightest quota up to the root."""
    limits = []
    for line in (_text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, inside = line.split(":", 2)
        if controllers == "":
            mount, files = root / "sys/fs/cgroup", ["cpu.max"]
        elif "cpu" in controllers.split(","):
            mount, files = root / "sys/fs/cgroup/cpu", ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        else:
            continue
        group = mount / inside.lstrip("/")
        # Inside a container the path may be the host's, which is not there: its root then is ours.
        for folder in (group, *group.parents):
            values = " ".join(_text(folder / f) or "" for f in files).split()
            if len(values) == 2 and values[0].isdecimal() and (_as_int(values[1]) or 0) > 0:
                limits.append(int(values[0]) / int(values[1]))
            if folder == mount:
                break
    return min(limits, default=None)


# ---- memory --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Memory:
    """What models can be put into: the machine's memory in bytes, and the devices that llama.cpp
    finds (``Engine.devices``; none: only the processor)."""

    total: int
    free: int
    devices: tuple[Device, ...] = ()


def memory(devices: Iterable[Device] = ()) -> Memory:
    """The memory of this machine now: what is free, or is only kept until somebody wants it."""
    system = psutil.virtual_memory()
    total, free = int(system.total), int(system.available)
    if sys.platform == "linux" and (container := _cgroup_memory(_ROOT)):
        total, free = min(total, container[0]), min(free, container[1])
    return Memory(total, free, tuple(devices))


def _cgroup_memory(root: Path) -> tuple[int, int] | None:
    """The container's limit and what is left of it, in bytes; None where there is no limit."""
    found: list[tuple[int, int]] = []
    for line in (_text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, inside = line.split(":", 2)
        if controllers == "":
            mount, limit_file, used_file = root / "sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            mount = root / "sys/fs/cgroup/memory"
            limit_file, used_file = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        group = mount / inside.lstrip("/")
        for folder in (group, *group.parents):
            limit, used = _as_int(_text(folder / limit_file)), _as_int(_text(folder / used_file))
            if limit and used is not None:
                # file pages that nobody used of late are given up for the asking
                cached = re.search(
                    r"^(?:total_)?inactive_file (\d+)", _text(folder / "memory.stat") or "", re.M
                )
                free = limit - used + (int(cached[1]) if cached else 0)
                found.append((limit, max(0, min(limit, free))))
            if folder == mount:
                break
    if not found:
        return None
    return min(limit for limit, _ in found), min(free for _, free in found)


# ---- description ---------------------------------------------------------------------------


def describe() -> dict[str, str | int | float | bool | None]:
    """The facts for the result file; None where the machine does not say."""
    return {
        "cpu": _cpu_name(),
        "architecture": platform.machine(),
        "cores": psutil.cpu_count(logical=False),
        "logical_cpus": psutil.cpu_count(),
        "default_threads": default_threads(),
        "memory_bytes": psutil.virtual_memory().total,
        "os": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "on_battery": _on_battery(),
        "governor": _governor(_ROOT),
    }


def _cpu_name() -> str:
    for line in (_text(_ROOT / "proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    if sys.platform == "darwin":
        name = _output_of("sysctl", "-n", "machdep.cpu.brand_string")
        if name:
            return name
    return platform.processor() or platform.machine()


def _on_battery() -> bool | None:
    read = getattr(psutil, "sensors_battery", None)
    try:
        battery = read() if read else None
    except (OSError, RuntimeError):
        return None
    if battery is None or battery.power_plugged is None:
        return None
    return not battery.power_plugged


def _governor(root: Path) -> str | None:
    return _text(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def _saves_power(root: Path) -> bool:
    """Is the clock held down on purpose?"""
    folder = root / "sys/devices/system/cpu/cpu0/cpufreq"
    if _text(folder / "scaling_driver") in _ACTIVE_DRIVERS:
        return _text(folder / "energy_performance_preference") == "power"
    return _governor(root) == "powersave"


_FEATURES = {
    # ggml's name of what it was compiled for (ggml_backend_cpu_get_features): the kernel's names
    "AVX": ("avx",),
    "AVX2": ("avx2",),
    "F16C": ("f16c",),
    "FMA": ("fma",),
    "AVX512": ("avx512f",),
    "AVX512_VNNI": ("avx512_vnni",),
    "AVX512_BF16": ("avx512_bf16",),
    "AMX_INT8": ("amx_int8",),
    "DOTPROD": ("asimddp",),
    "MATMUL_INT8": ("i8mm",),
    "SVE": ("sve",),
}


def cpu_features() -> tuple[str, ...] | None:
    """What of ggml's CPU features this processor has; None where the machine does not say."""
    text = _text(_ROOT / "proc/cpuinfo") or ""
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.M)
    if found is None:
        return None
    flags = set(found[1].split())
    return tuple(name for name, names in _FEATURES.items() if flags & set(names))


@dataclass(frozen=True, slots=True)
class Gpu:
    """A graphics processor that the operating system knows, whatever llama.cpp can do with it.

    ``driver``: whether a program can open it here; None where that cannot be told.
    """

    vendor: Literal["NVIDIA", "AMD", "Intel", "Apple"]
    name: str
    driver: bool | None = None


_VENDORS: dict[str, Literal["NVIDIA", "AMD", "Intel"]] = {
    "0x10de": "NVIDIA",
    "0x1002": "AMD",
    "0x8086": "Intel",
}


def gpus() -> tuple[Gpu, ...]:
    """The graphics processors of this machine, by the operating system's account."""
    if sys.platform == "darwin":
        # an Intel Mac's are of no use to llama.cpp
        return (Gpu("Apple", _cpu_name(), True),) if platform.machine() == "arm64" else ()
    if sys.platform == "win32":
        ask = "(Get-CimInstance Win32_VideoController).Name"
        text = _output_of("powershell", "-NoProfile", "-Command", ask) or ""
        return _windows_gpus(text)
    return _linux_gpus(_ROOT)


def _windows_gpus(text: str) -> tuple[Gpu, ...]:
    found = []
    for name in filter(None, map(str.strip, text.splitlines())):
        vendor = next((v for v in _VENDORS.values() if v.lower() in name.lower()), None)
        if vendor is None and "radeon" in name.lower():
            vendor = "AMD"
        if vendor is not None:
            found.append(Gpu(vendor, name))
    return tuple(found)


def _linux_gpus(root: Path) -> tuple[Gpu, ...]:
    """Display controllers on the PCI bus (class 0x03....) and what opens them: NVIDIA's own device
    nodes, AMD's /dev/kfd. Under WSL the host's GPU is on no bus; its driver brings libraries."""
    found = []
    try:
        devices = sorted((root / "sys/bus/pci/devices").iterdir())
    except OSError:
        devices = []
    drivers = {
        "NVIDIA": (root / "dev/nvidiactl").exists()
        or (root / "usr/lib/wsl/lib/libcuda.so.1").exists(),
        "AMD": (root / "dev/kfd").exists(),
        "Intel": any((root / "dev/dri").glob("renderD*")),
    }
    for device in devices:
        vendor = _VENDORS.get(_text(device / "vendor") or "")
        if vendor is None or not (_text(device / "class") or "").startswith("0x03"):
            continue
        number = (_text(device / "device") or "").removeprefix("0x")
        found.append(Gpu(vendor, f"{vendor} {number}".strip(), drivers[vendor]))
    if not any(g.vendor == "NVIDIA" for g in found) and drivers["NVIDIA"]:
        found.append(Gpu("NVIDIA", "NVIDIA", True))
    return tuple(found)


# ---- load ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sample:
    """Since the last sample: the share of all cores (0 to 1) that other processes used, the clock
    now in MHz, and the processor seconds of our own processes. None where it cannot be read."""

    other_load: float | None
    clock: float | None
    own_seconds: float = 0.0


class LoadMeter:
    """Watches the load of everything but this process and ``pids`` (the engine).

    Cheap: it reads the system's totals and the times of those few processes, and never lists all.
    """

    def __init__(self, pids: Iterable[int] = ()) -> None:
        self._own = [p for pid in (psutil.Process().pid, *pids) if (p := _process(pid))]
        self._last = self._read()

    def sample(self) -> Sample:
        before, now = self._last, self._read()
        self._last = now
        total = now[0] - before[0]
        if total <= 0:
            return Sample(None, _clock())
        own = sum(now[2][pid] - seconds for pid, seconds in before[2].items() if pid in now[2])
        other = (now[1] - before[1]) - own
        # The two sources tick apart, so a little less than nothing can come out.
        return Sample(min(1.0, max(0.0, other / total)), _clock(), own)

    def _read(self) -> tuple[float, float, dict[int, float]]:
        """All processor time, the part of it that was used, and the own processes' times."""
        times = psutil.cpu_times()._asdict()
        # Time of guests is already in user and nice; time stolen by a hypervisor is someone else's.
        total = sum(v for k, v in times.items() if k not in ("guest", "guest_nice"))
        idle = times["idle"] + times.get("iowait", 0.0)
        own = {p.pid: s for p in self._own if (s := _seconds(p)) is not None}
        return total, total - idle, own


def warnings(engine_pid: int | None = None, needed_bytes: int | None = None) -> list[str]:
    """What would spoil a measurement now, each a sentence. Takes half a second.

    ``needed_bytes`` is the memory that the work will take, where it is known.
    """
    found = []
    load = _competing_load(engine_pid)
    if load:
        found.append(load)
    if _on_battery():
        found.append(
            "This machine runs on battery: plug it in, or the clock will follow the charge."
        )
    if _saves_power(_ROOT):
        found.append(
            "The processor's governor saves power, so its clock is low: choose 'performance'."
        )
    memory = psutil.virtual_memory()
    if needed_bytes is not None and memory.available < needed_bytes:
        found.append(
            f"{memory.available / _GIB:.1f} GiB of memory are free and about "
            f"{needed_bytes / _GIB:.1f} GiB are needed: close other programs."
        )
    elif memory.available < _LOW_MEMORY * memory.total:
        found.append(
            f"Only {memory.available / _GIB:.1f} of {memory.total / _GIB:.1f} GiB of memory are "
            "free: close other programs."
        )
    return found


def competes(load: float | None) -> bool:
    """Is this share of all cores, used by others, enough to be felt?"""
    cpus = psutil.cpu_count() or 1
    return (load or 0.0) * cpus >= max(_COMPETING_PROCESSORS, _COMPETING_SHARE * cpus)


def _competing_load(engine_pid: int | None) -> str | None:
    me = psutil.Process()
    own = {me.pid, *(p.pid for p in me.children(recursive=True))}
    if engine_pid is not None:
        own.add(engine_pid)
    others = [p for p in psutil.process_iter(["name"]) if p.pid not in own]
    meter = LoadMeter(own - {me.pid})
    before = {p: s for p in others if (s := _seconds(p)) is not None}
    start = time.perf_counter()
    time.sleep(_COMPETING_SECONDS)
    elapsed = time.perf_counter() - start
    load = meter.sample().other_load
    if load is None or not competes(load):
        return None
    cpus = psutil.cpu_count() or 1
    sentence = f"Other programs use {load * cpus:.1f} of this machine's {cpus} logical processors"
    used = {p: (s - before[p]) / elapsed for p in before if (s := _seconds(p)) is not None}
    busiest = max(used, key=lambda p: used[p], default=None)
    if busiest is not None and used[busiest] >= _COMPETING_SHARE:
        name = busiest.info["name"] or "a process"
        sentence += f" (most: {name}, process {busiest.pid}, {used[busiest]:.0%} of one)"
    return sentence + ": speeds will be lower and less steady."


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None


def _seconds(process: psutil.Process) -> float | None:
    """Processor time of a process, or None where it ended or is not ours to see."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return None
    return float(times.user + times.system)


def _clock() -> float | None:
    read = getattr(psutil, "cpu_freq", None)  # absent on some systems
    try:
        frequency = read() if read else None
    except (OSError, RuntimeError, NotImplementedError):
        return None
    return float(frequency.current) if frequency and frequency.current else None


# ---- reading -------------------------------------------------------------------------------


def _text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return None


def _as_int(text: str | None) -> int | None:
    return int(text) if text and text.strip().isdecimal() else None


def _output_of(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
