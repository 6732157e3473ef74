"""Scalar types of the resources: durations and decimal numbers, strings on the wire, floats in Python.

Kubernetes API conventions forbid floats in resources, so seconds travel as Go durations ("12.5ms", "1h30m")
and rates as decimal strings ("37.5").
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

_UNIT_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_TERM = r"[0-9]+(?:\.[0-9]+)?(?:ns|us|µs|ms|s|m|h)"
DURATION_PATTERN = rf"^(?:{_TERM})+$"
QUANTITY_PATTERN = r"^-?[0-9]+(\.[0-9]+)?$"


def parse_duration(text: str) -> float:
    """Seconds of a Go duration such as "500ms" or "1h30m".

    Raises ValueError with an example when the text is none.
    """
    if not re.fullmatch(DURATION_PATTERN, text):
        raise ValueError(f'{text!r} is not a duration; write it like "500ms", "2s" or "1h30m"')
    terms = re.findall(r"([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h)", text)
    return sum(float(number) * _UNIT_S[unit] for number, unit in terms)


def format_duration(seconds: float) -> str:
    """The shortest Go duration that says `seconds` to four significant digits (whole seconds exactly)."""
    if seconds >= 1 and seconds == int(seconds):
        hours, rest = divmod(int(seconds), 3600)
        minutes, second = divmod(rest, 60)
        parts = [(hours, "h"), (minutes, "m"), (second, "s")]
        return "".join(f"{value}{unit}" for value, unit in parts if value)
    if seconds >= 1:
        return f"{_significant(seconds)}s"
    if seconds >= 1e-3:
        return f"{_significant(seconds * 1e3)}ms"
    if seconds > 0:
        return f"{_significant(seconds * 1e6)}us"
    return "0s"


def format_quantity(value: float) -> str:
    """A plain decimal with four significant digits, never an exponent."""
    return _significant(value)


def _significant(value: float) -> str:
    text = format(Decimal(f"{value:.4g}"), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _duration(value: Any) -> Any:
    return parse_duration(value) if isinstance(value, str) else value


def _quantity(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return float(Decimal(value))
    except InvalidOperation:
        raise ValueError(f'{value!r} is not a decimal number; write it like "37.5"') from None


Duration = Annotated[
    float,
    BeforeValidator(_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN, "maxLength": 32}),
]
"""Seconds in Python, a Go duration string in the resource."""

Quantity = Annotated[
    float,
    BeforeValidator(_quantity),
    PlainSerializer(format_quantity, return_type=str),
    WithJsonSchema({"type": "string", "pattern": QUANTITY_PATTERN, "maxLength": 32}),
]
"""A float in Python, a decimal string in the resource."""
