"""The share of requests that must not fail, judged by exact bounds.

A failed request is a miss of the latency targets as well, of which 1% at most may miss; that alone promises no more
than 99%, and nothing where there is no target. Failures are not a queue's, so they are held against what is promised
at the offered load, without any allowance for clusters but the variance inflation.
"""

from __future__ import annotations

from dataclasses import dataclass

from kneekeeper.api.tuning_run import Verdict
from kneekeeper.domain.samples import Bools
from kneekeeper.domain.stats import share_lower_bound, share_upper_bound, variance_inflation

CONFIDENCE = 0.95
"""Of each one-sided bound (Clopper-Pearson)."""


@dataclass(frozen=True)
class Availability:
    """What a stage says of its failures."""

    verdict: Verdict
    message: str


def availability_of(ok: Bools, promised: float) -> Availability:
    """The verdict on the requests of a stage, each with whether it succeeded, against the `promised` share.

    Pass where the upper bound of the share that fails is below what is allowed, Fail where the lower bound is above it.
    Where nothing may fail no bound can prove it: a stage without a failure passes then; its message tells the bound.
    """
    failed = ~ok
    failures, requests, inflation = int(failed.sum()), int(failed.size), variance_inflation(failed)
    upper = share_upper_bound(failures / inflation, requests / inflation, CONFIDENCE)
    lower = share_lower_bound(failures / inflation, requests / inflation, CONFIDENCE)
    allowed = 1 - promised
    counted = f"{failures} of {requests} requests failed (share {lower:.2%} to {upper:.2%}, each with "
    counted += f"{CONFIDENCE:.0%} confidence), {allowed:.0%} may"
    if failures and lower > allowed:
        return Availability(Verdict.FAIL, f"{counted}.")
    if upper < allowed or (failures == 0 and allowed <= 0 < requests):
        return Availability(Verdict.PASS, f"{counted}.")
    return Availability(Verdict.INCONCLUSIVE, f"{counted}: too few requests to tell.")
