"""What reads go through: the API server, engines, load agents and sources of metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import httpx
from pydantic import SecretStr

from kneekeeper.api.serving_profile import MetricsSpec
from kneekeeper.api.stage import Samples, StageStatus
from kneekeeper.kube.client import Kube
from kneekeeper.observe.direct import DirectSource
from kneekeeper.observe.metrics import MetricsSource
from kneekeeper.observe.prometheus import PrometheusSource


@dataclass(frozen=True)
class ObserveSettings:
    """What an installation sets for reads."""

    prometheus_url: str = ""
    """Used by profiles without spec.metrics.prometheusRef; empty: their pods are scraped."""


class StageReader(Protocol):
    """What is read from a load agent."""

    async def get_stage(self, stage_id: str) -> StageStatus | None:
        """How the stage stands, None when the agent does not know it."""

    async def get_samples(self, stage_id: str) -> Samples:
        """The samples of an ended stage."""


ConnectAgent = Callable[[str, int, SecretStr], StageReader]
"""Host, port and bearer token to a client of that load agent."""


class MetricsSources:
    """The source of each profile. Sources are kept, since they remember what they saw."""

    def __init__(self, http: httpx.AsyncClient, settings: ObserveSettings) -> None:
        self._default_url = settings.prometheus_url
        self._direct = DirectSource(http)
        self._servers: dict[str, PrometheusSource] = {}

    def of(self, spec: MetricsSpec) -> MetricsSource:
        """The profile's own Prometheus, else the installation's, else the pods themselves."""
        url = spec.prometheus_ref.url if spec.prometheus_ref is not None else self._default_url
        if not url:
            return self._direct
        if url not in self._servers:
            self._servers[url] = PrometheusSource(url)
        return self._servers[url]


@dataclass(frozen=True)
class Clients:
    """Made once per operator process."""

    kube: Kube
    http: httpx.AsyncClient
    connect_agent: ConnectAgent
    settings: ObserveSettings = field(default_factory=ObserveSettings)
    metrics: MetricsSources = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", MetricsSources(self.http, self.settings))
