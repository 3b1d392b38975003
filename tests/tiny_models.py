"""Real GGUF models of a few kilobytes, built by the tests, that llama.cpp loads and decodes.

Weights are random but not dull: next-token distributions are peaked (a top probability of about
.3 to .6), depend on the context, and come from a known seed. The vocabulary is byte-level BPE
(tokenizer ``gpt2``), small enough for exact statistics; ``byte_vocabulary`` covers all 256 bytes,
so any text goes round and random output is often not UTF-8, which a detokenizer must survive.

Matrices are Q8_0 by default, for which llama.cpp's rows are bit-equal whatever the batch size
(x86, measured), as for the quants of real models that the identity tests rest on; with F16 and F32
they are not (they differ by about 1e-3).

Hidden dimension 0 is the same for every token and no layer writes to it, so the output row of a
token carries, in that dimension, a bias of its logit: that is how ``favour`` works.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

BOS, EOS = 0, 1
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_SPECIALS = (b"<s>", b"</s>")
_BLOCK = 32  # elements of a Q8_0 block

Floats = NDArray[np.float32]


def letter_vocabulary(size: int = 12, first: str = "a") -> tuple[bytes, ...]:
    """``<s> </s>``, newline, space, then letters from ``first`` on and one token of two letters."""
    letters = [bytes([ord(first) + i]) for i in range(size - 5)]
    return (*_SPECIALS, b"\n", b" ", *letters, letters[0] + letters[1])


def byte_vocabulary(size: int = 300) -> tuple[bytes, ...]:
    """Four specials, all 256 bytes (byte b has id 4 + b), then pairs of letters up to ``size``."""
    letters = b"etaoinshr"
    pairs = [bytes([x, y]) for x in letters for y in letters]
    every = (*_SPECIALS, b"<|im_start|>", b"<|im_end|>", *(bytes([b]) for b in range(256)), *pairs)
    return every[:size]


def tiny_llama(
    path: Path,
    *,
    vocab: int = 12,
    n_embd: int = 32,
    n_layer: int = 2,
    n_head: int = 2,
    n_ff: int = 64,
    n_ctx: int = 256,
    seed: int = 0,
    scale: float | None = None,
    noise: float = 0.0,
    noise_seed: int = 1,
    favour: Mapping[int, float] | None = None,
    eos: int = EOS,
    add_bos: bool = True,
    template: str | None = None,
    tokens: Sequence[bytes] | None = None,
    quant: GGMLQuantizationType = GGMLQuantizationType.Q8_0,
) -> Path:
    """Write a model of arch ``llama`` and return its path.

    ``scale`` is the standard deviation of the logits; the default grows with the logarithm of the
    vocabulary, which keeps the top probability where it is. ``noise`` mixes that share of other
    weights (from ``noise_seed``) into each tensor: two models that differ only in it agree in part,
    as a draft model and its target do. ``favour`` adds about so much to the logits of these ids, in
    every context. ``tokens`` are the texts of the vocabulary (those of the form ``<...>`` are
    control tokens); by default letters for a vocabulary under 260, else all bytes.
    """
    texts = _texts(vocab, tokens)
    model = _Model(path, "llama", quant, _Random(seed, noise, noise_seed))
    model.describe(texts, n_ctx=n_ctx, eos=eos, add_bos=add_bos, template=template)
    model.size(n_embd=n_embd, n_layer=n_layer, n_ff=n_ff, n_head=n_head)
    model.writer.add_head_count_kv(n_head)
    model.writer.add_rope_dimension_count(n_embd // n_head)
    model.ends(len(texts), n_embd, scale, favour or {})
    matrix = model.random.matrix
    for i in range(n_layer):
        block = f"blk.{i}"
        model.add(f"{block}.attn_norm.weight", np.ones(n_embd, np.float32))
        model.add(f"{block}.ffn_norm.weight", np.ones(n_embd, np.float32))
        # Queries and keys above unit size: attention that picks tokens out, not their mean.
        model.add(f"{block}.attn_q.weight", matrix(n_embd, n_embd, 1.5))
        model.add(f"{block}.attn_k.weight", matrix(n_embd, n_embd, 1.5))
        model.add(f"{block}.attn_v.weight", matrix(n_embd, n_embd))
        model.add(f"{block}.attn_output.weight", _leave_first(matrix(n_embd, n_embd)))
        model.add(f"{block}.ffn_gate.weight", matrix(n_ff, n_embd))
        model.add(f"{block}.ffn_up.weight", matrix(n_ff, n_embd))
        model.add(f"{block}.ffn_down.weight", _leave_first(matrix(n_embd, n_ff, 1.5)))
    return model.write()


def tiny_recurrent(
    path: Path,
    *,
    vocab: int = 12,
    n_embd: int = 32,
    n_layer: int = 2,
    n_ctx: int = 256,
    seed: int = 0,
    scale: float | None = None,
    favour: Mapping[int, float] | None = None,
    eos: int = EOS,
    add_bos: bool = True,
    template: str | None = None,
    tokens: Sequence[bytes] | None = None,
    quant: GGMLQuantizationType = GGMLQuantizationType.Q8_0,
) -> Path:
    """Write a model of arch ``mamba``: recurrent memory, which cannot be rolled back."""
    d_inner, d_state, d_conv, dt_rank = 2 * n_embd, 8, 4, 2
    texts = _texts(vocab, tokens)
    model = _Model(path, "mamba", quant, _Random(seed, 0.0, 0))
    model.describe(texts, n_ctx=n_ctx, eos=eos, add_bos=add_bos, template=template)
    model.size(n_embd=n_embd, n_layer=n_layer, n_ff=0, n_head=0)
    model.writer.add_ssm_conv_kernel(d_conv)
    model.writer.add_ssm_inner_size(d_inner)
    model.writer.add_ssm_state_size(d_state)
    model.writer.add_ssm_time_step_rank(dt_rank)
    model.ends(len(texts), n_embd, scale, favour or {})
    matrix = model.random.matrix
    decay = np.tile(-np.arange(1, d_state + 1, dtype=np.float32), (d_inner, 1))
    for i in range(n_layer):
        block = f"blk.{i}"
        model.add(f"{block}.attn_norm.weight", np.ones(n_embd, np.float32))
        model.add(f"{block}.ssm_in.weight", matrix(2 * d_inner, n_embd, 1.5))
        model.add(f"{block}.ssm_conv1d.weight", matrix(d_inner, d_conv))
        model.add(f"{block}.ssm_conv1d.bias", np.zeros(d_inner, np.float32))
        model.add(f"{block}.ssm_x.weight", matrix(dt_rank + 2 * d_state, d_inner))
        model.add(f"{block}.ssm_dt.weight", matrix(d_inner, dt_rank))
        model.add(f"{block}.ssm_dt.bias", np.full(d_inner, -2.0, np.float32))
        model.add(f"{block}.ssm_a", decay)
        model.add(f"{block}.ssm_d", np.ones(d_inner, np.float32))
        model.add(f"{block}.ssm_out.weight", _leave_first(matrix(n_embd, d_inner, 2.0)))
    return model.write()


def tiny_mtp(
    path: Path,
    *,
    heads: int = 1,
    trunk: bool = True,
    own_heads: bool = True,
    vocab: int = 12,
    n_embd: int = 32,
    n_layer: int = 2,
    n_head: int = 2,
    n_ff: int = 64,
    n_ctx: int = 256,
    window: int = 1024,
    seed: int = 0,
    favour: Mapping[int, float] | None = None,
    eos: int = EOS,
    tokens: Sequence[bytes] | None = None,
    quant: GGMLQuantizationType = GGMLQuantizationType.Q8_0,
) -> Path:
    """Write a model of arch ``step35`` (dense) with ``heads`` MTP layers and return its path.

    The same seed gives the same weights whatever is left out: without ``trunk`` the file holds the
    MTP layers only, without ``own_heads`` the model only. Every other layer looks back ``window``
    positions only.
    """
    texts = _texts(vocab, tokens)
    model = _Model(path, "step35", quant, _Random(seed, 0.0, 0))
    model.describe(texts, n_ctx=n_ctx, eos=eos, add_bos=True, template=None)
    written = n_layer + (heads if own_heads else 0)
    model.size(n_embd=n_embd, n_layer=written, n_ff=n_ff, n_head=n_head)
    add = model.writer
    add.add_head_count_kv(n_head)
    add.add_rope_dimension_count(n_embd // n_head)
    add.add_expert_feed_forward_length(n_ff)
    add.add_sliding_window(window)
    add.add_sliding_window_pattern([i % 2 == 0 for i in range(written)])
    if own_heads:
        add.add_nextn_predict_layers(heads)
    model.ends(len(texts), n_embd, None, favour or {})
    matrix = model.random.matrix
    for i in range(n_layer + heads):
        nextn = i >= n_layer
        for name, tensor in {
            "attn_norm": np.ones(n_embd, np.float32),
            "ffn_norm": np.ones(n_embd, np.float32),
            "attn_q": matrix(n_embd, n_embd, 1.5),
            "attn_k": matrix(n_embd, n_embd, 1.5),
            "attn_v": matrix(n_embd, n_embd),
            "attn_output": _leave_first(matrix(n_embd, n_embd)),
            "ffn_gate": matrix(n_ff, n_embd),
            "ffn_up": matrix(n_ff, n_embd),
            "ffn_down": _leave_first(matrix(n_embd, n_ff, 1.5)),
            "nextn.eh_proj": matrix(n_embd, 2 * n_embd, 1.5),
            "nextn.enorm": np.ones(n_embd, np.float32),
            "nextn.hnorm": np.ones(n_embd, np.float32),
        }.items():
            if (own_heads if nextn else trunk) and (nextn or not name.startswith("nextn")):
                model.add(f"blk.{i}.{name}.weight", tensor)
    return model.write()


def tiny_gemma4(
    path: Path,
    *,
    n_embd: int = 64,
    n_head: int = 2,
    n_ff: int = 64,
    n_ctx: int = 256,
    window: int = 1024,
    seed: int = 0,
    favour: Mapping[int, float] | None = None,
    assistant_of: int | None = None,
    head: int = 32,
    vocab: int = 12,
) -> Path:
    """Write a model of arch ``gemma4``, or with ``assistant_of`` (the target's ``n_embd``) its MTP
    drafter of arch ``gemma4-assistant``, which has queries only: keys and values are the target's.
    """
    arch = "gemma4" if assistant_of is None else "gemma4-assistant"
    texts = _texts(vocab, None)
    model = _Model(path, arch, GGMLQuantizationType.Q8_0, _Random(seed, 0.0, 0))
    model.describe(texts, n_ctx=n_ctx, eos=EOS, add_bos=True, template=None)
    model.size(n_embd=n_embd, n_layer=2, n_ff=n_ff, n_head=n_head)
    add = model.writer
    add.add_head_count_kv(1)
    add.add_key_length(head)
    add.add_value_length(head)
    add.add_key_length_swa(head)
    add.add_value_length_swa(head)
    add.add_rope_dimension_count(head)
    add.add_rope_dimension_count_swa(head)
    add.add_sliding_window(window)
    add.add_sliding_window_pattern([True, False])
    add.add_shared_kv_layers(0)
    matrix = model.random.matrix
    model.ends(len(texts), n_embd, None, favour or {}, tied=assistant_of is not None)
    model.add("rope_freqs.weight", np.ones(head // 2, np.float32))
    if assistant_of is None:
        add.add_embedding_length_per_layer_input(0)
    else:
        add.add_embedding_length_out(assistant_of)
        add.add_nextn_predict_layers(2)
        model.add("nextn.pre_projection.weight", matrix(n_embd, 2 * assistant_of, 1.5))
        model.add("nextn.post_projection.weight", matrix(assistant_of, n_embd))
    for i in range(2):
        block = f"blk.{i}"
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            model.add(f"{block}.{name}.weight", np.ones(n_embd, np.float32))
        model.add(f"{block}.attn_q_norm.weight", np.full(head, 0.6, np.float32))
        model.add(f"{block}.layer_output_scale.weight", np.ones(1, np.float32))
        model.add(f"{block}.attn_q.weight", matrix(n_head * head, n_embd, 1.5))
        model.add(f"{block}.attn_output.weight", _leave_first(matrix(n_embd, n_head * head)))
        model.add(f"{block}.ffn_gate.weight", matrix(n_ff, n_embd))
        model.add(f"{block}.ffn_up.weight", matrix(n_ff, n_embd))
        model.add(f"{block}.ffn_down.weight", _leave_first(matrix(n_embd, n_ff, 1.5)))
        if assistant_of is None:
            model.add(f"{block}.attn_k_norm.weight", np.full(head, 0.6, np.float32))
            model.add(f"{block}.attn_k.weight", matrix(head, n_embd, 1.5))
            model.add(f"{block}.attn_v.weight", matrix(head, n_embd))
    return model.write()


class _Random:
    """Random tensors of one model; ``noise`` mixes in those of another seed at equal size."""

    def __init__(self, seed: int, noise: float, noise_seed: int) -> None:
        self._own = np.random.default_rng(seed)
        self._other = np.random.default_rng((seed, noise_seed))
        self._noise = noise

    def normal(self, rows: int, columns: int) -> Floats:
        own = self._own.standard_normal((rows, columns), np.float32)
        other = self._other.standard_normal((rows, columns), np.float32)
        mixed = (own + self._noise * other) / float(np.hypot(1.0, self._noise))
        return mixed.astype(np.float32)

    def matrix(self, rows: int, columns: int, gain: float = 1.0) -> Floats:
        """A matrix that turns vectors of unit elements into elements of size ``gain``."""
        return self.normal(rows, columns) * np.float32(gain / np.sqrt(columns))


class _Model:
    """One GGUF in the making: what every architecture here has in common."""

    def __init__(self, path: Path, arch: str, quant: GGMLQuantizationType, random: _Random) -> None:
        self.path = path
        self.quant = quant
        self.random = random
        self.writer = gguf.GGUFWriter(path, arch)

    def describe(
        self, texts: Sequence[bytes], *, n_ctx: int, eos: int, add_bos: bool, template: str | None
    ) -> None:
        control = [t.startswith(b"<") and t.endswith(b">") and len(t) > 2 for t in texts]
        types = [gguf.TokenType.CONTROL if c else gguf.TokenType.NORMAL for c in control]
        pairs = [t for t, c in zip(texts, control, strict=True) if not c and len(t) == 2]
        add = self.writer
        add.add_name(self.path.stem)
        add.add_context_length(n_ctx)
        add.add_file_type(int(gguf.LlamaFileType.MOSTLY_Q8_0))
        add.add_tokenizer_model("gpt2")
        add.add_tokenizer_pre("smollm")
        add.add_token_list(
            [t.decode() if c else _bpe(t) for t, c in zip(texts, control, strict=True)]
        )
        add.add_token_types(types)
        add.add_token_merges([f"{_bpe(pair[:1])} {_bpe(pair[1:])}" for pair in pairs])
        add.add_bos_token_id(BOS)
        add.add_eos_token_id(eos)
        add.add_add_bos_token(add_bos)
        if template is not None:
            add.add_chat_template(template)

    def size(self, *, n_embd: int, n_layer: int, n_ff: int, n_head: int) -> None:
        self.writer.add_embedding_length(n_embd)
        self.writer.add_block_count(n_layer)
        self.writer.add_feed_forward_length(n_ff)
        self.writer.add_head_count(n_head)
        self.writer.add_layer_norm_rms_eps(1e-5)

    def ends(
        self,
        n_vocab: int,
        n_embd: int,
        scale: float | None,
        favour: Mapping[int, float],
        *,
        tied: bool = False,
    ) -> None:
        """The embeddings of both ends, ``tied``: one for both."""
        if scale is None:
            scale = 0.65 * float(np.log(n_vocab))
        embedding = self.random.normal(n_vocab, n_embd)
        embedding[:, 0] = 1.0
        output = self.random.matrix(n_vocab, n_embd, scale)
        output[:, 0] = 0.0
        for token, bias in favour.items():
            # The last norm divides by the size of the residual stream, which is near 2 here.
            output[token, 0] = 2.0 * bias
        self.add("token_embd.weight", output if tied else embedding)
        self.add("output_norm.weight", np.ones(n_embd, np.float32))
        if not tied:
            self.add("output.weight", output)

    def add(self, name: str, tensor: Floats) -> None:
        """Add a tensor; matrices whose rows are whole blocks are quantised."""
        if tensor.ndim == 2 and tensor.shape[1] % _BLOCK == 0:
            data = gguf.quants.quantize(tensor, self.quant)
            self.writer.add_tensor(name, data, raw_dtype=self.quant)
        else:
            self.writer.add_tensor(name, tensor)

    def write(self) -> Path:
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()
        return self.path


def _leave_first(matrix: Floats) -> Floats:
    """The same matrix, not writing to hidden dimension 0."""
    matrix[0] = 0.0
    return matrix


def _texts(vocab: int, tokens: Sequence[bytes] | None) -> tuple[bytes, ...]:
    if tokens is None:
        tokens = letter_vocabulary(vocab) if vocab < 260 else byte_vocabulary(vocab)
    if len(set(tokens)) != len(tokens):
        raise ValueError("llama.cpp aborts on a vocabulary that holds a text twice")
    return tuple(tokens)


def _byte_letters() -> dict[int, str]:
    """GPT-2's printable stand-in for each byte."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [b for b in range(256) if b not in kept]
    return {b: chr(b) for b in kept} | {b: chr(256 + i) for i, b in enumerate(moved)}


_BYTE_LETTERS = _byte_letters()


def _bpe(text: bytes) -> str:
    return "".join(_BYTE_LETTERS[b] for b in text)
