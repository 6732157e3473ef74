from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from kneekeeper.domain.steady import (
    BATCH,
    MIN_BATCHES,
    Course,
    Saturation,
    Steadiness,
    Truncation,
    halves_differ,
    has_trend,
    mser5,
    saturation,
    steadiness,
)
from kneekeeper.domain.workload import Floats

TICK_S = 0.1


@dataclass(frozen=True, eq=False)
class Queue:
    """What a first-come-first-served server with `servers` slots makes of an open loop."""

    arrived_s: Floats
    first_s: Floats
    ended_s: Floats

    def course(self, until_s: float) -> Course:
        times = np.arange(TICK_S, until_s, TICK_S)
        arrived, first, ended = (
            np.searchsorted(np.sort(at), times, side="right").astype(float)
            for at in (self.arrived_s, self.first_s, self.ended_s)
        )
        return Course(times, arrived, ended, arrived - first, np.cumsum(first - ended) * TICK_S * 30)

    def saturated_at(self) -> float | None:
        """When the growing backlog is noticed, looking as often as the agent does."""
        moments = np.geomspace(2, self.arrived_s[-1], 100)
        return next((float(at) for at in moments if saturation(self.course(at), 1.0) is not None), None)

    def steadiness(self, until_s: float, warmup_at_least_s: float = 0.0) -> Steadiness:
        done = self.ended_s <= until_s
        return steadiness(
            self.course(until_s),
            intended_s=self.arrived_s[done],
            ttft_s=(self.first_s - self.arrived_s)[done],
            mean_e2e_s=float((self.ended_s - self.arrived_s)[done].mean()),
            warmup_at_least_s=warmup_at_least_s,
        )


def queue(utilisation: float, *, servers: int = 16, service_s: float = 1.0, requests: int = 2000, seed: int) -> Queue:
    rng = np.random.default_rng(seed)
    arrived_s = np.cumsum(rng.exponential(service_s / (utilisation * servers), requests))
    services_s = rng.lognormal(np.log(service_s) - 0.7**2 / 2, 0.7, requests)
    free = [0.0] * servers
    started_s = np.empty(requests)
    for index, (at, service) in enumerate(zip(arrived_s, services_s, strict=True)):
        started_s[index] = max(heapq.heappop(free), at)
        heapq.heappush(free, started_s[index] + service)
    return Queue(arrived_s, started_s + 0.02, started_s + services_s)


finite = st.floats(-1e6, 1e6, allow_subnormal=False)


@given(arrays.arrays(np.float64, st.integers(0, 400), elements=finite))
def test_mser5_never_cuts_more_than_half(observations):
    truncation = mser5(observations)
    assert 0 <= truncation.cut <= observations.size / 2
    assert not truncation.settled or observations.size >= BATCH * MIN_BATCHES


@given(st.integers(60, 300), st.integers(5, 25), st.integers(0, 2**32))
def test_mser5_cuts_a_ramp_and_no_more(steady, ramp, seed):
    rng = np.random.default_rng(seed)
    ramp *= 2
    observations = np.concatenate([np.linspace(0, 100, ramp, endpoint=False), 100 + rng.normal(0, 0.5, steady)])
    truncation = mser5(observations)
    assert observations[truncation.cut :].mean() == pytest.approx(100, rel=0.015)
    assert truncation.cut <= ramp + BATCH


def test_mser5_equals_its_definition():
    observations = np.random.default_rng(3).exponential(2.0, 200) + np.maximum(0, 10 - np.arange(200) / 4)
    means = observations.reshape(40, 5).mean(axis=1)
    criteria = [((means[d:] - means[d:].mean()) ** 2).sum() / (40 - d) ** 2 for d in range(21)]
    enough = min(criteria) + (0.005 * means.mean()) ** 2
    assert mser5(observations).cut == next(d for d, value in enumerate(criteria) if value <= enough) * 5


@given(st.integers(0, 299), st.floats(0.9, 1.1))
def test_mser5_does_not_cut_a_level_for_one_flicker(at, share):
    observations = np.full(300, 8.0)
    observations[at] *= share
    assert mser5(observations) == Truncation(0, settled=True)


def test_mser5_keeps_a_constant_level_whole():
    assert mser5(np.full(100, 1e6)).cut == 0


def test_a_series_that_only_climbs_never_settles():
    assert not mser5(np.arange(200.0)).settled


def test_trends_are_seen_by_size_and_significance():
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 1, 400)
    assert not has_trend(100 + noise)
    assert not has_trend(np.linspace(100, 104, 400) + 0.1 * noise)
    assert has_trend(np.linspace(100, 130, 400) + noise)
    assert not has_trend(np.linspace(100, 130, 400) + 200 * noise)
    assert not has_trend(np.zeros(400))


def test_halves_of_independent_draws_seldom_differ_and_shifted_ones_do():
    rng = np.random.default_rng(0)
    assert sum(halves_differ(rng.lognormal(0, 1, 100)) for _ in range(200)) <= 6
    assert halves_differ(np.concatenate([rng.lognormal(0, 0.3, 100), rng.lognormal(1, 0.3, 100)]))
    assert not halves_differ(np.array([1.0] * 10 + [2.0] * 10))


def test_correlated_values_need_more_evidence_to_differ():
    rng = np.random.default_rng(1)
    walks = []
    for _ in range(200):
        steps, walk = rng.normal(0, 1, 400), np.empty(400)
        walk[0] = steps[0]
        for i in range(1, 400):
            walk[i] = 0.9 * walk[i - 1] + steps[i]
        walks.append(np.exp(walk / 4))
    with_inflation = sum(halves_differ(walk) for walk in walks)
    shuffled = sum(halves_differ(rng.permutation(walk)) for walk in walks)
    assert shuffled <= 6
    assert with_inflation <= 20


@pytest.mark.parametrize("utilisation", [0.3, 0.7, 0.9])
def test_a_server_that_keeps_up_is_not_called_saturated(utilisation):
    assert [queue(utilisation, seed=seed).saturated_at() for seed in range(10)] == [None] * 10


@pytest.mark.parametrize(("utilisation", "requests"), [(1.2, 1800), (1.5, 700), (3.0, 700)])
def test_a_growing_backlog_is_noticed(utilisation, requests):
    for seed in range(10):
        load = queue(utilisation, requests=2500, seed=seed)
        noticed_s = load.saturated_at()
        assert noticed_s is not None
        assert np.searchsorted(load.arrived_s, noticed_s) <= requests


def test_a_server_that_only_fills_up_is_not_called_saturated():
    """Requests take 60 s: for a minute none ends, but each gets its first token at once."""
    rng = np.random.default_rng(0)
    arrived_s = np.cumsum(rng.exponential(0.1, 600))
    load = Queue(arrived_s, arrived_s + 0.05, arrived_s + 60)
    assert load.saturated_at() is None


def test_saturation_tells_what_it_saw():
    found = saturation(queue(3.0, seed=0).course(30), 1.0)
    assert isinstance(found, Saturation)
    assert found.arrived > found.ended
    assert str(found.waiting) in found.message


def test_bursty_arrivals_need_a_larger_deficit():
    course = queue(1.3, seed=4, requests=1000).course(35)
    assert saturation(course, 1.0) is not None
    assert saturation(course, 100.0) is None


def test_a_moderate_load_becomes_steady_with_the_fill_up_cut():
    verdicts = [queue(0.7, seed=seed).steadiness(60) for seed in range(10)]
    assert sum(verdict.steady for verdict in verdicts) >= 8
    assert all(verdict.warmup_s >= 0.9 for verdict in verdicts)  # a request takes 1 s


def test_an_overload_is_not_called_steady():
    assert not any(queue(1.5, seed=seed).steadiness(60).steady for seed in range(10))


def test_a_short_stage_is_not_steady_and_says_why():
    verdict = queue(0.5, seed=0).steadiness(2.0)
    assert not verdict.steady
    assert "too short" in verdict.reason


def test_the_warm_up_is_at_least_what_is_asked_and_at_most_half():
    load = queue(0.5, seed=0)
    assert load.steadiness(40, warmup_at_least_s=15).warmup_s == 15
    late = load.steadiness(40, warmup_at_least_s=25)
    assert late.warmup_s == pytest.approx(20, abs=0.2)
    assert not late.steady


def test_a_course_without_readings_is_empty():
    nothing = np.array([])
    empty = Course(nothing, nothing, nothing, nothing, nothing)
    assert empty.elapsed_s == 0
    assert saturation(empty, 1.0) is None
    assert not steadiness(empty, intended_s=nothing, ttft_s=nothing, mean_e2e_s=0).steady
