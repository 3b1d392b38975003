"""The least a program can do: decode given ids with llama.cpp, over the bare binding.

No sampling, no logits read, no text, no records. It is the yardstick of plain_decode.py (time) and,
run as a program, of memory.py (memory).
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from localspec.llama.library import L, bind

_decode = bind("llama_decode", ctypes.c_int32, ctypes.c_void_p, L.llama_batch)


def decode_ids(context: Any, prompt: Sequence[int], generated: Sequence[int]) -> float:
    """Decode ``prompt`` in one batch, then ``generated`` one by one except the last, which nothing
    follows; tokens per second of the latter. ``context`` is a llama_context with room for both.
    """
    pointer = ctypes.c_void_p(context)
    memory = L.llama_get_memory(context)
    n = len(prompt)
    batch = L.llama_batch_init(n, 0, 1)
    token, position, output = batch.token, batch.pos, batch.logits
    try:
        L.llama_memory_clear(memory, True)
        batch.n_tokens = n
        for i, value in enumerate(prompt):
            token[i], position[i], output[i] = value, i, i == n - 1
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
        _check(_decode(pointer, batch))
        L.llama_synchronize(context)
        batch.n_tokens, output[0] = 1, 1
        gc.disable()  # as the loop does
        began = perf_counter()
        for value in generated[:-1]:
            token[0] = value
            position[0] = n
            n += 1
            status = _decode(pointer, batch)
            if status:
                break
        L.llama_synchronize(context)
        elapsed = perf_counter() - began
        _check(status)
    finally:
        gc.enable()
        L.llama_batch_free(batch)
    return (len(generated) - 1) / elapsed


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"llama_decode returned {status}")


def _main() -> None:
    """Decode ids with the context settings given as JSON on stdin, having imported all that the
    engine imports; print the greatest resident memory of this process, in kB."""
    argparse.ArgumentParser(description=_main.__doc__).parse_args()
    import localspec.engine.host  # noqa: F401

    wanted = json.load(sys.stdin)
    model = L.llama_model_load_from_file(wanted["model"].encode(), L.llama_model_default_params())
    params = L.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = (
        wanted["settings"][key] for key in ("n_ctx", "n_batch", "n_ubatch")
    )
    params.n_outputs_max = wanted["settings"]["n_outputs_max"]
    params.n_threads = params.n_threads_batch = wanted["settings"]["threads"]
    params.flash_attn_type = 1 if wanted["settings"]["flash_attn"] == "on" else 0
    params.no_perf = True
    context = L.llama_init_from_model(model, params)
    if not context:
        raise RuntimeError("llama.cpp made no context")
    decode_ids(context, wanted["prompt"], wanted["generated"])
    print(peak_memory("self"))


def peak_memory(pid: int | str) -> int:
    """VmHWM of a process, in kB (Linux)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise RuntimeError(f"no VmHWM in /proc/{pid}/status")


if __name__ == "__main__":
    _main()
