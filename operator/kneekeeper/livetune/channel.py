"""The endpoint by which limits are changed and read: a small HTTP server in a thread of the engine's process.

Why there and not in vLLM's API server: it needs no argument of vLLM, no dev mode, and no hook into its web
application, works with the Rust front end and with several API servers, and the engine's own process is the only
one that knows what a step ran with.

It is made to be harmless. One thread answers one connection at a time, each with a short timeout and a bounded
body: a peer without the token can at worst keep the channel busy, and then the engine falls back to its start
values. The thread touches nothing of the engine, it only leaves what is wanted where the next step finds it.
"""

from __future__ import annotations

import hmac
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from .limits import Governor, Refusal
from .messages import (
    MAX_BODY_BYTES,
    PATH,
    PROTOCOL,
    MalformedMessage,
    Report,
    read_limits,
    write_refusal,
    write_report,
)

CONNECTION_TIMEOUT_S = 3.0
EVERY_ADDRESS = ""


class Channel:
    """An open channel; `port` is the real one also where 0 was asked for."""

    def __init__(
        self,
        *,
        token: str | None,
        engine_version: str,
        governor: Governor | None = None,
        unsupported: Refusal | None = None,
        host: str = EVERY_ADDRESS,
        port: int = 0,
    ) -> None:
        """Open it. Without `governor`, `unsupported` says why. With None for a token anybody may read and nobody
        change. Raises OSError, ValueError for an empty token."""
        if token is not None and not token:
            raise ValueError("a channel without a token would let anybody change the limits; set one")
        if (governor is None) == (unsupported is None):
            raise ValueError("a channel has either a governor or a reason why not")
        self._server = _Server(host, port, _Answers(token, engine_version, governor, unsupported))
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="kneekeeper-livetune", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer nothing more and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Answers:
    def __init__(
        self, token: str | None, engine_version: str, governor: Governor | None, unsupported: Refusal | None
    ) -> None:
        self._authorization = None if token is None else f"Bearer {token}".encode()
        self._engine_version = engine_version
        self._governor = governor
        self._unsupported = unsupported

    def answer(
        self, method: str, path: str, authorization: str, body: Callable[[], bytes | None]
    ) -> tuple[HTTPStatus, bytes]:
        """A token comes first: without it nothing is read, told or counted as a heartbeat."""
        given = authorization.encode("utf-8", "replace")
        if self._authorization is not None and not hmac.compare_digest(given, self._authorization):
            return _error(HTTPStatus.UNAUTHORIZED, "Unauthorized", "Send the run's token as a bearer token.")
        if path != PATH:
            return _error(HTTPStatus.NOT_FOUND, "NotFound", f"There is only {PATH}.")
        if method == "PUT" and self._authorization is None:
            return _error(HTTPStatus.METHOD_NOT_ALLOWED, "ReadOnly", "This engine takes its limits from a file.")
        if method == "PUT":
            refused = self._put(body())
            if refused is not None:
                return refused
        return HTTPStatus.OK, write_report(self._report())

    def _put(self, body: bytes | None) -> tuple[HTTPStatus, bytes] | None:
        if body is None:
            message = f"Send a Content-Length of at most {MAX_BODY_BYTES} bytes."
            return _error(HTTPStatus.BAD_REQUEST, "Malformed", message)
        try:
            limits = read_limits(body)
        except MalformedMessage as error:
            return _error(HTTPStatus.BAD_REQUEST, "Malformed", f"{error}.")
        refusal = self._unsupported if self._governor is None else self._governor.ask(limits)
        return None if refusal is None else (HTTPStatus.CONFLICT, write_refusal(refusal))

    def _report(self) -> Report:
        governor = self._governor
        if governor is None:
            return Report(PROTOCOL, self._engine_version, unsupported=self._unsupported)
        return Report(
            PROTOCOL, self._engine_version, governor.envelope, governor.standing(), governor.heartbeat_timeout_s
        )


def _error(status: HTTPStatus, reason: str, message: str) -> tuple[HTTPStatus, bytes]:
    return status, write_refusal(Refusal(reason, message))


class _Server(HTTPServer):
    request_queue_size = 16

    def __init__(self, host: str, port: int, answers: _Answers) -> None:
        self.answers = answers
        self._dual_stack = host == EVERY_ADDRESS and socket.has_dualstack_ipv6()
        if self._dual_stack or ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        if self._dual_stack:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super(HTTPServer, self).server_bind()  # HTTPServer's own asks the DNS for the host's name

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A broken connection is the peer's affair; the default prints a traceback into the engine's log."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = CONNECTION_TIMEOUT_S
    server_version = "kneekeeper-livetune"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer("GET")

    def do_PUT(self) -> None:
        self._answer("PUT")

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the log is the user's engine's."""

    def _answer(self, method: str) -> None:
        authorization = self.headers.get("Authorization", "")
        status, body = self.server.answers.answer(method, self.path, authorization, self._body)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _body(self) -> bytes | None:
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit() or int(length[:9]) > MAX_BODY_BYTES or len(length) > 9:
            return None
        return self.rfile.read(int(length))
