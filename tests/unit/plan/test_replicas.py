"""Each serving pod against its own knee in status, from history that is read now and then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from kneekeeper.api.observed import KneeSource
from kneekeeper.api.profile_status import KneeEstimate
from kneekeeper.domain.observation import PodView, ProductionHistory, ProfileObservation
from kneekeeper.domain.passive import EngineHistory
from kneekeeper.domain.plan import profile as profile_plan
from kneekeeper.domain.traffic_history import TrafficHistory
from tests.unit.history_builders import day, history
from tests.unit.plan.world import World

KNEE = 80.0


def seen(world: World, engines: Sequence[EngineHistory], pods: Sequence[PodView] | None = None) -> ProfileObservation:
    found = ProductionHistory(tuple(engines), TrafficHistory(()))
    observed = replace(world.observe_profile(), history=found, history_read=True)
    return observed if pods is None else replace(observed, pods=tuple(pods))


def decided(observed: ProfileObservation):
    return profile_plan.decide(observed).status


def fleet(world: World, count: int = 3, product: str = "H100") -> list[PodView]:
    [first, *_] = world.observe_profile().pods or ()
    return [replace(first, name=f"chat-{i}", gpu_product=product) for i in range(count)]


@pytest.fixture
def world() -> World:
    """One whose last run found a knee."""
    world = World(spare_gpus=0)
    world.tick_profile()
    knee = KneeEstimate(concurrency=90, lower=80, upper=100)
    world.profile = world.profile.with_changes(status=world.profile.status.with_changes(knee=knee))
    return world


def test_a_replica_whose_traffic_came_near_shows_its_own_knee_with_its_interval(world: World):
    pods = fleet(world, 1)
    [replica] = decided(seen(world, [history(day(5, 70), pod="chat-0")], pods)).replicas
    assert replica.knee_source == KneeSource.PRODUCTION
    assert replica.knee_concurrency == pytest.approx(KNEE, rel=0.1)
    assert replica.knee_lower is not None
    assert replica.knee_upper is not None
    assert replica.knee_lower < replica.knee_concurrency < replica.knee_upper
    assert (replica.not_observed, replica.knee_at_least) == ("", None)
    assert replica.requests_per_second is not None
    assert "traffic reached 70" in replica.message


def test_elsewhere_the_runs_knee_stands_in_and_the_reason_is_told(world: World):
    pods = fleet(world, 2)
    status = decided(seen(world, [history(day(0.5, 2), pod="chat-0")], pods))
    low, silent = status.replicas
    assert (low.not_observed, low.knee_source) == ("TrafficTooLow", KneeSource.RUN)
    assert low.knee_at_least is not None
    assert silent.not_observed == "NoHistory"
    assert "no history of it yet" in silent.message
    assert status.knee is not None
    assert low.knee_concurrency == silent.knee_concurrency == status.knee.concurrency


def test_without_a_source_of_history_the_way_to_one_is_told(world: World):
    observed = replace(seen(world, [], fleet(world, 1)), history=None)
    [replica] = decided(observed).replicas
    assert replica.not_observed == "NoHistory"
    assert "spec.metrics.prometheusRef" in replica.message


def test_between_two_reads_what_history_told_stands_and_the_load_is_that_of_now(world: World):
    pods = fleet(world, 1)
    observed = seen(world, [history(day(5, 70), pod="chat-0")], pods)
    status = decided(observed)
    later = replace(
        observed,
        profile=observed.profile.with_changes(status=status),
        history=None,
        history_read=False,
        now=observed.now + timedelta(minutes=5),
    )
    [before], [after] = status.replicas, decided(later).replicas
    assert after == before
    assert decided(later).history_read_at == observed.now


def test_ranks_are_told_apart_and_the_weakest_sets_the_replicas_knee(world: World):
    pods = fleet(world, 1)
    ranks = [history(day(5, 70), pod="chat-0", rank=str(rank), seed=rank) for rank in range(3)]
    weak = history(day(5, 70), slope_s=0.0015, pod="chat-0", rank="3")
    [replica] = decided(seen(world, [*ranks, weak], pods)).replicas
    assert [rank.rank for rank in replica.ranks] == ["0", "1", "2", "3"]
    weakest = min(rank.knee_concurrency or 0 for rank in replica.ranks)
    assert replica.ranks[3].knee_concurrency == weakest
    assert replica.knee_concurrency == pytest.approx(4 * weakest)


def test_a_slow_replica_stands_out_and_keeps_less_of_the_promise(world: World):
    pods = fleet(world, 4)
    engines = [history(day(5, 70), pod=f"chat-{i}", slowness=1.4 if i == 3 else 1.0, seed=i) for i in range(4)]
    *usual, slow = decided(seen(world, engines, pods)).replicas
    assert [replica.outlier for replica in usual] == ["", "", ""]
    assert slow.outlier == "Slow"
    assert slow.capacity_requests_per_second is not None
    assert usual[0].capacity_requests_per_second is not None
    ratio = usual[0].capacity_requests_per_second / slow.capacity_requests_per_second
    assert ratio == pytest.approx(1.4, rel=0.05)


def test_scale_tells_the_peak_the_imbalance_and_the_replicas_that_are_needed(world: World):
    pods = fleet(world, 2)
    engines = [history(day(5, 70), pod="chat-0"), history(day(2, 20), pod="chat-1")]
    scale = decided(seen(world, engines, pods)).scale
    assert scale is not None
    assert scale.replicas == 2
    assert scale.imbalance_percent > 110
    assert f"{scale.needed_replicas} replicas" in scale.message or scale.needed_replicas == 2
    assert scale.lost_percent is None


def test_unlike_hardware_is_told_with_what_one_setting_costs(world: World):
    strong, weak = fleet(world, 1)[0], replace(fleet(world, 1, "L4")[0], name="chat-1")
    engines = [history(day(5, 70), pod="chat-0"), history(day(1.2, 18), base_s=0.02, slope_s=0.004, pod="chat-1")]
    scale = decided(seen(world, engines, [strong, weak])).scale
    assert scale is not None
    assert scale.weakest_gpu_product == "L4"
    assert scale.lost_percent is not None
    assert scale.lost_percent >= 5
    assert "make a workload for each GPU product" in scale.message


def test_without_history_nothing_is_scaled(world: World):
    assert decided(seen(world, [])).scale is None
