import numpy as np
import pytest

from kneekeeper.api.stage import Fixed, LogNormal, Uniform
from kneekeeper.domain.lengths import mean_tokens, quantile_tokens
from tests.unit.small_server import draw_lengths

CUT = LogNormal(mean=800, sigma=1.2, maximum=1500)


@pytest.mark.parametrize(
    "lengths", [Fixed(value=7), Uniform(low=10, high=30), LogNormal(mean=800, sigma=1, maximum=10**6), CUT]
)
def test_means_and_quantiles_are_those_of_draws(lengths):
    drawn = draw_lengths(lengths, 200_000, np.random.default_rng(1))
    assert mean_tokens(lengths) == pytest.approx(drawn.mean(), rel=0.02)
    for q in (0.5, 0.9, 0.99):
        assert quantile_tokens(lengths, q) == pytest.approx(np.quantile(drawn, q), rel=0.03)


def test_a_log_normal_without_spread_is_fixed():
    assert mean_tokens(LogNormal(mean=50, sigma=0, maximum=100)) == 50
    assert quantile_tokens(LogNormal(mean=50, sigma=0, maximum=40), 0.5) == 40
