from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.api.offered_load import Closed, Fixed, Open
from kneekeeper.api.stage import Evidence, Limits, Outcome, Slo, StageSpec, Target
from kneekeeper.domain.workload import NO_REQUESTS
from kneekeeper.load.answers import Row
from kneekeeper.load.evidence import answers_fault, fault, measure, reference_s, weighted_lags
from kneekeeper.load.frames import Tick
from kneekeeper.load.progress import Progress

GOOD = Evidence(send_lag_p99_s=0.001, loop_lag_p99_s=0.001, cpu_share=0.1, achieved_over_offered=1.0)


def spec(**values: Any) -> StageSpec:
    defaults: dict[str, Any] = {
        "id": "stage",
        "target": Target(host="127.0.0.1", port=80, model="m"),
        "prompt_tokens": Fixed(value=10),
        "output_tokens": Fixed(value=11),
        "arrivals": Open(rate=10),
        "limits": Limits(min_requests=1, max_requests=100, max_duration_s=10),
        "seed": 0,
    }
    return StageSpec(**(defaults | values))


def row(index: int, intended_s: float, first_s: float, last_s: float, **values: Any) -> Row:
    defaults: dict[str, Any] = {
        "sent_s": intended_s,
        "prompt_tokens": 10,
        "output_tokens": 11,
        "first_chunk_tokens": 1,
        "chunks": 11,
        "outcome": Outcome.OK,
        "status": 200,
        "problem": "",
    }
    return Row(index=index, intended_s=intended_s, first_s=first_s, last_s=last_s, **(defaults | values))


def progress(*rows: Row) -> Progress:
    collected = Progress(100.0)
    for one in rows:
        collected.add_row(one)
    return collected


@pytest.mark.parametrize(("cut", "of", "told"), [(0, 10, False), (1, 100, False), (2, 100, True), (0, 0, False)])
def test_answers_that_the_server_cut_short_make_it_another_load(cut: int, of: int, told: bool):
    rows = [row(index, 0.0, 0.1, 0.2, missing_tokens=int(index < cut)) for index in range(of)]
    failed = row(of, 0.0, 0.1, 0.2, missing_tokens=9, outcome=Outcome.ERROR)
    found = answers_fault(progress(*rows, failed))
    assert (found is not None) is told
    if found is not None:
        assert (found.reason, found.message[:12]) == ("AnswersCutShort", "2 of 100 ans")


@given(st.lists(st.floats(0, 3), max_size=200))
def test_a_long_lag_counts_for_all_the_time_that_it_lasted(lags):
    weighted = weighted_lags(np.array(lags))
    assert weighted.size == sum(max(1, int(np.ceil(lag / 0.02))) for lag in lags)
    assert (weighted >= -1e-9).all()
    assert weighted.max(initial=0.0) == max(lags, default=0.0)


def test_a_process_that_stood_still_for_a_second_of_twenty_is_caught():
    """Of 950 calls of the timer one was late: 0.1% of the calls, 5% of the time."""
    lags_s = np.full(950, 0.0005)
    lags_s[400] = 1.0
    assert np.quantile(lags_s, 0.99) < 0.001
    assert np.quantile(weighted_lags(lags_s), 0.99) > 0.7


def test_a_well_behaved_client_has_no_fault_even_where_latencies_are_short():
    assert fault(GOOD, spec(), 0.001) is None


@pytest.mark.parametrize(
    ("bad", "reason", "word"),
    [
        ({"achieved_over_offered": 0.98}, "ClientTooSlow", "98%"),
        ({"send_lag_p99_s": 0.051}, "ClientTooSlow", "51.0 ms, 50.0 ms are allowed"),
        ({"loop_lag_p99_s": 0.051}, "ClientStarved", "51.0 ms late"),
        ({"cpu_share": 0.81}, "ClientBusy", "81%"),
    ],
)
def test_each_limit_makes_the_stage_invalid_with_a_next_step(bad, reason, word):
    found = fault(GOOD.model_copy(update=bad), spec(), 0.5)
    assert found is not None
    assert found.reason == reason
    assert word in found.message
    assert "agent" in found.message


def test_delays_are_judged_by_what_they_can_disturb():
    late = GOOD.model_copy(update={"send_lag_p99_s": 0.04, "loop_lag_p99_s": 0.04})
    assert fault(late, spec(), 0.5) is None
    assert fault(late, spec(), 0.1) is not None


def test_a_closed_loop_has_no_plan_to_fall_behind():
    behind = GOOD.model_copy(update={"achieved_over_offered": 0.5})
    assert fault(behind, spec(arrivals=Closed(users=2)), 0.5) is None


@pytest.mark.parametrize(
    ("slo", "reference"),
    [
        (Slo(), 0.2),
        (Slo(ttft_s=0.5), 0.5),
        (Slo(ttft_s=0.1), 0.2),
        (Slo(tpot_s=0.04), 0.4),
        (Slo(ttft_s=0.5, tpot_s=0.04), 0.4),
        (Slo(e2e_s=3.0, ttft_s=1.0), 1.0),
    ],
)
def test_the_reference_is_the_smallest_target_or_the_measured_ttft(slo, reference):
    served = progress(*(row(i, 0.0, 0.2, 1.0) for i in range(3)), row(3, 0.0, 9.0, 9.0, outcome=Outcome.ERROR))
    assert reference_s(slo, served) == pytest.approx(reference)


def test_without_answers_the_reference_is_the_target():
    assert reference_s(Slo(ttft_s=0.5, tpot_s=0.01), progress()) == 0.5
    assert reference_s(Slo(), progress()) == 0.0


def test_evidence_is_measured_from_rows_and_ticks():
    served = progress(*(row(i, i * 0.1, i * 0.1 + 0.2, i * 0.1 + 0.5, sent_s=i * 0.1 + 0.003) for i in range(10)))
    for i in range(50):
        served.add_tick(Tick(100.02 + 0.02 * i, 0.002, 10, 0, 0, 0, 0.001 * i))
    evidence = measure(served, planned=12)
    assert evidence.send_lag_p99_s == pytest.approx(0.003)
    assert evidence.loop_lag_p99_s == pytest.approx(0.002)
    assert evidence.cpu_share == pytest.approx(0.049)
    assert evidence.achieved_over_offered == pytest.approx(10 / 12)


def test_of_several_workers_the_worst_one_is_the_evidence():
    served = Progress(100.0, 7000.0, 3.0)
    for i in range(50):
        served.add_tick(Tick(100.02 + 0.02 * i, 0.001, 10, 0, 0, 0, 0.001 * i))
        served.add_tick(Tick(7000.02 + 0.02 * i, 0.015, 10, 0, 0, 0, 0.010 * i), 1)
        served.add_tick(Tick(3.02 + 0.02 * i, 0.002, 10, 0, 0, 0, 0.002 * i), 2)
    evidence = measure(served, planned=30)
    assert evidence.loop_lag_p99_s == pytest.approx(0.015)
    assert evidence.cpu_share == pytest.approx(0.49)
    assert evidence.achieved_over_offered == 1.0


def test_counters_of_several_workers_are_summed_on_one_clock_until_the_last_one_ends():
    served = Progress(100.0, 7000.0)
    served.add_tick(Tick(100.5, 0.0, 3, 1, 2, 9, 0.0))
    served.add_tick(Tick(7000.5, 0.0, 4, 2, 2, 9, 0.0), 1)
    assert (served.sent, served.elapsed_s) == (3, 0.5), "the first worker sets the pace"
    served.add_tick(Tick(100.52, 0.0, 3, 3, 0, 9, 0.0))
    served.end_part(0)
    served.add_tick(Tick(7000.51, 0.0, 5, 5, 0, 9, 0.0), 1)
    course = served.course()
    assert course.arrived.tolist() == [3, 7, 8]
    assert course.ended.tolist() == [1, 5, 8]
    assert course.t_s.tolist() == pytest.approx([0.5, 0.52, 0.52]), "time does not go back"
    assert [served.sent_by(part) for part in (0, 1)] == [3, 5]


def test_rates_count_what_lies_in_the_window():
    served = progress(row(0, 0.0, 1.0, 2.0), row(1, 1.0, 2.0, 4.0), row(2, 0.5, 9.0, 9.0, outcome=Outcome.TIMEOUT))
    rates = served.rates(1.0, 3.0)
    assert rates.requests_per_s == pytest.approx(0.5)
    assert rates.output_tokens_per_s == pytest.approx((11 + 11 / 2) / 2)
    assert rates.mean_concurrency == pytest.approx((1 + 2 + 2) / 2)
    assert served.rates(3.0, 3.0).mean_concurrency == 0.0


def test_the_sequential_test_never_sees_a_request_past_one_that_is_in_flight():
    slo = Slo(ttft_s=0.5)
    served = progress(row(0, 0.0, 0.1, 1.0), row(3, 0.3, 0.4, 1.0), row(1, 0.1, 0.9, 1.0))
    assert served.settled(0.0, NO_REQUESTS.request_class).misses(slo).tolist() == [False, True]
    served.add_row(row(2, 0.2, 0.2, 0.2, outcome=Outcome.ERROR))
    assert served.settled(0.0, NO_REQUESTS.request_class).misses(slo).tolist() == [False, True, True, False]
    assert served.settled(0.15, NO_REQUESTS.request_class).misses(slo).tolist() == [True, False]
