"""What is true of an engine: its saturation, and the targets that it just meets at a rate."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import numpy as np

from benchmarks.verdicts.engine import Engine, Floats, Served, serve
from kneekeeper.api.offered_load import Open
from kneekeeper.api.stage import Slo
from kneekeeper.domain.arrivals import draw_arrivals

TRUTH_REQUESTS = 1_000_000
ALLOWED_SHARE = 0.01
_FILLING = 20_000
"""Requests that are left out of a truth, in which the queue forgets that it was empty."""

_BACKLOG = 50_000


class Targets(Enum):
    """Which targets an SLO sets."""

    TTFT = "P99 TTFT"
    BOTH = "P99 TTFT and P99 TPOT"


@dataclass(frozen=True)
class Traffic:
    """An open loop with Gamma gaps of shape `burstiness`: 1 is Poisson, a coefficient of variation of 1/√k."""

    name: str
    burstiness: float

    def arrivals_s(self, rate: float, requests: int, seed: int) -> Floats:
        return draw_arrivals(Open(rate=rate, burstiness=self.burstiness), requests, np.random.default_rng([seed, 1]))


POISSON = Traffic("Poisson", 1.0)
BURSTY = Traffic("bursty", 0.25)


@lru_cache(maxsize=8)
def saturation(engine: Engine) -> float:
    """Requests per second that the engine serves from a backlog."""
    seeds = range(3)
    return float(np.mean([_BACKLOG / serve(engine, np.zeros(_BACKLOG), seed, course=0).last_s.max() for seed in seeds]))


@lru_cache(maxsize=3)
def long_run(
    engine: Engine, traffic: Traffic, rate: float, seed: int, *, speed: float = 1.0, requests: int = TRUTH_REQUESTS
) -> tuple[Floats, Floats]:
    """TTFT and TPOT in seconds of `requests` requests of an engine that has been serving for long; TPOT is 0 where
    there is none."""
    arrived_s = traffic.arrivals_s(rate, requests + _FILLING, seed)
    served: Served = serve(engine, arrived_s, seed, speed=speed, course=0)
    return served.ttft_s[_FILLING:], np.nan_to_num(served.tpot_s[_FILLING:])


def targets_met(ttft_s: Floats, tpot_s: Floats, targets: Targets) -> Slo:
    """The SLO that these requests just meet: exactly 1% miss it. With two targets both are the same quantile."""
    if targets is Targets.TTFT:
        return Slo(ttft_s=float(np.quantile(ttft_s, 1 - ALLOWED_SHARE)))
    low, high = 1 - ALLOWED_SHARE, 1.0
    for _ in range(30):
        q = (low + high) / 2
        slo = Slo(ttft_s=float(np.quantile(ttft_s, q)), tpot_s=float(np.quantile(tpot_s, q)))
        low, high = (q, high) if miss_share(ttft_s, tpot_s, slo) > ALLOWED_SHARE else (low, q)
    return slo


def miss_share(ttft_s: Floats, tpot_s: Floats, slo: Slo) -> float:
    """The share of requests that miss any target."""
    missed = np.zeros(ttft_s.size, dtype=np.bool_)
    for target, values in ((slo.ttft_s, ttft_s), (slo.tpot_s, tpot_s)):
        if target is not None:
            missed |= values > target
    return float(missed.mean())
