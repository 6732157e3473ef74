"""A deleted profile leaves the words that a person last wanted, and nothing of its own."""

from __future__ import annotations

import pytest

from kneekeeper.api.rollout import RolloutStep
from kneekeeper.api.tuning_run import RunStep
from tests.unit.plan.world import Effect, World, at_step, settled


def delete(world: World) -> World:
    world.profile_deleting = True
    for _ in range(20):
        world.tick()
    assert not world.runs
    assert not world.clones
    assert world.agent_since is None
    return world


def rolling_out(step: RolloutStep, policy: str, *, applied: bool) -> World:
    """A rollout at this step; `applied`: it is the second one."""
    updates = {"mode": "Apply" if applied else "Recommend", "verifyFor": "1m"}
    world = settled(deletionPolicy=policy, updatePolicy=updates, slo={"p99TPOT": "15ms"})
    world.crashing_rollouts = step in (RolloutStep.WITHDRAW, RolloutStep.WITHDRAWING)
    if applied:
        world.edit_profile(slo={"p99TPOT": "25ms"})
    else:
        world.edit_profile(updatePolicy={"mode": "Apply", "verifyFor": "1m"})
    world.run_until(lambda w: w.profile.status.rollout is not None and w.profile.status.rollout.step == step)
    return world


@pytest.mark.parametrize("policy", ["Keep", "Restore"])
@pytest.mark.parametrize("step", list(RolloutStep))
def test_a_first_rollout_is_taken_back_in_every_step(step: RolloutStep, policy: str):
    world = rolling_out(step, policy, applied=False)
    assert delete(world).args == world.original_args


@pytest.mark.parametrize(("policy", "original"), [("Keep", False), ("Restore", True)])
def test_a_second_rollout_is_taken_back_to_the_first_or_to_the_original(policy: str, original: bool):
    world = rolling_out(RolloutStep.VERIFY, policy, applied=True)
    applied = world.profile.status.applied
    assert applied is not None
    assert delete(world).args == (world.original_args if original else applied.after.args)


def test_an_argument_that_a_person_added_since_survives_the_restoring():
    world = settled(deletionPolicy="Restore")
    world.set_args([*world.original_args, "--enable-prefix-caching"])
    edited = list(world.args)
    world.settle()
    assert world.args != edited
    assert "--enable-prefix-caching" in world.args
    assert delete(world).args == edited


def test_words_that_a_person_changed_are_not_restored():
    world = settled(deletionPolicy="Restore")
    world.set_args(["serve", "tiny", "--max-num-seqs=9"], writer="alice")
    assert delete(world).args == ["serve", "tiny", "--max-num-seqs=9"]


def test_words_are_restored_in_a_container_that_was_renamed():
    world = settled(deletionPolicy="Restore")
    world.container = "engine"
    assert delete(world).args == world.original_args


def test_a_profile_whose_workload_is_gone_is_let_go():
    world = settled(deletionPolicy="Restore")
    world.workload_exists = False
    delete(world)


@pytest.mark.parametrize("step", [s for s in RunStep if s not in (RunStep.DONE, RunStep.BORROW)])
def test_a_deleted_run_leaves_nothing_in_any_step(step: RunStep):
    world = at_step(step, spare_gpus=0 if step == RunStep.PREFLIGHT else 1)
    name = world.last_run.metadata["name"]
    world.delete_run(name)
    world.tick(crash_after=Effect.STATUS)
    for _ in range(10):
        if name in world.runs:
            world.tick_run(name)
    assert name not in world.runs
    assert not world.clones
    assert world.agent_since is None


def test_a_run_that_was_deleted_is_not_made_again_at_once():
    world = at_step(RunStep.RAMP, spare_gpus=1)
    world.delete_run(world.last_run.metadata["name"])
    world.run_for(3600)
    assert not world.runs
    assert [r.cause for r in world.profile.status.runs] == ["Deleted"]
    world.run_for(6 * 3600)
    assert [r.trigger for r in world.profile.status.runs] == ["New", "Retry"]
