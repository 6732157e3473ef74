"""What happened between the first and the last of some readings of one engine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kneekeeper.domain.diagnose.reading import Counter, EngineReading, Family, Gauge, Histogram

_BATCHES = 6
_Z_95_ONE_SIDED = 1.645


class WindowError(ValueError):
    """Nothing can be said of these readings; the message says why and what to do."""


@dataclass(frozen=True)
class Series:
    """A gauge at the times of the readings."""

    at_s: tuple[float, ...]
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return math.fsum(self.values) / len(self.values)

    @property
    def largest(self) -> float:
        return max(self.values)

    @property
    def smallest(self) -> float:
        return min(self.values)

    @property
    def growth(self) -> float:
        return self.values[-1] - self.values[0]

    @property
    def dispersion(self) -> float | None:
        """Variance over mean: 1 for open-loop arrivals to an engine with room (M/G/∞ is Poisson), 0 for a pool."""
        return float(np.var(self.values, ddof=1)) / self.mean if len(self.values) > 2 and self.mean > 0 else None

    @property
    def error(self) -> float:
        """Half width of a 90% interval of the mean, by batch means (Law, Simulation Modeling, 9.5.3).

        Infinite for fewer than two batches: one value tells nothing of the mean.
        """
        batches = min(_BATCHES, len(self.values) // 2)
        if batches < 2:
            return math.inf
        means = [float(np.mean(part)) for part in np.array_split(np.array(self.values), batches)]
        return _Z_95_ONE_SIDED * float(np.std(means, ddof=1)) / math.sqrt(batches)

    def surely_above(self, threshold: float) -> bool:
        return self.mean - self.error > threshold

    def surely_below(self, threshold: float) -> bool:
        return self.mean + self.error < threshold

    def plus(self, other: Series) -> Series:
        return Series(self.at_s, tuple(a + b for a, b in zip(self.values, other.values, strict=True)))


@dataclass(frozen=True)
class Window:
    """Gauges over time, and what counters and histograms gained; what is missing is in none of them."""

    start_s: float
    end_s: float
    gauges: Mapping[Gauge, Series]
    gained: Mapping[Counter, float]
    histograms: Mapping[Family, Histogram]
    completions: tuple[float, ...]
    """Requests that ended between each two readings; empty where they are not counted."""
    engines: int
    missing: frozenset[str]

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


def window_of(readings: Sequence[EngineReading]) -> Window:
    """The readings, oldest first, as one window; it begins after the last restart of the engine.

    Raises WindowError where fewer than two readings are left.
    """
    kept = _since_restart(readings)
    if len(kept) < 2 or kept[-1].at_s <= kept[0].at_s:
        raise WindowError("fewer than two readings since the engine's start; look again in a minute")
    first, last = kept[0], kept[-1]
    at_s = tuple(reading.at_s for reading in kept)
    histograms = {family: h.since(first.histograms.get(family)) for family, h in last.histograms.items()}
    ended = [reading.histograms[Family.E2E].count for reading in kept if Family.E2E in reading.histograms]
    return Window(
        start_s=first.at_s,
        end_s=last.at_s,
        gauges={
            gauge: Series(at_s, tuple(reading.gauges[gauge] for reading in kept))
            for gauge in Gauge
            if all(gauge in reading.gauges for reading in kept)
        },
        gained={
            counter: last.counters[counter] - first.counters[counter]
            for counter in Counter
            if counter in first.counters and counter in last.counters
        },
        histograms={family: h for family, h in histograms.items() if h is not None},
        completions=tuple(np.diff(ended).tolist()) if len(ended) == len(kept) else (),
        engines=last.engines,
        missing=frozenset().union(*(reading.missing for reading in kept)),
    )


def _since_restart(readings: Sequence[EngineReading]) -> Sequence[EngineReading]:
    start = 0
    for index in range(1, len(readings)):
        before, after = readings[index - 1].counters, readings[index].counters
        if any(after[counter] < before[counter] for counter in after.keys() & before.keys()):
            start = index
    return readings[start:]
