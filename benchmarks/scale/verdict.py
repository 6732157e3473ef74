"""Whether fleets keep to the bars, and how what they take grows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

MOST_CORES = 1.0
MOST_MIB = 512.0
MOST_IDLE_CALLS = 2.0
"""Of the API server, for a profile in a minute."""
STEEPEST = 1.15
"""Power of the number of profiles: 1 is linear."""

_LEAST_PROFILES = 50
"""Below these, what the operator takes without any profile is most of it."""


def verdict(fleets: Sequence[Mapping[str, Any]]) -> dict[str, bool | float | None]:
    """Of the fleets as they were measured, smallest first. `cpu_power` is the power of the number of profiles with
    which CPU grows between the last two fleets, None where there are no two that are large enough; below 1 it is less
    than linear."""
    last = fleets[-1] if fleets else {}
    large = [fleet for fleet in fleets if fleet["profiles"] >= _LEAST_PROFILES]
    power = _power(large[-2], large[-1]) if len(large) > 1 else None
    per_profile = [fleet["idle_calls_per_profile_minute"] for fleet in fleets]
    return {
        "cores_within_bar": bool(last) and last["cpu_cores"] <= MOST_CORES,
        "memory_within_bar": bool(last) and last["rss_mib"] <= MOST_MIB,
        "idle_calls_within_bar": bool(last) and max(per_profile) <= MOST_IDLE_CALLS,
        "cpu_power": power,
        "linear": None if power is None else power <= STEEPEST,
    }


def _power(small: Mapping[str, Any], large: Mapping[str, Any]) -> float | None:
    if not (small["cpu_cores"] > 0 and large["cpu_cores"] > 0):
        return None
    grown = np.log(large["cpu_cores"] / small["cpu_cores"])
    return round(float(grown / np.log(large["profiles"] / small["profiles"])), 2)
