"""Kubernetes quantities such as "8", "2k" or "16Gi", as far as whole numbers are concerned."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

_SUFFIXES = {
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
    "Ei": 2**60,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "E": 10**18,
}


def whole_number(quantity: str | int | float) -> int:
    """The quantity rounded down to a whole number.

    Raises ValueError when it is none, or is written with a suffix below one ("m", "u", "n").
    """
    text = str(quantity)
    for suffix, factor in _SUFFIXES.items():
        if text.endswith(suffix):
            return int(_decimal(text.removesuffix(suffix)) * factor)
    return int(_decimal(text))


def _decimal(text: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite():
        raise ValueError(f"{text!r} is not a whole Kubernetes quantity")
    return value
