"""Whether a replica stands out from its peers: at the same load its steps take longer, always or at times.

Peers are replicas of one workload with the same GPU product. What a step takes at a load is, for each level of load,
the median of all their windows, so that an outlier among three hardly moves it. A replica is compared window by
window with that, and by blocks of an hour, since windows next to each other are alike.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from kneekeeper.domain.passive.history import EngineHistory
from kneekeeper.domain.passive.levels import BLOCKS, LEVELS_PER_OCTAVE, Cloud, cloud_of
from kneekeeper.domain.samples import Floats

LEAST_PEERS = 3
"""Of two that differ nobody can say which is the odd one."""

SLOW_BY = 0.10
"""Longer steps than the peers' by so much, with 95% confidence. Noise of identical GPUs is a few percent."""

UNSTEADY_BY = 0.20
"""An hour that is slower than the replica's own usual speed by so much is a slow one."""

LEAST_SLOW_SHARE, MOST_SLOW_SHARE = 0.08, 0.5
"""Of the hours: fewer are chance, and when more are, the replica is slow as a whole."""

OTHER_LENGTHS = 0.25
"""A router that keeps sessions together may send a replica longer requests, which take longer."""

FEWEST_WINDOWS = 12
_Z95 = 1.6449
_LEAST_DEVIATION = 0.02


class Outlier(StrEnum):
    """How a replica differs; each is a reason in status."""

    OTHER_PRODUCT = "OtherProduct"
    SLOW = "Slow"
    SLOW_AT_TIMES = "SlowAtTimes"
    OTHER_REQUESTS = "OtherRequests"
    UNEVEN_RANKS = "UnevenRanks"


@dataclass(frozen=True)
class Peer:
    """One replica, its engines, and the GPU product of its node ("" where that is not known)."""

    pod: str
    gpu_product: str
    engines: tuple[EngineHistory, ...]


@dataclass(frozen=True)
class Comparison:
    """One replica beside its peers."""

    pod: str
    slowness: float | None
    """Duration of a step over that of the peers at the same load; None where there are too few peers or windows."""
    outlier: Outlier | None
    message: str


def compare(peers: Sequence[Peer]) -> tuple[Comparison, ...]:
    """Every replica, in the order given."""
    products = Counter(peer.gpu_product for peer in peers if peer.gpu_product)
    most = products.most_common(1)[0][0] if products else ""
    speeds = {name: _speeds(engines) for name, engines in _by_product(peers).items()}
    return tuple(_of_one(peer, most, speeds[peer.gpu_product]) for peer in peers)


@dataclass(frozen=True, eq=False)
class _Speed:
    """One engine against the engines of its product."""

    history: EngineHistory
    slowness: float
    certain: float
    """The slowness less its error of 95%."""
    hours: Floats
    """Slowness of each hour over that of the whole time."""


def _by_product(peers: Sequence[Peer]) -> dict[str, list[EngineHistory]]:
    found: dict[str, list[EngineHistory]] = {}
    for peer in peers:
        found.setdefault(peer.gpu_product, []).extend(peer.engines)
    return found


def _speeds(engines: Sequence[EngineHistory]) -> dict[tuple[str, str], _Speed]:
    """By pod and rank; none where there are too few to compare."""
    clouds = [(engine, cloud_of(engine)) for engine in engines]
    known = [(engine, cloud) for engine, cloud in clouds if cloud.running.size >= FEWEST_WINDOWS]
    if len(known) < LEAST_PEERS:
        return {}
    usual = _usual([cloud for _, cloud in known])
    return {
        (engine.pod, engine.rank): speed
        for engine, cloud in known
        if usual is not None and (speed := _speed(engine, cloud, usual)) is not None
    }


@dataclass(frozen=True, eq=False)
class _Usual:
    """What a step takes at each load, between the loads at which enough peers were seen."""

    log_running: Floats
    log_step_s: Floats

    def at(self, log_running: Floats) -> Floats:
        """NaN where too few peers were."""
        inside = np.interp(log_running, self.log_running, self.log_step_s)
        half = math.log(2) / LEVELS_PER_OCTAVE
        known = (log_running >= self.log_running[0] - half) & (log_running <= self.log_running[-1] + half)
        return np.where(known, inside, np.nan)


def _usual(clouds: Sequence[Cloud]) -> _Usual | None:
    """The median of all engines' medians, level by level; None where no level has enough engines."""
    medians: dict[int, list[tuple[float, float]]] = {}
    for cloud in clouds:
        running, step_s = np.log(np.maximum(cloud.running, 1e-3)), np.log(cloud.step_s)
        level = np.floor(LEVELS_PER_OCTAVE * running / math.log(2)).astype(int)
        for each in np.unique(level):
            here = level == each
            found = (float(np.median(running[here])), float(np.median(step_s[here])))
            medians.setdefault(int(each), []).append(found)
    levels = [np.median(np.array(found), axis=0) for _, found in sorted(medians.items()) if len(found) >= LEAST_PEERS]
    if not levels:
        return None
    return _Usual(np.array([level[0] for level in levels]), np.array([level[1] for level in levels]))


def _speed(engine: EngineHistory, cloud: Cloud, usual: _Usual) -> _Speed | None:
    ratios = np.log(cloud.step_s) - usual.at(np.log(np.maximum(cloud.running, 1e-3)))
    ratios = ratios[~np.isnan(ratios)]
    if ratios.size < FEWEST_WINDOWS:
        return None
    parts = np.array_split(ratios, min(BLOCKS, ratios.size // 2))
    hours = np.array([float(np.median(part)) for part in parts])
    middle = float(np.median(ratios))
    error = max(_LEAST_DEVIATION, float(np.std(hours, ddof=1))) / math.sqrt(hours.size)
    return _Speed(engine, math.exp(middle), math.exp(middle - _Z95 * error), np.exp(hours - middle))


def _of_one(peer: Peer, most: str, speeds: dict[tuple[str, str], _Speed]) -> Comparison:
    own = [speeds[engine.pod, engine.rank] for engine in peer.engines if (engine.pod, engine.rank) in speeds]
    slowness = float(np.median([each.slowness for each in own])) if own else None
    if peer.gpu_product and most and peer.gpu_product != most:
        why = f"It runs on {peer.gpu_product}, most replicas on {most}: give it limits of its own."
        return Comparison(peer.pod, slowness, Outlier.OTHER_PRODUCT, why)
    slow = [each for each in own if each.certain > 1 + SLOW_BY]
    if slow and len(slow) < len(own):
        ranks = ", ".join(each.history.rank for each in slow)
        why = f"Data-parallel ranks {ranks} are {_percent(slow[0])} slower than their like: look at their GPUs."
        return Comparison(peer.pod, slowness, Outlier.UNEVEN_RANKS, why)
    if slow:
        return Comparison(peer.pod, slowness, *_why_slow(slow[0], speeds))
    at_times = [each for each in own if LEAST_SLOW_SHARE <= _slow_share(each) <= MOST_SLOW_SHARE]
    if at_times and not _all_at_times(speeds):
        why = (
            f"In {_slow_share(at_times[0]):.0%} of the time its steps take a fifth longer than its own usual ones at "
            "the same load: look for a neighbour on its node, heat or a power cap."
        )
        return Comparison(peer.pod, slowness, Outlier.SLOW_AT_TIMES, why)
    return Comparison(peer.pod, slowness, None, "")


def _why_slow(slow: _Speed, speeds: dict[tuple[str, str], _Speed]) -> tuple[Outlier, str]:
    others = [_tokens(each.history) for each in speeds.values() if each is not slow]
    usual, own = np.median(np.array(others), axis=0), _tokens(slow.history)
    if np.any(np.array(own) > (1 + OTHER_LENGTHS) * usual):
        why = (
            f"Its steps take {_percent(slow)} longer at the same load, and its requests are longer: {own[0]:.0f} and "
            f"{own[1]:.0f} tokens of prompt and answer, its peers' {usual[0]:.0f} and {usual[1]:.0f}. Look at the "
            "router."
        )
        return Outlier.OTHER_REQUESTS, why
    why = (
        f"Its steps take {_percent(slow)} longer than its peers' at the same load: look at its GPU's clocks, power "
        "cap, temperature, driver and PCIe or NVLink."
    )
    return Outlier.SLOW, why


def _tokens(history: EngineHistory) -> tuple[float, float]:
    """Mean prompt and answer of a request."""
    requests = max(float(np.nansum(history.requests_per_s)), 1e-9)
    return float(np.nansum(history.prompted_per_s)) / requests, float(np.nansum(history.generated_per_s)) / requests


def _slow_share(speed: _Speed) -> float:
    return float(np.mean(speed.hours > 1 + UNSTEADY_BY))


def _all_at_times(speeds: dict[tuple[str, str], _Speed]) -> bool:
    """Whether most engines have slow hours: then it is the traffic of those hours, not a machine."""
    return float(np.median([_slow_share(each) for each in speeds.values()])) >= LEAST_SLOW_SHARE


def _percent(speed: _Speed) -> str:
    return f"{speed.slowness - 1:.0%}"
