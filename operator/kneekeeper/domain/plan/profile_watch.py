"""The quiet hours: replicas against their knee, drift, and the sum of it all in Ready."""

from __future__ import annotations

from kneekeeper.api.model import Condition, ConditionStatus
from kneekeeper.api.profile_status import ServingProfileStatus
from kneekeeper.api.quantities import counted
from kneekeeper.api.tuning_run import RunStep
from kneekeeper.domain.observation import EngineMetrics, ProfileObservation
from kneekeeper.domain.plan.changes import changed
from kneekeeper.domain.plan.conditions import ConditionType, ProfileConditions
from kneekeeper.domain.plan.profile_findings import with_findings
from kneekeeper.domain.plan.profile_replicas import with_replicas
from kneekeeper.domain.plan.profile_traffic import with_observed_workload
from kneekeeper.domain.plan.profile_upgrade import failed_upgrade
from kneekeeper.domain.startup_failures import FailureKind, classify
from kneekeeper.domain.target import Target


def sum_up(
    obs: ProfileObservation,
    status: ServingProfileStatus,
    conditions: ProfileConditions,
    target: Target | None,
) -> ServingProfileStatus:
    """Metrics, drift and replicas as seen now; Ready says whether the workload stands where it should."""
    _metrics(obs, conditions)
    _drift(status, conditions, target)
    _crashes(obs, status, conditions, target)
    status = with_observed_workload(obs, with_replicas(obs, status))
    status = with_findings(obs, status, target)
    _ready(status, conditions)
    return changed(status, stage=_stage(obs, status, conditions))


def gpu_product(obs: ProfileObservation, status: ServingProfileStatus) -> str:
    """Of the nodes that the serving pods run on; between two reads, and while pods move, the last one known."""
    seen = sorted({p.gpu_product for p in obs.pods or () if p.gpu_product})
    last = status.engine.gpu_product if status.engine else ""
    moves = obs.workload is not None and not obs.workload.rolled_out
    return last if not seen or (last and moves) else ",".join(seen)[:253]


def not_ready(conditions: ProfileConditions) -> None:
    """Ready follows the first condition that keeps everything else from happening."""
    for type_ in (ConditionType.ACCEPTED, ConditionType.TARGET_FOUND):
        condition = conditions.get(type_)
        if condition is not None and not conditions.is_true(type_):
            conditions.false(ConditionType.READY, condition.reason, condition.message)
            return


def _metrics(obs: ProfileObservation, conditions: ProfileConditions) -> None:
    if obs.pod_metrics is None:
        if conditions.get(ConditionType.METRICS_AVAILABLE) is None:
            conditions.unknown(ConditionType.METRICS_AVAILABLE, "NotRead", "Not read yet.")
        return
    silent = {pod: m.why for pod, m in obs.pod_metrics.items() if not isinstance(m, EngineMetrics)}
    if silent:
        pod, why = next(iter(silent.items()))
        conditions.false(
            ConditionType.METRICS_AVAILABLE,
            "MetricsMissing",
            f"Metrics of {counted(len(silent), 'pod')} cannot be read, for example {pod}: {why}",
        )
    elif obs.pod_metrics:
        conditions.true(ConditionType.METRICS_AVAILABLE, "MetricsRead", "")


def _drift(status: ServingProfileStatus, conditions: ProfileConditions, target: Target | None) -> None:
    applied, recommendation = status.applied, status.recommendation
    if target is None or status.rollout is not None or applied is None:
        return
    good = [applied.setting] if recommendation is None else [applied.setting, recommendation.setting]
    if status.schedule is not None:
        good += [hours.setting for hours in status.schedule.settings]
    present_is_best = recommendation is None and conditions.is_true(ConditionType.RECOMMENDED)
    if target.present in good or present_is_best:
        conditions.false(ConditionType.DRIFTED, "AsApplied", "")
        return
    by = target.workload.last_writer or "somebody"
    conditions.true(
        ConditionType.DRIFTED,
        "RevertedByOther" if target.container.words == applied.before else "ChangedByOther",
        f"{by} changed {applied.setting} to {target.present}. It is left so; annotate "
        "kneekeeper.io/retune=<anything new> to measure again.",
    )


def _crashes(
    obs: ProfileObservation, status: ServingProfileStatus, conditions: ProfileConditions, target: Target | None
) -> None:
    """A serving pod that keeps crashing outside of a rollout of ours, or the first of an upgrade that fails: the
    cause is in its log."""
    if obs.pods is None or status.rollout is not None:
        return
    crashing = next((pod for pod in obs.pods if pod.keeps_crashing and not pod.ready), None)
    told = conditions.get(ConditionType.DEGRADED)
    upgrade = failed_upgrade(obs, target) if target is not None else None
    if upgrade is not None:
        message = f"Pod {upgrade.pod} with the new image does not start: {upgrade.failure.summary} {upgrade.advice}"
        conditions.true(ConditionType.DEGRADED, upgrade.failure.kind, message)
    elif crashing is not None:
        failure = classify(crashing.log_tail)
        message = f"Pod {crashing.name} crashes: {failure.message}"
        conditions.true(ConditionType.DEGRADED, failure.kind, message)
    elif told is not None and told.reason in set(FailureKind):
        conditions.false(ConditionType.DEGRADED, "AsExpected", "")


def _ready(status: ServingProfileStatus, conditions: ProfileConditions) -> None:
    for type_ in (ConditionType.DEGRADED, ConditionType.DRIFTED):
        condition = conditions.get(type_)
        if condition is not None and conditions.is_true(type_):
            conditions.false(ConditionType.READY, condition.reason, condition.message)
            return
    recommended, applied = conditions.get(ConditionType.RECOMMENDED), conditions.get(ConditionType.APPLIED)
    if recommended is not None and recommended.status == ConditionStatus.FALSE:
        conditions.false(ConditionType.READY, recommended.reason, recommended.message)
    elif conditions.is_true(ConditionType.APPLIED) and not _asks_anew(status, recommended):
        conditions.true(ConditionType.READY, "BelowTheKnee", applied.message if applied else "")
    elif recommended is not None and conditions.is_true(ConditionType.RECOMMENDED):
        if status.recommendation is None:
            conditions.true(ConditionType.READY, recommended.reason, recommended.message)
        else:
            reason = applied.reason if applied else "NotApplied"
            conditions.false(ConditionType.READY, reason, applied.message if applied else "")
    elif status.active_run is not None:
        conditions.false(ConditionType.READY, "Probing", "The engine is being measured.")
    else:
        reason = recommended.reason if recommended else "NotMeasured"
        conditions.false(ConditionType.READY, reason, recommended.message if recommended else "")


def _asks_anew(status: ServingProfileStatus, recommended: Condition | None) -> bool:
    """Whether what is in force was certified for other targets or another engine than those of now."""
    unknown = recommended is not None and recommended.status is ConditionStatus.UNKNOWN
    return status.recommendation is None and unknown


def _stage(obs: ProfileObservation, status: ServingProfileStatus, conditions: ProfileConditions) -> str:
    """One or two words for `kubectl get sp`."""
    if status.rollout is not None:
        return f"Rollout/{status.rollout.step}"
    active = next((r for r in obs.runs if r.status.step != RunStep.DONE), None)
    if active is not None:
        current = active.status.current_stage
        return f"{active.status.step}/{current.name}"[:64] if current else str(active.status.step)
    if status.active_run is not None:
        return "Starting"
    ready = conditions.get(ConditionType.READY)
    return ready.reason if ready else ""
