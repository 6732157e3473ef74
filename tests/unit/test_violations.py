"""Histograms tell a share only up to their bounds: the interval always holds the truth."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.api.stage import Slo
from kneekeeper.observe.engine_metrics import E2E, TPOT, TTFT, MetricsMissing
from kneekeeper.observe.violations import Ended, ended, violation_share

BOUNDS = (0.1, 0.5, 1.0, math.inf)


def histogram(values: list[float]) -> dict[float, float]:
    return {bound: float(sum(v <= bound for v in values)) for bound in BOUNDS}


def test_a_target_that_is_a_bound_is_exact():
    share = violation_share(Slo(ttft_s=0.5), {TTFT: histogram([0.05, 0.2, 0.7, 2.0])})
    assert (share.lower, share.upper, share.requests) == (0.5, 0.5, 4)


def test_a_target_between_two_bounds_leaves_an_interval():
    share = violation_share(Slo(ttft_s=0.7), {TTFT: histogram([0.05, 0.6, 0.9, 2.0])})
    assert (share.lower, share.upper) == (0.25, 0.75)


def test_a_target_beyond_the_last_bound_can_only_be_bounded_from_above():
    share = violation_share(Slo(ttft_s=5.0), {TTFT: histogram([0.05, 2.0])})
    assert (share.lower, share.upper) == (0.0, 0.5)


def test_without_requests_nothing_is_known():
    share = violation_share(Slo(ttft_s=0.5), {TTFT: histogram([])})
    assert (share.lower, share.upper, share.requests) == (0.0, 1.0, 0)


def test_failures_are_misses_beside_those_of_the_targets():
    slow = {TTFT: histogram([0.05, 0.2, 0.7, 2.0])}
    share = violation_share(Slo(ttft_s=0.5, availability=0.99), slow, ended=Ended(100.0, 10.0))
    assert (share.lower, share.requests) == (0.5, 4)
    assert share.upper == pytest.approx(0.6)
    assert violation_share(Slo(ttft_s=0.5), slow, ended=Ended(100.0, 10.0)).upper == 0.5


def test_only_errors_are_failures():
    assert ended([("stop", 90.0), ("length", 5.0), ("abort", 3.0), ("error", 2.0)]) == Ended(100.0, 2.0)


def test_a_missing_histogram_is_named():
    with pytest.raises(MetricsMissing) as missing:
        violation_share(Slo(ttft_s=0.5, tpot_s=0.05, e2e_s=3.0), {TTFT: histogram([1.0])})
    assert missing.value.names == (TPOT, E2E)


def test_an_slo_without_target_is_an_error():
    with pytest.raises(ValueError, match="no target"):
        violation_share(Slo(), {})


def test_counts_that_extrapolation_made_uneven_stay_a_share():
    uneven = {0.1: 3.1, 0.5: 3.0, math.inf: 2.9}
    share = violation_share(Slo(ttft_s=0.3), {TTFT: uneven})
    assert 0.0 <= share.lower <= share.upper <= 1.0


latencies = st.lists(st.tuples(st.floats(0, 3), st.floats(0, 3)), min_size=1, max_size=60)
targets = st.floats(0.01, 4)


@given(latencies, targets, targets)
def test_the_true_joint_share_lies_in_the_interval(requests, ttft_s, tpot_s):
    truth = sum(ttft > ttft_s or tpot > tpot_s for ttft, tpot in requests) / len(requests)
    histograms = {
        TTFT: histogram([ttft for ttft, _ in requests]),
        TPOT: histogram([tpot for _, tpot in requests]),
    }
    share = violation_share(Slo(ttft_s=ttft_s, tpot_s=tpot_s), histograms)
    assert share.lower - 1e-9 <= truth <= share.upper + 1e-9
    assert share.requests == len(requests)
