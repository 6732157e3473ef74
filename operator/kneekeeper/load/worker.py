"""The sending process: `python -m kneekeeper.load.worker FD`, started by the agent for one stage.

It gets its plan and commands, and sends reports, over the socket of the given file descriptor; orders come on
standard input. It imports neither numpy nor pydantic, and its garbage collector is off while requests run.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, cast

import uvloop

from kneekeeper.load.frames import (
    Command,
    Finished,
    FrameSplitter,
    Order,
    Plan,
    Ready,
    Refused,
    Report,
    Started,
    Tick,
    encode_report,
)
from kneekeeper.load.pool import ConnectError
from kneekeeper.load.sender import Sender

TICK_S = 0.02

BUFFER_BYTES = 64 * 1024 * 1024
"""Rendered requests that wait here at most; then the agent has to wait."""

ORDERS_BEFORE_START = 512
"""So many orders, or two for each user, are here before the stage begins, so that rendering never delays a send."""

_START_IN_S = 0.02


class Orders(asyncio.Protocol):
    """Reads orders from a pipe, and pauses it while enough of them wait."""

    def __init__(self, sender: Sender, needed: int, total: int) -> None:
        self._sender, self._needed, self._total = sender, needed, total
        self._splitter = FrameSplitter()
        self._transport: asyncio.ReadTransport | None = None
        self._paused = False
        self._received = 0
        self.enough = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.ReadTransport, transport)  # uvloop's are not instances

    def data_received(self, data: bytes) -> None:
        for frame in self._splitter.feed(data):
            self._received += 1
            self._sender.add(Order.decode(frame))
        full = self._sender.queued_bytes > BUFFER_BYTES
        if full or self._received >= min(self._needed, self._total):
            self.enough.set()
        if full and self._transport is not None:
            self._transport.pause_reading()
            self._paused = True

    def resume_if_there_is_room(self) -> None:
        if self._paused and self._sender.queued_bytes < BUFFER_BYTES // 2 and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()


class Control(asyncio.Protocol):
    """The socket to the agent. An agent that is gone ends the process."""

    def __init__(self) -> None:
        self._splitter = FrameSplitter()
        self._transport: asyncio.WriteTransport | None = None
        self.plan: asyncio.Future[Plan] = asyncio.get_running_loop().create_future()
        self.on_command: Callable[[Command], None] = lambda command: None
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._transport.set_write_buffer_limits(high=BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        for frame in self._splitter.feed(data):
            if not self.plan.done():
                self.plan.set_result(Plan.decode(frame))
            else:
                self.on_command(Command(frame[0]))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()

    def report(self, report: Report) -> None:
        assert self._transport is not None
        self._transport.write(encode_report(report))

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()


class Ticker:
    """Reports the counters every `TICK_S`, and how late it was woken: what delays it delays time stamps, too."""

    def __init__(self, sender: Sender, orders: Orders, control: Control) -> None:
        self._sender, self._orders, self._control = sender, orders, control
        self._loop = asyncio.get_running_loop()
        self._due = 0.0
        self._cpu_before_s = 0.0

    def start(self, at: float) -> None:
        self._due = at + TICK_S
        self._cpu_before_s = time.process_time()
        self._arm()

    def _arm(self) -> None:
        self._loop.call_later(max(0.0, self._due - time.perf_counter()), self._tick)

    def _tick(self) -> None:
        now = time.perf_counter()
        if now < self._due:  # libuv rounds to milliseconds
            self._arm()
            return
        sender = self._sender
        cpu_s = time.process_time() - self._cpu_before_s
        self._control.report(
            Tick(now, now - self._due, sender.sent, sender.ended, sender.waiting, sender.answers, cpu_s)
        )
        if sender.finished:
            self._control.report(Finished())
            self._control.close()
            return
        while self._due <= now:
            self._due += TICK_S
        sender.expire()
        self._orders.resume_if_there_is_room()
        self._arm()


def _die(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A callback failed: some request may never be reported, so the whole stage is lost, and quickly."""
    loop.default_exception_handler(context)
    os._exit(1)


async def run(control_socket: socket.socket) -> None:
    """One stage, from the plan to the last report."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_die)
    _, control = await loop.create_unix_connection(Control, sock=control_socket)
    plan = await control.plan
    try:
        sender = Sender(plan, control.report)
        orders = Orders(sender, max(ORDERS_BEFORE_START, 2 * plan.users), plan.orders)
        await loop.connect_read_pipe(lambda: orders, sys.stdin.buffer)
        await sender.connect()
    except ConnectError as error:
        control.report(Refused(str(error)))
        control.close()
        await control.lost.wait()
        return
    await orders.enough.wait()
    asked_to_start = asyncio.Event()

    def obey(command: Command) -> None:
        match command:
            case Command.START:
                asked_to_start.set()
            case Command.STOP:
                sender.stop()
            case Command.ABORT:
                sender.abort()

    gc.collect()
    gc.freeze()
    gc.disable()
    control.on_command = obey
    control.report(Ready())
    await asked_to_start.wait()
    at = time.perf_counter() + _START_IN_S
    control.report(Started(at))
    sender.start(at)
    Ticker(sender, orders, control).start(at)
    await control.lost.wait()


def raise_file_limit() -> None:
    """Allow as many connections as the container permits; the default of 1024 is below 4096 users."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> None:
    raise_file_limit()
    # A Ctrl-C in a terminal goes to the whole process group; the agent ends its worker in its own way.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    uvloop.run(run(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    main()
