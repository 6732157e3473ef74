"""When each object is looked at next: when the last decision asked for it, or when something that the object depends
on has changed. Idle objects so cost no API call.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple


class Key(NamedTuple):
    """An object that has ticks."""

    kind: str
    namespace: str
    name: str


# Twice the tick at most after repeated failures; long enough to be gentle on a struggling API server.
LONGEST_BACKOFF_S = 60.0
FIRST_BACKOFF_S = 1.0
_MOST_DOUBLINGS = 16  # a power beyond the range of floats must not end what failed for a day
# A changing workload is looked at this often at most.
SHORTEST_WAKE_S = 2.0
# Slow ticks are spread so that many profiles do not beat together.
JITTER = 0.1


@dataclass
class _Entry:
    due_s: float = 0.0
    last_s: float = float("-inf")
    failures: int = 0
    woken: bool = False  # since the last look began: that look may have read what was there before
    told: Hashable = None


@dataclass
class Agenda:
    """Due times on the given clock (seconds, monotonic), and who depends on which workload."""

    clock_s: Callable[[], float]
    _entries: dict[Key, _Entry] = field(default_factory=dict)
    _dependents: dict[Key, set[Key]] = field(default_factory=lambda: defaultdict(set))
    _kept: set[Key] = field(default_factory=set)

    def keep(self, key: Key) -> None:
        """Look at this object from now on whenever it is due: at once where it never was."""
        self._kept.add(key)
        self._entry(key)

    def rest(self, key: Key) -> None:
        """Look at it no more."""
        self._kept.discard(key)

    def due(self) -> list[Key]:
        """The kept objects that are to be looked at now, those that wait longest first."""
        now = self.clock_s()
        due = [(entry.due_s, key) for key in self._kept if (entry := self._entry(key)).due_s <= now]
        return [key for _, key in sorted(due)]

    def is_due(self, key: Key) -> bool:
        """Whether this object is to be looked at now."""
        entry = self._entries.get(key)
        return entry is None or self.clock_s() >= entry.due_s

    def begins(self, key: Key) -> None:
        """A look at the object begins; what changes from now on may be missed by it."""
        self._entry(key).woken = False

    def done(self, key: Key, next_tick_s: float) -> None:
        """The object was looked at; the next time is in `next_tick_s`, or soon if it changed meanwhile."""
        entry, now = self._entry(key), self.clock_s()
        entry.failures, entry.last_s = 0, now
        entry.due_s = now + next_tick_s * random.uniform(1 - JITTER, 1)
        if entry.woken:
            entry.due_s = min(entry.due_s, now + SHORTEST_WAKE_S)

    def failed(self, key: Key, retry_after_s: float | None = None) -> float:
        """Looking at it failed; returns in how many seconds it is tried again: the pause grows with each failure, and
        is never shorter than what the server asked for.
        """
        entry, now = self._entry(key), self.clock_s()
        backoff_s = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(entry.failures, _MOST_DOUBLINGS))
        wait_s = max(retry_after_s or 0.0, backoff_s)
        entry.failures, entry.last_s, entry.due_s = entry.failures + 1, now, now + wait_s
        return wait_s

    def wake(self, key: Key) -> None:
        """Something about it changed: look soon, but not more often than SHORTEST_WAKE_S.

        What nobody told of yet is looked at as soon as somebody does; what is gone is not remembered for this.
        """
        entry = self._entries.get(key)
        if entry is None:
            return
        entry.woken = True
        if entry.failures == 0:
            entry.due_s = min(entry.due_s, max(self.clock_s(), entry.last_s + SHORTEST_WAKE_S))

    def is_news(self, key: Key, facts: Hashable) -> bool:
        """Whether an event tells other facts of the object than the last one did.

        Watches repeat themselves, and most writes to an object are status: waking for each would have a
        profile whose status tells live numbers wake itself for ever.
        """
        entry = self._entry(key)
        news, entry.told = entry.told != facts, facts
        return news

    def depends(self, key: Key, on: Key) -> None:
        """From now on `wake_dependents(on)` wakes `key`."""
        self._dependents[on].add(key)

    def has_dependents(self, on: Key) -> bool:
        """Whether anything would be woken with this workload."""
        return bool(self._dependents.get(on))

    def wake_dependents(self, on: Key) -> None:
        """Wake all that depend on this workload."""
        for key in self._dependents.get(on, ()):
            self.wake(key)

    def forget(self, key: Key) -> None:
        """The object is gone, and with the last one that depended on it what was told of a workload."""
        self._kept.discard(key)
        self._entries.pop(key, None)
        for on, dependents in list(self._dependents.items()):
            dependents.discard(key)
            if not dependents:
                del self._dependents[on]
                self._entries.pop(on, None)

    def _entry(self, key: Key) -> _Entry:
        return self._entries.setdefault(key, _Entry())
