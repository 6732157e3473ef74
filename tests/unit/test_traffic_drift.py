"""How far two workloads lie apart, by what an engine has to do more or less of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.api.offered_load import Bin, Empirical, Fixed, LogNormal, Uniform
from kneekeeper.api.workload import ArrivalProcess, ArrivalSpec, LengthDistribution, TokenLengths, Workload
from kneekeeper.domain.lengths import mean_tokens
from kneekeeper.domain.observed_workload import learn
from kneekeeper.domain.traffic_drift import BEGINS, ENDS, earth_movers_tokens, largest_shift
from kneekeeper.domain.traffic_history import TrafficHistory
from tests.unit.test_observed_workload import hour

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)

BINS = st.lists(
    st.tuples(st.integers(1, 500), st.integers(0, 300), st.integers(1, 50)).map(
        lambda part: Bin(low=part[0], high=part[0] + part[1], weight=part[2])
    ),
    min_size=1,
    max_size=6,
).map(lambda bins: Empirical(bins=tuple(bins)))


def workload(prompt: int = 1000, output: int = 200, hits: int = 0, shape_percent: int | None = None) -> Workload:
    def uniform(mean: int) -> TokenLengths:
        return TokenLengths(distribution=LengthDistribution.UNIFORM, min=mean // 2, max=mean + mean // 2)

    arrivals = ArrivalSpec()
    if shape_percent is not None:
        arrivals = ArrivalSpec(process=ArrivalProcess.GAMMA, burstiness_percent=shape_percent)
    return Workload(
        prompt_tokens=uniform(prompt),
        output_tokens=uniform(output),
        arrivals=arrivals,
        prefix_cache_hit_percent=hits,
    )


def size(before: Workload, after: Workload) -> float:
    found = largest_shift(before, after)
    assert found is not None
    return found.size


@given(BINS, BINS, BINS)
def test_the_distance_of_lengths_is_a_distance_no_less_than_that_of_their_means(
    one: Empirical, other: Empirical, third: Empirical
):
    apart = earth_movers_tokens(one, other)
    assert earth_movers_tokens(one, one) == pytest.approx(0, abs=1e-9)
    assert apart == pytest.approx(earth_movers_tokens(other, one))
    assert apart >= abs(mean_tokens(one) - mean_tokens(other)) - 1e-6
    assert apart <= earth_movers_tokens(one, third) + earth_movers_tokens(third, other) + 1e-6


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_between_two_fixed_lengths_lies_their_difference(one: int, other: int):
    assert earth_movers_tokens(Fixed(value=one), Fixed(value=other)) == pytest.approx(abs(one - other))


def test_short_and_long_for_middling_ones_is_a_shift_although_the_mean_is_the_same():
    middling, extremes = (
        Fixed(value=500),
        Empirical(bins=(Bin(low=100, high=100, weight=1), Bin(low=900, high=900, weight=1))),
    )
    assert mean_tokens(middling) == mean_tokens(extremes)
    assert earth_movers_tokens(middling, extremes) == pytest.approx(400, abs=1)


def test_what_is_no_histogram_is_compared_by_its_quantiles():
    near, far = LogNormal(mean=600, sigma=0.8, maximum=9000), LogNormal(mean=900, sigma=0.8, maximum=9000)
    assert earth_movers_tokens(near, far) == pytest.approx(300, rel=0.1)
    assert earth_movers_tokens(Uniform(low=1, high=99), Uniform(low=101, high=199)) == pytest.approx(100, rel=0.01)


@pytest.mark.parametrize(
    "after", [workload(prompt=1260), workload(output=145), workload(hits=21), workload(shape_percent=45)]
)
def test_each_of_lengths_hits_and_bursts_alone_begins_a_drift(after: Workload):
    assert size(workload(), after) > BEGINS


@pytest.mark.parametrize(
    "after", [workload(), workload(prompt=1100), workload(output=210), workload(hits=9), workload(shape_percent=85)]
)
def test_small_changes_are_below_what_ends_one(after: Workload):
    assert size(workload(), after) < ENDS


def test_the_largest_of_several_is_told():
    told = largest_shift(workload(hits=10), workload(prompt=1100, output=600, hits=12))
    assert told is not None
    assert told.what.startswith("answers have 600 tokens on average instead of 200")


def test_what_is_learned_twice_of_the_same_traffic_is_no_drift():
    """As few requests as confidence Medium takes."""

    def learned(seed: int) -> Workload:
        hours = tuple(hour(NOW - timedelta(hours=each), 500, seed=seed + each) for each in range(4))
        found = learn(TrafficHistory(hours), [], NOW)
        assert found is not None
        return found.workload

    assert max(size(learned(0), learned(100 * seed)) for seed in range(1, 8)) < ENDS


def test_lengths_of_classes_are_not_compared():
    assert largest_shift(workload(), Workload()) is None
