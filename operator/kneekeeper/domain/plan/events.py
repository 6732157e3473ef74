"""Events for people: one for each change that they would ask about."""

from __future__ import annotations

from enum import StrEnum

from kneekeeper.api.model import ConditionStatus
from kneekeeper.api.profile_status import ServingProfileStatus
from kneekeeper.api.rollout import RolloutStep
from kneekeeper.api.tuning_run import Trigger
from kneekeeper.domain.actions import EmitEvent, EventType
from kneekeeper.domain.plan.conditions import ConditionType, find, is_true
from kneekeeper.domain.plan.recommendation import promise_of


class EventReason(StrEnum):
    """Reasons of events that programs may rely on; a condition that turned bad is told by its own reason."""

    RUN_STARTED = "RunStarted"
    RECOMMENDED = "Recommended"
    ROLLING_OUT = "RollingOut"
    ROLLING_BACK = "RollingBack"
    APPLIED = "Applied"


_WITHDRAWALS = (RolloutStep.WITHDRAW, RolloutStep.WITHDRAWING)


def of_change(before: ServingProfileStatus, after: ServingProfileStatus) -> tuple[EmitEvent, ...]:
    """What the step from one status to the next is worth telling."""
    told: list[EmitEvent] = []
    if after.active_run is not None and after.active_run != before.active_run:
        told.append(EmitEvent(EventType.NORMAL, EventReason.RUN_STARTED, _why_started(after, after.active_run)))
    new = after.recommendation
    if new is not None and (before.recommendation is None or before.recommendation.hash != new.hash):
        verb = "carries" if new.is_certified else "should carry"
        text = f"{new.setting} {verb} {promise_of(new)}. {new.improvement}"
        told.append(EmitEvent(EventType.NORMAL, EventReason.RECOMMENDED, text[:1024]))
    if after.rollout is not None and before.rollout is None:
        told.append(EmitEvent(EventType.NORMAL, EventReason.ROLLING_OUT, f"Rolling out {after.rollout.setting}."))
    if _withdraws(after) and not _withdraws(before) and after.rollout is not None:
        told.append(EmitEvent(EventType.WARNING, EventReason.ROLLING_BACK, after.rollout.cause[:1024]))
    in_force = is_true(after.conditions, ConditionType.APPLIED)
    if after.applied is not None and after.applied != before.applied and in_force:
        told.append(EmitEvent(EventType.NORMAL, EventReason.APPLIED, f"{after.applied.setting} is in force."))
    for type_ in (ConditionType.ACCEPTED, ConditionType.TARGET_FOUND, ConditionType.RECOMMENDED, ConditionType.DRIFTED):
        bad = ConditionStatus.TRUE if type_ == ConditionType.DRIFTED else ConditionStatus.FALSE
        now, then = find(after.conditions, type_), find(before.conditions, type_)
        if now is not None and now.status == bad and (then is None or then.reason != now.reason):
            told.append(EmitEvent(EventType.WARNING, now.reason, now.message[:1024]))
    return tuple(told)


def _withdraws(status: ServingProfileStatus) -> bool:
    return status.rollout is not None and status.rollout.step in _WITHDRAWALS


def _why_started(status: ServingProfileStatus, run: str) -> str:
    trigger = next((reference.trigger for reference in status.runs if reference.name == run), "")
    why = status.traffic_drift.message if trigger == Trigger.TRAFFIC and status.traffic_drift is not None else ""
    return f"TuningRun {run} started, for another traffic: {why}" if why else f"TuningRun {run} started."
