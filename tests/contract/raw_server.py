"""A completion server without an engine, which stamps its own truth and misbehaves on order."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import orjson


class Fault(Enum):
    """What can happen to a request instead of a good answer."""

    HTTP_500 = auto()
    HTTP_503 = auto()
    TRUNCATED = auto()
    RESET = auto()
    GARBAGE = auto()
    SILENT = auto()
    DRIPPING = auto()
    """A good beginning, then a byte at a time without an end: no timeout between two bytes ever strikes."""
    HALF_CLOSED = auto()
    """A good beginning, then the sending side is closed and the connection held."""


@dataclass(frozen=True)
class Behaviour:
    """How the server answers. Times are seconds."""

    first_token_s: float = 0.005
    gap_s: float = 0.002
    tokens_per_chunk: int = 1
    at_once: int = 4096
    fault: Fault | None = None
    fault_every: int = 1
    stall_after_s: float | None = None
    stall_s: float = 0.0
    tells_usage: bool = True
    answers_at_most: int | None = None
    """Tokens after which an answer ends as if that were all."""
    queue: int | None = None
    """Requests beyond these are refused with 503 at once."""
    restarts_after_s: float | None = None
    """From the first request on; then it is away for a while, and comes back slower."""
    away_s: float = 0.5
    slower: float = 5.0
    comments: bool = False
    splits_bytes: bool = False


@dataclass(eq=False)
class Truth:
    """What the server saw of one request; times are readings of `time.perf_counter`, as the client's are."""

    body: dict[str, Any]
    path: str
    authorization: str
    received: float
    failed: bool = False
    first_written: float | None = None
    ended: float | None = None


@dataclass
class RawServer:
    """Serves until its context ends."""

    behaviour: Behaviour
    port: int = 0
    seen: list[Truth] = field(default_factory=list)
    connections: int = 0
    in_flight: int = 0
    most_in_flight: int = 0

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.behaviour.at_once)
        self._random = random.Random(0)

    @property
    def stall_ends(self) -> float:
        """When the stall ends, which counts from the first request."""
        if self.behaviour.stall_after_s is None:
            return 0.0
        return self.seen[0].received + self.behaviour.stall_after_s + self.behaviour.stall_s

    @property
    def stall_begins(self) -> float:
        return self.stall_ends - self.behaviour.stall_s

    @property
    def age_s(self) -> float:
        """Since the first request."""
        return time.perf_counter() - self.seen[0].received if self.seen else 0.0

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while (truth := await self._read(reader)) is not None:
                self.in_flight += 1
                self.most_in_flight = max(self.most_in_flight, self.in_flight)
                try:
                    await self._answer(truth, writer)
                finally:
                    truth.ended = time.perf_counter()
                    self.in_flight -= 1
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Truth | None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        except asyncio.IncompleteReadError:
            return None
        received = time.perf_counter()
        line, *fields = head.rstrip().split("\r\n")
        headers = dict(field.split(": ", 1) for field in fields)
        body = orjson.loads(await reader.readexactly(int(headers["content-length"])))
        truth = Truth(body, line.split(" ")[1], headers.get("authorization", ""), received)
        self.seen.append(truth)
        return truth

    async def _answer(self, truth: Truth, writer: asyncio.StreamWriter) -> None:
        fault = self.behaviour.fault if len(self.seen) % self.behaviour.fault_every == 0 else None
        restart_s = self.behaviour.restarts_after_s
        if restart_s is not None and restart_s <= self.age_s < restart_s + self.behaviour.away_s:
            fault = Fault.RESET
        if self.behaviour.queue is not None and self.in_flight > self.behaviour.queue:
            fault = Fault.HTTP_503
        truth.failed = fault is not None
        async with self._slots:
            match fault:
                case Fault.HTTP_500:
                    writer.write(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 4\r\n\r\nboom")
                case Fault.HTTP_503:
                    writer.write(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nfull")
                case Fault.RESET:
                    writer.transport.abort()
                    raise ConnectionResetError
                case Fault.GARBAGE:
                    writer.write(b"\x00\xffnot http at all\r\n\r\n")
                    raise ConnectionResetError
                case Fault.SILENT:
                    await asyncio.sleep(3600)
                case Fault.DRIPPING:
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
                    while True:
                        writer.write(b":")
                        await writer.drain()
                        await asyncio.sleep(0.01)
                case Fault.HALF_CLOSED:
                    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
                    await self._event(writer, {"choices": [{"text": "a"}]})
                    writer.write_eof()
                    await asyncio.sleep(3600)
                case _:
                    await self._stream(truth, writer, truncated=fault is Fault.TRUNCATED)

    async def _stream(self, truth: Truth, writer: asyncio.StreamWriter, *, truncated: bool) -> None:
        behaviour, is_chat = self.behaviour, "messages" in truth.body
        await asyncio.sleep(behaviour.first_token_s)
        await self._wait_out_the_stall()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        if is_chat:
            await self._event(writer, {"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        left = tokens = min(int(truth.body["max_tokens"]), behaviour.answers_at_most or 2**31)
        restarted = behaviour.restarts_after_s is not None and self.age_s > behaviour.restarts_after_s
        gap_s = behaviour.gap_s * (behaviour.slower if restarted else 1.0)
        while left > 0:
            if behaviour.comments:
                await self._write(writer, b": still here\n\n")
            brought = min(left, behaviour.tokens_per_chunk)
            left -= brought
            truth.first_written = truth.first_written or time.perf_counter()
            choice = {"delta": {"content": "a" * brought}} if is_chat else {"text": "a" * brought}
            await self._event(writer, {"choices": [choice]})
            if left:
                await asyncio.sleep(gap_s)
        if truncated:
            raise ConnectionResetError
        if behaviour.tells_usage:
            usage = {"prompt_tokens": len(truth.body.get("prompt", [])), "completion_tokens": tokens}
            await self._event(writer, {"choices": [], "usage": usage})
        await self._write(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")

    async def _wait_out_the_stall(self) -> None:
        now = time.perf_counter()
        if self.behaviour.stall_after_s is not None and self.stall_begins <= now < self.stall_ends:
            await asyncio.sleep(self.stall_ends - now)

    async def _event(self, writer: asyncio.StreamWriter, event: dict[str, object]) -> None:
        await self._write(writer, b"data: " + orjson.dumps(event) + b"\n\n")

    async def _write(self, writer: asyncio.StreamWriter, payload: bytes) -> None:
        """One HTTP chunk; when bytes are split, in several packets at random places."""
        chunk = b"%x\r\n%b\r\n" % (len(payload), payload)
        while self.behaviour.splits_bytes and len(chunk) > 1:
            at = self._random.randint(1, len(chunk) - 1)
            writer.write(chunk[:at])
            await writer.drain()
            await asyncio.sleep(0)
            chunk = chunk[at:]
        writer.write(chunk)


@asynccontextmanager
async def raw_server(
    behaviour: Behaviour | None = None, address: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[RawServer]:
    """A server on a free port of the loopback interface."""
    raw = RawServer(behaviour or Behaviour())
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(raw.connected(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, address, 0, backlog=1024, ssl=tls)
    raw.port = server.sockets[0].getsockname()[1]
    try:
        yield raw
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
