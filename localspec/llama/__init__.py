"""Owners of llama.cpp's objects over llama-cpp-python's low-level API; nothing else imports it.

Import this package before numpy: on a CUDA build, loading a model after numpy was imported first
crashed (ENGINE_NOTES, "Later findings").
"""

from localspec.llama.library import build_info, log_capture  # isort: skip  (before numpy)

from localspec.llama.context import Context, ContextParams, DecodeAborted, Rows
from localspec.llama.model import Model, ModelParams
from localspec.llama.vocab import Vocab

__all__ = [
    "Context",
    "ContextParams",
    "DecodeAborted",
    "Model",
    "ModelParams",
    "Rows",
    "Vocab",
    "build_info",
    "log_capture",
]
