"""Whether the engine under load serves users as well, looked at from beside the load.

The agent does it, not the operator: what it has sent is known here at each moment, and an operator may be dead when
users come. A look costs the engine's API process one answer of /metrics every half second.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable

import httpx

from kneekeeper.api.quantities import counted
from kneekeeper.api.stage import METRICS_UNREADABLE, USERS_SERVED, WINDOW_CLOSED, StageSpec, StageState
from kneekeeper.domain.users_requests import FAMILIES, EngineCount, began_anew, count_in, unaccounted, users_requests
from kneekeeper.load.ending import End, Rest
from kneekeeper.load.rendering import authority

LOOK_EVERY_S = 0.5
LOOK_AGAIN_S = 0.1
SUSPECTS_FOR_S = 2.0
"""Servers with several API processes write gauges and counters one after the other: what is seen twice is there. What
the agent sends during a look hides as many users, so one look in between may see none."""

READ_TIMEOUT_S = 2.0
LONGEST_UNSEEN_S = 5.0
"""Longer without an answer, and users may have come."""

SETTLES_WITHIN_S = 3.0
"""A full API process writes its counters somewhat after the last byte of an answer."""


class UsersGuard:
    """Watches one guarded stage: `begin` before the first request, `watch` under load, `settle` after the last one."""

    def __init__(self, spec: StageSpec) -> None:
        """Raises ValueError for a stage without a guard."""
        if spec.guard is None:
            raise ValueError(f"stage {spec.id} has no guard")
        target, self._until_s = spec.target, spec.guard.until_s
        self._url = f"{'http' if target.tls is None else 'https'}://{authority(target)}/metrics"
        self._before: EngineCount | None = None

    async def begin(self) -> End | None:
        """Take the counters from which the stage is counted. An End where it must not begin."""
        async with _open() as http:
            self._before = await self._read(http)
        if self._before is None:
            return _unreadable(self._url)
        if time.time() >= self._until_s:
            return _closed()
        if self._before.inside:
            return _users(f"The engine works on {counted(self._before.inside, 'request')} of users: nothing was sent.")
        return None

    async def watch(self, sent_at: Callable[[float], Awaitable[int]]) -> End:
        """Returns only when the load has to end. `sent_at` waits until it knows how many requests were sent by a moment
        (`time.perf_counter`), and counts none that was not."""
        before, seen_at, suspected_at = self._counted(), time.perf_counter(), -math.inf
        async with _open() as http:
            while True:
                suspects = time.perf_counter() - suspected_at < SUSPECTS_FOR_S
                await asyncio.sleep(min(LOOK_AGAIN_S if suspects else LOOK_EVERY_S, self._left_s()))
                if self._left_s() <= 0:
                    return _closed()
                now = await self._read(http)
                read_at = time.perf_counter()
                if now is None:
                    if read_at - seen_at > LONGEST_UNSEEN_S:
                        return _unreadable(self._url)
                    continue
                seen_at = read_at
                if began_anew(before, now):
                    return _users("The engine began anew under the load, or another one has its address.")
                users = users_requests(before, now, await sent_at(read_at))
                if users and suspects:
                    return _users(f"Users sent {counted(users, 'request')} in mid-stage: the load was broken off.")
                suspected_at = read_at if users else suspected_at

    async def settle(self, answered: int, failed: int, tokens: int) -> End | None:
        """Hold the engine's counters against what the agent had: an End where they tell of others."""
        told, until = _unreadable(self._url), time.monotonic() + SETTLES_WITHIN_S
        async with _open() as http:
            while time.monotonic() < until:
                after = await self._read(http)
                if after is not None:
                    fault = unaccounted(self._counted(), after, answered, failed, tokens)
                    if fault is None:
                        return None
                    told = _users(fault)
                await asyncio.sleep(LOOK_AGAIN_S)
        return told

    def _counted(self) -> EngineCount:
        assert self._before is not None  # `begin` comes first, and ends a stage without it
        return self._before

    def _left_s(self) -> float:
        return max(0.0, self._until_s - time.time())

    async def _read(self, http: httpx.AsyncClient) -> EngineCount | None:
        try:
            answer = await http.get(self._url, headers={"accept": "text/plain; version=0.0.4"})
        except httpx.HTTPError:
            return None
        return count_in(answer.text) if answer.is_success else None


def _open() -> httpx.AsyncClient:
    # Certificates are not asked for, as by the kubelet's probes: nothing secret is sent, only /metrics is read.
    return httpx.AsyncClient(timeout=READ_TIMEOUT_S, trust_env=False, verify=False)


def _users(message: str) -> End:
    return End(StageState.INVALID, USERS_SERVED, message, Rest.ABORT)


def _closed() -> End:
    return End(StageState.INVALID, WINDOW_CLOSED, "The window closed: the load was broken off.", Rest.ABORT)


def _unreadable(url: str) -> End:
    message = (
        f"Whether users are served was not known: {url} did not answer with {', '.join(FAMILIES)}. Let pods with "
        "kneekeeper.io/role=agent reach it, and run the engine without --disable-log-stats."
    )
    return End(StageState.INVALID, METRICS_UNREADABLE, message, Rest.ABORT)
