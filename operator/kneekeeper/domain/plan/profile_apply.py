"""Whether a recommendation may be written into the workload, and what a deleted profile takes back.

Nothing is written twice against somebody else's will: what was written and then changed by others, and what
was rolled back, stays as it is.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from kneekeeper.api.profile_status import Recommendation, ServingProfileStatus
from kneekeeper.api.rollout import Applied, ContainerWords, FieldChange, ObservedMisses, Rollout, RolloutStep
from kneekeeper.api.serving_profile import DeletionPolicy, UpdateMode
from kneekeeper.api.tuning_run import Trigger
from kneekeeper.domain.actions import ProfileAction, WriteWords
from kneekeeper.domain.arguments import Refusal
from kneekeeper.domain.live_fields import concerns_plugin, removal_fields, takes_plugin_out
from kneekeeper.domain.names import ANNOTATION_APPROVE
from kneekeeper.domain.non_inferiority import MIN_REQUESTS
from kneekeeper.domain.observation import LiveView, ProfileObservation, ViolationShare, WorkloadView
from kneekeeper.domain.plan.capacity import CAPACITY_BELOW_DEMAND, in_force_message, shortage
from kneekeeper.domain.plan.conditions import ConditionType, ProfileConditions
from kneekeeper.domain.plan.profile_live import fields_for, is_of_profile, switches_live
from kneekeeper.domain.plan.profile_schedule import misses_are_of_these_hours, stands_for_other_hours
from kneekeeper.domain.plan.writing import approved_by_user, may_write_for, tell_contested
from kneekeeper.domain.target import Target, words_with
from kneekeeper.domain.targets.fields import NotWritable, reversed_changes, since_the_first

ROLLBACK_IS_MANUAL = "RollbackIsManual"
ROLLED_BACK = "RolledBack"
NO_SURGE_ROOM = "NoSurgeRoom"
HELD_BACK = "RolloutHeldBack"
WATCHING = "Watching"
NOT_PROVEN = "NotProven"

UNVERIFIED = "Not verified: too few requests were seen before and after the change to compare what they miss."

FIRST_BACK_OFF_S, LONGEST_BACK_OFF_S = 3600.0, 86400.0


def start_if_due(
    obs: ProfileObservation, status: ServingProfileStatus, conditions: ProfileConditions, target: Target
) -> tuple[ServingProfileStatus, tuple[ProfileAction, ...]]:
    """Begin a rollout when a recommendation may be written; otherwise say what keeps it."""
    recommendation = status.recommendation
    tell_contested(obs, conditions, target, recommendation)
    _settle_degraded(status, conditions, target)
    if recommendation is None:
        if status.applied is not None and status.applied.setting == target.present:
            _in_force(obs, status, conditions, target, f"The workload declares {target.present}, as applied.")
        else:
            conditions.false(ConditionType.APPLIED, "NothingToApply", "")
        return status, ()
    if target.present == recommendation.setting:
        _in_force(obs, status, conditions, target, f"The workload declares {recommendation.setting}.")
        return status, ()
    refusal = _refusal(obs, status, conditions, recommendation, target)
    if refusal is not None:
        conditions.false(ConditionType.APPLIED, *refusal)
        return status, ()
    if status.active_run is not None:
        if status.schedule is not None:
            message = f"Waits for the end of TuningRun {status.active_run}."
            conditions.false(ConditionType.APPLIED, "Probing", message)
        return status, ()
    if not target.workload.rolled_out:
        message = "Waits until the workload has rolled out and is ready."
        conditions.false(ConditionType.APPLIED, "TargetRollingOut", message)
        return status, ()
    after = words_with(target.container, recommendation.setting)
    if isinstance(after, Refusal):
        conditions.false(ConditionType.APPLIED, after.reason, after.message)
        return status, ()
    fields = fields_for(obs, status, target, recommendation)
    if isinstance(fields, NotWritable):
        conditions.false(ConditionType.APPLIED, fields.reason, fields.message)
        return status, ()
    rollout = Rollout(
        step=RolloutStep.WRITE,
        setting=recommendation.setting,
        before=target.container.words,
        after=after,
        fields=list(fields),
        started_at=obs.now,
        misses_before=observed_misses(obs) if misses_are_of_these_hours(obs, status) else None,
        generation=target.workload.generation,
    )
    conditions.false(ConditionType.APPLIED, "RollingOut", f"Writes {rollout.setting}.")
    if conditions.get(ConditionType.DEGRADED) is not None:
        conditions.false(ConditionType.DEGRADED, "AsExpected", "")
    write = WriteWords(target.container.name, rollout.before, after, fields)
    return status.with_changes(rollout=rollout, watched=None), (write,)


def _refusal(
    obs: ProfileObservation,
    status: ServingProfileStatus,
    conditions: ProfileConditions,
    recommendation: Recommendation,
    target: Target,
) -> tuple[str, str] | None:
    mode = obs.profile.spec.update_policy.mode
    approved = approved_by_user(obs, recommendation)
    if obs.profile.spec.suspend:
        return "Suspended", "spec.suspend is set: nothing new is started."
    if mode == UpdateMode.OFF:
        return "ModeOff", "spec.updatePolicy.mode is Off."
    if not recommendation.is_certified:
        return (
            NOT_PROVEN,
            "It is predicted and not proven, so it is never written. Add Clone or BorrowReplica to spec.probe.allow to "
            "have it proven, or run status.recommendation.patch yourself.",
        )
    if mode == UpdateMode.RECOMMEND and not approved:
        return (
            "AwaitsApproval",
            f"Approve with: kubectl annotate sp {obs.profile.metadata['name']} "
            f"-n {obs.profile.metadata['namespace']} --overwrite "
            f"{ANNOTATION_APPROVE}={recommendation.hash}; or run status.recommendation.patch.",
        )
    owner = target.workload.owner
    if owner is not None and not may_write_for(owner, obs.profile.spec.update_policy.method):
        return (
            "OwnedByOther",
            f"The workload belongs to {owner.kind} {owner.name}, which would write it back. Change it there; "
            "status.recommendation.patch says what.",
        )
    compared = not approved and not stands_for_other_hours(obs, status, recommendation, target)
    if compared and not recommendation.present_breaks_slo and recommendation.improvement_percent is None:
        return (
            "ImprovementNotShown",
            "The present setting was not compared; approve to apply it all the same.",
        )
    asked, shown = obs.profile.spec.update_policy.min_improvement_percent, recommendation.improvement_percent
    if compared and shown is not None and shown < asked:
        return (
            "ImprovementTooSmall",
            f"At least {shown}% was shown, spec.updatePolicy.minImprovementPercent asks for {asked}%. Lower it, "
            "approve to apply it all the same, or annotate kneekeeper.io/retune=<anything new> to measure against it.",
        )
    if _was_rolled_back(status, recommendation):
        return ROLLED_BACK, "This setting was rolled back for this engine and is not tried again."
    if _was_reverted(status, recommendation, target):
        by = f" by {target.workload.last_writer}" if target.workload.last_writer else ""
        return "Reverted", f"{recommendation.setting} was written and then changed{by}; it is not written again."
    waits = _backs_off(obs, status, recommendation)
    if waits is not None and not approved:
        return "Reverted", f"Others put the old words back before; not written before {waits:%Y-%m-%d %H:%M} UTC."
    short = shortage(obs, conditions, recommendation, target)
    if short is not None and not approved:
        return CAPACITY_BELOW_DEMAND, f"{short} Add them, or approve to apply it all the same."
    if switches_live(obs, status, target, recommendation):
        return None
    if target.workload.held_back:
        message = f"A rollout of this workload does not reach every pod: {target.workload.held_back}. Change that."
        return HELD_BACK, message
    return no_surge_room(obs, target)


def _backs_off(
    obs: ProfileObservation, status: ServingProfileStatus, recommendation: Recommendation
) -> datetime | None:
    """Until when a setting is not written to a workload whose words others keep putting back: an hour, and twice
    as long each time, a day at most. A run that was asked for by a person is not held back."""
    applied = status.applied
    if applied is None or applied.reverts == 0:
        return None
    run = next((r for r in status.runs if r.name == recommendation.run), None)
    if run is not None and run.trigger == Trigger.REQUESTED:
        return None
    until = applied.at + timedelta(seconds=min(LONGEST_BACK_OFF_S, FIRST_BACK_OFF_S * 2 ** (applied.reverts - 1)))
    return until if obs.now < until else None


def no_surge_room(obs: ProfileObservation, target: Target) -> tuple[str, str] | None:
    """A rollout that may take no pod away first, and finds no GPU for one more, would wait for ever."""
    needed, room = target.container.gpus, obs.gpu_room
    if needed == 0 or target.workload.replicas == 0 or target.workload.max_unavailable != 0:
        return None
    if room is None or room.largest_free_on_a_node >= needed or obs.profile.spec.probe.allow_scale_up:
        return None
    product = room.product or "the serving pods' kind"
    return (
        NO_SURGE_ROOM,
        f"A rollout of this workload starts a new pod before it stops an old one (maxUnavailable is 0), and no node "
        f"has {needed} spare GPU of {product}: it would wait for ever. Set spec.strategy.rollingUpdate to "
        "maxSurge 0, maxUnavailable 1, or free a GPU.",
    )


def _in_force(
    obs: ProfileObservation,
    status: ServingProfileStatus,
    conditions: ProfileConditions,
    target: Target,
    message: str,
) -> None:
    reason = WATCHING if status.watched is not None else "InForce"
    applied = status.applied
    unverified = applied is not None and not applied.verified and target.container.words == applied.after
    if unverified and reason != WATCHING and not conditions.is_true(ConditionType.DEGRADED):
        message = f"{message} {UNVERIFIED}"
    conditions.true(ConditionType.APPLIED, reason, in_force_message(obs, status, target, message))


def _was_rolled_back(status: ServingProfileStatus, recommendation: Recommendation) -> bool:
    return any(
        r.setting == recommendation.setting and r.fingerprint == recommendation.fingerprint for r in status.rejected
    )


def _was_reverted(status: ServingProfileStatus, recommendation: Recommendation, target: Target) -> bool:
    """Whether this very recommendation was written before. One that was proven since may be written again.

    With schedules that of another hour counts as well: what others wrote since is not overwritten at the next hour.
    """
    applied = status.applied
    if applied is None or (status.schedule is None and applied.setting != recommendation.setting):
        return False
    if status.schedule is not None and applied.setting == target.present:
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


def observed_misses(obs: ProfileObservation) -> ObservedMisses | None:
    """What production misses now, to be held against what it misses later; None where too little is known."""
    seen = obs.violations
    if seen is None or seen.requests < MIN_REQUESTS:
        return None
    return ObservedMisses(
        share_lower=seen.lower,
        share_upper=seen.upper,
        requests=seen.requests,
        replica_requests_per_second=load_of_a_replica(seen, len(obs.pods or ())),
    )


def load_of_a_replica(seen: ViolationShare, pods: int) -> float | None:
    """Requests/s of one pod; None where it is not known."""
    rate = seen.requests_per_s
    return None if rate is None or pods == 0 else rate / pods


def original_words(applied: Applied | None, rollout: Rollout) -> ContainerWords:
    """What a person last wanted: what stood before the first of our writes that nobody has edited since."""
    return applied.before if applied is not None and rollout.before == applied.after else rollout.before


def original_fields(applied: Applied | None, rollout: Rollout) -> list[FieldChange]:
    """The same of fields: from what a person last wanted to what was written. With the live-tuning plugin its fields
    go: the words say the rest."""
    if takes_plugin_out(rollout.fields):
        return []
    if applied is None or rollout.before != applied.after:
        return rollout.fields
    if concerns_plugin(applied.fields) and not concerns_plugin(rollout.fields):
        return rollout.fields
    return since_the_first(applied.fields, rollout.fields)


def restoring(obs: ProfileObservation) -> WriteWords | None:
    """The write that a profile's deletion needs: a rollout under way is taken back in any case, what was applied
    only when that is asked for. None where others have changed the words since."""
    status, rollout, applied = obs.profile.status, obs.profile.status.rollout, obs.profile.status.applied
    live = obs.workload.live if obs.workload is not None else None
    if obs.workload is not None and live is not None and is_of_profile(obs, live):
        return _taking_plugin_out(obs, obs.workload, live)
    restore = obs.profile.spec.deletion_policy == DeletionPolicy.RESTORE
    written = [rollout.after] if rollout is not None else []
    if rollout is not None:
        before = original_words(applied, rollout) if restore else rollout.before
        fields = original_fields(applied, rollout) if restore else rollout.fields
        if restore and applied is not None and rollout.before == applied.after:
            written.append(applied.after)
    elif restore and applied is not None:
        before, written, fields = applied.before, [applied.after], applied.fields
    else:
        return None
    containers = obs.workload.containers if obs.workload is not None else ()
    names = [status.engine.container] if status.engine is not None else []
    found = [c for c in containers if c.words in written and c.words != before]
    found.sort(key=lambda c: c.name not in names)
    back = () if concerns_plugin(fields) else reversed_changes(fields)
    return WriteWords(found[0].name, found[0].words, before, back) if found else None


def _taking_plugin_out(obs: ProfileObservation, workload: WorkloadView, live: LiveView) -> WriteWords | None:
    """Without a profile nobody switches: the words become what is in force, or what stood there before."""
    rollout, applied = obs.profile.status.rollout, obs.profile.status.applied
    container = next((c for c in workload.containers if c.name == live.delivery.container), None)
    if container is None:
        return None
    words, restore = container.words, obs.profile.spec.deletion_policy == DeletionPolicy.RESTORE
    if rollout is not None and words == rollout.after:
        words = original_words(applied, rollout) if restore else rollout.before
    elif restore and applied is not None and words == applied.after:
        words = applied.before
    fields = removal_fields(workload, words, applied.fields if applied is not None else [])
    return WriteWords(container.name, container.words, words, fields)
