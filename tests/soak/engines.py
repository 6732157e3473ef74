"""What is reached at the addresses of all pods: engines that serve, engines under test, load agents."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

import httpx

from kneekeeper.api.serving_profile import MetricsSpec
from kneekeeper.api.stage import Samples, StageSpec, StageStatus
from kneekeeper.domain.observation import ProductionHistory
from kneekeeper.kube.resources import Resource
from kneekeeper.observe.direct import DirectSource
from kneekeeper.observe.metrics import MetricsUnreachable, ServingPods
from tests.chaos.engines import Engines
from tests.soak.law import slow_answer, slowness
from tests.soak.production import Production


class MetricsFault(StrEnum):
    """What metrics answer on a bad day."""

    DOWN = "down"
    SLOW = "slow"
    ERROR = "error"
    EMPTY = "empty"
    NAN = "NaN"
    OLD = "old"
    """They stand still."""


@dataclass
class Scraped:
    """Metrics of one workload's pods."""

    production: Production
    fault: MetricsFault | None = None
    until_s: float = 0.0
    _old: dict[str, str] = field(default_factory=dict)

    def begin(self, fault: MetricsFault, until_s: float) -> None:
        self.fault, self.until_s = fault, until_s
        self._old.clear()

    def answer(self, address: str, now_s: float) -> httpx.Response:
        """Raises httpx.TransportError as a network does."""
        self.production.advance(now_s)
        text = self.production.metrics(address)
        fault = self.fault_now(now_s)
        match fault:
            case None:
                return httpx.Response(200, text=text)
            case MetricsFault.DOWN:
                raise httpx.ConnectError("refused")
            case MetricsFault.SLOW:
                raise httpx.ReadTimeout("slow")
            case MetricsFault.ERROR:
                return httpx.Response(500, text="no")
            case MetricsFault.EMPTY:
                return httpx.Response(200, text="")
            case MetricsFault.NAN:
                lines = (line.rpartition(" ")[0] + " NaN" for line in text.splitlines())
                return httpx.Response(200, text="\n".join([*lines, ""]))
            case MetricsFault.OLD:
                return httpx.Response(200, text=self._old.setdefault(address, text))

    def fault_now(self, now_s: float) -> MetricsFault | None:
        return self.fault if now_s < self.until_s else None


@dataclass
class SoakEngines(Engines):
    """Of all workloads together."""

    serving: dict[str, Scraped] = field(default_factory=dict)
    """By the address of each pod that serves."""
    _slow: dict[str, float] = field(default_factory=dict)

    def clone_starts(self, address: str, pod: Resource, container: str) -> None:
        super().clone_starts(address, pod, container)
        self._slow[address] = slowness_of(pod, container)

    def forget(self, address: str) -> None:
        super().forget(address)
        self._slow.pop(address, None)
        self.started.clear()  # nobody asks here what was started when

    def stage_ends_s(self, addresses: Iterable[str]) -> float:
        """The last of what agents at these addresses have ever run."""
        stages = (stage for address in addresses for stage in self._agents.get(address, {}).values())
        return max((stage.ends_s for stage in stages), default=-math.inf)

    def measured(self, spec: StageSpec) -> tuple[StageStatus, Samples]:
        """Raises httpx.TransportError where the clone is gone: the played agent goes with it."""
        setting = self.settings.get(spec.target.host)
        if setting is None:
            raise httpx.ConnectError("nobody is there")
        return slow_answer(spec, setting, self._slow[spec.target.host])

    def http(self) -> httpx.AsyncClient:
        def answered(request: httpx.Request) -> httpx.Response:
            scraped = self.serving.get(request.url.host)
            if scraped is not None:
                return scraped.answer(request.url.host, self.clock_s())
            if request.url.host not in self.settings:
                raise httpx.ConnectError("nobody is there")
            return httpx.Response(200, text=self.metrics(request.url.host))

        return httpx.AsyncClient(transport=httpx.MockTransport(answered))


def slowness_of(pod: Resource, container: str) -> float:
    """Of the engine in this pod, or in the pods of this template."""
    [engine] = [each for each in pod["spec"]["containers"] if each["name"] == container]
    return slowness(engine["image"], engine["args"][0])


class PlayedPrometheus(DirectSource):
    """Pods that the operator scrapes by itself, and a history of their traffic beside it."""

    def __init__(self, http: httpx.AsyncClient, engines: SoakEngines, epoch_s: float) -> None:
        super().__init__(http, engines.clock_s)
        self._engines, self._epoch_s = engines, epoch_s

    async def history(self, serving: ServingPods) -> ProductionHistory | None:
        """Raises MetricsUnreachable."""
        found = next((s for pod in serving.pods if (s := self._engines.serving.get(pod.ip)) is not None), None)
        if found is None:
            return None
        now_s = self._engines.clock_s()
        if found.fault_now(now_s) is not None:
            raise MetricsUnreachable("http://prometheus", "it is away")
        found.production.advance(now_s)
        return ProductionHistory((), found.production.history(self._epoch_s))


class Sources:
    """A profile that declares its traffic is scraped, one that does not has a Prometheus server."""

    def __init__(self, http: httpx.AsyncClient, engines: SoakEngines, epoch_s: float) -> None:
        self._direct = DirectSource(http, engines.clock_s)
        self._prometheus = PlayedPrometheus(http, engines, epoch_s)

    def of(self, spec: MetricsSpec) -> DirectSource:
        return self._prometheus if spec.prometheus_ref is not None else self._direct
