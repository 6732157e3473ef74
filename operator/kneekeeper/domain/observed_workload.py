"""The workload that production's metrics tell of, as a profile would declare it.

Bursts: vLLM counts first tokens, not arrivals, and a scrape tells their number in a minute, not their gaps. A renewal
process with Gamma gaps of shape k has over long intervals an index of dispersion of counts of 1/k (Cox & Lewis, "The
Statistical Analysis of Series of Events", 1966, 4.3). The variance of a minute's count is taken from the differences
of neighbours (von Neumann 1941), so that the daily rise and fall does not count as a burst, and of these the median,
so that neither does an hour of another kind.
Where requests queue, first tokens come more evenly than their arrivals did: k is then too high, and promises made
for it too optimistic; certification at 1.2 times the rate is what stands against that.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from kneekeeper.api.observed import Confidence, DayOfTraffic, HourOfTraffic, ObservedWorkload
from kneekeeper.api.workload import ArrivalProcess, ArrivalSpec, Workload
from kneekeeper.domain.diagnose.reading import Histogram
from kneekeeper.domain.length_histogram import lengths_of, together
from kneekeeper.domain.passive import EngineHistory
from kneekeeper.domain.traffic_history import FirstTokens, TrafficHistory, TrafficHour

FEWEST_REQUESTS = 300
"""A 99th percentile of fewer is one or two requests."""

HIGH_FROM_REQUESTS, HIGH_FROM_HOURS = 20_000, 20
MEDIUM_FROM_REQUESTS, MEDIUM_FROM_HOURS = 2_000, 3

LIKE_POISSON = (0.8, 1.25)
"""Shapes between these are not told from Poisson."""

LEAST_PER_MINUTE = 10.0
"""Mean requests of a minute whose variation is looked at: their number is then nearly normal."""

FEWEST_MINUTES = 30
OUTLIVED_S = 7 * 86_400.0
"""What was learned so long ago gives way to anything newer."""

_HOUR_S = 3600.0
MINUTE_S = 60.0
_MEDIAN_OF_A_SQUARE = 0.6745**2
"""Of a normal variable, in its variances."""
_BURSTIEST, _EVENEST = 0.05, 100.0
_MOST_REQUESTS = 2.0**53
"""What a status carries."""


def learn(traffic: TrafficHistory, engines: Sequence[EngineHistory], now: datetime) -> ObservedWorkload | None:
    """None where too few requests were seen to tell a 99th percentile."""
    seen = [hour for hour in traffic.hours if hour.requests > 0]
    prompts = together([hour.prompt_tokens for hour in seen if hour.prompt_tokens is not None])
    outputs = together([hour.output_tokens for hour in seen if hour.output_tokens is not None])
    if prompts is None or outputs is None or outputs.count < FEWEST_REQUESTS:
        return None
    prompt_tokens, output_tokens = lengths_of(prompts), lengths_of(outputs)
    if prompt_tokens is None or output_tokens is None:
        return None
    hit = _hit_percent(seen)
    prompt_low, prompt_high = _p99(prompts)
    output_low, output_high = _p99(outputs)
    rates = [hour.requests / _HOUR_S for hour in seen]
    return ObservedWorkload(
        workload=Workload(
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            arrivals=_arrivals(traffic.first_tokens),
            prefix_cache_hit_percent=hit or 0,
        ),
        confidence=_confidence(outputs.count, len(seen)),
        requests=round(min(outputs.count, _MOST_REQUESTS)),
        seen=len(seen) * _HOUR_S,
        until=now,
        requests_per_second=float(np.mean(rates)),
        peak_requests_per_second=max(rates),
        concurrency=_peak_concurrency(engines),
        prompt_p99_lower=prompt_low,
        prompt_p99_upper=prompt_high,
        output_p99_lower=output_low,
        output_p99_upper=output_high,
        hours=_hours(traffic.hours),
        days=_days(traffic.hours),
    )


def better(known: ObservedWorkload | None, newer: ObservedWorkload | None, now: datetime) -> ObservedWorkload | None:
    """The one to keep. New pods begin without history, so what was learned of more requests outlives a rollout."""
    if known is None or newer is None:
        return newer or known
    outlived = (now - known.until).total_seconds() > OUTLIVED_S
    ranks = list(reversed(Confidence))
    return newer if outlived or ranks.index(newer.confidence) >= ranks.index(known.confidence) else known


def _confidence(requests: float, hours: int) -> Confidence:
    if requests >= HIGH_FROM_REQUESTS and hours >= HIGH_FROM_HOURS:
        return Confidence.HIGH
    if requests >= MEDIUM_FROM_REQUESTS and hours >= MEDIUM_FROM_HOURS:
        return Confidence.MEDIUM
    return Confidence.LOW


def _arrivals(replicas: Sequence[FirstTokens]) -> ArrivalSpec:
    """Of one replica: that is what a run measures."""
    known = [found for replica in replicas if (found := _dispersion(replica)) is not None]
    if not known:
        return ArrivalSpec()
    shape = 1 / max(float(np.average([d for d, _ in known], weights=[w for _, w in known])), 1 / _EVENEST)
    if LIKE_POISSON[0] <= shape <= LIKE_POISSON[1]:
        return ArrivalSpec()
    percent = round(100 * min(max(shape, _BURSTIEST), _EVENEST))
    return ArrivalSpec(process=ArrivalProcess.GAMMA, burstiness_percent=percent)


def _dispersion(replica: FirstTokens) -> tuple[float, float] | None:
    """Index of dispersion of the counts, and the requests it rests on; None where they are too few.

    Of neighbouring counts n of a rate r over t seconds, n2 - n1 t2/t1 has the variance I r (t2 + t2²/t1).
    """
    chosen = [0] if replica.at_s.size else []
    for index in range(1, replica.at_s.size):
        if replica.at_s[index] - replica.at_s[chosen[-1]] >= MINUTE_S:
            chosen.append(index)
    times_s, counts = np.diff(replica.at_s[chosen]), np.diff(replica.total[chosen])
    if counts.size < FEWEST_MINUTES:
        return None
    earlier, later = slice(0, -1), slice(1, None)
    alike = (counts[earlier] >= 0) & (counts[later] >= 0) & (times_s[earlier] < 3 * MINUTE_S)
    alike &= times_s[later] < 3 * MINUTE_S
    rate = (counts[earlier] + counts[later]) / (times_s[earlier] + times_s[later])
    busy = alike & (rate * MINUTE_S >= LEAST_PER_MINUTE)
    if np.count_nonzero(busy) < FEWEST_MINUTES:
        return None
    ratio = times_s[later] / times_s[earlier]
    steps = (counts[later] - counts[earlier] * ratio)[busy]
    variance = (rate * times_s[later] * (1 + ratio))[busy]
    return float(np.median(steps**2 / variance)) / _MEDIAN_OF_A_SQUARE, float(counts[later][busy].sum())


def _p99(histogram: Histogram) -> tuple[int, int]:
    """The bounds that it lies between; twice the last bound stands for beyond it."""
    low, high = histogram.quantile_bracket(0.99) or (0.0, 0.0)
    return round(low), round(high if np.isfinite(high) else 2 * low)


def _hit_percent(hours: Sequence[TrafficHour]) -> int | None:
    """None where the prefix cache is off or not counted."""
    counted = [h for h in hours if h.prefix_queries is not None and h.prefix_hits is not None]
    queries = sum(hour.prefix_queries or 0.0 for hour in counted)
    return round(100 * min(1.0, sum(hour.prefix_hits or 0.0 for hour in counted) / queries)) if queries > 0 else None


def _peak_concurrency(engines: Sequence[EngineHistory]) -> float | None:
    """Of all replicas together, in the busiest window."""
    by_time: dict[float, float] = {}
    for engine in engines:
        for at_s, running, waiting in zip(engine.at_s, engine.running, engine.waiting, strict=True):
            if not np.isnan(running):
                by_time[float(at_s)] = by_time.get(float(at_s), 0.0) + float(running) + float(np.nan_to_num(waiting))
    return max(by_time.values(), default=None)


def _begins(hour: TrafficHour) -> datetime:
    return datetime.fromtimestamp(hour.at_s - _HOUR_S, UTC)


def _hours(hours: Sequence[TrafficHour]) -> list[HourOfTraffic]:
    found = []
    for each in range(24):
        at = [hour for hour in hours if _begins(hour).hour == each]
        if not at:
            continue
        prompts = together([hour.prompt_tokens for hour in at if hour.prompt_tokens is not None])
        outputs = together([hour.output_tokens for hour in at if hour.output_tokens is not None])
        found.append(
            HourOfTraffic(
                hour=each,
                requests_per_second=float(np.mean([hour.requests for hour in at])) / _HOUR_S,
                prompt_tokens_mean=prompts.mean if prompts is not None else None,
                output_tokens_mean=outputs.mean if outputs is not None else None,
                prefix_cache_hit_percent=_hit_percent(at),
            )
        )
    return found


def _days(hours: Sequence[TrafficHour]) -> list[DayOfTraffic]:
    found = []
    for day in range(7):
        at = [hour.requests / _HOUR_S for hour in hours if _begins(hour).weekday() == day]
        if at:
            found.append(DayOfTraffic(day=day, requests_per_second=float(np.mean(at))))
    return found
