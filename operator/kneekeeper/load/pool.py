"""Connections that are open before they are needed."""

from __future__ import annotations

import asyncio
import ssl
import time

from kneekeeper.load.frames import Plan, Scheme
from kneekeeper.load.kernel_clock import KernelClock
from kneekeeper.load.protocol import Connection, Listener
from kneekeeper.load.wire import Wire

CONNECT_TIMEOUT_S = 5.0

MAX_IDLE_S = 2.0
"""Servers close connections that are idle for some seconds (uvicorn, and so vLLM, after 5): a request that is
sent at that moment is lost. So none is used that has been idle for longer than this."""

CONNECTS_AT_ONCE = 64
"""Before a stage: fewer than a listening socket's usual backlog of 128."""


class ConnectError(ConnectionError):
    """The target does not accept connections. Check its address, port and network policies."""


class Pool:
    """Idle connections to one address; the one that was used last is used next, so that the others can age."""

    def __init__(self, plan: Plan, listener: Listener) -> None:
        """Raises ConnectError when the certificates to trust cannot be read."""
        self._plan, self._listener = plan, listener
        self._tls = _tls_context(plan.ca_file) if plan.scheme is Scheme.HTTPS else None
        self._clock = KernelClock()
        self._idle: list[Connection] = []

    async def connect(self) -> Connection:
        """A new connection, not pooled. Raises ConnectError."""
        plan = self._plan
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                wire = await Wire.connect(plan.host, plan.port, self._clock, self._tls, plan.server_name)
        except (OSError, TimeoutError) as error:
            reason = str(error) or f"no answer within {CONNECT_TIMEOUT_S:g} s"
            raise ConnectError(f"cannot connect to {plan.host} port {plan.port}: {reason}") from error
        return Connection(self._listener, wire)

    async def fill(self, count: int, at_once: int = CONNECTS_AT_ONCE) -> None:
        """Have `count` idle connections, opened in groups of `at_once`. Raises ConnectError."""
        while (missing := count - len(self._idle)) > 0:
            opened = await asyncio.gather(*(self.connect() for _ in range(min(missing, at_once))))
            self._idle.extend(connection for connection in opened if connection.usable)

    def take(self) -> Connection | None:
        """An idle connection that is fresh enough to be relied on; None when there is none."""
        oldest = time.perf_counter() - MAX_IDLE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and connection.idle_since >= oldest:
                return connection
            connection.discard()
        return None

    def give(self, connection: Connection) -> None:
        """Take back a connection; one that is not usable is dropped."""
        if connection.usable:
            self._idle.append(connection)

    def drop_stale(self) -> None:
        """Close what has been idle for too long."""
        oldest = time.perf_counter() - MAX_IDLE_S
        fresh = [connection for connection in self._idle if connection.usable and connection.idle_since >= oldest]
        for connection in set(self._idle).difference(fresh):
            connection.discard()
        self._idle = fresh

    def close(self) -> None:
        """Close all idle connections."""
        for connection in self._idle:
            connection.discard()
        self._idle.clear()


def _tls_context(ca_file: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        raise ConnectError(f"the certificates to trust cannot be read from {ca_file}: {error}") from error
    context.set_alpn_protocols(["http/1.1"])
    return context
