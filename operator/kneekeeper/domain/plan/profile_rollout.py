"""A certified setting on its way into the workload: written, rolled out, verified, or taken back.

The rollout is stored before the first write, with the words as they stood, so that it can be taken back
whatever happens to the operator.
"""

from __future__ import annotations

from kneekeeper.api.profile_status import ServingProfileStatus
from kneekeeper.api.rollout import Applied, Rejected, Rollout, RolloutStep
from kneekeeper.api.serving_profile import RollbackMode
from kneekeeper.domain.actions import ProfileAction, WriteWords
from kneekeeper.domain.non_inferiority import Comparison, Misses, compare
from kneekeeper.domain.observation import ContainerView, ProfileObservation
from kneekeeper.domain.plan.changes import changed
from kneekeeper.domain.plan.conditions import ConditionType, ProfileConditions
from kneekeeper.domain.plan.profile_apply import (
    ROLLBACK_IS_MANUAL,
    ROLLED_BACK,
    UNVERIFIED,
    WATCHING,
    load_of_a_replica,
    original_fields,
    original_words,
)
from kneekeeper.domain.plan.profile_live import NOT_IN_FORCE, gives_up
from kneekeeper.domain.startup_failures import classify
from kneekeeper.domain.target import Target
from kneekeeper.domain.targets.fields import reversed_changes

WATCH_FOR_S = 86400.0
"""Longest look at a setting that verification could not judge: later it is not the rollout that is compared."""

MAX_REJECTED = 10
"""As many as a profile's status holds."""

# Within this time words that are not in place are taken for not written yet, later for written and reverted.
WRITING_S = 10.0

_Result = tuple[ServingProfileStatus, tuple[ProfileAction, ...]]


def advance(
    obs: ProfileObservation,
    status: ServingProfileStatus,
    conditions: ProfileConditions,
    target: Target | None,
) -> _Result:
    """One step further with the rollout under way."""
    rollout = status.rollout
    assert rollout is not None  # the caller asks only then
    if obs.workload is None and obs.workload_problem:
        conditions.false(ConditionType.APPLIED, "TargetUnreadable", obs.workload_problem)
        return status, ()
    if status.observed_generation != int(obs.profile.metadata.get("generation", 0)):
        # Other targets count other violations: those from before the edit are no measure any more.
        rollout = rollout.with_changes(misses_before=None, not_worse=False)
        status = status.with_changes(rollout=rollout)
    container = _container(obs, status)
    if container is None:
        conditions.false(ConditionType.APPLIED, "TargetGone", "The workload went away during the rollout.")
        return status.with_changes(rollout=None), ()
    if rollout.step in (RolloutStep.WITHDRAW, RolloutStep.WITHDRAWING):
        return _withdraw(obs, status, conditions, rollout, container)
    if container.words == rollout.before and rollout.step == RolloutStep.WRITE and not _was_put_back(obs, rollout):
        if (obs.now - rollout.started_at).total_seconds() > WRITING_S:  # the last try
            status = status.with_changes(rollout=rollout.with_changes(step=RolloutStep.PROGRESS))
        return status, (WriteWords(container.name, rollout.before, rollout.after, tuple(rollout.fields)),)
    if container.words != rollout.after:
        return _theirs_stand(obs, status, conditions, rollout), ()
    return _watch(obs, status, conditions, rollout, container)


def _theirs_stand(
    obs: ProfileObservation, status: ServingProfileStatus, conditions: ProfileConditions, rollout: Rollout
) -> ServingProfileStatus:
    """Somebody else has written. That it was applied once is stored, so that it is not written again."""
    by = f" by {obs.workload.last_writer}" if obs.workload and obs.workload.last_writer else ""
    message = f"The container's words were changed{by} during the rollout; theirs stand."
    conditions.false(ConditionType.APPLIED, "ChangedMeanwhile", message)
    applied = _applied(obs, status, rollout, verified=False)
    container = _container(obs, status)
    if container is not None and container.words == rollout.before:
        before = status.applied.reverts if status.applied is not None else 0
        applied = applied.with_changes(reverts=before + 1)
    return status.with_changes(rollout=None, applied=applied)


def _was_put_back(obs: ProfileObservation, rollout: Rollout) -> bool:
    """Whether the spec was changed twice since the write was decided: once by us, and once back."""
    generation = obs.workload.generation if obs.workload is not None else 0
    return rollout.generation > 0 and generation >= rollout.generation + 2


def _applied(obs: ProfileObservation, status: ServingProfileStatus, rollout: Rollout, *, verified: bool) -> Applied:
    return Applied(
        setting=rollout.setting,
        before=original_words(status.applied, rollout),
        after=rollout.after,
        fields=original_fields(status.applied, rollout),
        at=obs.now,
        verified=verified,
    )


def _watch(
    obs: ProfileObservation,
    status: ServingProfileStatus,
    conditions: ProfileConditions,
    rollout: Rollout,
    container: ContainerView,
) -> _Result:
    side_by_side = _side_by_side(obs)
    cause = _cause_to_withdraw(obs, rollout, side_by_side)
    if cause is not None and obs.profile.spec.update_policy.rollback == RollbackMode.AUTOMATIC:
        return _begin_to_withdraw(obs, status, conditions, rollout, container, cause)
    if side_by_side != Comparison.UNDECIDED:
        rollout = changed(rollout, not_worse=side_by_side == Comparison.NOT_WORSE)
    if cause is not None:
        conditions.true(ConditionType.DEGRADED, ROLLBACK_IS_MANUAL, cause)
    assert obs.workload is not None  # a container was found in it
    in_force = obs.workload.rolled_out and all(p.words == rollout.after for p in obs.pods or () if p.ready)
    # Once in force it is judged by what it does, even if a pod is lost meanwhile.
    if rollout.verify_from is None and (not in_force or obs.pods is None):
        trouble = gives_up(status, rollout)
        if trouble is not None:
            conditions.false(ConditionType.APPLIED, NOT_IN_FORCE, trouble.message)
            return status.with_changes(rollout=None, applied=_applied(obs, status, rollout, verified=False)), ()
        conditions.false(
            ConditionType.APPLIED,
            "RollingOut",
            f"{rollout.setting} is written, not yet in effect on every pod.",
        )
        return changed(status, rollout=changed(rollout, step=RolloutStep.PROGRESS)), ()
    since = rollout.verify_from or obs.now
    waited_s = (obs.now - since).total_seconds()
    if waited_s < obs.profile.spec.update_policy.verify_for:
        conditions.false(ConditionType.APPLIED, "Verifying", f"{rollout.setting} is in effect and watched.")
        rollout = changed(rollout, step=RolloutStep.VERIFY, verify_from=since)
        return changed(status, rollout=rollout), ()
    judged = cause is None and (rollout.not_worse or _before_and_after(obs, rollout) == Comparison.NOT_WORSE)
    undecided = cause is None and not judged and rollout.misses_before is not None
    unverified = "" if judged or undecided or cause is not None else f" {UNVERIFIED}"
    conditions.true(
        ConditionType.APPLIED,
        "Verified" if judged else WATCHING if undecided else "InForce",
        f"{rollout.setting} is in effect on every pod.{unverified}",
    )
    if cause is None:
        conditions.false(ConditionType.DEGRADED, "AsExpected", "")
    applied = _applied(obs, status, rollout, verified=judged)
    return status.with_changes(rollout=None, watched=rollout if undecided else None, applied=applied), ()


def watch_on(
    obs: ProfileObservation, status: ServingProfileStatus, conditions: ProfileConditions, target: Target
) -> _Result:
    """A setting that verification could not judge stays, and is judged for a day by what production does."""
    watched, applied = status.watched, status.applied
    if watched is None or obs.violations is None:
        return status, ()
    since = watched.verify_from or watched.started_at
    edited = status.observed_generation != int(obs.profile.metadata.get("generation", 0))
    expired = (obs.now - since).total_seconds() > WATCH_FOR_S
    if edited or expired or applied is None or target.container.words != watched.after:
        return status.with_changes(watched=None), ()
    match _before_and_after(obs, watched):
        case Comparison.NOT_WORSE:
            return status.with_changes(watched=None, applied=applied.with_changes(verified=True)), ()
        case Comparison.WORSE:
            cause = _worse(obs, watched)
            if obs.profile.spec.update_policy.rollback == RollbackMode.MANUAL:
                conditions.true(ConditionType.DEGRADED, ROLLBACK_IS_MANUAL, cause)
                return status, ()
            status = status.with_changes(watched=None)
            return _begin_to_withdraw(obs, status, conditions, watched, target.container, cause)
        case _:
            return status, ()


def _begin_to_withdraw(
    obs: ProfileObservation,
    status: ServingProfileStatus,
    conditions: ProfileConditions,
    rollout: Rollout,
    container: ContainerView,
    cause: str,
) -> _Result:
    generation = obs.workload.generation if obs.workload is not None else 0
    rollout = rollout.with_changes(step=RolloutStep.WITHDRAW, cause=cause[:1024], generation=generation)
    conditions.false(ConditionType.APPLIED, "RollingBack", cause)
    return status.with_changes(rollout=rollout), (_write_back(container.name, rollout),)


def _side_by_side(obs: ProfileObservation) -> Comparison:
    """New pods against old ones that serve at the same time: the best evidence, as nothing else differs."""
    seen = obs.side_by_side
    if seen is None:
        return Comparison.UNDECIDED
    return compare(
        Misses(seen.old.lower, seen.old.upper, seen.old.requests, load_of_a_replica(seen.old, seen.old_pods)),
        Misses(seen.new.lower, seen.new.upper, seen.new.requests, load_of_a_replica(seen.new, seen.new_pods)),
    )


def _before_and_after(obs: ProfileObservation, rollout: Rollout) -> Comparison:
    before, now = rollout.misses_before, obs.violations
    if before is None or now is None:
        return Comparison.UNDECIDED
    load = load_of_a_replica(now, len(obs.pods or ()))
    return compare(
        Misses(before.share_lower, before.share_upper, before.requests, before.replica_requests_per_second),
        Misses(now.lower, now.upper, now.requests, load),
    )


def _worse(obs: ProfileObservation, rollout: Rollout) -> str:
    before, now = rollout.misses_before, obs.violations
    assert before is not None  # only then it is worse
    assert now is not None
    return (
        f"With {rollout.setting} at least {100 * now.lower:.1f}% of requests miss the SLO, "
        f"at most {100 * before.share_upper:.1f}% did before."
    )


def _cause_to_withdraw(obs: ProfileObservation, rollout: Rollout, side_by_side: Comparison) -> str | None:
    """Evidence only: crashes of pods with the new words, missed progress, or a worse share of violations."""
    for pod in obs.pods or ():
        if pod.words == rollout.after and pod.keeps_crashing:
            return f"Pod {pod.name} crashes with {rollout.setting}: {classify(pod.log_tail).message}"
    missed = _missed_progress(obs, rollout) if rollout.verify_from is None else None
    if missed is not None:
        return missed
    if side_by_side == Comparison.WORSE and obs.side_by_side is not None:
        seen = obs.side_by_side
        return (
            f"On pods with {rollout.setting} at least {100 * seen.new.lower:.1f}% of requests miss the SLO, at most "
            f"{100 * seen.old.upper:.1f}% do on the old pods beside them."
        )
    if rollout.step == RolloutStep.VERIFY and _before_and_after(obs, rollout) == Comparison.WORSE:
        return _worse(obs, rollout)
    return None


def _missed_progress(obs: ProfileObservation, rollout: Rollout) -> str | None:
    """The workload's own deadline, as far as it is of this rollout; else, since a paused Deployment has none, one
    engine start for each pod that serves with the new words, and one more."""
    workload = obs.workload
    if workload is None or workload.observed_generation < workload.generation or workload.awaits_promotion:
        return None
    if workload.progress_deadline_exceeded:
        return f"The rollout of {rollout.setting} missed the workload's progress deadline."
    serving = sum(pod.ready and pod.words == rollout.after for pod in obs.pods or ())
    waited_s = (obs.now - rollout.started_at).total_seconds()
    if waited_s > (1 + serving) * obs.profile.spec.probe.budget.start_timeout:
        return (
            f"After {waited_s:.0f}s {serving} of {workload.replicas} pods run {rollout.setting}: is the workload "
            "paused, or is there no place for a new pod?"
        )
    return None


def _withdraw(
    obs: ProfileObservation,
    status: ServingProfileStatus,
    conditions: ProfileConditions,
    rollout: Rollout,
    container: ContainerView,
) -> _Result:
    conditions.true(ConditionType.DEGRADED, ROLLED_BACK, rollout.cause)
    again = rollout.step == RolloutStep.WITHDRAWING or _was_put_back(obs, rollout)
    if container.words == rollout.after and not again:
        conditions.false(ConditionType.APPLIED, "RollingBack", rollout.cause)
        return status, (_write_back(container.name, rollout),)
    if container.words == rollout.before and obs.workload is not None and not obs.workload.rolled_out:
        conditions.false(ConditionType.APPLIED, "RollingBack", rollout.cause)
        return status.with_changes(rollout=rollout.with_changes(step=RolloutStep.WITHDRAWING)), ()
    recommendation, engine = status.recommendation, status.engine
    of_this = recommendation is not None and recommendation.setting == rollout.setting
    # The engine may have been edited meanwhile: the one that the setting failed for counts.
    fingerprint = recommendation.fingerprint if of_this and recommendation else engine.fingerprint if engine else ""
    rejected = Rejected(setting=rollout.setting, fingerprint=fingerprint, cause=rollout.cause, at=obs.now)
    theirs = "" if container.words == rollout.before else " Others have changed the words meanwhile; theirs stand."
    conditions.false(ConditionType.APPLIED, ROLLED_BACK, f"{rollout.cause}{theirs}")
    return status.with_changes(rollout=None, rejected=[*status.rejected, rejected][-MAX_REJECTED:]), ()


def _container(obs: ProfileObservation, status: ServingProfileStatus) -> ContainerView | None:
    if obs.workload is None or status.engine is None:
        return None
    return next((c for c in obs.workload.containers if c.name == status.engine.container), None)


def _write_back(container: str, rollout: Rollout) -> WriteWords:
    return WriteWords(container, rollout.after, rollout.before, reversed_changes(rollout.fields))
