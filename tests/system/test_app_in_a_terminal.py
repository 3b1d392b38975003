"""The installed app in a terminal: every mode, a chat with and without the drafter, an A/B."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import psutil
import pytest
from terminal import Terminal

COMMAND = shutil.which("localspec", path=str(Path(sys.executable).parent))
LOCALSPEC = [COMMAND] if COMMAND else [sys.executable, "-m", "localspec"]


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """The environment of a person who has never started it but for short answers."""
    settings = tmp_path / "config" / "localspec" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"max_tokens": 40}))
    own = {f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("CONFIG", "DATA", "STATE")}
    return {**os.environ, "TERM": "xterm-256color", **own}


def engines(app: Terminal) -> list[psutil.Process]:
    children = psutil.Process(app.process.pid).children(recursive=True)
    return [child for child in children if "localspec.engine.host" in " ".join(child.cmdline())]


def test_chat_speculation_ab_every_mode_and_out(home: dict[str, str], demo_model: Path) -> None:
    with Terminal(LOCALSPEC, env=home, columns=100, lines=30) as app:
        # nothing was chosen: the demo is what there is
        app.wait_for("Ask something", "demo ▸ auto", "spec ON")
        app.type("Tell me about rivers.")
        app.press("enter")
        app.wait_for("Tell me about rivers.", "40 tokens", "passes", "● ready")
        drafted = app.text
        assert "no drafter" not in drafted and "coverage -" not in drafted
        (engine,) = engines(app)

        app.press("ctrl+s")
        app.wait_for("spec OFF", "▸ no drafter", "● ready")
        app.type("And about lakes.")
        app.press("enter")
        plain = app.wait_for("And about lakes.", "accept length 1.00", "● ready")
        assert "coverage 0%" in plain or "nothing was drafted" in plain
        app.press("ctrl+s")
        app.wait_for("spec ON", "● ready")
        assert engines(app) == [engine]  # the model was loaded once

        app.resize(80, 24)
        app.press("f4")
        app.wait_for("both sides answer in turn")
        app.press("t")
        app.wait_for("1024")
        app.press("up", "enter")
        app.wait_for("tokens 64")
        app.press("s")
        app.wait_for("pair 1 of")
        app.press("f")
        app.wait_for("ended by you", "too few pairs", "identical 64/64")
        app.press("r")
        app.wait_for("pair 1/1", "1st", "2nd")

        for key, words in (("f2", "demo"), ("f5", "Draft lengths n"), ("f6", "No benchmark yet")):
            app.press(key)
            app.wait_for(words, "localspec")
        app.press("f3")
        app.wait_for("And about lakes.")
        app.press("ctrl+q")
        app.until(lambda: app.process.poll() is not None, "end")
        assert app.process.returncode == 0
        assert "Traceback" not in app.whole
        engine.wait(10)  # it ends with the app


def test_without_its_terminal_the_app_ends_and_the_engine_with_it(home: dict[str, str]) -> None:
    """Also where no hang-up is told (nohup), where Textual reads the end of the terminal for
    ever."""
    with Terminal(LOCALSPEC, env=home, columns=80, lines=24) as app:
        app.wait_for("Ask something")
        app.hang_up()
        app.process.wait(30)
        assert app.process.returncode == 1
