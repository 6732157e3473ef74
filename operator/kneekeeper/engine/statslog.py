"""The line about throughput and load that vLLM logs every ten seconds while there is work."""

from __future__ import annotations

import asyncio
import logging

from kneekeeper.engine.core import EngineCore

_LOG = logging.getLogger(__name__)
_INTERVAL_S = 10.0


class StatsLog:
    """Logs what the core did since the last line. Silent while nothing runs and nothing was done."""

    def __init__(self, core: EngineCore, loop: asyncio.AbstractEventLoop) -> None:
        self._core = core
        self._loop = loop
        self._prompt_tokens = 0
        self._generation_tokens = 0

    def start(self) -> None:
        self._loop.call_later(_INTERVAL_S, self._log)

    def _log(self) -> None:
        core, state = self._core, self._core.scheduler_state
        prompt_tokens = core.prompt_tokens - self._prompt_tokens
        generation_tokens = core.generation_tokens - self._generation_tokens
        self._prompt_tokens, self._generation_tokens = core.prompt_tokens, core.generation_tokens
        if prompt_tokens or generation_tokens or state.running or state.waiting:
            _LOG.info(
                "Engine 000: Avg prompt throughput: %.1f tokens/s, Avg generation throughput: %.1f tokens/s, "
                "Running: %d reqs, Waiting: %d reqs, GPU KV cache usage: %.1f%%, Prefix cache hit rate: 0.0%%",
                prompt_tokens / _INTERVAL_S,
                generation_tokens / _INTERVAL_S,
                state.running,
                state.waiting,
                100.0 * state.kv_cache_usage,
            )
        self.start()
