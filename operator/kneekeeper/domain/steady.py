"""When a stage is warm, when it is steady, and when its open loop is more than the server carries.

All three are judged from a `Course`: counters that the load generator reads every few milliseconds.

Warm-up: MSER-5 (White, Cobb & Spratt, "A comparison of five steady-state truncation heuristics for
simulation", Winter Simulation Conference 2000). Of batch means Y_1 … Y_n of five observations each, the first
d* are cut,

    d* = argmin over d ≤ n/2 of  sum_{j>d} (Y_j - mean_{>d})² / (n - d)²,

and d* = n/2 means that the end of the warm-up has not been seen yet. The criterion is the squared standard error
of the mean; of cuts that are equally good within 0.5% of the mean the shortest is taken, else a level that
hardly varies is cut wherever its last flicker was. It is applied to the requests in flight
and to the rate of answers, never to latency quantiles; the later cut counts, and at least the mean duration
of a request is cut, since before that the server was not filled. The rate of answers stands for completions: it is
the same work, in tens to hundreds of pieces a request, so that its level shows in as many times fewer seconds.

Steady: what is left has no trend that is both significant (Kendall's tau over batch means, p < 0.01) and of a
size that matters (Theil-Sen slope times duration over 10% of the mean), and its two halves do not differ in
TTFT, again significantly (two-sample Kolmogorov-Smirnov, with the sample size divided by the variance
inflation, since latencies of neighbouring requests are correlated) and beyond a tolerance.

Saturation: in the younger half of the stage n requests arrived and c ended. A server that keeps up lets
n - c fluctuate around 0 with a variance of about n (ca² + cs²), squared coefficients of variation of the gaps
and of the service (heavy-traffic random walk: Kingman 1961; cs² = 1 is assumed). So the server does not keep up when

    n - c > 3 √(n (ca² + 1))          the rate deficit, and
    the number of requests without a first token rises (Kendall's tau over ten batch means, p < 0.01).

The second condition keeps a server apart that is only filling up: decodes pile up then, prefills do not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from kneekeeper.domain.stats import variance_inflation
from kneekeeper.domain.workload import Floats

MIN_OBSERVATION_S = 0.05
"""Course is resampled to equal intervals, not shorter than this: a step of an engine takes tens of milliseconds."""

MAX_OBSERVATIONS = 2000
"""Of a long stage the intervals become longer instead of more."""

BATCH = 5
"""Observations in a batch of MSER-5."""

MSER_TOLERANCE = 0.005
"""A longer cut that lowers the standard error of the mean by less than this share of the mean is not worth it."""

MIN_BATCHES = 10
"""With fewer batches nothing is called steady: with `MIN_OBSERVATION_S` a stage takes at least 2.5 s."""

TREND_BATCHES = 20
TREND_P_VALUE = 0.01
TREND_SHARE = 0.10
"""A trend that changes the level by less over the whole window does not move a P99 that is worth tuning for."""

HALVES_P_VALUE = 0.01
HALVES_DISTANCE = 0.1
HALVES_TOLERANCE = 1.1
"""With thousands of requests any difference is significant. One counts when this share of the requests moved,
and beyond this factor."""

MIN_HALF = 20
"""Requests in each half; with fewer the comparison of halves could not find anything."""

MAX_WARMUP_SHARE = 0.5

SATURATION_BATCHES = 10
SATURATION_SIGMAS = 3.0
SATURATION_P_VALUE = 0.01
MIN_SATURATION_ARRIVALS = 50
"""In the younger half; the normal approximation of the deficit's noise needs some."""

MIN_SATURATION_S = 5.0
"""Length of the younger half; a shorter one may be a single long prefill."""

_SERVICE_VARIATION = 1.0


@dataclass(frozen=True, eq=False)
class Course:
    """Counters of a stage at the times `t_s`, ascending, in seconds from its start; arrays of equal length.

    `arrived`, `ended` and `answers` count since the start: requests sent, requests ended, pieces of answers
    received. `waiting` is how many requests have not got any answer yet at that time.
    """

    t_s: Floats
    arrived: Floats
    ended: Floats
    waiting: Floats
    answers: Floats

    @property
    def elapsed_s(self) -> float:
        return float(self.t_s[-1]) if self.t_s.size else 0.0


@dataclass(frozen=True)
class Truncation:
    """`cut` leading observations are warm-up; `settled` False: its end has not been seen yet."""

    cut: int
    settled: bool


def mser5(observations: Floats) -> Truncation:
    """Where the warm-up ends, by MSER-5 (see the module's docstring). Unsettled below `MIN_BATCHES` batches."""
    batches = observations.size // BATCH
    if batches < MIN_BATCHES:
        return Truncation(observations.size // 2, settled=False)
    means = observations[: batches * BATCH].reshape(batches, BATCH).mean(axis=1)
    level = float(means.mean())
    means = means - level  # keeps the sums of squares below exact for large levels
    left = np.arange(batches, 0, -1, dtype=np.float64)
    sums = np.cumsum(means[::-1])[::-1]
    squares = np.cumsum(means[::-1] ** 2)[::-1]
    half = batches // 2
    criterion = (np.maximum(squares - sums**2 / left, 0.0) / left**2)[: half + 1]
    best = int(np.argmax(criterion <= criterion.min() + (MSER_TOLERANCE * level) ** 2))
    return Truncation(best * BATCH, settled=best < half)


def batch_means(observations: Floats, batches: int) -> Floats:
    """Means of `batches` neighbouring groups of almost equal size; fewer groups if there are fewer values."""
    batches = min(batches, observations.size)
    if batches == 0:
        return observations
    return np.array([group.mean() for group in np.array_split(observations, batches)])


def has_trend(observations: Floats) -> bool:
    """Whether the level changes by more than `TREND_SHARE` from first to last, and significantly so."""
    means = batch_means(observations, TREND_BATCHES)
    if means.size < 4 or np.ptp(means) == 0:
        return False
    at = np.arange(means.size)
    if stats.kendalltau(at, means).pvalue >= TREND_P_VALUE:
        return False
    change = abs(float(stats.theilslopes(means, at).slope)) * means.size
    return change > TREND_SHARE * abs(float(means.mean()))


def halves_differ(values: Floats) -> bool:
    """Whether one half of the positive values lies more than `HALVES_TOLERANCE` above the other, in distribution.

    False below 2 `MIN_HALF` values.
    """
    if values.size < 2 * MIN_HALF:
        return False
    first, second = values[: values.size // 2], values[values.size // 2 :]
    distance = max(
        float(stats.ks_2samp(HALVES_TOLERANCE * lower, higher, alternative="greater", method="asymp").statistic)
        for lower, higher in ((first, second), (second, first))
    )
    if distance <= HALVES_DISTANCE:
        return False
    inflation = variance_inflation(values > np.median(values))
    effective = first.size * second.size / values.size / inflation
    return float(stats.kstwobign.sf(distance * np.sqrt(effective))) < HALVES_P_VALUE


@dataclass(frozen=True)
class Steadiness:
    """`warmup_s` is cut from the front. `reason` says why a stage is not steady; empty when it is."""

    warmup_s: float
    reason: str = ""

    @property
    def steady(self) -> bool:
        return not self.reason


def steadiness(
    course: Course, *, intended_s: Floats, ttft_s: Floats, mean_e2e_s: float, warmup_at_least_s: float = 0.0
) -> Steadiness:
    """Judge a stage so far. `intended_s` and `ttft_s` are those of the requests that ended, in any order.

    The warm-up is at least `mean_e2e_s` and `warmup_at_least_s`, and at most half of the stage.
    """
    elapsed_s = course.elapsed_s
    longest_s = MAX_WARMUP_SHARE * elapsed_s
    interval_s = max(MIN_OBSERVATION_S, elapsed_s / MAX_OBSERVATIONS)
    if elapsed_s < interval_s * BATCH * MIN_BATCHES:
        return Steadiness(longest_s, "the stage is too short to tell")
    edges = np.arange(0.0, elapsed_s, interval_s)
    in_flight = np.interp(edges, course.t_s, course.arrived - course.ended)
    answers = np.diff(np.interp(edges, course.t_s, course.answers))
    cuts = {"requests in flight": mser5(in_flight), "rate of answers": mser5(answers)}
    warmup_s = max([cut.cut * interval_s for cut in cuts.values()] + [mean_e2e_s, warmup_at_least_s])
    for name, cut in cuts.items():
        if not cut.settled:
            return Steadiness(min(warmup_s, longest_s), f"the {name} are still warming up")
    if warmup_s > longest_s:
        return Steadiness(longest_s, "the warm-up took more than half of the stage")
    first = int(np.ceil(warmup_s / interval_s))
    for name, values in (("requests in flight", in_flight[first:]), ("rate of answers", answers[first:])):
        if has_trend(values):
            return Steadiness(warmup_s, f"the {name} drift")
    warm = intended_s >= warmup_s
    if halves_differ(ttft_s[warm][np.argsort(intended_s[warm], kind="stable")]):
        return Steadiness(warmup_s, "the TTFT of the first and the second half differ")
    return Steadiness(warmup_s)


@dataclass(frozen=True)
class Saturation:
    """The evidence that an open loop is more than the server carries, over the younger half of the stage."""

    window_s: float
    arrived: int
    ended: int
    waiting: int

    @property
    def message(self) -> str:
        return (
            f"{self.arrived} requests arrived in the last {self.window_s:.1f} s and {self.ended} ended; "
            f"{self.waiting} wait for their first token and their number grows."
        )


def saturation(course: Course, gap_variation: float) -> Saturation | None:
    """Whether the backlog of an open loop grows (see the module's docstring); None when it is not shown to.

    `gap_variation` is the squared coefficient of variation of the gaps between arrivals.
    """
    window_s = course.elapsed_s / 2
    if window_s < MIN_SATURATION_S:
        return None
    edges = np.linspace(window_s, course.elapsed_s, 20 * SATURATION_BATCHES)
    arrived, ended = (np.interp(edges, course.t_s, count) for count in (course.arrived, course.ended))
    arrivals, deficit = arrived[-1] - arrived[0], (arrived[-1] - arrived[0]) - (ended[-1] - ended[0])
    noise = np.sqrt(arrivals * (gap_variation + _SERVICE_VARIATION))
    if arrivals < MIN_SATURATION_ARRIVALS or deficit <= SATURATION_SIGMAS * noise:
        return None
    means = batch_means(np.interp(edges, course.t_s, course.waiting), SATURATION_BATCHES)
    if np.ptp(means) == 0:
        return None
    tau = stats.kendalltau(np.arange(means.size), means)
    if tau.statistic <= 0 or tau.pvalue >= SATURATION_P_VALUE:
        return None
    return Saturation(window_s, round(arrivals), round(ended[-1] - ended[0]), round(float(course.waiting[-1])))
