"""All replicas together: one set of arguments for unlike ones, and what an uneven router leaves of their capacity."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.domain.passive import EngineHistory, StepCurve
from kneekeeper.domain.passive.one_setting import KnownReplica, one_setting
from kneekeeper.domain.passive.router import fleet_of
from tests.unit.history_builders import day, history


def replica(pod: str, product: str, knee: float) -> KnownReplica:
    return KnownReplica(pod, product, knee, StepCurve(0.02, 4 * 0.02 / knee))


def test_like_replicas_cost_nothing_and_are_not_told_of():
    assert one_setting([replica("a", "H100", 80), replica("b", "H100", 90)]) is None


def test_one_set_of_arguments_fits_the_weakest_product_and_says_what_it_costs():
    found = one_setting([replica("a", "H100", 120), replica("b", "H100", 120), replica("c", "L4", 20)])
    assert found is not None
    assert (found.weakest_product, found.knee) == ("L4", 20)
    # At 20 of 120 requests an H100 has x / (1 + 4 x) of what x = 1/6 gives, against 1/5 at its knee.
    kept = (1 / 6) / (1 + 4 / 6) * 5
    strong, weak = 120 / (0.02 * 5), 20 / (0.02 * 5)
    assert found.lost_share == pytest.approx(2 * strong * (1 - kept) / (2 * strong + weak))
    assert "make a workload for each GPU product" in found.advice


def test_nearly_alike_products_stay_together():
    found = one_setting([replica("a", "H100", 100), replica("b", "H200", 110)])
    assert found is not None
    assert "make a workload" not in found.advice


def busy(*requests_per_s: float) -> list[EngineHistory]:
    """Replicas with so many requests/s at the peak of the day."""
    shape = day(0.2, 1.0)
    return [
        replace(history(day(5, 60), pod=f"chat-{i}"), requests_per_s=rate * shape)
        for i, rate in enumerate(requests_per_s)
    ]


def test_an_even_router_leaves_the_sum_of_the_capacities():
    fleet = fleet_of(busy(4, 4, 4), {"chat-0": 5, "chat-1": 5, "chat-2": 5})
    assert fleet is not None
    assert (fleet.imbalance, fleet.capacity_per_s, fleet.needed) == pytest.approx((1, 15, 3), rel=0.01)


def test_an_uneven_router_needs_more_replicas_for_the_same_peak():
    fleet = fleet_of(busy(6, 3, 3), {"chat-0": 5, "chat-1": 5, "chat-2": 5})
    assert fleet is not None
    assert fleet.imbalance == pytest.approx(1.5)
    assert fleet.capacity_per_s == pytest.approx(10)
    assert fleet.needed == 4
    assert "4 replicas are needed" in fleet.advice


def test_a_strong_replica_that_gets_more_is_no_imbalance():
    fleet = fleet_of(busy(8, 4), {"chat-0": 10, "chat-1": 5})
    assert fleet is not None
    assert fleet.imbalance == pytest.approx(1)


def test_fewer_replicas_are_advised_only_where_the_peak_leaves_room():
    capacities = {f"chat-{i}": 5.0 for i in range(4)}
    low, close = fleet_of(busy(1, 1, 1, 1), capacities), fleet_of(busy(3.7, 3.7, 3.7, 3.7), capacities)
    assert low is not None
    assert close is not None
    assert (low.needed, close.needed) == (1, 4)


def test_without_a_capacity_or_history_nothing_is_said():
    assert fleet_of(busy(1, 1), {}) is None
    assert fleet_of([], {"chat-0": 5}) is None


@given(st.lists(st.floats(0.1, 20), min_size=1, max_size=8))
def test_the_replicas_that_are_needed_carry_the_peak(rates):
    fleet = fleet_of(busy(*rates), {f"chat-{i}": 4.0 for i in range(len(rates))})
    assert fleet is not None
    assert fleet.imbalance >= 1
    alone = fleet.needed == 1
    assert fleet.needed * 4.0 / (1 if alone else fleet.imbalance) >= fleet.peak_per_s * (1 - 1e-9)
    assert np.isfinite(fleet.capacity_per_s)
