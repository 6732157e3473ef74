"""Rules on windows that are written by hand: what they need, what they say, where they are silent."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.api.stage import Slo
from kneekeeper.domain.diagnose import (
    RULES,
    Boundary,
    Counter,
    DiagnosisObservation,
    EngineReading,
    EngineSettings,
    Family,
    Gauge,
    GpuWindow,
    MeasuredEngine,
    Objective,
    OutsideView,
    Reason,
    WindowError,
    diagnose,
    window_of,
)
from kneekeeper.domain.diagnose.text import explain
from kneekeeper.domain.steptime import StepTime
from tests.unit.reading_builders import histogram, readings

MEASURED = MeasuredEngine(StepTime(0.02, 0.0005, 0.00005), prompt_tokens=200, output_tokens=100)
"""beta is 0.6 ms with two prompt tokens an output token, so the knee is at 133 requests."""


def observed(scrapes: list[EngineReading] | None = None, **more: object) -> DiagnosisObservation:
    base = DiagnosisObservation(
        now=window_of(readings() if scrapes is None else scrapes),
        settings=EngineSettings(max_num_seqs=128, max_num_batched_tokens=2048),
        measured=MEASURED,
        gpu=GpuWindow(0.95, 0.6),
    )
    return replace(base, **more)  # type: ignore[arg-type]


def test_a_healthy_engine_has_no_finding_and_nothing_is_left_unjudged():
    diagnosis = diagnose(observed(slo=Slo(ttft_s=0.5)))
    assert not diagnosis.findings
    assert not diagnosis.unjudged
    assert not diagnosis.not_applicable
    assert explain(diagnosis) == "Nothing is wrong."


def test_a_queue_that_grows_tells_its_growth_and_when_clients_give_up():
    queue = tuple(12.0 * index for index in range(12))
    full = observed(readings(running=(128,) * 12, waiting=queue, queue_s=3.0, ttft_s=3.1))
    finding = next(f for f in diagnose(full).findings if f.reason is Reason.ARRIVALS_ABOVE_SERVICE)
    growth = next(e.value for e in finding.evidence if e.name == "growth of the queue")
    assert growth == pytest.approx(132 / 220)
    left = next(e.value for e in finding.evidence if e.name == "until timeouts")
    assert left == pytest.approx((60 * 1000 / 220 - 132) / (132 / 220))


def test_a_queue_that_wanders_within_chance_does_not_grow():
    wandering = (0, 20, 5, 60, 30, 10, 80, 40, 0, 30, 60, 90)
    assert Reason.ARRIVALS_ABOVE_SERVICE not in diagnose(observed(readings(waiting=wandering))).reasons


def test_preemptions_are_kv_pressure_and_are_told_to_cost_throughput_where_it_falls():
    before = window_of(readings(finished=1400, running=(30,) * 12))
    pressed = observed(readings(waiting=(60,) * 12, preemptions=200, kv_usage=0.97), before=before)
    diagnosis = diagnose(pressed)
    assert {Reason.KV_PRESSURE, Reason.THROUGHPUT_FALLS} <= diagnosis.reasons
    assert "computed again" in next(f for f in diagnosis.findings if f.reason is Reason.THROUGHPUT_FALLS).message


def test_throughput_that_falls_because_demand_falls_is_no_finding():
    before = window_of(readings(finished=1400, running=(60,) * 12))
    assert Reason.THROUGHPUT_FALLS not in diagnose(observed(before=before)).reasons


def test_the_hosts_share_is_unjudged_without_the_gpus_metrics():
    diagnosis = diagnose(observed(gpu=None))
    assert [(u.reason, u.missing) for u in diagnosis.unjudged] == [(Reason.CPU_BOUND, ("DCGM_FI_DEV_GPU_UTIL",))]
    assert "missing DCGM_FI_DEV_GPU_UTIL" in explain(diagnosis)


def test_a_p99_inside_the_targets_bucket_is_said_to_be_hidden():
    scrapes = readings()
    late = [0.08] * 950 + [0.3] * 50
    scrapes[-1] = replace(scrapes[-1], histograms={**scrapes[-1].histograms, Family.TTFT: histogram(*late)})
    hidden = diagnose(observed(scrapes, slo=Slo(ttft_s=0.2)))
    told = diagnose(observed(scrapes, slo=Slo(ttft_s=0.5)))
    assert Reason.BUCKETS_HIDE_P99 in hidden.reasons
    assert Reason.BUCKETS_HIDE_P99 not in told.reasons


def test_a_fine_mean_with_a_bad_tail_names_where_the_tail_comes_from():
    scrapes = readings()
    late = {Family.TTFT: histogram(*[0.08] * 950, *[2.0] * 50), Family.QUEUE: histogram(*[0.0] * 950, *[1.9] * 50)}
    scrapes[-1] = replace(scrapes[-1], histograms={**scrapes[-1].histograms, **late})
    finding = next(f for f in diagnose(observed(scrapes, slo=Slo(ttft_s=0.5))).findings)
    assert finding.reason is Reason.TAIL_MISSES
    assert "queueing" in finding.message


@pytest.mark.parametrize(
    ("outside", "told"),
    [
        (OutsideView(client_ttft_mean_s=0.4), "network"),
        (OutsideView(probe_failures=3), "busy, not dead"),
    ],
)
def test_what_passes_outside_of_the_engine_is_told(outside: OutsideView, told: str):
    findings = diagnose(observed(outside=outside)).findings
    assert [f.reason for f in findings] == [Reason.OUTSIDE_ENGINE]
    assert told in findings[0].message


def test_an_offline_batch_may_queue():
    queued = observed(readings(running=(128,) * 12, waiting=(300,) * 12, queue_s=9.0, ttft_s=9.1))
    assert Reason.PAST_THE_KNEE in diagnose(queued).reasons
    batch = diagnose(replace(queued, objective=Objective.THROUGHPUT))
    assert Reason.PAST_THE_KNEE not in batch.reasons
    assert [n.boundary for n in batch.not_applicable] == [Boundary.OFFLINE_BATCH]


def test_totals_of_several_engines_are_not_held_against_the_limits_of_one():
    both = [replace(reading, engines=2) for reading in readings(running=(250,) * 12, waiting=(9,) * 12)]
    diagnosis = diagnose(observed(both))
    assert diagnosis.findings == ()
    assert [n.boundary for n in diagnosis.not_applicable] == [Boundary.REPLICA_TOTALS]


def test_few_requests_are_not_judged():
    diagnosis = diagnose(observed(readings(running=(1,) * 12, finished=20), slo=Slo(ttft_s=0.05)))
    assert [n.boundary for n in diagnosis.not_applicable] == [Boundary.LOW_RATE]
    assert "Instead: " in explain(diagnosis)


@given(st.sets(st.sampled_from([*Gauge, *Counter, *Family])))
def test_missing_families_are_never_taken_for_zero_and_make_no_finding(absent: set[Gauge | Counter | Family]):
    scrapes = [
        replace(
            reading,
            gauges={k: v for k, v in reading.gauges.items() if k not in absent},
            counters={k: v for k, v in reading.counters.items() if k not in absent},
            histograms={k: v for k, v in reading.histograms.items() if k not in absent},
        )
        for reading in SCRAPES
    ]
    diagnosis = diagnose(observed(scrapes, slo=Slo(ttft_s=0.5)))
    assert diagnosis.findings == ()
    assert all(unjudged.missing for unjudged in diagnosis.unjudged)


SCRAPES = readings()


def test_a_window_begins_after_the_last_restart():
    old, new = readings(), readings(finished=500)
    later = [replace(reading, at_s=reading.at_s + 240) for reading in new]
    assert window_of([*old, *later]).gained[Counter.GENERATION_TOKENS] == 50_000
    with pytest.raises(WindowError, match="fewer than two"):
        window_of([*old, later[0]])


@given(st.lists(st.floats(0.001, 9.0), min_size=1), st.floats(0.001, 9.0))
def test_what_lies_above_a_value_is_bracketed(values: list[float], at: float):
    least, most = histogram(*values).above(at)
    assert least <= sum(value > at for value in values) <= most


@given(st.lists(st.floats(0.001, 9.0), min_size=1), st.floats(0.01, 1.0))
def test_a_quantile_lies_in_its_bracket(values: list[float], q: float):
    bracket = histogram(*values).quantile_bracket(q)
    assert bracket is not None
    exact = sorted(values)[math.ceil(q * len(values)) - 1]
    assert bracket[0] <= exact <= bracket[1]


def test_every_reason_has_one_rule():
    assert set(RULES) == set(Reason)
