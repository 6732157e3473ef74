"""Whether the SLO is being broken for good: burn rates over a long and a short window.

The burn rate is the share of requests that miss a target over the share that may. A breach counts when both
windows burn: the long one shows that it matters, the short one that it lasts (Site Reliability Workbook,
chapter 5, multiwindow multi-burn-rate alerts, whose windows and rates these are).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kneekeeper.domain.certify import ALLOWED_SHARE
from kneekeeper.domain.observation import ViolationShare

MIN_REQUESTS = 100
"""In the short window; fewer make one miss a burn."""

_COVERED = 0.8
"""Of a window that must have been seen: a restarted source knows less than it was asked for."""


@dataclass(frozen=True)
class BurnRule:
    """Both windows must burn at least `rate` times faster than the SLO allows."""

    long_s: float
    short_s: float
    rate: float


RULES = (BurnRule(3600.0, 300.0, 14.4), BurnRule(21600.0, 1800.0, 6.0))

WINDOWS_S = tuple(sorted({window for rule in RULES for window in (rule.long_s, rule.short_s)}))


def burning(shares: Mapping[float, ViolationShare]) -> BurnRule | None:
    """The first rule that both its windows break, by what surely missed; `shares` are by window, seconds."""
    return next(
        (rule for rule in RULES if all(_burns(shares, w, rule.rate) for w in (rule.long_s, rule.short_s))), None
    )


def _burns(shares: Mapping[float, ViolationShare], window_s: float, rate: float) -> bool:
    share = shares.get(window_s)
    return (
        share is not None
        and share.window_s >= _COVERED * window_s
        and share.requests >= MIN_REQUESTS
        and share.lower / ALLOWED_SHARE >= rate
    )
