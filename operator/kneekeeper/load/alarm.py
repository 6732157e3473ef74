"""A timer that wakes the event loop to within the kernel's precision.

Timers of libuv, and so of uvloop, count whole milliseconds from when the loop last looked at the clock: a request
that is sent by one is up to two milliseconds late, and so is every latency that counts from when it was due.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import time
from collections.abc import Callable

_CLOCK_MONOTONIC = 1  # the clock of time.perf_counter on Linux
_ABSOLUTE = 1
_SETTING = struct.Struct("@qqqq")  # interval and first expiration, each in seconds and nanoseconds
_EXPIRATIONS_BYTES = 8

_libc = ctypes.CDLL(None, use_errno=True)  # os.timerfd_create came with Python 3.13


class Alarm:
    """Calls `ring` at a time, once for each `set`. Needs a running loop. Raises OSError if the kernel has no timer
    left."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._timer = _libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._timer < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._loop.add_reader(self._timer, self._on_expired)
        self.is_set = False

    def set(self, at_s: float) -> None:
        """Ring at a reading of `time.perf_counter`, or at once if that has passed; replaces an earlier time."""
        seconds, rest = divmod(max(at_s, time.perf_counter()), 1.0)
        setting = _SETTING.pack(0, 0, int(seconds), int(rest * 1e9))
        _libc.timerfd_settime(self._timer, _ABSOLUTE, setting, None)
        self.is_set = True

    def close(self) -> None:
        """Ring no more."""
        if self._timer >= 0:
            self._loop.remove_reader(self._timer)
            os.close(self._timer)
            self._timer = -1
        self.is_set = False

    def _on_expired(self) -> None:
        try:
            os.read(self._timer, _EXPIRATIONS_BYTES)
        except BlockingIOError:  # it was set anew after it had expired
            return
        self.is_set = False
        self._ring()
