"""A certified setting on its way into the workload: written, rolled out, verified, or taken back.

The rollout is stored before the first write, with the words as they stood, so that it can be taken back
whatever happens to the operator.
"""

from __future__ import annotations

from kneekeeper.api.profile_status import (
    Applied,
    Recommendation,
    Rejected,
    Rollout,
    RolloutStep,
    ServingProfileStatus,
)
from kneekeeper.api.serving_profile import RollbackMode, UpdateMode
from kneekeeper.domain.actions import ProfileAction, WriteWords
from kneekeeper.domain.arguments import Refusal
from kneekeeper.domain.names import ANNOTATION_APPROVE
from kneekeeper.domain.observation import ContainerView, PodView, ProfileObservation
from kneekeeper.domain.plan.conditions import ConditionType, ProfileConditions
from kneekeeper.domain.startup_failures import classify
from kneekeeper.domain.target import Target, words_with

CRASHES_TO_WITHDRAW = 2
# A share of violations is worse when its lower bound is above the old upper bound by more than this.
WORSE_BY = 0.01
MIN_REQUESTS_TO_JUDGE = 100

_Result = tuple[ServingProfileStatus, tuple[ProfileAction, ...]]


def start_if_due(
    obs: ProfileObservation, status: ServingProfileStatus, conditions: ProfileConditions, target: Target
) -> _Result:
    """Begin a rollout when a recommendation may be written; otherwise say what keeps it."""
    recommendation = status.recommendation
    if recommendation is None or recommendation.fingerprint != target.fingerprint:
        if status.applied is None:
            conditions.false(ConditionType.APPLIED, "NothingToApply", "")
        return status, ()
    if target.present == recommendation.setting:
        conditions.true(ConditionType.APPLIED, "InForce", f"The workload declares {recommendation.setting}.")
        return status, ()
    refusal = _refusal(obs, status, recommendation, target)
    if refusal is not None:
        conditions.false(ConditionType.APPLIED, *refusal)
        return status, ()
    if status.active_run is not None:
        return status, ()
    after = words_with(target.container, recommendation.setting)
    if isinstance(after, Refusal):
        conditions.false(ConditionType.APPLIED, after.reason, after.message)
        return status, ()
    rollout = Rollout(
        step=RolloutStep.WRITE,
        setting=recommendation.setting,
        before=target.container.words,
        after=after,
        started_at=obs.now,
        violation_share_before=obs.violations.upper if obs.violations else None,
    )
    conditions.false(ConditionType.APPLIED, "RollingOut", f"Writes {rollout.setting}.")
    return status.with_changes(rollout=rollout), (_write(target.container.name, rollout),)


def _refusal(
    obs: ProfileObservation, status: ServingProfileStatus, recommendation: Recommendation, target: Target
) -> tuple[str, str] | None:
    mode = obs.profile.spec.update_policy.mode
    approved = obs.profile.metadata.get("annotations", {}).get(ANNOTATION_APPROVE) == recommendation.hash
    if mode == UpdateMode.OFF:
        return "ModeOff", "spec.updatePolicy.mode is Off."
    if mode == UpdateMode.RECOMMEND and not approved:
        return (
            "AwaitsApproval",
            f"Approve with: kubectl annotate sp {obs.profile.metadata['name']} --overwrite "
            f"{ANNOTATION_APPROVE}={recommendation.hash}; or run status.recommendation.patch.",
        )
    owner = target.workload.owner
    if owner is not None:
        return (
            "OwnedByOther",
            f"The workload belongs to {owner.kind} {owner.name}, which would write it back. Change it there; "
            "status.recommendation.patch says what.",
        )
    if not recommendation.present_breaks_slo and not approved:
        return (
            "ImprovementNotShown",
            "The present setting was not compared; approve to apply it all the same.",
        )
    if any(
        r.setting == recommendation.setting and r.fingerprint == recommendation.fingerprint for r in status.rejected
    ):
        return "RolledBack", "This setting was rolled back for this engine and is not tried again."
    applied = status.applied
    if applied is not None and applied.setting == recommendation.setting:
        by = f" by {target.workload.last_writer}" if target.workload.last_writer else ""
        return "Reverted", f"{applied.setting} was written and then changed{by}; it is not written again."
    return None


def advance(
    obs: ProfileObservation,
    status: ServingProfileStatus,
    conditions: ProfileConditions,
    target: Target | None,
) -> _Result:
    """One step further with the rollout under way."""
    rollout = status.rollout
    assert rollout is not None  # the caller asks only then
    container = _container(obs, status)
    if container is None:
        conditions.false(ConditionType.APPLIED, "TargetGone", "The workload went away during the rollout.")
        return status.with_changes(rollout=None), ()
    if rollout.step in (RolloutStep.WITHDRAW, RolloutStep.WITHDRAWING):
        return _withdraw(obs, status, conditions, rollout, container)
    if container.words == rollout.before and rollout.step == RolloutStep.WRITE:
        return status, (_write(container.name, rollout),)
    if container.words != rollout.after:
        by = f" by {obs.workload.last_writer}" if obs.workload and obs.workload.last_writer else ""
        message = f"The container's words were changed{by} during the rollout; theirs stand."
        conditions.false(ConditionType.APPLIED, "ChangedMeanwhile", message)
        return status.with_changes(rollout=None), ()
    return _watch(obs, status, conditions, rollout, container)


def _watch(
    obs: ProfileObservation,
    status: ServingProfileStatus,
    conditions: ProfileConditions,
    rollout: Rollout,
    container: ContainerView,
) -> _Result:
    cause = _cause_to_withdraw(obs, rollout)
    if cause is not None:
        if obs.profile.spec.update_policy.rollback == RollbackMode.MANUAL:
            conditions.true(ConditionType.DEGRADED, "RollbackIsManual", cause)
            return status, ()
        rollout = rollout.with_changes(step=RolloutStep.WITHDRAW, cause=cause[:1024])
        conditions.false(ConditionType.APPLIED, "RollingBack", cause)
        return status.with_changes(rollout=rollout), (_write_back(container.name, rollout),)
    assert obs.workload is not None  # a container was found in it
    in_force = obs.workload.rolled_out and all(p.words == rollout.after for p in obs.pods or () if p.ready)
    if not in_force or obs.pods is None:
        conditions.false(
            ConditionType.APPLIED,
            "RollingOut",
            f"{rollout.setting} is written, not yet in effect on every pod.",
        )
        return status.with_changes(rollout=rollout.with_changes(step=RolloutStep.PROGRESS)), ()
    since = rollout.verify_from or obs.now
    waited_s = (obs.now - since).total_seconds()
    if waited_s < obs.profile.spec.update_policy.verify_for:
        conditions.false(ConditionType.APPLIED, "Verifying", f"{rollout.setting} is in effect and watched.")
        rollout = rollout.with_changes(step=RolloutStep.VERIFY, verify_from=since)
        return status.with_changes(rollout=rollout), ()
    judged = obs.violations is not None and obs.violations.requests >= MIN_REQUESTS_TO_JUDGE
    applied = Applied(
        setting=rollout.setting,
        before=rollout.before if status.applied is None else status.applied.before,
        after=rollout.after,
        at=obs.now,
        verified=judged,
    )
    conditions.true(
        ConditionType.APPLIED,
        "Verified" if judged else "InForce",
        f"{rollout.setting} is in effect on every pod.",
    )
    conditions.false(ConditionType.DEGRADED, "AsExpected", "")
    return status.with_changes(rollout=None, applied=applied), ()


def _cause_to_withdraw(obs: ProfileObservation, rollout: Rollout) -> str | None:
    """Evidence only: crashes of pods with the new words, a missed deadline, or a worse share of violations."""
    for pod in obs.pods or ():
        if pod.words == rollout.after and _crashes(pod):
            failure = classify(pod.log_tail)
            return f"Pod {pod.name} crashes with {rollout.setting}: {failure.summary} {failure.next_step}"
    if obs.workload is not None and obs.workload.progress_deadline_exceeded:
        return f"The rollout of {rollout.setting} missed the workload's progress deadline."
    now, before = obs.violations, rollout.violation_share_before
    if (
        rollout.step == RolloutStep.VERIFY
        and now is not None
        and before is not None
        and now.requests >= MIN_REQUESTS_TO_JUDGE
        and now.lower > before + WORSE_BY
    ):
        return (
            f"With {rollout.setting} at least {100 * now.lower:.1f}% of requests miss the SLO, "
            f"at most {100 * before:.1f}% did before."
        )
    return None


def _crashes(pod: PodView) -> bool:
    return pod.restarts >= CRASHES_TO_WITHDRAW or pod.waiting_reason == "CrashLoopBackOff"


def _withdraw(
    obs: ProfileObservation,
    status: ServingProfileStatus,
    conditions: ProfileConditions,
    rollout: Rollout,
    container: ContainerView,
) -> _Result:
    conditions.true(ConditionType.DEGRADED, "RolledBack", rollout.cause)
    if container.words == rollout.after:
        conditions.false(ConditionType.APPLIED, "RollingBack", rollout.cause)
        return status, (_write_back(container.name, rollout),)
    if container.words == rollout.before and obs.workload is not None and not obs.workload.rolled_out:
        conditions.false(ConditionType.APPLIED, "RollingBack", rollout.cause)
        return status.with_changes(rollout=rollout.with_changes(step=RolloutStep.WITHDRAWING)), ()
    rejected = Rejected(
        setting=rollout.setting,
        fingerprint=status.engine.fingerprint if status.engine else "",
        cause=rollout.cause,
        at=obs.now,
    )
    conditions.false(ConditionType.APPLIED, "RolledBack", rollout.cause)
    return status.with_changes(rollout=None, rejected=[*status.rejected, rejected][-10:]), ()


def _container(obs: ProfileObservation, status: ServingProfileStatus) -> ContainerView | None:
    if obs.workload is None or status.engine is None:
        return None
    return next((c for c in obs.workload.containers if c.name == status.engine.container), None)


def _write(container: str, rollout: Rollout) -> WriteWords:
    return WriteWords(container, before=rollout.before, after=rollout.after)


def _write_back(container: str, rollout: Rollout) -> WriteWords:
    return WriteWords(container, before=rollout.after, after=rollout.before)
