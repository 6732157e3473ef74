"""Lives of a profile at an API server with faults, the short ones; `make chaos` lives a thousand of all kinds."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.chaos.campaign import MOST_CALLS_PER_MINUTE, Lives, lives
from tests.chaos.faults import AtRandom, KillAtWrites
from tests.chaos.life import ORIGINAL_ARGS, REPLICAS, Story
from tests.chaos.stories import DELETED, LENT

pytestmark = pytest.mark.timeout(300)


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


async def test_faults_at_random_change_nothing_of_how_a_life_ends(places):
    lent = await places.expected(LENT)
    assert (lent.outcome, lent.args, lent.replicas) == ("Cancelled/Suspended", tuple(ORIGINAL_ARGS), REPLICAS)
    for seed in range(2):
        await places.live(LENT, AtRandom(seed), f"with seed {seed}")
    ended_well(places)
    assert places.report.faults > 10
