"""What the weeks came to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median

from tests.soak.calendar import What
from tests.soak.production import Tally
from tests.soak.soak import Soak
from tests.soak.usage import Day, remembered

MOST_RSS_GROWTH_MIB = 64.0
"""Of the whole process, in which the players remember what they played."""
MOST_BROKEN_SHARE = 0.01
WARM_DAYS = 2
"""Until then everything was there once: first runs, caches, connections."""


@dataclass(frozen=True)
class Report:
    """`promise_broken_share` is of requests; all growth is from the end of the second day to the last."""

    days: float
    profiles: int
    by_day: tuple[Day, ...]
    outcomes: Counter[str]
    triggers: Counter[str]
    happened: Counter[What]
    tally: Tally
    left: tuple[str, ...]
    remembered_left: int
    kills: int
    api_faults: int
    most_kept: int
    bugs: tuple[str, ...]

    @property
    def promise_broken_share(self) -> float:
        return self.tally.broken / max(1.0, self.tally.promised)

    @property
    def moved_broken_share(self) -> float:
        """While the traffic is not what was measured any more."""
        return self.tally.moved_broken / max(1.0, self.tally.moved)

    @property
    def rss_growth_mib(self) -> float:
        """From the first days after the warm-up to the last ones, by their medians."""
        later = [day.rss_mib for day in self.by_day[WARM_DAYS - 1 :]]
        if len(later) < 2:
            return 0.0
        few = max(1, len(later) // 4)
        return round(median(later[-few:]) - median(later[:few]), 1)

    @property
    def is_good(self) -> bool:
        """No bug showed, nothing is left, nothing grew, and what was promised was kept."""
        leaks = self.bugs or self.left or self.remembered_left or self.most_kept > 0 or self._growth("open_files") > 0
        grew = self.rss_growth_mib > MOST_RSS_GROWTH_MIB or self._growth("tasks") > 0
        return not leaks and not grew and self.promise_broken_share <= MOST_BROKEN_SHARE

    def _growth(self, what: str) -> int:
        """The least of the last days over the most of the first ones: connections of a pool come and go."""
        later = [int(getattr(day, what)) for day in self.by_day[WARM_DAYS - 1 :]]
        if len(later) < 2:
            return 0
        few = max(1, len(later) // 4)
        return max(0, min(later[-few:]) - max(later[:few]))

    def summary(self) -> dict[str, float | int | bool]:
        """The line of output."""
        last = self.by_day[-1]
        return {
            "days": self.days,
            "profiles": self.profiles,
            "runs": last.runs,
            "retunes": last.retunes,
            "rollbacks": last.rollbacks,
            "events": sum(self.happened.values()),
            "kills": self.kills,
            "api_faults": self.api_faults,
            "calls": last.calls,
            "requests_promised": round(self.tally.promised),
            "promise_broken_share": round(self.promise_broken_share, 5),
            "moved_broken_share": round(self.moved_broken_share, 5),
            "bugs": len(self.bugs),
            "objects_left": len(self.left),
            "remembered_left": self.remembered_left,
            "rss_growth_mib": self.rss_growth_mib,
            "open_files_growth": self._growth("open_files"),
            "tasks_growth": self._growth("tasks"),
            "good": self.is_good,
        }


def report(soak: Soak, days: float, left: list[str]) -> Report:
    """Of a soak that has come to its end."""
    tally = Tally()
    for service in soak.services:
        for name, value in vars(service.production.tally).items():
            setattr(tally, name, getattr(tally, name) + value)
    return Report(
        days=days,
        profiles=len(soak.services),
        by_day=tuple(soak.days),
        outcomes=Counter(outcome for _, outcome in soak.notes.runs.values()),
        triggers=Counter(trigger for trigger, _ in soak.notes.runs.values()),
        happened=soak.happened,
        tally=tally,
        left=tuple(left),
        remembered_left=remembered(soak.operator.beats),
        kills=soak.operator.kills,
        api_faults=soak.proxy.faults,
        most_kept=soak.most_kept,
        bugs=tuple(soak.bugs),
    )
