"""A serving pod measured itself: only inside the window, and without a single write."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kneekeeper.api.model import Setting
from kneekeeper.api.serving_profile import ServingProfileSpec
from kneekeeper.api.tuning_run import RunOutcome, RunStep, StageKind, TuningRunStatus, Verdict
from kneekeeper.domain import actions as act
from kneekeeper.domain.observation import Demand, Obstacle, ObstacleReason, ViolationShare
from kneekeeper.domain.plan import run as run_plan
from kneekeeper.domain.plan.acceptance import spec_problem
from kneekeeper.domain.plan.conditions import ConditionType, find
from kneekeeper.domain.plan.probe_traffic import without_probe_traffic
from tests.unit.plan.alone import MEASURING, PROBE, SPEC, alone, finish, measuring, predicted
from tests.unit.plan.world import START, at_step


def present(status: TuningRunStatus) -> Setting:
    assert status.plan is not None
    return status.plan.present


def test_a_whole_run_on_the_only_replica_writes_nothing_and_starts_no_engine():
    status = predicted().last_run.status
    assert {stage.setting for stage in status.stages} == {present(status)}
    assert {stage.kind for stage in status.stages} >= {StageKind.RAMP, StageKind.CONTROL, StageKind.BASELINE}


def test_another_setting_is_predicted_and_told_and_never_written():
    world = predicted()
    status = world.last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.PREDICTED, "Predicted"), status.message
    assert "Predicted, not proven" in status.message
    assert status.present_breaks_slo is True
    assert not status.certifications
    world.run_for(600)
    recommendation = world.profile.status.recommendation
    assert recommendation is not None
    assert recommendation.confidence == "Predicted"
    assert recommendation.setting == status.choices[-1].setting
    applied = find(world.profile.status.conditions, ConditionType.APPLIED)
    assert applied is not None
    assert (applied.status, applied.reason) == ("False", "NotProven")
    world.annotate("kneekeeper.io/approve", recommendation.hash)
    world.run_for(600)
    assert world.writes == []


def test_where_the_present_setting_carries_as_much_it_is_certified_and_nothing_is_recommended():
    world = finish(measuring(RunStep.BASELINE))
    status = world.last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.NO_IMPROVEMENT, "ImprovementNotPredicted")
    assert [(c.verdict, c.setting) for c in status.certifications] == [(Verdict.PASS, present(status))]
    world.run_for(60)
    assert world.profile.status.recommendation is None


def test_what_its_user_puts_in_force_is_certified_by_the_next_run():
    world = predicted()
    world.slow = ""
    world.run_for(60)
    told = world.profile.status.recommendation
    assert told is not None
    limits = told.setting
    words = [f"--max-num-seqs={limits.max_num_seqs}", f"--max-num-batched-tokens={limits.max_num_batched_tokens}"]
    world.set_args(["serve", "tiny", *words])
    world.run_for(600)
    assert len(world.runs) == 1
    world.annotate("kneekeeper.io/retune", "1")
    world.run_until(lambda w: len(w.runs) == 2)
    status = finish(world).last_run.status
    assert status.outcome == RunOutcome.NO_IMPROVEMENT, status.message
    assert (status.certifications[-1].verdict, status.certifications[-1].setting) == (Verdict.PASS, limits)
    world.run_for(60)
    now = world.profile.status.recommendation
    assert now is not None
    assert (now.confidence, now.setting) == ("Certified", limits)
    applied = find(world.profile.status.conditions, ConditionType.APPLIED)
    assert applied is not None
    assert applied.status == "True"
    assert world.writes == []


def test_nothing_above_the_present_setting_is_chosen_since_nothing_above_it_was_seen():
    status = predicted().last_run.status
    for choice in status.choices:
        assert choice.setting.max_num_seqs <= present(status).max_num_seqs
        assert choice.setting.max_num_batched_tokens <= present(status).max_num_batched_tokens


def test_where_the_present_setting_is_the_choice_it_is_certified_as_it_runs():
    only = {"maxNumSeqs": {"min": 4, "max": 4}, "maxNumBatchedTokens": {"min": 2048, "max": 2048}}
    status = finish(alone(spec=SPEC | {"parameters": only})).last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.NO_IMPROVEMENT, "PresentIsBest")
    assert [c.verdict for c in status.certifications] == [Verdict.PASS]


def test_every_stage_carries_the_windows_end_and_one_identity_has_one_spec():
    world = predicted()
    assert world.ordered
    assert {stage.guard.until_s for stage in world.ordered if stage.guard} == {(START + timedelta(hours=6)).timestamp()}
    assert all(stage.guard is not None and stage.agents == 1 for stage in world.ordered if "wake" not in stage.id)
    specs = {stage.id: stage for stage in world.ordered}
    assert all(specs[stage.id] == stage for stage in world.ordered)


def test_a_stage_of_a_clone_has_no_guard():
    world = at_step(RunStep.CERTIFY)
    assert all(stage.guard is None for stage in world.ordered)


@pytest.mark.parametrize("step", MEASURING)
def test_no_tick_of_such_a_run_asks_for_a_write_to_the_workload_or_for_an_engine(step: RunStep):
    world = measuring(step)
    for _ in range(20):
        decision = run_plan.decide(world.observe_run(world.last_run))
        forbidden = (act.ScaleWorkload, act.EnsureClone, act.SetLimits, act.WriteWords)
        assert not [action for action in decision.actions if isinstance(action, forbidden)]
        world.run_for(5)


def test_it_is_the_way_of_a_workload_that_cannot_be_cloned():
    obstacle = Obstacle(ObstacleReason.SINGLE_WRITER_VOLUME, "Its volume is used by one pod only.")
    both = SPEC | {"probe": PROBE | {"allow": ["Clone", "InPlace"]}}
    world = alone(spec=both, spare_gpus=1, obstacle=obstacle)
    world.run_for(10)
    assert world.last_run.status.plan is not None
    assert world.last_run.status.plan.probe_target == "InPlace"


def test_a_key_that_the_agent_needs_is_in_its_way_too():
    world = alone(obstacle=Obstacle(ObstacleReason.API_KEY_UNUSABLE, "Secret key does not exist; create it."))
    status = finish(world, limit_s=30).last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.FAILED, "APIKeyUnusable")


def test_a_present_setting_below_the_bounds_is_told_and_nothing_is_loaded():
    spec = SPEC | {"parameters": {"maxNumSeqs": {"min": 8, "max": 32}}}
    world = alone(spec=spec)
    world.run_for(60)
    assert world.last_run.status.waiting_for == "PresentBelowBounds"
    assert "lower their min" in world.last_run.status.message
    assert world.ordered == []


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [
        ({"probe": {"allow": ["Clone", "InPlace"]}}, "InvalidWindow", "set spec.probe.window"),
        ({"workload": None}, "NotSupported", "without spec.workload"),
        ({"retune": {"on": ["SLOBreach"]}}, "NotSupported", "spec.retune.on SLOBreach"),
        ({"objective": "Throughput", "slo": {}}, "NotSupported", "beside objective Throughput"),
    ],
)
def test_what_it_cannot_be_beside_is_refused_by_name(changes: dict[str, Any], reason: str, words: str):
    problem = spec_problem(ServingProfileSpec.model_validate(SPEC | changes))
    assert problem is not None
    assert problem.reason == reason
    assert words in problem.message


def test_it_is_accepted_with_a_window_and_a_declared_workload():
    assert spec_problem(ServingProfileSpec.model_validate(SPEC)) is None


def test_looks_that_reach_back_into_the_probe_are_not_taken_for_production():
    world = predicted()
    world.demand, world.violations = Demand(99.0), ViolationShare(1.0, 1.0, 500)
    fresh = without_probe_traffic(world.observe_profile())
    assert (fresh.demand, fresh.violations) == (None, None)
    world.now += timedelta(minutes=10)  # more than updatePolicy.verifyFor
    later = without_probe_traffic(world.observe_profile())
    assert later.demand is None
    assert later.violations is not None
    world.now += timedelta(days=8)
    assert without_probe_traffic(world.observe_profile()).demand == Demand(99.0)


def test_a_run_on_a_clone_hides_nothing_of_production():
    world = at_step(RunStep.BASELINE)
    world.demand = Demand(99.0)
    seen = world.observe_profile()
    assert without_probe_traffic(seen) == seen


def test_the_worlds_start_lies_in_the_window():
    assert datetime(2026, 1, 1, tzinfo=UTC) == START
