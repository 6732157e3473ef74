"""A day's arrivals at one replica: each mix in its hours, least at their ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.day.cases import Case
from kneekeeper.domain.samples import Bools, Floats, Ints

HOUR_S = 3600.0
MORNING, EVENING, MIDNIGHT = 8, 20, 24
"""Hours in which the day's mix begins and ends; the day is from midnight to midnight."""

QUIET_SHARE = 0.4
"""Of a mix's busiest rate, at the ends of its hours."""

_POINTS_PER_HOUR = 3600

Share = Callable[[Floats], Floats]
"""Of the whole load, at these hours of the day."""


@dataclass(frozen=True, eq=False)
class Requests:
    """A day of one replica, in the order of arrival; `mix` is an index into the case's mixes."""

    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    mix: Ints

    def where(self, chosen: Bools) -> Requests:
        return Requests(
            self.arrival_s[chosen], self.prompt_tokens[chosen], self.output_tokens[chosen], self.mix[chosen]
        )

    def between(self, begin_s: float, end_s: float) -> Bools:
        """Which arrive from one moment until before another."""
        return np.asarray((self.arrival_s >= begin_s) & (self.arrival_s < end_s), dtype=np.bool_)


def rates(busiest: Sequence[float], hours: Floats, share: Share) -> list[Floats]:
    """Requests/s of each mix at these hours of the day: half a sine over its hours, above a quiet share."""
    by_day = (hours >= MORNING) & (hours < EVENING)
    into_day = (hours - MORNING) / (EVENING - MORNING)
    into_night = (hours - EVENING) % MIDNIGHT / (MIDNIGHT - EVENING + MORNING)
    found = []
    for rate, passed, here in zip(busiest, (into_day, into_night), (by_day, ~by_day), strict=True):
        shape = QUIET_SHARE + (1 - QUIET_SHARE) * np.sin(np.pi * np.clip(passed, 0.0, 1.0))
        found.append(np.where(here, rate * shape * share(hours), 0.0))
    return found


def draw(case: Case, busiest: Sequence[float], seed: int, share: Share = np.ones_like) -> Requests:
    """A day's requests: each mix's arrivals at one a second, on a time that passes as fast as its rate."""
    hours = np.linspace(0.0, MIDNIGHT, MIDNIGHT * _POINTS_PER_HOUR + 1)
    parts = []
    for mix, (scenario, rate) in enumerate(zip(case.mixes, rates(busiest, hours, share), strict=True)):
        expected = np.concatenate([[0.0], np.cumsum((rate[1:] + rate[:-1]) / 2)]) * HOUR_S / _POINTS_PER_HOUR
        drawn = scenario.traffic.draw(int(1.2 * expected[-1]) + 100, seed + mix)
        count = int(np.searchsorted(drawn.arrival_s, expected[-1]))
        moments = np.interp(drawn.arrival_s[:count], expected, hours * HOUR_S)
        parts.append(
            Requests(moments, drawn.prompt_tokens[:count], drawn.output_tokens[:count], np.full(count, mix, np.int64))
        )
    columns = [np.concatenate([getattr(part, name) for part in parts]) for name in Requests.__annotations__]
    order = np.argsort(columns[0], kind="stable")
    return Requests(*(column[order] for column in columns))
