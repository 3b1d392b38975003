"""Engines in child processes, closed at the end of the test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tiny_models import BOS, EOS, tiny_llama

from localspec.engine.client import Engine
from localspec.records import ContextSettings, DrafterSettings

StartEngine = Callable[..., Engine]

PLAIN = DrafterSettings()
NGRAM = DrafterSettings("ngram", "ngram", n_max=4)


def context(n_ctx: int = 256, n_batch: int = 32) -> ContextSettings:
    """Batches under 64 rows: from there on attention takes another path, with other roundings, and
    what was prefilled in one piece need not equal what was prefilled in two."""
    return ContextSettings(n_ctx, threads=1, n_batch=n_batch)


@pytest.fixture
def start_engine(tmp_path: Path) -> Iterator[StartEngine]:
    """``start_engine(model=None, log_file=...)``: a new child process."""
    with ExitStack() as stack:

        def start(model: Path | None = None, log_file: Path | None = None) -> Engine:
            engine = stack.enter_context(Engine(log_file=log_file or tmp_path / "engine.log"))
            if model is not None:
                engine.load(model)
            return engine

        yield start


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory, tiny_target: Path) -> Iterator[Engine]:
    """One engine for the tests of a module that leave it as it was, ``tiny_target`` loaded."""
    with Engine(log_file=tmp_path_factory.mktemp("log") / "engine.log") as engine:
        engine.load(tiny_target)
        yield engine


@pytest.fixture
def patch_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """``patch_engine(code)``: engines started from now on run ``code`` first (sitecustomize)."""

    def patch(code: str) -> None:
        folder = tmp_path / "patched"
        folder.mkdir(exist_ok=True)
        (folder / "sitecustomize.py").write_text(code, encoding="utf-8")
        given = os.environ.get("PYTHONPATH")
        path = os.pathsep.join([str(folder), *([given] if given else [])])
        monkeypatch.setenv("PYTHONPATH", path)

    return patch


@pytest.fixture(scope="session")
def slow_model(models: Path) -> Path:
    """The vocabulary of ``tiny_target`` with enough weights for a prefill of seconds."""
    return tiny_llama(
        models / "slow-engine.gguf",
        n_embd=512,
        n_ff=2048,
        n_layer=8,
        n_head=8,
        n_ctx=8192,
        favour={BOS: -8.0, EOS: -8.0},
    )
