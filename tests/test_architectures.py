"""The list of architectures against the installed llama.cpp, which has no call that tells them."""

from __future__ import annotations

from pathlib import Path

import llama_cpp

from localspec import architectures


def test_every_known_name_stands_in_the_library() -> None:
    # localspec.llama puts a bare module in the package's place, which has a path but no file
    library = next((Path(next(iter(llama_cpp.__path__))) / "lib").glob("libllama.*"))
    strings = library.read_bytes()
    assert [n for n in sorted(architectures.KNOWN) if n.encode() + b"\0" not in strings] == []


def test_the_other_lists_hold_known_names_only() -> None:
    lists = {k: v for k, v in vars(architectures).items() if isinstance(v, frozenset)}
    assert len(lists) > 3
    for name, members in lists.items():
        assert members <= architectures.KNOWN, name
    assert set(architectures.RESPELLED.values()) <= architectures.KNOWN
    assert not set(architectures.RESPELLED) & architectures.KNOWN
