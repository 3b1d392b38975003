"""The bundle for a bug report: what is in it, and what never is."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pytest

from localspec.doctor import bundle, command
from localspec.doctor.findings import Finding
from localspec.errors import LocalspecError, UsageError

TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"
KEY = "a-password-of-my-mirror"


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person with a token in its file, another in a variable, settings, a catalogue and logs."""
    home = tmp_path / "home" / "ada"
    folders = {
        "HOME": home,
        "HF_HOME": home / "hf",
        "XDG_CONFIG_HOME": home / "config",
        "XDG_STATE_HOME": home / "state",
        "XDG_CACHE_HOME": home / "cache",
    }
    for name, folder in folders.items():
        folder.mkdir(parents=True, exist_ok=True)
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setenv("HF_ENDPOINT", f"https://ada:{KEY}@mirror.example/hub")
    monkeypatch.setenv("MY_API_KEY", "key-1234567890")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: TOKEN)
    config, log = home / "config" / "localspec", home / "state" / "localspec" / "log"
    config.mkdir()
    log.mkdir(parents=True)
    monkeypatch.setattr("platformdirs.user_log_dir", lambda *_, **__: str(log))
    settings = {"theme": "dark", "model": f"{home}/m.gguf", "system": "You know my secret plan."}
    (config / "settings.json").write_text(json.dumps(settings))
    (config / "models.toml").write_text(f'# {TOKEN}\nfolders = ["{home}/models"]\n')
    (log / "engine-old.log").write_text("long ago")
    (log / "engine-new.log").write_text(f"loading {home}/m.gguf with {TOKEN}: key-1234567890\n")
    (log / "bug-20260101.log").write_text(f"Traceback ... GET https://ada:{KEY}@mirror.example\n")
    for age, name in ((9, "engine-old.log"), (5, "engine-new.log")):
        os.utime(log / name, (1e9 - age, 1e9 - age))
    return home


def read(file: Path) -> dict[str, str]:
    with zipfile.ZipFile(file) as made:
        return {name: made.read(name).decode() for name in made.namelist()}


def test_no_secret_and_no_home_leaves_the_machine(at_home: Path, tmp_path: Path) -> None:
    file = tmp_path / "bug.zip"
    answer = {"checks": [{"said": f"the token {TOKEN} of {at_home}/hf/token"}]}
    assert bundle.write(file, answer, bundle.last_logs()) == file.stat().st_size
    found = read(file)
    assert set(found) == {
        *("README.txt", "doctor.json", "versions.txt", "environment.txt"),
        *("settings.json", "models.toml", "engine-new.log", "bug-20260101.log"),
    }
    everything = "\n".join(found.values())
    for secret in (TOKEN, KEY, "key-1234567890", str(at_home), "secret plan"):
        assert secret not in everything, secret
    assert "loading ~/m.gguf with [secret]: [secret]" in found["engine-new.log"]
    assert "https://[secret]@mirror.example" in found["bug-20260101.log"]
    assert json.loads(found["settings.json"]) == {"theme": "dark", "model": "~/m.gguf"}
    assert json.loads(found["doctor.json"])["checks"][0]["said"].endswith("~/hf/token")
    assert "OMP_NUM_THREADS=3" in found["environment.txt"]
    assert "MY_API_KEY" not in found["environment.txt"]
    assert "localspec" in found["versions.txt"]


def test_a_token_that_is_named_as_one_is_left_out_of_the_variables(
    at_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "not-of-the-usual-form")
    bundle.write(tmp_path / "bug.zip", {"said": "not-of-the-usual-form"}, [])
    found = read(tmp_path / "bug.zip")
    assert "not-of-the-usual-form" not in "".join(found.values())
    assert "HF_TOKEN=[secret]" in found["environment.txt"]


def test_a_folder_that_only_begins_like_home_is_another(at_home: Path) -> None:
    scrub = bundle.Scrubber({}, at_home, None)
    assert scrub(f"{at_home}/x, {at_home}, {at_home}s/y") == f"~/x, ~, {at_home}s/y"


def test_the_doctor_writes_it_and_says_so(
    at_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken = Finding("engine", "does not start", "broken", "why", "what to do")
    monkeypatch.setattr(command, "examine", lambda **_: iter([broken]))
    file = tmp_path / "bug.zip"
    options = {"as_json": True, "offline": True, "with_self_test": False}
    assert command.doctor(**options, report=file) == 1
    out, err = capsys.readouterr()
    assert json.loads(read(file)["doctor.json"]) == json.loads(out)
    assert "look through it before you send it" in err
    with pytest.raises(UsageError, match="--report: the folder"):
        command.doctor(**options, report=tmp_path / "none" / "bug.zip")
    with pytest.raises(LocalspecError, match="could not be written"):
        bundle.write(tmp_path, {}, [])
