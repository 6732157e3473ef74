"""What reads go through: the API server, engines, load agents and sources of metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

import httpx
from pydantic import SecretStr

from kneekeeper.api.serving_profile import MetricsSpec
from kneekeeper.domain.live_delivery import PluginImage
from kneekeeper.kube.client import Kube
from kneekeeper.load.client import AgentClient
from kneekeeper.load.live_limits import ConnectLive, connect_live
from kneekeeper.observe.direct import DirectSource
from kneekeeper.observe.engine_http import authority
from kneekeeper.observe.gpu_rooms import GpuRooms
from kneekeeper.observe.metrics import MetricsSource
from kneekeeper.observe.prometheus import PrometheusSource


@dataclass(frozen=True)
class ObserveSettings:
    """What an installation sets for reads."""

    prometheus_url: str = ""
    """Used by profiles without spec.metrics.prometheusRef; empty: their pods are scraped."""

    plugin_image: PluginImage | None = None
    """What production's live-tuning plugin would be delivered with; none: it is not delivered."""


ConnectAgent = Callable[[str, int, SecretStr], AgentClient]
"""Host, port and bearer token to a client of that load agent, which its user closes."""


def connect_agent(host: str, port: int, token: SecretStr) -> AgentClient:
    """The client of the agent at an IP address. Raises ValueError when `host` is none."""
    return AgentClient(f"http://{authority(host, port)}", token.get_secret_value())


SERVER_UNUSED_S = 3600.0
"""Profiles ask their server every few minutes: one that nobody asked for so long is in no profile any more."""


class MetricsSources:
    """The source of each profile. Sources are kept, since they remember what they saw."""

    def __init__(self, http: httpx.AsyncClient, settings: ObserveSettings, clock_s: Callable[[], float]) -> None:
        self._default_url = settings.prometheus_url
        self._direct = DirectSource(http, clock_s)
        self._clock_s = clock_s
        self._servers: dict[str, PrometheusSource] = {}
        self._asked_s: dict[str, float] = {}

    def of(self, spec: MetricsSpec) -> MetricsSource:
        """The profile's own Prometheus, else the installation's, narrowed to its labels; else the pods themselves."""
        url = spec.prometheus_ref.url if spec.prometheus_ref is not None else self._default_url
        if not url:
            return self._direct
        self._asked_s[url] = self._clock_s()
        if url not in self._servers:
            self._forget_unused()
            self._servers[url] = PrometheusSource(url)
        return self._servers[url].narrowed(spec.match_labels)

    def _forget_unused(self) -> None:
        """Each has connections of its own."""
        now_s = self._clock_s()
        for url in [url for url, asked_s in self._asked_s.items() if now_s - asked_s > SERVER_UNUSED_S]:
            del self._asked_s[url]
            self._servers.pop(url, None)


@dataclass(frozen=True)
class Clients:
    """Made once per operator process."""

    kube: Kube
    http: httpx.AsyncClient
    connect_agent: ConnectAgent = connect_agent
    connect_live: ConnectLive = connect_live
    settings: ObserveSettings = field(default_factory=ObserveSettings)
    clock_s: Callable[[], float] = monotonic
    metrics: MetricsSources = field(init=False)
    rooms: GpuRooms = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", MetricsSources(self.http, self.settings, self.clock_s))
        object.__setattr__(self, "rooms", GpuRooms(self.kube, self.clock_s))
