"""The agent's end of the worker: starts it, feeds it, hears it, ends it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterable
from typing import Self

from kneekeeper.load.frames import Command, Order, Plan, Report, decode_report, framed, read_frame

_PIPE_BYTES = 1024 * 1024
_READ_LIMIT_BYTES = 4 * 1024 * 1024


class WorkerProcess:
    """One worker for one stage. Its process never outlives this object's `kill`, nor the agent."""

    def __init__(self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._process, self._reader, self._writer = process, reader, writer
        self._feeding: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, plan: Plan, orders: Iterable[Order]) -> Self:
        """Start the process and begin to feed it. Raises OSError when no process can be started."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "kneekeeper.load.worker",
                str(theirs.fileno()),
                stdin=asyncio.subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                env={name: value for name, value in os.environ.items() if not name.startswith("KNEEKEEPER_")},
            )
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=_READ_LIMIT_BYTES)
        worker = cls(process, reader, writer)
        writer.write(framed(plan.encode()))
        worker._feeding = asyncio.create_task(worker._feed(orders))
        return worker

    @property
    def pid(self) -> int:
        return self._process.pid

    async def frames(self) -> AsyncIterator[bytes]:
        """What the worker tells, as it came, until it is gone. Raises FrameError."""
        while (frame := await read_frame(self._reader)) is not None:
            yield frame

    async def reports(self) -> AsyncIterator[Report]:
        """What the worker tells, until it is gone. Raises FrameError."""
        async for frame in self.frames():
            yield decode_report(frame)

    def command(self, command: Command) -> None:
        """Ask for something; a worker that is gone does not hear it."""
        if not self._writer.is_closing():
            self._writer.write(framed(bytes((command,))))

    async def kill(self) -> None:
        """End the process now, if it has not ended by itself."""
        if self._feeding is not None:
            self._feeding.cancel()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._writer.close()
        await self._process.wait()

    async def _feed(self, orders: Iterable[Order]) -> None:
        """Write orders as fast as the worker takes them; the pipe is the bounded buffer."""
        pipe = self._process.stdin
        assert pipe is not None
        pipe.transport.set_write_buffer_limits(high=_PIPE_BYTES)
        with contextlib.suppress(ConnectionError):
            for order in orders:
                pipe.write(framed(order.encode()))
                await pipe.drain()
                await asyncio.sleep(0)  # drain does not yield while the buffer has room
