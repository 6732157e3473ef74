"""Token lengths out of vLLM's buckets."""

from __future__ import annotations

import bisect
import math

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kneekeeper.domain.diagnose.reading import Histogram
from kneekeeper.domain.length_histogram import lengths_of, together
from kneekeeper.domain.lengths import mean_tokens, quantile_tokens
from kneekeeper.domain.plan.requests import lengths_of as drawn_from

BOUNDS = (*(float(m * 10**p) for p in range(4) for m in (1, 2, 5)), 10_000.0, math.inf)


def buckets(values: np.ndarray, bounds: tuple[float, ...] = BOUNDS) -> Histogram:
    return Histogram(bounds, tuple(float(np.sum(values <= bound)) for bound in bounds), float(values.sum()))


def bucket_of(tokens: float) -> int:
    return bisect.bisect_left(BOUNDS, tokens)


def log_normal(mean: float, sigma: float, count: int = 10_000, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.maximum(1, np.rint(rng.lognormal(math.log(mean) - sigma**2 / 2, sigma, count)))


@settings(max_examples=15, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(mean=st.floats(5, 3000), sigma=st.floats(0.2, 1.1), seed=st.integers(0, 1000))
def test_the_mean_is_exact_and_quantiles_are_near(mean: float, sigma: float, seed: int):
    values = np.minimum(log_normal(mean, sigma, seed=seed), 9_999)
    learned = lengths_of(buckets(values))
    assert learned is not None
    lengths = drawn_from(learned, None)
    assert mean_tokens(lengths) == pytest.approx(values.mean(), rel=0.03, abs=0.6)
    for q in (0.5, 0.9, 0.99):
        exact = float(np.quantile(values, q))
        assert bucket_of(exact - 1) <= bucket_of(quantile_tokens(lengths, q)) <= bucket_of(exact + 1)
        if sigma > 0.5:  # narrower ones lie between two bounds or three, which tell little of their shape
            assert quantile_tokens(lengths, q) == pytest.approx(exact, rel=0.3, abs=2)


def test_what_stands_below_each_bound_is_kept():
    values = log_normal(800, 0.9)
    learned = lengths_of(buckets(values))
    assert learned is not None
    assert learned.bins is not None
    whole = sum(part.weight for part in learned.bins)
    for bound in (200, 500, 1000, 2000):
        below = sum(part.weight for part in learned.bins if part.max <= bound) / whole
        assert below == pytest.approx(np.mean(values <= bound), abs=1e-4)


def test_lengths_that_are_all_alike_stay_so():
    learned = lengths_of(buckets(np.full(1000, 700.0)))
    assert learned is not None
    lengths = drawn_from(learned, None)
    assert mean_tokens(lengths) == pytest.approx(700, rel=0.03)
    assert 500 < quantile_tokens(lengths, 0.5) <= 1000


def test_one_token_each_is_one_token_each():
    learned = lengths_of(buckets(np.ones(1000)))
    assert learned is not None
    assert quantile_tokens(drawn_from(learned, None), 1.0) == 1


def test_nothing_counted_tells_nothing():
    assert lengths_of(buckets(np.empty(0))) is None
    assert together([]) is None


def test_hours_add_up_and_those_with_other_bounds_are_left_out():
    first, second = buckets(log_normal(300, 0.5, 100)), buckets(log_normal(300, 0.5, 200, seed=2))
    shorter = buckets(log_normal(300, 0.5, 50), BOUNDS[6:])
    whole = together([shorter, first, second])
    assert whole is not None
    assert whole.count == 300
    assert whole.sum == first.sum + second.sum
