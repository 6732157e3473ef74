"""Whether a recommendation may be written into the workload, and what a deleted profile takes back.

Nothing is written twice against somebody else's will: what was written and then changed by others, and what
was rolled back, stays as it is.
"""

from __future__ import annotations

from kneekeeper.api.profile_status import (
    Applied,
    ContainerWords,
    Recommendation,
    Rollout,
    RolloutStep,
    ServingProfileStatus,
)
from kneekeeper.api.serving_profile import DeletionPolicy, UpdateMode
from kneekeeper.domain.actions import ProfileAction, WriteWords
from kneekeeper.domain.arguments import Refusal
from kneekeeper.domain.names import ANNOTATION_APPROVE
from kneekeeper.domain.observation import ProfileObservation, ViolationShare
from kneekeeper.domain.plan.conditions import ConditionType, ProfileConditions
from kneekeeper.domain.target import Target, words_with

MIN_REQUESTS_TO_JUDGE = 100

ROLLBACK_IS_MANUAL = "RollbackIsManual"
ROLLED_BACK = "RolledBack"


def start_if_due(
    obs: ProfileObservation, status: ServingProfileStatus, conditions: ProfileConditions, target: Target
) -> tuple[ServingProfileStatus, tuple[ProfileAction, ...]]:
    """Begin a rollout when a recommendation may be written; otherwise say what keeps it."""
    recommendation = status.recommendation
    _settle_degraded(status, conditions, target)
    if recommendation is None:
        if status.applied is not None and status.applied.setting == target.present:
            conditions.true(ConditionType.APPLIED, "InForce", f"The workload declares {target.present}, as applied.")
        else:
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
    if not target.workload.rolled_out:
        message = "Waits until the workload has rolled out and is ready."
        conditions.false(ConditionType.APPLIED, "TargetRollingOut", message)
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
        violation_share_before=obs.violations.upper if obs.violations and tells(obs.violations) else None,
    )
    conditions.false(ConditionType.APPLIED, "RollingOut", f"Writes {rollout.setting}.")
    if conditions.get(ConditionType.DEGRADED) is not None:
        conditions.false(ConditionType.DEGRADED, "AsExpected", "")
    write = WriteWords(target.container.name, before=rollout.before, after=after)
    return status.with_changes(rollout=rollout), (write,)


def _refusal(
    obs: ProfileObservation, status: ServingProfileStatus, recommendation: Recommendation, target: Target
) -> tuple[str, str] | None:
    mode = obs.profile.spec.update_policy.mode
    approved = obs.profile.metadata.get("annotations", {}).get(ANNOTATION_APPROVE) == recommendation.hash
    if obs.profile.spec.suspend:
        return "Suspended", "spec.suspend is set: nothing new is started."
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
    asked, shown = obs.profile.spec.update_policy.min_improvement_percent, recommendation.improvement_percent
    if shown is not None and shown < asked and not approved:
        return (
            "ImprovementTooSmall",
            f"At least {shown}% was shown, spec.updatePolicy.minImprovementPercent asks for {asked}%. Lower it, "
            "approve to apply it all the same, or annotate kneekeeper.io/retune=<anything new> to measure against it.",
        )
    if _was_rolled_back(status, recommendation):
        return ROLLED_BACK, "This setting was rolled back for this engine and is not tried again."
    if _was_reverted(status, recommendation):
        by = f" by {target.workload.last_writer}" if target.workload.last_writer else ""
        return "Reverted", f"{recommendation.setting} was written and then changed{by}; it is not written again."
    return None


def _was_rolled_back(status: ServingProfileStatus, recommendation: Recommendation) -> bool:
    return any(
        r.setting == recommendation.setting and r.fingerprint == recommendation.fingerprint for r in status.rejected
    )


def _was_reverted(status: ServingProfileStatus, recommendation: Recommendation) -> bool:
    """Whether this very recommendation was written before. One that was proven since may be written again."""
    applied = status.applied
    if applied is None or applied.setting != recommendation.setting:
        return False
    run = next((r for r in status.runs if r.name == recommendation.run), None)
    return run is None or run.finished_at is None or run.finished_at <= applied.at


def _settle_degraded(status: ServingProfileStatus, conditions: ProfileConditions, target: Target) -> None:
    """Degraded lasts as long as what it tells of: a setting rolled back, or one that a person must take back."""
    degraded, recommendation, applied = conditions.get(ConditionType.DEGRADED), status.recommendation, status.applied
    if degraded is None or not conditions.is_true(ConditionType.DEGRADED):
        return
    if degraded.reason == ROLLBACK_IS_MANUAL:
        lasts = applied is not None and applied.setting == target.present
    elif degraded.reason == ROLLED_BACK:
        lasts = (
            recommendation is not None
            and recommendation.setting != target.present
            and _was_rolled_back(status, recommendation)
        )
    else:
        return
    if not lasts:
        conditions.false(ConditionType.DEGRADED, "AsExpected", "")


def tells(violations: ViolationShare | None) -> bool:
    """Whether the share rests on enough requests to be held against another."""
    return violations is not None and violations.requests >= MIN_REQUESTS_TO_JUDGE


def original_words(applied: Applied | None, rollout: Rollout) -> ContainerWords:
    """What a person last wanted: what stood before the first of our writes that nobody has edited since."""
    return applied.before if applied is not None and rollout.before == applied.after else rollout.before


def restoring(obs: ProfileObservation) -> WriteWords | None:
    """The write that a profile's deletion needs: a rollout under way is taken back in any case, what was applied
    only when that is asked for. None where others have changed the words since."""
    status, rollout, applied = obs.profile.status, obs.profile.status.rollout, obs.profile.status.applied
    restore = obs.profile.spec.deletion_policy == DeletionPolicy.RESTORE
    written = [rollout.after] if rollout is not None else []
    if rollout is not None:
        before = original_words(applied, rollout) if restore else rollout.before
        if restore and applied is not None and rollout.before == applied.after:
            written.append(applied.after)
    elif restore and applied is not None:
        before, written = applied.before, [applied.after]
    else:
        return None
    containers = obs.workload.containers if obs.workload is not None else ()
    names = [status.engine.container] if status.engine is not None else []
    found = [c for c in containers if c.words in written and c.words != before]
    found.sort(key=lambda c: c.name not in names)
    return WriteWords(found[0].name, before=found[0].words, after=before) if found else None
