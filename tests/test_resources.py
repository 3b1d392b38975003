"""The files that come with localspec are found in a source tree and in an installed wheel."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from localspec import resources

FILES = ["models.toml", "assets/demo/smollm2-135m-draft-q4_0.gguf", "assets/workloads/chat8.jsonl"]


def test_a_source_tree_has_them_beside_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "localspec")
    assert resources.catalogue_file() == tmp_path / "models.toml"
    assert resources.asset("demo/x") == tmp_path / "assets" / "demo" / "x"


def test_a_wheel_has_them_inside_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "localspec"
    (package / "_data").mkdir(parents=True)
    monkeypatch.setattr(resources, "_PACKAGE", package)
    assert resources.catalogue_file() == package / "_data" / "models.toml"
    assert resources.asset("demo/x") == package / "_data" / "assets" / "demo" / "x"


def test_the_tests_own_localspec_has_them() -> None:
    assert [f for f in FILES if not (resources.data_root() / f).is_file()] == []


def test_the_installed_localspec_has_them() -> None:
    try:
        metadata.distribution("localspec")
    except metadata.PackageNotFoundError:
        pytest.skip("localspec is not installed here; .ci/run installs its wheel")
    # -I: neither the source tree nor PYTHONPATH, only what is installed.
    ask = "from localspec import resources; print(resources.data_root())"
    done = subprocess.run(
        [sys.executable, "-I", "-c", ask], capture_output=True, text=True, check=True
    )
    root = Path(done.stdout.strip())
    assert [f for f in FILES if not (root / f).is_file()] == []
