"""When the kernel received bytes, on the clock that everything else here is timed by."""

from __future__ import annotations

import contextlib
import socket
import struct
import time

_SO_TIMESTAMPNS = 35  # Linux; Python names it only since 3.14
_STAMP = struct.Struct("qq")
CONTROL_BYTES = socket.CMSG_SPACE(_STAMP.size)

_ADJUST_EVERY_S = 0.02
_NARROW_NS = 20_000
"""Both clocks were read within so little time, or the reading is taken again: the process may lose the processor
between the two."""

_TRIES = 5

Ancillary = list[tuple[int, int, bytes]]


def ask_for_stamps(connected: socket.socket) -> None:
    """Let the kernel stamp what this socket receives; where it cannot, reads carry no stamp."""
    with contextlib.suppress(OSError):
        connected.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


class KernelClock:
    """Turns the kernel's stamps, which are of CLOCK_REALTIME, into readings of `time.perf_counter`.

    The distance of both clocks changes only when somebody sets the time of day, so it is taken anew every 20 ms.
    """

    def __init__(self) -> None:
        self._ahead_ns = 0
        self._adjusted_s = float("-inf")

    def received_s(self, ancillary: Ancillary, not_before_s: float, now_s: float) -> float:
        """When the last bytes of a read came. What the kernel did not stamp, and what lies outside of both
        bounds, came now."""
        if now_s - self._adjusted_s > _ADJUST_EVERY_S:
            self._adjust(now_s)
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(data) == _STAMP.size:
                seconds, nanoseconds = _STAMP.unpack(data)
                stamp_s = (seconds * 1_000_000_000 + nanoseconds - self._ahead_ns) * 1e-9
                return stamp_s if not_before_s <= stamp_s <= now_s else now_s
        return now_s

    def _adjust(self, now_s: float) -> None:
        narrowest_ns = None
        for _ in range(_TRIES):
            before_ns, real_ns, after_ns = time.perf_counter_ns(), time.time_ns(), time.perf_counter_ns()
            width_ns = after_ns - before_ns
            if narrowest_ns is None or width_ns < narrowest_ns:
                narrowest_ns, self._ahead_ns = width_ns, real_ns - (before_ns + after_ns) // 2
            if width_ns <= _NARROW_NS:
                break
        self._adjusted_s = now_s
