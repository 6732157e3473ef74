"""What reads go through: the API server, engines, load agents and sources of metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
from pydantic import SecretStr

from kneekeeper.api.serving_profile import MetricsSpec
from kneekeeper.kube.client import Kube
from kneekeeper.load.client import AgentClient
from kneekeeper.load.live_limits import ConnectLive, connect_live
from kneekeeper.observe.direct import DirectSource
from kneekeeper.observe.engine_http import authority
from kneekeeper.observe.metrics import MetricsSource
from kneekeeper.observe.prometheus import PrometheusSource


@dataclass(frozen=True)
class ObserveSettings:
    """What an installation sets for reads."""

    prometheus_url: str = ""
    """Used by profiles without spec.metrics.prometheusRef; empty: their pods are scraped."""


ConnectAgent = Callable[[str, int, SecretStr], AgentClient]
"""Host, port and bearer token to a client of that load agent, which its user closes."""


def connect_agent(host: str, port: int, token: SecretStr) -> AgentClient:
    """The client of the agent at an IP address. Raises ValueError when `host` is none."""
    return AgentClient(f"http://{authority(host, port)}", token.get_secret_value())


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
    connect_agent: ConnectAgent = connect_agent
    connect_live: ConnectLive = connect_live
    settings: ObserveSettings = field(default_factory=ObserveSettings)
    metrics: MetricsSources = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", MetricsSources(self.http, self.settings))
