"""Which of a profile's schedules is in force, what was proven for each, and what a switch between two makes void."""

from __future__ import annotations

from datetime import timedelta

from kneekeeper.api.profile_status import HourSetting, Recommendation, ScheduleStatus, ServingProfileStatus
from kneekeeper.api.tuning_run import TuningRun, Verdict
from kneekeeper.domain.observation import ProfileObservation
from kneekeeper.domain.plan.changes import changed
from kneekeeper.domain.plan.conditions import ConditionType, ProfileConditions
from kneekeeper.domain.plan.questions import Question
from kneekeeper.domain.schedules import in_force
from kneekeeper.domain.target import Target


def with_schedule(
    obs: ProfileObservation, status: ServingProfileStatus, conditions: ProfileConditions
) -> ServingProfileStatus:
    """The status with the entry in force; none is where the profile is not accepted.

    Misses that were counted in other hours are no measure of these: a rollout under way is judged without them.
    """
    schedules, before = obs.profile.spec.schedules, status.schedule
    if not schedules or not conditions.is_true(ConditionType.ACCEPTED):
        return changed(status, schedule=None)
    now = in_force(schedules, obs.now)
    if before is not None and before.entry == now.entry:
        return changed(status, schedule=changed(before, until=now.until))
    settings = before.settings if before is not None else []
    schedule = ScheduleStatus(entry=now.entry, since=obs.now, until=now.until, settings=settings)
    rollout = status.rollout and changed(status.rollout, misses_before=None, not_worse=False)
    return changed(status, schedule=schedule, rollout=rollout, watched=None)


def setting_per_question(
    runs: tuple[TuningRun, ...], target: Target, questions: tuple[Question, ...]
) -> list[HourSetting]:
    """What the newest answer to each question certified, as far as there is one; in the order of the entries."""
    found = []
    for question in questions:
        answer = next((run for run in reversed(runs) if question.is_answered_by(run, target)), None)
        proven = [c for c in answer.status.certifications if c.verdict == Verdict.PASS] if answer is not None else []
        if answer is not None and proven:
            found.append(
                HourSetting(
                    entry=question.entry,
                    run=answer.metadata["name"],
                    setting=proven[-1].setting,
                    promised_requests_per_second=proven[-1].promised_requests_per_second,
                )
            )
    return sorted(found, key=lambda hours: -1 if hours.entry is None else hours.entry)


def misses_are_of_these_hours(obs: ProfileObservation, status: ServingProfileStatus) -> bool:
    """Whether all that the last look at violations saw lies in the hours of the entry in force."""
    window = timedelta(seconds=obs.profile.spec.update_policy.verify_for)
    return status.schedule is None or obs.now - status.schedule.since >= window


def stands_for_other_hours(
    obs: ProfileObservation, status: ServingProfileStatus, recommendation: Recommendation, target: Target
) -> bool:
    """Whether what stands was written here for other hours, and no run has compared it with what is recommended.

    Then nothing is known of a gain, and the setting that was proven for these hours takes its place.
    """
    if status.schedule is None or status.applied is None or status.applied.setting != target.present:
        return False
    run = next((run for run in obs.runs if run.metadata["name"] == recommendation.run), None)
    plan = run.status.plan if run is not None else None
    return plan is not None and plan.present != target.present
