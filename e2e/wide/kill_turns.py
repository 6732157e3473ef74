"""Whose turn it is to be killed: moments in turn, and at each of them all that can die there.

Most kills leave a run alive. One that ends it sends its workload back to the beginning, and with too many of them no
run would get far: so each life of a workload, a run and the rollout after it, is ended by one kill at most, at a
moment and by a path from a shuffled deck.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kneekeeper.api.rollout import RolloutStep
from kneekeeper.api.tuning_run import RunStep

LENDER, APPLIER = "lender", "applier"
"""One takes every GPU, so that its replica must be borrowed; one needs none, and is written and restored."""


class Moment(NamedTuple):
    """A step of the run or of the rollout of one workload."""

    workload: str
    step: str


_MEASURING = (RunStep.CEILING, RunStep.RAMP, RunStep.CHOOSE, RunStep.CERTIFY, RunStep.BASELINE)
_RUN = (RunStep.PREFLIGHT, *_MEASURING, RunStep.CLEAN_UP)
_BORROWED = (RunStep.BORROW, *_MEASURING)
_ROLLOUT = (RolloutStep.WRITE, RolloutStep.PROGRESS, RolloutStep.VERIFY)
STEPS = {LENDER: (RunStep.PREFLIGHT, *_BORROWED, RunStep.CLEAN_UP), APPLIER: (*_RUN, *_ROLLOUT)}
MOMENTS = tuple(Moment(workload, step) for workload, steps in STEPS.items() for step in steps)
"""All that are to be met; others may come, as a rollout that is withdrawn."""

WEIGHTS = {"operator": 4, "clone": 2, "agent": 2, "job": 1, "serving": 1, "dashboard": 1, "run": 1, "profile": 1}
"""How often each path is taken where all are open: more often what has more to lose."""

AHEAD = 4
"""Kills by which a moment may be ahead of the mean of all; then its run is let go on."""


@dataclass
class Turns:
    """What was killed so far, and what is next."""

    chance: random.Random
    killed: Counter[tuple[Moment, str]] = field(default_factory=Counter)
    _decks: dict[str, Iterator[tuple[str, str] | None]] = field(init=False)
    _ends: dict[str, tuple[str, str] | None] = field(init=False)

    def __post_init__(self) -> None:
        self._decks = {workload: self._deck(workload) for workload in STEPS}
        self._ends = {workload: next(deck) for workload, deck in self._decks.items()}

    def next(self, possible: Mapping[Moment, Collection[str]]) -> tuple[Moment, str] | None:
        """Moment and path of the next kill, where `possible` has the paths that are open at each moment of now.

        None while all of them had more than their share.
        """
        at = self.by_moment()
        most = self.killed.total() / len(MOMENTS) + AHEAD
        paths = {moment: self._open(moment, paths) for moment, paths in possible.items() if at[moment] < most}
        moments = [moment for moment, open_ in paths.items() if open_]
        if not moments:
            return None
        moment = min(moments, key=lambda each: (at[each], self.chance.random()))
        by = self.by_path()

        def had(path: str) -> tuple[float, float, float]:
            weight = WEIGHTS[path]
            return self.killed[moment, path] / weight, by[path] / weight, self.chance.random()

        return moment, min(paths[moment], key=had)

    def was_killed(self, moment: Moment, path: str) -> None:
        """The kill took place."""
        self.killed[moment, path] += 1
        if self._ends[moment.workload] == (moment.step, path):
            self.begins_anew(moment.workload)

    def begins_anew(self, workload: str) -> None:
        """Another life begins, with another end."""
        self._ends[workload] = next(self._decks[workload])

    def by_moment(self) -> Counter[Moment]:
        """Kills at each moment."""
        return self._sum(0)

    def by_path(self) -> Counter[str]:
        """Kills by each path."""
        return self._sum(1)

    def table(self) -> str:
        """Kills of each moment by path, for people."""
        paths, at, by = [*WEIGHTS], self.by_moment(), self.by_path()
        rows = [("", *paths, "all")]
        rows += [
            (" ".join(moment), *(str(self.killed[moment, path] or "") for path in paths), str(at[moment]))
            for moment in (*MOMENTS, *sorted(set(at) - set(MOMENTS)))
        ]
        rows.append(("all", *(str(by[path]) for path in paths), str(self.killed.total())))
        return "\n".join(f"{name:<20}" + "".join(f"{number:>10}" for number in numbers) for name, *numbers in rows)

    def _sum(self, part: int) -> Counter[Any]:
        sums: Counter[Any] = Counter()
        for key, count in self.killed.items():
            sums[key[part]] += count
        return sums

    def _open(self, moment: Moment, paths: Collection[str]) -> list[str]:
        end = self._ends[moment.workload]
        return [path for path in paths if path not in ends_life(moment) or (moment.step, path) == end]

    def _deck(self, workload: str) -> Iterator[tuple[str, str] | None]:
        """Ends of lives, each moment once before one comes again; None is a life that is not ended."""
        while True:
            moments: list[Moment | None] = [Moment(workload, step) for step in STEPS[workload]]
            moments.append(None)
            self.chance.shuffle(moments)
            for moment in moments:
                yield None if moment is None else (moment.step, self.chance.choice(ends_life(moment)))


def ends_life(moment: Moment) -> tuple[str, ...]:
    """The paths that end the run or the rollout there. A serving pod that is gone ends a borrowing."""
    if moment.step not in (*_RUN, *_BORROWED):
        return ("profile",)
    borrowed = moment.workload == LENDER and moment.step in _BORROWED
    return ("run", "profile", "serving") if borrowed else ("run", "profile")
