"""With how many misses an offered load is likely to be certified.

The last look of a certification passes independent misses up to the number whose exact upper bound is below the allowed
share. Misses come by chance, so the share that is expected must be lower: such that in two of three certifications no
more are seen (Poisson). Of 3,000 requests that is 0.6%, of 5,500 it is 0.7%.
"""

from __future__ import annotations

import functools
import itertools

from scipy import special

from kneekeeper.domain.certify import ALLOWED_SHARE, CLOSING_ALPHA, MOST_SEEN_SHARE
from kneekeeper.domain.stats import share_upper_bound

LIKELY = 2 / 3


@functools.cache
def certifiable_share(requests: int) -> float:
    """The share of misses with which a certification of so many requests is likely to pass; 0 where none can."""

    def passes(misses: int) -> bool:
        within = share_upper_bound(misses, requests, 1 - CLOSING_ALPHA) < ALLOWED_SHARE
        return within and misses < MOST_SEEN_SHARE * requests

    too_many = next(misses for misses in itertools.count() if not passes(misses))
    return float(special.gammaincinv(too_many, 1 - LIKELY) / requests) if too_many else 0.0
