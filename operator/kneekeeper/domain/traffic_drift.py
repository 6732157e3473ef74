"""How far the traffic has moved from the workload that a setting was certified for, by the size of the effect.

With as many requests as production has, any difference is significant, so no p-value is asked. What counts is what an
engine has to do more or less of:

- **Lengths** of prompts and of answers: the earth mover's distance between both distributions over the mean of the
  certified one. It is the share of the tokens that would have to be moved, at least the relative change of the mean,
  and more where short and long requests trade places (Rubner, Tomasi & Guibas 2000; in one dimension it is the area
  between the two distribution functions).
- **Prefix hits**: the share of prompt tokens that must be computed.
- **Bursts**: (ca² + 1)/2 with ca² = 1/k for Gamma gaps of shape k, to which the queueing time of a loaded server is
  proportional (Kingman 1961).

The rate is none of them: a certified rate holds whatever is offered, and more replicas answer more of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kneekeeper.api.offered_load import Bin, Empirical, Lengths
from kneekeeper.api.workload import Workload
from kneekeeper.domain.lengths import mean_tokens, mixture
from kneekeeper.domain.plan.requests import burstiness_of, lengths_of
from kneekeeper.domain.samples import Floats

LENGTHS_MOVED = 0.25
"""Of the tokens. Learned from 2,000 requests, lengths of one distribution differ by a few hundredths."""

COMPUTED_TIMES = 1.25
"""As many prompt tokens to compute, or as few."""

QUEUE_TIMES = 1.5
"""As long a queue, or as short: Gamma of shape 0.5 against Poisson. Shapes are learned to a third."""

LEAST_COMPUTED = 0.05
"""Of a prompt: its last block is never taken from the prefix cache."""

BEGINS, ENDS = 1.0, 0.5
"""Of the sizes above: drift begins where one is passed, and ends where all have come back below half."""


@dataclass(frozen=True)
class Shift:
    """One thing that moved; `size` 1 is as far as is worth a run. `what` is for people."""

    what: str
    size: float


def largest_shift(certified: Workload, now: Workload) -> Shift | None:
    """What moved furthest; None where the two are not both of one kind of requests with lengths of their own."""
    pairs = (
        ("prompts", certified.prompt_tokens, now.prompt_tokens),
        ("answers", certified.output_tokens, now.output_tokens),
    )
    if any(before is None or after is None for _, before, after in pairs):
        return None
    shifts = [
        _of_lengths(name, lengths_of(before, None), lengths_of(after, None))
        for name, before, after in pairs
        if before is not None and after is not None
    ]
    shifts += [_of_prefix_hits(certified, now), _of_bursts(certified, now)]
    return max(shifts, key=lambda shift: shift.size)


def _of_lengths(name: str, before: Lengths, after: Lengths) -> Shift:
    old, new = mean_tokens(before), mean_tokens(after)
    moved = earth_movers_tokens(before, after) / old
    what = f"{name} have {new:.0f} tokens on average instead of {old:.0f}, {moved:.0%} of the tokens moved"
    return Shift(what, moved / LENGTHS_MOVED)


def _of_prefix_hits(certified: Workload, now: Workload) -> Shift:
    before, after = certified.prefix_cache_hit_percent, now.prefix_cache_hit_percent
    computed = [max(LEAST_COMPUTED, 1 - percent / 100) for percent in (before, after)]
    size = abs(math.log(computed[1] / computed[0])) / math.log(COMPUTED_TIMES)
    return Shift(f"the prefix cache serves {after}% of the prompt tokens instead of {before}%", size)


def _of_bursts(certified: Workload, now: Workload) -> Shift:
    queues = [_queue(burstiness_of(workload.arrivals)) for workload in (certified, now)]
    size = abs(math.log(queues[1] / queues[0])) / math.log(QUEUE_TIMES)
    return Shift(f"bursts make requests queue {queues[1] / queues[0]:.2g} times as long", size)


def _queue(shape: float | None) -> float:
    """Kingman's factor with service times that vary like exponential ones; None are constant gaps."""
    return ((0.0 if shape is None else 1 / shape) + 1) / 2


def earth_movers_tokens(one: Lengths, other: Lengths) -> float:
    """Mean tokens by which a request of one kind has to change to become one of the other."""
    at = np.unique(np.concatenate([_edges(one), _edges(other)]))
    apart = _below(one, at) - _below(other, at)
    left, right = np.abs(apart[:-1]), np.abs(apart[1:])
    # Straight between two edges; where the sign changes, two triangles.
    crossing = apart[:-1] * apart[1:] < 0
    both = np.where(crossing, left + right, 1.0)
    area = np.where(crossing, (left**2 + right**2) / both, left + right) / 2
    return float(np.sum(area * np.diff(at)))


def _edges(lengths: Lengths) -> Floats:
    bins = _bins(lengths)
    return np.array([edge for each in bins for edge in (each.low - 1, each.high)], dtype=np.float64)


def _below(lengths: Lengths, at: Floats) -> Floats:
    """The share of lengths up to each of these, straight between the ends of each bin."""
    bins = _bins(lengths)
    low, high, weight = (
        np.array([getattr(each, name) for each in bins], dtype=np.float64) for name in ("low", "high", "weight")
    )
    within = np.clip((at[:, np.newaxis] - (low - 1)) / (high - low + 1), 0.0, 1.0)
    return np.asarray((within * weight).sum(axis=1) / weight.sum())


def _bins(lengths: Lengths) -> tuple[Bin, ...]:
    """As a histogram; what is not one is cut at its quantiles."""
    return lengths.bins if isinstance(lengths, Empirical) else mixture([(1, lengths)]).bins
