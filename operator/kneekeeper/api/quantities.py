"""Scalar types of the resources: durations and decimal numbers, strings on the wire, floats in Python.

Kubernetes API conventions forbid floats in resources, so seconds travel as Go durations ("12.5ms", "1h30m")
and rates as decimal strings ("37.5").
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

_UNIT_NS = {"h": 3600 * 10**9, "m": 60 * 10**9, "s": 10**9, "ms": 10**6, "us": 1000, "µs": 1000, "ns": 1}
_LONGEST_NS = 2**63 - 1  # Go counts nanoseconds in an int64; the API server refuses what is longer
_TERM = r"[0-9]+(?:\.[0-9]+)?(?:ns|us|µs|ms|s|m|h)"
DURATION_PATTERN = rf"^(?:{_TERM})+$"
QUANTITY_PATTERN = r"^-?[0-9]+(\.[0-9]+)?$"


# A status has hundreds of them, which hardly change from look to look.
_remembered = lru_cache(maxsize=4096)


@_remembered
def parse_duration(text: str) -> float:
    """Seconds of a Go duration such as "500ms" or "1h30m", in whole nanoseconds as Go counts them.

    Raises ValueError with an example when the text is none, or says more than Go can hold (292 years).
    """
    if not re.fullmatch(DURATION_PATTERN, text):
        raise ValueError(f'{text!r} is not a duration; write it like "500ms", "2s" or "1h30m"')
    terms = re.findall(r"([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h)", text)
    nanoseconds = sum(int(Decimal(number) * _UNIT_NS[unit]) for number, unit in terms)
    if nanoseconds > _LONGEST_NS:
        raise ValueError(f"{text!r} is longer than 292 years")
    return nanoseconds / 1e9


@_remembered
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


def counted(number: int, what: str) -> str:
    """`1 replica`, `2 replicas`: the noun in the number that it has; it takes its plural by an s."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


@_remembered
def _significant(value: float) -> str:
    text = format(Decimal(f"{value + 0.0:.4g}"), "f")  # 0.0 and -0.0 are remembered as one
    return text.rstrip("0").rstrip(".") if "." in text else text


def _duration(value: Any) -> Any:
    return parse_duration(value) if isinstance(value, str) else value


def _quantity(value: Any) -> Any:
    return _parse_quantity(value) if isinstance(value, str) else value


@_remembered
def _parse_quantity(text: str) -> float:
    if not re.fullmatch(QUANTITY_PATTERN, text):
        raise ValueError(f'{text!r} is not a decimal number; write it like "37.5"')
    return float(text)


_Finite = Annotated[float, Field(allow_inf_nan=False)]
"""Neither infinity nor NaN can be written into a resource."""

Duration = Annotated[
    _Finite,
    BeforeValidator(_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN, "maxLength": 32}),
]
"""Seconds in Python, a Go duration string in the resource."""

Quantity = Annotated[
    _Finite,
    BeforeValidator(_quantity),
    PlainSerializer(format_quantity, return_type=str),
    WithJsonSchema({"type": "string", "pattern": QUANTITY_PATTERN, "maxLength": 32}),
]
"""A float in Python, a decimal string in the resource."""
