"""Where nothing happens nothing is written: no status, no event, no action."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from kneekeeper.api.serving_profile import ServingProfile
from kneekeeper.domain.plan import profile as profile_plan
from kneekeeper.domain.plan import run as run_plan
from tests.unit.plan.world import World, settled


def applied() -> World:
    return settled()


def approving() -> World:
    return settled(updatePolicy={"mode": "Recommend"})


def drifted() -> World:
    world = settled()
    world.set_args(["serve", "tiny", "--max-num-seqs=9"], writer="alice")
    return world


def rolled_back() -> World:
    world = settled(updatePolicy={"mode": "Recommend", "verifyFor": "1m"})
    world.crashing_rollouts = True
    world.edit_profile(updatePolicy={"mode": "Apply", "verifyFor": "1m"})
    return world


def crashing() -> World:
    world = settled()
    world.crashing_rollouts = True
    world.rolled_at = world.now
    return world


def impossible() -> World:
    world = settled()
    world.edit_profile(slo={"p99TPOT": "1ms"})
    world.settle()
    return world


def suspended() -> World:
    world = settled()
    world.edit_profile(suspend=True)
    return world


def refused() -> World:
    world = settled()
    world.edit_profile(schedules=[{"cron": "0 3 * * *", "duration": "1h"}])
    return world


def without_room() -> World:
    return World(spare_gpus=0)


def without_workload() -> World:
    return World(workload_exists=False)


@pytest.mark.parametrize(
    "state",
    [
        applied,
        approving,
        drifted,
        rolled_back,
        crashing,
        impossible,
        suspended,
        refused,
        without_room,
        without_workload,
    ],
)
def test_a_tick_in_which_nothing_happens_changes_nothing(state: Callable[[], World]):
    world = state()
    world.run_for(600)
    world.now += timedelta(seconds=60)
    before: ServingProfile = world.profile
    decision = profile_plan.decide(world.observe_profile())
    assert decision.status == before.status
    assert decision.actions == ()
    for run in world.runs.values():
        decided = run_plan.decide(world.observe_run(run))
        assert decided.status == run.status
        assert decided.actions == ()
