import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.api.offered_load import Bin, Empirical, Fixed, FromTrace, Lengths, LogNormal, Uniform
from kneekeeper.domain.lengths import cut, longest_tokens, mean_tokens, mixture, quantile_tokens, shortest_tokens
from kneekeeper.domain.workload import draw_lengths

CUT = LogNormal(mean=800, sigma=1.2, maximum=1500)
BINS = Empirical(bins=(Bin(low=5, high=5, weight=1), Bin(low=100, high=900, weight=6), Bin(low=50, high=300, weight=3)))
LENGTHS = st.one_of(
    st.builds(Fixed, value=st.integers(1, 10_000)),
    st.builds(lambda low, more: Uniform(low=low, high=low + more), st.integers(1, 1000), st.integers(0, 1000)),
    st.builds(LogNormal, mean=st.floats(1, 1e4), sigma=st.floats(0, 2), maximum=st.integers(1, 10**5)),
    st.just(BINS),
    st.builds(FromTrace, marginal=st.just(BINS), maximum=st.integers(1, 1000)),
)


@pytest.mark.parametrize(
    "lengths", [Fixed(value=7), Uniform(low=10, high=30), LogNormal(mean=800, sigma=1, maximum=10**6), CUT, BINS]
)
def test_means_and_quantiles_are_those_of_draws(lengths):
    drawn = draw_lengths(lengths, 200_000, np.random.default_rng(1))
    assert mean_tokens(lengths) == pytest.approx(drawn.mean(), rel=0.02)
    for q in (0.5, 0.9, 0.99):
        assert quantile_tokens(lengths, q) == pytest.approx(np.quantile(drawn, q), rel=0.03)


def test_a_log_normal_without_spread_is_fixed():
    assert mean_tokens(LogNormal(mean=50, sigma=0, maximum=100)) == 50
    assert quantile_tokens(LogNormal(mean=50, sigma=0, maximum=40), 0.5) == 40


@given(LENGTHS, st.lists(st.floats(0.001, 1), min_size=2, max_size=6).map(sorted))
def test_quantiles_ascend_between_the_shortest_and_the_longest(lengths, shares):
    found = [quantile_tokens(lengths, q) for q in shares]
    assert found == sorted(found)
    assert shortest_tokens(lengths) <= found[0]
    assert found[-1] <= longest_tokens(lengths)
    assert shortest_tokens(lengths) <= mean_tokens(lengths) + 1e-9 <= longest_tokens(lengths) + 1e-6


@given(LENGTHS, st.integers(1, 2000))
def test_what_is_cut_is_nowhere_longer(lengths, maximum):
    shorter = cut(lengths, maximum)
    assert longest_tokens(shorter) <= maximum
    assert mean_tokens(shorter) <= mean_tokens(lengths) + 1e-6
    assert type(shorter) is type(lengths)


@given(st.lists(st.tuples(st.integers(1, 100), LENGTHS), min_size=1, max_size=4))
def test_a_mixture_is_as_long_as_its_parts(parts):
    mixed = mixture(parts)
    assert longest_tokens(mixed) == max(longest_tokens(lengths) for _, lengths in parts)
    assert shortest_tokens(mixed) <= min(quantile_tokens(lengths, 0.5) for _, lengths in parts)


def test_the_mean_of_a_mixture_is_that_of_its_parts_by_weight():
    parts: list[tuple[int, Lengths]] = [
        (80, LogNormal(mean=300, sigma=0.8, maximum=4000)),
        (20, Uniform(low=2000, high=6000)),
    ]
    assert mean_tokens(mixture(parts)) == pytest.approx(0.8 * 300 + 0.2 * 4000, rel=0.05)
