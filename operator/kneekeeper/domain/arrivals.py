"""When requests are sent: arrival processes as pure generators of times.

Gamma gaps of shape k have the coefficient of variation 1/√k: k = 1 is Poisson, below it is bursty (vLLM's
`--burstiness` is k). A replayed trace is only ever stretched as a whole, which keeps the variation of its gaps
and their order; leaving out requests would lose both.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kneekeeper.api.offered_load import Arrivals, Closed, Open, Replay

Floats = NDArray[np.float64]

START_SPREAD_S = 1.0
"""The users of a closed loop start within this time (and their think time) at most…"""

START_SPREAD_PER_USER_S = 0.02
"""…and within this time each, so that a few users do not wait for nothing."""

POISSON_VARIATION = 1.0


def draw_arrivals(arrivals: Open, count: int, rng: np.random.Generator) -> Floats:
    """`count` send times in seconds from the stage's start, ascending.

    Gaps are Gamma with shape k = burstiness and mean 1/rate. Burstiness None gives constant gaps. The draws are
    stretched as a whole so that the last request comes at count / rate: the stage then offers exactly the rate
    that it is named after, not one that chance moved by some percent (a process conditioned on its count).
    """
    if arrivals.burstiness is None:
        return np.arange(1, count + 1) / arrivals.rate
    times = np.cumsum(rng.gamma(arrivals.burstiness, 1 / arrivals.burstiness, count))
    if not count or times[-1] <= 0:
        return np.arange(1, count + 1) / arrivals.rate
    return times * (count / arrivals.rate / float(times[-1]))


def replay(arrivals: Replay, at_s: Floats) -> Floats:
    """The times of a trace's window on the stage's time axis, ascending from 0.

    With a rate the window's own mean rate becomes exactly that one, gaps keeping their proportions; a window
    without any time in it (all at once) stays so. With a speed time runs so many times as fast.
    """
    if arrivals.speed is not None:
        return at_s / arrivals.speed
    assert arrivals.rate is not None  # one of both is set
    span_s = float(at_s[-1]) if at_s.size else 0.0
    return at_s * ((at_s.size - 1) / arrivals.rate / span_s) if span_s > 0 else at_s


def draw_starts(arrivals: Closed, count: int, rng: np.random.Generator) -> Floats:
    """When the users of a closed loop send their first requests, ascending: spread out, so that they are out
    of step from the beginning."""
    users = min(arrivals.users, count)
    spread_s = min(START_SPREAD_S, users * START_SPREAD_PER_USER_S) + arrivals.think_time_s
    return np.sort(rng.random(users)) * spread_s


def draw_think_times(arrivals: Closed, count: int, rng: np.random.Generator) -> Floats:
    """How long a user thinks before each of `count` requests, seconds: exponential, as in the interactive
    systems of queueing theory."""
    return rng.exponential(arrivals.think_time_s, count) if arrivals.think_time_s > 0 else np.zeros(count)


def gap_variation(arrivals: Arrivals, sent_s: Floats | None = None) -> float:
    """The squared coefficient of variation of the gaps; 0 where they are constant or follow from answers.

    That of a replay is measured on its times `sent_s`; without them it is taken for Poisson.
    """
    match arrivals:
        case Closed():
            return 0.0
        case Open():
            return 0.0 if arrivals.burstiness is None else 1 / arrivals.burstiness
        case Replay():
            gaps = np.diff(sent_s) if sent_s is not None else np.empty(0)
            mean = float(gaps.mean()) if gaps.size else 0.0
            return float(gaps.var()) / mean**2 if mean > 0 else POISSON_VARIATION
