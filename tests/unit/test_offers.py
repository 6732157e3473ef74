"""What a certification offers for each kind of arrivals, and what is promised for it."""

from __future__ import annotations

from typing import Any

import pytest

from kneekeeper.api.model import Setting
from kneekeeper.api.offered_load import Closed, Open, Replay
from kneekeeper.api.profile_status import BoundBy
from kneekeeper.api.run_plan import RunPlan, SettingBounds, SourceFacts, TraceFacts
from kneekeeper.api.serving_profile import ServingProfileSpec
from kneekeeper.api.stage import Slo
from kneekeeper.api.tuning_run import Certification, Choice, Fit, TuningRunStatus, Verdict
from kneekeeper.api.workload import LengthBin
from kneekeeper.domain.certify import OFFERED_SHARE, pass_floor
from kneekeeper.domain.plan.offers import baseline_offer, certified_offer, least_requests

SETTING = Setting(max_num_seqs=16, max_num_batched_tokens=2048)
CHOICE = Choice(attempt=1, setting=SETTING, sustainable_requests_per_second=9.5 / OFFERED_SHARE, bound_by=BoundBy.TPOT)
FIXED = {"distribution": "Fixed", "value": 100}
BIN = LengthBin(min=10, max=19, weight=3)
TRACE = TraceFacts(requests=1001, duration=500.0, gap_variation=4.0, prompt_tokens=[BIN], output_tokens=[BIN])


def plan(arrivals: dict[str, Any]) -> RunPlan:
    workload: dict[str, Any] = {"promptTokens": FIXED, "outputTokens": FIXED, "arrivals": arrivals}
    if arrivals["process"] == "Trace":
        workload["traceRef"] = {"configMapRef": {"name": "trace"}}
    spec = {"targetRef": {"kind": "Deployment", "name": "chat"}, "slo": {"p99TTFT": "1s"}, "workload": workload}
    return RunPlan(
        profile_generation=1,
        profile_spec=ServingProfileSpec.model_validate(spec),
        fingerprint="f",
        image="i",
        engine_model="m",
        container="vllm",
        model="m",
        port=8000,
        present=SETTING,
        bounds=SettingBounds(lowest=SETTING, highest=SETTING),
        probe_target="Clone",
        token="t",
    )


def status() -> TuningRunStatus:
    """X(N) = N / (1 + 0.02 N): ten requests a second are 12.5 requests at a time."""
    return TuningRunStatus(
        fit=Fit(verdict="Knee", alpha=1.0, beta=0.02), sources=SourceFacts(trace=TRACE), choices=[CHOICE]
    )


def proven(arrivals: dict[str, Any]) -> Certification:
    offer = certified_offer(plan(arrivals), status(), CHOICE)
    return Certification(
        attempt=1,
        setting=SETTING,
        offered_requests_per_second=offer.rate,
        promised_requests_per_second=offer.rate / 1.2,
        offered_users=offer.users,
        promised_users=offer.promised_users,
        verdict=Verdict.PASS,
        requests=1000,
        misses=0,
    )


@pytest.mark.parametrize(
    ("arrivals", "offered", "baseline"),
    [
        ({"process": "Constant"}, Open(rate=9.5, burstiness=None), Open(rate=7.6, burstiness=None)),
        ({"process": "Poisson"}, Open(rate=9.5), Open(rate=7.6)),
        (
            {"process": "Gamma", "burstinessPercent": 25},
            Open(rate=9.5, burstiness=0.25),
            Open(rate=7.6, burstiness=0.25),
        ),
        ({"process": "Trace"}, Replay(rate=9.5), Replay(rate=7.6)),
    ],
    ids=["constant", "poisson", "gamma", "trace"],
)
def test_an_open_loop_is_offered_a_little_less_than_what_should_hold(arrivals, offered, baseline):
    assert certified_offer(plan(arrivals), status(), CHOICE).arrivals == offered
    present = baseline_offer(plan(arrivals), status(), proven(arrivals), wanted=1.25)
    assert present.arrivals == baseline
    assert present.rate == pytest.approx(7.6)


def test_a_closed_loop_is_offered_users_and_a_fifth_fewer_are_promised():
    closed = {"process": "Closed", "users": 100}
    offer = certified_offer(plan(closed), status(), CHOICE)
    assert offer.arrivals == Closed(users=11)  # 9.5 / (1 - 0.02 * 9.5) = 11.7
    assert offer.promised_users == 9  # 11 / 1.2 = 9.2
    assert baseline_offer(plan(closed), status(), proven(closed), wanted=1.25).users == 8


def test_no_more_users_are_offered_than_prove_those_that_are_declared():
    offer = certified_offer(plan({"process": "Closed", "users": 5}), status(), CHOICE)
    assert (offer.users, offer.promised_users) == (6, 5)
    assert offer.rate == pytest.approx(9.5 * 6 / 11)


def test_users_who_think_are_more():
    offer = certified_offer(plan({"process": "Closed", "users": 100, "thinkTime": "10s"}), status(), CHOICE)
    assert offer.arrivals == Closed(users=106, think_time_s=10.0)  # 11.7 at the engine and 95 who think
    assert offer.promised_users == 88


def test_no_more_users_are_at_the_engine_than_it_admits():
    narrow = CHOICE.with_changes(setting=Setting(max_num_seqs=4, max_num_batched_tokens=2048))
    assert certified_offer(plan({"process": "Closed", "users": 100}), status(), narrow).users == 4


def test_a_bursty_trace_takes_as_long_to_pass_as_a_bursty_open_loop():
    trace = {"process": "Trace"}
    least = least_requests(plan(trace), status(), Replay(rate=9.5), SETTING)
    assert least == pass_floor(Open(rate=9.5, burstiness=0.25), Slo(ttft_s=1.0), SETTING.max_num_seqs)
    assert least > pass_floor(Open(rate=9.5), Slo(ttft_s=1.0), SETTING.max_num_seqs)
    real_time = least_requests(plan(trace), status(), Replay(speed=1.2), SETTING)
    assert real_time == pass_floor(Open(rate=2.4, burstiness=0.25), Slo(ttft_s=1.0), SETTING.max_num_seqs)


def test_a_trace_in_real_time_runs_a_fifth_faster_whatever_could_hold():
    real_time = {"process": "Trace", "traceTime": "RealTime"}
    offer = certified_offer(plan(real_time), status(), CHOICE)
    assert offer.arrivals == Replay(speed=1.2)
    assert offer.rate == pytest.approx(1.2 * 2.0)  # 1,000 gaps in 500 s
    present = baseline_offer(plan(real_time), status(), proven(real_time), wanted=1.25)
    assert present.arrivals == Replay(speed=1.2 / 1.25)
