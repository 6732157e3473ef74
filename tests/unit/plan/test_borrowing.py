"""A borrowed replica: taken with evidence, never fought over, and given back whatever happens."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from kneekeeper.api.profile_status import KneeEstimate
from kneekeeper.api.tuning_run import RunOutcome, RunStep
from kneekeeper.domain import actions as act
from kneekeeper.domain.observation import WorkloadView
from kneekeeper.domain.plan import run as run_plan
from kneekeeper.domain.plan import run_measure
from kneekeeper.domain.plan.conditions import ConditionType, find
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


@pytest.mark.parametrize(
    ("change", "cause"),
    [({"profile_exists": False}, "ProfileGone"), ({"profile_problem": "spec.later: ..."}, "ProfileNotUnderstood")],
)
def test_a_run_whose_profile_is_taken_away_by_force_or_not_understood_any_more_still_gives_it_back(
    change: dict[str, Any], cause: str
):
    world = borrowing(RunStep.RAMP)
    for name, value in change.items():
        setattr(world, name, value)
    for _ in range(10):
        world.tick_run(world.last_run.metadata["name"])
        world.now += timedelta(seconds=2)
    assert world.replicas == 2
    assert not world.clones
    assert (world.last_run.status.step, world.last_run.status.cause) == (RunStep.DONE, cause)


def test_an_autoscaler_that_puts_the_replica_back_is_not_fought():
    world = World(spec=SPEC, spare_gpus=0, autoscaling=True)
    world.run_for(3600)
    assert world.last_run.status.cause == "ReplicasChanged"
    assert len(world.writes) <= 6
    assert world.replicas == 2


def test_a_scaling_that_cannot_be_written_for_a_while_is_tried_on_and_not_taken_for_anothers():
    world = World(spec=SPEC, spare_gpus=0, scaling_fails=True)
    world.run_until_step(RunStep.BORROW)
    world.run_for(300)
    assert world.last_run.status.step == RunStep.BORROW
    world.scaling_fails = False
    world.run_until_step(RunStep.CEILING)
    assert world.replicas == 1


def test_a_scaling_that_can_never_be_written_ends_the_run_and_says_so():
    world = World(spec=SPEC, spare_gpus=0, scaling_fails=True)
    world.run_until(lambda w: bool(w.runs) and w.last_run.status.step == RunStep.DONE, limit_s=1200)
    status = world.last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.CANCELLED, "NotScaled")
    assert world.writes == []
    assert world.replicas == 2


def test_the_gpu_is_set_free_when_somebody_sets_the_replicas_back():
    world = borrowing(RunStep.RAMP)
    world.replicas = 2
    world.generation += 1
    finish(world)
    assert not world.clones
    assert world.last_run.status.cause == "ReplicasChanged"
    assert world.replicas == 2


def before_it_was_taken(world: World) -> WorkloadView:
    """The workload as an old answer of the API server tells of it."""
    borrowed, seen = world.last_run.status.borrowed, world.workload()
    assert borrowed is not None
    assert seen is not None
    assert borrowed.generation not in (None, seen.generation)
    replicas = borrowed.replicas_before
    return replace(seen, replicas=replicas, ready_replicas=replicas, generation=borrowed.generation)


@pytest.mark.parametrize("step", MEASURING)
def test_an_old_answer_that_knows_nothing_of_the_borrowing_is_no_change_by_somebody(step: RunStep):
    world = borrowing(step)
    seen = replace(world.observe_run(world.last_run), workload=before_it_was_taken(world))
    status = run_plan.decide(seen).status
    assert (status.step, status.cause) == (step, "")


def test_it_goes_back_though_cleaning_up_was_told_by_an_old_answer_that_it_never_was_taken():
    world = borrowing(RunStep.RAMP)
    old = before_it_was_taken(world)
    world.edit_profile(suspend=True)
    status = run_plan.decide(world.observe_run(world.last_run)).status
    assert status.step == RunStep.CLEAN_UP
    stored = world.last_run.with_changes(status=status)
    decision = run_plan.decide(replace(world.observe_run(stored), workload=old))
    assert act.ScaleWorkload(expected=1, wanted=2) in decision.actions


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


def waits_for(world: World) -> str:
    world.run_for(120)
    assert world.writes == []
    assert world.last_run.status.step == RunStep.PREFLIGHT
    return world.last_run.status.waiting_for


def test_metrics_that_cannot_be_read_are_no_consent():
    world = World(spec=SPEC, spare_gpus=0, production_readable=False)
    assert waits_for(world) == "ProductionNotReadable"
    assert "prometheusRef" in world.last_run.status.message
    probing = find(world.profile.status.conditions, ConditionType.PROBING)
    assert probing is not None
    assert (probing.status, probing.reason) == ("False", "ProductionNotReadable")
    world.production_readable = True
    world.run_until_step(RunStep.CEILING)
    assert world.replicas == 1


def test_nothing_is_borrowed_while_requests_wait():
    assert waits_for(World(spec=SPEC, spare_gpus=0, production_waiting=1)) == "ProductionBusy"


@pytest.mark.parametrize(("running", "borrowed"), [(3, True), (4, False)])
def test_the_other_replicas_stay_below_four_fifths_of_the_present_limit(running: int, borrowed: bool):
    """Of the four sequences that one replica takes at once."""
    world = World(spec=SPEC, spare_gpus=0, production_running=running)
    if borrowed:
        world.run_until_step(RunStep.CEILING)
    else:
        assert waits_for(world) == "ProductionBusy"
        assert "80%" in world.last_run.status.message


def test_a_known_knee_below_the_present_limit_is_the_peak():
    world = World(spec=SPEC, spare_gpus=0, production_running=3)
    knee = KneeEstimate(concurrency=2.0, lower=1.5, upper=2.5)
    world.profile = world.profile.with_changes(status=world.profile.status.with_changes(knee=knee))
    assert waits_for(world) == "ProductionBusy"


def test_load_that_grew_since_preflight_looked_is_seen_before_anything_is_taken():
    world = World(spec=SPEC, spare_gpus=0)
    world.run_until_step(RunStep.BORROW)
    world.replicas, world.writes = 2, []
    status = world.last_run.status.with_changes(borrowed=None)
    world.runs[world.last_run.metadata["name"]] = world.last_run.with_changes(status=status)
    world.production_waiting = 1
    assert waits_for(world) == "ProductionBusy"


@pytest.mark.parametrize("step", MEASURING)
def test_it_goes_back_when_production_cannot_be_looked_at_for_long(step: RunStep):
    world = borrowing(step)
    world.production_readable = False
    world.run_for(20)
    assert world.replicas == 1
    world.run_for(20)
    assert world.replicas == 2
    finish(world)
    assert "could not be read" in world.last_run.status.message


def test_one_scrape_that_fails_now_and_then_is_no_reason():
    world = borrowing(RunStep.RAMP)
    for _ in range(20):
        world.production_readable = not world.production_readable
        world.run_for(5)
    assert world.replicas == 1


def test_it_goes_back_when_the_others_work_beyond_their_known_peak():
    world = borrowing(RunStep.RAMP)
    world.production_running = 5
    world.tick()
    assert world.replicas == 2
    finish(world)
    assert world.last_run.status.cause == "ProductionNeedsReplica"


def test_a_disruption_budget_that_allows_none_keeps_every_replica():
    world = World(spec=SPEC, spare_gpus=0, exhausted_budgets=("chat",))
    assert waits_for(world) == "DisruptionBudget"
    probing = find(world.profile.status.conditions, ConditionType.PROBING)
    assert probing is not None
    assert (probing.status, probing.reason) == ("False", "DisruptionBudget")
    assert "PodDisruptionBudget chat" in probing.message
    world.exhausted_budgets = ()
    world.run_until_step(RunStep.CEILING)
    assert world.replicas == 1


def test_a_budget_that_the_run_itself_uses_up_is_no_reason_to_give_back():
    world = borrowing(RunStep.RAMP)
    world.exhausted_budgets = ("chat",)
    world.run_for(60)
    assert world.replicas == 1
