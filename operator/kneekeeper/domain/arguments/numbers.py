"""vLLM's spellings of integers on the command line."""

from __future__ import annotations

import re

_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SUFFIXED = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")


def parse_integer(text: str) -> int:
    """A plain integer as Python reads it: blanks around it, a sign and `_` between digits are allowed.

    Raises ValueError.
    """
    return int(text)


def parse_human_integer(text: str) -> int:
    """An integer that may have a suffix: 8k is 8000, 8K is 8192, 25.6k is 25600; 1.5K is an error.

    Holds for --max-num-batched-tokens and --max-model-len since vLLM 0.8.5, never for --max-num-seqs.
    Raises ValueError.
    """
    found = _SUFFIXED.fullmatch(text.strip())
    if found is None:
        return int(text)
    number, suffix = found.groups()
    if suffix in _DECIMAL:
        return int(float(number) * _DECIMAL[suffix])
    return int(number) * _BINARY[suffix]


def parse_model_length(text: str) -> int | None:
    """A model length in tokens; None where vLLM derives it from the model (`auto`, -1, None, empty).

    Raises ValueError.
    """
    if text.strip().lower() in ("auto", "-1") or text in ("", "None"):
        return None
    return parse_human_integer(text)
