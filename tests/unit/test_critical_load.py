"""Whether a queue is short enough to exclude critical load, on single servers whose load is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.api.offered_load import Arrivals, Closed, Open, Replay
from kneekeeper.domain.critical_load import critical_load_doubt, waiting_found
from kneekeeper.domain.samples import Floats, StageData


def data(sent_s: Floats, first_s: Floats) -> StageData:
    tokens = np.ones(sent_s.size, dtype=np.int64)
    return StageData(0.0, sent_s, first_s, first_s, tokens, tokens, tokens, np.ones(sent_s.size, dtype=np.bool_))


def single_server(load: float, requests: int, seed: int, *, shape: float = 1.0, ahead_s: float = 0.0) -> StageData:
    """First come, first served with exponential service of 1 s in the mean; each answer takes `ahead_s` more."""
    rng = np.random.default_rng(seed)
    sent_s = np.cumsum(rng.gamma(shape, 1 / (shape * load), requests))
    served_s, free_s = rng.exponential(1.0, requests), 0.0
    first_s = np.empty(requests)
    for i in range(requests):
        free_s = max(free_s, sent_s[i]) + served_s[i]
        first_s[i] = free_s + ahead_s
    return data(sent_s, first_s)


def doubted(load: float, arrivals: Arrivals, runs: int = 100, *, shape: float = 1.0, ahead_s: float = 0.0) -> float:
    stages = [single_server(load, 1500, seed, shape=shape, ahead_s=ahead_s) for seed in range(runs)]
    return sum(bool(critical_load_doubt(stage, arrivals)) for stage in stages) / runs


@pytest.mark.parametrize(("load", "at_least"), [(1.0, 0.75), (1.1, 0.95)])
def test_critical_and_higher_loads_are_seldom_excluded(load, at_least):
    """At exactly critical load a stage is as often doubted as the part that is no queue is guessed too low."""
    assert doubted(load, Open(rate=load)) >= at_least
    assert doubted(load, Open(rate=load, burstiness=0.25), shape=0.25) >= at_least


def test_moderate_load_is_always_told_from_critical_load():
    assert doubted(0.7, Open(rate=0.7), 30) == 0.0
    assert doubted(0.6, Open(rate=0.6, burstiness=0.25), 30, shape=0.25) == 0.0


def test_requests_that_are_only_being_answered_are_no_queue():
    """Thirty requests are always under way, as on a large engine with long prompts."""
    assert doubted(0.6, Open(rate=0.6), 10, ahead_s=50.0) == 0.0


def test_the_gaps_of_a_replay_are_measured():
    assert doubted(1.05, Replay(rate=1.05), 40, shape=0.25) >= 0.95


def test_a_closed_loop_has_no_critical_load():
    assert critical_load_doubt(single_server(2.0, 500, 1), Closed(users=8)) == ""


def test_nothing_is_doubted_without_requests():
    assert critical_load_doubt(data(np.empty(0), np.empty(0)), Open(rate=1.0)) == ""


def test_the_sentence_has_the_queue_and_its_limit():
    sentence = critical_load_doubt(single_server(1.3, 1500, 3), Open(rate=1.3))
    assert "requests queued; only below" in sentence


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0.001, 20)), max_size=40))
def test_waiting_requests_are_those_sent_before_and_not_answered(gaps_and_waits):
    sent_s = np.cumsum([gap for gap, _ in gaps_and_waits])
    first_s = sent_s + np.array([wait for _, wait in gaps_and_waits])
    expected = [float(sum(first_s[:i] > sent_s[i])) for i in range(sent_s.size)]
    assert waiting_found(np.array(sent_s), np.array(first_s)).tolist() == expected
