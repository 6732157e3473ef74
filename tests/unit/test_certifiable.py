"""The share of misses that a certification is expected to pass with is one with which most do."""

from __future__ import annotations

import numpy as np
import pytest

from kneekeeper.api.tuning_run import Verdict
from kneekeeper.domain.certifiable import certifiable_share
from kneekeeper.domain.certify import ALLOWED_SHARE, Claim, SequentialTest


def passes(requests: int, share: float, stages: int = 60) -> float:
    """The share of stages with independent misses that pass at their planned end."""
    rng = np.random.default_rng(requests)
    verdicts = []
    for _ in range(stages):
        test = SequentialTest(min_pass_requests=requests, claim=Claim.PROMISED)
        test.update((rng.random(requests) < share).tolist())
        verdicts.append(test.close())
    return verdicts.count(Verdict.PASS) / stages


@pytest.mark.parametrize("requests", [650, 3000])
def test_about_two_of_three_certifications_pass(requests: int):
    share = certifiable_share(requests)
    assert 0.5 < passes(requests, share) < 0.84
    assert passes(requests, 0.6 * share) > 0.8
    assert passes(requests, 1.5 * share) < 0.5


def test_the_share_grows_with_the_requests_towards_the_allowed_one():
    shares = [certifiable_share(requests) for requests in (650, 1300, 3000, 7000)]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] < ALLOWED_SHARE


def test_so_few_requests_that_none_may_miss_certify_nothing():
    assert certifiable_share(200) == 0
