"""What the passive knees are worth, in the terms in which they were promised."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.passive.day import DAY_S, WINDOW_S, log_room
from benchmarks.passive.fleet import Probes, Replica, live, prior_of, seen_by_prometheus
from kneekeeper.domain.passive import PassiveKnee, passive_knee

NEAR, FAR = 0.7, 0.4
"""Of the knee: traffic that passed the first ought to get an answer, below the second there must be none."""


@dataclass(frozen=True)
class Judged:
    """One replica's answer beside the truth."""

    replica: Replica
    knee: float
    """That a ramp finds."""
    reached: float
    """The highest concurrency that lasted a quarter of an hour, by the gauge."""
    answer: PassiveKnee

    @property
    def reach(self) -> float:
        return self.reached / self.knee

    @property
    def error(self) -> float | None:
        """Relative; None without an answer."""
        return None if self.answer.knee is None else abs(self.answer.knee.estimate / self.knee - 1)

    @property
    def covered(self) -> bool | None:
        knee = self.answer.knee
        return None if knee is None else knee.lower <= self.knee <= knee.upper

    @property
    def below_the_knee(self) -> bool:
        """Whether the lower bound is one."""
        return self.answer.at_least <= self.knee


def judge(fleet: Iterable[Replica], day_s: float = DAY_S, window_s: float = WINDOW_S) -> Iterable[Judged]:
    """Each replica in turn; those without a knee to compare with are left out."""
    room = log_room()
    probes = Probes(room)
    for replica in fleet:
        probed = probes.of(replica.machine.engine, replica.traffic)
        if probed is None:
            continue
        prior = prior_of(replica, probes)
        served = live(replica, probed, room, day_s)
        history = seen_by_prometheus(replica, served, day_s, window_s)
        lasting = np.sort(history.running[~np.isnan(history.running)])[-3]
        yield Judged(replica, probed.knee, float(lasting), passive_knee(history, prior))


@dataclass(frozen=True)
class Score:
    """Of a whole fleet."""

    replicas: int
    answers: int
    knee_error: float
    """Median of the answers' relative errors."""
    knee_error_p90: float
    within_15_percent: float
    """Share of the answers."""
    coverage: float
    """Share of the 90% intervals that hold the knee."""
    false_knees: int
    """Answers where traffic stayed below 40% of the knee."""
    far: int
    near: int
    answered: float
    """Share of the replicas whose traffic passed 70% of the knee."""
    interval_ratio_median: float
    """Upper over lower end, of those answers."""
    wrong_lower_bounds: int
    """Of all replicas without an answer: the knee lies below what was called its lower bound."""


def score(judged: Sequence[Judged]) -> Score:
    """Raises ValueError where nothing was answered."""
    errors = np.array([j.error for j in judged if j.error is not None])
    covered = [j.covered for j in judged if j.covered is not None]
    near, far = [j for j in judged if j.reach >= NEAR], [j for j in judged if j.reach < FAR]
    ratios = [j.answer.knee.ratio for j in near if j.answer.knee is not None]
    if not errors.size or not ratios:
        raise ValueError("no replica got an answer; nothing can be said of errors")
    return Score(
        replicas=len(judged),
        answers=int(errors.size),
        knee_error=float(np.median(errors)),
        knee_error_p90=float(np.quantile(errors, 0.9)),
        within_15_percent=float(np.mean(errors <= 0.15)),
        coverage=float(np.mean(covered)),
        false_knees=sum(j.answer.knee is not None for j in far),
        far=len(far),
        near=len(near),
        answered=float(np.mean([j.answer.knee is not None for j in near])),
        interval_ratio_median=float(np.median(ratios)),
        wrong_lower_bounds=sum(not j.below_the_knee for j in judged if j.answer.knee is None),
    )
