"""What file names tell, over the spellings that publishers use (names from FIELD.md)."""

from __future__ import annotations

import pytest

from localspec.gguf_names import part_of, preferred, quant_of, shard_of, variants, with_quant


@pytest.mark.parametrize(
    ("name", "quant"),
    [
        ("Qwen3.6-27B-Q4_K_M.gguf", "Q4_K_M"),
        ("Qwen3.6-27B-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("gemma-4-12b-it-UD-IQ2_M.gguf", "UD-IQ2_M"),
        ("Qwen3.5-9B-IQ4_XS.gguf", "IQ4_XS"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("mtp-gemma-4-12B-it-BF16.gguf", "BF16"),
        ("smollm2-1.7b-instruct-q4_k_m.gguf", "Q4_K_M"),
        ("stories15M_MOE-F16.gguf", "F16"),
        ("Qwen3-4B-DFlash.Q8_0.gguf", "Q8_0"),
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"),
        ("Model.i1-Q4_K_M.gguf", "i1-Q4_K_M"),
        ("Q3_K_S/GLM-4.5-Air-Q3_K_S-00001-of-00002.gguf", "Q3_K_S"),
        ("Q8_0/model-00001-of-00002.gguf", "Q8_0"),
        ("mtp-gemma-4-12b-it.gguf", None),
        ("model.shard-00001-of-00005.gguf", None),
        ("mmproj-F32.gguf", "F32"),
    ],
)
def test_the_quantisation_in_a_name(name: str, quant: str | None) -> None:
    assert quant_of(name) == quant


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("Qwen3.6-27B-Q4_K_M.gguf", None),
        ("Qwen3.6-27B-MTP-Q4_K_M.gguf", None),  # a whole model that has its head
        ("mtp-Qwen3.6-27B-Q4_0.gguf", "mtp"),
        ("MTP/gemma-4-12b-it-Q8_0.gguf", "mtp"),
        ("gemma-4-12B-it-assistant-Q8_0.gguf", "mtp"),
        ("dflash-Qwen3-8B-BF16.gguf", "dflash"),
        ("qwen36-35b-a3b-dflash-Q5_K_M.gguf", "dflash"),
        ("dspark-Qwen3-8B-Q8_0.gguf", "dspark"),
        ("eagle3-gpt-oss-20b-Q8_0.gguf", "eagle3"),
        ("Qwen3.6-27B-PRISM-EAGLE3-Q8_0.gguf", "eagle3"),
        ("mmproj-F32.gguf", "mmproj"),
        ("gemma-3-mmproj-model-f16.gguf", "mmproj"),
        ("imatrix_unsloth.gguf", "imatrix"),
    ],
)
def test_the_part_of_a_model_that_a_name_tells(name: str, part: str | None) -> None:
    assert part_of(name) == part


def test_a_repository_is_a_list_of_choices() -> None:
    found = variants(
        {
            "README.md": 1,
            "mmproj-F16.gguf": 5,
            "mtp-x.gguf": 3,
            "x-Q8_0.gguf": 80,
            "x-UD-Q4_K_M.gguf": 40,
            "Q6_K/x-Q6_K-00002-of-00002.gguf": 29,
            "Q6_K/x-Q6_K-00001-of-00002.gguf": 31,
            "x-BF16-00001-of-00003.gguf": 60,
        }
    )
    assert [(v.label, v.part, v.size, v.complete) for v in found] == [
        ("UD-Q4_K_M", None, 40, True),
        ("Q6_K", None, 60, True),
        ("BF16", None, 60, False),
        ("Q8_0", None, 80, True),
        ("mtp-x", "mtp", 3, True),
        ("F16", "mmproj", 5, True),
    ]
    assert found[1].files == tuple(f"Q6_K/x-Q6_K-0000{i}-of-00002.gguf" for i in (1, 2))
    assert shard_of(found[1].file) == (1, 2)
    best = preferred(found)
    assert best is not None
    assert best.quant == "UD-Q4_K_M"
    assert preferred([v for v in found if v.part]) is None


def test_a_quantisation_is_found_in_any_case_and_exactly_first() -> None:
    both = variants({"x-Q4_K_M.gguf": 1, "x-UD-Q4_K_M.gguf": 2})
    assert [v.file for v in with_quant(both, "q4_k_m")] == ["x-Q4_K_M.gguf"]
    assert [v.file for v in with_quant(both, "ud-q4_k_m")] == ["x-UD-Q4_K_M.gguf"]
    one = variants({"x-UD-Q4_K_M.gguf": 2, "x-Q8_0.gguf": 3})
    assert [v.file for v in with_quant(one, "Q4_K_M")] == ["x-UD-Q4_K_M.gguf"]
    assert with_quant(one, "Q4") == ()
