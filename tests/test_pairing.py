"""Drafters against targets by their headers: which family a file is, and what is refused, why.

The files are tiny but of the shapes that llama.cpp asks for, so that it can be asked too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import gguf
import numpy as np
import pytest

import localspec.llama  # noqa: F401  (before numpy)
from localspec import resources
from localspec.engine import messages as m
from localspec.engine.host import Host, Pipe
from localspec.errors import DrafterError, ModelFileError
from localspec.gguf_header import check_model_file, read_header
from localspec.llama import Model
from localspec.llama.context import AbortFlag
from localspec.pairing import check_pairing
from localspec.records import ContextSettings, DrafterSettings, LoadSettings

WIDTH, FEED, HEAD = 8, 16, 4
TEXTS = ("<s>", "</s>", "<unk>", "<a>", "<b>", *(chr(97 + i) for i in range(26)), "Ġ", "Ċ")


@dataclass(frozen=True)
class File:
    """A GGUF in the making: keys under the architecture's prefix, keys in full, tensor shapes
    (slowest dimension first, as numpy has them)."""

    arch: str
    keys: Mapping[str, Any]
    tensors: Mapping[str, tuple[int, ...]]
    general: Mapping[str, Any] = field(default_factory=dict)
    texts: tuple[str, ...] = TEXTS
    tables: Mapping[str, list[int]] = field(default_factory=dict)

    def changed(self, **changes: Any) -> File:
        """Dictionaries are merged (None drops an entry), all else is replaced."""
        merged = {
            name: {k: v for k, v in {**getattr(self, name), **value}.items() if v is not None}
            if isinstance(value, Mapping)
            else value
            for name, value in changes.items()
        }
        return replace(self, **merged)

    def write(self, path: Path) -> Path:
        writer = gguf.GGUFWriter(path, self.arch)
        keys = {f"{self.arch}.{k}": v for k, v in self.keys.items()}
        for key, value in {**keys, **self.general}.items():
            kind = {bool: "bool", int: "uint32", float: "float32", str: "string"}.get(type(value))
            if kind is None:
                writer.add_array(key, list(value))
            else:
                getattr(writer, f"add_{kind}")(key, value)
        writer.add_token_list(list(self.texts))
        control = [t.startswith("<") for t in self.texts]
        writer.add_token_types([gguf.TokenType.CONTROL if c else 1 for c in control])
        writer.add_token_merges(["a b"])
        for name, shape in self.tensors.items():
            writer.add_tensor(name, np.zeros(shape, np.float32))
        for name, table in self.tables.items():
            writer.add_tensor(name, np.array(table, np.int64))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


TOKENIZER = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.ggml.eos_token_id": 1,
    "tokenizer.ggml.add_bos_token": True,
}


def keys(layers: int, **more: Any) -> dict[str, Any]:
    return {
        "block_count": layers,
        "context_length": 64,
        "embedding_length": WIDTH,
        "feed_forward_length": FEED,
        "attention.head_count": 2,
        "attention.head_count_kv": 2,
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": HEAD,
        **{k.replace("__", "."): v for k, v in more.items()},
    }


def blocks(numbers: range, *, inputs: int = WIDTH, head_norms: bool = True) -> dict[str, Any]:
    """A dense decoder layer, with or without norms of queries and keys."""
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm": (WIDTH,),
        "attn_q": (2 * HEAD, inputs),
        "attn_k": (2 * HEAD, inputs),
        "attn_v": (2 * HEAD, inputs),
        "attn_output": (WIDTH, 2 * HEAD),
        "ffn_norm": (WIDTH,),
        "ffn_gate": (FEED, WIDTH),
        "ffn_up": (FEED, WIDTH),
        "ffn_down": (WIDTH, FEED),
    }
    if head_norms:
        shapes |= {"attn_q_norm": (HEAD,), "attn_k_norm": (HEAD,)}
    return {f"blk.{i}.{name}.weight": shape for i in numbers for name, shape in shapes.items()}


ENDS = {"token_embd.weight": (len(TEXTS), WIDTH), "output_norm.weight": (WIDTH,)}
NEXTN = {"nextn.eh_proj": (WIDTH, 2 * WIDTH), "nextn.enorm": (WIDTH,), "nextn.hnorm": (WIDTH,)}


def model(arch: str = "qwen3", layers: int = 12, **general: Any) -> File:
    names = {"general.name": "Qwen3 8B", **general}
    return File(arch, keys(layers), ENDS | blocks(range(layers)), TOKENIZER | names)


def eagle3() -> File:
    """For the 12 layers of ``model``: it reads 2, 12/2 and 12-3."""
    tensors = {
        "fc.weight": (WIDTH, 3 * WIDTH),
        "output_norm.weight": (WIDTH,),
        "output.weight": (20, WIDTH),
        "blk.0.attn_norm_2.weight": (WIDTH,),
        **blocks(range(1), inputs=2 * WIDTH, head_norms=False),
    }
    own = keys(1, target_layers=[2, 6, 9], target_hidden_size=WIDTH)
    name = {"general.name": "Qwen3 8B EAGLE3"}
    return File("eagle3", own, tensors, TOKENIZER | name, tables={"d2t": list(range(20))})


def dflash(**more: Any) -> File:
    tensors = {
        "fc.weight": (WIDTH, 2 * WIDTH),
        "enc.output_norm.weight": (WIDTH,),
        "output_norm.weight": (WIDTH,),
        **blocks(range(2)),
    }
    own = keys(2, target_layers=[2, 9], block_size=4, **more)
    name = {"general.name": "Qwen3 8B DFlash", "tokenizer.ggml.mask_token_id": 4}
    return File("dflash", own, tensors, TOKENIZER | name)


def dspark() -> File:
    markov = {"markov_w1.weight": (len(TEXTS), 4), "markov_w2.weight": (len(TEXTS), 4)}
    conf = {"conf_proj.weight": (1, WIDTH + 4), "conf_proj.bias": (1,)}
    return dflash(has_confidence_head=True).changed(tensors=markov | conf)


def dflash2() -> File:
    selector = {
        "selector_hidden.weight": (3, WIDTH),
        "selector_predecessor.weight": (len(TEXTS), 3),
        "selector_successor.weight": (len(TEXTS), 3),
    }
    conv: dict[str, tuple[int, ...]] = {}
    for i in range(2):
        for part in ("attn", "ffn"):
            conv[f"blk.{i}.{part}_conv_base"] = (2, 2, WIDTH)
            conv[f"blk.{i}.{part}_conv_proj.weight"] = (2 * 2 * 2, WIDTH)
    sizes = {"selector_rank": 3, "selector_top_k": 2, "conv_kernel_size": 2, "conv_group_size": 4}
    return dflash(**sizes).changed(tensors=selector | conv)


def qwen35(layers: int = 3, *, trunk: bool = True, heads: bool = True) -> File:
    """Attention layers only, which is what a hybrid's MTP layer is made of too."""
    tensors = {
        k.replace("ffn_norm", "post_attention_norm"): v
        for k, v in blocks(range(0 if trunk else layers, layers + heads)).items()
    }
    tensors |= {k: (4 * HEAD, WIDTH) for k in tensors if k.endswith("attn_q.weight")}
    if heads:
        tensors |= {f"blk.{layers}.{name}.weight": shape for name, shape in NEXTN.items()}
    ssm = {
        "conv_kernel": 4,
        "inner_size": 8,
        "state_size": 4,
        "time_step_rank": 2,
        "group_count": 2,
    }
    own = keys(
        layers + heads,
        full_attention_interval=1,
        rope__dimension_sections=[1, 1, 0, 0],
        **{f"ssm__{k}": v for k, v in ssm.items()},
    )
    if heads:
        own["nextn_predict_layers"] = 1
    return File("qwen35", own, ENDS | tensors, TOKENIZER | {"general.name": "Qwen3.5 4B"})


def gemma4(**more: Any) -> File:
    swa = {"attention.key_length_swa": HEAD, "attention.sliding_window": 16}
    own = keys(4) | swa | {k.replace("__", "."): v for k, v in more.items()}
    return File("gemma4", own, ENDS, TOKENIZER | {"general.name": "Gemma 4 12B It"})


def assistant() -> File:
    own = {"embedding_length_out": WIDTH, "embedding_length": 4, "nextn_predict_layers": 4}
    name = {"general.name": "Gemma 4 12B It Assistant"}
    return gemma4().changed(arch="gemma4-assistant", keys=own, general=name)


Match = Callable[[File, File], str]


@pytest.fixture
def match(tmp_path: Path) -> Match:
    """``match(target, drafter)``: the family, or the refusal."""

    def match(target: File, drafter: File) -> str:
        files = target.write(tmp_path / "target.gguf"), drafter.write(tmp_path / "drafter.gguf")
        return check_pairing(*(check_model_file(f) for f in files))

    return match


def refused(match: Match, target: File, drafter: File, reason: str) -> None:
    """It is refused for ``reason``, both files are named, and it is said what to do."""
    with pytest.raises(DrafterError, match=reason) as caught:
        match(target, drafter)
    assert "target.gguf" in caught.value.message
    assert "drafter.gguf" in caught.value.message
    assert caught.value.hint


# ---- which family a file is --------------------------------------------------------------------

FAMILIES = {
    "eagle3": (model(), eagle3(), "eagle3"),
    "dflash": (model(), dflash(), "dflash"),
    "dflash2": (model(), dflash2(), "dflash"),
    "dspark": (model(), dspark(), "dspark"),
    "MTP layers alone": (qwen35(heads=False), qwen35(trunk=False), "mtp"),
    "MTP layers in another file of the model": (qwen35(heads=False), qwen35(), "mtp"),
    "the target's own": (qwen35(), qwen35(), "mtp"),
    "assistant": (gemma4(), assistant(), "mtp"),
    "a smaller model": (model(), model(layers=2), "draft-model"),
    "of another architecture": (qwen35(), model(layers=2), "draft-model"),
    "the target itself": (model(), model(), "draft-model"),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_family_is_read_from_the_file(match: Match, name: str) -> None:
    target, drafter, family = FAMILIES[name]
    assert match(target, drafter) == family


def test_every_shipped_drafter_fits_the_demo_target(demo_model: Path) -> None:
    methods = {"draft": "draft-model", "eagle3": "eagle3", "dflash": "dflash", "dspark": "dspark"}
    target = check_model_file(demo_model)
    files = sorted(resources.asset("demo").glob("smollm2-135m-*.gguf"))
    assert files
    for file in files:
        family = file.stem.removeprefix("smollm2-135m-").split("-")[0]
        assert check_pairing(target, check_model_file(file)) == methods[family]


@pytest.mark.parametrize("name", ["eagle3", "dflash", "dflash2", "dspark"])
def test_llama_cpp_wants_the_same_tensors(match: Match, tmp_path: Path, name: str) -> None:
    """What passes here loads there; without any one tensor, or with one more, neither takes it.
    (Only a few that llama.cpp can do without are the exception.)"""
    target, drafter, _ = FAMILIES[name]
    Model(drafter.write(tmp_path / "whole.gguf")).close()
    spare = {"output.weight", "conf_proj.weight", "conf_proj.bias"}
    spare |= {n for n in drafter.tensors if n.endswith("attn_v.weight") and name != "eagle3"}
    for dropped in (set(drafter.tensors) - spare) | {"unheard.weight"}:
        shape = (2, WIDTH) if dropped == "unheard.weight" else None
        other = drafter.changed(tensors={dropped: shape})
        loaded = False
        with suppress(ModelFileError):
            Model(other.write(tmp_path / "other.gguf")).close()
            loaded = True
        assert not loaded, dropped
        with pytest.raises(DrafterError, match="it (lacks|holds)"):
            match(target, other)


# ---- what is refused -----------------------------------------------------------------------------

WIDER = {"embedding_length": 16}
REFUSED: dict[str, tuple[File, File, str]] = {
    "an EAGLE-3 head of a wider target": (
        model(),
        eagle3().changed(keys={"target_hidden_size": 16}, tensors={"fc.weight": (WIDTH, 48)}),
        "reads hidden states of 16 numbers, the target's have 8",
    ),
    "an EAGLE-3 head of a deeper target": (
        model(),
        eagle3().changed(keys={"target_layers": [2, 18, 33]}),
        "reads what goes into layer 33 .* this one has 12 layers",
    ),
    "an EAGLE-3 head of a less deep target": (
        model(layers=28),
        eagle3(),
        "layers 2, 6, 9, the usual choice on a model of 12 layers, and this one has 28",
    ),
    "an EAGLE-3 head of another generation": (
        model(**{"general.name": "Qwen2.5 7B Instruct"}),
        eagle3(),
        "another generation of the model .'Qwen3 8B EAGLE3', the target is 'Qwen2.5 7B Instruct'",
    ),
    "an EAGLE-3 head whose base says so": (
        model(**{"general.name": "Llama 3.3 70B"}),
        eagle3().changed(
            general={
                "general.name": "EAGLE3 head",
                "general.base_model.count": 1,
                "general.base_model.0.name": "Meta Llama 3.1 70B Instruct",
            }
        ),
        "another generation .*'Meta Llama 3.1 70B Instruct', the target is 'Llama 3.3 70B'",
    ),
    "layer taps on an architecture without them": (
        model("qwen2"),
        eagle3(),
        "no hidden states of the layers of qwen2",
    ),
    "the last state of an architecture that does not give it": (
        model(),
        eagle3().changed(keys={"target_layers": [3, 7, 12]}),
        "layer 12 .* this one has 12 layers",
    ),
    "the last state for DFlash": (
        model("gpt-oss"),
        dflash().changed(keys={"target_layers": [2, 12]}),
        "layer 12 .* this one has 12 layers",
    ),
    "an early EAGLE-3 file": (
        model(),
        eagle3().changed(keys={"target_layers": None, "extract_layers": [2, 6, 9]}),
        "does not say which of the target's layers it reads .eagle3.target_layers",
    ),
    "an EAGLE-3 file of four layers": (
        model(),
        eagle3().changed(keys={"target_layers": [2, 4, 6, 9]}),
        "heads of 1 layer that read 3 layers .* reads 4",
    ),
    "a deeper EAGLE-3 head, which aborts": (
        model(),
        eagle3().changed(keys={"block_count": 2}),
        "heads of 1 layer .* this one has 2",
    ),
    "an EAGLE-3 head that states no width": (
        model(),
        eagle3().changed(keys={"target_hidden_size": None}),
        "states none",
    ),
    "a matrix of another width": (
        model(),
        eagle3().changed(tensors={"fc.weight": (WIDTH, 32)}),
        "its tensor fc.weight is 32x8 where its metadata ask for 24x8",
    ),
    "an EAGLE-3 table of distances": (
        model(),
        eagle3().changed(tables={"d2t": [0] * 10 + [2] * 10}),
        "d2t does not hold 20 different ids of a vocabulary of 33",
    ),
    "an EAGLE-3 table of a larger vocabulary": (
        model(),
        eagle3().changed(tables={"d2t": list(range(20, 40))}),
        "d2t does not hold 20 different ids of a vocabulary of 33",
    ),
    "an EAGLE-3 table of another length": (
        model(),
        eagle3().changed(tables={"d2t": list(range(19))}),
        "d2t .I64, 19. does not go with its 20 output rows",
    ),
    "a reduced vocabulary without its table": (
        model(),
        eagle3().changed(tables={"d2t": None}),
        "its output layer gives 20 of 33 tokens, and no table d2t says which",
    ),
    "tensors too few": (
        model(),
        eagle3().changed(tensors={"blk.0.attn_norm_2.weight": None, "blk.0.ffn_up.weight": None}),
        "it lacks blk.0.attn_norm_2.weight, blk.0.ffn_up.weight",
    ),
    "tensors too many": (
        model(),
        eagle3().changed(tensors={"t2d": (33,), "midlayer.x": (2,), "z": (2,)}),
        "it holds midlayer.x, t2d and 1 tensors more, which llama.cpp does not know",
    ),
    "a narrower head without embeddings": (
        model().changed(keys={"embedding_length": 16}),
        eagle3().changed(keys={"target_hidden_size": 16}, tensors={"fc.weight": (WIDTH, 48)}),
        "no embeddings or output layer of its own, and the target's are 16 wide where it is 8",
    ),
    "DFlash of a wider target": (
        model().changed(keys=WIDER),
        dflash(),
        "reads hidden states of 8 numbers, the target's have 16",
    ),
    "DFlash of a fork": (
        model(),
        dflash().changed(keys={"target_layers": None, "target_layer_ids": [1, 8]}),
        "dflash.target_layers",
    ),
    "DFlash without a mask": (
        model(),
        dflash().changed(general={"tokenizer.ggml.mask_token_id": None}),
        "lacks a valid tokenizer.ggml.mask_token_id",
    ),
    "DFlash with a mask that is no token": (
        model(),
        dflash().changed(general={"tokenizer.ggml.mask_token_id": 33}),
        "lacks a valid tokenizer.ggml.mask_token_id",
    ),
    "DSpark without a block size, which aborts": (
        model(),
        dspark().changed(keys={"block_size": None}),
        "lacks dflash.block_size",
    ),
    "DFlash2 without its selector's sizes": (
        model(),
        dflash2().changed(keys={"selector_rank": None, "conv_kernel_size": None}),
        "lacks dflash.selector_rank and dflash.conv_kernel_size",
    ),
    "DFlash of another generation": (
        model("qwen35", **{"general.name": "Qwen3.6-27B"}),
        dflash(),
        "another generation",
    ),
    "MTP layers of another architecture": (
        model(),
        qwen35(trunk=False),
        "MTP layers of the architecture qwen35 cannot read the hidden states of qwen3",
    ),
    "MTP layers of a deeper model": (
        qwen35(4, heads=False),
        qwen35(3, trunk=False),
        "belongs to a model 3 layers deep, and this one is 4 layers deep",
    ),
    "MTP layers of a wider model": (
        qwen35(heads=False).changed(keys=WIDER),
        qwen35(trunk=False),
        "belongs to a model 8 wide, and this one is 16 wide",
    ),
    "MTP layers of another generation": (
        qwen35(heads=False).changed(general={"general.name": "Qwen3.6 4B"}),
        qwen35(trunk=False),
        "another generation",
    ),
    "two MTP layers where one is run": (
        qwen35(2, heads=False),
        qwen35(2, trunk=False).changed(
            keys={"block_count": 4, "nextn_predict_layers": 2},
            tensors={f"blk.3.{name}.weight": shape for name, shape in NEXTN.items()},
        ),
        "does not run 2 MTP layers of qwen35",
    ),
    "an assistant of another architecture": (
        model("gemma3"),
        assistant(),
        "shares the memory of a gemma4 model, and the target is gemma3",
    ),
    "an assistant of a wider model": (
        gemma4(embedding_length=16),
        assistant(),
        "reads hidden states of 8 numbers, and the target has hidden states of 16",
    ),
    "an assistant of other heads": (
        gemma4(attention__key_length_swa=8),
        assistant(),
        "reads sliding-window keys of 4 numbers, and the target has sliding-window keys of 8",
    ),
    "an assistant of another window": (
        gemma4(attention__sliding_window=32),
        assistant(),
        "a window of 16 tokens, and the target has a window of 32",
    ),
    "a draft model with recurrent memory": (
        qwen35(4, heads=False),
        qwen35(3, heads=False),
        "qwen35 keeps a recurrent state, which cannot be rolled back",
    ),
    "a draft model without its number of layers": (
        model(),
        model(layers=2).changed(keys={"block_count": None}),
        "does not say its qwen3.block_count",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_pairing_names_both_sides_and_the_reason(match: Match, name: str) -> None:
    target, drafter, reason = REFUSED[name]
    refused(match, target, drafter, reason)


@pytest.mark.parametrize(
    ("target", "drafter"),
    [
        ("Qwen3 8B", "Eagle head"),
        ("Qwen3 8B Instruct", "Qwen3-8B-DFlash v2"),
        ("DeepSeek R1 Distill Llama 8B", "EAGLE3 LLaMA3.1 Instruct 8B"),
        ("Llama 8B", "Llama 70B"),  # sizes are no generations
        ("Smollm2 135M 8k Lc100K Mix1 Ep2", "SmolLM2 135M EAGLE-3"),
    ],
)
def test_names_that_say_nothing_against_it_refuse_nothing(
    match: Match, target: str, drafter: str
) -> None:
    head = eagle3().changed(general={"general.name": drafter})
    assert match(model(**{"general.name": target}), head) == "eagle3"


def test_the_models_of_one_series_may_draft_for_each_other(match: Match) -> None:
    """Llama 3.2 1B drafts for Llama 3.1 8B: a draft model needs the vocabulary only."""
    small = model(layers=2, **{"general.name": "Llama 3.2 1B"})
    assert match(model(**{"general.name": "Llama 3.1 8B"}), small) == "draft-model"


def test_scales_of_nvfp4_weights_belong_to_a_drafter(match: Match) -> None:
    scaled = eagle3().changed(tensors={"blk.0.attn_q.scale": (1,), "fc.scale": (1,)})
    assert match(model(), scaled) == "eagle3"


def test_a_method_that_the_catalogue_states_must_be_the_files(tmp_path: Path) -> None:
    files = model().write(tmp_path / "t.gguf"), dspark().write(tmp_path / "d.gguf")
    target, drafter = map(check_model_file, files)
    assert check_pairing(target, drafter, "dspark") == "dspark"
    for wrong in ("dflash", "draft-model"):
        with pytest.raises(DrafterError, match=f"DSpark drafter .*not what the method {wrong}"):
            check_pairing(target, drafter, wrong)


# ---- vocabularies --------------------------------------------------------------------------------

OTHER_TEXT = (*TEXTS[:9], "é", *TEXTS[10:])
VOCABULARIES: dict[str, tuple[dict[str, Any], str]] = {
    "another text": ({"texts": OTHER_TEXT}, "token 9 is 'é' against 'e'"),
    "another type": (
        {"general": {"tokenizer.ggml.model": "llama"}},
        "tokenizer 'llama' against 'gpt2'",
    ),
    "another BOS": (
        {"general": {"tokenizer.ggml.bos_token_id": 2}},
        "BOS is id 2 .added: True. against 0",
    ),
    "another BOS rule": (
        {"general": {"tokenizer.ggml.add_bos_token": False}},
        "BOS is id 0 .added: False. against 0 .added: True",
    ),
    "another size": (
        {"texts": (*TEXTS, *(f"t{i}" for i in range(129)))},
        "162 tokens against 33, more than 128 apart",
    ),
    "none at all": (
        {"general": {"tokenizer.ggml.model": None}},
        "tokenizer None against 'gpt2'",
    ),
}


@pytest.mark.parametrize("change", VOCABULARIES)
@pytest.mark.parametrize("family", ["eagle3", "dflash", "dspark", "MTP layers alone", "assistant"])
def test_every_family_has_its_vocabulary_checked(match: Match, family: str, change: str) -> None:
    target, drafter, _ = FAMILIES[family]
    changes, reason = VOCABULARIES[change]
    size = len(changes.get("texts", TEXTS))
    other = drafter.changed(**changes)
    if family in ("eagle3", "dflash", "dspark") and size != len(TEXTS):  # whole in itself
        head = {} if family == "eagle3" else {"output.weight": (size, WIDTH)}
        other = other.changed(tensors=head)
    refused(match, target, other, reason)


@pytest.mark.parametrize(
    "changes",
    [
        {"texts": ("<x>", "<y>", "<z>", *TEXTS[3:])},  # llama.cpp compares from id 5 on
        {"texts": (*TEXTS, "t0", "t1")},
        {"general": {"tokenizer.ggml.model": "gemma4"}},  # the same type
        {"general": {"tokenizer.ggml.eos_token_id": 2}},  # never added, so of no account
        {"general": {"tokenizer.ggml.add_bos_token": None}},  # a default: llama.cpp will tell
    ],
)
def test_differences_that_llama_cpp_allows(match: Match, changes: dict[str, Any]) -> None:
    assert match(model(), model(layers=2).changed(**changes)) == "draft-model"


def test_a_drafter_of_ids_only_must_have_as_many(match: Match) -> None:
    bare = eagle3().changed(general={"tokenizer.ggml.model": "no_vocab"})
    assert match(model(), bare) == "eagle3"
    fewer = bare.changed(texts=TEXTS[:-1], tables={"d2t": list(range(20))})
    refused(match, model(), fewer, "tokenizer 'no_vocab' against 'gpt2'")


def test_long_vocabularies_are_compared_text_by_text(tmp_path: Path) -> None:
    """Of two that are alike in every byte but one, and of two whose lengths shift everything."""
    long = tuple(f"token{i}" for i in range(5000))
    target = model(layers=1).changed(texts=long)
    shifted = (*long[:4000], "a longer token", *long[4001:])
    flipped = (*long[:4000], "token400O", *long[4001:])
    for texts, ours in ((shifted, "a longer token"), (flipped, "token400O")):
        files = [
            f.write(tmp_path / f"{i}.gguf")
            for i, f in enumerate((target, target.changed(texts=texts)))
        ]
        with pytest.raises(DrafterError, match=f"token 4000 is '{ours}' against 'token4000'"):
            check_pairing(*map(check_model_file, files))
        head = {"general.name": "x"}
        same = target.changed(texts=(*long[:4], *long[4:]), general=head).write(tmp_path / "s.gguf")
        assert check_pairing(check_model_file(files[0]), read_header(same)) == "draft-model"


# ---- the second line of defence ------------------------------------------------------------------


class NoPipe:
    def __init__(self) -> None:
        self.abort = AbortFlag()

    def running(self, request: int | None) -> None:
        """Nobody cancels here."""


NATIVE = ["draft-model", "eagle3", "dflash", "dspark", "mtp"]


@pytest.mark.parametrize("method", NATIVE)
def test_what_the_headers_cannot_tell_is_checked_on_the_loaded_models(
    match: Match, tmp_path: Path, method: str
) -> None:
    """Whether a BOS is added depends on the tokenizer where no key says it."""
    pairs = {f: (target, drafter) for target, drafter, f in reversed(FAMILIES.values())}
    target, drafter = pairs[method] if method != "mtp" else FAMILIES["MTP layers alone"][:2]
    unsaid = drafter.changed(general={"tokenizer.ggml.add_bos_token": None})
    assert match(target, unsaid) == method
    host = Host(cast(Pipe, NoPipe()))
    host.answer(m.Load(1, str(tmp_path / "target.gguf"), LoadSettings()))
    settings = DrafterSettings(method, "d", str(tmp_path / "drafter.gguf"), n_max=2)
    with pytest.raises(DrafterError, match="BOS is id .* .added: False. against 0 .added: True"):
        host.answer(m.Open(2, "s", settings, ContextSettings(64, 1)))
    assert not host.sessions and not host.models
    assert host.target is not None
    host.target.close()
