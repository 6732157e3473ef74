"""The improvement that a run shows, and what the update policy makes of it."""

from __future__ import annotations

import pytest

from kneekeeper.api.tuning_run import RunOutcome, StageKind, Verdict
from kneekeeper.domain.plan.conditions import ConditionType, find
from tests.unit.plan.world import World, settled


def applied_reason(world: World) -> str:
    found = find(world.profile.status.conditions, ConditionType.APPLIED)
    assert found is not None
    return found.reason


def test_a_present_setting_that_is_far_exceeded_shows_more_than_was_asked_for():
    world = settled(updatePolicy={"mode": "Recommend"})
    status, recommendation = world.last_run.status, world.profile.status.recommendation
    stage = next(s for s in status.stages if s.kind == StageKind.BASELINE)
    assert (stage.verdict, stage.saturated) == (Verdict.FAIL, True)
    assert status.improvement_percent is not None
    assert status.improvement_percent > 5
    assert f"at least {status.improvement_percent}% more" in status.message
    assert recommendation is not None
    assert recommendation.improvement_percent == status.improvement_percent
    assert recommendation.present_breaks_slo


def test_a_present_setting_that_holds_the_slo_has_a_promise_and_is_left_alone():
    settings = settled(updatePolicy={"mode": "Off"}).last_run.status.certifications[-1].setting
    near = settings.with_changes(max_num_seqs=settings.max_num_seqs + 1)
    limits = [f"--max-num-seqs={near.max_num_seqs}", f"--max-num-batched-tokens={near.max_num_batched_tokens}"]
    world = World(args=["serve", "tiny", *limits])
    world.settle()
    status = world.last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.NO_IMPROVEMENT, "ImprovementNotShown"), status.message
    assert f"The present {near} holds the SLO at" in status.message
    assert status.improvement_percent is None
    [stage] = [s for s in status.stages if s.kind == StageKind.BASELINE]
    assert stage.offered_requests_per_second is not None
    assert status.present_promised_requests_per_second == pytest.approx(stage.offered_requests_per_second / 1.2)
    assert world.writes == []


def test_a_policy_that_asks_for_more_than_was_shown_is_obeyed_until_it_is_lowered():
    world = settled(updatePolicy={"mode": "Recommend"})
    world.edit_profile(updatePolicy={"mode": "Apply", "verifyFor": "10s", "minImprovementPercent": 1000})
    world.run_for(600)
    assert applied_reason(world) == "ImprovementTooSmall"
    assert world.writes == []
    world.edit_profile(updatePolicy={"mode": "Apply", "verifyFor": "10s"})
    world.run_for(600)
    assert [kind for kind, _ in world.writes] == ["words"]
    assert len(world.runs) == 1


def test_an_approval_is_consent_to_a_smaller_improvement():
    world = settled(updatePolicy={"mode": "Recommend"})
    world.edit_profile(updatePolicy={"mode": "Apply", "verifyFor": "10s", "minImprovementPercent": 1000})
    recommendation = world.profile.status.recommendation
    assert recommendation is not None
    world.annotate("kneekeeper.io/approve", recommendation.hash)
    world.run_for(600)
    assert [kind for kind, _ in world.writes] == ["words"]
