"""A small HTTP/1.1 server for the agent's few routes: bounded requests, one at a time on a connection."""

from __future__ import annotations

import asyncio
import email.parser
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.message import Message
from http import HTTPStatus

LOG = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 * 1024
"""A stage's spec has about one KiB."""

MAX_HEAD_BYTES = 16 * 1024

IDLE_TIMEOUT_S = 75.0
"""A connection on which no whole request comes for so long is closed."""


@dataclass(frozen=True)
class Request:
    """One request. Header names are found in any case."""

    method: str
    path: str
    headers: Message
    body: bytes


@dataclass(frozen=True)
class Response:
    """One answer of JSON, with headers beside type and length."""

    status: HTTPStatus
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()

    def encode(self) -> bytes:
        fixed = (("content-type", "application/json"), ("content-length", str(len(self.body))))
        lines = [f"HTTP/1.1 {self.status.value} {self.status.phrase}"]
        lines += [f"{name}: {value}" for name, value in fixed + self.headers]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + self.body


@dataclass(frozen=True)
class Upgrade:
    """The connection goes on in another protocol, which `serve` speaks until its end."""

    protocol: str
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

    def encode(self) -> bytes:
        return f"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: {self.protocol}\r\n\r\n".encode()


Handler = Callable[[Request], Awaitable[Response | Upgrade]]


class BadRequest(Exception):
    """A request that is not read any further; the connection is closed after the answer."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.response = Response(status, b'{"message":"%s"}' % status.phrase.encode(), (("connection", "close"),))


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """The next request; None when the client has closed. Raises BadRequest.

    The reader's limit bounds the head. Bodies need a content-length.
    """
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError:
        raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from None
    line, _, fields = head.decode("latin-1").partition("\r\n")
    words = line.split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise BadRequest(HTTPStatus.BAD_REQUEST)
    headers = email.parser.HeaderParser().parsestr(fields)
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers:
        raise BadRequest(HTTPStatus.LENGTH_REQUIRED)
    if not (length.isascii() and length.isdigit()):
        raise BadRequest(HTTPStatus.BAD_REQUEST)
    if len(length) > 9 or int(length) > MAX_BODY_BYTES:
        raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    try:
        body = await reader.readexactly(int(length))
    except asyncio.IncompleteReadError:
        return None
    return Request(words[0], words[1].partition("?")[0], headers, body)


async def _answer(handler: Handler, request: Request) -> Response | Upgrade:
    try:
        return await handler(request)
    except Exception:
        LOG.exception("%s %s failed", request.method, request.path)
        return Response(HTTPStatus.INTERNAL_SERVER_ERROR, b'{"message":"The agent failed; its log says how."}')


async def serve_connection(handler: Handler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer requests one after the other, until either side closes."""
    try:
        while True:
            async with asyncio.timeout(IDLE_TIMEOUT_S):
                request = await read_request(reader)
            if request is None:
                return
            answer = await _answer(handler, request)
            writer.write(answer.encode())
            if isinstance(answer, Upgrade):
                await answer.serve(reader, writer)
                return
            await writer.drain()
            if request.headers.get("connection", "").lower() == "close":
                return
    except BadRequest as refusal:
        writer.write(refusal.response.encode())
    except (TimeoutError, ConnectionError):
        return
    finally:
        writer.close()


async def listen(handler: Handler, port: int) -> asyncio.Server:
    """Start to serve on `port` of all addresses, IPv4 and IPv6 through one socket. Raises OSError."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await serve_connection(handler, reader, writer)

    if socket.has_dualstack_ipv6():
        listening = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    else:
        listening = socket.create_server(("", port))
    return await asyncio.start_server(connected, sock=listening, limit=MAX_HEAD_BYTES)
