"""What the pinned llama.cpp can do with which architecture, known before a file is loaded.

Read from the sources inside llama-cpp-python 0.3.36 (src/llama-arch.cpp, src/models/*.cpp); to be
read again with each new version of it. llama.cpp has no call that tells these, and where one of
them is got wrong it aborts the process.
"""

from __future__ import annotations

KNOWN = frozenset(
    "afmoe apertus arcee arctic arwkv7 baichuan bailingmoe bailingmoe2 bailingmoe3 bert "
    "bitnet bloom chameleon chatglm clip codeshell cogvlm cohere2 cohere2moe command-r dbrx "
    "deci deepseek deepseek2 deepseek2-ocr deepseek32 deepseek4 dflash dots1 dots3note "
    "dream eagle3 ernie4_5 ernie4_5-moe eurobert exaone exaone-moe exaone4 falcon falcon-h1 "
    "gemma gemma-embedding gemma2 gemma3 gemma3n gemma4 gemma4-assistant glm-dsa glm4 "
    "glm4moe glm5-next gpt-oss gpt2 gptj gptneox granite granite_swa granitehybrid "
    "granitemoe graniteswitch grok grovemoe hrm_text hunyuan-dense hunyuan-moe hunyuan_vl "
    "hy_v3 hy_v4 internlm2 jais jais2 jamba jina-bert-v2 jina-bert-v3 kimi-k3 kimi-linear "
    "laguna lfm2 lfm2moe llada llada-moe llama llama-embed llama4 maincoder mamba mamba2 "
    "maple mellum mimo2 minicpm minicpm3 minimax-01 minimax-m2 minimax-m3 mistral3 mistral4 "
    "modern-bert mpt muse-glimmer nanbeige nemotron nemotron_h nemotron_h_moe neo-bert "
    "nomic-bert nomic-bert-moe olmo olmo2 olmoe openelm orion paddleocr pangu-embedded phi2 "
    "phi3 phimoe plamo plamo2 plamo3 plm pockettts qwen qwen2 qwen2moe qwen2vl qwen3 qwen35 "
    "qwen35moe qwen3moe qwen3next qwen3tts qwen3vl qwen3vlmoe qwen4exp refact rnd1 rwkv6 "
    "rwkv6qwen2 rwkv7 seed_oss smallthinker smollm3 spark2_5 stablelm starcoder starcoder2 "
    "step35 t5 t5encoder talkie wavtokenizer-dec xverse".split()
)
"""Every name that general.architecture may have (LLM_ARCH_NAMES)."""

TAPPABLE = frozenset(
    "bailingmoe3 deepseek4 gemma4 gpt-oss hunyuan-dense hunyuan_vl lfm2 lfm2moe llama mimo2 "
    "minimax-01 minimax-m2 muse-glimmer nanbeige nemotron_h nemotron_h_moe qwen3 qwen35 qwen35moe "
    "qwen3moe qwen3next qwen4exp".split()
)
"""Their graphs mark the layers' inputs (t_layer_inp), which EAGLE-3 and DFlash read. On any other a
tap aborts the process at the next decode: "layer input tensor is null"."""

LAST_TAPPABLE = frozenset("deepseek4 mimo2 nemotron_h nemotron_h_moe".split())
"""Their graphs mark what leaves the last layer too, as the input of layer n_layer (DFlash)."""

LAST_HIDDEN = frozenset(
    "bailingmoe3 gemma4 gpt-oss mimo2 nemotron_h nemotron_h_moe qwen35 qwen35moe qwen3next".split()
)
"""Of the TAPPABLE, those whose last hidden state can be kept too (t_h_nextn), as wide as the model:
what EAGLE-3 means by layer n_layer. Others leave that buffer as it was, without a word."""

MTP = frozenset(
    "bailingmoe3 cohere2moe deepseek2 deepseek32 deepseek4 glm-dsa glm4moe hy_v3 mimo2 "
    "nemotron_h_moe qwen35 qwen35moe qwen3next step35".split()
)
"""They have a graph of their MTP layers (LLM_GRAPH_TYPE_DECODER_MTP); others ignore such layers."""

MTP_CHAINED = frozenset({"hy_v3", "mimo2", "step35"})
"""Those of them that run several MTP layers; the others abort when a file has more than one."""

MTP_OUTPUT_ROWS = frozenset(
    "deepseek4 gemma4-assistant mimo2 nemotron_h_moe qwen3next step35".split()
)
"""Their MTP graphs keep the hidden states of output rows only. The others keep every token's; a tap
of output rows then gives the *first* rows of the batch, whichever rows are outputs."""

HIDDEN = MTP | frozenset(
    "dflash eagle3 gemma4 gemma4-assistant glm5-next gpt-oss nemotron_h".split()
)
"""Their graphs mark the last hidden state (t_h_nextn); on any other a tap of it gives whatever lies
in the buffer, without an error."""

RECURRENT = frozenset(
    "arwkv7 bailingmoe3 deepseek4 falcon-h1 glm5-next granitehybrid jamba kimi-k3 kimi-linear lfm2 "
    "lfm2moe mamba mamba2 minimax-01 nemotron_h nemotron_h_moe plamo2 qwen35 qwen35moe qwen3next "
    "qwen4exp rwkv6 rwkv6qwen2 rwkv7".split()
)
"""Some or all of their memory is a recurrent state (llm_arch_is_recurrent, llm_arch_is_hybrid)."""

KEEPS_STATES = frozenset(
    "bailingmoe3 deepseek4 glm5-next kimi-k3 lfm2 lfm2moe nemotron_h nemotron_h_moe qwen35 "
    "qwen35moe qwen4exp".split()
)
"""Of the RECURRENT, those that can keep earlier states to go back to
(llm_arch_supports_rs_rollback); for others a context's ``n_rs_seq`` is 0 whatever was asked."""

RESPELLED = {"gemma4_assistant": "gemma4-assistant"}
"""Spellings of other converters, and the ones that llama.cpp knows."""
