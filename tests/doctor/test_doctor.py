"""``localspec doctor``: each thing that can be wrong is said, with a remedy."""

from __future__ import annotations

import io
import json
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest
from hub_server import TOKEN, HubServer
from rich.console import Console

from localspec import catalog, machine
from localspec.doctor import checks, command
from localspec.doctor import self_test as tested
from localspec.doctor.findings import Finding
from localspec.errors import LocalspecError
from localspec.machine import Gpu
from localspec.records import BuildInfo, Device

CPU = Device("CPU", "AMD EPYC", "cpu", 1 << 34, 1 << 34)
CUDA = Device("CUDA0", "NVIDIA H200", "gpu", 141 << 30, 140 << 30)
BUILD = BuildInfo("0.3.36", "0.5.0", ("CPU",), (), "CPU : AVX = 1 | AVX2 = 1 | OPENMP = 1 |")
NVIDIA = Gpu("NVIDIA", "NVIDIA 2335", driver=True)
Usage = namedtuple("Usage", "total used free")


# ---- GPUs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vendor", "wheels", "options"),
    [
        ("NVIDIA", ("cu124", "vulkan"), ("GGML_CUDA", "GGML_VULKAN")),
        ("AMD", ("rocm72", "vulkan"), ("GGML_HIP", "GGML_VULKAN")),
        ("Apple", ("metal",), ("GGML_METAL",)),
    ],
)
def test_a_gpu_that_this_build_cannot_use_is_said_with_every_way_to_use_it(vendor, wheels, options):
    found = checks.graphics((Gpu(vendor, vendor, driver=True),), (CPU,))
    assert found.state == "warning"
    assert "built for the processor only" in found.problem
    ways = "\n".join(found.commands)
    assert all(f"/whl/{wheel}" in ways for wheel in wheels)
    assert all(f"-D{option}=on" in ways for option in options)
    assert all("llama-cpp-python==0.3.36" in way for way in found.commands)


def test_a_gpu_that_is_used_or_not_there_is_no_problem():
    used = checks.graphics((NVIDIA,), (CPU, CUDA))
    assert (used.state, used.problem) == ("ok", "")
    assert "CUDA0: NVIDIA H200, 140.0 of 141.0 GiB free" in used.said
    assert checks.graphics((), (CPU,)).state == "ok"
    assert checks.graphics((Gpu("Intel", "Intel 4680", driver=True),), (CPU,)).state == "note"


def test_a_gpu_without_driver_needs_that_first():
    found = checks.graphics((replace(NVIDIA, driver=False),), (CPU,))
    assert "no driver" in found.problem
    assert not found.commands


def test_gpus_are_found_on_the_bus(tmp_path: Path):
    def device(name: str, vendor: str, kind: str) -> None:
        folder = tmp_path / "sys/bus/pci/devices" / name
        folder.mkdir(parents=True)
        for file, text in (("vendor", vendor), ("class", kind), ("device", "0x2335")):
            (folder / file).write_text(text + "\n")

    device("0000:00:02.0", "0x8086", "0x030000")
    device("0000:17:00.0", "0x10de", "0x030200")
    device("0000:17:00.1", "0x10de", "0x040300")  # its sound
    device("0000:03:00.0", "0x1a03", "0x030000")  # a server's console
    assert machine._linux_gpus(tmp_path) == (
        Gpu("Intel", "Intel 2335", driver=False),
        Gpu("NVIDIA", "NVIDIA 2335", driver=False),
    )
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    assert machine._linux_gpus(tmp_path)[1].driver is True
    assert machine._linux_gpus(tmp_path / "empty") == ()
    names = "NVIDIA GeForce RTX 4090\r\nMicrosoft Basic Display Adapter\r\nRadeon RX 7900\r\n"
    assert [g.vendor for g in machine._windows_gpus(names)] == ["NVIDIA", "AMD"]


# ---- llama.cpp and the processor --------------------------------------------------------------


def test_features_that_were_not_compiled_in_are_named(monkeypatch):
    monkeypatch.setattr(machine, "cpu_features", lambda: ("AVX", "AVX2", "AVX512"))
    found = checks.processor(BUILD)
    assert found.state == "warning"
    assert "without AVX512, which" in found.problem
    assert "GGML_NATIVE" in found.commands[0]
    monkeypatch.setattr(machine, "cpu_features", lambda: ("AVX", "AVX2"))
    assert checks.processor(BUILD).state == "ok"
    assert checks.processor(None).state == "ok"  # nobody knows what it was compiled for


def test_an_engine_that_does_not_start_is_broken():
    found = checks.engine(LocalspecError("It died.", "Look at the log."), None)
    assert (found.state, found.problem) == ("broken", "It died.")
    assert found.remedy.startswith("Look at the log.")
    assert checks.engine(None, BUILD).state == "ok"
    lacking = checks.engine(None, replace(BUILD, missing=("llama_model_target_layer_ids",)))
    assert lacking.state == "warning"
    assert "llama_model_target_layer_ids" in lacking.problem


def test_the_real_engine_says_what_it_is_and_lacks_nothing():
    build, devices, error = checks.ask_engine()
    assert error is None
    assert build is not None
    assert build.missing == ()
    assert devices
    assert checks._built_for(build)


@pytest.mark.parametrize(
    ("version", "state"),
    [("0.3.36", "ok"), ("0.3.36+cu124", "ok"), ("0.3.35", "broken"), (None, "broken")],
)
def test_only_the_pinned_llama_cpp_python_will_do(version, state, monkeypatch):
    real = checks.metadata.version

    def installed(package):
        if package != "llama-cpp-python":
            return real(package)
        if version is None:
            raise checks.metadata.PackageNotFoundError(package)
        return version

    monkeypatch.setattr(checks.metadata, "version", installed)
    found = checks.versions()
    assert found.state == state
    assert bool(found.commands) == (state == "broken")


# ---- files, Hub, terminal ---------------------------------------------------------------------


def test_the_cache_must_be_writable_and_have_room(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "not yet" / "hub"))
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda p: Usage(1 << 40, 0, 1 << 40))
    assert checks.cache().state == "ok"
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda p: Usage(9, 8, 1))
    assert checks.cache().state == "warning"
    monkeypatch.setattr(checks.os, "access", lambda *a: False)
    found = checks.cache()
    assert found.state == "broken"
    assert str(tmp_path) in found.problem


def test_a_damaged_catalogue_is_broken(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    own = tmp_path / "models.toml"
    monkeypatch.setattr(catalog, "user_file", lambda: own)
    assert checks.own_files().state == "ok"
    own.write_text("[models.x]\ntitle = ")
    found = checks.own_files()
    assert found.state == "broken"
    assert "models.toml" in found.problem


def test_the_hub_and_the_token(hub: HubServer, monkeypatch):
    found = checks.hub(offline=False)
    assert (found.state, found.facts["token"]) == ("ok", False)
    assert "no token" in found.said
    assert hub.requests
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    found = checks.hub(offline=False)
    assert "a token from HF_TOKEN, as tester" in found.said
    assert TOKEN not in json.dumps([found.said, found.facts])
    monkeypatch.setenv("HF_TOKEN", "hf_bad")
    found = checks.hub(offline=False)
    assert found.state == "warning"
    assert "does not accept your token" in found.problem
    hub.forget()
    assert checks.hub(offline=True).state == "ok"
    assert not hub.requests


def test_a_small_or_plain_terminal_is_noted():
    def look(width, height, colours, encoding="utf-8"):
        file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        size = {"width": width, "height": height}
        return checks.terminal(
            Console(file=file, force_terminal=True, color_system=colours, **size)
        )

    assert look(80, 24, "truecolor").state == "ok"
    assert "smaller than 80x24" in look(79, 24, "truecolor").problem
    assert "smaller than 80x24" in look(200, 23, "truecolor").problem
    assert "ASCII" in look(80, 24, "256", "ascii").problem


# ---- all together -----------------------------------------------------------------------------


def test_the_demo_model_passes_the_self_test():
    found = tested.self_test()
    assert found.state == "ok"
    assert found.facts["identical"] in (True, False)
    assert found.facts["accepted"] > 0
    assert "tok/s plain" in found.said


def test_the_self_test_finds_a_drafter_that_drafts_nothing_right(tiny_bytes, monkeypatch):
    monkeypatch.setattr(tested, "LEAST_ACCEPTED", 10_000)
    found = tested.self_test(str(tiny_bytes), "ngram")
    assert found.state == "broken"
    assert "no drafted token accepted" in found.problem
    assert found.remedy


@pytest.mark.parametrize(("state", "code"), [("ok", 0), ("warning", 0), ("broken", 1)])
def test_only_what_is_broken_fails(state, code, monkeypatch, capsys):
    odd = Finding("GPU", "x", state, "It is odd." * (state != "ok"), commands=("pip " + "y" * 150,))
    monkeypatch.setattr(command, "examine", lambda **k: iter([Finding("memory", "1 GiB"), odd]))
    assert command.doctor(as_json=False, offline=True, with_self_test=False) == code
    out = capsys.readouterr().out
    assert "memory" in out
    assert "\n  pip " + "y" * 150 + "\n" in out, "a command is one line, to be copied"
    assert ("Broken: GPU." in out) == (state == "broken")
    assert command.doctor(as_json=True, offline=True, with_self_test=False) == code
    said = json.loads(capsys.readouterr().out)
    assert said["broken"] == (state == "broken")
    assert said["checks"][1]["state"] == state
