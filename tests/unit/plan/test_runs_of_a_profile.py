"""When a profile starts a run: once for every question, also where little is remembered or known."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kneekeeper.api.tuning_run import RunOutcome, RunStep, Trigger
from kneekeeper.domain import actions as act
from kneekeeper.domain.plan.conditions import ConditionType, find
from tests.unit.plan.world import PROFILE_SPEC, World, at_step, settled

HOUR_S = 3600.0


@pytest.mark.parametrize("limit", [1, 10])
def test_retries_have_an_end_however_few_runs_are_kept(limit: int):
    world = World(spec=PROFILE_SPEC | {"runHistoryLimit": limit}, failing="ramp-1")
    made = 0
    for _ in range(8):
        world.run_for(6.1 * HOUR_S)
        made = max(made, len(world.profile.status.runs))
    assert made == 3
    assert [r.trigger for r in world.profile.status.runs] == ["New", "Retry", "Retry"]
    assert len({r.name for r in world.profile.status.runs}) == 3
    assert len(world.runs) <= limit


def test_every_request_starts_one_run_of_its_own_name():
    world = settled(runHistoryLimit=1, updatePolicy={"mode": "Off"})
    for number in range(2):
        world.annotate("kneekeeper.io/retune", f"{number}")
        world.settle()
        world.run_for(HOUR_S)
    names = [r.name for r in world.profile.status.runs]
    assert len(names) == len(set(names)) == 3
    assert [r.trigger for r in world.profile.status.runs] == ["New", *["Requested"] * 2]


def test_a_request_that_is_longer_than_a_status_holds_is_acted_on_once():
    world = settled(updatePolicy={"mode": "Off"})
    world.annotate("kneekeeper.io/retune", "x" * 5000)
    world.settle()
    world.run_for(HOUR_S)
    assert len(world.runs) == 2


def test_a_gpu_product_that_is_known_late_starts_no_second_run():
    world = World(gpu_product="", unready=2)
    world.run_for(30)
    world.gpu_product, world.unready = "L4", 0
    world.settle()
    world.run_for(12 * HOUR_S)
    assert len(world.runs) == 1
    assert world.profile.status.recommendation is not None


def test_a_profile_edited_before_its_run_began_starts_no_second_run():
    world = World(spare_gpus=0)
    world.run_for(30)
    world.edit_profile(slo={"p99TPOT": "24ms"})
    world.spare_gpus = 1
    world.settle()
    world.run_for(HOUR_S)
    assert len(world.runs) == 1


def test_an_image_that_comes_back_has_its_recommendation_again_without_a_run():
    world = settled(updatePolicy={"mode": "Recommend"})
    first = world.profile.status.recommendation
    world.set_image("vllm/vllm-openai:v0.33.0")
    world.settle()
    assert world.profile.status.recommendation != first
    world.set_image("vllm/vllm-openai:v0.32.0")
    world.run_for(HOUR_S)
    assert len(world.runs) == 2
    assert world.profile.status.recommendation == first


def test_an_image_that_comes_back_is_measured_again_where_its_run_is_forgotten():
    world = settled(updatePolicy={"mode": "Recommend"}, runHistoryLimit=1)
    for image in ("v0.33.0", "v0.32.0"):
        world.set_image(f"vllm/vllm-openai:{image}")
        world.settle()
    assert len(world.created_runs) == 2
    world.run_for(7 * HOUR_S)  # it is no first run of that engine, so `retune.minInterval` holds it back
    assert len(world.created_runs) == 3
    assert world.profile.status.recommendation is not None


def test_deleted_run_objects_take_no_recommendation_away():
    world = settled(updatePolicy={"mode": "Recommend"})
    before = world.profile.status.recommendation
    world.runs.clear()
    world.run_for(HOUR_S)
    assert world.profile.status.recommendation == before
    assert not world.runs


def test_an_engine_that_changed_without_being_watched_has_no_recommendation():
    world = settled(retune={"on": ["Model"]})
    world.set_image("vllm/vllm-openai:v0.33.0")
    world.run_for(HOUR_S)
    assert len(world.runs) == 1
    recommended = find(world.profile.status.conditions, ConditionType.RECOMMENDED)
    ready = find(world.profile.status.conditions, ConditionType.READY)
    assert recommended is not None
    assert ready is not None
    assert (recommended.reason, ready.status) == ("EngineChanged", "False")
    assert world.profile.status.recommendation is None


def test_a_run_made_by_hand_with_the_profiles_name_alone_is_run_and_counted():
    world = settled(updatePolicy={"mode": "Off"})
    world.perform(act.CreateRun("by-hand", Trigger.REQUESTED))
    world.settle()
    world.run_for(HOUR_S)
    assert world.runs["by-hand"].status.outcome == RunOutcome.CERTIFIED
    references = {r.name: r for r in world.profile.status.runs}
    assert len(references) == 2
    assert len({r.key for r in references.values()}) == 1


def test_a_run_of_a_profile_that_does_not_exist_is_cancelled():
    world = World(profile_exists=False)
    world.perform(act.CreateRun("by-hand", Trigger.REQUESTED))
    for _ in range(2):
        world.tick_run("by-hand")
    status = world.runs["by-hand"].status
    assert (status.step, status.outcome, status.cause) == (RunStep.DONE, RunOutcome.CANCELLED, "ProfileGone")


@pytest.mark.parametrize("step", [s for s in RunStep if s not in (RunStep.DONE, RunStep.BORROW, RunStep.CLEAN_UP)])
def test_a_suspended_run_is_cancelled_in_every_step_and_asked_again_afterwards(step: RunStep):
    world = at_step(step, spare_gpus=0 if step == RunStep.PREFLIGHT else 1)
    world.edit_profile(suspend=True)
    world.run_for(30)
    assert world.last_run.status.cause == "Suspended"
    assert not world.clones
    world.run_for(HOUR_S)
    assert len(world.runs) == 1
    world.edit_profile(suspend=False)
    world.run_for(10)
    assert [r.spec.trigger for r in world.runs.values()] == ["New", "Retry"]


@pytest.mark.parametrize("step", [RunStep.CEILING, RunStep.RAMP, RunStep.CERTIFY, RunStep.BASELINE])
def test_a_container_renamed_in_mid_run_ends_the_run(step: RunStep):
    world = at_step(step, spare_gpus=1)
    world.container = "engine"
    world.run_for(10)
    first = next(iter(world.runs.values())).status
    assert (first.outcome, first.cause) == (RunOutcome.CANCELLED, "TargetChanged")


@pytest.mark.parametrize("step", [RunStep.CEILING, RunStep.RAMP, RunStep.CERTIFY, RunStep.BASELINE])
def test_a_profile_that_is_no_longer_acted_on_lets_its_run_end_and_starts_none(step: RunStep):
    world = at_step(step, spare_gpus=1)
    world.edit_profile(schedules=[{"cron": "0 3 * * *", "duration": "1h"}])
    world.run_until(lambda w: w.last_run.status.step == RunStep.DONE)
    world.run_for(HOUR_S)
    assert len(world.runs) == 1
    assert world.writes == []


def test_limits_changed_by_hand_in_mid_run_are_not_taken_for_those_that_were_compared():
    """The baseline is started with the setting that stood when the run began."""
    world = at_step(RunStep.RAMP, spare_gpus=1)
    world.set_args(["serve", "tiny", "--max-num-seqs=16", "--max-num-batched-tokens=2048"])
    world.run_until(lambda w: any(c.setting.max_num_seqs == 4 for c in w.clones.values()))
    assert world.last_run.status.step == RunStep.BASELINE


def test_a_clock_that_jumps_ahead_only_costs_what_was_in_flight():
    world = at_step(RunStep.RAMP, spare_gpus=1)
    world.run_for(30)
    world.now += timedelta(minutes=10)
    world.settle()
    assert world.last_run.status.outcome == RunOutcome.CERTIFIED
