"""A whole run, its rollout and its verification, with an operator that is killed before and after every write."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.chaos.campaign import lives
from tests.chaos.faults import KillAtWrites
from tests.chaos.life import ORIGINAL_ARGS
from tests.chaos.stories import TUNED

pytestmark = pytest.mark.timeout(1200)


async def test_an_operator_that_is_killed_around_every_write_of_a_run_ends_as_one_that_lives(api_server: str):
    logging.disable(logging.CRITICAL)
    async with lives(Path(api_server)) as places:
        tuned = await places.expected(TUNED)
        plan = KillAtWrites()
        await places.live(TUNED, plan, "killed around each write")
    logging.disable(logging.NOTSET)
    assert tuned.outcome == "Certified/Certified"
    assert tuned.args != tuple(ORIGINAL_ARGS)
    assert len(tuned.stages) > 10
    assert tuned.made_twice == tuned.left_behind == ()
    assert places.report.told == []
    assert places.report.kills >= 2 * len(plan.writes) - 2
    assert len(plan.writes) > 50
