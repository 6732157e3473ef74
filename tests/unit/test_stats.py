import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.domain import stats


def test_quantile_interpolates_and_leaves_out_nan():
    assert stats.quantile([1.0, 2.0, float("nan"), 3.0], 0.25) == pytest.approx(1.5)
    assert stats.quantile([float("nan")], 0.5) is None


def test_a_p99_has_no_upper_bound_below_299_requests():
    values = np.arange(1.0, 300.0)
    assert stats.quantile_upper_bound(values[:298]) is None
    assert stats.quantile_upper_bound(values) == 299.0
    assert stats.quantile_upper_bound([]) is None


@pytest.mark.parametrize(("count", "from_the_top"), [(473, 2), (662, 3), (1000, 5), (2000, 13), (5000, 39)])
def test_the_upper_bound_is_the_known_order_statistic(count, from_the_top):
    assert stats.quantile_upper_bound(np.arange(1.0, count + 1)) == count - from_the_top + 1


def test_the_upper_bound_covers_the_true_quantile_as_often_as_it_says():
    rng = np.random.default_rng(1)
    draws = rng.exponential(size=(2000, 600))
    true_p99 = -np.log(0.01)
    bounds = [stats.quantile_upper_bound(row) for row in draws]
    assert np.mean(np.array(bounds) >= true_p99) >= 0.94


@given(st.lists(st.floats(0, 1e6), min_size=299, max_size=400), st.sampled_from([0.5, 0.9, 0.99]))
def test_the_upper_bound_is_a_value_above_the_quantile(values, q):
    upper = stats.quantile_upper_bound(values, q)
    assert upper in values
    assert upper >= np.quantile(values, q, method="inverted_cdf")


@pytest.mark.parametrize(("misses", "requests"), [(0, 299), (1, 473), (2, 628), (3, 773), (4, 913), (5, 1049)])
def test_share_upper_bound_falls_to_one_percent_at_the_known_counts(misses, requests):
    assert stats.share_upper_bound(misses, requests) <= 0.01
    assert stats.share_upper_bound(misses, requests - 1) > 0.01


def test_clopper_pearson_gives_the_textbook_interval():
    interval = stats.clopper_pearson(10, 100)
    assert interval.estimate == 0.1
    assert interval.lower == pytest.approx(0.0490, abs=1e-4)
    assert interval.upper == pytest.approx(0.1762, abs=1e-4)


@given(st.integers(0, 50), st.integers(1, 200))
def test_clopper_pearson_holds_its_estimate(events, more):
    interval = stats.clopper_pearson(events, events + more)
    assert 0 <= interval.lower <= interval.estimate <= interval.upper <= 1


def test_independent_misses_have_no_variance_inflation_and_clusters_have_their_size():
    rng = np.random.default_rng(3)
    independent = rng.random(20_000) < 0.05
    clustered = np.repeat(rng.random(2_000) < 0.05, 10)
    assert stats.variance_inflation(independent) == pytest.approx(1.0, abs=0.4)
    assert stats.variance_inflation(clustered, block=100) == pytest.approx(10.0, rel=0.3)


@given(st.lists(st.booleans(), max_size=300))
def test_variance_inflation_is_never_below_one(indicator):
    assert stats.variance_inflation(indicator) >= 1.0


def test_a_bootstrap_interval_holds_its_estimate_and_narrows_with_confidence():
    draws = np.random.default_rng(4).normal(10.0, 1.0, 1000)
    wide, narrow = stats.percentile_interval(10.0, draws, 0.95), stats.percentile_interval(10.0, draws, 0.5)
    assert wide.lower < narrow.lower < 10.0 < narrow.upper < wide.upper
    assert wide.lower == pytest.approx(8.04, abs=0.2)
    assert stats.percentile_interval(20.0, draws).upper == 20.0
    assert stats.percentile_interval(1.0, []).ratio == 1.0


def test_the_ratio_of_an_interval_from_zero_is_infinite():
    assert stats.Interval(1.0, 0.0, 2.0).ratio == float("inf")
