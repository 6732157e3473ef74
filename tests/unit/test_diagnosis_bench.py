"""The simulated fleet in its quick form: a few scenarios of each kind, run by the engine, judged by the rules."""

from __future__ import annotations

import pytest

from benchmarks.diagnosis.replica import SimulatedTime
from benchmarks.diagnosis.scenario import Kind
from benchmarks.diagnosis.score import FLEET, Half, judge

QUICK = (
    "hardly any load on the middle card",
    "a pool of clients on the large model",
    "small token budget, large model",
    "KV cache too small, large model",
    "slow API process and failing probes",
    "half of the knee, large model",
    "single requests",
)


@pytest.mark.parametrize("name", QUICK)
def test_the_truth_is_found_and_nothing_else(name: str):
    scenario = next(scenario for scenario in FLEET if scenario.name == name)
    (judged,) = judge([scenario], Half.FREEZING)
    assert judged.missed == ()
    assert judged.false == ()


def test_the_fleet_holds_what_a_score_needs():
    kinds = [scenario.kind for scenario in FLEET]
    assert len({scenario.name for scenario in FLEET}) == len(FLEET) >= 60
    assert kinds.count(Kind.TWO_CAUSES) >= 15
    assert kinds.count(Kind.NEAR) >= 15
    assert kinds.count(Kind.BAD_METRICS) >= 10
    assert all(len(s.expected) >= 2 for s in FLEET if s.kind is Kind.TWO_CAUSES)
    assert not any(s.expected for s in FLEET if s.kind in (Kind.NEAR, Kind.HEALTHY))


def test_no_two_scenarios_share_a_seed_between_the_halves():
    assert Half.SCORING.value - Half.FREEZING.value >= len(FLEET)


def test_simulated_time_calls_in_order_and_passes_over_what_was_cancelled():
    time = SimulatedTime()
    called: list[str] = []
    time.call_later(2.0, called.append, "late")
    time.call_later(1.0, called.append, "early")
    time.call_later(1.5, called.append, "never").cancel()
    time.run_until(3.0)
    assert called == ["early", "late"]
    assert time.now_s == 3.0
