"""How many runs of the whole fleet may measure at the same time, and which is next.

Nothing here is more than a count of what watches told: a run that begins too early for that costs some calls.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from kneekeeper.handlers.agenda import Key

DEFAULT_MOST_RUNS = 16
WAITING_LOOKS_PER_S = 2.0
"""Of all runs together that wait for something, and of as many profiles: however long the queue is."""


@dataclass(frozen=True)
class _Known:
    since: str  # the creation's time, as Kubernetes writes it: it sorts
    begun: bool
    held: bool  # by something else than this queue: it takes nobody's place


@dataclass
class RunQueue:
    """The runs that are not over; at most `most` have begun."""

    most: int
    _runs: dict[Key, _Known] = field(default_factory=dict)

    def told(self, key: Key, since: str, *, begun: bool, held: bool) -> None:
        """A run that is not over."""
        self._runs[key] = _Known(since, begun, held)

    def gone(self, key: Key) -> None:
        """It is over, or does not exist any more."""
        self._runs.pop(key, None)

    def ahead(self, key: Key) -> int:
        """How many runs have to begin or end before this one may begin: 0 for one that may, or has.

        Namespaces take turns: of two runs the one whose namespace has fewer under way or before it goes first, else
        the older one.
        """
        known = self._runs.get(key)
        if known is None or known.begun:
            return 0
        waiting = {run: each for run, each in self._runs.items() if run == key or not (each.begun or each.held)}
        return max(0, self._in_turn(waiting).index(key) + 1 - self._free())

    def next_up(self) -> list[Key]:
        """Those that may begin now, and wait for nothing else."""
        waiting = {run: each for run, each in self._runs.items() if not (each.begun or each.held)}
        return self._in_turn(waiting)[: self._free()]

    def _free(self) -> int:
        return max(0, self.most - sum(each.begun for each in self._runs.values()))

    def _in_turn(self, waiting: dict[Key, _Known]) -> list[Key]:
        turns = Counter(run.namespace for run, each in self._runs.items() if each.begun)
        order: list[tuple[int, str, Key]] = []
        for run in sorted(waiting, key=lambda run: (waiting[run].since, run)):
            order.append((turns[run.namespace], waiting[run].since, run))
            turns[run.namespace] += 1
        return [run for _, _, run in sorted(order)]

    def pause_s(self) -> float:
        """How long one that waits is left alone, so that all that wait are looked at in turn."""
        return sum(not each.begun for each in self._runs.values()) / WAITING_LOOKS_PER_S
