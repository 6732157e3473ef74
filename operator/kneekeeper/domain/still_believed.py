"""What certifications without a PASS leave of what is predicted.

They are fitted like any other stage, but a stage near the edge hardly moves a fit, and what it cannot express stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from kneekeeper.api.tuning_run import Certification, Verdict
from kneekeeper.domain.certifiable import certifiable_share
from kneekeeper.domain.certify import OFFERED_SHARE
from kneekeeper.domain.twin.surface import Surface

AFTER_FAIL = 0.83
AFTER_INCONCLUSIVE = 0.87
AFTER_DOUBT = 0.95
"""Of the offered rate of an earlier certification, what the next one offers at most. A FAIL means well beyond: near the
edge the sequential test stays undecided. It was in doubt where it did not pass though no more missed than a
certification is offered for: its requests were too few for their queue, or one half of them was slower by chance."""


def still_believed(surface: Surface, previous: Sequence[Certification]) -> float:
    """The share of predicted rates that certifications without a PASS leave, at most 1: what is left of the rate that
    was offered, over what is predicted for the setting that was tried. A model that is wrong on one setting by some
    share is taken to be so on all."""
    shares = [1.0]
    for tried in previous:
        left = _left_of(tried) * tried.offered_requests_per_second / OFFERED_SHARE
        predicted = surface.highest_rate(surface.traffic.limits(tried.setting), near=left) if left > 0 else 0.0
        if predicted > left > 0:
            shares.append(left / predicted)
    return min(shares)


def _left_of(tried: Certification) -> float:
    """The share of the offered rate that a certification leaves open; 0 where that is not for it to say."""
    if tried.verdict is Verdict.FAIL:
        return AFTER_FAIL
    if tried.verdict is not Verdict.INCONCLUSIVE:
        return 0.0
    return AFTER_DOUBT if tried.misses <= certifiable_share(tried.requests) * tried.requests else AFTER_INCONCLUSIVE
