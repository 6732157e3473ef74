"""The life of a server process: start-up time, the open port, faults, the end."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import signal
import sys
import time
from enum import IntEnum

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from kneekeeper.domain.scheduler import Scheduler
from kneekeeper.engine.addresses import default_address
from kneekeeper.engine.application import EngineApplication
from kneekeeper.engine.configuration import EngineConfiguration
from kneekeeper.engine.connection import HttpConnection
from kneekeeper.engine.core import EngineCore, EngineState
from kneekeeper.engine.hardware import Fault, FaultKind, Hardware
from kneekeeper.engine.live_tuning import live_tuning_of
from kneekeeper.engine.memory import KvCache, allocate_kv_cache
from kneekeeper.engine.metrics import EngineMetrics
from kneekeeper.engine.prefix_cache import PrefixCache
from kneekeeper.engine.requests import RequestReader
from kneekeeper.engine.statslog import StatsLog
from kneekeeper.engine.steptime import StepTimer

_LOG = logging.getLogger(__name__)
_BACKLOG = 2048
_CORE_DIED = (
    "(EngineCore pid=1) ERROR [core.py] EngineCore encountered a fatal error.\n"
    "(EngineCore pid=1) ERROR [core.py] Traceback (most recent call last):\n"
    "(EngineCore pid=1) ERROR [core.py] RuntimeError: CUDA error: an illegal memory access was encountered\n"
    "(APIServer pid=1) ERROR [async_llm.py] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered "
    "an issue. See stack trace (above) for the root cause.\n"
)


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1


class EngineServer:
    """One server: built before the port opens, torn down by `stop`."""

    def __init__(self, configuration: EngineConfiguration, hardware: Hardware, kv_cache: KvCache) -> None:
        """To be called in a running event loop."""
        arguments = configuration.arguments
        rng = random.Random(f"{hardware.seed} {arguments.seed}")
        registry = CollectorRegistry()
        for collector in (GCCollector, PlatformCollector, ProcessCollector):
            collector(registry=registry)
        # Without log statistics a real server has no vllm: metric at all.
        metrics_registry = CollectorRegistry() if arguments.disable_log_stats else registry
        metrics = EngineMetrics(metrics_registry, configuration, kv_cache)
        scheduler = Scheduler(configuration.scheduler_limits(kv_cache.num_gpu_blocks))
        timer = StepTimer(hardware.step_time, configuration.graph_sizes, rng)
        self._loop = asyncio.get_running_loop()
        self._live_tuning = live_tuning_of(scheduler, os.environ)
        self.core = EngineCore(
            scheduler,
            timer,
            metrics,
            self._loop,
            time.monotonic,
            hardware.api_ms_per_request / 1000.0,
            self._live_tuning.before_step if self._live_tuning is not None else None,
        )
        block_tokens = configuration.block_size_tokens
        reader = RequestReader(
            configuration.max_model_len,
            hardware.mean_output_tokens,
            rng,
            block_tokens if arguments.enable_prefix_caching else None,
        )
        prefix_cache = PrefixCache(block_tokens, kv_cache.num_gpu_blocks)
        self._application = EngineApplication(
            configuration, self.core, scheduler.check, reader, prefix_cache, registry, time.monotonic
        )
        self._configuration = configuration
        self._fault = hardware.fault
        self._connections: set[HttpConnection] = set()
        self._stopped: asyncio.Future[ExitCode] = self._loop.create_future()

    def stop(self, code: ExitCode) -> None:
        if not self._stopped.done():
            self._stopped.set_result(code)

    async def serve(self) -> ExitCode:
        """Open the port and serve until `stop` is called; in-flight requests are cut off, as vLLM does."""
        arguments = self._configuration.arguments
        host = arguments.host or default_address(os.environ)
        server = await self._loop.create_server(
            lambda: HttpConnection(self._application, self._connections),
            host,
            arguments.port,
            backlog=_BACKLOG,
        )
        _LOG.info("Starting vLLM server on http://%s:%d", host, arguments.port)
        _LOG.info("Application startup complete.")
        if self._fault is not None:
            self._loop.call_later(self._fault.after_s, self._stage_fault, self._fault)
        if not arguments.disable_log_stats:
            StatsLog(self.core, self._loop).start()
        gc.collect()
        gc.freeze()
        try:
            return await self._stopped
        finally:
            server.close()
            if self._live_tuning is not None:
                self._live_tuning.close()
            for connection in tuple(self._connections):
                connection.close()

    def _stage_fault(self, fault: Fault) -> None:
        if fault.kind is FaultKind.HANG:
            self.core.fail(EngineState.HUNG)
            return
        sys.stderr.write(_CORE_DIED)
        self.core.fail(EngineState.DEAD)
        if fault.kind is FaultKind.EXIT:
            # The answers of the requests that died leave first.
            self._loop.call_soon(self.stop, ExitCode.FAILED)


async def run_server(configuration: EngineConfiguration, hardware: Hardware) -> ExitCode:
    """Start up, serve until SIGTERM, SIGINT or a fault, and say how it ended.

    Raises EngineStartError, after the time of a start, when the memory does not suffice.
    """
    loop = asyncio.get_running_loop()
    asked_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_stop.set)
    for warning in configuration.warnings:
        _LOG.warning("%s", warning)
    _LOG.info("Loading weights took %.2f seconds", hardware.startup_s)
    try:
        await asyncio.wait_for(asked_to_stop.wait(), hardware.startup_s)
    except TimeoutError:
        pass
    else:
        return ExitCode.OK
    kv_cache = allocate_kv_cache(configuration, hardware)
    _LOG.info("Available KV cache memory: %.2f GiB", kv_cache.available_bytes / 2**30)
    _LOG.info("GPU KV cache size: %s tokens", f"{kv_cache.size_tokens:,}")
    _LOG.info(
        "Maximum concurrency for %s tokens per request: %.2fx",
        f"{configuration.max_model_len:,}",
        kv_cache.max_concurrency,
    )
    server = EngineServer(configuration, hardware, kv_cache)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop, ExitCode.OK)
    return await server.serve()
