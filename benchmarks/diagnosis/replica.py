"""One replica in simulated time: the simulated engine's own core, scheduler, step timer and metrics.

Only the clock is simulated, and faults are what they would be in reality: a host that needs time between steps, an
API process that needs long for a request, a network that is slow, a KV cache that is small, arguments that are bad.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from prometheus_client import CollectorRegistry, generate_latest

from kneekeeper.domain.scheduler import Request, Scheduler
from kneekeeper.domain.step_plan import StepPlan
from kneekeeper.engine.arguments import parse_arguments
from kneekeeper.engine.configuration import configure
from kneekeeper.engine.core import EngineCore, Generation
from kneekeeper.engine.hardware import Hardware, StepTimeLaw
from kneekeeper.engine.memory import allocate_kv_cache
from kneekeeper.engine.metrics import EngineMetrics
from kneekeeper.engine.steptime import StepTimer

_SM_ACTIVE_READING = 0.35
"""SMs in use while weights are read and kernels launched."""

_SM_ACTIVE_COMPUTING = 0.95


class Timer:
    """A call that is due; cancelled ones are passed over."""

    __slots__ = ("arguments", "call", "cancelled")

    def __init__(self, call: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.call = call
        self.arguments = arguments
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class SimulatedTime:
    """A clock with timers; stands in for the event loop, of which the engine uses `call_later` alone."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._due: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, call: Callable[..., None], *arguments: Any) -> Timer:
        return self.call_at(self.now_s + delay_s, call, *arguments)

    def call_at(self, at_s: float, call: Callable[..., None], *arguments: Any) -> Timer:
        timer = Timer(call, arguments)
        heapq.heappush(self._due, (at_s, next(self._order), timer))
        return timer

    def run_until(self, end_s: float) -> None:
        while self._due and self._due[0][0] <= end_s:
            at_s, _, timer = heapq.heappop(self._due)
            if not timer.cancelled:
                self.now_s = max(self.now_s, at_s)
                timer.call(*timer.arguments)
        self.now_s = end_s


class MeteredTimer(StepTimer):
    """The engine's step times, with what a GPU exporter would count, and time of the host between steps."""

    def __init__(self, law: StepTimeLaw, graph_sizes: tuple[int, ...], seed: int, host_s: float) -> None:
        super().__init__(law, graph_sizes, random.Random(seed))
        self.busy_s = 0.0
        self.sm_active_s = 0.0
        self._base_s = law.base_ms / 1e3
        self._host_s = host_s

    def duration_s(self, plan: StepPlan, now_s: float) -> float:
        kernel_s = super().duration_s(plan, now_s)
        reading_s = min(self._base_s, kernel_s)
        self.busy_s += kernel_s
        self.sm_active_s += _SM_ACTIVE_READING * reading_s + _SM_ACTIVE_COMPUTING * (kernel_s - reading_s)
        return kernel_s + self._host_s


@dataclass(frozen=True)
class Faults:
    """What is wrong with the machine or its surroundings."""

    host_ms: float = 0.0
    """Between two steps the GPU waits this long for the host."""
    api_ms: float = 1.0
    """The API process works this long on each request."""
    network_ms: float = 0.0
    """Round trip between client and pod."""
    probe_timeout_s: float | None = None
    """Of the kubelet's probe every 10 s, which waits behind the requests in the API process."""


HEALTHY = Faults()


@dataclass
class Answered:
    """One request as its client saw it."""

    sent_s: float
    first_s: float = 0.0
    last_s: float = 0.0
    prompt_tokens: int = 0
    output_tokens: int = 0


@dataclass
class _Client:
    """Receives one answer."""

    replica: Replica
    seen: Answered
    then: Callable[[], None] | None
    network_s: float

    def token(self, generated: int) -> None:
        if generated == 1:
            self.seen.first_s = self.replica.time.now_s + self.network_s / 2

    def last_token(self, generated: int) -> None:
        now_s = self.replica.time.now_s + self.network_s / 2
        if generated == 1:
            self.seen.first_s = now_s
        self.seen.last_s = now_s
        self.replica.answered.append(self.seen)
        if self.then is not None:
            self.then()

    def failed(self) -> None:
        raise AssertionError("no fault of this benchmark kills the engine")


@dataclass
class Replica:
    """An engine that was started with these arguments on this hardware."""

    time: SimulatedTime
    hardware: Hardware
    arguments: tuple[str, ...]
    faults: Faults
    seed: int
    answered: list[Answered] = field(default_factory=list)
    probe_failures: int = 0

    def __post_init__(self) -> None:
        configuration = configure(parse_arguments(self.arguments), self.hardware)
        kv_cache = allocate_kv_cache(configuration, self.hardware)
        self.registry = CollectorRegistry()
        self.timer = MeteredTimer(
            self.hardware.step_time, configuration.graph_sizes, self.seed, self.faults.host_ms / 1e3
        )
        self.core = EngineCore(
            Scheduler(configuration.scheduler_limits(kv_cache.num_gpu_blocks)),
            self.timer,
            EngineMetrics(self.registry, configuration, kv_cache),
            cast(asyncio.AbstractEventLoop, self.time),
            self.time.time,
            self.faults.api_ms / 1e3,
        )
        self._api_free_s = 0.0
        self._ids = itertools.count()
        if self.faults.probe_timeout_s is not None:
            self.time.call_later(10.0, self._probe, self.faults.probe_timeout_s)

    def send(self, prompt: int, output: int, cached: int, then: Callable[[], None] | None = None) -> None:
        """A client sends a request now."""
        network_s = self.faults.network_ms / 1e3
        seen = Answered(self.time.now_s, prompt_tokens=prompt, output_tokens=output)
        client = _Client(self, seen, then, network_s)
        self.time.call_later(
            network_s / 2, self._submit, Request(f"r{next(self._ids)}", prompt, output, cached), client
        )

    def scrape(self) -> str:
        return generate_latest(self.registry).decode()

    def _submit(self, request: Request, client: _Client) -> None:
        now_s = self.time.now_s
        self._api_free_s = max(now_s, self._api_free_s) + self.faults.api_ms / 1e3
        self.core.submit(Generation(request, "length", request.output_tokens, now_s, client))

    def _probe(self, timeout_s: float) -> None:
        if self._api_free_s - self.time.now_s > timeout_s:
            self.probe_failures += 1
        self.time.call_later(10.0, self._probe, timeout_s)
