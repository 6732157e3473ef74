"""Lives of a profile at an API server with faults, the short ones; `make chaos` lives a thousand of all kinds."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.chaos.campaign import MOST_CALLS_PER_MINUTE, Lives, lives
from tests.chaos.faults import AtOneWrite, AtRandom, Fault, KillAtWrites
from tests.chaos.life import ORIGINAL_ARGS, REPLICAS, Story
from tests.chaos.stories import CRASHES, DELETED, LENT

pytestmark = pytest.mark.timeout(900)

SHORT = (LENT, DELETED, CRASHES)
RUNS = 50


@pytest.fixture
async def places(api_server: str) -> AsyncIterator[Lives]:
    logging.disable(logging.CRITICAL)  # thousands of faults are told
    async with lives(Path(api_server)) as places:
        yield places
    logging.disable(logging.NOTSET)


def ended_well(places: Lives) -> None:
    report = places.report
    assert report.told == []
    assert (report.wrong, report.left_behind) == (0, 0)
    assert report.most_calls_per_minute <= MOST_CALLS_PER_MINUTE


@pytest.mark.parametrize("story", [LENT, DELETED], ids=lambda story: story.name)
async def test_an_operator_that_is_killed_around_every_write_ends_as_one_that_lives(places: Lives, story: Story):
    plan = KillAtWrites()
    await places.live(story, plan, "killed around each write")
    ended_well(places)
    assert places.report.kills >= 2 * len(plan.writes) - 2
    assert len(plan.writes) > 10


@pytest.mark.parametrize("fault", [Fault.KILLED_LATE, Fault.CLONE_DIES, Fault.AGENT_DIES])
async def test_whoever_dies_at_any_write_is_replaced_and_nothing_else_differs(places: Lives, fault: Fault):
    recorded = AtOneWrite(fault)
    await places.live(DELETED, recorded, "recorded")
    for number in range(1, len(recorded.writes) + 1):
        await places.live(DELETED, AtOneWrite(fault, number), f"{fault} at write {number}")
    ended_well(places)
    assert len(recorded.writes) > 10
    assert places.report.faults == len(recorded.writes)


async def test_faults_at_random_change_nothing_of_how_fifty_lives_end(places):
    lent = await places.expected(LENT)
    assert (lent.outcome, lent.args, lent.replicas) == ("Cancelled/Suspended", tuple(ORIGINAL_ARGS), REPLICAS)
    for seed in range(RUNS):
        await places.live(SHORT[seed % len(SHORT)], AtRandom(seed), f"with seed {seed}")
    ended_well(places)
    assert places.report.runs == RUNS
    assert places.report.faults > RUNS
