"""The knee of one engine from production's own load, without a probe, or why it cannot be told.

The line through the levels (levels.py) has a knee wherever it lies. It is only told where production came near enough
that little is extrapolated; elsewhere the answer is a lower bound. A run's curve of the same workload is prior
knowledge: the knee of a replica in production lies near it, as far as its traffic and its hardware are alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from kneekeeper.domain.passive.history import EngineHistory
from kneekeeper.domain.passive.levels import LevelFit, StepCurve, beyond, cloud_of, fit_levels
from kneekeeper.domain.samples import Floats
from kneekeeper.domain.stats import Interval

WIDEST_INTERVAL = 1.6
"""Upper over lower end of the 90% interval of a knee that is told."""

LEAST_REACH = 0.5
"""Of the upper end: traffic has to have come so far, else more is extrapolated than was seen."""

PRIOR_SPREAD = 0.25
"""Of the logarithm of a knee: how far replicas in production differ from the run that measured their like."""

CONFLICT = 2.5
"""Standard deviations between a run's knee and production's, from which on the run is not believed."""

FEWEST_WINDOWS = 12
FULL_CACHE = 0.95
"""Share of the KV cache from which on sequences wait or are preempted."""

_KV_SPREAD = 0.10
"""How full the cache is for a number of requests varies with their contexts, and it is full for a while before it is
so on average."""
_LEAST_KV_USAGE = 0.05
_MOST_FLAT = 0.05
_Z90 = 1.6449
_DRAWS = 2000
_SEED = 20_242


class NotObserved(StrEnum):
    """Why there is no knee; each is a reason in status."""

    NO_HISTORY = "NoHistory"
    TOO_LITTLE_HISTORY = "TooLittleHistory"
    TOO_FEW_LOADS = "TooFewLoads"
    TRAFFIC_TOO_LOW = "TrafficTooLow"
    TOO_UNCERTAIN = "TooUncertain"


class Bound(StrEnum):
    """What ends the growth of throughput."""

    COMPUTE = "Compute"
    KV_CACHE = "KVCache"


@dataclass(frozen=True)
class KneePrior:
    """What a run found for the engine that this replica is like, in concurrent requests of one engine."""

    knee: float
    """Of compute alone, 4 alpha/beta: where its KV cache clips it follows from production itself."""
    spread: float = PRIOR_SPREAD
    """Standard deviation of its logarithm."""


@dataclass(frozen=True)
class PassiveKnee:
    """The answer for one engine. `knee` has its 90% interval; it is None where `not_observed` says why."""

    knee: Interval | None
    bound: Bound
    at_least: float
    """The knee lies above it: the highest load that lasted, or less where it may have been beyond the knee."""
    seen: float
    """The highest concurrency that lasted."""
    curve: StepCurve | None
    not_observed: NotObserved | None
    message: str


def passive_knee(history: EngineHistory, prior: KneePrior | None = None) -> PassiveKnee:
    """What production tells of the knee of this engine."""
    cloud = cloud_of(history)
    seen = cloud.seen
    if cloud.running.size < FEWEST_WINDOWS:
        why = f"{cloud.running.size} windows with enough tokens; {FEWEST_WINDOWS} are needed."
        return PassiveKnee(None, Bound.COMPUTE, 0.0, seen, None, NotObserved.TOO_LITTLE_HISTORY, why)
    fit = fit_levels(cloud)
    if fit is None:
        why = f"The load never left {seen:.1f} requests: one level tells no growth."
        return PassiveKnee(None, Bound.COMPUTE, 0.0, seen, None, NotObserved.TOO_FEW_LOADS, why)
    compute = _with_prior(_from_traffic(fit, seen), prior)
    cache = _kv_limit(history)
    knees, bound = _clipped(compute, cache)
    low, middle, high = (float(v) for v in np.quantile(knees, (0.05, 0.5, 0.95), method="nearest"))
    at_least = min(seen, low)
    reason, why = _doubt(seen, low, high)
    if reason is not None:
        return PassiveKnee(None, bound, at_least, seen, fit.curve, reason, why)
    message = f"Knee at {middle:.0f} ({low:.0f} to {high:.0f}); traffic reached {seen:.0f}."
    return PassiveKnee(Interval(middle, low, high), bound, at_least, seen, fit.curve, None, message)


@dataclass(frozen=True)
class _LogKnee:
    """A normal distribution of the knee's logarithm, and the share of its mass that lies at infinity."""

    mean: float
    spread: float
    flat: float = 0.0


def _from_traffic(fit: LevelFit, seen: float) -> _LogKnee:
    draws = beyond(fit.drawn_knees, seen, np.random.default_rng(_SEED))
    finite = np.log(draws[np.isfinite(draws)])
    flat = 1 - finite.size / draws.size
    if not finite.size:
        return _LogKnee(math.inf, math.inf, 1.0)
    low, high = np.quantile(finite, (0.05, 0.95))
    centre = math.log(fit.curve.knee) if math.isfinite(fit.curve.knee) else float(np.median(finite))
    return _LogKnee(centre, max(1e-3, float(high - low) / (2 * _Z90)), flat)


def _with_prior(seen: _LogKnee, prior: KneePrior | None) -> _LogKnee:
    """Both weighed by their precision; a run that production contradicts is left out."""
    if prior is None or prior.knee <= 0 or seen.flat > _MOST_FLAT:
        return seen
    known = math.log(prior.knee)
    if abs(known - seen.mean) > CONFLICT * math.hypot(seen.spread, prior.spread):
        return seen
    here, there = 1 / seen.spread**2, 1 / prior.spread**2
    return _LogKnee((here * seen.mean + there * known) / (here + there), (here + there) ** -0.5, seen.flat)


def _kv_limit(history: EngineHistory) -> float | None:
    """Requests that fill the KV cache, from the share that each takes at the higher loads; None where it is empty."""
    known = (history.kv_usage >= _LEAST_KV_USAGE) & (history.running > 0)
    if not known.any():
        return None
    used, running = history.kv_usage[known], history.running[known]
    high = running >= np.median(running)
    return FULL_CACHE * float(running[high].sum() / used[high].sum())


def _clipped(compute: _LogKnee, cache: float | None) -> tuple[Floats, Bound]:
    """Draws of the smaller of both."""
    rng = np.random.default_rng(_SEED)
    normal = rng.normal(0.0, 1.0, (2, _DRAWS))
    knees = np.full(_DRAWS, np.inf)
    if math.isfinite(compute.mean):
        knees = np.exp(compute.mean + compute.spread * normal[0])
        knees[rng.random(_DRAWS) < compute.flat] = np.inf
    if cache is None:
        return knees, Bound.COMPUTE
    full = cache * np.exp(_KV_SPREAD * normal[1])
    bound = Bound.KV_CACHE if np.mean(full < knees) > 0.5 else Bound.COMPUTE
    return np.minimum(knees, full), bound


def _doubt(seen: float, low: float, high: float) -> tuple[NotObserved | None, str]:
    if not math.isfinite(high) or seen < LEAST_REACH * high:
        return (
            NotObserved.TRAFFIC_TOO_LOW,
            f"Traffic reached {seen:.1f} requests at a time, too few to tell the knee: it lies above.",
        )
    if high > WIDEST_INTERVAL * low:
        return NotObserved.TOO_UNCERTAIN, f"The knee lies between {low:.0f} and {high:.0f}, too wide to name one."
    return None, ""
