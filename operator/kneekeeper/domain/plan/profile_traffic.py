"""The workload that production tells of, and what a profile that declares none is measured with."""

from __future__ import annotations

from kneekeeper.api.observed import Confidence, TrafficDrift
from kneekeeper.api.profile_status import ServingProfileStatus
from kneekeeper.api.serving_profile import RetuneTrigger, ServingProfile, ServingProfileSpec
from kneekeeper.domain.observation import ProfileObservation
from kneekeeper.domain.observed_workload import FEWEST_REQUESTS, better, learn
from kneekeeper.domain.plan.changes import changed
from kneekeeper.domain.plan.questions import Question
from kneekeeper.domain.target import Target
from kneekeeper.domain.traffic_drift import BEGINS, ENDS, largest_shift

_MOST_PERCENT = 1_000_000

NOT_LEARNED = "WorkloadNotLearned"
"""Reason of conditions, and what a run waits for."""

NOT_LEARNED_MESSAGE = (
    f"spec.workload is left out, and no workload is learned yet: that takes a Prometheus server that scrapes the "
    f"pods (spec.metrics.prometheusRef) and {FEWEST_REQUESTS} finished requests. Wait for traffic, or declare "
    "spec.workload.promptTokens and outputTokens."
)


def with_observed_workload(obs: ProfileObservation, status: ServingProfileStatus) -> ServingProfileStatus:
    """What was learned in this tick, unless what is known already tells more."""
    if obs.history is None:
        return status
    learned = learn(obs.history.traffic, obs.history.engines, obs.now)
    return changed(status, observed_workload=better(status.observed_workload, learned, obs.now))


def measured_spec(profile: ServingProfile) -> ServingProfileSpec | None:
    """The profile's spec with the learned workload where it declares none; None while none is learned."""
    spec, learned = profile.spec, profile.status.observed_workload
    if spec.workload is not None:
        return spec
    return None if learned is None else spec.with_changes(workload=learned.workload)


def with_traffic_drift(
    obs: ProfileObservation, status: ServingProfileStatus, target: Target, questions: tuple[Question, ...]
) -> ServingProfileStatus:
    """What was learned against what the newest answer was measured with, where traffic may start a run.

    A drift that began goes on until all has come back below half of what began it: what lies around the threshold
    neither starts a run nor makes one late. Where the evidence is gone or weak, what was known stands.
    """
    if RetuneTrigger.TRAFFIC not in obs.profile.spec.retune.on:
        return changed(status, traffic_drift=None)
    learned, asked = status.observed_workload, next((q for q in questions if q.spec.workload is None), None)
    answers = [run for run in obs.runs if asked is not None and asked.is_answered_by(run, target)]
    plan = answers[-1].status.plan if answers else None
    if plan is None or plan.profile_spec.workload is None or learned is None or learned.confidence is Confidence.LOW:
        return status
    moved = largest_shift(plan.profile_spec.workload, learned.workload)
    if moved is None:
        return status
    known, run = status.traffic_drift, answers[-1].metadata["name"]
    goes_on = known is not None and known.run == run
    if moved.size < (ENDS if goes_on else BEGINS):
        return changed(status, traffic_drift=None)
    since = known.since if known is not None and goes_on else obs.now
    size_percent = min(_MOST_PERCENT, round(100 * moved.size))
    told = TrafficDrift(since=since, run=run, size_percent=size_percent, message=f"{moved.what}."[:512])
    return changed(status, traffic_drift=told)
