"""Models of real sizes that take no room: a whole header over a file with a hole for its data.

llama.cpp simulates its allocations from the header alone, and even loads such a file (all weights
are zero) where it is not too large.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from tiny_models import _bpe, _texts

Shape = tuple[int, ...]
"""Fastest dimension first, as llama.cpp writes them."""


def write_shape(
    path: Path,
    arch: str,
    numbers: Mapping[str, Any],
    tensors: Mapping[str, Shape],
    *,
    vocab: int,
    quant: Type = Type.Q8_0,
) -> Path:
    """``numbers`` stand under the architecture's prefix. Matrices are of type ``quant``, all else
    F32. Returns ``path``."""
    writer = gguf.GGUFWriter(path, arch)
    for key, value in numbers.items():
        name = f"{arch}.{key}"
        match value:
            case bool():
                writer.add_bool(name, value)
            case float():
                writer.add_float32(name, value)
            case int():
                writer.add_uint32(name, value)
            case _:
                writer.add_array(name, value)
    texts = [
        t.decode() if t.startswith(b"<") and len(t) > 1 else _bpe(t) for t in _texts(300, None)
    ]
    texts += [f"<more{i}>" for i in range(vocab - len(texts))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(texts[:vocab])
    writer.add_token_types(
        [gguf.TokenType.CONTROL if t.startswith("<") and len(t) > 1 else 1 for t in texts[:vocab]]
    )
    writer.add_token_merges(["e t"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    size = 0
    for name, shape in tensors.items():
        # convolutions and decays are vectors side by side, never quantised
        flat = len(shape) < 2 or any(part in name for part in ("conv", "ssm_a", "ffn_gate_inp"))
        kind = Type.F32 if flat else quant
        block, width = gguf.GGML_QUANT_SIZES[kind]
        n_bytes = int(np.prod(shape)) // block * width
        rows = (
            (*reversed(shape[1:]), shape[0] // block * width)
            if kind != Type.F32
            else tuple(reversed(shape))
        )
        dtype = np.dtype(np.float32 if kind == Type.F32 else np.uint8)
        writer.add_tensor_info(name, rows, dtype, n_bytes, None if kind == Type.F32 else kind)
        size += -(-n_bytes // 32) * 32
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("r+b") as file:
        start = -(-file.seek(0, 2) // 32) * 32
        file.truncate(start + size)
    return path


def attention(il: int, n_embd: int, q: int, k: int, v: int | None = None) -> dict[str, Shape]:
    b = f"blk.{il}"
    return {
        f"{b}.attn_norm.weight": (n_embd,),
        f"{b}.attn_q.weight": (n_embd, q),
        f"{b}.attn_k.weight": (n_embd, k),
        f"{b}.attn_v.weight": (n_embd, k if v is None else v),
        f"{b}.attn_output.weight": (q, n_embd),
    }


def dense(il: int, n_embd: int, n_ff: int, norm: str = "ffn_norm") -> dict[str, Shape]:
    b = f"blk.{il}"
    return {
        f"{b}.{norm}.weight": (n_embd,),
        f"{b}.ffn_gate.weight": (n_embd, n_ff),
        f"{b}.ffn_up.weight": (n_embd, n_ff),
        f"{b}.ffn_down.weight": (n_ff, n_embd),
    }


def experts(il: int, n_embd: int, n_ff: int, n: int, norm: str = "ffn_norm") -> dict[str, Shape]:
    b = f"blk.{il}"
    return {
        f"{b}.{norm}.weight": (n_embd,),
        f"{b}.ffn_gate_inp.weight": (n_embd, n),
        f"{b}.ffn_gate_exps.weight": (n_embd, n_ff, n),
        f"{b}.ffn_up_exps.weight": (n_embd, n_ff, n),
        f"{b}.ffn_down_exps.weight": (n_ff, n_embd, n),
    }


def ends(n_embd: int, vocab: int, *, tied: bool = False) -> dict[str, Shape]:
    both = {"token_embd.weight": (n_embd, vocab), "output_norm.weight": (n_embd,)}
    return both if tied else both | {"output.weight": (n_embd, vocab)}


def sizes(
    n_layer: int,
    n_embd: int,
    n_ff: int,
    n_head: int,
    n_head_kv: int,
    n_ctx: int = 32768,
    **more: Any,
) -> dict[str, Any]:
    return {
        "block_count": n_layer,
        "embedding_length": n_embd,
        "feed_forward_length": n_ff,
        "attention.head_count": n_head,
        "attention.head_count_kv": n_head_kv,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "context_length": n_ctx,
        **{k.replace("__", "."): v for k, v in more.items()},
    }


def llama(
    path: Path, *, n_layer: int, n_embd: int, n_ff: int, n_head: int, n_head_kv: int, vocab: int
) -> Path:
    """Dense, grouped queries."""
    head = n_embd // n_head
    tensors = ends(n_embd, vocab)
    for il in range(n_layer):
        tensors |= attention(il, n_embd, n_embd, n_head_kv * head) | dense(il, n_embd, n_ff)
    numbers = sizes(n_layer, n_embd, n_ff, n_head, n_head_kv, rope__dimension_count=head)
    return write_shape(path, "llama", numbers, tensors, vocab=vocab)


def gemma3(
    path: Path,
    *,
    n_layer: int,
    n_embd: int,
    n_ff: int,
    n_head: int,
    n_head_kv: int,
    head: int,
    vocab: int,
) -> Path:
    """Sliding windows in five of six layers, wide heads, embeddings that are the output too."""
    tensors = ends(n_embd, vocab, tied=True)
    for il in range(n_layer):
        b = f"blk.{il}"
        tensors |= attention(il, n_embd, n_head * head, n_head_kv * head) | dense(il, n_embd, n_ff)
        tensors |= {
            f"{b}.attn_q_norm.weight": (head,),
            f"{b}.attn_k_norm.weight": (head,),
            f"{b}.post_attention_norm.weight": (n_embd,),
            f"{b}.post_ffw_norm.weight": (n_embd,),
        }
    numbers = sizes(
        n_layer,
        n_embd,
        n_ff,
        n_head,
        n_head_kv,
        attention__key_length=head,
        attention__value_length=head,
        attention__sliding_window=1024,
    )
    return write_shape(path, "gemma3", numbers, tensors, vocab=vocab)


def qwen3moe(
    path: Path,
    *,
    n_layer: int,
    n_embd: int,
    n_ff: int,
    n_expert: int,
    n_used: int,
    n_head: int,
    n_head_kv: int,
    head: int,
    vocab: int,
) -> Path:
    """A mixture of experts."""
    tensors = ends(n_embd, vocab)
    for il in range(n_layer):
        b = f"blk.{il}"
        tensors |= attention(il, n_embd, n_head * head, n_head_kv * head)
        tensors |= experts(il, n_embd, n_ff, n_expert)
        tensors |= {f"{b}.attn_q_norm.weight": (head,), f"{b}.attn_k_norm.weight": (head,)}
    numbers = sizes(
        n_layer,
        n_embd,
        4 * n_ff,
        n_head,
        n_head_kv,
        attention__key_length=head,
        attention__value_length=head,
        expert_count=n_expert,
        expert_used_count=n_used,
        expert_feed_forward_length=n_ff,
    )
    return write_shape(path, "qwen3moe", numbers, tensors, vocab=vocab)


def deepseek2(
    path: Path, *, n_layer: int, n_embd: int, n_ff: int, n_head: int, rank: int, vocab: int
) -> Path:
    """Multi-head latent attention: one row for all heads, and no values."""
    rope, nope, value = 64, 128, 128
    tensors = ends(n_embd, vocab)
    for il in range(n_layer):
        b = f"blk.{il}"
        tensors |= {
            f"{b}.attn_norm.weight": (n_embd,),
            f"{b}.attn_q.weight": (n_embd, n_head * (nope + rope)),
            f"{b}.attn_kv_a_mqa.weight": (n_embd, rank + rope),
            f"{b}.attn_kv_a_norm.weight": (rank,),
            f"{b}.attn_k_b.weight": (nope, rank, n_head),
            f"{b}.attn_v_b.weight": (rank, value, n_head),
            f"{b}.attn_output.weight": (n_head * value, n_embd),
        } | dense(il, n_embd, n_ff)
    numbers = sizes(
        n_layer,
        n_embd,
        n_ff,
        n_head,
        1,
        attention__key_length=rank + rope,
        attention__value_length=rank,
        attention__key_length_mla=nope + rope,
        attention__value_length_mla=value,
        attention__kv_lora_rank=rank,
        rope__dimension_count=rope,
        leading_dense_block_count=n_layer,
        expert_shared_count=0,
        expert_weights_scale=1.0,
        expert_feed_forward_length=n_ff,
    )
    return write_shape(path, "deepseek2", numbers, tensors, vocab=vocab)


def mamba(path: Path, *, n_layer: int, n_embd: int, vocab: int) -> Path:
    """Recurrent throughout."""
    inner, state, conv, rank = 2 * n_embd, 16, 4, n_embd // 16
    tensors = ends(n_embd, vocab, tied=True)
    for il in range(n_layer):
        b = f"blk.{il}"
        tensors |= {
            f"{b}.attn_norm.weight": (n_embd,),
            f"{b}.ssm_in.weight": (n_embd, 2 * inner),
            f"{b}.ssm_conv1d.weight": (conv, inner),
            f"{b}.ssm_conv1d.bias": (inner,),
            f"{b}.ssm_x.weight": (inner, rank + 2 * state),
            f"{b}.ssm_dt.weight": (rank, inner),
            f"{b}.ssm_dt.bias": (inner,),
            f"{b}.ssm_a": (state, inner),
            f"{b}.ssm_d": (inner,),
            f"{b}.ssm_out.weight": (inner, n_embd),
        }
    numbers = sizes(
        n_layer,
        n_embd,
        0,
        0,
        0,
        ssm__conv_kernel=conv,
        ssm__inner_size=inner,
        ssm__state_size=state,
        ssm__time_step_rank=rank,
    )
    return write_shape(path, "mamba", numbers, tensors, vocab=vocab)


def qwen35(
    path: Path,
    *,
    n_layer: int,
    n_embd: int,
    n_ff: int,
    n_head: int,
    n_head_kv: int,
    head: int,
    k_heads: int,
    v_heads: int,
    vocab: int,
) -> Path:
    """Gated delta nets, and attention in every fourth layer; earlier states can be retained."""
    state, conv = 128, 4
    inner, channels = v_heads * state, 2 * k_heads * state + v_heads * state
    tensors = ends(n_embd, vocab)
    for il in range(n_layer):
        b = f"blk.{il}"
        tensors |= dense(il, n_embd, n_ff, norm="post_attention_norm")
        if (il + 1) % 4 == 0:
            tensors |= attention(il, n_embd, n_head * head, n_head_kv * head)
            tensors |= {
                f"{b}.attn_q.weight": (n_embd, 2 * n_head * head),
                f"{b}.attn_q_norm.weight": (head,),
                f"{b}.attn_k_norm.weight": (head,),
            }
            continue
        tensors |= {
            f"{b}.attn_norm.weight": (n_embd,),
            f"{b}.attn_qkv.weight": (n_embd, channels),
            f"{b}.attn_gate.weight": (n_embd, inner),
            f"{b}.ssm_conv1d.weight": (conv, channels),
            f"{b}.ssm_dt.bias": (v_heads,),
            f"{b}.ssm_a": (v_heads,),
            f"{b}.ssm_beta.weight": (n_embd, v_heads),
            f"{b}.ssm_alpha.weight": (n_embd, v_heads),
            f"{b}.ssm_norm.weight": (state,),
            f"{b}.ssm_out.weight": (inner, n_embd),
        }
    numbers = sizes(
        n_layer,
        n_embd,
        n_ff,
        n_head,
        n_head_kv,
        attention__key_length=head,
        attention__value_length=head,
        full_attention_interval=4,
        ssm__conv_kernel=conv,
        ssm__inner_size=inner,
        ssm__state_size=state,
        ssm__time_step_rank=v_heads,
        ssm__group_count=k_heads,
        rope__dimension_count=64,
        rope__dimension_sections=[11, 11, 10, 0],
    )
    return write_shape(path, "qwen35", numbers, tensors, vocab=vocab)


def phi3(path: Path, *, n_layer: int, n_embd: int, n_ff: int, n_head: int, vocab: int) -> Path:
    """Queries, keys and values in one matrix, gate and up in another; every head its own keys."""
    tensors = ends(n_embd, vocab)
    for il in range(n_layer):
        b = f"blk.{il}"
        tensors |= {
            f"{b}.attn_norm.weight": (n_embd,),
            f"{b}.attn_qkv.weight": (n_embd, 3 * n_embd),
            f"{b}.attn_output.weight": (n_embd, n_embd),
            f"{b}.ffn_norm.weight": (n_embd,),
            f"{b}.ffn_up.weight": (n_embd, 2 * n_ff),
            f"{b}.ffn_down.weight": (n_ff, n_embd),
        }
    numbers = sizes(
        n_layer,
        n_embd,
        n_ff,
        n_head,
        n_head,
        rope__dimension_count=n_embd // n_head,
        rope__scaling__original_context_length=4096,
    )
    return write_shape(path, "phi3", numbers, tensors, vocab=vocab)


def lfm2(
    path: Path, *, n_layer: int, n_embd: int, n_ff: int, n_head: int, n_head_kv: int, vocab: int
) -> Path:
    """Short convolutions, and attention in every third layer."""
    head, cache = n_embd // n_head, 3
    kv = [n_head_kv if il % 3 == 2 else 0 for il in range(n_layer)]
    tensors = ends(n_embd, vocab, tied=True)
    tensors["token_embd_norm.weight"] = (n_embd,)
    del tensors["output_norm.weight"]
    for il in range(n_layer):
        b = f"blk.{il}"
        tensors |= dense(il, n_embd, n_ff) | {f"{b}.attn_norm.weight": (n_embd,)}
        if kv[il]:
            tensors |= attention(il, n_embd, n_embd, n_head_kv * head)
            tensors |= {f"{b}.attn_q_norm.weight": (head,), f"{b}.attn_k_norm.weight": (head,)}
        else:
            tensors |= {
                f"{b}.shortconv.conv.weight": (cache, n_embd),
                f"{b}.shortconv.in_proj.weight": (n_embd, 3 * n_embd),
                f"{b}.shortconv.out_proj.weight": (n_embd, n_embd),
            }
    numbers = sizes(n_layer, n_embd, n_ff, n_head, 0, shortconv__l_cache=cache)
    return write_shape(
        path, "lfm2", numbers | {"attention.head_count_kv": kv}, tensors, vocab=vocab
    )
