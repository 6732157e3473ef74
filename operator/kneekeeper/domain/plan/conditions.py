"""Conditions: their types and reasons are part of the API; transition times change only with the status."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from kneekeeper.api.model import Condition, ConditionStatus
from kneekeeper.domain.plan.changes import changed


class ConditionType(StrEnum):
    ACCEPTED = "Accepted"
    TARGET_FOUND = "TargetFound"
    METRICS_AVAILABLE = "MetricsAvailable"
    PROBING = "Probing"
    RECOMMENDED = "Recommended"
    APPLIED = "Applied"
    DRIFTED = "Drifted"
    DEGRADED = "Degraded"
    CONTESTED = "Contested"
    LIVE_CHANGES = "LiveChanges"
    READY = "Ready"
    SUCCEEDED = "Succeeded"
    PROMPTS_REPRESENTATIVE = "PromptsRepresentative"
    LIVE_TUNING = "LiveTuning"


def set_condition(
    conditions: Sequence[Condition],
    type_: ConditionType,
    status: ConditionStatus,
    reason: str,
    message: str,
    *,
    generation: int,
    now: datetime,
) -> list[Condition]:
    """The conditions with this one put in place; order is kept, a new one goes last."""
    before = find(conditions, type_)
    since = before.last_transition_time if before and before.status == status else now
    values = {"status": status, "reason": reason, "message": message[:2048], "observed_generation": generation}
    if before is not None:
        condition = changed(before, **values, last_transition_time=since)
    else:
        condition = Condition(type=type_, last_transition_time=since, **values)
    if before is None:
        return [*conditions, condition]
    return [condition if c.type == type_ else c for c in conditions]


def find(conditions: Sequence[Condition], type_: ConditionType) -> Condition | None:
    """The condition of this type, if it was ever set."""
    return next((c for c in conditions if c.type == type_), None)


def is_true(conditions: Sequence[Condition], type_: ConditionType) -> bool:
    """Whether the condition is set and True."""
    condition = find(conditions, type_)
    return condition is not None and condition.status == ConditionStatus.TRUE


class ProfileConditions:
    """The conditions of one object while a plan sets them; `all` is what is stored."""

    def __init__(self, conditions: Sequence[Condition], generation: int, now: datetime) -> None:
        self.all = list(conditions)
        self._generation = generation
        self._now = now

    def true(self, type_: ConditionType, reason: str, message: str) -> None:
        self._set(type_, ConditionStatus.TRUE, reason, message)

    def false(self, type_: ConditionType, reason: str, message: str) -> None:
        self._set(type_, ConditionStatus.FALSE, reason, message)

    def unknown(self, type_: ConditionType, reason: str, message: str) -> None:
        self._set(type_, ConditionStatus.UNKNOWN, reason, message)

    def is_true(self, type_: ConditionType) -> bool:
        return is_true(self.all, type_)

    def get(self, type_: ConditionType) -> Condition | None:
        return find(self.all, type_)

    def _set(self, type_: ConditionType, status: ConditionStatus, reason: str, message: str) -> None:
        self.all = set_condition(self.all, type_, status, reason, message, generation=self._generation, now=self._now)
