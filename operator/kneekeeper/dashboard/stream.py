"""Server-sent events: the fleet's rows as they change. One message tells a row, or that a profile is gone."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import orjson
from aiohttp import web

from kneekeeper.dashboard.answers import HEADERS
from kneekeeper.dashboard.store import Store
from kneekeeper.domain.views.fleet import FleetRow, Summary, fleet, row_of, summary
from kneekeeper.domain.views.key import Key

HEARTBEAT_S = 15.0
"""Proxies close streams that are silent for longer, and a viewer that is gone is found by writing to it."""

GATHER_S = 0.2
"""Changes that come together are sent together."""


@dataclass(frozen=True)
class Changes:
    """Rows that are new or changed, profiles that are gone, and what the fleet sums up to now."""

    summary: Summary
    rows: tuple[FleetRow, ...]
    gone: tuple[Key, ...]


async def stream(request: web.Request, store: Store) -> web.StreamResponse:
    """Until the viewer goes or the server stops.

    Subscribed before the viewer is answered: it loads the fleet when the stream opens, and may miss nothing after that.
    """
    response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
    try:
        with store.subscribed() as subscription:
            await response.prepare(request)
            await response.write(b": connected\n\n")
            while True:
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        changed = await subscription.take()
                except TimeoutError:
                    await response.write(b": alive\n\n")
                    continue
                await response.write(b"event: changes\ndata: " + orjson.dumps(_changes(store, changed)) + b"\n\n")
                await asyncio.sleep(GATHER_S)
    except ConnectionError:
        return response


def _changes(store: Store, keys: set[Key]) -> Changes:
    found = {key: store.profile(key) for key in sorted(keys)}
    return Changes(
        summary=summary(fleet(store.profiles())),
        rows=tuple(row_of(profile) for profile in found.values() if profile is not None),
        gone=tuple(key for key, profile in found.items() if profile is None),
    )
