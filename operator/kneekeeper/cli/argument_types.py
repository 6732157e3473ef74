"""Types of arguments, for argparse; quick to import, since every command's parser needs them.

Each says of a value that it does not take what it takes, with an example; argparse puts the option's name before that
and ends with exit code 2.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

MOST = 1_000_000
"""Of whatever has no limit of its own."""

MOST_USERS = 65_536
"""As many as one stage has."""


def duration(text: str) -> float:
    """Seconds of a duration above 0, as in Kubernetes."""
    from kneekeeper.api.quantities import parse_duration

    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f'{text!r} is not above 0; write it like "500ms", "2s" or "1h30m"')
    return seconds


def positive(example: str, most: float = MOST) -> Callable[[str], float]:
    """A number above 0 and at most `most`."""

    def number(text: str) -> float:
        value = _number(text)
        if not 0 < value <= most:
            raise argparse.ArgumentTypeError(
                f"{text!r} is no number above 0 and at most {most:.0f}; write it like {example}"
            )
        return value

    return number


def between(least: float, most: float, example: str) -> Callable[[str], float]:
    """A number from `least` to `most`."""

    def number(text: str) -> float:
        value = _number(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(
                f"{text!r} is no number from {least:.0f} to {most:.0f}; write it like {example}"
            )
        return value

    return number


def whole(example: str, most: int = MOST, least: int = 1) -> Callable[[str], int]:
    """A whole number from `least` to `most`."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(
                f"{text!r} is no whole number from {least} to {most}; write it like {example}"
            )
        return value

    return number


def _number(text: str) -> float:
    """NaN, which lies in no range, where it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


sequences = whole("64", 65_536)
"""As vLLM's --max-num-seqs."""

batched_tokens = whole("2048", 1_048_576)
"""As vLLM's --max-num-batched-tokens."""
