"""Where the files that come with localspec lie: in an installed wheel and in a source tree."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_root() -> Path:
    """The folder that holds ``models.toml`` and ``assets``.

    A wheel carries both inside the package as ``_data`` (pyproject.toml puts them there); in a
    source tree, an editable install included, they lie beside the package.
    """
    inside = _PACKAGE / "_data"
    return inside if inside.is_dir() else _PACKAGE.parent


def catalogue_file() -> Path:
    """The catalogue that comes with localspec."""
    return data_root() / "models.toml"


def asset(name: str) -> Path:
    """The file or folder ``name`` under ``assets``, for example ``workloads/chat8.toml``."""
    return data_root() / "assets" / name
