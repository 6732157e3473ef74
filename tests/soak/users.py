"""How many requests users send at which hour, and how long these are. Pure functions of time."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

from tests.soak.calendar import DAY_S, HOUR_S

_BUSIEST_HOUR = 15
_NIGHT = 0.35
"""Of the busiest hour's rate."""
_WEEKEND = 0.6
_WOBBLE = 0.1
_WOBBLE_S = 900.0


SIGMA = 0.5
"""Of the logarithm of lengths: the P99 is three times the mean, or so."""

_ALIKE = 0.1


@dataclass(frozen=True)
class Lengths:
    """Mean tokens of a request; both are log-normal, with SIGMA of the logarithm."""

    prompt: int
    output: int

    def times(self, factor: float) -> Lengths:
        return Lengths(round(self.prompt * factor), round(self.output * factor))

    def is_like(self, other: Lengths) -> bool:
        """Whether an engine has hardly more or less to do for them."""
        pairs = ((self.prompt, other.prompt), (self.output, other.output))
        return all(abs(one - two) <= _ALIKE * two for one, two in pairs)


@dataclass(frozen=True)
class Users:
    """Of one workload, all replicas together; second 0 is a Monday's midnight."""

    name: str
    busiest_per_s: float

    def rate(self, at_s: float) -> float:
        """Requests a second."""
        hour = at_s % DAY_S / HOUR_S
        day = 0.5 + 0.5 * math.cos(2 * math.pi * (hour - _BUSIEST_HOUR) / 24)
        weekend = _WEEKEND if int(at_s // DAY_S) % 7 >= 5 else 1.0
        step = hashlib.sha256(f"{self.name} {int(at_s // _WOBBLE_S)}".encode()).digest()[0] / 255
        return self.busiest_per_s * weekend * (_NIGHT + (1 - _NIGHT) * day) * (1 + _WOBBLE * (2 * step - 1))
