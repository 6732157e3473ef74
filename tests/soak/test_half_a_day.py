"""Half a day of two profiles, in which everything happens once; `make soak` has two weeks of twenty."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.calendar import What
from tests.soak.report import MOST_BROKEN_SHARE, report
from tests.soak.soak import begun

pytestmark = pytest.mark.timeout(1800)

DAYS, PROFILES = 0.5, 2


async def test_half_a_day_leaves_nothing_behind_and_keeps_what_was_promised(api_server: str, tmp_path: Path):
    async with begun(Path(api_server), tmp_path, PROFILES) as soak:
        await soak.lived(DAYS, seed=1)
        found = report(soak, DAYS, left=await soak.end())
    assert set(found.happened) == set(What)
    assert found.bugs == ()
    assert found.kills > 0
    assert found.api_faults > 0
    assert found.outcomes["Certified"] >= PROFILES
    assert (found.left, found.remembered_left, found.most_kept) == ((), 0, 0)
    assert found.tally.promised > 10_000
    assert found.promise_broken_share <= MOST_BROKEN_SHARE
