"""Loading files, good and bad."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_models import CHATML, tiny_llama

from localspec.errors import ModelFileError, UsageError
from localspec.llama import Model, ModelParams, build_info
from localspec.records import LoadSettings


def test_what_a_model_says_of_itself(tiny_bytes: Path) -> None:
    with Model(tiny_bytes) as model:
        info = model.info()
    assert info.path == str(tiny_bytes)
    assert (info.arch, info.n_vocab, info.n_layer, info.n_ctx_train) == ("llama", 300, 2, 1024)
    assert info.template == CHATML, "longer than the first buffer"
    assert (info.bos, info.eos, info.add_bos) == ("<s>", "</s>", True)
    assert info.can_roll_back
    assert info.kv_bytes_per_token == 2 * 2 * 32 * 2, "layers, K and V, width, bytes of f16"
    assert 0 < info.size_bytes < tiny_bytes.stat().st_size


def test_a_recurrent_model_cannot_roll_back(tiny_mamba: Path) -> None:
    with Model(tiny_mamba) as model:
        assert not model.info().can_roll_back


@pytest.mark.parametrize("name", ["модели 模型.gguf", "my model.gguf", "ü" * 60 + ".gguf"])
def test_any_file_name_is_loaded(tmp_path: Path, name: str) -> None:
    with Model(tiny_llama(tmp_path / name)) as model:
        assert model.info().path.endswith(name)


@pytest.mark.parametrize("length", [0, 4, 64, 1000, 5000, -100])
def test_a_truncated_file_is_an_error_with_a_reason(
    tiny_target: Path, tmp_path: Path, length: int
) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(tiny_target.read_bytes()[:length])
    with pytest.raises(ModelFileError, match="cannot load") as caught:
        Model(path)
    assert str(path) in str(caught.value)
    assert "no reason given" not in str(caught.value)


def test_a_missing_file_and_a_folder_are_errors(tmp_path: Path) -> None:
    for path in (tmp_path / "none.gguf", tmp_path):
        with pytest.raises(ModelFileError, match="cannot load"):
            Model(path)


def test_an_unknown_device_is_a_usage_error(tiny_target: Path) -> None:
    with pytest.raises(UsageError, match="no device 'tpu7'") as caught:
        Model(tiny_target, ModelParams(device="tpu7"))
    assert "cpu" in str(caught.value)


def test_load_settings_reach_target_and_drafter() -> None:
    given = LoadSettings(gpu_layers=7, draft_gpu_layers=3, n_cpu_moe=2, mmap=False)
    target, drafter = ModelParams.target(given), ModelParams.drafter(given)
    assert (target.gpu_layers, target.n_cpu_moe, target.mmap) == (7, 2, False)
    assert (drafter.gpu_layers, drafter.n_cpu_moe, drafter.mmap) == (3, 0, False)


@pytest.mark.parametrize(
    "params", [ModelParams(mmap=False), ModelParams(n_cpu_moe=3), ModelParams(device="cpu")]
)
def test_ways_of_loading(tiny_target: Path, params: ModelParams) -> None:
    with Model(tiny_target, params) as model:
        assert model.arch == "llama"


def test_the_build_names_its_devices() -> None:
    build = build_info()
    assert build.llama_cpp_python == "0.3.36"
    assert "CPU" in build.backends
    assert any(device.startswith("CPU: ") for device in build.devices)
    assert build.system_info
