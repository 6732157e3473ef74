"""How unevenly requests reach the replicas, and how many replicas a peak needs for that.

N replicas together carry less than N times what one carries, since the one that gets most is full first. With shares
s_i of the requests and shares c_i of the capacity, that one gets max(s_i / c_i) times its part. Of the busiest
windows, since at night it does not matter, the median.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kneekeeper.api.quantities import counted
from kneekeeper.domain.passive.history import EngineHistory
from kneekeeper.domain.samples import Floats

BUSIEST_SHARE = 0.1
FEWEST_WINDOWS = 6
HEADROOM = 0.1
"""Scaling in leaves so much above the peak, that the next one does not scale out again."""


@dataclass(frozen=True)
class Fleet:
    """All replicas together over the time that was seen. Rates in requests/s."""

    replicas: int
    peak_per_s: float
    """The busiest window."""
    imbalance: float
    """How many times its part the replica that got most had, in the busiest windows; 1 is even."""
    capacity_per_s: float
    """Of all replicas as the router loads them."""
    needed: int
    """Replicas for the peak, as the router loads them."""

    @property
    def advice(self) -> str:
        """For people; names a number where another one is better."""
        carried = (
            f"The peak was {self.peak_per_s:.3g} requests/s; {counted(self.replicas, 'replica')} can carry "
            f"{self.capacity_per_s:.3g} as the router loads them, the fullest with {self.imbalance:.2f} times its part"
        )
        if self.needed == self.replicas:
            return f"{carried}. That fits."
        return f"{carried}: {counted(self.needed, 'replica')} {'is' if self.needed == 1 else 'are'} needed."


def fleet_of(engines: Sequence[EngineHistory], capacities_per_s: Mapping[str, float]) -> Fleet | None:
    """`capacities_per_s` by pod; pods without one count as the mean of the others. None where little is known."""
    pods = sorted({engine.pod for engine in engines})
    known = [capacities_per_s[pod] for pod in pods if capacities_per_s.get(pod, 0.0) > 0]
    if not known:
        return None
    mean = float(np.mean(known))
    capacity = np.array([capacities_per_s.get(pod) or mean for pod in pods])
    rates = _rates(engines, pods)
    total = rates.sum(axis=0)
    if total.size < FEWEST_WINDOWS or not total.max() > 0:
        return None
    busiest = np.argsort(total)[-max(3, round(BUSIEST_SHARE * total.size)) :]
    parts = rates[:, busiest] / total[busiest] / (capacity / capacity.sum())[:, np.newaxis]
    imbalance = max(1.0, float(np.median(parts.max(axis=0))))
    peak = float(total.max())
    return Fleet(
        replicas=len(pods),
        peak_per_s=peak,
        imbalance=imbalance,
        capacity_per_s=float(capacity.sum()) / imbalance,
        needed=_needed(peak, imbalance, mean, len(pods)),
    )


def _needed(peak_per_s: float, imbalance: float, capacity_per_s: float, replicas: int) -> int:
    """Fewer than there are only where the peak fits with headroom. One replica alone has no imbalance."""

    def least(peak: float) -> int:
        alone = math.ceil(peak / capacity_per_s)
        return max(1, alone if alone <= 1 else math.ceil(peak * imbalance / capacity_per_s))

    needed = least(peak_per_s)
    return needed if needed >= replicas else min(replicas, least((1 + HEADROOM) * peak_per_s))


def _rates(engines: Sequence[EngineHistory], pods: Sequence[str]) -> Floats:
    """Requests/s of each pod in each window; a pod that was not there had none."""
    times = np.unique(np.concatenate([engine.at_s for engine in engines]))
    rates = np.zeros((len(pods), times.size))
    for engine in engines:
        rates[pods.index(engine.pod), np.searchsorted(times, engine.at_s)] += np.nan_to_num(engine.requests_per_s)
    return rates
