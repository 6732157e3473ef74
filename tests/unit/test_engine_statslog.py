"""The log line about throughput."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from kneekeeper.engine.metrics import SchedulerState
from kneekeeper.engine.statslog import StatsLog


@dataclass
class Core:
    prompt_tokens: int = 0
    generation_tokens: int = 0
    scheduler_state: SchedulerState = field(default_factory=lambda: SchedulerState(0, 0, 0.0))


class Loop:
    """Holds the next call."""

    call: Callable[[], None]
    delay_s = 0.0

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        self.delay_s, self.call = delay_s, call


def test_a_line_tells_the_throughput_since_the_last_one_and_idle_time_is_silent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    core, loop = Core(), Loop()
    StatsLog(cast(Any, core), cast(Any, loop)).start()
    assert loop.delay_s == 10.0
    loop.call()
    assert caplog.messages == []
    core.prompt_tokens, core.generation_tokens = 1000, 250
    core.scheduler_state = SchedulerState(running=3, waiting=2, kv_cache_usage=0.125)
    loop.call()
    assert caplog.messages == [
        "Engine 000: Avg prompt throughput: 100.0 tokens/s, Avg generation throughput: 25.0 tokens/s, "
        "Running: 3 reqs, Waiting: 2 reqs, GPU KV cache usage: 12.5%, Prefix cache hit rate: 0.0%"
    ]
    core.scheduler_state = SchedulerState(0, 0, 0.0)
    loop.call()
    assert len(caplog.messages) == 1
