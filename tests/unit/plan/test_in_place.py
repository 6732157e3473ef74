"""A serving pod measured itself: only inside the window, only while it has no users, and without a single write."""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kneekeeper.api.model import Setting
from kneekeeper.api.serving_profile import ServingProfileSpec
from kneekeeper.api.tuning_run import RunOutcome, RunStep, StageKind, TuningRunStatus, Verdict
from kneekeeper.domain import actions as act
from kneekeeper.domain.observation import Demand, Obstacle, ObstacleReason, PodPhase, ViolationShare
from kneekeeper.domain.plan import run as run_plan
from kneekeeper.domain.plan.acceptance import spec_problem
from kneekeeper.domain.plan.conditions import ConditionType, find
from kneekeeper.domain.plan.probe_traffic import without_probe_traffic
from tests.unit.plan.world import PROFILE_SPEC, START, Effect, World, at_step

WINDOW = {"schedule": "0 0 * * *", "duration": "6h"}
"""Opens at the world's start."""
PROBE: dict[str, Any] = {"allow": ["InPlace"], "window": WINDOW}
SPEC = PROFILE_SPEC | {"probe": PROBE}
ALONE: dict[str, Any] = {"spec": SPEC, "spare_gpus": 0, "replicas": 1, "replicas_at_start": 1}
OTHERS = ["serve", "tiny", "--max-num-seqs=32", "--max-num-batched-tokens=2048"]
MEASURING = [RunStep.CEILING, RunStep.RAMP, RunStep.BASELINE]


def alone(**values: Any) -> World:
    """One replica and no spare GPU."""
    return World(**(ALONE | values))


def measuring(step: RunStep) -> World:
    """A run in place at this step; where the choice is the present setting there would be no Baseline."""
    return _at_baseline().forked() if step == RunStep.BASELINE else at_step(step, **ALONE)


@functools.cache
def _at_baseline() -> World:
    world = at_step(RunStep.RAMP, **ALONE)
    world.run_until_step(RunStep.BASELINE)
    return world


@functools.cache
def _predicted() -> World:
    world = measuring(RunStep.BASELINE)
    world.slow = "baseline"
    return finish(world)


def predicted() -> World:
    """A run has ended whose present setting broke the SLO at what another one should carry."""
    return _predicted().forked()


def finish(world: World, limit_s: float = 7200) -> World:
    world.run_until(lambda w: bool(w.runs) and w.last_run.status.step == RunStep.DONE, limit_s)
    assert untouched(world)
    assert world.agent_since is None
    return world


def untouched(world: World) -> bool:
    """Nothing was written, no pod of an engine was made, and no GPU was held."""
    made = [child for child in world.created if "/clone-" in child]
    status = world.last_run.status
    return world.writes == [] and made == [] and status.cost.engine_starts == 0 and status.cost.gpu_seconds == 0


def goes_on(world: World) -> bool:
    """Whether further stages are decided, and count."""
    before = len(world.last_run.status.stages)
    world.run_for(120)
    return any(stage.verdict is None for stage in world.last_run.status.stages[before:])


def present(status: TuningRunStatus) -> Setting:
    assert status.plan is not None
    return status.plan.present


def under_load(name: str = "ramp-1-") -> World:
    """In the middle of a stage."""
    world = measuring(RunStep.RAMP)
    world.run_until(lambda w: w.stage is not None and w.stage.id.startswith(name))
    world.stage_ends = world.now + timedelta(seconds=10)
    return world


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


@pytest.mark.parametrize("step", MEASURING)
def test_no_tick_of_such_a_run_asks_for_a_write_to_the_workload_or_for_an_engine(step: RunStep):
    world = measuring(step)
    for _ in range(20):
        decision = run_plan.decide(world.observe_run(world.last_run))
        forbidden = (act.ScaleWorkload, act.EnsureClone, act.SetLimits, act.WriteWords)
        assert not [action for action in decision.actions if isinstance(action, forbidden)]
        world.run_for(5)


def test_a_suspended_profile_ends_the_load_at_once():
    world = under_load()
    world.edit_profile(suspend=True)
    status = finish(world, limit_s=20).last_run.status
    assert status.cause == "Suspended"


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
