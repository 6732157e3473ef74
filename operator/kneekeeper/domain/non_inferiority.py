"""Whether a change made more requests miss the SLO: a non-inferiority test that may be looked at at any time.

Each share gets a confidence sequence: the set of shares p whose uniform mixture

    E(p) = B(k + 1, n - k + 1) / (p^k (1 - p)^(n - k))

stays below 1/alpha, B the Beta function, k misses in n requests (Robbins, Ann. Math. Statist. 41, 1970; Howard
et al., Ann. Statist. 49, 2021). It holds at all n at once, so that ticks may look as often as they like. The
change is worse when the lower end after lies above the upper end before by more than the margin; it is not
worse when the upper end after lies below the lower end before plus the margin; else nothing is decided.

Histograms whose bounds are not the targets tell a share only as an interval. Its ends are taken so that either
verdict holds wherever in the interval the truth lies.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import optimize, special

MARGIN = 0.01
"""Of all requests: as much as a P99 allows. A smaller change is not worth a second rollout."""

ALPHA = 0.025
"""Of each share; together a wrong verdict has a chance of 5% at most."""

VARIANCE_INFLATION = 4.0
"""Misses come in clusters, and a histogram does not tell their order: counts are divided by this. It is assumed,
on the careful side: it makes verdicts rarer, never easier."""

MIN_REQUESTS = 100
MOST_LOAD_GROWTH = 1.25
"""Between the load before and after: beyond it a larger share may be the load's doing, and a smaller one as well."""

_EDGE = 1e-12


class Comparison(StrEnum):
    WORSE = "Worse"
    NOT_WORSE = "NotWorse"
    UNDECIDED = "Undecided"


@dataclass(frozen=True)
class Misses:
    """The share of requests that missed the SLO, known to lie in [lower, upper], and the load they came under."""

    lower: float
    upper: float
    requests: int
    requests_per_s_of_a_replica: float | None = None  # None: not known, then loads are taken for alike


def compare(before: Misses, after: Misses) -> Comparison:
    """`after` against `before`; also for old and new pods that serve side by side."""
    if min(before.requests, after.requests) < MIN_REQUESTS:
        return Comparison.UNDECIDED
    growth = _growth(before, after)
    worse = _lowest(after.lower, after.requests) > _highest(before.upper, before.requests) + MARGIN
    if worse and growth <= MOST_LOAD_GROWTH:
        return Comparison.WORSE
    not_worse = _highest(after.upper, after.requests) < _lowest(before.lower, before.requests) + MARGIN
    if not_worse and growth >= 1 / MOST_LOAD_GROWTH:
        return Comparison.NOT_WORSE
    return Comparison.UNDECIDED


def _growth(before: Misses, after: Misses) -> float:
    then, now = before.requests_per_s_of_a_replica, after.requests_per_s_of_a_replica
    return 1.0 if not then or now is None else now / then


def confidence_sequence(share: float, requests: float, alpha: float = ALPHA) -> tuple[float, float]:
    """The lowest and the highest share that `share` of `requests` does not exclude, at any time."""
    misses, hits = share * requests, (1 - share) * requests

    def excess(p: float) -> float:
        log_e = special.betaln(misses + 1, hits + 1) - special.xlogy(misses, p) - special.xlog1py(hits, -p)
        return float(log_e + np.log(alpha))

    mode = min(max(share, _EDGE), 1 - _EDGE)
    if excess(mode) >= 0:
        return share, share
    lowest = 0.0 if excess(_EDGE) < 0 else float(optimize.brentq(excess, _EDGE, mode))
    highest = 1.0 if excess(1 - _EDGE) < 0 else float(optimize.brentq(excess, mode, 1 - _EDGE))
    return lowest, highest


def _lowest(share: float, requests: int) -> float:
    return confidence_sequence(share, requests / VARIANCE_INFLATION)[0]


def _highest(share: float, requests: int) -> float:
    return confidence_sequence(share, requests / VARIANCE_INFLATION)[1]
