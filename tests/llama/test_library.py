"""What importing the room does to a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=False,
    )


def test_the_package_of_llama_cpp_is_never_run() -> None:
    """Its __init__ imports the high-level class: jinja2, diskcache and more."""
    code = """if True:
        import sys
        import localspec.llama
        import localspec.engine.host
        print(sorted({"jinja2", "diskcache", "llama_cpp.llama"} & set(sys.modules)))
        print(hasattr(sys.modules["llama_cpp"], "Llama"))
        """
    done = python(code)
    assert done.stdout.split() == ["[]", "False"], done.stderr


@pytest.mark.parametrize("module", ["localspec.llama", "localspec.engine.host"])
def test_the_library_is_loaded_before_numpy(module: str) -> None:
    code = f"""if True:
        import ctypes, sys
        order = []
        original = ctypes.CDLL.__init__
        def init(self, name, *rest, **named):
            if name and "libllama" in str(name) or name and "llama." in str(name):
                order.append("numpy" in sys.modules)
            original(self, name, *rest, **named)
        ctypes.CDLL.__init__ = init
        import {module}
        print(order, "numpy" in sys.modules)
        """
    done = python(code)
    assert done.stdout.strip() == "[False] True", done.stdout + done.stderr


def test_nothing_of_the_log_reaches_the_terminal(tiny_target: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(tiny_target.read_bytes()[:5000])
    code = """if True:
        import sys
        from localspec.llama import Context, ContextParams, Model, build_info, log_capture
        from localspec.llama.context import Batch
        build_info()
        with Model(sys.argv[1]) as model, Context(model, ContextParams(256, 1)) as context:
            batch = Batch(4)
            batch.tokens[:] = 5
            batch.outputs[:] = 0
            batch.fill_positions(4, 0)
            context.decode(batch)
            batch.fill_positions(4, 9)  # a gap: an error of llama.cpp
            try:
                context.decode(batch)
            except Exception as e:
                assert "-1" in str(e)
        for wrong in (sys.argv[2], "/nowhere"):
            try:
                Model(wrong)
            except Exception as e:
                assert wrong in str(e), e
        assert len(log_capture.ring) > 20
        """
    done = python(code, str(tiny_target), str(bad))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_debug_lines_are_not_kept(tiny_target: Path) -> None:
    """A large model's graph inputs would push the interesting lines out of the ring."""
    code = """if True:
        import sys
        from localspec.llama import Context, ContextParams, Model, log_capture
        with Model(sys.argv[1]) as model, Context(model, ContextParams(256, 1)):
            print(log_capture.last("graph_n_input_tensors") or "none", flush=True)
            log_capture._receive(1, b"debug ", None)
            log_capture._receive(5, b"continued\\n", None)
            log_capture._receive(2, b"a line ", None)
            log_capture._receive(5, b"in two\\n", None)
            print(log_capture.last("continued") or "none", log_capture.last(), sep="|")
        """
    done = python(code, str(tiny_target))
    assert done.stdout.splitlines() == ["none", "none|a line in two"], done.stderr


def test_another_version_of_the_library_is_refused(tmp_path: Path) -> None:
    """Calls are used that change between versions: a wrong one would crash, not fail."""
    code = """if True:
        import importlib.metadata
        from localspec.errors import LocalspecError
        importlib.metadata.version = lambda name: "0.9.9"
        try:
            import localspec.llama
        except LocalspecError as e:
            print(e)
        """
    done = python(code)
    assert "llama-cpp-python 0.9.9 is installed; localspec needs 0.3.36 exactly" in done.stdout
