"""Opens everything that the operator reads and writes through."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from kneekeeper.actuate.apply import Writers
from kneekeeper.actuate.settings import ActuateSettings
from kneekeeper.handlers.settings import Settings
from kneekeeper.handlers.ticks import Connections
from kneekeeper.kube.client import Kube
from kneekeeper.observe.clients import Clients, ObserveSettings, connect_agent
from kneekeeper.observe.engine_http import open_http


@asynccontextmanager
async def connections(settings: Settings, kube: Kube) -> AsyncIterator[Connections]:
    """Through this API client, to engines, agents and Prometheus as the settings say."""
    actuate = ActuateSettings(
        agent_image=settings.image,
        priority_class=settings.priority_class,
        instance=os.environ.get("HOSTNAME", "kneekeeper"),
        agent_image_pull_policy=settings.image_pull_policy,
    )
    observe = ObserveSettings(prometheus_url=settings.prometheus_url, plugin_image=actuate.plugin_image)
    async with open_http() as http:
        yield Connections(
            clients=Clients(kube, http, settings=observe),
            writers=Writers(kube, connect_agent, actuate),
            clock=lambda: datetime.now(UTC),
        )
