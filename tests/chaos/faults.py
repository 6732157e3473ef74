"""What an API server, or the way to it, may do to a call, and plans of when."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Fault(StrEnum):
    """One bad answer."""

    UNAUTHORIZED = "401"
    CONFLICT = "409"
    GONE = "410"
    INVALID = "422"
    THROTTLED = "429"
    INTERNAL = "500"
    UNAVAILABLE = "503"
    SILENT = "silent"
    """The call is not passed on, and the connection ends without an answer."""
    LOST = "lost"
    """The call is carried out; its answer is lost."""
    CUT = "cut"
    """The call is carried out; its answer ends in the middle."""
    SLOW = "slow"
    """The answer comes in small pieces."""
    STALE = "stale"
    """A read answers what it answered before."""
    TWICE = "twice"
    """The call is passed on twice; the second answer is told."""
    KILLED_BEFORE = "killed before"
    """The operator dies before the call is carried out."""
    KILLED_AFTER = "killed after"
    """The operator dies when the call is carried out and not answered yet."""
    KILLED_LATE = "killed late"
    """The operator dies, and its call is carried out when its successor has written: what fencing is for."""
    AGENT_DIES = "agent dies"
    """The load agents' pods are gone when the call is carried out."""
    CLONE_DIES = "clone dies"
    """The engines under test are gone when the call is carried out."""


KILLS = (Fault.KILLED_BEFORE, Fault.KILLED_AFTER, Fault.KILLED_LATE)
DEATHS = (Fault.AGENT_DIES, Fault.CLONE_DIES)
API_FAULTS = tuple(fault for fault in Fault if fault not in KILLS + DEATHS)


@dataclass(frozen=True)
class Call:
    """One request as it reaches the proxy."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def writes(self) -> bool:
        return self.method != "GET"

    @property
    def watches(self) -> bool:
        return self.query.get("watch") in ("true", "1")

    @property
    def shape(self) -> str:
        """The call without the names that differ from life to life."""
        selector = re.sub(r"run=[^,]+,?", "", self.query.get("labelSelector", ""))
        return f"{self.method} {re.sub(r'/namespaces/[^/]+', '', self.path)} {selector}".rstrip()


Plan = Callable[[Call], Fault | None]
"""Says what befalls a call, None for nothing."""


def quiet(call: Call) -> Fault | None:
    """Every call goes well."""
    return None


@dataclass
class EachInTurn:
    """The same fault for every call once in each `phase`, which the life tells as it goes on.

    The first try of a call fails, the second goes through: so no fault hides behind another one.
    """

    fault: Fault
    phase: str = ""
    hit: set[tuple[str, str]] = field(default_factory=set)

    def __call__(self, call: Call) -> Fault | None:
        place = (self.phase, call.shape)
        if place in self.hit:
            return None
        self.hit.add(place)
        return self.fault


SHARES = (0.01, 0.03, 0.08)
"""Of the calls that go wrong. A look needs some twenty-five that go well: beyond these, waiting is all that is left."""


@dataclass
class AtRandom:
    """Single faults of all kinds, and now and then a server that is away for a while. The same seed, the same plan."""

    seed: int
    share: float = field(init=False)
    hit: int = 0
    _away: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self.share = self._random.choice(SHARES)

    def __call__(self, call: Call) -> Fault | None:
        if self._away > 0:
            self._away -= 1
        elif self._random.random() > self.share:
            return None
        elif self._random.random() < 0.05:
            self._away = self._random.randint(5, 60)
        self.hit += 1
        return Fault.UNAVAILABLE if self._away else self._random.choice(API_FAULTS)


@dataclass
class KillAtWrites:
    """The operator is killed at every different write: before it is carried out, and when it is tried again, after it.

    `only` picks one write, by its number from 1.
    """

    only: int | None = None
    writes: list[str] = field(default_factory=list)
    _tries: dict[tuple[str, bytes], int] = field(default_factory=dict)
    _numbers: dict[tuple[str, bytes], int] = field(default_factory=dict)

    def __call__(self, call: Call) -> Fault | None:
        if not call.writes:
            return None
        told = (call.shape, _content(call.body))
        if told not in self._tries:
            self.writes.append(call.shape)
            self._numbers[told] = len(self.writes)
        self._tries[told] = self._tries.get(told, 0) + 1
        if self.only is not None and self.only != self._numbers[told]:
            return None
        return {1: Fault.KILLED_BEFORE, 2: Fault.KILLED_AFTER}.get(self._tries[told])


@dataclass
class AtOneWrite:
    """The fault befalls one single write, by its number from 1; 0 only records them."""

    fault: Fault
    only: int = 0
    writes: list[str] = field(default_factory=list)
    _known: set[tuple[str, bytes]] = field(default_factory=set)

    def __call__(self, call: Call) -> Fault | None:
        told = (call.shape, _content(call.body))
        if not call.writes or told in self._known:
            return None
        self._known.add(told)
        self.writes.append(call.shape)
        return self.fault if len(self.writes) == self.only else None


def _content(body: bytes) -> bytes:
    """What a write says, without what differs each time that it is tried: versions, and a token that is drawn."""
    return re.sub(rb'"(resourceVersion|token|eventTime)": ?"[^"]*"', b"", body)
