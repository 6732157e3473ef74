"""Means and quantiles of token length distributions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats as distributions

from kneekeeper.api.offered_load import Bin, Empirical, Fixed, FromTrace, Lengths, LogNormal, Uniform

MIX_BINS = 32
"""Bins for each class of a mix: 1/32 of its requests each, the last one up to its longest."""

_MIX_WEIGHT = 1000


def mean_tokens(lengths: Lengths) -> float:
    """The mean length in tokens; the cut of a log-normal at its maximum is taken into account."""
    match lengths:
        case Fixed():
            return float(lengths.value)
        case Uniform():
            return (lengths.low + lengths.high) / 2
        case LogNormal():
            return _mean_of_cut_log_normal(lengths)
        case Empirical():
            weights = sum(part.weight for part in lengths.bins)
            return sum(part.weight * (part.low + part.high) / 2 for part in lengths.bins) / weights
        case FromTrace():
            return mean_tokens(_cut(lengths))


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
        case Empirical():
            return _quantile_of_bins(lengths, q)
        case FromTrace():
            return _quantile_of_bins(_cut(lengths), q)


def shortest_tokens(lengths: Lengths) -> int:
    """The shortest draw."""
    match lengths:
        case Fixed():
            return lengths.value
        case Uniform():
            return lengths.low
        case LogNormal():
            return 1
        case Empirical():
            return min(part.low for part in lengths.bins)
        case FromTrace():
            return shortest_tokens(_cut(lengths))


def longest_tokens(lengths: Lengths) -> int:
    """The longest draw."""
    return quantile_tokens(lengths, 1.0)


def mixture(parts: Sequence[tuple[int, Lengths]]) -> Empirical:
    """The lengths of a mix of kinds of requests with these weights, as a histogram: for means and quantiles."""
    bins: list[Bin] = []
    for weight, lengths in parts:
        edges = [quantile_tokens(lengths, at / MIX_BINS) for at in range(1, MIX_BINS + 1)]
        lows = [shortest_tokens(lengths), *edges[:-1]]
        bins += [
            Bin(low=min(low, high), high=high, weight=_MIX_WEIGHT * weight)
            for low, high in zip(lows, edges, strict=True)
        ]
    return Empirical(bins=tuple(bins))


def cut(lengths: Lengths, maximum: int) -> Lengths:
    """The lengths with none above `maximum` tokens: longer draws become that long."""
    match lengths:
        case Fixed():
            return Fixed(value=min(lengths.value, maximum))
        case Uniform():
            return Uniform(low=min(lengths.low, maximum), high=min(lengths.high, maximum))
        case LogNormal():
            return lengths.model_copy(update={"maximum": min(lengths.maximum, maximum)})
        case Empirical():
            bins = [
                Bin(low=min(part.low, maximum), high=min(part.high, maximum), weight=part.weight)
                for part in lengths.bins
            ]
            return Empirical(bins=tuple(bins))
        case FromTrace():
            return lengths.model_copy(update={"maximum": min(lengths.maximum, maximum)})


def _cut(lengths: FromTrace) -> Empirical:
    marginal = cut(lengths.marginal, lengths.maximum)
    assert isinstance(marginal, Empirical)  # a cut histogram is one
    return marginal


def _quantile_of_bins(lengths: Empirical, q: float) -> int:
    """The smallest whole number of tokens that at least the share q of the draws does not exceed."""
    low, high, weight = (
        np.array([getattr(part, name) for part in lengths.bins], dtype=np.float64) for name in ("low", "high", "weight")
    )
    least, most = int(low.min()), int(high.max())
    wanted = q * weight.sum() * (1 - 1e-12)
    while least < most:
        middle = (least + most) // 2
        below = np.clip((middle - low + 1) / (high - low + 1), 0.0, 1.0)
        least, most = (least, middle) if float((weight * below).sum()) >= wanted else (middle + 1, most)
    return least


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
