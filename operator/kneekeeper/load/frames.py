"""What the agent and its worker tell each other, as length-prefixed binary frames.

Times are absolute readings of the worker's `time.perf_counter`. They mean something beside its own start alone: a
worker of another agent has another clock.
"""

from __future__ import annotations

import asyncio
import struct
from array import array
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Self

_LENGTH = struct.Struct("<I")
LARGEST_FRAME_BYTES = 256 * 1024 * 1024
"""A longer frame is a broken stream: no request and no answer is allowed to be that large."""

_LONGEST_PROBLEM = 500


class FrameError(ValueError):
    """The stream between agent and worker is broken. The stage is lost; start it again."""


class Command(IntEnum):
    """What the agent asks for while a stage runs."""

    STOP = 1
    """Send nothing more, let what is in flight end."""

    ABORT = 2
    """Close all connections at once."""

    START = 3
    """Begin; asked for once the worker is Ready."""


class Ending(IntEnum):
    """How the worker saw a request end. Whether a complete answer is a good one is decided by `answers`."""

    COMPLETE = 0
    BROKEN = 1
    TIMED_OUT = 2
    ABORTED = 3


class Loop(IntEnum):
    """When requests are sent."""

    CLOSED = 0
    OPEN = 1


class Scheme(IntEnum):
    """How the target is spoken to."""

    HTTP = 0
    HTTPS = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """What the worker needs to know beside the requests themselves. `users` is 0 in an open loop."""

    _LAYOUT: ClassVar[struct.Struct] = struct.Struct("<BIdIdHB")
    _BETWEEN: ClassVar[str] = "\0"

    loop: Loop
    users: int
    rate: float
    orders: int
    request_timeout_s: float
    port: int
    host: str
    scheme: Scheme = Scheme.HTTP
    server_name: str = ""
    """What an HTTPS server's certificate must be for; empty: `host`."""
    ca_file: str = ""
    """The certificates to trust; empty: the system's."""

    def encode(self) -> bytes:
        fixed = self._LAYOUT.pack(
            self.loop, self.users, self.rate, self.orders, self.request_timeout_s, self.port, self.scheme
        )
        return fixed + self._BETWEEN.join((self.host, self.server_name, self.ca_file)).encode()

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        loop, users, rate, orders, request_timeout_s, port, scheme = cls._LAYOUT.unpack_from(payload)
        host, server_name, ca_file = payload[cls._LAYOUT.size :].decode().split(cls._BETWEEN)
        return cls(Loop(loop), users, rate, orders, request_timeout_s, port, host, Scheme(scheme), server_name, ca_file)


@dataclass(frozen=True, slots=True)
class Order:
    """One request, rendered. `intended_s` counts from the start; NaN: when the user is free and has thought for
    `think_s`."""

    _LAYOUT: ClassVar[struct.Struct] = struct.Struct("<Idd")

    index: int
    intended_s: float
    request: bytes
    think_s: float = 0.0

    def encode(self) -> bytes:
        return self._LAYOUT.pack(self.index, self.intended_s, self.think_s) + self.request

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        index, intended_s, think_s = cls._LAYOUT.unpack_from(payload)
        return cls(index, intended_s, payload[cls._LAYOUT.size :], think_s)


@dataclass(frozen=True, slots=True)
class Ready:
    """All connections are open and the first requests are here; nothing is sent before the command to start."""


@dataclass(frozen=True, slots=True)
class Started:
    """The stage began at `at`."""

    at: float


@dataclass(frozen=True, slots=True)
class Refused:
    """The stage did not begin: the target could not be connected to."""

    message: str


@dataclass(frozen=True, slots=True)
class Tick:
    """The worker's counters, every 20 ms or as soon after as it got the processor."""

    _LAYOUT: ClassVar[struct.Struct] = struct.Struct("<ddIIIId")

    at: float
    lag_s: float
    sent: int
    ended: int
    waiting: int
    answers: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request as it went: times, and the body's pieces with the time at which each was received."""

    _LAYOUT: ClassVar[struct.Struct] = struct.Struct("<IBHdddIH")

    index: int
    ending: Ending
    status: int
    """The HTTP status; 0 without an answer."""
    intended_s: float
    sent_s: float
    ended_s: float
    stamps_s: array[float]
    lengths: array[int]
    body: bytes
    problem: str
    """What broke; empty for a complete exchange."""


@dataclass(frozen=True, slots=True)
class Finished:
    """Nothing is in flight and nothing will be sent: the worker's last frame."""


Report = Ready | Started | Refused | Tick | Exchange | Finished
_KINDS: dict[type[Report], int] = {Started: 1, Refused: 2, Tick: 3, Exchange: 4, Finished: 5, Ready: 6}


def framed(payload: bytes) -> bytes:
    """`payload` with its length in front."""
    return _LENGTH.pack(len(payload)) + payload


def encode_report(report: Report) -> bytes:
    """A report as a whole frame."""
    match report:
        case Started():
            payload = struct.pack("<d", report.at)
        case Refused():
            payload = report.message.encode()
        case Tick():
            payload = report._LAYOUT.pack(
                report.at, report.lag_s, report.sent, report.ended, report.waiting, report.answers, report.cpu_s
            )
        case Exchange():
            problem = report.problem.encode()[:_LONGEST_PROBLEM]
            head = report._LAYOUT.pack(
                report.index,
                report.ending,
                report.status,
                report.intended_s,
                report.sent_s,
                report.ended_s,
                len(report.stamps_s),
                len(problem),
            )
            payload = b"".join((head, problem, report.stamps_s.tobytes(), report.lengths.tobytes(), report.body))
        case Finished() | Ready():
            payload = b""
    return framed(bytes((_KINDS[type(report)],)) + payload)


def decode_report(frame: bytes) -> Report:
    """The inverse of `encode_report`, without the length. Raises FrameError."""
    try:
        kind, payload = frame[0], frame[1:]
        match kind:
            case 1:
                return Started(*struct.unpack("<d", payload))
            case 2:
                return Refused(payload.decode())
            case 3:
                return Tick(*Tick._LAYOUT.unpack(payload))
            case 4:
                return _decode_exchange(payload)
            case 5 if not payload:
                return Finished()
            case 6 if not payload:
                return Ready()
    except (struct.error, IndexError, ValueError) as error:
        raise FrameError(f"a frame from the worker cannot be read: {error}") from error
    raise FrameError(f"a frame from the worker is of unknown kind {kind}")


def _decode_exchange(payload: bytes) -> Exchange:
    index, ending, status, intended_s, sent_s, ended_s, pieces, problem_bytes = Exchange._LAYOUT.unpack_from(payload)
    stamps_s, lengths = array("d"), array("I")
    at = Exchange._LAYOUT.size
    problem = payload[at : at + problem_bytes].decode(errors="replace")
    at += problem_bytes
    stamps_s.frombytes(payload[at : at + 8 * pieces])
    at += 8 * pieces
    lengths.frombytes(payload[at : at + 4 * pieces])
    body = payload[at + 4 * pieces :]
    if len(lengths) != pieces:
        raise FrameError("an exchange from the worker is shorter than it says")
    return Exchange(index, Ending(ending), status, intended_s, sent_s, ended_s, stamps_s, lengths, body, problem)


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next frame without its length; None when the other side has closed. Raises FrameError."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > LARGEST_FRAME_BYTES:
            raise FrameError(f"a frame of {length} bytes is longer than any that is sent")
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


class FrameSplitter:
    """Cuts a byte stream into frames."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that `data` completes. Raises FrameError."""
        self._pending += data
        frames, at = [], 0
        while len(self._pending) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._pending, at)
            if length > LARGEST_FRAME_BYTES:
                raise FrameError(f"a frame of {length} bytes is longer than any that is sent")
            end = at + _LENGTH.size + length
            if len(self._pending) < end:
                break
            frames.append(bytes(self._pending[at + _LENGTH.size : end]))
            at = end
        del self._pending[:at]
        return frames
