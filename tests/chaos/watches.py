"""What may befall a watch on its way through the proxy."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from enum import StrEnum

import aiohttp
from aiohttp import web

_LATE_S = 1.0
_FOR_EVER_S = 3600.0
_EXPIRED = {
    "type": "ERROR",
    "object": {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410},
}


class WatchFault(StrEnum):
    """One way in which a watch tells too little, too much, or too late."""

    ENDED = "ended"
    """The connection ends in the middle of an event."""
    STALLED = "stalled"
    """The connection stays open and says nothing any more."""
    EXPIRED = "expired"
    """The server says that the version is too old."""
    TWICE = "twice"
    """Every event comes twice."""
    LATE = "late"
    """Every event comes a second late."""
    OLD = "old"
    """After each event the one before it comes once more."""


WatchPlan = Callable[[], WatchFault | None]
"""Asked once for every watch that is opened."""


def well() -> WatchFault | None:
    """Every watch goes well."""
    return None


@dataclass
class WatchesAtRandom:
    """Every second watch or so has a fault. The same seed, the same plan."""

    seed: int
    hit: list[WatchFault] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def __call__(self) -> WatchFault | None:
        if self._random.random() < 0.4:
            return None
        self.hit.append(self._random.choice(list(WatchFault)))
        return self.hit[-1]


async def forward_watch(
    request: web.Request, upstream: aiohttp.ClientResponse, fault: WatchFault | None
) -> web.StreamResponse:
    """Pass the events on, as the fault has it; it shows after the first event."""
    response = web.StreamResponse(status=upstream.status, headers={"Content-Type": upstream.content_type})
    await response.prepare(request)
    before = b""
    async for line in _lines(upstream):
        if fault is WatchFault.LATE:
            await asyncio.sleep(_LATE_S)
        if fault is WatchFault.ENDED:
            await response.write(line[: len(line) // 2])
            break
        await response.write(line)
        if fault is WatchFault.EXPIRED:
            await response.write(json.dumps(_EXPIRED).encode() + b"\n")
            break
        if fault is WatchFault.TWICE:
            await response.write(line)
        if fault is WatchFault.OLD:
            await response.write(before)
        if fault is WatchFault.STALLED:
            await asyncio.sleep(_FOR_EVER_S)
        before = line
    if fault is WatchFault.ENDED and request.transport is not None:
        request.transport.abort()
    return response


async def _lines(upstream: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Events are longer than what aiohttp takes for a line."""
    rest = b""
    async for chunk in upstream.content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line + b"\n"
