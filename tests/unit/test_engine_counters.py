from __future__ import annotations

from dataclasses import replace

import pytest

from kneekeeper.api.tuning_run import EngineCounters
from kneekeeper.domain.engine_counters import (
    acceptance_fault,
    counters_of,
    counts_of_stage,
    draft_acceptance,
    hit_fault,
    restart_fault,
)
from kneekeeper.domain.observation import EngineMetrics

METRICS = EngineMetrics(
    running=0,
    waiting=0,
    kv_cache_tokens=1000,
    generation_tokens_total=0.0,
    preemptions_total=0.0,
    prefix_cache_queries_total=10_000.0,
    prefix_cache_hits_total=4_000.0,
    draft_tokens_total=2_000.0,
    accepted_tokens_total=1_500.0,
)
SILENT = replace(
    METRICS,
    prefix_cache_queries_total=None,
    prefix_cache_hits_total=None,
    draft_tokens_total=None,
    accepted_tokens_total=None,
)


def test_a_stage_is_the_difference_between_two_readings():
    before = EngineCounters(
        prefix_cache_queries=2_000, prefix_cache_hits=2_000, draft_tokens=1_000, accepted_tokens=1_000
    )
    counts = counts_of_stage(before, METRICS)
    assert counts.hit_share == pytest.approx(2_000 / 8_000)
    assert counts.draft_acceptance == pytest.approx(0.5)


@pytest.mark.parametrize("before", [None, counters_of(SILENT), counters_of(METRICS)])
def test_nothing_is_known_without_two_readings_or_where_nothing_was_counted(before):
    counts = counts_of_stage(before, METRICS)
    assert (counts.hit_share, counts.draft_acceptance) == (None, None)


def test_an_engine_that_began_anew_in_between_tells_nothing():
    before = EngineCounters(prefix_cache_queries=50_000, prefix_cache_hits=9_000)
    assert counts_of_stage(before, METRICS).hit_share is None


def test_a_counter_that_went_back_is_of_an_engine_that_began_anew():
    before = counters_of(replace(METRICS, generation_tokens_total=9_000.0))
    assert restart_fault(before, replace(METRICS, generation_tokens_total=9_000.0)) is None
    assert restart_fault(before, replace(SILENT, generation_tokens_total=9_001.0)) is None
    told = restart_fault(before, replace(METRICS, generation_tokens_total=8_999.0))
    assert told is not None
    assert "began anew" in told


@pytest.mark.parametrize(("expected", "seen"), [(0.0, 0.0), (0.0, 0.03), (0.5, 0.47), (0.5, 0.53), (0.0, None)])
def test_a_share_within_three_points_is_the_declared_one(expected, seen):
    assert hit_fault(expected, seen) is None


@pytest.mark.parametrize(
    ("expected", "seen", "next_step"),
    [
        (0.5, 0.46, "too small to keep the shared prefixes"),
        (0.0, 0.04, "keeps prompts of earlier stages"),
        (0.5, None, "set spec.workload.prefixCacheHitPercent to 0"),
    ],
)
def test_a_share_more_than_three_points_off_is_told_with_the_next_step(expected, seen, next_step):
    fault = hit_fault(expected, seen)
    assert fault is not None
    assert next_step in fault


@pytest.mark.parametrize(("production", "seen"), [(None, 0.1), (0.7, None), (0.7, 0.61), (0.7, 0.79)])
def test_an_acceptance_within_ten_points_is_productions(production, seen):
    assert acceptance_fault(production, seen) is None


@pytest.mark.parametrize("seen", [0.59, 0.81])
def test_an_acceptance_more_than_ten_points_off_is_another_workload(seen):
    fault = acceptance_fault(0.7, seen)
    assert fault is not None
    assert "production 70.0%" in fault


def test_the_acceptance_of_several_engines_is_that_of_all_their_drafts():
    busy = replace(METRICS, draft_tokens_total=8_000.0, accepted_tokens_total=2_000.0)
    assert draft_acceptance([METRICS, busy, SILENT]) == pytest.approx(3_500 / 10_000)
    assert draft_acceptance([SILENT]) is None
    assert draft_acceptance([replace(METRICS, draft_tokens_total=50.0, accepted_tokens_total=50.0)]) is None
