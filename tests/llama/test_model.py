"""Loading files, good and bad."""

from __future__ import annotations

import math
from pathlib import Path

import gguf
import numpy as np
import pytest
from llama.conftest import MakeContext
from tiny_models import CHATML, tiny_llama

from localspec.errors import ModelFileError, UsageError
from localspec.gguf_header import check_model_file, read_header
from localspec.llama import Context, Model, ModelParams, build_info
from localspec.llama.context import Batch
from localspec.records import LoadSettings


def test_what_a_model_says_of_itself(tiny_bytes: Path) -> None:
    with Model(tiny_bytes) as model:
        info = model.info()
    assert info.path == str(tiny_bytes)
    assert (info.arch, info.n_vocab, info.n_layer, info.n_ctx_train) == ("llama", 300, 2, 1024)
    assert info.template == CHATML, "longer than the first buffer"
    assert (info.bos, info.eos, info.add_bos) == ("<s>", "</s>", True)
    assert info.can_roll_back
    assert info.size_bytes == tiny_bytes.stat().st_size
    weights = sum(math.prod(t.shape) for t in read_header(tiny_bytes).tensors)
    assert info.n_params == weights
    assert info.description == f"llama {weights / 1e3:.3g}K {info.quant}"


def test_the_demo_has_as_many_parameters_as_its_name_says(demo_model: Path) -> None:
    """llama.cpp names the size of a llama by its layers: "256M" for these 135M."""
    with Model(demo_model) as model:
        info = model.info()
    assert info.description == "llama 135M Q4_1"
    assert info.size_bytes == demo_model.stat().st_size


def test_a_recurrent_model_cannot_roll_back(tiny_mamba: Path) -> None:
    with Model(tiny_mamba) as model:
        assert not model.info().can_roll_back


def copy_without(source: Path, target: Path, dropped: str) -> Path:
    """A copy of a model without the tensors whose names hold ``dropped``; all keys stay."""
    reader = gguf.GGUFReader(source)
    arch = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, arch)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        item = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=item)
    for tensor in reader.tensors:
        if dropped not in tensor.name:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def next_logits(context: Context) -> np.ndarray:
    batch = Batch(6)
    batch.tokens[:] = [40, 50, 60, 70, 80, 90]
    batch.fill_positions(6, 0)
    batch.outputs[:5] = 0
    context.decode(batch)
    batch.close()
    return context.rows(1).copy()


def test_a_model_whose_mtp_layers_were_dropped_loads_without_them(
    make_context: MakeContext, demo_hybrid: Path, tmp_path: Path
) -> None:
    """Its keys still claim them; llama.cpp alone refuses it: a tensor is not found."""
    stripped = copy_without(demo_hybrid, tmp_path / "stripped.gguf", "blk.8.")
    assert check_model_file(stripped).mtp_layers == 0
    context, as_it_was = make_context(stripped), make_context(demo_hybrid)
    assert (context.model.layers, context.model.mtp_layers) == (8, 0)
    assert (as_it_was.model.layers, as_it_was.model.mtp_layers) == (8, 1)
    np.testing.assert_array_equal(next_logits(context), next_logits(as_it_was))


def test_mtp_layers_of_which_a_part_is_missing_are_refused(
    demo_hybrid: Path, tmp_path: Path
) -> None:
    half = copy_without(demo_hybrid, tmp_path / "half.gguf", ".nextn.")
    with pytest.raises(ModelFileError, match="1 MTP layer, of which tensors are missing"):
        check_model_file(half)
    with pytest.raises(ModelFileError, match="blk.8.nextn.eh_proj.weight' not found"):
        Model(half)


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
