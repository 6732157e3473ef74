"""A setting on its way into the workload: never against somebody else's will, and never without an end."""

from __future__ import annotations

import pytest

from kneekeeper.api.rollout import RolloutStep
from kneekeeper.domain.observation import ViolationShare
from kneekeeper.domain.plan.conditions import ConditionType, find
from tests.unit.plan.world import World, settled

HOUR_S = 3600.0


def recommended(**spec: object) -> World:
    """A world with a certified setting that waits for its approval."""
    return settled(updatePolicy={"mode": "Recommend", "verifyFor": "1m"}, **spec)


def approve(world: World) -> None:
    assert world.profile.status.recommendation is not None
    world.annotate("kneekeeper.io/approve", world.profile.status.recommendation.hash)


def rolling_out(world: World, step: RolloutStep = RolloutStep.VERIFY) -> World:
    approve(world)
    world.run_until(lambda w: w.profile.status.rollout is not None and w.profile.status.rollout.step == step, 300)
    return world


def reason(world: World, type_: ConditionType) -> str:
    found = find(world.profile.status.conditions, type_)
    return found.reason if found is not None else ""


def test_a_controller_that_puts_the_words_back_is_not_fought():
    world = recommended()
    world.reverting = True
    approve(world)
    world.run_for(24 * HOUR_S)
    assert len(world.writes) == 1
    assert world.args == world.original_args
    assert reason(world, ConditionType.APPLIED) == "Reverted"
    assert reason(world, ConditionType.DRIFTED) == "RevertedByOther"
    assert "gitops" in find(world.profile.status.conditions, ConditionType.DRIFTED).message  # type: ignore[union-attr]
    assert world.profile.status.rollout is None


@pytest.mark.parametrize("step", [RolloutStep.PROGRESS, RolloutStep.VERIFY])
def test_words_that_a_person_puts_back_in_mid_rollout_stand(step: RolloutStep):
    world = rolling_out(recommended(), step)
    world.set_args(world.original_args, writer="alice")
    world.run_for(24 * HOUR_S)
    assert world.args == world.original_args
    assert [kind for kind, _ in world.writes] == ["words"]
    assert "alice" in find(world.profile.status.conditions, ConditionType.DRIFTED).message  # type: ignore[union-attr]


def test_a_setting_that_was_reverted_is_applied_again_once_it_was_proven_anew():
    world = settled()
    world.set_args(world.original_args, writer="alice")
    world.run_for(HOUR_S)
    assert len(world.writes) == 1
    world.annotate("kneekeeper.io/retune", "please")
    world.settle()
    assert len(world.writes) == 2
    assert reason(world, ConditionType.READY) == "BelowTheKnee"


def test_the_same_setting_is_applied_to_a_new_image_that_came_with_the_old_arguments():
    """As when a manifest with another tag is applied, which also holds the arguments from before."""
    world = settled()
    chosen = list(world.args)
    world.set_args(world.original_args)
    world.set_image("vllm/vllm-openai:v0.33.0")
    world.settle()
    assert world.args == chosen
    assert len(world.writes) == 2


def test_a_setting_that_was_certified_for_other_targets_is_not_applied():
    world = recommended()
    world.edit_profile(slo={"p99TPOT": "1ms"}, updatePolicy={"mode": "Apply", "verifyFor": "1m"})
    world.settle()
    assert world.last_run.status.outcome == "ImpossibleSLO"
    world.run_for(HOUR_S)
    assert world.writes == []
    assert world.profile.status.recommendation is None
    assert reason(world, ConditionType.READY) == "ImpossibleSLO"


def test_a_setting_in_force_whose_targets_became_impossible_is_not_ready():
    world = settled()
    assert all(replica.capacity_requests_per_second for replica in world.profile.status.replicas)
    world.edit_profile(slo={"p99TPOT": "1ms"})
    world.run_for(10)
    assert world.profile.status.active_run is not None
    assert reason(world, ConditionType.READY) == "Probing"
    assert not any(replica.capacity_requests_per_second for replica in world.profile.status.replicas)
    world.settle()
    assert reason(world, ConditionType.READY) == "ImpossibleSLO"
    told = [event for event in world.events if event.reason == "ImpossibleSLO"]
    assert [event.type for event in told] == ["Warning"]
    assert "spec.slo.p99TPOT 1ms" in told[0].message


def test_a_suspended_profile_writes_nothing():
    world = recommended()
    world.edit_profile(suspend=True)
    approve(world)
    world.run_for(HOUR_S)
    assert world.writes == []
    assert reason(world, ConditionType.APPLIED) == "Suspended"
    world.edit_profile(suspend=False)
    world.run_for(HOUR_S)
    assert [kind for kind, _ in world.writes] == ["words"]


def test_a_rollout_waits_for_one_of_somebody_else():
    world = recommended()
    world.unready = 1
    approve(world)
    world.run_for(600)
    assert world.writes == []
    assert reason(world, ConditionType.APPLIED) == "TargetRollingOut"


def test_a_paused_workload_gets_its_words_back():
    world = recommended()
    world.paused = True
    approve(world)
    world.run_for(2 * HOUR_S)
    assert world.args == world.original_args
    assert [kind for kind, _ in world.writes] == ["words", "words"]
    assert "paused" in find(world.profile.status.conditions, ConditionType.DEGRADED).message  # type: ignore[union-attr]
    world.run_for(24 * HOUR_S)
    assert len(world.writes) == 2


def test_a_pod_lost_during_verification_neither_ends_nor_prolongs_it():
    world = rolling_out(recommended())
    world.unready = 1
    world.run_for(300)
    assert world.profile.status.rollout is None
    assert world.profile.status.applied is not None


def test_a_rollout_under_way_outlives_a_profile_that_is_not_accepted_any_more():
    world = rolling_out(recommended())
    world.edit_profile(schedules=[{"cron": "0 3 * * *", "duration": "1h"}])
    world.run_for(300)
    assert reason(world, ConditionType.ACCEPTED) == "InvalidSchedule"
    assert world.profile.status.rollout is None
    assert world.profile.status.applied is not None


def test_a_workload_that_cannot_be_read_for_a_while_loses_no_rollout():
    world = rolling_out(recommended())
    before = world.profile.status.rollout
    world.readable = False
    world.run_for(60)
    assert world.profile.status.rollout == before
    world.readable = True
    world.run_for(300)
    assert world.profile.status.applied is not None


def test_a_workload_that_went_away_ends_the_rollout():
    world = rolling_out(recommended())
    world.workload_exists = False
    world.run_for(60)
    assert world.profile.status.rollout is None


def test_a_worse_share_is_taken_back():
    world = recommended()
    world.violations = ViolationShare(0.0, 0.02, 5000)
    rolling_out(world)
    world.violations = ViolationShare(0.2, 0.3, 5000)
    world.run_for(120)
    assert world.args == world.original_args
    assert reason(world, ConditionType.DEGRADED) == "RolledBack"


@pytest.mark.parametrize("before", [None, ViolationShare(0.0, 0.0, 5)])
def test_a_share_is_no_evidence_where_little_is_known_of_before(before: ViolationShare | None):
    world = recommended()
    world.violations = before
    rolling_out(world)
    world.violations = ViolationShare(0.2, 0.3, 5000)
    world.run_for(120)
    applied = world.profile.status.applied
    assert applied is not None
    assert not applied.verified


def test_shares_are_not_compared_over_an_edit_of_the_targets():
    world = recommended()
    world.violations = ViolationShare(0.0, 0.0, 5000)
    rolling_out(world)
    world.edit_profile(slo={"p99TTFT": "2s", "p99TPOT": "24ms"})
    world.violations = ViolationShare(0.2, 0.3, 5000)  # more miss the sharper target
    world.run_for(120)
    assert [kind for kind, _ in world.writes] == ["words"]


def test_a_manual_rollback_is_reported_and_leaves_the_profile_alive():
    world = settled(updatePolicy={"mode": "Recommend", "verifyFor": "1m", "rollback": "Manual"})
    world.violations = ViolationShare(0.0, 0.0, 5000)
    rolling_out(world)
    world.violations = ViolationShare(0.2, 0.3, 5000)
    world.run_for(300)
    assert [kind for kind, _ in world.writes] == ["words"]
    assert reason(world, ConditionType.DEGRADED) == "RollbackIsManual"
    assert world.profile.status.rollout is None
    world.set_args(world.original_args, writer="alice")
    world.run_for(600)
    assert reason(world, ConditionType.DEGRADED) == "AsExpected"


def test_what_was_rolled_back_is_no_longer_degraded_once_another_answer_stands():
    world = settled_after_crash()
    assert reason(world, ConditionType.DEGRADED) == "RolledBack"
    world.crashing_rollouts = False
    world.set_image("vllm/vllm-openai:v0.33.0")
    world.settle()
    assert reason(world, ConditionType.DEGRADED) == "AsExpected"
    assert reason(world, ConditionType.READY) == "BelowTheKnee"


def settled_after_crash() -> World:
    world = recommended()
    world.crashing_rollouts = True
    world.edit_profile(updatePolicy={"mode": "Apply", "verifyFor": "1m"})
    world.run_for(600)
    return world


def test_words_changed_while_a_setting_is_withdrawn_stand():
    world = recommended()
    world.crashing_rollouts = True
    rolling_out(world, RolloutStep.WITHDRAW)
    theirs = ["serve", "tiny", "--max-num-seqs=7", "--max-num-batched-tokens=2048"]
    world.set_args(theirs, writer="alice")
    world.run_for(HOUR_S)
    assert world.args == theirs
    assert world.profile.status.rollout is None
    assert len(world.profile.status.rejected) == 1


def test_merging_another_recommendation_by_hand_is_no_drift():
    world = settled(slo={"p99TPOT": "15ms"})
    world.edit_profile(slo={"p99TPOT": "25ms"}, updatePolicy={"mode": "Recommend"})
    world.settle()
    recommendation = world.profile.status.recommendation
    assert recommendation is not None
    setting = recommendation.setting
    assert setting != world.profile.status.applied.setting  # type: ignore[union-attr]
    tokens = f"--max-num-batched-tokens={setting.max_num_batched_tokens}"
    world.set_args(["serve", "tiny", f"--max-num-seqs={setting.max_num_seqs}", tokens])
    world.run_for(600)
    assert reason(world, ConditionType.DRIFTED) == "AsApplied"
    assert reason(world, ConditionType.READY) == "BelowTheKnee"
