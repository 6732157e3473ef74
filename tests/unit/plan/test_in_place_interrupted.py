"""A serving pod measured itself gives way: to users, to the end of the window, and to whatever others do with it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kneekeeper.api.tuning_run import RunOutcome, RunStep, Verdict
from kneekeeper.domain.observation import PodPhase
from kneekeeper.domain.plan.conditions import ConditionType, find
from tests.unit.plan.alone import (
    MEASURING,
    PROBE,
    SPEC,
    WINDOW,
    alone,
    finish,
    goes_on,
    measuring,
    under_load,
    untouched,
)
from tests.unit.plan.world import START, Effect

OTHERS = ["serve", "tiny", "--max-num-seqs=32", "--max-num-batched-tokens=2048"]


def test_a_pod_with_users_gets_no_load_until_they_are_gone():
    world = alone(users=2)
    world.run_for(600)
    run = world.last_run.status
    assert (run.step, run.waiting_for) == (RunStep.RAMP, "UsersServed")
    assert "2 requests of users" in run.message
    assert [stage.id for stage in world.ordered if "wake" not in stage.id] == []
    probing = find(world.profile.status.conditions, ConditionType.PROBING)
    assert probing is not None
    assert (probing.status, probing.reason) == ("False", "UsersServed")
    world.users = 0
    assert goes_on(world)


def test_a_stage_into_which_users_came_is_invalid_and_repeated_behind_a_pause():
    world = under_load()
    world.users = 1
    world.tick()
    stage = world.last_run.status.stages[-1]
    assert (stage.verdict, stage.ended_by) == (Verdict.INVALID, "UsersServed")
    broken_at, ordered = world.now, len(world.ordered)
    world.users = 0
    world.run_until(lambda w: len([s for s in w.ordered[ordered:] if "wake" not in s.id]) > 0)
    assert (world.now - broken_at).total_seconds() >= 29
    assert world.ordered[-1].id.startswith("ramp-1-b-")
    assert goes_on(world)


def test_users_in_three_stages_in_a_row_end_the_run():
    status = finish(alone(interrupting="ramp-2-")).last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.INCONCLUSIVE, "UsersServed")
    assert "Choose a spec.probe.window in which" in status.message


def test_the_windows_end_ends_the_load_and_the_run_begins_anew_in_the_next_one():
    spec = SPEC | {"probe": PROBE | {"window": WINDOW | {"duration": "1h"}}}
    world = alone(spec=spec, now=START + timedelta(minutes=57))
    world.run_for(240)
    run = next(iter(world.runs.values()))
    assert (run.status.outcome, run.status.cause) == (RunOutcome.CANCELLED, "WindowClosed")
    assert world.agent_since is None
    sent = len(world.ordered)
    world.run_for(600)
    assert len(world.ordered) == sent
    world.now = START + timedelta(days=1)
    world.run_for(600)
    assert len(world.ordered) > sent
    assert world.writes == []


def test_an_agent_whose_operator_is_dead_ends_at_the_windows_end_and_the_next_operator_cleans_up():
    world = under_load()
    world.hanging = "ramp-1-"
    world.now = START + timedelta(hours=6, seconds=1)
    assert world.stage is not None
    assert world._broken_off(world.stage) == "WindowClosed"
    finish(world, limit_s=60)


def test_a_pod_that_is_replaced_takes_its_load_with_it_and_the_next_one_is_measured():
    world = under_load()
    ordered = len(world.ordered)
    world.replace_pods()
    world.tick()
    assert world.agent_since is None  # no load may follow the address
    world.run_until(lambda w: len(w.ordered) > ordered)
    assert world.ordered[-1].id.startswith("warm-up-2-")
    assert goes_on(world)
    assert not any(stage.verdict == Verdict.INVALID for stage in world.last_run.status.stages)


def test_pods_that_are_replaced_again_and_again_are_not_followed():
    world = under_load()
    for _ in range(3):
        world.replace_pods()
        world.run_for(60)
    status = finish(world, limit_s=60).last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.INCONCLUSIVE, "ServingPodsReplaced")


def test_a_workload_without_a_pod_that_runs_is_waited_for():
    world = alone(pod_phase=PodPhase.PENDING)
    world.run_for(60)
    assert world.last_run.status.waiting_for == "ServingPodMissing"
    assert world.ordered == []
    world.pod_phase = PodPhase.RUNNING
    assert goes_on(world)


@pytest.mark.parametrize("step", [RunStep.RAMP, RunStep.BASELINE])
def test_an_engine_that_ended_under_the_load_gets_no_more_of_it_not_in_later_windows_either(step: RunStep):
    world = measuring(step)
    world.engine_restarts = 1
    status = finish(world, limit_s=30).last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.FAILED, "ServingEngineEnded")
    world.run_for(3 * 86_400)
    assert len(world.runs) == 1


def test_a_serving_pod_that_is_not_ready_any_more_is_let_alone():
    world = under_load()
    world.unready = 1
    status = finish(world, limit_s=30).last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.FAILED, "ServingPodNotReady")
    assert "readiness probe" in status.message


def test_limits_that_somebody_writes_meanwhile_end_the_run_and_stand():
    world = under_load()
    world.set_args(OTHERS)
    status = finish(world, limit_s=60).last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.CANCELLED, "TargetChanged")
    assert world.args == OTHERS


@pytest.mark.parametrize("died_behind", [Effect.EVIDENCE, Effect.STATUS])
@pytest.mark.parametrize("step", MEASURING)
def test_an_operator_that_dies_anywhere_leaves_nothing_changed(step: RunStep, died_behind: Effect):
    world = measuring(step)
    for _ in range(5):
        world.tick(crash_after=died_behind)
        world.now += timedelta(seconds=5)
    assert untouched(world)
    if step == RunStep.BASELINE:
        assert finish(world).last_run.status.outcome == RunOutcome.NO_IMPROVEMENT
    else:
        assert goes_on(world)


def test_a_suspended_profile_ends_the_load_at_once():
    world = under_load()
    world.edit_profile(suspend=True)
    status = finish(world, limit_s=20).last_run.status
    assert status.cause == "Suspended"
