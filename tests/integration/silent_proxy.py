"""A TCP proxy whose connections can be cut as networks cut them: without a word to either side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

_CHUNK_BYTES = 65536


@dataclass
class SilentProxy:
    """Forwards what is sent to its port to `target_port`, both on the loopback address."""

    target_port: int
    port: int = 0
    _open: set[asyncio.Task[None]] = field(default_factory=set)
    _cut: list[asyncio.StreamWriter] = field(default_factory=list)
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    def cut(self) -> int:
        """Says how many open connections carry nothing from now on, yet stay open; later ones are forwarded."""
        pumps, self._open = self._open, set()
        for pump in pumps:
            pump.cancel()
        self._cut += self._writers
        self._writers = []
        return len(pumps) // 2

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        self._writers += [writer, far_writer]
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            pump = asyncio.create_task(_pump(source, sink))
            self._open.add(pump)
            pump.add_done_callback(self._open.discard)

    def close(self) -> None:
        """Ends all connections, the cut ones too."""
        for writer in [*self._cut, *self._writers]:
            writer.close()


@asynccontextmanager
async def silent_proxy(target_port: int) -> AsyncIterator[SilentProxy]:
    """It forwards while the block runs."""
    proxy = SilentProxy(target_port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
        proxy.close()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """A cancelled pump leaves both ends open."""
    try:
        while data := await source.read(_CHUNK_BYTES):
            sink.write(data)
            await sink.drain()
    except OSError:
        pass  # one side went away; the other one is told
    sink.close()
