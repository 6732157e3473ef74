"""The workload that metrics tell of, and what is predicted for it against what is predicted for the true one."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from kneekeeper.api.model import Setting
from kneekeeper.api.observed import Confidence
from kneekeeper.api.offered_load import Lengths, LogNormal
from kneekeeper.api.workload import ArrivalProcess
from kneekeeper.domain.observed_workload import OUTLIVED_S, better, learn
from kneekeeper.domain.plan.requests import burstiness_of, lengths_of
from kneekeeper.domain.traffic_history import FirstTokens, TrafficHistory, TrafficHour
from kneekeeper.domain.twin import Law, Load, simulate
from kneekeeper.domain.twin.traffic import TwinTraffic
from tests.unit.history_builders import day, history
from tests.unit.test_length_histogram import buckets, log_normal

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
HOUR_S = 3600.0


def hour(
    at: datetime, count: int = 1000, prompt: float = 600.0, seed: int = 1, hits: float | None = None
) -> TrafficHour:
    prompts, outputs = log_normal(prompt, 0.8, count, seed), log_normal(200, 0.6, count, seed + 1000)
    queries = float(prompts.sum())
    counted = (None, None) if hits is None else (queries, hits * queries)
    return TrafficHour(at.timestamp(), buckets(prompts), buckets(outputs), *counted)


def days(whole: int, hours: int = 24, **of_hour) -> tuple[TrafficHour, ...]:
    return tuple(hour(NOW - timedelta(hours=each), seed=each, **of_hour) for each in reversed(range(whole * hours)))


def scraped(shape: float, per_minute: float = 60.0, missed: float = 0.0, seed: int = 1) -> FirstTokens:
    """Six hours of a Gamma process whose rate rises and falls, scraped every 15 s but for those that are missed."""
    rng = np.random.default_rng(seed)
    even_s = np.cumsum(rng.gamma(shape, 60 / per_minute / shape, int(420 * per_minute)))
    times_s = even_s + 3600 * np.sin(even_s / 12_000)
    at_s = np.arange(0, 6 * HOUR_S, 15.0)
    at_s = at_s[rng.random(at_s.size) >= missed]
    return FirstTokens(at_s, np.searchsorted(times_s, at_s).astype(np.float64))


def test_lengths_rate_hits_and_concurrency_are_those_that_were_seen():
    found = learn(TrafficHistory(days(1, hits=0.3)), [history(day(5, 60)), history(day(5, 60), pod="chat-b")], NOW)
    assert found is not None
    assert found.workload.prompt_tokens is not None
    assert found.workload.output_tokens is not None
    assert found.workload.prefix_cache_hit_percent == 30
    assert found.requests == 24_000
    assert found.requests_per_second == pytest.approx(1000 / HOUR_S)
    assert found.concurrency == pytest.approx(120, rel=0.01)
    assert found.prompt_p99_lower < np.quantile(log_normal(600, 0.8), 0.99) <= found.prompt_p99_upper
    assert found.confidence is Confidence.HIGH


def test_hours_of_the_day_and_days_of_the_week_are_told_apart():
    busy = [
        hour(NOW - timedelta(hours=h), 3000 if (NOW - timedelta(hours=h + 1)).hour == 9 else 500) for h in range(48)
    ]
    found = learn(TrafficHistory(tuple(reversed(busy))), [], NOW)
    assert found is not None
    rates = {each.hour: each.requests_per_second for each in found.hours}
    assert rates[9] == pytest.approx(3000 / HOUR_S)
    assert all(rate == pytest.approx(500 / HOUR_S) for at, rate in rates.items() if at != 9)
    assert {each.day for each in found.days} == {0, 1, 2}


def test_few_requests_tell_no_workload():
    assert learn(TrafficHistory((hour(NOW, 250),)), [], NOW) is None
    assert learn(TrafficHistory(()), [], NOW) is None


@pytest.mark.parametrize(
    ("count", "hours", "confidence"),
    [(1000, 24, Confidence.HIGH), (1000, 4, Confidence.MEDIUM), (400, 1, Confidence.LOW)],
)
def test_confidence_follows_from_requests_and_hours(count: int, hours: int, confidence: Confidence):
    found = learn(TrafficHistory(days(1, hours, count=count)), [], NOW)
    assert found is not None
    assert found.confidence is confidence


@pytest.mark.parametrize("missed", [0.0, 0.08])
@pytest.mark.parametrize("shape", [0.25, 0.5, 1.0])
def test_bursts_are_found_whatever_the_daily_curve_and_missed_scrapes(shape: float, missed: float):
    columns = tuple(scraped(shape, missed=missed, seed=seed) for seed in range(3))
    found = learn(TrafficHistory(days(1), columns), [], NOW)
    assert found is not None
    told = burstiness_of(found.workload.arrivals)
    assert told == pytest.approx(shape, rel=0.35)
    assert (found.workload.arrivals.process is ArrivalProcess.POISSON) == (shape == 1.0)


def test_what_was_learned_of_more_requests_outlives_a_rollout_but_not_a_week():
    high, low = learn(TrafficHistory(days(1)), [], NOW), learn(TrafficHistory((hour(NOW, 400),)), [], NOW)
    assert better(high, low, NOW + timedelta(hours=1)) is high
    assert better(low, high, NOW) is high
    assert better(high, None, NOW) is high
    assert better(None, low, NOW) is low
    assert better(high, low, NOW + timedelta(seconds=OUTLIVED_S + 1)) is low


SETTING = Setting(max_num_seqs=64, max_num_batched_tokens=2048)
LAW = Law(base_s=0.012, per_sequence_s=1.2e-4, per_kv_token_s=6e-8, per_prefill_token_s=5e-5, prefill_step_s=1e-3)


def p99s(prompt: Lengths, output: Lengths, burstiness: float | None, rate: float) -> tuple[float, float]:
    """TTFT and TPOT in seconds, on the twin, the median of some seeds: a P99 near saturation is a matter of luck."""
    found = []
    traffic = TwinTraffic(prompt, output, burstiness)
    for seed in range(5):
        drawn = traffic.draw(6000, seed)
        load = Load(drawn.arrival_s, drawn.prompt_tokens, drawn.output_tokens).at_rate(rate)
        result = simulate(load, traffic.limits(SETTING), LAW)
        found.append((np.quantile(result.ttft_s[500:], 0.99), np.nanquantile(result.tpot_s[500:], 0.99)))
    ttft_s, tpot_s = np.median(np.array(found), axis=0)
    return float(ttft_s), float(tpot_s)


@pytest.mark.parametrize(("prompt", "sigma", "output"), [(600, 0.9, 200), (1500, 0.6, 120), (250, 0.5, 350)])
def test_p99s_predicted_for_the_learned_workload_are_within_a_tenth_of_the_true_ones(
    prompt: float, sigma: float, output: float
):
    true_prompt, true_output = (
        LogNormal(mean=prompt, sigma=sigma, maximum=9000),
        LogNormal(mean=output, sigma=0.6, maximum=2000),
    )
    seen = tuple(
        TrafficHour(
            (NOW - timedelta(hours=each)).timestamp(),
            buckets(np.minimum(log_normal(prompt, sigma, 2000, each), 9000)),
            buckets(np.minimum(log_normal(output, 0.6, 2000, each + 500), 2000)),
        )
        for each in range(24)
    )
    found = learn(TrafficHistory(seen, (scraped(1.0),)), [], NOW)
    assert found is not None
    workload = found.workload
    assert workload.prompt_tokens is not None
    assert workload.output_tokens is not None
    learned = lengths_of(workload.prompt_tokens, None), lengths_of(workload.output_tokens, None)
    rate = 0.75 * 64 / (output * LAW.base_s * 2 + prompt * 64 * LAW.per_prefill_token_s)
    predicted = p99s(*learned, burstiness_of(workload.arrivals), rate)
    true = p99s(true_prompt, true_output, 1.0, rate)
    assert predicted == pytest.approx(true, rel=0.10)
    assert all(map(math.isfinite, true))
