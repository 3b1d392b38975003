"""What a start-up imports: the version nothing, the headless commands neither engine nor TUI."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from patience import FOREVER

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


FIRST_PAINT = """
import sys
from localspec.tui.app import LocalspecApp
from localspec.tui.widgets.prompt import Prompt

class Painted(LocalspecApp):
    modules = None

    def _display(self, screen, renderable):
        prompts = screen.query(Prompt)
        if renderable and not self._batch_count and prompts and prompts[0].region:
            if self.modules is None:
                self.modules = {name.partition('.')[0] for name in sys.modules}
                self.call_later(self.exit)
        super()._display(screen, renderable)

app = Painted()
app.run(headless=True, size=(140, 45))
print(*app.modules)
"""


def test_the_first_paint_waits_for_no_import_that_it_can_do_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path))
    program = tmp_path / "paint.py"
    program.write_text(FIRST_PAINT)
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=FOREVER
    )
    assert done.returncode == 0, done.stderr
    modules = set(done.stdout.splitlines()[-1].split())
    assert {"textual", "localspec"} <= modules
    assert not modules & (HEAVY - {"textual"})
    assert not modules & {"plotext", "markdown_it", "pygments", "sqlite3", "pydantic", "jinja2"}
