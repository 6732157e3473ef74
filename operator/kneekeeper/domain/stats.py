"""Quantiles with exact bounds, shares with exact bounds, and what autocorrelation costs.

All bounds assume independent requests. Near saturation they are not: `variance_inflation` says by how much
a share's variance is larger than the binomial one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats as distributions
from scipy.special import betaincinv

from kneekeeper.domain.samples import Floats

MIN_BLOCK = 10
"""Requests in a block at least: shorter blocks are as correlated among each other as the requests are."""


@dataclass(frozen=True)
class Interval:
    """An estimate with the limits of its confidence interval."""

    estimate: float
    lower: float
    upper: float

    @property
    def ratio(self) -> float:
        """Upper over lower limit: 1 is exact knowledge; infinite where the lower limit is 0."""
        return self.upper / self.lower if self.lower > 0 else float("inf")


def _known(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return array[~np.isnan(array)]


def quantile(values: ArrayLike, q: float) -> float | None:
    """The q-quantile with linear interpolation between order statistics; None without values. NaN is left out."""
    known = _known(values)
    return float(np.quantile(known, q)) if known.size else None


def quantile_upper_bound(values: ArrayLike, q: float = 0.99, confidence: float = 0.95) -> float | None:
    """One-sided upper bound of the true q-quantile: the k-th smallest value, k the least with

        P(Binomial(n, q) <= k - 1) >= confidence.

    Distribution-free and exact for independent values (David & Nagaraja, Order Statistics, 7.1). None when
    even the largest value gives less: below 299 values at the defaults, ln(1 - confidence) / ln(q).
    """
    known = np.sort(_known(values))
    if not known.size:
        return None
    rank = int(distributions.binom.ppf(confidence, known.size, q)) + 1
    return float(known[rank - 1]) if rank <= known.size else None


def share_upper_bound(events: float, trials: float, confidence: float = 0.95) -> float:
    """One-sided Clopper-Pearson upper bound of a share; fractional counts are allowed (effective sizes)."""
    if trials <= 0 or events >= trials:
        return 1.0
    return float(betaincinv(events + 1, trials - events, confidence))


def share_lower_bound(events: float, trials: float, confidence: float = 0.95) -> float:
    """One-sided Clopper-Pearson lower bound of a share."""
    if events <= 0:
        return 0.0
    return float(betaincinv(events, trials - events + 1, 1 - confidence))


def clopper_pearson(events: int, trials: int, confidence: float = 0.95) -> Interval:
    """The exact two-sided interval of a share (Clopper & Pearson 1934)."""
    one_sided = (1 + confidence) / 2
    return Interval(
        events / trials if trials else 0.0,
        share_lower_bound(events, trials, one_sided),
        share_upper_bound(events, trials, one_sided),
    )


def default_block(count: int) -> int:
    """The square root of the number of requests: blocks grow with the evidence, and so does their number."""
    return max(MIN_BLOCK, round(float(np.sqrt(count))))


def variance_inflation(indicator: Sequence[bool] | ArrayLike, block: int | None = None) -> float:
    """How many times larger the variance of the indicator's mean is than that of independent draws.

    Batch means: block * var(block means) / (p (1 - p)); never below 1, and 1 where nothing or everything
    happened or fewer than two blocks fit. It sees no correlation that is longer than a block, so it errs
    towards 1 near saturation.
    """
    values = np.asarray(indicator, dtype=np.float64)
    blocks = values.size // (block or default_block(values.size))
    if blocks < 2:
        return 1.0
    share = float(values.mean())
    if share in (0.0, 1.0):
        return 1.0
    edges = np.linspace(0, values.size, blocks + 1).astype(int)
    means = np.add.reduceat(values, edges[:-1]) / np.diff(edges)
    return max(1.0, values.size / blocks * float(means.var(ddof=1)) / (share * (1 - share)))


def bootstrap(draw: Callable[[np.random.Generator], float], *, repeats: int, seed: int) -> Floats:
    """`repeats` values of `draw`, each from one resample that it makes with the given generator."""
    rng = np.random.default_rng(seed)
    return np.array([draw(rng) for _ in range(repeats)], dtype=np.float64)


def percentile_interval(estimate: float, draws: ArrayLike, confidence: float = 0.90) -> Interval:
    """The interval between the outer quantiles of bootstrap draws, widened to hold the estimate."""
    known: Any = _known(draws)
    if not known.size:
        return Interval(estimate, estimate, estimate)
    lower, upper = np.quantile(known, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(estimate, min(float(lower), estimate), max(float(upper), estimate))
