"""Nothing is waited for without end: what does not come ends the stage or the run, and says what was missing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from kneekeeper.api.model import Setting
from kneekeeper.api.tuning_run import RunOutcome, RunStep, StageKind, Verdict
from kneekeeper.domain import actions as act
from kneekeeper.domain.observation import StageView
from kneekeeper.domain.plan import run as run_plan
from kneekeeper.domain.plan.conditions import ConditionType, find
from tests.unit.plan.world import PROFILE_SPEC, World, at_step

CPU: dict[str, Any] = {"gpus": 0, "spare_gpus": 0}  # no GPU second is ever counted, so that no budget helps


def finish(world: World, limit_s: float = 7200) -> World:
    world.run_until(lambda w: bool(w.runs) and w.last_run.status.step == RunStep.DONE, limit_s)
    assert not world.clones
    assert world.agent_since is None
    return world


def test_an_agent_that_never_gets_ready_ends_the_run_with_what_keeps_it():
    status = finish(World(**CPU, agent_broken=True), limit_s=1200).last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.FAILED, "NoLoadAgent")
    assert "ImagePullBackOff" in status.message


@pytest.mark.parametrize("kind", [StageKind.RAMP, StageKind.CERTIFY, StageKind.BASELINE])
def test_a_stage_that_does_not_end_is_invalid_and_tried_anew(kind: StageKind):
    world = finish(World(**CPU, hanging=kind.lower()), limit_s=24 * 3600)
    status = world.last_run.status
    tried = [s for s in status.stages if s.kind == kind]
    assert tried
    assert all(s.verdict == Verdict.INVALID for s in tried)
    assert "did not bring the stage to an end" in tried[0].message


def test_a_stage_that_the_agent_was_never_told_of_in_time_is_begun_once_more_and_costs_no_try():
    """As after an API server that was away: the stage was decided on, and the order could not be given."""
    world = at_step(RunStep.RAMP, **CPU)
    world.run_until(lambda w: w.last_run.status.current_stage is not None)
    run = world.last_run
    current = run.status.current_stage
    assert current is not None
    world.now += timedelta(days=1)
    seen = replace(world.observe_run(run), stage=StageView(None, None))
    decision = run_plan.decide(seen)
    begun = decision.status.current_stage
    assert begun == current.with_changes(started_at=world.now)
    assert any(isinstance(action, act.StartStage) for action in decision.actions)
    stored = run.with_changes(status=decision.status)
    world.now += timedelta(days=1)
    again = run_plan.decide(replace(world.observe_run(stored), stage=StageView(None, None)))
    assert again.status.stages[-1].verdict == Verdict.INVALID
    assert any(isinstance(action, act.DeleteAgent) for action in again.actions)


def test_a_ramp_that_cannot_be_measured_is_inconclusive():
    status = finish(World(**CPU, failing="ramp-1")).last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.INCONCLUSIVE, "NotMeasurable")


def test_a_baseline_that_cannot_be_measured_leaves_the_certified_setting_uncompared():
    status = finish(World(failing="baseline")).last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.CERTIFIED, "PresentNotMeasured")
    assert status.present_breaks_slo is None


def test_a_clone_that_kueue_does_not_admit_is_a_condition_with_a_reason_of_its_own():
    world = World(clones_placed=False, queued=True)
    world.run_for(60)
    assert world.last_run.status.waiting_for == "QueueNotAdmitted"
    probing = find(world.profile.status.conditions, ConditionType.PROBING)
    assert probing is not None
    assert (probing.status, probing.reason) == ("False", "QueueNotAdmitted")
    status = finish(world, limit_s=900).last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.INCONCLUSIVE, "QueueNotAdmitted")
    world.run_for(60)
    recommended = find(world.profile.status.conditions, ConditionType.RECOMMENDED)
    assert recommended is not None
    assert (recommended.status, recommended.reason) == ("False", "QueueNotAdmitted")


def test_a_clone_that_kueue_admits_after_a_while_is_measured():
    world = World(clones_placed=False, queued=True)
    world.run_for(60)
    world.clones_placed = True
    world.run_until_step(RunStep.RAMP)
    assert world.last_run.status.waiting_for == ""


def test_a_clone_that_finds_no_place_ends_the_run():
    world = finish(World(clones_placed=False), limit_s=900)
    status = world.last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.INCONCLUSIVE, "EngineNotScheduled")
    assert "Insufficient nvidia.com/gpu" in status.message
    assert not status.clone_failures


def test_a_clone_that_a_node_is_added_for_is_waited_for_as_long_as_a_start_may_take():
    spec = PROFILE_SPEC | {"probe": {"allowScaleUp": True, "budget": {"startTimeout": "10m"}}}
    world = at_step(RunStep.CEILING, spec=spec, spare_gpus=0, clones_placed=False)
    world.run_for(500)
    assert world.last_run.status.step == RunStep.CEILING
    finish(world, limit_s=200)


def test_an_engine_that_never_gets_ready_is_lowered_and_then_given_up():
    world = World(clone_ready=False, spec=PROFILE_SPEC | {"probe": {"budget": {"startTimeout": "1m"}}})
    status = finish(world).last_run.status
    assert status.outcome == RunOutcome.FAILED
    assert "was not ready after" in status.message


def test_a_present_setting_whose_clone_finds_no_place_is_no_proof_against_it():
    world = at_step(RunStep.BASELINE)
    world.clones_placed = False
    world.clones.clear()
    status = finish(world).last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.CERTIFIED, "PresentNotMeasured")
    assert status.present_breaks_slo is None
    world.run_for(600)
    assert world.writes == []


def test_a_clone_that_is_evicted_while_it_starts_is_started_again_with_the_same_setting():
    world = at_step(RunStep.CEILING)
    world.tick()
    world.take_clone_away()
    world.settle()
    status = world.last_run.status
    assert status.outcome == RunOutcome.CERTIFIED
    assert not status.clone_failures
    assert status.stages[0].setting == Setting(max_num_seqs=32, max_num_batched_tokens=2048)


@pytest.mark.parametrize("how", [World.take_clone_away, World.preempt_clone])
@pytest.mark.parametrize("step", [RunStep.RAMP, RunStep.CERTIFY, RunStep.BASELINE])
def test_a_clone_that_production_takes_away_costs_one_start(how, step: RunStep):
    world = at_step(step)
    world.run_until(lambda w: w.last_run.status.current_stage is not None)
    starts = world.last_run.status.cost.engine_starts
    how(world)
    world.settle()
    status = world.last_run.status
    assert status.outcome == RunOutcome.CERTIFIED
    assert not status.clone_failures
    assert status.cost.engine_starts >= starts + 1


def test_a_clone_that_is_always_taken_away_ends_with_the_budget_of_restarts():
    world = at_step(RunStep.RAMP)
    while world.last_run.status.step != RunStep.DONE:
        world.preempt_clone()
        world.run_for(30)
    status = world.last_run.status
    assert status.cause == "BudgetExhausted"
    assert status.cost.engine_starts == 1 + 3


def test_a_readiness_probe_that_fails_under_load_does_not_end_the_run():
    world = at_step(RunStep.RAMP, spec=PROFILE_SPEC | {"probe": {"budget": {"startTimeout": "30s"}}})
    world.run_for(60)
    world.clone_ready = False
    world.run_for(20)
    assert world.last_run.status.step == RunStep.RAMP
    assert not world.last_run.status.clone_failures


def test_a_clock_that_is_set_back_neither_stops_a_run_nor_breaks_its_status():
    world = at_step(RunStep.RAMP)
    world.run_for(60)
    world.set_clock_back(timedelta(hours=5))
    world.run_until(lambda w: w.last_run.status.step == RunStep.CERTIFY, limit_s=3600)
    assert world.last_run.status.cost.gpu_seconds >= 60


def test_a_workload_without_pods_is_waited_for():
    world = World(replicas=0, replicas_at_start=0)
    world.run_for(120)
    assert world.last_run.status.waiting_for == "TargetScaledToZero"
    world.replicas = world.replicas_at_start = 2
    world.settle()
    assert world.last_run.status.outcome == RunOutcome.CERTIFIED


def test_a_stage_whose_clone_died_is_repeated_as_soon_as_the_next_clone_is_ready():
    world = at_step(RunStep.RAMP)
    world.run_until(lambda w: w.stage is not None and w.stage.id.startswith("ramp-8-"))
    before = world.stage
    world.stage_ends += timedelta(hours=1)  # the agent waits for answers that do not come
    world.take_clone_away()
    world.run_until(lambda w: w.stage is not None and w.stage.id.startswith("warm-up-2-"), limit_s=40)
    world.run_until(lambda w: w.stage is not None and w.stage.id.startswith("ramp-8-"), limit_s=120)
    assert world.stage != before
    assert not any(s.verdict == Verdict.INVALID for s in world.last_run.status.stages)


def test_a_clone_that_the_agent_cannot_reach_ends_the_run_behind_two_stages():
    status = finish(World(clone_reachable=False), limit_s=300).last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.FAILED, "CloneUnreachable")
    assert [s.ended_by for s in status.stages] == ["TargetUnreachable"] * 2
    assert "NetworkPolicy" in status.message
    assert "port 8000 of pods with kneekeeper.io/role=clone" in status.message
    assert not status.clone_failures


def test_an_engine_that_is_not_ready_any_more_is_no_sign_of_a_network_policy():
    world = at_step(RunStep.RAMP)
    world.clone_reachable = world.clone_ready = False
    status = finish(world, limit_s=1200).last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.INCONCLUSIVE, "NotMeasurable")


def test_a_present_setting_whose_clone_cannot_be_reached_is_no_proof_against_it():
    world = at_step(RunStep.BASELINE)
    world.clone_reachable = False
    status = finish(world, limit_s=600).last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.CERTIFIED, "PresentNotMeasured")
    assert status.present_breaks_slo is None


def test_an_agent_that_the_operator_cannot_reach_ends_the_run():
    world = finish(World(**CPU, agent_reachable=False), limit_s=1800)
    status = world.last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.FAILED, "AgentUnreachable")
    assert "let the operator reach port 8080" in status.message


def test_a_run_that_has_others_of_the_fleet_before_it_waits_and_touches_nothing():
    world = World(spare_gpus=1)
    world.tick_profile()
    name, run = next(iter(world.runs.items()))
    decision = run_plan.decide(replace(world.observe_run(run), runs_ahead_in_fleet=3))
    assert decision.status.waiting_for == "FleetBudget"
    assert decision.status.plan is None
    assert decision.actions == ()
    world.runs[name] = run.with_changes(status=decision.status)
    world.tick_profile()
    probing = find(world.profile.status.conditions, ConditionType.PROBING)
    assert probing is not None
    assert (probing.status, probing.reason) == ("False", "FleetBudget")
    finish(world)
