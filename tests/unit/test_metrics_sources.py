"""Which source a profile's metrics come from, and which are kept."""

from __future__ import annotations

import httpx

from kneekeeper.api.serving_profile import MetricsSpec, PrometheusRef
from kneekeeper.observe.clients import SERVER_UNUSED_S, MetricsSources, ObserveSettings


def of(url: str) -> MetricsSpec:
    return MetricsSpec(prometheus_ref=PrometheusRef(url=url))


async def test_a_server_is_kept_while_it_is_asked_and_forgotten_when_no_profile_names_it_any_more():
    now_s = 0.0
    async with httpx.AsyncClient() as http:
        sources = MetricsSources(http, ObserveSettings(), lambda: now_s)
        first = vars(sources.of(of("http://kept:9090")))["_queries"]
        for number in range(50):
            sources.of(of("http://kept:9090"))
            sources.of(of(f"http://server-{number}:9090"))
            now_s += SERVER_UNUSED_S / 2
        assert len(vars(sources)["_servers"]) <= 4
        assert vars(sources.of(of("http://kept:9090")))["_queries"] is first, "it remembers what it saw"
