"""Each serving pod against its own knee in status, from history that is read now and then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from kneekeeper.api.observed import KneeSource
from kneekeeper.api.profile_status import KneeEstimate
from kneekeeper.domain.observation import EngineMetrics, PodView, ProductionHistory, ProfileObservation
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


def at_load(observed: ProfileObservation, running: int, waiting: int = 0) -> ProfileObservation:
    """The next look, five minutes later, without history; the pod has so many requests."""
    metrics = EngineMetrics(running, waiting, 100_000, 0.0, 0.0)
    return replace(
        observed,
        profile=observed.profile.with_changes(status=decided(observed)),
        history=None,
        history_read=False,
        pod_metrics={"chat-0": metrics},
        now=observed.now + timedelta(minutes=5),
    )


@pytest.mark.parametrize(
    ("running", "waiting", "is_told"),
    [(44, 0, False), (36, 0, False), (52, 0, True), (28, 0, True), (39, 1, True)],
)
def test_a_load_is_told_anew_where_it_moved_by_a_tenth_of_the_knee_or_begins_to_queue(
    world: World, running: int, waiting: int, is_told: bool
):
    first = at_load(seen(world, [history(day(5, 70), pod="chat-0")], fleet(world, 1)), 40)
    second = at_load(first, running, waiting)
    [before], [after] = decided(first).replicas, decided(second).replicas
    assert before.headroom_percent == pytest.approx(50, abs=6)
    assert (after != before) == is_told
    assert (after.running == running) == is_told
    assert (decided(second) == decided(first)) == (not is_told)


def test_a_load_that_creeps_is_told_once_it_has_moved_far_enough_from_what_was_told(world: World):
    observed = at_load(seen(world, [history(day(5, 70), pod="chat-0")], fleet(world, 1)), 40)
    told = []
    for running in (43, 46, 52, 55):
        observed = at_load(observed, running)
        told.append(decided(observed).replicas[0].running)
    assert told == [40, 40, 52, 52]


def test_a_load_beyond_the_knee_is_told_at_once(world: World):
    observed = at_load(seen(world, [history(day(5, 70), pod="chat-0")], fleet(world, 1)), 40)
    knee = decided(observed).replicas[0].knee_concurrency
    assert knee is not None
    for running in (int(knee) - 1, int(knee) + 2):
        observed = at_load(observed, running)
    [replica] = decided(observed).replicas
    assert replica.running == int(knee) + 2
    assert replica.headroom_percent is not None
    assert replica.headroom_percent < 0


def test_without_a_source_of_history_a_look_that_sees_nothing_new_changes_nothing(world: World):
    first = replace(seen(world, [], fleet(world, 1)), history=None)
    later = replace(
        first, profile=first.profile.with_changes(status=decided(first)), now=first.now + timedelta(hours=1)
    )
    assert decided(later) == decided(first)
    assert decided(first).history_read_at is None


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
