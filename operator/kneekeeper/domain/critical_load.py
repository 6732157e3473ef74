"""Whether a stage excludes that its open loop is as much as the server carries, or more.

Misses cannot tell it in time: at and beyond saturation the wait grows for long before it reaches a target. The
queue can. Loaded with exactly what it carries, a server that was idle has after n requests a queue that is a
reflected Brownian motion without drift, of σ² = ca² + cs² a request, squared coefficients of variation of gaps and
service (Whitt, "Planning queueing simulations", Management Science 35, 1989); under more load it is longer. By
scaling the mean of the queue over those requests is σ √n times a random variable that depends on nothing else:

    M = the integral over [0, 1] of B(t) - min B(s) over s ≤ t,    P(M < 0.131) = 1%

(quantile from 10,000 simulated paths of 2,000 steps). Critical load is excluded when the mean queue is below
0.131 σ √n. No utilisation and no model of the server is needed.

The queue is the requests without a first token that a request finds, less those that always are there: a request
that is being prefilled is not in the queue. Were all of them served at once, their number would vary about its mean
m with a variance of m (ca² + 1) / 2 (infinite servers in heavy traffic: Whitt, "On the heavy-traffic limit theorem
for GI/G/∞ queues", Adv. Appl. Prob. 14, 1982), so m follows from a low quantile. Taking m off costs
confidence where there is nothing but a queue: of single servers at exactly critical load one in ten is not doubted.
"""

from __future__ import annotations

import numpy as np

from kneekeeper.api.offered_load import Arrivals, Closed
from kneekeeper.domain.arrivals import gap_variation
from kneekeeper.domain.samples import Floats, StageData

CRITICAL_MEAN = 0.131
"""1% quantile of the mean of the queue under critical load, in σ √n."""

LOW_QUANTILE, LOW_SIGMAS = 0.10, 1.28
"""Of the number of requests without a first token: so far below the mean of those that always are there."""

_SERVICE_VARIATION = 1.0


def waiting_found(sent_s: Floats, answered_s: Floats) -> Floats:
    """How many earlier requests had no first token (or error) yet when each was to be sent, of all in their order."""
    before = np.arange(sent_s.size, dtype=np.float64)
    return np.maximum(before - np.searchsorted(np.sort(answered_s), sent_s, side="right"), 0.0)


def queue_beyond_service(waiting: Floats, gaps: float) -> float:
    """The mean queue without those requests that always are there; `gaps` is the squared variation of the gaps."""
    low = float(np.quantile(waiting, LOW_QUANTILE))
    return float(waiting.mean()) - (low + LOW_SIGMAS * float(np.sqrt(low * (gaps + _SERVICE_VARIATION) / 2)))


def longest_queue(gaps: float, requests: int) -> float:
    """The mean queue from which on critical load is not excluded by a stage of so many requests."""
    return CRITICAL_MEAN * float(np.sqrt((gaps + _SERVICE_VARIATION) * requests))


def critical_load_doubt(data: StageData, arrivals: Arrivals) -> str:
    """A sentence for people that says why the stage does not exclude critical load; empty when it does.

    `data` is that of all kinds of requests, after warm-up. A closed loop has no critical load.
    """
    if isinstance(arrivals, Closed) or not len(data):
        return ""
    answered_s = np.where(np.isnan(data.first_s), data.last_s, data.first_s)
    gaps = gap_variation(arrivals, data.intended_s)
    queue = queue_beyond_service(waiting_found(data.intended_s, answered_s), gaps)
    excluded_below = longest_queue(gaps, len(data))
    if queue < excluded_below:
        return ""
    return (
        f"On average {queue:.1f} requests queued; only below {excluded_below:.1f} is it excluded that the rate is as "
        "much as the engine carries."
    )
