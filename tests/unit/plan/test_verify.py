"""Whether a rollout made things worse: by pods side by side, else before and after under the same load."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kneekeeper.api.rollout import RolloutStep
from kneekeeper.domain.actions import WriteWords
from kneekeeper.domain.observation import SideBySide, ViolationShare
from kneekeeper.domain.plan import profile as profile_plan
from kneekeeper.domain.plan.conditions import ConditionType, find
from tests.unit.plan.test_rollouts import reason, recommended, rolling_out
from tests.unit.plan.world import World, settled

HOUR_S = 3600.0


def shares(share: float, requests: int = 20_000, window_s: float = 0.0) -> ViolationShare:
    return ViolationShare(share, share, requests, window_s)


def applied(before: ViolationShare, after: ViolationShare) -> World:
    """A setting in force, verified for a minute with these shares before and after."""
    world = recommended()
    world.violations = before
    rolling_out(world)
    world.violations = after
    world.run_for(300)
    return world


def test_a_share_that_did_not_grow_verifies_the_setting():
    world = applied(shares(0.2), shares(0.02))
    assert world.profile.status.applied is not None
    assert world.profile.status.applied.verified
    assert world.profile.status.watched is None


def test_a_setting_that_no_traffic_could_verify_says_so():
    world = settled()
    applied_then, told = world.profile.status.applied, find(world.profile.status.conditions, ConditionType.APPLIED)
    assert applied_then is not None
    assert told is not None
    assert not applied_then.verified
    assert (told.reason, "Not verified: too few requests" in told.message) == ("InForce", True)
    world.run_for(600)
    told = find(world.profile.status.conditions, ConditionType.APPLIED)
    assert told is not None
    assert told.message.count("Not verified") == 1


def test_what_is_undecided_keeps_the_setting_and_is_watched():
    world = applied(shares(0.02, 400), shares(0.02, 400))
    assert [kind for kind, _ in world.writes] == ["words"]
    assert reason(world, ConditionType.APPLIED) == "Watching"
    assert find(world.profile.status.conditions, ConditionType.READY).status == "True"  # type: ignore[union-attr]
    world.violations = shares(0.02, 500)
    world.run_for(23 * HOUR_S)
    assert reason(world, ConditionType.APPLIED) == "Watching"
    world.run_for(2 * HOUR_S)
    assert reason(world, ConditionType.APPLIED) == "InForce"
    assert [kind for kind, _ in world.writes] == ["words"]


def test_evidence_that_comes_after_verification_still_takes_the_setting_back():
    world = applied(shares(0.02, 400), shares(0.02, 400))
    world.violations = shares(0.3, 5000)
    world.run_for(600)
    assert world.args == world.original_args
    assert reason(world, ConditionType.DEGRADED) == "RolledBack"
    assert len(world.profile.status.rejected) == 1
    world.run_for(24 * HOUR_S)
    assert len(world.writes) == 2


def test_evidence_that_comes_after_verification_may_also_settle_it():
    world = applied(shares(0.02, 400), shares(0.02, 400))
    world.violations = shares(0.0, 50_000)
    world.run_for(600)
    assert world.profile.status.applied is not None
    assert world.profile.status.applied.verified
    assert world.profile.status.watched is None


def test_more_misses_under_twice_the_load_are_no_evidence():
    world = applied(shares(0.01, 20_000, 600), shares(0.1, 40_000, 600))
    assert [kind for kind, _ in world.writes] == ["words"]


def test_more_misses_under_the_same_load_are():
    world = applied(shares(0.01, 20_000, 600), shares(0.1, 20_000, 600))
    assert world.args == world.original_args


@pytest.mark.parametrize(
    ("old", "new", "withdraws", "not_worse"),
    [(0.01, 0.2, True, False), (0.2, 0.01, False, True), (0.01, 0.01, False, False)],
)
def test_old_and_new_pods_that_serve_at_the_same_time_are_compared(
    old: float, new: float, withdraws: bool, not_worse: bool
):
    world = rolling_out(recommended(), RolloutStep.PROGRESS)
    seen = replace(world.observe_profile(), side_by_side=SideBySide(shares(old, 2000), 1, shares(new, 2000), 1))
    decision = profile_plan.decide(seen)
    rollout = decision.status.rollout
    assert rollout is not None
    assert any(isinstance(action, WriteWords) for action in decision.actions) is withdraws
    assert (rollout.step == RolloutStep.WITHDRAW) is withdraws
    assert rollout.not_worse is not_worse


def test_a_merged_setting_that_was_taken_back_is_not_fought_over():
    """As when the recommendation was merged into git while kneekeeper rolled it out, and then proved worse."""
    world = recommended()
    world.violations = shares(0.01)
    rolling_out(world)
    merged = list(world.args)
    world.violations = shares(0.3)
    for _ in range(60):
        world.run_for(5)
        if world.args != merged:
            world.set_args(merged, writer="argocd")
    assert len(world.writes) <= 2
    assert world.args == merged
    assert world.profile.status.rollout is None
