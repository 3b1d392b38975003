"""Real drafters of a few kilobytes that read a tiny target's hidden states: EAGLE-3, DFlash, DSpark
and DFlash2, with random weights. Nothing that they draft is sensible; all of it depends on every
hidden state that they were given, which is what tests of their memory need.

They draft for ``tiny_models.tiny_llama`` with ``n_layer=4``, whose embeddings and output they use.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType
from tiny_models import EOS, Floats, _Model, _Random, _texts

N_EMBD, N_HEAD, N_FF, LAYERS = 32, 2, 64, 4
MARKOV_RANK = 32


def tiny_eagle3(
    path: Path,
    *,
    target_layers: Sequence[int] = (1, 2, 3),
    target_width: int = N_EMBD,
    n_embd: int = N_EMBD,
    d2t: Sequence[int] | None = None,
    vocab: int = 12,
    tokens: Sequence[bytes] | None = None,
    own_output: bool = True,
    loud: Sequence[int] = (),
    seed: int = 1,
    quant: GGMLQuantizationType = GGMLQuantizationType.Q8_0,
) -> Path:
    """``d2t``: the target's ids that its own smaller output stands for; else all of them. ``loud``:
    ids that it likes to draft."""
    model, texts = _begin(path, "eagle3", target_layers, n_embd, 1, vocab, tokens, seed, quant)
    model.writer.add_uint32("eagle3.target_hidden_size", target_width)
    matrix = model.random.matrix
    width = len(target_layers) * target_width
    model.add("fc.weight", matrix(n_embd, width, 1.5))
    model.add("output_norm.weight", np.ones(n_embd, np.float32))
    n_draft = len(texts) if d2t is None else len(d2t)
    output = matrix(n_draft, n_embd, 2.0)
    output[list(loud)] *= 3
    if own_output:
        model.add("output.weight", output)
    if d2t is not None:
        model.writer.add_tensor("d2t", np.array(d2t, np.int64))
    _block(model, 0, n_embd, 2 * n_embd)
    model.add("blk.0.attn_norm_2.weight", np.ones(n_embd, np.float32))
    return model.write()


def tiny_dflash(
    path: Path,
    *,
    block_size: int = 6,
    target_layers: Sequence[int] = (1, 3),
    n_embd: int = N_EMBD,
    n_layer: int = 2,
    vocab: int = 12,
    tokens: Sequence[bytes] | None = None,
    mask: int | None = 3,
    causal: bool = False,
    m_rope: bool = False,
    markov: Floats | None = None,
    anchored: bool | None = None,
    confidence: Floats | None = None,
    selector: int = 0,
    own_output: bool = False,
    loud: Sequence[int] = (),
    seed: int = 1,
    quant: GGMLQuantizationType = GGMLQuantizationType.Q8_0,
) -> Path:
    """``markov``: DSpark, with these rows of ``MARKOV_RANK`` for the token before; ``anchored``:
    its sample_from_anchor, where it is written; ``confidence``: what its confidence head weighs
    those rows with. ``selector``: DFlash2 with so many candidates a row.
    """
    model, texts = _begin(
        path, "dflash", target_layers, n_embd, n_layer, vocab, tokens, seed, quant
    )
    add, random = model.writer, model.random
    add.add_uint32("dflash.block_size", block_size)
    if mask is not None:
        add.add_mask_token_id(mask)
    if causal:
        add.add_causal_attention(True)
    if m_rope:
        half = n_embd // N_HEAD // 2  # shared by time, height and width
        add.add_rope_dimension_sections([half - 2 * (half // 3), half // 3, half // 3, 0])
    model.add("fc.weight", random.matrix(n_embd, len(target_layers) * n_embd, 1.5))
    model.add("enc.output_norm.weight", np.ones(n_embd, np.float32))
    model.add("output_norm.weight", np.ones(n_embd, np.float32))
    for i in range(n_layer):
        _block(model, i, n_embd, n_embd)
        for name in ("attn_q_norm", "attn_k_norm"):
            model.add(f"blk.{i}.{name}.weight", np.ones(n_embd // N_HEAD, np.float32))
        if selector:
            projected = 2 * 2 * (n_embd // 8)
            for part in ("attn", "ffn"):
                base = random.normal(2 * 2, n_embd).reshape(2, 2, n_embd)
                model.add(f"blk.{i}.{part}_conv_base", base)
                model.add(f"blk.{i}.{part}_conv_proj.weight", random.matrix(projected, n_embd))
    if own_output:
        output = random.matrix(len(texts), n_embd, 2.0)
        output[list(loud)] *= 3
        model.add("output.weight", output)
    if markov is not None:
        model.add("markov_w1.weight", markov)
        model.add("markov_w2.weight", random.matrix(len(texts), MARKOV_RANK, 3.0))
        if anchored is not None:
            add.add_bool("dflash.sample_from_anchor", anchored)
        if confidence is not None:
            hidden = np.zeros(n_embd, np.float32)
            weights = np.concatenate([hidden, confidence]).astype(np.float32)
            add.add_tensor("conf_proj.weight", weights.reshape(1, -1))
        add.add_bool("dflash.has_confidence_head", confidence is not None)
    if selector:
        add.add_uint32("dflash.conv_kernel_size", 2)
        add.add_uint32("dflash.conv_group_size", 8)
        add.add_uint32("dflash.selector_rank", 32)
        add.add_uint32("dflash.selector_top_k", selector)
        model.add("selector_predecessor.weight", random.normal(len(texts), 32))
        model.add("selector_successor.weight", random.normal(len(texts), 32))
        model.add("selector_hidden.weight", random.matrix(32, n_embd))
    return model.write()


def _begin(
    path: Path,
    arch: str,
    target_layers: Sequence[int],
    n_embd: int,
    n_layer: int,
    vocab: int,
    tokens: Sequence[bytes] | None,
    seed: int,
    quant: GGMLQuantizationType,
) -> tuple[_Model, tuple[bytes, ...]]:
    texts = _texts(vocab, tokens)
    model = _Model(path, arch, quant, _Random(seed, 0.0, 0))
    model.describe(texts, n_ctx=256, eos=EOS, add_bos=True, template=None)
    model.size(n_embd=n_embd, n_layer=n_layer, n_ff=N_FF, n_head=N_HEAD)
    model.writer.add_head_count_kv(N_HEAD)
    model.writer.add_rope_dimension_count(n_embd // N_HEAD)
    model.writer.add_array(f"{arch}.target_layers", list(target_layers))
    return model, texts


def _block(model: _Model, i: int, n_embd: int, attention_input: int) -> None:
    matrix, block = model.random.matrix, f"blk.{i}"
    model.add(f"{block}.attn_norm.weight", np.ones(n_embd, np.float32))
    model.add(f"{block}.ffn_norm.weight", np.ones(n_embd, np.float32))
    model.add(f"{block}.attn_q.weight", matrix(n_embd, attention_input, 1.5))
    model.add(f"{block}.attn_k.weight", matrix(n_embd, attention_input, 1.5))
    model.add(f"{block}.attn_v.weight", matrix(n_embd, attention_input, 1.5))
    model.add(f"{block}.attn_output.weight", matrix(n_embd, n_embd))
    model.add(f"{block}.ffn_gate.weight", matrix(N_FF, n_embd))
    model.add(f"{block}.ffn_up.weight", matrix(N_FF, n_embd))
    model.add(f"{block}.ffn_down.weight", matrix(n_embd, N_FF, 1.5))
