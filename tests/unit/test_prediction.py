from dataclasses import replace

import numpy as np
import pytest

from kneekeeper.api.model import Setting
from kneekeeper.api.stage import Fixed, LogNormal, Open
from kneekeeper.domain.boundary import TailCurve
from kneekeeper.domain.lengths import mean_tokens
from kneekeeper.domain.prediction import BUSIEST, OVERLOADED, Predictor, Traffic
from kneekeeper.domain.samples import StageData
from kneekeeper.domain.steptime import StepTime
from tests.unit.small_server import SmallServer, run_load

PROMPTS = LogNormal(mean=400, sigma=0.8, maximum=4000)
OUTPUTS = LogNormal(mean=100, sigma=0.6, maximum=600)
A, B, D = 8e-3, 1e-4, 4e-5
SETTING = Setting(max_num_seqs=64, max_num_batched_tokens=2048)


def traffic(gap_cv2: float = 1.0) -> Traffic:
    return Traffic(PROMPTS, mean_tokens(PROMPTS), OUTPUTS, mean_tokens(OUTPUTS), 350, gap_cv2)


def predictor(gap_cv2: float = 1.0) -> Predictor:
    """What a perfect ladder would say of the law T = A + B n + D p."""
    users = np.arange(1, 257, dtype=np.float64)
    work = 100 * B + 400 * D
    levels = np.array([1.0, 2, 4, 8, 16, 32, 64, 128, 256])
    tpot_s = (100 * A + work * levels) / 100
    return Predictor(
        traffic=traffic(gap_cv2),
        throughput=users / (100 * A + work * users),
        tail=TailCurve(levels, 1.4 * tpot_s),
        step_time=StepTime(A, B, D),
    )


def test_a_rate_near_the_capacity_cannot_be_carried():
    capacity = predictor().capacity(SETTING)
    assert predictor().predict(SETTING, BUSIEST * capacity) == OVERLOADED
    assert np.isfinite(predictor().predict(SETTING, 0.5 * capacity).p99_ttft_s)


def test_a_small_token_budget_takes_capacity():
    small = Setting(max_num_seqs=64, max_num_batched_tokens=128)
    assert predictor().capacity(small) < predictor().capacity(SETTING)


def test_a_budget_that_prompts_outrun_cannot_be_carried():
    slow = replace(predictor(), step_time=StepTime(A, B, 100 * D))
    assert slow.predict(SETTING, 0.9 * slow.capacity(SETTING)) == OVERLOADED


def test_a_budget_that_decoding_fills_leaves_no_room_for_prompts():
    tight = Setting(max_num_seqs=64, max_num_batched_tokens=64)
    full = replace(predictor(), traffic=replace(traffic(), mean_prompt_tokens=1.0))
    assert full.predict(tight, 0.96 * full.capacity(tight)) == OVERLOADED


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_latencies_grow_with_the_rate(share):
    capacity = predictor().capacity(SETTING)
    low, high = (predictor().predict(SETTING, f * capacity) for f in (share, share + 0.15))
    assert low.p99_ttft_s <= high.p99_ttft_s
    assert low.p99_tpot_s <= high.p99_tpot_s
    assert low.p99_e2e_s <= high.p99_e2e_s


def test_bursts_wait_longer_and_constant_gaps_shorter():
    rate = 0.85 * predictor().capacity(SETTING)
    constant, poisson, bursty = (predictor(cv2).predict(SETTING, rate).p99_ttft_s for cv2 in (0.0, 1.0, 4.0))
    assert constant < poisson < bursty


def test_a_smaller_budget_bounds_tpot_and_lengthens_ttft():
    small = Setting(max_num_seqs=64, max_num_batched_tokens=384)
    rate = 0.7 * predictor().capacity(small)
    narrow, wide = predictor().predict(small, rate), predictor().predict(SETTING, rate)
    assert narrow.p99_tpot_s <= wide.p99_tpot_s
    assert narrow.p99_ttft_s > wide.p99_ttft_s


def test_more_sequences_wait_less():
    few = Setting(max_num_seqs=16, max_num_batched_tokens=2048)
    rate = 0.93 * predictor().capacity(few)
    assert predictor().predict(few, rate).p99_ttft_s > predictor().predict(SETTING, rate).p99_ttft_s


def test_scales_overhead_and_caution_raise_what_they_are_meant_to():
    rate = 0.5 * predictor().capacity(SETTING)
    bare = predictor().predict(SETTING, rate)
    scaled = predictor().with_scales(1.5, 1.2).predict(SETTING, rate)
    assert scaled.p99_ttft_s == pytest.approx(1.5 * bare.p99_ttft_s)
    assert scaled.p99_tpot_s == pytest.approx(1.2 * bare.p99_tpot_s)
    late = replace(predictor(), overhead_s=0.1).predict(SETTING, rate)
    assert late.p99_ttft_s == pytest.approx(bare.p99_ttft_s + 0.1)
    assert replace(predictor(), caution=1.5).predict(SETTING, rate).p99_tpot_s > bare.p99_tpot_s


def test_equal_lengths_do_not_break_the_queue():
    fixed = Traffic(Fixed(value=400), 400, Fixed(value=100), 100, 100, 0.0)
    p = replace(predictor(), traffic=fixed)
    assert np.isfinite(p.predict(SETTING, 0.9 * p.capacity(SETTING)).p99_ttft_s)


@pytest.mark.parametrize("share", [0.4, 0.6, 0.75])
def test_a_simulated_server_of_that_law_does_about_as_predicted(share):
    rate = share * predictor().capacity(SETTING)
    predicted = predictor().predict(SETTING, rate)
    server = SmallServer(lambda n, kv, p: A + B * n + D * p, SETTING)
    ttft_s, tpot_s, e2e_s = [], [], []
    for seed in range(4):
        _, samples = run_load(server, Open(rate=rate), PROMPTS, OUTPUTS, requests=2000, seed=seed)
        data = StageData.from_wire(samples).after_warmup()
        ttft_s.append(np.quantile(data.ttft_s, 0.99))
        tpot_s.append(np.nanquantile(data.tpot_s, 0.99))
        e2e_s.append(np.quantile(data.e2e_s, 0.99))
    assert predicted.p99_ttft_s == pytest.approx(np.mean(ttft_s), rel=0.35)
    assert predicted.p99_tpot_s == pytest.approx(np.mean(tpot_s), rel=0.35)
    assert predicted.p99_e2e_s == pytest.approx(np.mean(e2e_s), rel=0.35)
