"""The budget of a run holds in every step, and where it runs out the best proven setting stands."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from kneekeeper.api.tuning_run import Cost, RunOutcome, RunStep, TuningRunStatus, Verdict
from tests.unit.plan.world import PROFILE_SPEC, World, at_step

Spend = Callable[[TuningRunStatus], TuningRunStatus]


def measure_time(status: TuningRunStatus) -> TuningRunStatus:
    return status.with_changes(cost=status.cost.with_changes(measure_seconds=1801))


def gpu_time(status: TuningRunStatus) -> TuningRunStatus:
    assert status.engine_since is not None
    return status.with_changes(engine_since=status.engine_since - timedelta(seconds=7201))


def spend(world: World, what: Spend) -> None:
    run = world.last_run
    world.runs[run.metadata["name"]] = run.with_changes(status=what(run.status))


def finish(world: World, limit_s: float) -> TuningRunStatus:
    world.run_until(lambda w: w.last_run.status.step == RunStep.DONE, limit_s)
    assert not world.clones
    assert world.agent_since is None
    return world.last_run.status


def test_a_spec_without_a_budget_has_the_one_that_these_tests_use_up():
    budget = World().profile.spec.probe.budget
    assert (budget.max_measure_duration, budget.max_gpu_seconds, budget.max_restarts) == (1800, 7200, 3)


@pytest.mark.parametrize("what", [measure_time, gpu_time])
@pytest.mark.parametrize("step", [RunStep.RAMP, RunStep.CERTIFY, RunStep.BASELINE])
def test_a_budget_that_is_used_up_ends_the_run_with_what_was_proven(step: RunStep, what: Spend):
    world = at_step(step)
    spend(world, what)
    status = finish(world, limit_s=150)
    if step == RunStep.BASELINE:
        assert (status.outcome, status.cause) == (RunOutcome.CERTIFIED, "PresentNotMeasured")
        assert status.certifications[-1].verdict == Verdict.PASS
    else:
        assert (status.outcome, status.cause) == (RunOutcome.INCONCLUSIVE, "BudgetExhausted")
    used = "maxMeasureDuration" if what is measure_time else "maxGPUSeconds"
    assert f"raise spec.probe.budget.{used}." in status.message
    world.run_for(600)
    assert world.writes == []


def test_a_ceiling_that_does_not_get_ready_ends_with_the_gpu_seconds():
    spec = PROFILE_SPEC | {"probe": {"budget": {"maxGPUSeconds": 300}}}
    status = finish(at_step(RunStep.CEILING, spec=spec, clone_ready=False), limit_s=400)
    assert (status.outcome, status.cause) == (RunOutcome.INCONCLUSIVE, "BudgetExhausted")


@pytest.mark.parametrize("step", [RunStep.RAMP, RunStep.CERTIFY, RunStep.BASELINE])
def test_the_stage_in_flight_counts(step: RunStep):
    world = at_step(step, spec=PROFILE_SPEC | {"probe": {"budget": {"maxMeasureDuration": "5m"}}})
    spent_s = world.last_run.status.cost.measure_seconds
    world.hanging = step.lower()
    status = finish(world, limit_s=300 - spent_s + 120)
    assert status.cause == ("PresentNotMeasured" if step == RunStep.BASELINE else "BudgetExhausted")
    assert not any(s.verdict == Verdict.INVALID for s in status.stages)


def test_a_certification_that_ended_with_the_budget_still_counts():
    world = at_step(RunStep.CERTIFY)
    world.run_until(lambda w: w.stage is not None and w.stage.id.startswith("certify-") and not w._stage_runs())
    spend(world, gpu_time)
    status = finish(world, limit_s=150)
    assert (status.outcome, status.cause) == (RunOutcome.CERTIFIED, "PresentNotMeasured")


@pytest.mark.parametrize("step", [RunStep.CERTIFY, RunStep.BASELINE])
def test_an_engine_that_does_not_start_in_time_leaves_what_was_proven(step: RunStep):
    world = at_step(step, spec=PROFILE_SPEC | {"probe": {"budget": {"startTimeout": "1m"}}})
    world.clone_ready = False
    status = finish(world, limit_s=120)
    assert "startTimeout" in status.message
    if step == RunStep.BASELINE:
        assert (status.outcome, status.cause) == (RunOutcome.CERTIFIED, "PresentNotMeasured")
    else:
        assert status.outcome == RunOutcome.FAILED


def test_restarts_that_are_used_up_leave_what_was_proven():
    world = at_step(RunStep.BASELINE)
    while world.last_run.status.step != RunStep.DONE:
        world.preempt_clone()
        world.run_for(30)
    status = world.last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.CERTIFIED, "PresentNotMeasured")
    assert status.cost.engine_starts == 1 + 3


def test_without_a_restart_for_the_present_setting_it_is_not_compared():
    world = at_step(RunStep.BASELINE)
    spend(world, lambda status: status.with_changes(cost=Cost(engine_starts=4)))
    status = finish(world, limit_s=150)
    assert (status.outcome, status.cause) == (RunOutcome.CERTIFIED, "PresentNotMeasured")
    assert "no restart was left" in status.message
