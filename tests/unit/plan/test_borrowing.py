"""A borrowed replica: taken with evidence, never fought over, and given back whatever happens."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kneekeeper.api.tuning_run import RunOutcome, RunStep
from kneekeeper.domain import actions as act
from kneekeeper.domain.plan import run as run_plan
from kneekeeper.domain.plan import run_measure
from tests.unit.plan.world import PROFILE_SPEC, Effect, World, at_step

SPEC = PROFILE_SPEC | {"probe": {"allow": ["BorrowReplica"]}}
MEASURING = [RunStep.CEILING, RunStep.RAMP, RunStep.CERTIFY, RunStep.BASELINE]


def borrowing(step: RunStep) -> World:
    world = at_step(step, spec=SPEC, spare_gpus=0)
    assert world.replicas == 1 or step == RunStep.BORROW
    return world


def finish(world: World) -> None:
    world.run_until(lambda w: all(r.status.step == RunStep.DONE for r in w.runs.values()), limit_s=60)


@pytest.mark.parametrize("step", MEASURING)
def test_it_goes_back_at_once_when_requests_wait_in_any_step(step: RunStep):
    world = borrowing(step)
    world.production_waiting = 50
    world.tick()
    assert world.replicas == 2
    finish(world)
    status = world.last_run.status
    assert status.borrowed is not None
    assert status.borrowed.returned_at is not None
    if step == RunStep.BASELINE:
        assert (status.outcome, status.cause) == (RunOutcome.CERTIFIED, "PresentNotMeasured")
    else:
        assert (status.outcome, status.cause) == (RunOutcome.CANCELLED, "ProductionNeedsReplica")


def test_it_goes_back_at_once_when_a_serving_pod_is_not_ready():
    world = borrowing(RunStep.RAMP)
    world.unready = 1
    world.tick()
    assert world.replicas == 2


@pytest.mark.parametrize("step", [RunStep.BORROW, *MEASURING])
def test_a_suspended_profile_gives_it_back_in_any_step(step: RunStep):
    world = borrowing(step)
    world.edit_profile(suspend=True)
    finish(world)
    assert world.replicas == 2
    assert world.last_run.status.cause == "Suspended"


@pytest.mark.parametrize("died_behind", [Effect.EVIDENCE, Effect.STATUS, None])
def test_a_profile_deleted_while_the_replica_is_taken_gets_it_back(died_behind: Effect | None):
    world = borrowing(RunStep.BORROW)
    world.tick(crash_after=died_behind)
    world.profile_deleting = True
    world.run_until(lambda w: not w.runs, limit_s=120)
    assert world.replicas == 2


def test_a_run_whose_profile_was_taken_away_by_force_still_gives_it_back():
    world = borrowing(RunStep.RAMP)
    world.profile_exists = False
    for _ in range(10):
        world.tick_run(world.last_run.metadata["name"])
        world.now += timedelta(seconds=2)
    assert world.replicas == 2
    assert not world.clones
    assert (world.last_run.status.step, world.last_run.status.cause) == (RunStep.DONE, "ProfileGone")


def test_an_autoscaler_that_puts_the_replica_back_is_not_fought():
    world = World(spec=SPEC, spare_gpus=0, autoscaling=True)
    world.run_for(3600)
    assert world.last_run.status.cause == "ReplicasChanged"
    assert len(world.writes) <= 6
    assert world.replicas == 2


def test_the_gpu_is_set_free_when_somebody_sets_the_replicas_back():
    world = borrowing(RunStep.RAMP)
    world.replicas = 2
    finish(world)
    assert not world.clones
    assert world.last_run.status.cause == "ReplicasChanged"
    assert world.replicas == 2


def test_a_pod_that_does_not_leave_ends_the_run():
    world = World(spec=SPEC, spare_gpus=0, leaving=True)
    world.run_until_step(RunStep.PREFLIGHT)
    world.leaving = False
    world.run_until_step(RunStep.BORROW)
    world.leaving = True
    world.run_until(lambda w: w.last_run.status.step == RunStep.DONE, limit_s=1200)
    assert world.last_run.status.cause == "ReplicaStays"
    assert world.replicas == 2


def test_a_bug_in_a_step_ends_the_run_and_gives_the_replica_back(monkeypatch: pytest.MonkeyPatch):
    world = borrowing(RunStep.RAMP)

    def broken(*_: object) -> None:
        raise ZeroDivisionError("no such thing")

    monkeypatch.setattr(run_measure, "ramp", broken)
    finish(world)
    assert world.replicas == 2
    status = world.last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.FAILED, "InternalError")
    assert "ZeroDivisionError in broken" in status.message


def test_the_end_is_stored_before_the_replica_is_believed_to_be_back():
    """Else a scaling that is still under way in another task would take it for good."""
    world = borrowing(RunStep.BORROW)
    world.tick(crash_after=Effect.STATUS)
    run = world.last_run
    run = run.with_changes(metadata={**run.metadata, "deletionTimestamp": "now"})
    first = run_plan.decide(world.observe_run(run))
    assert first.status.borrowed is not None
    assert first.status.borrowed.returned_at is None
    world.replicas = 1  # what was under way took effect
    second = run_plan.decide(world.observe_run(run.with_changes(status=first.status)))
    assert act.ScaleWorkload(expected=1, wanted=2) in second.actions
