"""What models and contexts take, by llama.cpp's own account: loaded, or only simulated.

``llama_get_memory_breakdown`` (llama-ext.h) returns a std::map by value, which is no thing for C;
its tree is walked here, as each C++ library lays it out, and every step is checked first: a build
that lays it out otherwise gives an error, not a figure.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from typing import NamedTuple

from localspec.errors import EngineFailed
from localspec.llama import unstable
from localspec.llama.context import Context
from localspec.llama.library import buffer_type_device

RAM = "CPU"
_NODES_LIMIT = 1024  # buffer types; a build has a handful


class _Node(ctypes.Structure):
    """A tree node: three links in an order of the library's own (and with a colour before or after
    them), then the pair that it holds."""

    _fields_ = [
        ("words", ctypes.c_uint64 * 4),
        ("buffer_type", ctypes.c_void_p),
        ("weights", ctypes.c_size_t),
        ("context", ctypes.c_size_t),
        ("compute", ctypes.c_size_t),
    ]


class _Layout(NamedTuple):
    """Where in the map's words root and count stand, and in a node's words its two children."""

    root: int
    size: int
    children: tuple[int, int]
    nil_head: bool = False  # the root hangs at a head node, which is also every leaf's child


_LIBSTDCXX = _Layout(root=2, size=5, children=(2, 3))
_LIBCXX = _Layout(root=1, size=2, children=(0, 1))
_MSVC = _Layout(root=0, size=1, children=(0, 2), nil_head=True)
_LAYOUT = {"darwin": _LIBCXX, "win32": _MSVC}.get(sys.platform, _LIBSTDCXX)


class Buffers(NamedTuple):
    """Bytes on one device; ``cache``: KV cache and recurrent states."""

    weights: int = 0
    cache: int = 0
    compute: int = 0

    def plus(self, other: Buffers) -> Buffers:
        return Buffers(*(a + b for a, b in zip(self, other, strict=True)))


def buffers(context: Context) -> dict[str, Buffers]:
    """What ``context`` and its model take, by device; "CPU" is the machine's memory.

    What a decode is read from (logits, tapped hidden states) is in no account of llama.cpp's; it is
    added to the machine's ``compute``. Room for taps is made at the first decode, which a
    simulation never sees; it is added where most of the model is. Raises a LocalspecError where
    this build does not tell.
    """
    breakdown = unstable.call("llama_get_memory_breakdown")(context.handle)
    found: dict[str, Buffers] = {RAM: Buffers(compute=context.output_bytes)}
    for node in _nodes(breakdown, _LAYOUT):
        device = buffer_type_device(node.buffer_type) or RAM
        each = Buffers(node.weights, node.context, node.compute)
        found[device] = found.get(device, Buffers()).plus(each)
    if context.model.params.simulated:
        most = max(found, key=lambda device: found[device].weights)
        found[most] = found[most].plus(Buffers(compute=context.tap_bytes))
    return found


def _nodes(breakdown: unstable.MapByValue, layout: _Layout) -> Iterator[_Node]:
    root, count = breakdown.words[layout.root], breakdown.words[layout.size]
    if count > _NODES_LIMIT:
        raise EngineFailed("This build of llama.cpp does not tell what memory it takes.")
    nil = 0
    if layout.nil_head:
        nil, root = root, _Node.from_address(root).words[1]
    waiting, walked = [root], 0
    while waiting:
        address = waiting.pop()
        if address in (0, nil):
            continue
        walked += 1
        if walked > count:
            break
        node = _Node.from_address(address)
        waiting += [node.words[i] for i in layout.children]
        yield node
    if walked != count:
        raise EngineFailed("This build of llama.cpp does not tell what memory it takes.")
