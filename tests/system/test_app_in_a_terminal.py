"""The installed app in a terminal: every mode, a chat with and without the drafter, an A/B."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import psutil
import pytest
from patience import FOREVER
from terminal import Terminal

COMMAND = shutil.which("localspec", path=str(Path(sys.executable).parent))
LOCALSPEC = [COMMAND] if COMMAND else [sys.executable, "-m", "localspec"]


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """The environment of a person who has never started it but for short answers, always the
    same."""
    settings = tmp_path / "config" / "localspec" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"max_tokens": 40, "sampler": {"temperature": 0.0}}))
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
        app.until(lambda: "coverage -" not in app.text, "coverage")
        assert "no drafter" not in app.text
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
        engine.wait(FOREVER)  # it ends with the app


def test_out_while_the_engine_starts(home: dict[str, str], tmp_path: Path) -> None:
    """Here it never comes so far: neither the app nor the shell's prompt waits for it."""
    settings = Path(home["XDG_CONFIG_HOME"], "localspec", "settings.json")
    settings.write_text(json.dumps({"model": "demo"}))  # else another one is asked what would fit
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, time\nif 'localspec.engine.host' in sys.orig_argv: time.sleep(600)\n"
    )
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    with Terminal(LOCALSPEC, env=home | {"PYTHONPATH": path}, columns=80, lines=24) as app:
        app.wait_for("Ask something", "demo ▸ auto")
        app.type("Tell me about rivers.")
        app.press("enter")
        app.until(lambda: engines(app), "start an engine")
        (engine,) = engines(app)
        app.press("ctrl+q")
        app.until(lambda: app.process.poll() is not None, "end")
        assert app.process.returncode == 0
        assert "Traceback" not in app.whole
        engine.wait(FOREVER)


def test_without_its_terminal_the_app_ends_and_the_engine_with_it(home: dict[str, str]) -> None:
    """Also where no hang-up is told (nohup), where Textual reads the end of the terminal for
    ever."""
    with Terminal(LOCALSPEC, env=home, columns=80, lines=24) as app:
        app.wait_for("Ask something")
        app.hang_up()
        app.process.wait(FOREVER)
        assert app.process.returncode == 1


def test_no_byte_ends_the_app(home: dict[str, str]) -> None:
    """A terminal of another encoding, and a paste that was too much for the line."""
    with Terminal(LOCALSPEC, env=home, columns=80, lines=24) as app:
        app.wait_for("Ask something")
        app.type(b"\xe9a")
        app.type(b"\x8a" + bytes(range(0xA0, 0x100)))
        app.type(b"\x1b[200~caf\xc3 and \xa9te\x1b[201~ here")
        app.wait_for("caf\ufffd and \ufffdte here")
        app.press("ctrl+q")
        app.until(lambda: app.process.poll() is not None, "end")
        assert app.process.returncode == 0
        assert app.attributes == app.attributes_before


def test_a_question_typed_beside_the_prompt_arrives_as_it_was_typed(home: dict[str, str]) -> None:
    words, pasted = "Where do 3 words go?", " They stay in their order. "
    with Terminal(LOCALSPEC, env=home, columns=130, lines=30) as app:
        app.wait_for("Ask something", "esc Keys")
        app.press("escape")
        app.wait_for("⏎ Write")
        app.type(f"{words}\x1b[200~{pasted}\x1b[201~{words}\r")
        app.wait_for(f"▌ {words}{pasted}{words}", "tokens ·", "● ready")


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGTSTP])
def test_after_a_stop_it_goes_on_and_leaves_the_terminal_as_it_was(
    home: dict[str, str], how: signal.Signals
) -> None:
    with Terminal(LOCALSPEC, env=home, columns=80, lines=24) as app:
        app.wait_for("Ask something")
        for words in ("Where", "Where do", "Where do words"):
            app.type(words.split()[-1] + " ")
            app.wait_for(words, "localspec", "Palette")
            app.stop(how)
            app.go_on()
            app.wait_for(words, "localspec", "Palette")
        app.press("ctrl+q")
        app.until(lambda: app.process.poll() is not None, "end")
        assert app.process.returncode == 0
        assert app.attributes == app.attributes_before


@pytest.mark.parametrize(
    "bug",
    [
        "app.LocalspecApp.action_explain = bug",  # at a key
        "app.LocalspecApp.action_explain = work(later)",
        "driver.TerminalDriver.process_message = bug",  # in the thread that reads the terminal
    ],
)
def test_a_bug_in_the_app_is_told_in_one_sentence_and_a_file(
    home: dict[str, str], tmp_path: Path, bug: str
) -> None:
    code = f"""
from textual import work
from localspec import cli
from localspec.tui import app, driver
def bug(*_): raise RuntimeError("the first line\\nand the second")
async def later(_): bug()
{bug}
cli.main([])
"""
    with Terminal([sys.executable, "-c", code], env=home, columns=400, lines=24) as app:
        app.wait_for("Ask something")
        app.type("\x1bOP")  # F1
        app.until(lambda: app.process.poll() is not None, "end")
        (log,) = (tmp_path / "state").rglob("bug-*.log")
        said = f"localspec: this is a bug: RuntimeError: the first line. The details are in {log}."
        app.wait_for(said)
        assert app.process.returncode == 1
        assert "Traceback" not in app.whole and "and the second" not in app.whole
        assert "in bug\n" in log.read_text() and "and the second" in log.read_text()
        assert app.attributes == app.attributes_before
