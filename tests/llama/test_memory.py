"""Walking the map of buffers as each C++ library lays it out."""

from __future__ import annotations

import ctypes

import pytest

from localspec.errors import EngineFailed
from localspec.llama.memory import _LIBCXX, _LIBSTDCXX, _MSVC, _Layout, _Node, _nodes
from localspec.llama.unstable import MapByValue


def tree(layout: _Layout, sizes: tuple[int, ...]) -> tuple[MapByValue, list[_Node]]:
    """A balanced tree of nodes with these weights, linked as ``layout`` says."""
    nodes = [_Node(weights=size, buffer_type=1000 + size) for size in sizes]
    head = _Node()
    nil = ctypes.addressof(head) if layout.nil_head else 0

    def link(low: int, high: int) -> int:
        if low >= high:
            return nil
        middle = (low + high) // 2
        for word, address in zip(
            layout.children, (link(low, middle), link(middle + 1, high)), strict=True
        ):
            nodes[middle].words[word] = address
        return ctypes.addressof(nodes[middle])

    root = link(0, len(nodes))
    found = MapByValue()
    if layout.nil_head:
        head.words[1], root = root, nil
    found.words[layout.root] = root
    found.words[layout.size] = len(nodes)
    return found, [*nodes, head]


@pytest.mark.parametrize("layout", [_LIBSTDCXX, _LIBCXX, _MSVC])
@pytest.mark.parametrize("sizes", [(), (1,), (1, 2), (5, 6, 7, 8, 9)])
def test_every_node_is_found_once(layout: _Layout, sizes: tuple[int, ...]) -> None:
    found, _alive = tree(layout, sizes)
    assert sorted(node.weights for node in _nodes(found, layout)) == list(sizes)


@pytest.mark.parametrize("layout", [_LIBSTDCXX, _LIBCXX, _MSVC])
def test_a_count_that_the_tree_does_not_bear_out_is_an_error(layout: _Layout) -> None:
    for claimed in (2, 4, 1 << 40):
        found, _alive = tree(layout, (1, 2, 3))
        found.words[layout.size] = claimed
        with pytest.raises(EngineFailed):
            list(_nodes(found, layout))
