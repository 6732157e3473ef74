"""How much of a core a process and all that it started use, from /proc."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np

_EVERY_S = 0.25
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat after the name in brackets: group, own ticks, and those of children that have ended.
_GROUP, _FIRST_TICKS, _LAST_TICKS = 2, 11, 15


class CpuMeter(threading.Thread):
    """Adds up the CPU time of all processes of a group, four times a second, until it is stopped."""

    def __init__(self, group: int) -> None:
        super().__init__(daemon=True)
        self._group = group
        self._stopped = threading.Event()
        self._at_s: list[float] = []
        self._used_s: list[float] = []

    def run(self) -> None:
        while not self._stopped.is_set():
            self._at_s.append(time.time())
            # A child that ends moves from its own line to its parent's; one that nobody waits for is lost.
            used_s = _used_by_group_s(self._group)
            self._used_s.append(max(used_s, self._used_s[-1] if self._used_s else 0.0))
            self._stopped.wait(_EVERY_S)

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    def share(self, from_s: float, until_s: float) -> float:
        """Cores in use between two times since the epoch."""
        used_s = np.interp([from_s, until_s], self._at_s, self._used_s)
        return float((used_s[1] - used_s[0]) / (until_s - from_s))


def _used_by_group_s(group: int) -> float:
    ticks = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()
        except OSError:
            continue
        if int(fields[_GROUP]) == group:
            ticks += sum(map(int, fields[_FIRST_TICKS:_LAST_TICKS]))
    return ticks / _TICKS_PER_S
