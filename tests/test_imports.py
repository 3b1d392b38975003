"""What a start-up imports: the version nothing, the headless commands neither engine nor TUI."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"llama_cpp", "numpy", "textual", "scipy", "gguf", "huggingface_hub"}


def imported(statement: str) -> set[str]:
    """The top-level modules of a fresh interpreter after ``statement``."""
    program = (
        "import sys\n"
        "try:\n"
        f"    {statement}\n"
        "except SystemExit as left:\n"
        "    assert not left.code, left.code\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


def test_the_version_imports_next_to_nothing() -> None:
    modules = imported("from localspec.cli import main; main(['--version'])")
    assert "localspec" in modules
    assert not modules & (HEAVY | {"typer", "rich", "pydantic", "psutil", "msgspec"})


@pytest.mark.parametrize("words", [["--help"], ["bench", "--help"], ["models", "list"]])
def test_help_and_the_catalogue_import_no_engine(words: list[str]) -> None:
    modules = imported(f"from localspec.cli import main; main({words!r})")
    assert "typer" in modules
    assert not modules & HEAVY


@pytest.mark.parametrize(
    "module", ["catalog", "errors", "gguf_header", "machine", "records", "resources", "commands"]
)
def test_the_rooms_beside_import_no_engine(module: str) -> None:
    assert not imported(f"import localspec.{module}") & HEAVY


@pytest.mark.parametrize(
    "module", ["bench.command", "chat.command", "engine.client", "engine.messages"]
)
def test_the_outer_tree_imports_no_engine(module: str) -> None:
    assert not imported(f"import localspec.{module}") & HEAVY


def test_the_app_imports_neither_the_engine_nor_what_the_first_paint_can_do_without() -> None:
    modules = imported("import localspec.tui.app, localspec.tui.screens.chat")
    assert "textual" in modules
    assert not modules & (HEAVY - {"textual"})
    assert not modules & {"pydantic", "jinja2", "typer", "psutil"}
