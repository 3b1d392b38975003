"""The most that a person may ask for."""

LONGEST_DRAFT = 512
"""Tokens drafted a step."""
MOST_THREADS = 512
"""llama.cpp's own bound (GGML_MAX_N_THREADS)."""
