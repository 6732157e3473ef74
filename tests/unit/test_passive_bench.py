"""A small fleet of the passive benchmark: half a day of a few replicas on slow engines."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.passive.day import Daily, Machine, Scraping, drawn, history_of, log_room
from benchmarks.passive.fleet import ENGINES, SETTING, TRAFFIC, Probes, fleet, live
from benchmarks.passive.learned import judge as judge_learned
from benchmarks.passive.learned import learned, summary
from benchmarks.passive.score import judge, score


def test_the_quick_form_tells_knees_and_no_false_ones():
    slow = [r for r in fleet(104, seed=3) if r.machine.engine is ENGINES[0] and r.traffic == "chat"]
    judged = list(judge(slow, day_s=4 * 3600.0, window_s=120.0))
    result = score(judged)
    assert result.replicas == len(judged) >= 4
    assert result.false_knees == 0
    assert result.wrong_lower_bounds == 0
    assert result.knee_error < 0.2


def test_a_fleet_is_the_same_for_the_same_seed_and_another_for_another():
    assert fleet(10, seed=1) == fleet(10, seed=1)
    assert [r.reach for r in fleet(10, seed=1)] != [r.reach for r in fleet(10, seed=2)]


def test_the_gaps_counted_are_the_requests_that_decode():
    """Little's law of the metrics, against the step log that they are made of."""
    machine = Machine(ENGINES[0], SETTING)
    arrivals = np.arange(0.0, 1800.0, 2.0)
    served = machine.serve(drawn(TRAFFIC["chat"], arrivals, 1), machine.law(), 0, log_room(200_000))
    scraped = Scraping(0.0, 0).times(1800.0, np.random.default_rng(1))
    history = history_of(served, "pod", scraped, 1800.0, 300.0)
    start_s, duration_s, decodes = served.log[:, 0], served.log[:, 1], served.log[:, 2]
    inside = (start_s >= 600) & (start_s < 900)
    mean = float(np.sum(decodes[inside] * duration_s[inside]) / 300)
    assert history.decoding[2] == pytest.approx(mean, rel=0.05)
    assert history.running[2] == pytest.approx(mean, rel=0.15)


def test_a_day_is_low_at_night_and_high_at_its_busiest_hour():
    rates = Daily(10.0, 0.2, 14.0, 0.0, 1.0).rates(86_400.0, np.random.default_rng(1))
    assert rates[14 * 60] == pytest.approx(10.0)
    assert rates[2 * 60] == pytest.approx(2.0)


def test_a_workload_learned_from_a_day_is_predicted_as_the_true_one():
    """The tail of TTFT is the more a matter of luck; the benchmark tells how much."""
    replica = next(r for r in fleet(104, seed=3) if r.machine.engine is ENGINES[0] and r.traffic == "chat")
    room = log_room()
    probed = Probes(room).of(replica.machine.engine, replica.traffic)
    assert probed is not None
    served = live(replica, probed, room)
    workload = learned(replica, served)
    assert workload is not None
    judged = judge_learned(replica, served, workload, 0.5 * probed.rate_at(probed.knee))
    assert judged.errors[0] <= 0.2
    assert judged.errors[1] <= 0.1
    assert summary([judged])["tpot_p99_error"] == pytest.approx(judged.errors[1], abs=1e-4)


def test_nothing_learned_is_no_result():
    with pytest.raises(ValueError, match="no workload was learned"):
        summary([])
