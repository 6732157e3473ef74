"""Sends prepared requests: at given times, and in a closed loop also whenever a user has become free."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from array import array
from collections import deque
from collections.abc import Callable, Coroutine

from kneekeeper.load.alarm import Alarm
from kneekeeper.load.frames import Ending, Exchange, Loop, Order, Plan
from kneekeeper.load.pool import ConnectError, Pool
from kneekeeper.load.protocol import Connection, Listener, Pending

FAILURE_PAUSE_S = 0.1
"""A user whose request failed waits so long: an engine that refuses at once is not to be hammered."""

_SPARE_S = 0.5
_FEWEST_SPARES = 4
_MOST_SPARES = 128
"""An open loop keeps as many idle connections as requests arrive in `_SPARE_S`, within these bounds."""

_UPKEEP_S = 0.05
_UPKEEP_AT_ONCE = 2
"""Few, and often: while connections are opened no request is sent and no answer is read."""


def exchange_of(pending: Pending) -> Exchange:
    """The report of a request that has ended."""
    assert pending.ending is not None
    return Exchange(
        pending.index,
        pending.ending,
        pending.status,
        pending.intended,
        pending.sent,
        pending.ended,
        pending.stamps,
        array("I", map(len, pending.pieces)),
        b"".join(pending.pieces),
        pending.problem,
    )


class Sender(Listener):
    """Each order that is added becomes exactly one reported exchange, unless it is not due when sending stops.

    Orders with a time are sent at that time, whatever the server does. Orders without one are sent in a closed
    loop when an earlier request has been read to its end and its user has thought; their intended time is that
    moment.
    """

    def __init__(self, plan: Plan, report: Callable[[Exchange], None]) -> None:
        """Raises ConnectError when the plan's certificates cannot be read."""
        self._plan = plan
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._pool = Pool(plan, self)
        self._timed: deque[Order] = deque()
        self._free: deque[Order] = deque()
        self._owed: deque[float] = deque()  # closed loop: users without an order, by the time they became free
        self._flights: deque[Pending] = deque()  # by deadline; ended ones are dropped lazily
        self._tasks: set[asyncio.Task[None]] = set()
        self._alarm = Alarm(self._fire)
        self._started_at = math.inf
        self._stopping = False
        self.sent = self.ended = self.waiting = self.answers = 0
        self.queued_bytes = 0

    @property
    def finished(self) -> bool:
        """Whether nothing is in flight and nothing more will be sent."""
        return self._stopping and self.sent == self.ended

    async def connect(self) -> None:
        """Open the first connections. Raises ConnectError."""
        await self._pool.fill(self._plan.users if self._plan.loop is Loop.CLOSED else self._spares())

    def add(self, order: Order) -> None:
        """Take an order; timed ones in ascending order of time."""
        if self._stopping:
            return
        self.queued_bytes += len(order.request)
        if not math.isnan(order.intended_s):
            self._timed.append(order)
            if not self._alarm.is_set:
                self._fire()
        else:
            self._free.append(order)
            if self._owed:
                self._send_next(self._owed.popleft())

    def start(self, at: float) -> None:
        """Begin; `at` is the reading of `time.perf_counter` from which intended times count."""
        self._started_at = at
        self._fire()
        if self._plan.rate > 0:  # users who think let their connections grow stale
            self._spawn(self._keep_spares())

    def stop(self) -> None:
        """Send nothing more. What is in flight goes on."""
        self._stopping = True
        self._alarm.close()
        self._timed.clear()
        self._free.clear()

    def abort(self) -> None:
        """Stop, and break off all that is in flight."""
        self.stop()
        while self._flights:
            self._break_off(self._flights.popleft(), Ending.ABORTED, "")
        self._pool.close()

    def expire(self) -> None:
        """Time out what is overdue."""
        now = time.perf_counter()
        flights = self._flights
        while flights and (flights[0].ending is not None or flights[0].deadline <= now):
            timeout_s = self._plan.request_timeout_s
            self._break_off(flights.popleft(), Ending.TIMED_OUT, f"no complete answer within {timeout_s:g} s")

    def on_first_answer(self) -> None:
        self.waiting -= 1

    def on_answer(self) -> None:
        self.answers += 1

    def on_end(self, connection: Connection, pending: Pending) -> None:
        self._pool.give(connection)
        self._ended(pending)

    def _fire(self) -> None:
        """Send what is due, never early, and come back for the next."""
        if math.isinf(self._started_at) or self._stopping:
            return
        timed, start = self._timed, self._started_at
        while timed and start + timed[0].intended_s <= time.perf_counter():
            order = timed.popleft()
            self._send(order, start + order.intended_s)
        if timed:
            self._alarm.set(start + timed[0].intended_s)

    def _send(self, order: Order, intended: float) -> None:
        pending = Pending(order.index, intended, intended + self._plan.request_timeout_s)
        self.queued_bytes -= len(order.request)
        self.sent += 1
        self.waiting += 1
        self._flights.append(pending)
        connection = self._pool.take()
        if connection is not None:
            connection.send(pending, order.request)
        else:
            self._spawn(self._connect_and_send(pending, order.request))

    async def _connect_and_send(self, pending: Pending, request: bytes) -> None:
        try:
            connection = await self._pool.connect()
        except ConnectError as error:
            self._end_unsent(pending, Ending.BROKEN, str(error))
            return
        if pending.ending is not None:
            self._pool.give(connection)
        elif connection.usable:
            connection.send(pending, request)
        else:
            self._end_unsent(pending, Ending.BROKEN, "the server closed the connection at once")

    def _break_off(self, pending: Pending, ending: Ending, problem: str) -> None:
        if pending.connection is not None:
            pending.connection.end(ending, problem)
        else:
            self._end_unsent(pending, ending, problem)

    def _end_unsent(self, pending: Pending, ending: Ending, problem: str) -> None:
        if pending.ending is None:
            pending.ending, pending.problem = ending, problem
            pending.sent = pending.ended = time.perf_counter()
            self._ended(pending)

    def _ended(self, pending: Pending) -> None:
        self.ended += 1
        if not pending.pieces:
            self.waiting -= 1
        if self._plan.loop is Loop.CLOSED and not self._stopping:
            if pending.ending is Ending.COMPLETE and pending.status == 200:
                self._send_next(time.perf_counter())
            else:
                self._loop.call_later(FAILURE_PAUSE_S, self._send_next, pending.ended + FAILURE_PAUSE_S)
        self._report(exchange_of(pending))

    def _send_next(self, intended: float) -> None:
        if self._free:
            order = self._free.popleft()
            self._after_thinking(order, intended + order.think_s)
        elif not self._stopping:
            self._owed.append(intended)

    def _after_thinking(self, order: Order, intended: float) -> None:
        """Send an order at its time, never early, unless sending has stopped by then."""
        if self._stopping:
            return
        wait_s = intended - time.perf_counter()
        if order.think_s > 0 and wait_s > 0:
            self._loop.call_later(wait_s, self._after_thinking, order, intended)
        else:
            self._send(order, intended)

    async def _keep_spares(self) -> None:
        while not self._stopping:
            self._pool.drop_stale()
            with contextlib.suppress(ConnectError):  # the requests that need a connection will fail and tell
                await self._pool.fill(self._spares(), _UPKEEP_AT_ONCE)
            await asyncio.sleep(_UPKEEP_S)

    def _spares(self) -> int:
        return min(max(math.ceil(self._plan.rate * _SPARE_S), _FEWEST_SPARES), _MOST_SPARES, self._plan.orders)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
