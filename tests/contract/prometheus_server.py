"""A Prometheus server on the wire that has every kind of bad day."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any
from urllib.parse import parse_qs, urlsplit

Rows = list[dict[str, Any]]

PIECE_S = 0.02
"""Between two bytes of an answer that drips."""


class Fault(Enum):
    """What is wrong with every answer."""

    DOWN = auto()
    """Connections are reset."""
    SLOW = auto()
    """There is no answer."""
    DRIPPING = auto()
    """The answer comes a byte at a time, without an end."""
    ENDLESS = auto()
    """The answer is longer than anybody asked for."""
    ERROR = auto()
    REDIRECT = auto()
    NO_JSON = auto()
    NO_RESULT = auto()
    """JSON of something else."""
    NO_SERIES = auto()
    """Series of another form than Prometheus has."""
    EMPTY = auto()
    NAN = auto()
    INFINITE = auto()
    NEGATIVE = auto()
    HUGE = auto()
    PARTIAL = auto()
    """Of one pod of several, and half of the buckets."""
    OTHER_LABELS = auto()
    """A pod's name stands under another label."""
    RENAMED = auto()
    """The engine's gauges have another name."""


_OF_NUMBERS = {Fault.NAN: "NaN", Fault.INFINITE: "+Inf", Fault.NEGATIVE: "-3", Fault.HUGE: "1e300"}


@dataclass
class PrometheusServer:
    """Answers a query by the first key of `content` that stands in it, with nothing where there is none."""

    content: Mapping[str, Rows]
    fault: Fault | None = None
    ahead_s: float = 0.0
    """Its clock, against that of others."""
    port: int = 0
    asked: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                await self._answer(head.split(" ")[1], writer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    async def _answer(self, target: str, writer: asyncio.StreamWriter) -> None:
        [query] = parse_qs(urlsplit(target).query)["query"]
        self.asked.append(query)
        body = json.dumps({"status": "success", "data": {"result": self._rows(query)}}).encode()
        status, more = "200 OK", ""
        match self.fault:
            case Fault.DOWN:
                writer.transport.abort()
                raise ConnectionResetError
            case Fault.SLOW:
                await asyncio.sleep(3600)
            case Fault.DRIPPING:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                while True:
                    writer.write(b" ")
                    await writer.drain()
                    await asyncio.sleep(PIECE_S)
            case Fault.ENDLESS:
                body += b" " * 100_000
            case Fault.ERROR:
                status, body = "503 Service Unavailable", b"the secret page of a proxy"
            case Fault.REDIRECT:
                status, more = "302 Found", "Location: http://127.0.0.1:1/\r\n"
            case Fault.NO_JSON:
                body = b"<html>the secret page of a proxy</html>"
            case Fault.NO_RESULT:
                body = b'["secret"]'
        writer.write(f"HTTP/1.1 {status}\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def _rows(self, query: str) -> Any:
        rows = next((rows for key, rows in self.content.items() if key in query), [])
        rows = [_with_points(row, lambda at_s, value: [at_s + self.ahead_s, value]) for row in rows]
        match self.fault:
            case Fault.NO_SERIES:
                return [{"metric": ["pod"], "value": "secret"}]
            case Fault.EMPTY:
                return []
            case Fault.PARTIAL:
                return [row for row in rows[:1] if "value" in row]
            case Fault.OTHER_LABELS:
                names = {"pod": "kubernetes_pod_name", "le": "bound"}
                return [row | {"metric": {names.get(k, k): v for k, v in row["metric"].items()}} for row in rows]
            case Fault.RENAMED:
                return [] if "num_requests" in query else rows
            case fault if fault in _OF_NUMBERS:
                return [_with_points(row, lambda at_s, _: [at_s, _OF_NUMBERS[fault]]) for row in rows]
        return rows


def _with_points(row: dict[str, Any], changed: Callable[[float, str], list[Any]]) -> dict[str, Any]:
    if "value" in row:
        return row | {"value": changed(*row["value"])}
    return row | {"values": [changed(*point) for point in row["values"]]}


@asynccontextmanager
async def prometheus_server(content: Mapping[str, Rows], fault: Fault | None = None) -> AsyncIterator[PrometheusServer]:
    """On a free port of the loopback interface."""
    served = PrometheusServer(content, fault)
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(served.connected(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
