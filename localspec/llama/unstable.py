"""llama-ext.h: calls that llama.cpp does not promise to keep, bound under every known mangling.

Each is looked up when first used, so that a build without it only lacks the families that need it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from localspec.errors import DrafterError
from localspec.llama.library import bind, c_bool, c_i32, c_p, c_u32


class MapByValue(ctypes.Structure):
    """A std::map as a result. It is returned through a hidden pointer, and so is this: in the
    largest of the layouts that C++ libraries give it."""

    _fields_ = [("words", ctypes.c_uint64 * 6)]


# name: (Itanium mangling, MSVC mangling, result, arguments)
_CALLS: dict[str, tuple[str, str, Any, tuple[Any, ...]]] = {
    "llama_set_embeddings_nextn": (
        "_Z26llama_set_embeddings_nextnP13llama_contextbb",
        "?llama_set_embeddings_nextn@@YAXPEAUllama_context@@_N1@Z",
        None,
        (c_p, c_bool, c_bool),
    ),
    "llama_set_nextn_layer_offset": (
        "_Z28llama_set_nextn_layer_offsetP13llama_contexti",
        "?llama_set_nextn_layer_offset@@YAXPEAUllama_context@@H@Z",
        None,
        (c_p, c_i32),
    ),
    "llama_get_embeddings_nextn": (
        "_Z26llama_get_embeddings_nextnP13llama_context",
        "?llama_get_embeddings_nextn@@YAPEAMPEAUllama_context@@@Z",
        c_p,
        (c_p,),
    ),
    "llama_get_embeddings_nextn_ith": (
        "_Z30llama_get_embeddings_nextn_ithP13llama_contexti",
        "?llama_get_embeddings_nextn_ith@@YAPEAMPEAUllama_context@@H@Z",
        c_p,
        (c_p, c_i32),
    ),
    "llama_get_ctx_other": (
        "_Z19llama_get_ctx_otherP13llama_context",
        "?llama_get_ctx_other@@YAPEAUllama_context@@PEAU1@@Z",
        c_p,
        (c_p,),
    ),
    "llama_set_embeddings_layer_inp": (
        "_Z30llama_set_embeddings_layer_inpP13llama_contextjb",
        "?llama_set_embeddings_layer_inp@@YAXPEAUllama_context@@I_N@Z",
        None,
        (c_p, c_u32, c_bool),
    ),
    "llama_get_embeddings_layer_inp": (
        "_Z30llama_get_embeddings_layer_inpP13llama_contextj",
        "?llama_get_embeddings_layer_inp@@YAPEAMPEAUllama_context@@I@Z",
        c_p,
        (c_p, c_u32),
    ),
    "llama_model_target_layer_ids": (
        "_Z28llama_model_target_layer_idsPK11llama_model",
        "?llama_model_target_layer_ids@@YAPEBHPEBUllama_model@@@Z",
        ctypes.POINTER(c_i32),
        (c_p,),
    ),
    "llama_model_target_layer_ids_n": (
        "_Z30llama_model_target_layer_ids_nPK11llama_model",
        "?llama_model_target_layer_ids_n@@YAIPEBUllama_model@@@Z",
        c_u32,
        (c_p,),
    ),
    "llama_model_dflash_selector_top_k": (
        "_Z33llama_model_dflash_selector_top_kPK11llama_model",
        "?llama_model_dflash_selector_top_k@@YAHPEBUllama_model@@@Z",
        c_i32,
        (c_p,),
    ),
    "llama_get_memory_breakdown": (
        "_Z26llama_get_memory_breakdownPK13llama_context",
        "?llama_get_memory_breakdown@@YA?AV?$map@PEAUggml_backend_buffer_type@@"
        "Ullama_memory_breakdown_data@@U?$less@PEAUggml_backend_buffer_type@@@std@@V?$allocator@"
        "U?$pair@QEAUggml_backend_buffer_type@@Ullama_memory_breakdown_data@@@std@@@4@@std@@"
        "PEBUllama_context@@@Z",
        MapByValue,
        (c_p,),
    ),
}


@cache
def call(name: str) -> Callable[..., Any]:
    """The bound function. Raises DrafterError when this build of llama.cpp lacks it."""
    itanium, msvc, result, arguments = _CALLS[name]
    try:
        return bind((name, itanium, msvc), result, *arguments)
    except AttributeError:
        raise DrafterError(
            f"This build of llama.cpp lacks {name}, which the drafter needs.",
            "Reinstall llama-cpp-python, or choose ngram or a draft model.",
        ) from None


def missing() -> tuple[str, ...]:
    """The calls that this build lacks (for `doctor`)."""
    absent = []
    for name in _CALLS:
        try:
            call(name)
        except DrafterError:
            absent.append(name)
    return tuple(absent)
