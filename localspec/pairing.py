"""Whether a drafter's file fits a target's, told from the two headers before either is loaded.

llama.cpp checks little of this itself: a draft model's vocabulary, and for the families that read
the target's hidden states only widths, by an assertion that ends the process. A wrong drafter that
loads is never wrong in its output, only useless: hardly any draft is accepted. What the headers
cannot tell (defaults that depend on the tokenizer) is checked again by ``llama.vocab`` on the
loaded models.

Keys and tensors: llama.cpp's src/models/{eagle3,dflash,gemma4-assistant}.cpp and llama-arch.cpp.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable

from localspec.architectures import (
    LAST_HIDDEN,
    LAST_TAPPABLE,
    MTP,
    MTP_CHAINED,
    RECURRENT,
    TAPPABLE,
)
from localspec.errors import DrafterError, UsageError
from localspec.gguf_header import (
    GGUFHeader,
    TensorInfo,
    describe_kind,
    raw_strings,
    read_bytes,
    read_strings,
)

# llama.cpp common/speculative.cpp: SPEC_VOCAB_MAX_SIZE_DIFFERENCE, SPEC_VOCAB_CHECK_START_TOKEN_ID
MAX_SIZE_DIFFERENCE = 128
CHECK_START = 5

_TOKENS = "tokenizer.ggml.tokens"
# Tokenizers that are one type of vocabulary to llama.cpp (LLAMA_VOCAB_TYPE_BPE).
_SAME_TYPE = {"hybriddna": "gpt2", "whitespace": "gpt2", "gemma4": "gpt2"}

_OTHER_DRAFTER = "Choose a drafter that was made for this very model."
_OTHER_FILE = "Get a file made by llama.cpp's own convert_hf_to_gguf.py."

_EAGLE3_LAYERS = 3
_EAGLE3_NEEDS = ("fc.weight", "output_norm.weight")
_EAGLE3_BLOCK = (
    "attn_norm.weight attn_norm_2.weight attn_q.weight attn_k.weight attn_v.weight "
    "attn_output.weight ffn_norm.weight ffn_gate.weight ffn_down.weight ffn_up.weight"
).split()
_EAGLE3_MAY = ("enc.output_norm.weight", "output.weight", "token_embd.weight", "d2t")

_DFLASH_NEEDS = ("fc.weight", "enc.output_norm.weight", "output_norm.weight")
_DFLASH_BLOCK = (
    "attn_norm.weight attn_q.weight attn_k.weight attn_output.weight attn_q_norm.weight "
    "attn_k_norm.weight ffn_norm.weight ffn_gate.weight ffn_down.weight ffn_up.weight"
).split()
_DFLASH_MAY = ("fc.scale", "output.weight", "token_embd.weight", "d2t")
_DSPARK_NEEDS = ("markov_w1.weight", "markov_w2.weight")
_DSPARK_MAY = ("markov_w2.scale", "conf_proj.weight", "conf_proj.bias")
_DFLASH2_NEEDS = (
    "selector_hidden.weight selector_predecessor.weight selector_successor.weight".split()
)
_DFLASH2_BLOCK = "attn_conv_base attn_conv_proj.weight ffn_conv_base ffn_conv_proj.weight".split()
_DFLASH2_KEYS = ("block_size", "selector_rank", "selector_top_k", "conv_kernel_size")
_BLOCK_MAY = (
    "attn_v.weight post_attention_norm.weight post_ffw_norm.weight layer_output_scale.weight "
    "attn_sinks.weight"
).split()
_ROPE = "rope_freqs.weight"


def method_of(drafter: GGUFHeader, target: GGUFHeader) -> str:
    """The family that runs this file: ``eagle3``, ``dflash``, ``dspark``, ``mtp``, ``draft-model``.

    A whole model with MTP layers is the target's MTP heads where it is the target's like in every
    size, and else a draft model.
    """
    if drafter.arch == "eagle3":
        return "eagle3"
    if drafter.arch == "dflash":
        return "dspark" if _tensor(drafter, "markov_w1.weight") else "dflash"
    if drafter.arch == "gemma4-assistant" or drafter.is_mtp_only:
        return "mtp"
    if drafter.arch in MTP and drafter.mtp_layers and _size(drafter) == _size(target):
        return "mtp"
    return "draft-model"


def check_pairing(target: GGUFHeader, drafter: GGUFHeader, stated: str | None = None) -> str:
    """The family of ``drafter``, which fits ``target``; ``stated`` is what the catalogue calls it.

    Raises ``DrafterError`` naming both files and what keeps them apart.
    """
    method = method_of(drafter, target)
    if stated is not None and stated != method:
        raise DrafterError(
            f"{drafter.path.name} is {describe_kind(drafter)} (method {method}), not what the "
            f"method {stated} needs.",
            f"Correct its method in the catalogue to {method}, or its file.",
        )
    for key in ("block_count", "embedding_length"):
        if (drafter.number(key) or 0) < 1:
            raise DrafterError(
                f"{drafter.path.name} does not say its {drafter.arch}.{key}, so llama.cpp cannot "
                f"load it as a drafter for {target.path.name}.",
                _OTHER_FILE,
            )
    match method:
        case "eagle3":
            _check_eagle3(target, drafter)
        case "dflash" | "dspark":
            _check_dflash(target, drafter)
        case "mtp" if drafter.arch == "gemma4-assistant":
            _check_assistant(target, drafter)
        case "mtp":
            _check_mtp(target, drafter)
        case _:
            _check_draft_model(target, drafter)
    if method != "draft-model":
        _check_generation(target, drafter)
    ids_only = drafter.text("tokenizer.ggml.model") in ("none", "no_vocab")
    if not ids_only or method == "draft-model" or drafter.n_vocab != target.n_vocab:
        check_vocab(target, drafter)
    return method


def _refuse(target: GGUFHeader, drafter: GGUFHeader, why: str, then: str = "") -> DrafterError:
    """``why`` goes on after "X cannot draft for Y: "."""
    return DrafterError(
        f"{drafter.path.name} ({describe_kind(drafter).split(' ', 1)[1]}) cannot draft for "
        f"{target.path.name}: {why}.",
        then or _OTHER_DRAFTER,
    )


# ---- the families ------------------------------------------------------------------------------


def _check_eagle3(target: GGUFHeader, drafter: GGUFHeader) -> None:
    layers = _target_layers(target, drafter)
    hidden, width = drafter.number("target_hidden_size"), _width(drafter)
    if len(layers) != _EAGLE3_LAYERS or drafter.number("block_count") != 1 or not hidden:
        raise _refuse(
            target,
            drafter,
            f"llama.cpp runs heads of 1 layer that read {_EAGLE3_LAYERS} layers of a stated width; "
            f"this one has {drafter.number('block_count')}, reads {len(layers)} and states "
            f"{hidden or 'none'}",
            _OTHER_FILE,
        )
    if hidden != _width(target):
        raise _refuse(
            target,
            drafter,
            f"it reads hidden states of {hidden} numbers, the target's have {_width(target)}",
        )
    required = [*_EAGLE3_NEEDS, *(f"blk.0.{name}" for name in _EAGLE3_BLOCK)]
    if drafter.kv.get("eagle3.norm_before_fc") is True:
        required.append("enc.output_norm.weight")
    _check_tensors(target, drafter, required, [*_EAGLE3_MAY, _ROPE])
    _check_width(target, drafter, "fc.weight", (len(layers) * hidden, width or 0))
    _check_borrowed(target, drafter)
    _check_taps(target, drafter, layers)
    _check_draft_vocabulary(target, drafter)


def _check_dflash(target: GGUFHeader, drafter: GGUFHeader) -> None:
    layers = _target_layers(target, drafter)
    width, count = _width(drafter) or 0, drafter.number("block_count") or 0
    if width != _width(target):
        raise _refuse(
            target,
            drafter,
            f"it reads hidden states of {width} numbers, the target's have {_width(target)}",
        )
    _check_width(target, drafter, "fc.weight", (len(layers) * width, width))
    markov = _tensor(drafter, "markov_w1.weight") is not None
    selector = _tensor(drafter, "selector_hidden.weight") is not None
    missing = [] if _has_mask(target, drafter) else ["a valid tokenizer.ggml.mask_token_id"]
    sizes = _DFLASH2_KEYS if selector else ("block_size",) if markov else ()
    missing += [f"dflash.{key}" for key in sizes if not drafter.number(key)]
    if missing:
        raise _refuse(target, drafter, f"it lacks {' and '.join(missing)}", _OTHER_FILE)
    if not drafter.number("hyper_connection.count"):  # DeepSeek V4's stages have tensors all theirs
        required, optional = [*_DFLASH_NEEDS], [*_DFLASH_MAY, _ROPE]
        for i in range(count):
            names = [*_DFLASH_BLOCK, *(_DFLASH2_BLOCK if selector else ())]
            required += [f"blk.{i}.{name}" for name in names]
            optional += [f"blk.{i}.{name}" for name in _BLOCK_MAY]
        if markov:
            required += _DSPARK_NEEDS
            optional += _DSPARK_MAY
        if selector:
            required += _DFLASH2_NEEDS
        _check_tensors(target, drafter, required, optional)
    _check_borrowed(target, drafter)
    _check_taps(target, drafter, layers)
    _check_draft_vocabulary(target, drafter)


def _check_mtp(target: GGUFHeader, drafter: GGUFHeader) -> None:
    if drafter.arch != target.arch:
        raise _refuse(
            target,
            drafter,
            f"MTP layers of the architecture {drafter.arch} cannot read the hidden states of "
            f"{target.arch}",
        )
    for what, ours, theirs in (
        ("wide", _width(drafter), _width(target)),
        ("layers deep", drafter.layers, target.layers),
    ):
        if ours != theirs:
            raise _refuse(
                target,
                drafter,
                f"it belongs to a model {ours} {what}, and this one is {theirs} {what}",
            )
    if drafter.arch not in MTP or (drafter.mtp_layers > 1 and drafter.arch not in MTP_CHAINED):
        raise _refuse(
            target,
            drafter,
            f"this llama.cpp does not run {drafter.mtp_layers} MTP layers of {drafter.arch}",
            "Use another drafter, or none.",
        )


def _check_assistant(target: GGUFHeader, drafter: GGUFHeader) -> None:
    if target.arch != "gemma4":
        raise _refuse(
            target,
            drafter,
            f"it shares the memory of a gemma4 model, and the target is {target.arch}",
        )
    for key, name in (
        ("embedding_length_out", "hidden states of {} numbers"),
        ("attention.key_length", "keys of {} numbers"),
        ("attention.key_length_swa", "sliding-window keys of {} numbers"),
        ("attention.sliding_window", "a window of {} tokens"),
    ):
        ours = drafter.number(key)
        theirs = target.number("embedding_length" if key == "embedding_length_out" else key)
        if ours != theirs:
            raise _refuse(
                target,
                drafter,
                f"it reads {name.format(ours)}, and the target has {name.format(theirs)}",
            )


def _check_draft_model(target: GGUFHeader, drafter: GGUFHeader) -> None:
    if drafter.arch in RECURRENT:
        raise _refuse(
            target,
            drafter,
            f"{drafter.arch} keeps a recurrent state, which cannot be rolled back to a rejected "
            "draft",
            "Choose a draft model with attention memory.",
        )


# ---- what several families share ---------------------------------------------------------------


def _tensor(header: GGUFHeader, name: str) -> TensorInfo | None:
    return next((t for t in header.tensors if t.name == name), None)


def _size(header: GGUFHeader) -> tuple[str, int | None, int | None]:
    return header.arch, header.layers, _width(header)


def _width(header: GGUFHeader) -> int | None:
    return header.number("embedding_length")


def _has_mask(target: GGUFHeader, drafter: GGUFHeader) -> bool:
    """DFlash's blocks hold a mask token, whose embedding is the target's where it has none."""
    sizes = [h.n_vocab or 0 for h in (drafter, target)]
    size = sizes[0] if _tensor(drafter, "token_embd.weight") else min(sizes)
    mask = drafter.kv.get("tokenizer.ggml.mask_token_id")
    return isinstance(mask, int) and 0 <= mask < size


def _target_layers(target: GGUFHeader, drafter: GGUFHeader) -> tuple[int, ...]:
    found = drafter.kv.get(f"{drafter.arch}.target_layers")
    if not isinstance(found, tuple) or not found or not all(isinstance(i, int) for i in found):
        raise _refuse(
            target,
            drafter,
            f"it does not say which of the target's layers it reads ({drafter.arch}.target_layers)",
            "It was made for a fork of llama.cpp or an early version. " + _OTHER_FILE,
        )
    return tuple(int(i) for i in found)


def _check_width(
    target: GGUFHeader, drafter: GGUFHeader, name: str, shape: tuple[int, int]
) -> None:
    tensor = _tensor(drafter, name)
    if tensor is not None and tensor.shape != shape:
        raise _refuse(
            target,
            drafter,
            f"its tensor {name} is {'x'.join(map(str, tensor.shape))} where its metadata ask for "
            f"{'x'.join(map(str, shape))}",
            _OTHER_FILE,
        )


def _check_borrowed(target: GGUFHeader, drafter: GGUFHeader) -> None:
    """Heads may leave out their embeddings or their output layer: then the target's are used."""
    embeddings = _tensor(drafter, "token_embd.weight") is not None
    # EAGLE-3 takes the target's output layer where it has none, DFlash its own embeddings first.
    output = _tensor(drafter, "output.weight") or (embeddings and drafter.arch == "dflash")
    ours, theirs = _width(drafter), _width(target)
    if not (embeddings and output) and ours != theirs:
        raise _refuse(
            target,
            drafter,
            f"it has no embeddings or output layer of its own, and the target's are {theirs} wide "
            f"where it is {ours} wide",
        )
    if not output and drafter.n_vocab != target.n_vocab:
        raise _refuse(
            target,
            drafter,
            f"it has no output layer of its own, and the target's gives {target.n_vocab} tokens "
            f"where it has {drafter.n_vocab}",
        )


def _check_tensors(
    target: GGUFHeader, drafter: GGUFHeader, required: Iterable[str], optional: Iterable[str]
) -> None:
    """llama.cpp demands every required tensor and refuses a file that holds any other."""
    needs, names = set(required), {t.name for t in drafter.tensors}
    missing = sorted(needs - names)
    known = needs | set(optional)
    # scales of NVFP4 weights stand beside these (Model::load_tensors)
    scaled = {n for n in names if f"{n.rpartition('.')[0]}.weight" in known and "scale" in n}
    unknown = sorted(names - known - scaled)
    if missing or unknown:
        parts = [f"it lacks {_some(missing)}"] if missing else []
        parts += [f"it holds {_some(unknown)}, which llama.cpp does not know"] if unknown else []
        raise _refuse(
            target,
            drafter,
            " and ".join(parts),
            "It was made for a fork of llama.cpp or another version. " + _OTHER_FILE,
        )


def _some(names: list[str]) -> str:
    rest = f" and {len(names) - 2} tensors more" if len(names) > 2 else ""
    return ", ".join(names[:2]) + rest


def _check_taps(target: GGUFHeader, drafter: GGUFHeader, layers: tuple[int, ...]) -> None:
    """The target gives those layers' inputs, and it is not plain that another model was meant."""
    count = target.layers or 0
    if target.arch not in TAPPABLE:
        raise _refuse(
            target,
            drafter,
            f"this llama.cpp gives no hidden states of the layers of {target.arch}",
            "Use ngram or a draft model with this target.",
        )
    # "The input of layer n" behind the last is the model's last state, which few give.
    gives_last = LAST_HIDDEN if drafter.arch == "eagle3" else LAST_TAPPABLE
    last = count if target.arch in gives_last else count - 1
    outside = [i for i in layers if not 0 <= i <= last]
    if outside:
        raise _refuse(
            target,
            drafter,
            f"it reads what goes into layer {outside[-1]} of its target (from 0), and this one has "
            f"{count} layers",
        )
    meant = _default_depth(layers)
    if drafter.arch == "eagle3" and meant is not None and meant != count:
        raise _refuse(
            target,
            drafter,
            f"it reads the layers {', '.join(map(str, layers))}, the usual choice on a model of "
            f"{meant} layers, and this one has {count}",
        )


def _default_depth(layers: tuple[int, ...]) -> int | None:
    """How many layers the target has whose EAGLE-3 head reads the usual layers 2, n/2 and n-3."""
    low, middle, high = layers if len(layers) == _EAGLE3_LAYERS else (0, 0, 0)
    return high + 3 if low == 2 and middle == (high + 3) // 2 else None


def _check_draft_vocabulary(target: GGUFHeader, drafter: GGUFHeader) -> None:
    """``d2t`` gives the target's id for each of a reduced draft vocabulary's."""
    d2t, head = _tensor(drafter, "d2t"), _tensor(drafter, "output.weight")
    rows, size = head.shape[-1] if head else 0, drafter.n_vocab or 0
    if d2t is None:
        if head and rows != size:
            raise _refuse(
                target,
                drafter,
                f"its output layer gives {rows} of {size} tokens, and no table d2t says which",
                _OTHER_FILE,
            )
        return
    if d2t.type != "I64" or len(d2t.shape) != 1 or d2t.shape[0] != rows:
        raise _refuse(
            target,
            drafter,
            f"its table d2t ({d2t.type}, {'x'.join(map(str, d2t.shape))}) does not go with its "
            f"{rows} output rows",
            _OTHER_FILE,
        )
    raw = read_bytes(drafter, drafter.data + d2t.offset, d2t.n_bytes)
    ids = set(struct.unpack(f"<{rows}q", raw))
    # A checkpoint's own table holds distances (id minus row), which repeat; ids do not.
    if len(ids) != rows or not all(0 <= i < size for i in ids):
        raise _refuse(
            target,
            drafter,
            f"its table d2t does not hold {rows} different ids of a vocabulary of {size}",
            "It was made for a fork of llama.cpp or an early version. " + _OTHER_FILE,
        )


# ---- names -------------------------------------------------------------------------------------

_GENERATION = re.compile(
    r"(?<![a-z])(qwen|llama|gemma|phi|smollm|mistral|mixtral|deepseek|glm|granite|olmo|falcon|exaone"
    r"|internlm|minicpm|hunyuan|ernie|nemotron|lfm|mimo|minimax|kimi|hermes)"
    r"[\s_-]*[vkm]?(\d+(?:\.\d+)?n?)(?![\d.]*\s?[bmk]\b)",
    re.IGNORECASE,
)


def _names(header: GGUFHeader, *, bases: bool) -> list[str]:
    """What the file says it is; with ``bases`` first what it says it was made from."""
    names = []
    if bases:
        count = header.kv.get("general.base_model.count")
        for i in range(count if isinstance(count, int) else 0):
            names.append(header.text(f"general.base_model.{i}.name") or "")
    return [n for n in (*names, header.text("general.basename") or "", header.name) if n]


def _generations(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Families of models that the names speak of: for each its generations, with the name."""
    found: dict[str, dict[str, str]] = {}
    for name in names:
        for family, generation in _GENERATION.findall(name):
            found.setdefault(family.lower(), {}).setdefault(generation.lower(), name)
    return found


def _check_generation(target: GGUFHeader, drafter: GGUFHeader) -> None:
    """Sizes and vocabularies outlive a generation (Qwen2.5 and Qwen3 share both): only the names
    tell then. Refused where both name a generation of one family, and not the same."""
    ours = _generations(_names(drafter, bases=True))
    theirs = _generations(_names(target, bases=False))
    for family in ours.keys() & theirs.keys():
        if not ours[family].keys() & theirs[family].keys():
            made_for, given = (next(iter(x[family].values())) for x in (ours, theirs))
            raise _refuse(
                target,
                drafter,
                f"it was made for another generation of the model ({made_for!r}, the target is "
                f"{given!r})",
            )


# ---- vocabulary --------------------------------------------------------------------------------


def check_vocab(target: GGUFHeader, drafter: GGUFHeader) -> None:
    """Raise DrafterError unless both have one vocabulary, by the rule of llama.cpp's
    common_speculative_are_compatible: same type, same BOS and EOS policy, sizes at most 128 apart,
    the same text for every id from 5 on."""

    def refuse(what: str) -> DrafterError:
        return DrafterError(
            f"The vocabulary of {drafter.path.name} does not match that of {target.path.name}: "
            f"{what}.",
            "A drafter must share its target's tokenizer; choose one made for this model.",
        )

    types = [h.text("tokenizer.ggml.model") for h in (target, drafter)]
    if len({_SAME_TYPE.get(t or "", t) for t in types}) > 1:
        raise refuse(f"tokenizer {types[1]!r} against {types[0]!r}")
    for name in ("bos", "eos"):
        adds = [h.kv.get(f"tokenizer.ggml.add_{name}_token") for h in (target, drafter)]
        ids = [h.kv.get(f"tokenizer.ggml.{name}_token_id") for h in (target, drafter)]
        if None not in adds and (adds[0] != adds[1] or (adds[0] and ids[0] != ids[1])):
            raise refuse(
                f"{name.upper()} is id {ids[1]} (added: {adds[1]}) against {ids[0]} "
                f"(added: {adds[0]})"
            )
    sizes = [h.n_vocab or 0 for h in (target, drafter)]
    if abs(sizes[0] - sizes[1]) > MAX_SIZE_DIFFERENCE:
        raise refuse(f"{sizes[1]} tokens against {sizes[0]}, more than {MAX_SIZE_DIFFERENCE} apart")
    if (difference := _first_difference(target, drafter)) is not None:
        i, ours, theirs = difference
        raise refuse(f"token {i} is {ours!r} against {theirs!r}")


def check_same_model(one: GGUFHeader, other: GGUFHeader) -> None:
    """Raise UsageError unless the two may be one model in different quantisations: same shape, the
    very same tokens."""
    shapes = [(*_size(h), h.number("feed_forward_length"), h.n_vocab) for h in (one, other)]
    same_shape = shapes[0] == shapes[1]
    if same_shape and raw_strings(one, _TOKENS) == raw_strings(other, _TOKENS):
        return
    what = "its tokens are others" if same_shape else "its architecture or size is another"
    raise UsageError(
        f"{other.path.name} is not {one.path.name} in another quantisation: {what}.",
        "Quantisations of one model can be measured in one table; bench other models by themselves "
        "and see `localspec compare`.",
    )


def _first_difference(target: GGUFHeader, drafter: GGUFHeader) -> tuple[int, str, str] | None:
    """The first id from 5 on whose texts differ, with the drafter's and the target's."""
    raw = raw_strings(target, _TOKENS)
    if raw and raw == raw_strings(drafter, _TOKENS):
        return None  # the usual case: no text is cut out for it
    theirs, ours = read_strings(target, _TOKENS), read_strings(drafter, _TOKENS)
    for i in range(CHECK_START, min(len(theirs), len(ours))):
        if theirs[i] != ours[i]:
            return i, ours[i].decode("utf-8", "replace"), theirs[i].decode("utf-8", "replace")
    return None
