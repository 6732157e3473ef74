from __future__ import annotations

import asyncio
import time

import pytest

from kneekeeper.load.alarm import Alarm


async def rung(offsets_s: list[float]) -> float:
    """Set an alarm to each offset in turn; how long after the last one it rang."""
    done = asyncio.get_running_loop().create_future()
    alarm = Alarm(lambda: done.set_result(time.perf_counter()))
    start_s = time.perf_counter()
    for offset_s in offsets_s:
        alarm.set(start_s + offset_s)
    assert alarm.is_set
    async with asyncio.timeout(30):
        at_s = await done
    assert not alarm.is_set
    alarm.close()
    return float(at_s - start_s - offsets_s[-1])


@pytest.mark.parametrize("offsets_s", [[0.003], [-5.0], [60.0, 0.002], [0.0, 0.004]])
async def test_an_alarm_rings_at_the_time_that_was_set_last_and_never_early(offsets_s):
    assert await rung(offsets_s) >= 0


async def test_a_closed_alarm_does_not_ring():
    rings = []
    alarm = Alarm(lambda: rings.append(1))
    alarm.set(time.perf_counter())
    alarm.close()
    alarm.close()
    await asyncio.sleep(0.005)
    assert not rings
