"""Profiles that declare no workload are measured with the one that was learned, and wait until there is one."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from kneekeeper.api.run_plan import RunPlan
from kneekeeper.api.serving_profile import ServingProfileSpec
from kneekeeper.api.tuning_run import TuningRunStatus
from kneekeeper.domain.lengths import mean_tokens
from kneekeeper.domain.observation import ProductionHistory
from kneekeeper.domain.plan import profile as profile_plan
from kneekeeper.domain.plan import run as run_plan
from kneekeeper.domain.plan.acceptance import spec_problem
from kneekeeper.domain.plan.conditions import ConditionType, find
from kneekeeper.domain.plan.questions import run_key
from kneekeeper.domain.plan.requests import traffic_of
from kneekeeper.domain.traffic_history import TrafficHistory
from tests.unit.plan.world import PROFILE_SPEC, World
from tests.unit.test_observed_workload import days

UNDECLARED = {name: value for name, value in PROFILE_SPEC.items() if name != "workload"}


def undeclared() -> World:
    return World(spec=dict(UNDECLARED), spare_gpus=1)


def learned(world: World, count: int = 1000) -> None:
    """One tick in which the source tells this history."""
    told = ProductionHistory((), TrafficHistory(days(1, count=count)))
    observed = replace(world.observe_profile(), history=told, history_read=True)
    world.profile = world.profile.with_changes(status=profile_plan.decide(observed).status)


def test_a_profile_without_a_workload_is_accepted():
    assert spec_problem(ServingProfileSpec.model_validate(UNDECLARED)) is None


def test_without_history_no_run_starts_and_the_condition_says_what_to_do():
    world = undeclared()
    world.run_for(1200)
    assert not world.runs
    condition = find(world.profile.status.conditions, ConditionType.PROBING)
    assert condition is not None
    assert condition.reason == "WorkloadNotLearned"
    assert "spec.metrics.prometheusRef" in condition.message
    assert "promptTokens" in condition.message


def planned(world: World) -> RunPlan:
    world.run_until(lambda w: bool(w.runs) and w.last_run.status.plan is not None)
    plan = world.last_run.status.plan
    assert plan is not None
    return plan


def test_once_it_is_learned_a_run_measures_it():
    world = undeclared()
    learned(world)
    plan, observed = planned(world), world.profile.status.observed_workload
    assert observed is not None
    assert plan.workload_learned
    assert plan.profile_spec.workload == observed.workload
    assert mean_tokens(traffic_of(plan.profile_spec, None).prompt_tokens) == pytest.approx(600, rel=0.05)


def test_the_tick_that_learns_it_is_followed_by_one_that_starts_the_run():
    told = ProductionHistory((), TrafficHistory(days(1)))
    observed = replace(undeclared().observe_profile(), history=told, history_read=True)
    decision = profile_plan.decide(observed)
    assert decision.status.observed_workload is not None
    assert decision.next_tick_s <= profile_plan.ACTIVE_TICK_S
    without = profile_plan.decide(replace(observed, history=None))
    assert without.next_tick_s == profile_plan.IDLE_TICK_S


def test_a_declared_workload_is_measured_whatever_was_learned():
    world = World(spare_gpus=1)
    learned(world)
    plan = planned(world)
    assert not plan.workload_learned
    assert plan.profile_spec.workload == plan.asked_spec.workload == world.profile.spec.workload


def test_learning_anew_asks_nothing_new():
    world = undeclared()
    learned(world)
    plan, before = planned(world), world.profile.status.observed_workload
    world.now += timedelta(days=8)
    learned(world, count=2000)
    assert world.profile.status.observed_workload != before
    assert plan.measures_the_same_as(world.profile.spec)
    [reference] = world.profile.status.runs
    assert reference.key == run_key(world.profile.spec, plan.fingerprint)


def test_a_run_that_was_made_by_hand_waits_for_the_workload():
    world = undeclared()
    learned(world)
    world.run_until(lambda w: bool(w.runs))
    observed = world.observe_run(world.last_run.with_changes(status=TuningRunStatus()))
    assert observed.profile is not None
    forgotten = observed.profile.status.with_changes(observed_workload=None)
    unknown = replace(observed, profile=observed.profile.with_changes(status=forgotten))
    assert run_plan.decide(unknown).status.waiting_for == "WorkloadNotLearned"
    assert run_plan.decide(observed).status.plan is not None
