"""The arithmetic of the load benchmark, where the answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.load.__main__ import parse_level
from benchmarks.load.clients.kneekeeper import Kneekeeper
from benchmarks.load.levels import Level, Quantiles
from benchmarks.load.measure import Measured, achieved
from benchmarks.load.results import Results, as_json, as_page
from benchmarks.load.truth import Plan, Truth


def truth_of(arrived_s: list[float], request_s: float, tokens: int = 11) -> Truth:
    arrived = np.array(arrived_s)
    return Truth(arrived, arrived + 0.1, arrived + request_s, np.full(arrived.size, float(tokens)))


def test_truth_counts_ttft_from_arrival_and_tpot_between_first_and_last_token():
    truth = truth_of([5.0, 6.0], 0.3)
    assert truth.ttft_ms == pytest.approx([100, 100])
    assert truth.tpot_ms == pytest.approx([20, 20])
    assert truth_of([5.0], 0.1, tokens=1).tpot_ms.size == 0


@given(st.integers(1, 20), st.integers(2, 6), st.just(0.0) | st.floats(0.01, 0.5))
def test_a_closed_loop_that_waits_between_requests_offers_as_much_less(streams, rounds, pause_s):
    request_s = 1.0
    starts = [turn * (request_s + pause_s) for turn in range(rounds) for _ in range(streams)]
    offered = achieved(truth_of(starts, request_s), Level(len(starts), 11, streams=streams), request_s)
    assert offered <= 1.0 + 1e-9
    if pause_s == 0:
        assert offered == pytest.approx(1.0)
    else:
        assert offered < 1.0


@given(st.integers(2, 500), st.floats(1, 1000), st.floats(0.5, 1.0))
def test_an_open_loop_offers_the_rate_of_its_arrivals(requests, rate, share):
    truth = truth_of((np.arange(requests) / (rate * share)).tolist(), 0.2)
    assert achieved(truth, Level(requests, 11, rate=rate), 0.2) == pytest.approx(share)


def test_levels_are_named_as_they_are_asked_for():
    closed, opened = parse_level("64", 4, 10.0, 100), parse_level("200rps", 4, 10.0, 100)
    assert (closed.name, closed.requests) == ("64", 256)
    assert (opened.name, opened.requests) == ("200rps", 2000)


def test_several_rounds_stand_for_their_median_and_every_verdict_is_told():
    results, client, level = Results(Plan(100, 20), 100), Kneekeeper(), Level(10, 11, streams=2)
    for error, verdict in ((1.0, "Done"), (9.0, "Invalid: late"), (2.0, "Done")):
        one = Measured(Quantiles(error, error, error, error), Quantiles(1, 1, 1, 1), 1.0, 0.1, verdict)
        results.add(client, level, one)
    results.fail(client, Level(10, 11, streams=3), "it\nended")
    told = as_json(results)
    assert told["error_ms"]["kneekeeper"]["2"] == dict.fromkeys(("ttft_p50", "ttft_p99", "tpot_p50", "tpot_p99"), 2.0)
    assert told["verdict"]["kneekeeper"]["2"] == "Done | Invalid: late"
    assert "kneekeeper failed at 3: it ended" in as_page(results)
