"""One HTTP/1.1 connection: httptools parses, the application answers. No tasks, no coroutines."""

from __future__ import annotations

import asyncio
import email.utils
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol, cast

import httptools

_KEEP_ALIVE_S = 5.0
"""vLLM closes a connection that has been idle for so long (VLLM_HTTP_TIMEOUT_KEEP_ALIVE)."""

_LARGEST_BODY_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A complete request. Header names are lower case; the path carries no query."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    keep_alive: bool


class Application(Protocol):
    """What answers requests."""

    def handle(self, request: HttpRequest, exchange: Exchange) -> None:
        """Answer now, or later through the exchange."""

    def answered(self, request: HttpRequest, status: int, body_bytes: int, duration_s: float) -> None:
        """A request has got its whole answer."""


class Exchange:
    """One request and its answer on a connection; an `answers.Reply`."""

    __slots__ = ("_connection", "_started_s", "_status", "on_disconnect", "request", "write")

    def __init__(self, request: HttpRequest, connection: HttpConnection) -> None:
        self.request = request
        self.write = connection.write
        self.on_disconnect: Callable[[], None] | None = None
        """Called once if the client goes away before the answer is complete."""
        self._connection = connection
        self._started_s = time.monotonic()
        self._status = 200

    def send(self, status: int, content_type: str, body: bytes, more_headers: str = "") -> None:
        """A whole answer. An empty body has no content type; each of `more_headers` ends with CRLF."""
        self._status = status
        headers = f"content-length: {len(body)}\r\n{more_headers}"
        if body:
            headers += f"content-type: {content_type}\r\n"
        self.write(_head(status, headers, self.request) + body)
        self._complete(len(body))

    def start_stream(self) -> None:
        """Send the head of a stream of server-sent events; `write` the chunks, then `end`."""
        self.write(
            _head(200, "content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n", self.request)
        )

    def end(self) -> None:
        self._complete(0)

    def _complete(self, body_bytes: int) -> None:
        self.on_disconnect = None
        duration_s = time.monotonic() - self._started_s
        self._connection.exchange_complete(self.request, self._status, body_bytes, duration_s)


class HttpConnection(asyncio.Protocol):
    """Requests of one connection are answered one after the other."""

    def __init__(self, application: Application, connections: set[HttpConnection]) -> None:
        """`connections` holds this connection as long as it is open."""
        self._application = application
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._exchange: Exchange | None = None
        self._pending: deque[HttpRequest] = deque()
        self._idle: asyncio.TimerHandle | None = None
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._body_bytes = 0
        self.write: Callable[[bytes], None]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A client that does not read must not stop the engine: nothing is ever paused.
        self._transport = cast(asyncio.Transport, transport)
        self.write = self._transport.write
        self._connections.add(self)
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._transport = None
        self._pending.clear()
        self._cancel_idle()
        exchange, self._exchange = self._exchange, None
        if exchange is not None and exchange.on_disconnect is not None:
            exchange.on_disconnect()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            if self._transport is not None:
                self.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
                self._transport.close()

    def close(self) -> None:
        """End the connection at once, whatever is in flight."""
        if self._transport is not None:
            self._transport.abort()

    # Called by the parser.

    def on_message_begin(self) -> None:
        self._cancel_idle()
        self._url = b""
        self._headers = {}
        self._body = []
        self._body_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._headers.get("expect", "").lower() == "100-continue":
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > _LARGEST_BODY_BYTES:
            raise httptools.HttpParserError("the body is too large")
        self._body.append(body)

    def on_message_complete(self) -> None:
        request = HttpRequest(
            method=self._parser.get_method().decode("latin-1"),
            path=self._url.partition(b"?")[0].decode("latin-1"),
            headers=self._headers,
            body=b"".join(self._body),
            keep_alive=self._parser.should_keep_alive(),
        )
        if self._exchange is not None:
            self._pending.append(request)
        else:
            self._handle(request)

    def _handle(self, request: HttpRequest) -> None:
        self._exchange = Exchange(request, self)
        self._application.handle(request, self._exchange)

    def exchange_complete(self, request: HttpRequest, status: int, body_bytes: int, duration_s: float) -> None:
        """The current answer is written; go on with the next request."""
        self._application.answered(request, status, body_bytes, duration_s)
        self._exchange = None
        if self._transport is None:
            return
        if not request.keep_alive:
            self._transport.close()
        elif self._pending:
            self._handle(self._pending.popleft())
        else:
            self._wait_for_request()

    def _wait_for_request(self) -> None:
        self._idle = asyncio.get_running_loop().call_later(_KEEP_ALIVE_S, self._close_idle)

    def _cancel_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _close_idle(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _head(status: int, headers: str, request: HttpRequest) -> bytes:
    connection = "" if request.keep_alive else "connection: close\r\n"
    date = email.utils.formatdate(usegmt=True)
    phrase = HTTPStatus(status).phrase
    return f"HTTP/1.1 {status} {phrase}\r\ndate: {date}\r\nserver: uvicorn\r\n{connection}{headers}\r\n".encode(
        "latin-1"
    )
