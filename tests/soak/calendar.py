"""What happens in the weeks: drawn from a seed, each kind of event at its own rate and at least once. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

DAY_S = 86_400.0
HOUR_S = 3600.0
_QUIET_S = 2 * HOUR_S
"""At the beginning, so that first runs are under way, and at the end."""


class What(StrEnum):
    """One kind of event."""

    IMAGE = "image"
    """The workload gets another image, whose engine has another speed."""
    MODEL = "model"
    """It serves another model."""
    LENGTHS = "lengths"
    """The requests of its users become longer or shorter."""
    REPLICAS = "replicas"
    """Somebody scales it."""
    TARGETS = "targets"
    """Users are promised something else."""
    SUSPEND = "suspend"
    """The profile is suspended for some hours."""
    DELETE = "delete"
    """The profile is deleted, and made anew an hour later."""
    CRASH = "crash"
    """The next rollout of a setting crashes."""
    EVICT = "evict"
    """A clone that runs is evicted."""
    METRICS = "metrics"
    """The metrics of a workload fail for a while, in one way or another."""
    API = "api"
    """The API server has faults for a while; of all profiles."""
    KILL = "kill"
    """The operator is killed in the middle of a write."""
    RESTART = "restart"
    """The operator is replaced by another."""


PER_PROFILE_AND_DAY = {
    What.IMAGE: 0.18,
    What.MODEL: 0.06,
    What.LENGTHS: 0.08,
    What.REPLICAS: 0.25,
    What.TARGETS: 0.04,
    What.SUSPEND: 0.05,
    What.DELETE: 0.03,
    What.CRASH: 0.06,
    What.EVICT: 0.1,
    What.METRICS: 0.4,
}
PER_DAY = {What.API: 2.0, What.KILL: 4.0, What.RESTART: 1.0}


@dataclass(frozen=True)
class Event:
    """`profile` is None for what concerns all; `draw` from 0 to 1 says how much, or which way."""

    at_s: float
    what: What
    profile: int | None
    draw: float


def calendar(days: float, profiles: int, seed: int) -> list[Event]:
    """By time. The same arguments, the same weeks."""
    chance = random.Random(seed)
    events: list[Event] = []
    for what, rate in (PER_PROFILE_AND_DAY | PER_DAY).items():
        of_all = what in PER_DAY
        for _ in range(max(1, round(rate * days * (1 if of_all else profiles)))):
            at_s = chance.uniform(_QUIET_S, max(_QUIET_S + HOUR_S, days * DAY_S - _QUIET_S))
            profile = None if of_all else chance.randrange(profiles)
            events.append(Event(at_s, what, profile, chance.random()))
    return sorted(events, key=lambda event: event.at_s)
