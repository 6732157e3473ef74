"""One agent's share of a stage in another agent's hands, over one connection.

    POST /shares   upgrade: kneekeeper-frames   →   101, then frames: commands there, reports back

The agent that was asked starts a worker of its own and hands on what both sides say. Its worker ends with the
connection, so no share outlives the stage that it is of.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Self

import orjson

from kneekeeper.api.stage import ShareOrder, StageSpec
from kneekeeper.domain.workload import draw_workload
from kneekeeper.load.frames import Command, FrameError, Report, decode_report, framed, read_frame
from kneekeeper.load.rendering import Renderer
from kneekeeper.load.shares import Share, plan_of
from kneekeeper.load.sources import Sources
from kneekeeper.load.worker_process import WorkerProcess

PROTOCOL = "kneekeeper-frames"

CONNECT_LIMIT_S = 30.0
"""Until the other agent has drawn the stage and started its worker."""

SILENCE_LIMIT_MS = 10_000
"""An agent that acknowledges nothing for so long is gone: its node may be, too."""

_READ_LIMIT_BYTES = 4 * 1024 * 1024


class HelperError(Exception):
    """An agent does not take its share. The message says which one, and why."""


class HelperWorker:
    """The worker of another agent, as this agent's own: hears commands, tells reports."""

    def __init__(self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.address = address
        self._reader, self._writer = reader, writer

    @classmethod
    async def start(cls, address: str, token: str, spec: StageSpec, part: int) -> Self:
        """Have the agent at `address` (`10.0.0.7:8080`) start a share. Raises HelperError."""
        body = ShareOrder(stage=spec, part=part).model_dump_json().encode()
        head = f"POST /shares HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\nconnection: upgrade\r\n"
        head += f"upgrade: {PROTOCOL}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        host, _, port = address.rpartition(":")
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(CONNECT_LIMIT_S):
                reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), limit=_READ_LIMIT_BYTES)
                _notice_silence(writer)
                writer.write(head.encode() + body)
                await _accepted(address, reader)
        except (OSError, asyncio.IncompleteReadError, HelperError) as error:
            if writer is not None:
                writer.close()
            if isinstance(error, HelperError):
                raise
            raise HelperError(
                f"The load agent at {address} takes no share: {error or type(error).__name__}."
            ) from error
        return cls(address, reader, writer)

    async def reports(self) -> AsyncIterator[Report]:
        """What the worker tells, until it or its agent is gone. Raises FrameError."""
        while (frame := await read_frame(self._reader)) is not None:
            yield decode_report(frame)

    def command(self, command: Command) -> None:
        """Ask for something; an agent that is gone does not hear it."""
        if not self._writer.is_closing():
            self._writer.write(framed(bytes((command,))))

    async def kill(self) -> None:
        """Close the connection, with which the worker ends."""
        self._writer.close()


async def _accepted(address: str, reader: asyncio.StreamReader) -> None:
    """Read the answer up to where the frames begin. Raises HelperError for any but 101."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    status = head.split(" ", 2)[1] if head.count(" ") > 1 else ""
    if status == str(HTTPStatus.SWITCHING_PROTOCOLS.value):
        return
    told = await reader.read(4096)
    try:
        why = str(orjson.loads(told)["message"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        why = f"HTTP {status}"
    raise HelperError(f"The load agent at {address} takes no share: {why}.")


def _notice_silence(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket | None = writer.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_LIMIT_MS)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENCE_LIMIT_MS // 2000)


async def start_share(order: ShareOrder, api_key: str | None, sources: Sources) -> WorkerProcess:
    """A worker of this agent that sends a share. Raises SourceError, TraceMissing and OSError."""
    spec, share = order.stage, Share(order.part, order.stage.agents)
    inputs = await asyncio.to_thread(sources.read_inputs, spec)
    workload = await asyncio.to_thread(draw_workload, spec, inputs.trace)
    orders = Renderer(spec, workload, api_key, inputs.prompts).orders(share)
    return await WorkerProcess.start(plan_of(spec, workload, share), orders)


async def hand_on(worker: WorkerProcess, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reports to the asking agent, its commands to the worker, until either is gone; then the worker is ended."""
    _notice_silence(writer)

    async def tell() -> None:
        async for frame in worker.frames():
            writer.write(framed(frame))
            await writer.drain()

    async def obey() -> None:
        while (frame := await read_frame(reader)) is not None:
            worker.command(Command(frame[0]))

    tasks = {asyncio.create_task(tell()), asyncio.create_task(obey())}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await worker.kill()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError, ConnectionError, FrameError, ValueError, IndexError):
                await task
