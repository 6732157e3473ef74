"""What keeps a clone or the load agent from being made ends the run at once and says what to do."""

from __future__ import annotations

import pytest

from kneekeeper.api.tuning_run import RunOutcome, RunStep
from kneekeeper.domain.observation import Obstacle, ObstacleReason
from kneekeeper.domain.plan.conditions import ConditionType, find
from tests.unit.plan.world import PROFILE_SPEC, World, at_step

NEXT_STEP = "Take the label off spec.probe.clone.keep."


def finish(world: World, limit_s: float) -> World:
    world.run_until(lambda w: bool(w.runs) and w.last_run.status.step == RunStep.DONE, limit_s)
    assert not world.clones
    assert world.agent_since is None
    return world


@pytest.mark.parametrize("reason", list(ObstacleReason))
@pytest.mark.parametrize("allow", ["Clone", "BorrowReplica"])
def test_an_obstacle_ends_the_run_in_preflight_before_anything_is_touched(reason: ObstacleReason, allow: str):
    spec = PROFILE_SPEC | {"probe": {"allow": [allow]}}
    world = finish(World(spec=spec, obstacle=Obstacle(reason, NEXT_STEP)), limit_s=30)
    status = world.last_run.status
    assert (status.outcome, status.cause, status.plan) == (RunOutcome.FAILED, reason, None)
    assert NEXT_STEP in status.message
    assert "kneekeeper.io/retune" in status.message
    assert world.writes == []
    world.run_for(60)
    recommended = find(world.profile.status.conditions, ConditionType.RECOMMENDED)
    assert recommended is not None
    assert (recommended.status, recommended.reason) == ("False", reason)
    assert NEXT_STEP in recommended.message


def test_an_obstacle_behind_preflight_ends_the_run_as_soon_as_the_clone_is_missing():
    world = at_step(RunStep.RAMP)
    world.obstacle = Obstacle(ObstacleReason.CLONE_IS_SELECTED, NEXT_STEP)
    world.preempt_clone()
    status = finish(world, limit_s=30).last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.FAILED, "CloneIsSelected")


def test_an_obstacle_to_the_present_settings_clone_leaves_the_certified_setting_uncompared():
    world = at_step(RunStep.BASELINE)
    world.preempt_clone()
    world.obstacle = Obstacle(ObstacleReason.CLONE_IS_SELECTED, NEXT_STEP)
    status = finish(world, limit_s=30).last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.CERTIFIED, "PresentNotMeasured")
    assert NEXT_STEP in status.message


def test_a_key_that_cannot_be_read_any_more_ends_the_run_once_the_agent_is_missing():
    world = at_step(RunStep.RAMP)
    world.obstacle = Obstacle(ObstacleReason.API_KEY_UNUSABLE, "Secret key does not exist; create it.")
    world.agent_since = None
    status = finish(world, limit_s=30).last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.FAILED, "APIKeyUnusable")
    assert "create it" in status.message
