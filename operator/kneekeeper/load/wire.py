"""A connected socket, plain or with TLS, that tells when the kernel received what it delivers.

Streams and transports of asyncio hide the socket, and with it the kernel's stamps: with hundreds of streams whose
tokens come at once, the last one would be stamped when all others have been handled (docs/adr/0005).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from typing import Protocol

from kneekeeper.load.kernel_clock import CONTROL_BYTES, KernelClock, ask_for_stamps

_READ_BYTES = 64 * 1024


class Receiver(Protocol):
    """Who is told what comes."""

    def data_received(self, data: bytes, received_s: float) -> None:
        """Bytes, and the reading of `time.perf_counter` when the last of them came."""

    def eof_received(self) -> None:
        """The other side sends nothing more."""

    def connection_lost(self, error: Exception) -> None:
        """Reading or writing failed."""


class Wire:
    """One connection. After `abort` nothing more is told."""

    __slots__ = ("_clock", "_incoming", "_loop", "_outgoing", "_receiver", "_since_s", "_socket", "_tls", "_unsent")

    def __init__(self, connected: socket.socket, clock: KernelClock) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket, self._clock = connected, clock
        self._receiver: Receiver | None = None
        self._unsent = b""
        self._since_s = 0.0
        self._tls: ssl.SSLObject | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()

    @classmethod
    async def connect(
        cls, host: str, port: int, clock: KernelClock, tls: ssl.SSLContext | None, server_name: str
    ) -> Wire:
        """Connect to an IP address, and shake hands if `tls` is given. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        raw = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ask_for_stamps(raw)
            await asyncio.get_running_loop().sock_connect(raw, (host, port))
            wire = cls(raw, clock)
            if tls is not None:
                await wire._shake_hands(tls, server_name or host)
        except BaseException:
            raw.close()
            raise
        return wire

    def start(self, receiver: Receiver) -> None:
        """Tell `receiver` what comes, from now on."""
        self._receiver = receiver
        self._loop.add_reader(self._socket, self._on_readable)

    def send(self, data: bytes) -> None:
        """Send; what the kernel does not take now goes out when it does. Failures are told to the receiver."""
        self._since_s = time.perf_counter()
        if self._tls is not None:
            self._tls.write(data)
            data = self._outgoing.read()
        self._transmit(data)

    def _transmit(self, data: bytes) -> None:
        if self._unsent:
            self._unsent += data
            return
        self._unsent = data
        self._flush()
        if self._unsent:
            self._loop.add_writer(self._socket, self._on_writable)

    def abort(self) -> None:
        """Close at once."""
        if self._receiver is None or self._socket.fileno() < 0:
            self._socket.close()
            return
        self._receiver = None
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()

    def _on_readable(self) -> None:
        receiver = self._receiver
        if receiver is None:
            return
        try:
            data, ancillary, _, _ = self._socket.recvmsg(_READ_BYTES, CONTROL_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            receiver.connection_lost(error)
            return
        received_s = self._clock.received_s(ancillary, self._since_s, time.perf_counter())
        self._since_s = received_s
        if self._tls is not None:
            self._decrypt(receiver, data, received_s)
        elif data:
            receiver.data_received(data, received_s)
        else:
            receiver.eof_received()

    def _decrypt(self, receiver: Receiver, data: bytes, received_s: float) -> None:
        assert self._tls is not None
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
        pieces = []
        ended = False
        try:
            while piece := self._tls.read(_READ_BYTES):
                pieces.append(piece)
            ended = True
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            ended = True
        except ssl.SSLError as error:
            receiver.connection_lost(error)
            return
        if self._outgoing.pending:  # an answer of TLS itself, such as to a change of keys
            self._transmit(self._outgoing.read())
        if pieces and self._receiver is not None:
            receiver.data_received(b"".join(pieces), received_s)
        if ended and self._receiver is not None:
            receiver.eof_received()

    def _on_writable(self) -> None:
        self._flush()
        if not self._unsent and self._receiver is not None:
            self._loop.remove_writer(self._socket)

    def _flush(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._unsent = b""
            if self._receiver is not None:
                # Not from within `send`: whoever sends does not expect its request to end there.
                self._loop.call_soon(self._tell_lost, error)
            return
        self._unsent = self._unsent[sent:]

    def _tell_lost(self, error: Exception) -> None:
        if self._receiver is not None:
            self._receiver.connection_lost(error)

    async def _shake_hands(self, tls: ssl.SSLContext, server_name: str) -> None:
        self._tls = tls.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        while True:
            try:
                self._tls.do_handshake()
                wants_more = False
            except ssl.SSLWantReadError:
                wants_more = True
            if hello := self._outgoing.read():
                await self._loop.sock_sendall(self._socket, hello)
            if not wants_more:
                return
            answer = await self._loop.sock_recv(self._socket, _READ_BYTES)
            if not answer:
                raise ConnectionResetError("the server closed the connection during the TLS handshake")
            self._incoming.write(answer)
