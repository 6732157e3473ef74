"""The kernel's stamps are taken where they can be true, and nowhere else."""

from __future__ import annotations

import socket
import struct
import time

from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.load.kernel_clock import CONTROL_BYTES, KernelClock, ask_for_stamps

SO_TIMESTAMPNS = 35


def stamped(realtime_ns: int) -> list[tuple[int, int, bytes]]:
    return [(socket.SOL_SOCKET, SO_TIMESTAMPNS, struct.pack("qq", *divmod(realtime_ns, 10**9)))]


def test_bytes_are_stamped_when_they_came_and_not_when_they_are_read():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        ask_for_stamps(ours)
        before_s = time.perf_counter()
        theirs.send(b"x")
        after_s = time.perf_counter()
        _, ancillary, _, _ = ours.recvmsg(10, CONTROL_BYTES)
    read_s = after_s + 7.0
    received_s = KernelClock().received_s(ancillary, 0.0, read_s)
    assert before_s - 0.001 <= received_s <= after_s + 0.001


@given(st.floats(-1e4, 1e4), st.floats(0, 1e3), st.floats(0, 1e3))
def test_a_stamp_lies_between_its_bounds_whatever_the_clock_says(off_s, until_s, span_s):
    clock, now_s = KernelClock(), time.perf_counter() + until_s
    received_s = clock.received_s(stamped(time.time_ns() + int(off_s * 1e9)), now_s - span_s, now_s)
    assert now_s - span_s <= received_s <= now_s


def test_without_a_stamp_bytes_came_when_they_are_read():
    assert KernelClock().received_s([], 0.0, 12.5) == 12.5
    assert KernelClock().received_s([(socket.SOL_SOCKET, SO_TIMESTAMPNS, b"short")], 0.0, 12.5) == 12.5
