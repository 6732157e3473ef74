"""What the live-tuning plugins of serving pods say is in force."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from pydantic import SecretStr

from kneekeeper.domain.observation import PodView, Unreachable
from kneekeeper.livetune.messages import Report
from kneekeeper.load.live_limits import LiveLimitsError
from kneekeeper.observe.clients import Clients

MOST_AT_ONCE = 16
_NO_TOKEN = SecretStr("")
"""Production's channel only tells, and tells anybody."""


async def read_live_limits(clients: Clients, pods: Iterable[PodView]) -> dict[str, Report | Unreachable]:
    """By name, of the ready pods that were made with the plugin."""
    asked = [pod for pod in pods if pod.delivery is not None and pod.ready and pod.ip and not pod.deleting]
    places = asyncio.Semaphore(MOST_AT_ONCE)

    async def read(pod: PodView) -> Report | Unreachable:
        async with places:
            try:
                async with clients.connect_live(pod.ip, _NO_TOKEN) as live:
                    return await live.read()
            except LiveLimitsError as error:
                return Unreachable(str(error))

    reports = await asyncio.gather(*(read(pod) for pod in asked))
    return dict(zip((pod.name for pod in asked), reports, strict=True))
