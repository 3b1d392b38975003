"""The shared library: loading it, its log, its version, and functions bound for the hot loop."""

from __future__ import annotations

import collections
import ctypes
import importlib.metadata
import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any

from localspec.errors import LocalspecError
from localspec.records import LLAMA_CPP_PYTHON, BuildInfo, Device, DeviceKind


def _import_low_level() -> Any:
    """llama_cpp.llama_cpp without running the package's __init__.

    That one imports the high-level class with jinja2, diskcache and numpy: 140 ms and 20 MB for
    nothing that is used here (ENGINE_NOTES section 9).
    """
    if "llama_cpp" not in sys.modules:
        spec = importlib.util.find_spec("llama_cpp")
        if spec is None or spec.submodule_search_locations is None:
            raise LocalspecError(
                "llama-cpp-python is not installed.",
                f"Install it: pip install llama-cpp-python=={LLAMA_CPP_PYTHON}",
            )
        package = types.ModuleType("llama_cpp")
        package.__path__ = list(spec.submodule_search_locations)
        package.__spec__ = spec
        sys.modules["llama_cpp"] = package
    installed = importlib.metadata.version("llama-cpp-python")
    if installed.partition("+")[0] != LLAMA_CPP_PYTHON:  # behind "+" stands the build: +cu124
        raise LocalspecError(
            f"llama-cpp-python {installed} is installed; localspec needs {LLAMA_CPP_PYTHON} "
            "exactly, because it uses calls that change between versions.",
            f"Install it: pip install llama-cpp-python=={LLAMA_CPP_PYTHON}",
        )
    import llama_cpp.llama_cpp as low_level

    return low_level


L: Any = _import_low_level()
lib: ctypes.CDLL = L._lib

c_p = ctypes.c_void_p
c_i32 = ctypes.c_int32
c_u32 = ctypes.c_uint32
c_bool = ctypes.c_bool


def bind(names: str | tuple[str, ...], restype: Any, *argtypes: Any) -> Callable[..., Any]:
    """A fresh function object, so that our argtypes do not clobber llama_cpp's own.

    ``names`` may hold every known mangling of an unstable symbol; raises AttributeError when none
    of them is in the library.
    """
    candidates = (names,) if isinstance(names, str) else names
    for name in candidates:
        try:
            function = lib[name]
        except AttributeError:
            continue
        function.restype = restype
        function.argtypes = list(argtypes)
        return function
    raise AttributeError(f"not in this llama.cpp build: {' / '.join(candidates)}")


class LogCapture:
    """Keeps llama.cpp's log off the terminal: a ring of recent lines and an optional sink.

    Debug lines are dropped: each context writes hundreds of them, about every graph input.

    The callback is global to the library and is set as soon as this module is imported, since
    importing llama_cpp installs one that prints everything.
    """

    DEBUG, CONT = 1, 5

    def __init__(self, lines: int = 200) -> None:
        self.ring: collections.deque[str] = collections.deque(maxlen=lines)
        self.sink: Callable[[str], None] | None = None
        self._partial = ""
        self._level = 0
        self._callback = L.llama_log_callback(self._receive)
        L.llama_log_set(self._callback, c_p(0))

    def _receive(self, level: int, text: bytes, _data: Any) -> None:
        if level != self.CONT:
            self._level = level
        if self._level == self.DEBUG:
            return
        piece = text.decode("utf-8", "replace")
        self._partial = self._partial + piece if level == self.CONT else piece
        if self._partial.endswith("\n"):
            line = self._partial.rstrip("\n")
            self._partial = ""
            if line:
                self.ring.append(line)
                if self.sink is not None:
                    self.sink(line)

    def last(self, containing: str = "") -> str:
        """The last captured line that contains ``containing``, or ""."""
        for line in reversed(self.ring):
            if containing in line:
                return line
        return ""


log_capture = LogCapture()
L.llama_backend_init()


def _ggml(base_name: str) -> ctypes.CDLL:
    """Another of the wheel's libraries (already loaded as a dependency of libllama)."""
    from llama_cpp._ctypes_extensions import load_shared_library

    library: ctypes.CDLL = load_shared_library(base_name, L._base_path)
    return library


def devices() -> list[tuple[c_p, str, str]]:
    """llama.cpp's own device list: handle, name, description."""
    ggml, base = _ggml("ggml"), _ggml("ggml-base")
    ggml.ggml_backend_dev_count.restype = ctypes.c_size_t
    get = ggml.ggml_backend_dev_get
    get.restype, get.argtypes = c_p, [ctypes.c_size_t]
    name, description = base.ggml_backend_dev_name, base.ggml_backend_dev_description
    for function in (name, description):
        function.restype, function.argtypes = ctypes.c_char_p, [c_p]
    found = []
    for i in range(ggml.ggml_backend_dev_count()):
        handle = c_p(get(i))
        found.append(
            (handle, name(handle).decode(), description(handle).decode("utf-8", "replace").strip())
        )
    return found


_KINDS: dict[int, DeviceKind] = {0: "cpu", 1: "gpu", 2: "igpu", 3: "accel"}


def device_list() -> tuple[Device, ...]:
    """llama.cpp's own device list with the memory of each now."""
    base = _ggml("ggml-base")
    kind, memory = base.ggml_backend_dev_type, base.ggml_backend_dev_memory
    kind.restype, kind.argtypes = ctypes.c_int, [c_p]
    size = ctypes.POINTER(ctypes.c_size_t)
    memory.restype, memory.argtypes = None, [c_p, size, size]
    found = []
    for handle, name, description in devices():
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        memory(handle, ctypes.byref(free), ctypes.byref(total))
        of_kind = _KINDS.get(kind(handle), "accel")
        found.append(Device(name, description, of_kind, total.value, free.value))
    return tuple(found)


def buffer_type_device(buffer_type: int) -> str | None:
    """The name of the device in whose own memory a buffer of this type lies; None for the
    machine's memory, also where a GPU reads it (pinned) or its weights are repacked."""
    base = _ggml("ggml-base")
    is_host, device_of = base.ggml_backend_buft_is_host, base.ggml_backend_buft_get_device
    is_host.restype, is_host.argtypes = c_bool, [c_p]
    device_of.restype, device_of.argtypes = c_p, [c_p]
    name, kind = base.ggml_backend_dev_name, base.ggml_backend_dev_type
    kind.restype, kind.argtypes = ctypes.c_int, [c_p]
    name.restype, name.argtypes = ctypes.c_char_p, [c_p]
    device = device_of(buffer_type)
    if is_host(buffer_type) or not device or _KINDS.get(kind(device)) in ("cpu", "accel"):
        return None
    named: bytes = name(device)
    return named.decode()


def cpu_buffer_type() -> c_p:
    """The plain CPU buffer type, for keeping expert tensors in RAM (--n-cpu-moe)."""
    function = _ggml("ggml-cpu").ggml_backend_cpu_buffer_type
    function.restype, function.argtypes = c_p, []
    return c_p(function())


def build_info() -> BuildInfo:
    found = devices()
    version = bind("llama_version", ctypes.c_char_p)
    return BuildInfo(
        llama_cpp_python=importlib.metadata.version("llama-cpp-python"),
        llama_cpp=version().decode(),
        backends=tuple(dict.fromkeys(name.rstrip("0123456789") for _, name, _ in found)),
        devices=tuple(f"{name}: {description}" for _, name, description in found),
        system_info=L.llama_print_system_info().decode("utf-8", "replace").strip(),
    )
