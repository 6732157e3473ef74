"""What a profile asks: one question for its own workload and bounds, and one for each entry of its schedules.

Runs with the same key would measure the same thing. The two limits are in no key, so the operator's own rewrite, a
rollback, a switch at an hour and a recommendation merged by hand never start a run.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from kneekeeper.api.model import ApiModel
from kneekeeper.api.run_plan import measured_part
from kneekeeper.api.serving_profile import ServingProfileSpec
from kneekeeper.api.tuning_run import RunOutcome, RunStep, TuningRun
from kneekeeper.domain.schedules import spec_in_force
from kneekeeper.domain.target import Target

ANSWERS = (RunOutcome.CERTIFIED, RunOutcome.PREDICTED, RunOutcome.NO_IMPROVEMENT)
RECOMMENDED = (RunOutcome.CERTIFIED, RunOutcome.PREDICTED)
"""Ends with a setting that is better than the present one."""


@dataclass(frozen=True)
class Question:
    """`entry` of spec.schedules, from 0, None for the profile's own; `spec` is what holds in its hours."""

    entry: int | None
    spec: ServingProfileSpec
    key: str

    def is_answered_by(self, run: TuningRun, target: Target) -> bool:
        """Whether the run is over and tells which setting is best for this engine in these hours."""
        over = run.status.step == RunStep.DONE and run.status.outcome in ANSWERS
        return over and self.is_measured_by(run, target)

    def is_measured_by(self, run: TuningRun, target: Target) -> bool:
        """Whether it is this question that the run's plan asks, of this engine."""
        plan = run.status.plan
        return plan is not None and plan.fingerprint == target.fingerprint and plan.measures_the_same_as(self.spec)


def questions_of(spec: ServingProfileSpec, fingerprint: str, in_force: int | None) -> tuple[Question, ...]:
    """That of the entry in force first, then the profile's own, then the others in order; alike ones once."""
    questions: dict[str, Question] = {}
    for entry in dict.fromkeys([in_force, None, *range(len(spec.schedules))]):
        asked = spec_in_force(spec, entry)
        if asked is not None:
            key = run_key(asked, fingerprint)
            questions.setdefault(key, Question(entry, asked, key))
    return tuple(questions.values())


def run_key(spec: ServingProfileSpec, fingerprint: str) -> str:
    """Two runs with the same key would measure the same thing."""
    parts = [p.to_resource() if isinstance(p, ApiModel) else str(p) for p in measured_part(spec)]
    text = json.dumps([fingerprint, parts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
