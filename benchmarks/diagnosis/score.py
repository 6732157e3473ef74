"""Runs the fleet on one half of the seeds and compares what was found with the truth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from benchmarks.diagnosis.causes import ONE_CAUSE, TWO_CAUSES
from benchmarks.diagnosis.healthy import BAD_METRICS, BOUNDARIES, HEALTHY, NEAR
from benchmarks.diagnosis.scenario import Scenario
from kneekeeper.domain.diagnose import Diagnosis, diagnose

FLEET: tuple[Scenario, ...] = (*ONE_CAUSE, *TWO_CAUSES, *HEALTHY, *NEAR, *BAD_METRICS, *BOUNDARIES)


class Half(Enum):
    """Seeds of the fleet. Thresholds were chosen on the first; the second is for the score alone."""

    FREEZING = 1_000
    SCORING = 2_000


@dataclass(frozen=True)
class Judged:
    """What was found in a scenario, against what is true of it."""

    scenario: Scenario
    diagnosis: Diagnosis

    @property
    def wanted(self) -> int:
        scenario = self.scenario
        return len(scenario.expected) + len(scenario.unjudged) + (scenario.boundary is not None)

    @property
    def missed(self) -> tuple[str, ...]:
        scenario, told = self.scenario, {unjudged.reason for unjudged in self.diagnosis.unjudged}
        found = [str(reason) for reason in scenario.expected - self.diagnosis.reasons]
        found += [f"{reason} unjudged" for reason in scenario.unjudged - told]
        if scenario.boundary not in {None, *(n.boundary for n in self.diagnosis.not_applicable)}:
            found.append(str(scenario.boundary))
        return tuple(sorted(found))

    @property
    def false(self) -> tuple[str, ...]:
        scenario = self.scenario
        found = [str(reason) for reason in self.diagnosis.reasons - scenario.expected - scenario.also]
        boundaries = [n.boundary for n in self.diagnosis.not_applicable if n.boundary is not scenario.boundary]
        return tuple(sorted((*found, *map(str, boundaries))))


def judge(scenarios: Sequence[Scenario], half: Half) -> Iterator[Judged]:
    """Each scenario once, with its own seed."""
    for scenario in scenarios:
        yield Judged(scenario, diagnose(scenario.observe(half.value + FLEET.index(scenario))))
