"""One HTTP/1.1 connection to the target: sends prepared bytes, stamps and keeps what comes back.

This is the path on which every microsecond is added to the engine's latency, so it parses the framing of
HTTP and leaves the body's meaning to `answers`, which runs in another process.
"""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass, field

import httptools

from kneekeeper.load.frames import Ending
from kneekeeper.load.wire import Wire

MAX_BODY_BYTES = 64 * 1024 * 1024
"""An answer that grows beyond this is broken: a completion of 100,000 tokens has about 30 MiB."""

_FIRST_FINAL_STATUS = 200


@dataclass(slots=True, eq=False)
class Pending:
    """A request that is under way. Times are readings of `time.perf_counter`."""

    index: int
    intended: float
    deadline: float
    sent: float = 0.0
    ended: float = 0.0
    status: int = 0
    ending: Ending | None = None
    problem: str = ""
    stamps: array[float] = field(default_factory=lambda: array("d"))
    pieces: list[bytes] = field(default_factory=list)
    body_bytes: int = 0
    connection: Connection | None = None


class Listener:
    """What a connection tells its owner."""

    __slots__ = ()

    def on_first_answer(self) -> None:
        """The first byte of a body has come."""

    def on_answer(self) -> None:
        """A piece of a body has come."""

    def on_end(self, connection: Connection, pending: Pending) -> None:
        """The request has ended, in whatever way; `connection.usable` says whether another may follow."""


class Connection:
    """Carries one request at a time, and tells its listener exactly once how each ended."""

    __slots__ = (
        "_complete",
        "_keep_alive",
        "_listener",
        "_now",
        "_parser",
        "_wire",
        "idle_since",
        "pending",
        "usable",
    )

    def __init__(self, listener: Listener, wire: Wire) -> None:
        self._listener, self._wire = listener, wire
        self._parser = httptools.HttpResponseParser(self)
        self._now = 0.0
        self._complete = False
        self._keep_alive = False
        self.pending: Pending | None = None
        self.usable = True
        self.idle_since = time.perf_counter()
        wire.start(self)

    def send(self, pending: Pending, request: bytes) -> None:
        """Write a request. The connection must be usable and idle."""
        assert self.pending is None
        self._parser = httptools.HttpResponseParser(self)
        self._complete = False
        self.pending = pending
        pending.connection = self
        pending.sent = time.perf_counter()
        self._wire.send(request)

    def discard(self) -> None:
        """Close an idle connection."""
        self._close()

    def end(self, ending: Ending, problem: str) -> None:
        """Break off: the request, if there is one, ends so, and the connection is closed."""
        self._close()
        self._finish(ending, problem)

    # What the wire tells.

    def data_received(self, data: bytes, received_s: float) -> None:
        self._now = received_s
        if self.pending is None:
            self.end(Ending.BROKEN, "")  # nobody asked: a server that says farewell, or one that is broken
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.end(Ending.BROKEN, "the answer is not HTTP: it upgrades the protocol")
            return
        except httptools.HttpParserError as error:
            if not self._complete:
                self.end(Ending.BROKEN, f"the answer is not HTTP: {error}")
                return
            self._close()
        if self.pending is not None and self.pending.body_bytes > MAX_BODY_BYTES:
            self.end(Ending.BROKEN, f"the answer is longer than {MAX_BODY_BYTES} bytes")
        elif self._complete:
            if not self._keep_alive:
                self._close()
            self._finish(Ending.COMPLETE, "")

    def eof_received(self) -> None:
        self.end(Ending.BROKEN, "the server closed the connection before the answer was complete")

    def connection_lost(self, error: Exception) -> None:
        self.end(Ending.BROKEN, f"connection lost: {error}")

    # What httptools calls while it parses.

    def on_body(self, body: bytes) -> None:
        pending = self.pending
        if pending is None or self._complete:
            return
        if not pending.pieces:
            self._listener.on_first_answer()
        self._listener.on_answer()
        pending.stamps.append(self._now)
        pending.pieces.append(body)
        pending.body_bytes += len(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= _FIRST_FINAL_STATUS and self.pending is not None and not self._complete:
            self.pending.status = status
            self._complete = True
            self._keep_alive = bool(self._parser.should_keep_alive())  # llhttp forgets it after this callback

    def on_message_begin(self) -> None:
        if self._complete:  # a second answer to one request: the next one would get a wrong answer
            self._close()

    def _close(self) -> None:
        self.usable = False
        self._wire.abort()

    def _finish(self, ending: Ending, problem: str) -> None:
        pending = self.pending
        if pending is None:
            return
        self.pending = None
        pending.connection = None
        pending.ending = ending
        pending.problem = problem
        pending.ended = time.perf_counter() if ending is not Ending.COMPLETE else self._now
        if not pending.status and ending is not Ending.COMPLETE and pending.pieces:
            pending.status = self._parser.get_status_code()
        self.idle_since = pending.ended
        self._listener.on_end(self, pending)
