"""Whether the watches still tell what happens: an operator that has gone deaf must not look healthy.

kopf opens silent watches anew. This is for the day when it does not: each look at an object reads it live, and a
generation that no event told of, for longer than events take, fails the liveness probe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kneekeeper.handlers.agenda import Key

LONGEST_UNHEARD_S = 300.0


@dataclass
class Hearing:
    """Generations as events told them and as they were read, on the given clock (seconds, monotonic)."""

    clock_s: Callable[[], float]
    _told: dict[Key, int] = field(default_factory=dict)
    _unheard_since_s: dict[Key, float] = field(default_factory=dict)

    def told(self, key: Key, generation: int) -> None:
        """An event told of the object; that it was heard of is what counts."""
        self._told[key] = generation
        self._unheard_since_s.pop(key, None)

    def read(self, key: Key, generation: int) -> None:
        """The object was read and stands at this generation."""
        if generation > self._told.get(key, 0):
            self._unheard_since_s.setdefault(key, self.clock_s())
        else:
            self._unheard_since_s.pop(key, None)

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._told.pop(key, None)
        self._unheard_since_s.pop(key, None)

    def is_deaf(self) -> bool:
        """Whether a change is known from reading for so long that an event of it will not come any more."""
        now = self.clock_s()
        return any(now - since > LONGEST_UNHEARD_S for since in self._unheard_since_s.values())
