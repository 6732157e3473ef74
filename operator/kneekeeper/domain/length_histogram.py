"""Token lengths from vLLM's histograms, whose bounds go 1, 2, 5, 10, 20, 50 and so on.

What is exact: how many lengths lie below each bound, and their mean. What lies between two bounds is filled in by a
monotone cubic (Fritsch & Carlson 1980) through the bounds, on the logarithm of the length and the normal quantile of
the share below it: there a log-normal is a straight line. It is then shifted within its buckets until the mean is the
exact one. A quantile is only known to lie between two bounds, up to 2.5 times apart; both are told beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.special import ndtr, ndtri

from kneekeeper.api.workload import LengthBin, LengthDistribution, TokenLengths
from kneekeeper.domain.diagnose.reading import Histogram
from kneekeeper.domain.samples import Floats

MOST_BINS = 60
"""As a profile's status holds them, with some to spare."""

PARTS = 6
"""Of a bucket at most: what its shape is filled in with."""

LEAST_SHARE = 1e-4
"""Of all lengths: a bucket with fewer is not worth bins of its own."""

_WEIGHT = 1_000_000
_STEEPEST = 8.0
_BISECTIONS = 40
_LONGEST_TOKENS = 1_000_000


def lengths_of(histogram: Histogram) -> TokenLengths | None:
    """The lengths as a profile would declare them; None without any, and where they are none of tokens."""
    if not _is_of_tokens(histogram):
        return None
    edges, counts = _buckets(histogram)
    if not counts.sum() > 0:
        return None
    parts = max(1, min(PARTS, MOST_BINS // counts.size))
    low, high, weight, bucket = _split(edges, counts, parts)
    weight = _with_mean(low, high, weight, bucket, histogram.mean or 0.0)
    scaled = np.rint(_WEIGHT * weight / weight.sum()).astype(int)
    bins = [
        LengthBin(min=int(a), max=int(b), weight=int(w)) for a, b, w in zip(low, high, scaled, strict=True) if w > 0
    ]
    return TokenLengths(distribution=LengthDistribution.EMPIRICAL, bins=bins)


def _is_of_tokens(histogram: Histogram) -> bool:
    """Whether the bounds are lengths that a text can have, each by a token longer than the one before at least."""
    whole = np.floor([bound for bound in histogram.bounds if math.isfinite(bound)])
    return bool(whole.size and whole[0] >= 1 and (np.diff(whole) >= 1).all() and whole[-1] <= _LONGEST_TOKENS)


def together(histograms: list[Histogram]) -> Histogram | None:
    """The sum of histograms; those whose bounds are not the newest one's are left out. None without any."""
    if not histograms:
        return None
    bounds = histograms[-1].bounds
    alike = [each for each in histograms if each.bounds == bounds]
    counts = tuple(np.sum([each.cumulative for each in alike], axis=0).tolist())
    return Histogram(bounds, counts, math.fsum(each.sum for each in alike))


def _buckets(histogram: Histogram) -> tuple[Floats, Floats]:
    """Edges of the buckets that hold lengths, and their counts. The open one ends at twice its lower edge."""
    bounds = np.array(histogram.bounds, dtype=np.float64)
    cumulative = np.array(histogram.cumulative, dtype=np.float64)
    if bounds.size > 1 and math.isinf(bounds[-1]):
        bounds[-1] = min(_LONGEST_TOKENS, 2 * bounds[-2])
    edges, counts = np.concatenate([[0.0], bounds]), np.diff(cumulative, prepend=0.0)
    held = np.nonzero(counts > LEAST_SHARE * max(cumulative[-1], 1e-9))[0]
    if not held.size:
        return edges[:1], np.empty(0)
    first, last = held[0], held[-1]
    return edges[first : last + 2], np.maximum(0.0, counts[first : last + 1])


def _split(edges: Floats, counts: Floats, parts: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Whole lengths from low to high of every part, its weight, and the bucket that it is of."""
    logs, cumulative = np.log(np.maximum(edges, 0.5)), np.concatenate([[0.0], np.cumsum(counts)])
    shape = _shape(logs[1:-1], cumulative[1:-1] / cumulative[-1])
    rows: list[tuple[float, float, float, float]] = []
    for bucket in range(counts.size):
        cuts = np.unique(np.floor(np.exp(np.linspace(logs[bucket], logs[bucket + 1], parts + 1))))
        cuts[0], cuts[-1] = edges[bucket], edges[bucket + 1]
        held = np.diff(shape(np.log(np.maximum(cuts, 0.5))))
        held = held / held.sum() if held.sum() > 0 else np.full(held.size, 1 / held.size)
        rows += [(cuts[i] + 1, cuts[i + 1], float(counts[bucket] * held[i]), bucket) for i in range(cuts.size - 1)]
    columns = np.array(rows, dtype=np.float64).T
    return columns[0], columns[1], columns[2], columns[3]


def _shape(logs: Floats, below: Floats) -> Callable[[Floats], Floats]:
    """The share below a length, from that at the bounds inside; as straight as its end beyond them."""
    if logs.size < 2:
        return lambda at: at  # evenly over the logarithm
    quantiles = ndtri(np.clip(below, 1e-9, 1 - 1e-9))
    inside = PchipInterpolator(logs, quantiles)
    first, last = (np.diff(quantiles[part]) / np.diff(logs[part]) for part in (slice(0, 2), slice(-2, None)))

    def share(at: Floats) -> Floats:
        held = np.clip(at, logs[0], logs[-1])
        beyond = np.minimum(at - logs[0], 0.0) * first + np.maximum(at - logs[-1], 0.0) * last
        return np.asarray(ndtr(inside(held) + beyond))

    return share


def _with_mean(low: Floats, high: Floats, weight: Floats, bucket: Floats, mean: float) -> Floats:
    """Each bucket keeps its lengths; within all of them weight moves up or down until the mean is met."""
    middle = (low + high) / 2
    buckets = bucket.astype(int)
    held = np.bincount(buckets, weight)
    widest = np.zeros(held.size)
    np.maximum.at(widest, buckets, high)

    def tilted(steepness: float) -> Floats:
        moved = weight * np.exp(steepness * middle / widest[buckets])
        sums = np.bincount(buckets, moved)
        return np.asarray(moved * np.where(sums > 0, held / np.where(sums > 0, sums, 1.0), 0.0)[buckets])

    least, most = -_STEEPEST, _STEEPEST
    for _ in range(_BISECTIONS):
        steepness = (least + most) / 2
        moved = tilted(steepness)
        if float((moved * middle).sum() / moved.sum()) < mean:
            least = steepness
        else:
            most = steepness
    return tilted((least + most) / 2)
