"""A setting that would not carry the demand is not written, nor a rollout that has no place; the next step is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kneekeeper.api.profile_status import Recommendation
from kneekeeper.domain.observation import Demand
from kneekeeper.domain.plan import profile as profile_plan
from kneekeeper.domain.plan.conditions import ConditionType, find
from tests.unit.plan.test_rollouts import approve, reason, recommended
from tests.unit.plan.world import World

HOUR_S = 3600.0
APPLY = {"mode": "Apply", "verifyFor": "1m"}


def recommendation(world: World) -> Recommendation:
    found = world.profile.status.recommendation
    assert found is not None
    return found


def lower_than_the_present() -> World:
    """A certified setting with fewer sequences than the workload declares by now."""
    world = recommended()
    changes = {"raises_capacity": False}
    status = world.profile.status.with_changes(recommendation=recommendation(world).with_changes(**changes))
    world.profile = world.profile.with_changes(status=status)
    return world


def decide(world: World, peak: float | None):
    demand = None if peak is None else Demand(peak)
    seen = replace(world.observe_profile(), demand=demand)
    lower = recommendation(world).with_changes(raises_capacity=False)
    spec = seen.profile.spec.with_changes(update_policy=seen.profile.spec.update_policy.with_changes(mode="Apply"))
    status = seen.profile.status.with_changes(recommendation=lower)
    # The run's objects are gone, so that the recommendation stands as it is.
    return profile_plan.decide(replace(seen, runs=(), profile=seen.profile.with_changes(spec=spec, status=status)))


def applied(decision) -> tuple[str, str]:
    found = find(decision.status.conditions, ConditionType.APPLIED)
    assert found is not None
    return found.reason, found.message


def test_a_demand_above_the_promise_is_not_traded_for_a_queue():
    world = lower_than_the_present()
    promised = recommendation(world).promised_requests_per_second
    decision = decide(world, 4.5 * promised)
    assert applied(decision)[0] == "CapacityBelowDemand"
    assert "5 replicas are needed" in applied(decision)[1]
    assert decision.status.rollout is None


@pytest.mark.parametrize("share", [None, 0.1, 1.9])
def test_a_demand_that_the_replicas_carry_or_that_is_not_known_holds_nothing_back(share: float | None):
    world = lower_than_the_present()
    promised = recommendation(world).promised_requests_per_second
    decision = decide(world, None if share is None else share * promised)
    assert decision.status.rollout is not None


def test_a_shortage_lasts_until_the_demand_is_clearly_below_the_promise():
    world = lower_than_the_present()
    promised = 2 * recommendation(world).promised_requests_per_second
    told = decide(world, 1.1 * promised)
    world.profile = world.profile.with_changes(status=told.status)
    assert applied(decide(world, 0.95 * promised))[0] == "CapacityBelowDemand"
    assert applied(decide(world, None))[0] == "CapacityBelowDemand"
    assert decide(world, 0.85 * promised).status.rollout is not None


def test_a_choice_that_raises_capacity_is_written_whatever_the_demand():
    world = recommended()
    assert recommendation(world).raises_capacity
    world.demand = Demand(1000.0)
    world.edit_profile(updatePolicy=APPLY)
    world.run_for(600)
    assert [kind for kind, _ in world.writes] == ["words"]
    message = find(world.profile.status.conditions, ConditionType.APPLIED).message  # type: ignore[union-attr]
    assert "replicas are needed" in message


def test_a_rollout_without_room_for_its_surge_is_seen_before_the_write():
    world = recommended()
    world.max_unavailable, world.room_for_surge = 0, 0
    world.edit_profile(updatePolicy=APPLY)
    approve(world)
    world.run_for(HOUR_S)
    assert world.writes == []
    assert reason(world, ConditionType.APPLIED) == "NoSurgeRoom"
    assert "maxUnavailable 1" in find(world.profile.status.conditions, ConditionType.APPLIED).message  # type: ignore[union-attr]
    world.max_unavailable = 1
    world.run_for(600)
    assert [kind for kind, _ in world.writes] == ["words"]


@pytest.mark.parametrize(("unavailable", "room"), [(0, 1), (1, 0), (0, None), (None, 0)])
def test_a_rollout_with_room_or_one_of_which_nothing_is_known_goes_on(unavailable: int | None, room: int | None):
    world = recommended()
    world.max_unavailable, world.room_for_surge = unavailable, room
    world.edit_profile(updatePolicy=APPLY)
    world.run_for(60)
    assert [kind for kind, _ in world.writes] == ["words"]


def test_an_approval_is_void_once_the_recommendation_changes():
    world = recommended()
    approve(world)
    old = recommendation(world).hash
    world.set_image("vllm/vllm-openai:v0.33.0")
    world.settle()
    assert recommendation(world).hash != old
    assert world.writes == []
    world.run_for(24 * HOUR_S)
    assert world.writes == []
    assert reason(world, ConditionType.APPLIED) == "AwaitsApproval"
    approve(world)
    world.run_for(600)
    assert [kind for kind, _ in world.writes] == ["words"]


def test_a_younger_profile_of_the_same_workload_says_which_one_wins_and_does_nothing():
    seen = replace(World().observe_profile(), older_profiles_on_target=("first",))
    decision = profile_plan.decide(seen)
    accepted = find(decision.status.conditions, ConditionType.ACCEPTED)
    assert accepted is not None
    assert (accepted.status, accepted.reason) == ("False", "TargetTaken")
    assert "first" in accepted.message
    assert decision.status.active_run is None
