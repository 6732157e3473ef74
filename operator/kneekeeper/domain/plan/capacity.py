"""Whether a setting carries the demand: the peak that production saw against the rate that was promised.

A setting below the knee may carry fewer requests than the one it replaces, whose users wait for tokens instead
of for a place. Where the demand is above the promise, writing it would turn slow answers into a growing queue.

With schedules nothing is said: the peak may be of other hours, whose requests are of another kind. Nothing is said of
objective Throughput either: a batch keeps its engines full, so its peak is what they carry.
"""

from __future__ import annotations

import math

from kneekeeper.api.profile_status import Recommendation, ServingProfileStatus
from kneekeeper.api.quantities import counted
from kneekeeper.domain.observation import ProfileObservation
from kneekeeper.domain.plan.conditions import ConditionType, ProfileConditions
from kneekeeper.domain.target import Target

CAPACITY_BELOW_DEMAND = "CapacityBelowDemand"

CLEARS_AT = 0.9
"""Of the promised rate: once told, a shortage lasts until the demand is clearly below it (hysteresis)."""


def shortage(
    obs: ProfileObservation, conditions: ProfileConditions, recommendation: Recommendation, target: Target
) -> str | None:
    """Why the recommended setting would not carry the peak demand, with the replicas that would; None where it
    does, where it is not known, or where the setting carries more than the present one does."""
    if recommendation.raises_capacity or obs.profile.spec.schedules:
        return None
    told = conditions.get(ConditionType.APPLIED)
    was_short = told is not None and told.reason == CAPACITY_BELOW_DEMAND
    if obs.demand is None:
        return told.message if was_short and told is not None else None
    return demand_problem(obs.demand.peak_requests_per_s, recommendation, target, CLEARS_AT if was_short else 1.0)


def demand_problem(
    peak_requests_per_s: float, recommendation: Recommendation, target: Target, allowed_share: float
) -> str | None:
    """The peak of all replicas together against `allowed_share` of what they promise together."""
    promised, replicas = recommendation.promised_requests_per_second, target.workload.replicas
    if recommendation.promised_output_tokens_per_second is not None:
        return None
    if promised <= 0 or replicas <= 0 or peak_requests_per_s <= allowed_share * promised * replicas:
        return None
    needed = max(replicas + 1, math.ceil(peak_requests_per_s / promised))
    return (
        f"Production peaked at {peak_requests_per_s:.2g} requests/s; {counted(replicas, 'replica')} with "
        f"{recommendation.setting} can promise {promised * replicas:.2g}: {needed} replicas are needed."
    )


def in_force_message(obs: ProfileObservation, status: ServingProfileStatus, target: Target, message: str) -> str:
    """What is said of a setting in force, and of the replicas that it lacks."""
    recommendation = status.recommendation
    if obs.demand is None or recommendation is None or not recommendation.is_certified or status.schedule is not None:
        return message
    problem = demand_problem(obs.demand.peak_requests_per_s, recommendation, target, 1.0)
    return message if problem is None else f"{message} {problem}"
