"""A choice from production's metrics alone: only where traffic shows enough, and inside what it has shown."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kneekeeper.api.model import Setting
from kneekeeper.api.offered_load import LogNormal
from kneekeeper.api.run_plan import SettingBounds
from kneekeeper.api.stage import Slo
from kneekeeper.domain.production_choice import Evidence, Lack, NotEnough, Prediction, evidence_of, predict
from kneekeeper.domain.twin.traffic import TwinTraffic
from tests.unit.history_builders import day
from tests.unit.record_builders import BASE_S, KV_CACHE_TOKENS, OUTPUT_TOKENS, PROMPT_TOKENS, record

BUSY = day(2, 130)
TRAFFIC = TwinTraffic(
    prompt_tokens=LogNormal(mean=PROMPT_TOKENS, sigma=0.5, maximum=900),
    output_tokens=LogNormal(mean=OUTPUT_TOKENS, sigma=0.5, maximum=300),
    kv_cache_tokens=KV_CACHE_TOKENS,
)
PRESENT = Setting(max_num_seqs=128, max_num_batched_tokens=2048)
BOUNDS = SettingBounds(
    lowest=Setting(max_num_seqs=32, max_num_batched_tokens=1024),
    highest=Setting(max_num_seqs=512, max_num_batched_tokens=8192),
)


def evidence() -> Evidence:
    found = evidence_of([record(BUSY)])
    assert isinstance(found, Evidence), found
    return found


def lack_of(*records: object) -> NotEnough:
    found = evidence_of(records)  # type: ignore[arg-type]
    assert isinstance(found, NotEnough)
    return found


def test_a_day_of_ordinary_traffic_tells_the_law_and_the_knee():
    found = evidence()
    assert found.law.law.base_s == pytest.approx(BASE_S, rel=0.1)
    assert found.knee.lower < 150 < found.knee.upper
    assert found.kv_cache_tokens == KV_CACHE_TOKENS


def test_the_weakest_replica_is_the_one_to_choose_by():
    found = evidence_of([record(BUSY), record(day(2, 130) * 0.8, pod="chat-1", slowness=1.5)])
    alone = evidence()
    assert isinstance(found, Evidence)
    assert found.replicas == 2
    weakest = {"chat-0": 1.0, "chat-1": 1.5}[found.pod]
    assert found.law.law.base_s == pytest.approx(weakest * alone.law.law.base_s, rel=0.1)


@pytest.mark.parametrize("records", [[record(day(1, 20))], [record(np.full(288, 60.0))], [record(BUSY[:8])]])
def test_traffic_that_never_came_near_the_knee_is_not_observed(records: list[object]):
    found = lack_of(*records)
    assert found.reason is Lack.NOT_OBSERVED
    assert "No replica came near its knee" in found.message


def test_what_prometheus_does_not_have_is_named():
    unknown = np.full(BUSY.size, np.nan)
    whole = record(BUSY)
    assert lack_of().reason is Lack.METRICS_MISSING
    for lacking, name in (
        (replace(whole, kv_cache_tokens=None), "cache_config_info"),
        (replace(whole, steps_per_s=unknown), "iteration_tokens_total"),
        (replace(whole, prefill_s=unknown), "request_prefill_time_seconds"),
    ):
        found = lack_of(lacking)
        assert found.reason is Lack.METRICS_MISSING
        assert name in found.message


def test_several_engines_of_a_pod_are_not_chosen_for():
    assert "data-parallel" in lack_of(record(BUSY), record(BUSY, rank="1")).message


def test_prefills_that_no_law_explains_are_not_chosen_by():
    whole = record(BUSY)
    odd = np.where(np.arange(BUSY.size) % 2 == 0, 0.2, 5.0)
    assert "No step law explains" in lack_of(replace(whole, prefill_s=whole.prefill_s * odd)).message


def test_windows_with_preemptions_or_unknown_numbers_are_left_out():
    whole = record(BUSY)
    preempted = np.where(np.arange(BUSY.size) < 100, 1.0, 0.0)
    unknown = np.where(np.arange(BUSY.size) >= 188, np.nan, whole.prefill_s)
    some = replace(whole, history=replace(whole.history, preemptions_per_s=preempted), prefill_s=unknown)
    assert len(some.windows) == 88


def test_what_the_prefix_cache_served_was_not_computed():
    [first, *_] = record(BUSY).windows
    [half, *_] = replace(record(BUSY), hit_share=np.full(BUSY.size, 0.5)).windows
    assert half.prompt_tokens == pytest.approx(first.prompt_tokens / 2, abs=1)


def test_the_choice_lies_inside_what_production_has_shown_and_beats_the_present():
    found = predict(
        evidence(), TRAFFIC, [Slo(ttft_s=2.0, tpot_s=0.025)], BOUNDS, PRESENT, (32, 40, 48, 64, 512), (1024, 2048, 8192)
    )
    assert isinstance(found, Prediction)
    assert found.chosen.setting.max_num_seqs <= 64
    assert found.chosen.setting.max_num_batched_tokens <= PRESENT.max_num_batched_tokens
    assert found.chosen.sustainable > 1.05 * found.present_per_s > 0


def test_targets_that_nothing_is_predicted_to_hold_are_told():
    found = predict(evidence(), TRAFFIC, [Slo(tpot_s=0.001)], BOUNDS, PRESENT, (32, 64), (1024, 2048))
    assert isinstance(found, NotEnough)
    assert "Clone or BorrowReplica" in found.message


def test_bounds_beyond_what_production_has_shown_leave_nothing_to_choose():
    above = BOUNDS.with_changes(lowest=Setting(max_num_seqs=256, max_num_batched_tokens=4096))
    found = predict(evidence(), TRAFFIC, [Slo(tpot_s=0.025)], above, PRESENT, (256, 512), (4096, 8192))
    assert isinstance(found, NotEnough)
    assert "inside what production has shown" in found.message
