"""Means and quantiles of token length distributions."""

from __future__ import annotations

import math

from scipy import stats as distributions

from kneekeeper.api.stage import Fixed, Lengths, LogNormal, Uniform


def mean_tokens(lengths: Lengths) -> float:
    """The mean length in tokens; the cut of a log-normal at its maximum is taken into account."""
    match lengths:
        case Fixed():
            return float(lengths.value)
        case Uniform():
            return (lengths.low + lengths.high) / 2
        case LogNormal():
            return _mean_of_cut_log_normal(lengths)


def quantile_tokens(lengths: Lengths, q: float) -> int:
    """The q-quantile of the length, rounded up to whole tokens; the longest one at q = 1."""
    match lengths:
        case Fixed():
            return lengths.value
        case Uniform():
            return math.ceil(lengths.low + q * (lengths.high - lengths.low))
        case LogNormal():
            if q >= 1:
                return lengths.maximum
            drawn = math.exp(_mu(lengths) + lengths.sigma * float(distributions.norm.ppf(q)))
            return max(1, min(lengths.maximum, math.ceil(drawn)))


def _mu(lengths: LogNormal) -> float:
    return math.log(lengths.mean) - lengths.sigma**2 / 2


def _mean_of_cut_log_normal(lengths: LogNormal) -> float:
    """E[min(X, m)] = mean * Phi(z - sigma) + m * (1 - Phi(z)), z = (ln m - mu) / sigma: the part below the
    cut and the part at it (lognormal partial expectation)."""
    if lengths.sigma == 0:
        return float(min(lengths.mean, lengths.maximum))
    z = (math.log(lengths.maximum) - _mu(lengths)) / lengths.sigma
    below = lengths.mean * float(distributions.norm.cdf(z - lengths.sigma))
    return max(1.0, below + lengths.maximum * float(distributions.norm.sf(z)))
