"""``localspec doctor --report FILE``: all that a bug report needs, in one zip, without secrets.

Tokens and passwords of addresses are taken out of every text, and the home folder is called "~".
Conversations, prompts and results of benchmarks are not in it.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import zipfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import platformdirs

from localspec import __version__
from localspec.catalog import user_file
from localspec.errors import LocalspecError
from localspec.records import LLAMA_CPP_PYTHON

TOLD = (
    *("CUDA_", "GGML_", "GOMP_", "HIP_", "KMP_", "LLAMA_", "OMP_", "VK_"),
    *("HF_", "HUGGING", "LOCALSPEC_", "XDG_"),
    *("COLORTERM", "LANG", "LC_", "NO_COLOR", "TERM"),
)
"""Beginnings of environment variables that change what localspec or llama.cpp does."""
SECRET = re.compile(r"TOKEN|SECRET|PASSW|API_?KEY|CREDENTIAL", re.IGNORECASE)
_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{8,}|\b(?:ghp|sk|api_org)[_-][A-Za-z0-9_-]{16,}")
_PASSWORD = re.compile(r"(?<=://)[^/\s@\"']+(?=@)")
PRIVATE_SETTINGS = ("system",)
"""Of the app's settings: what a person wrote."""
MOST = 200_000
"""Characters of a log, its last ones."""
READ_ME = """\
What `localspec doctor --report` collects for a bug report. Look through it before you send it.

doctor.json    what the doctor found here
versions.txt   Python, system, every installed package
environment.txt  variables that change what localspec or llama.cpp does
settings.json, models.toml  the app's settings without its system message; your own catalogue
engine-*.log   what llama.cpp said last, before and in the doctor's self-test
bug-*.log      the last crash of localspec itself, with the words it was called with

Tokens and passwords are replaced by [secret], the home folder by ~.
"""


class Scrubber:
    """Takes secrets and the home folder out of a text."""

    def __init__(self, environment: Mapping[str, str], home: Path, token: str | None) -> None:
        said = [value for name, value in environment.items() if SECRET.search(name)]
        self._secrets = sorted({s for s in (*said, token or "") if len(s) >= 4}, key=len)[::-1]
        folder = str(home)
        written = {re.escape(f) for f in (folder, json.dumps(folder)[1:-1])}
        at_home = "|".join(sorted(written, key=len, reverse=True))
        self._home = (
            re.compile(rf"(?<![\w.~-])(?:{at_home})(?![\w.-])") if len(folder) > 1 else None
        )

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "[secret]")
        for pattern in (_TOKEN, _PASSWORD):
            text = pattern.sub("[secret]", text)
        return self._home.sub("~", text) if self._home else text


def last_logs() -> list[Path]:
    """The engine's last log and the last crash's. Asked before the doctor starts engines itself."""
    folder = Path(platformdirs.user_log_dir("localspec", appauthor=False))
    found = []
    for kind in ("engine-*.log", "bug-*.log"):
        known = sorted(folder.glob(kind), key=lambda p: p.stat().st_mtime)
        found += known[-1:]
    return found


def write(file: Path, answer: Mapping[str, Any], logs: list[Path]) -> int:
    """Make the bundle; returns its size. ``answer``: what the doctor says with --json. Raises
    ``LocalspecError`` where it cannot be written."""
    from huggingface_hub import get_token

    scrubbed = Scrubber(os.environ, Path.home(), get_token())
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, text in _texts(answer, dict.fromkeys((*logs, *last_logs()))):
            bundle.writestr(name, scrubbed(text))
    try:
        file.write_bytes(content.getvalue())
    except OSError as error:
        raise LocalspecError(
            f"{file} could not be written ({error.strerror}).", "Give --report another path."
        ) from error
    return file.stat().st_size


def _texts(answer: Mapping[str, Any], logs: Mapping[Path, None]) -> Iterator[tuple[str, str]]:
    yield "README.txt", READ_ME
    yield "doctor.json", json.dumps(answer, indent=2, ensure_ascii=False)
    yield "versions.txt", "\n".join(_versions()) + "\n"
    yield "environment.txt", "\n".join(_environment(os.environ)) + "\n"
    settings = Path(platformdirs.user_config_dir("localspec", appauthor=False)) / "settings.json"
    for path, read in ((settings, _settings), (user_file(), _tail), *((p, _tail) for p in logs)):
        text = read(path)
        if text is not None:
            yield path.name, text


def _versions() -> Iterator[str]:
    yield f"localspec {__version__}, Python {platform.python_version()}, {platform.platform()}"
    yield f"pinned: llama-cpp-python {LLAMA_CPP_PYTHON}"
    yield from sorted({f"{d.name} {d.version}" for d in metadata.distributions()}, key=str.lower)


def _environment(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in sorted(environment.items()):
        if name.startswith(TOLD):
            yield f"{name}={'[secret]' if SECRET.search(name) else value}"


def _tail(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", errors="replace")[-MOST:]
    except OSError:
        return None


def _settings(path: Path) -> str | None:
    text = _tail(path)
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None  # nobody knows what is in it
    if not isinstance(found, dict):
        return None
    return json.dumps({k: v for k, v in found.items() if k not in PRIVATE_SETTINGS}, indent=1)
