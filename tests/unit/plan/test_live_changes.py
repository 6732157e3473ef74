"""Production switched live: the plugin comes with one rollout, then a switch is one write."""

from __future__ import annotations

from typing import Any

import pytest

from kneekeeper.api.model import ConditionStatus, Setting
from kneekeeper.api.tuning_run import RunStep, Verdict
from kneekeeper.domain.arguments import Content, Environment
from kneekeeper.domain.live_delivery import PLUGIN_CONTAINER
from kneekeeper.domain.observation import Owner, ViolationShare
from kneekeeper.domain.plan.conditions import ConditionType, find
from tests.unit.plan.hourly_live_world import (
    CEILING,
    SILENT,
    HourlyLive,
    is_delivered,
    present,
    started,
    told,
    two_mixes,
)
from tests.unit.plan.live_world import ALLOWED, LIVE_SPEC, LiveWorld
from tests.unit.plan.test_schedules import AT_MORNING, DAY, MORNING, go_to
from tests.unit.plan.world import Effect


def test_the_first_switch_is_a_rollout_that_brings_the_plugin_and_the_pair_it_was_certified_with():
    world = two_mixes()
    assert is_delivered(world)
    assert started(world) == ["--max-num-seqs=32", "--max-num-batched-tokens=2048"]
    assert present(world) == DAY
    seen = world.observe_profile()
    assert seen.workload is not None
    assert [pod.words for pod in seen.pods or ()] == [seen.workload.containers[0].words] * 2
    assert told(world) == (ConditionStatus.TRUE, "SetLive")
    assert told(world, ConditionType.APPLIED)[0] == ConditionStatus.TRUE
    engine = world.profile.status.engine
    assert engine is not None
    assert (engine.max_num_seqs, engine.max_num_batched_tokens) == (DAY.max_num_seqs, DAY.max_num_batched_tokens)


def test_every_later_switch_is_one_write_of_the_config_map_and_restarts_nothing():
    world = two_mixes()
    for day in range(3):
        go_to(world, day, 7.1)
        assert present(world) == AT_MORNING
        assert told(world) == (ConditionStatus.TRUE, "SetLive")
        go_to(world, day, 11.1)
        assert present(world) == DAY
    assert world.template_writes == 1
    assert [kind for kind, _ in world.writes] == ["Deployment", *["ConfigMap"] * 6]
    assert len(world.created_runs) == 2
    assert told(world, ConditionType.DRIFTED)[0] == ConditionStatus.FALSE
    assert not any(event.type == "Warning" for event in world.events)


def test_soon_after_its_rollout_the_config_map_says_what_is_in_force():
    world = HourlyLive()
    world.run_until(lambda w: is_delivered(w) and w.profile.status.rollout is None)  # type: ignore[arg-type]
    world.run_for(60)
    assert world.limits_map() == '{"max_num_seqs": 24, "max_num_batched_tokens": 1536}'
    assert present(world) == DAY


def test_nothing_that_the_user_has_in_the_template_gets_into_the_status():
    world = two_mixes()
    go_to(world, 0, 7.1)
    assert "hunter2" not in world.profile.status.model_dump_json()


def test_a_clone_is_made_of_the_template_as_it_was_and_gets_a_token_of_its_own():
    world = two_mixes()
    view = world.workload()
    assert view is not None
    # A secret for pulling the operator's image harms no clone, and may have been there before.
    assert view.pod_template["spec"].keys() - {"imagePullSecrets"} == world.original["spec"].keys()
    [engine] = view.pod_template["spec"]["containers"]
    assert engine["env"] == world.original["spec"]["containers"][0]["env"]


def test_the_pair_that_engines_start_with_is_one_for_all_hours_and_does_not_grow():
    bounds = {"maxNumSeqs": {"min": 1, "max": 16}, "maxNumBatchedTokens": {"min": 256, "max": 1024}}
    world = two_mixes(schedules=[MORNING | {"parameters": bounds}])
    world.run_until(lambda w: len(w.runs) == 2)
    plans = [run.status.plan for run in world.runs.values()]
    assert {plan.live_start for plan in plans if plan is not None} == {CEILING}
    assert plans[1] is not None
    assert plans[1].bounds.highest == Setting(max_num_seqs=16, max_num_batched_tokens=1024)


def test_default_bounds_stay_what_production_was_started_with():
    world = two_mixes(parameters={})
    plans = [run.status.plan for run in world.runs.values()]
    assert [plan.live_start for plan in plans if plan is not None] == [
        Setting(max_num_seqs=256, max_num_batched_tokens=8192)
    ] * 2


def test_a_setting_that_was_certified_by_a_start_is_not_switched_live():
    world = HourlyLive(certified_live=False)
    world.run_for(900)
    assert not is_delivered(world)
    assert told(world) == (ConditionStatus.FALSE, "NotCertifiedLive")
    go_to(world, 0, 7.1)
    assert present(world) == AT_MORNING
    assert {kind for kind, _ in world.writes} == {"words"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"owner": Owner("Helm", "chat")}, "OwnedByOther"),
        ({"spec": LIVE_SPEC | {"updatePolicy": ALLOWED | {"method": "Env"}}}, "MethodNotLive"),
        ({"environment": Environment({}, {"PYTHONPATH": Content.ANYTHING})}, "NotDelivered"),
    ],
)
def test_elsewhere_switches_go_by_rollout_and_that_is_said(changes: dict[str, Any], reason: str):
    world = HourlyLive(**changes)
    world.run_for(300)
    assert told(world) == (ConditionStatus.FALSE, reason)
    assert told(world, ConditionType.ACCEPTED)[0] == ConditionStatus.TRUE
    assert not is_delivered(world)
    assert all(run.status.plan is None or run.status.plan.live_start is None for run in world.runs.values())


def test_a_live_switch_that_makes_things_worse_is_taken_back_live():
    world = two_mixes(schedules=[])
    status = world.profile.status
    assert status.recommendation is not None
    world.violations = ViolationShare(0.0, 0.01, 10_000, window_s=60)
    run = world.runs[status.recommendation.run]
    [proven] = run.status.certifications
    better = proven.with_changes(setting=AT_MORNING)
    choices = [run.status.choices[-1].with_changes(setting=AT_MORNING)]
    assert proven.verdict is Verdict.PASS
    changed = run.status.with_changes(certifications=[better], choices=choices, finished_at=world.now)
    applied = status.applied
    assert applied is not None
    world.runs[status.recommendation.run] = run.with_changes(status=changed)
    references = [r.with_changes(finished_at=world.now) for r in status.runs]
    world.profile = world.profile.with_changes(status=status.with_changes(runs=references))
    world.run_until(lambda w: w.profile.status.rollout is not None)
    assert present(world) == AT_MORNING
    world.run_until(lambda w: w.profile.status.rollout is None or w.profile.status.rollout.verify_from is not None)
    world.violations = ViolationShare(0.4, 0.5, 10_000, window_s=60)
    world.settle()
    assert present(world) == DAY
    assert [r.setting for r in world.profile.status.rejected] == [AT_MORNING]
    assert world.template_writes == 1


@pytest.mark.parametrize("effect", [Effect.EVIDENCE, Effect.STATUS])
def test_an_operator_that_is_killed_at_any_tick_ends_in_the_same_place(effect: Effect):
    world = HourlyLive()
    for _ in range(60):
        world.tick(crash_after=effect)
        world._pass(world.tick())
    world.run_for(600)
    assert is_delivered(world)
    assert present(world) == DAY
    assert world.template_writes == 1


def test_the_default_is_what_it_was():
    world = two_mixes(updatePolicy={"mode": "Apply", "verifyFor": "1m"})
    go_to(world, 0, 7.1)
    assert not is_delivered(world)
    assert find(world.profile.status.conditions, ConditionType.LIVE_CHANGES) is None
    assert PLUGIN_CONTAINER not in str(world.template)
    assert {kind for kind, _ in world.writes} == {"words"}


def test_a_run_certifies_its_choice_live_on_an_engine_that_was_started_as_production_is():
    world = LiveWorld(args=["serve", "tiny", "--max-num-seqs=4", "--max-num-batched-tokens=256"])
    world.run_until(lambda w: bool(w.runs) and w.last_run.status.step == RunStep.DONE)
    status = world.last_run.status
    [proven] = [c for c in status.certifications if c.verdict is Verdict.PASS]
    assert proven.started_with == CEILING
    assert proven.setting != CEILING
    assert status.cost.engine_starts == 1
    assert all(clone.delivered for clone in world.clones.values())


def test_a_run_whose_plugin_does_not_answer_certifies_by_a_start_and_production_is_switched_by_rollout():
    world = LiveWorld(plugin_fault=SILENT)
    world.settle()
    [proven] = [c for c in world.last_run.status.certifications if c.verdict is Verdict.PASS]
    assert proven.started_with is None
    assert told(world) == (ConditionStatus.FALSE, "NotCertifiedLive")
    assert not is_delivered(world)
    assert present(world) == proven.setting
