"""A stage that one load agent cannot carry begins when all that it needs are ready, and is Invalid when one is lost."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kneekeeper.api.offered_load import Closed
from kneekeeper.api.stage import StageSpec
from kneekeeper.api.tuning_run import RunOutcome, RunStep
from kneekeeper.domain import agents
from tests.unit.plan.world import World

STREAMS = 8


@pytest.fixture(autouse=True)
def agents_that_carry_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The small cluster's ladder goes up to 32 users: 4 agents."""
    monkeypatch.setattr(agents, "STREAMS_PER_AGENT", STREAMS)


def at_the_large_stage(**world: Any) -> World:
    """A world whose run wants more users than one agent carries, and has not got the agents; or else is done."""
    made = World(**world)
    made.run_until(lambda seen: bool(seen.runs) and (_wants_many(seen) or _is_done(seen)), 6 * 3600)
    return made


def _wants_many(world: World) -> bool:
    return world.last_run.status.waiting_for == "StartingAgent" and "of 2" in world.last_run.status.message


def _is_done(world: World) -> bool:
    return world.last_run.status.step == RunStep.DONE


def users_of(stage: StageSpec) -> int:
    return stage.arrivals.users if isinstance(stage.arrivals, Closed) else 0


def test_small_stages_are_sent_by_one_agent_and_large_ones_by_all_that_they_need():
    world = at_the_large_stage()
    assert max(users_of(stage) for stage in world.ordered) > STREAMS
    for stage in world.ordered:
        assert stage.agents == max(1, math.ceil(users_of(stage) / STREAMS))
    for stage, helpers in zip(world.ordered, world.ordered_with, strict=True):
        assert helpers == tuple(f"10.244.2.{number}:8080" for number in range(1, stage.agents))


def test_a_large_stage_waits_for_its_agents_and_then_begins():
    world = at_the_large_stage(helpers_ready=0)
    assert all(stage.agents == 1 for stage in world.ordered)
    assert "1 of 2 load agents are ready" in world.last_run.status.message
    before = len(world.ordered)
    world.helpers_ready = 1
    world.run_until(lambda seen: len(seen.ordered) > before, 60)
    assert world.ordered[-1].agents == 2


def test_agents_that_never_come_end_the_run_with_what_to_do():
    world = at_the_large_stage(helpers_ready=0)
    world.run_until(_is_done, 24 * 3600)
    status = world.last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.FAILED, "NoLoadAgent")
    assert "spec.probe.ladder.maxConcurrency" in status.message


def test_where_there_can_be_one_agent_only_it_sends_all():
    world = at_the_large_stage(most_agents=1, helpers_ready=0)
    assert max(users_of(stage) for stage in world.ordered) > STREAMS
    assert {stage.agents for stage in world.ordered} == {1}
