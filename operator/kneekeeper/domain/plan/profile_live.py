"""Switching production live: whether it works, what a switch writes, and the way back to rollouts.

The plugin comes with a rollout that is due anyway, together with the words of the pair that engines are started with;
from then on a switch is one write of one ConfigMap. A setting is switched live only where it was certified on an
engine that was started with that very pair. Where pods do not say that they run with what was set, the plugin is
taken out again, in a rollout that leaves the setting in the words.
"""

from __future__ import annotations

from dataclasses import dataclass

from kneekeeper.api.profile_status import LiveTrouble, Recommendation, ServingProfileStatus
from kneekeeper.api.rollout import FieldChange, Rollout, RolloutStep
from kneekeeper.api.tuning_run import Trigger, Verdict
from kneekeeper.domain.actions import EnsureLimits, ProfileAction, WriteWords
from kneekeeper.domain.arguments import Refusal
from kneekeeper.domain.live_delivery import Delivery
from kneekeeper.domain.live_fields import (
    concerns_plugin,
    delivery_fields,
    removal_fields,
    switch_fields,
    takes_plugin_out,
)
from kneekeeper.domain.live_production import is_within, setting_in
from kneekeeper.domain.live_settings import setting_of
from kneekeeper.domain.names import limits_name
from kneekeeper.domain.observation import LiveView, ProfileObservation, Unreachable
from kneekeeper.domain.plan.changes import changed
from kneekeeper.domain.plan.conditions import ConditionType, ProfileConditions
from kneekeeper.domain.plan.live_scope import OWNED_BY_OTHER, allows_live_changes, reason_by_rollout
from kneekeeper.domain.plan.profile_upgrade import failed_upgrade
from kneekeeper.domain.plan.writing import fields_with
from kneekeeper.domain.target import Target, words_with
from kneekeeper.domain.targets.fields import NotWritable
from kneekeeper.livetune.messages import Report

CONFIRMED_WITHIN_S = 300.0
"""The kubelet brings a ConfigMap's file up to date within a minute or two; later something is wrong."""

NOT_IN_FORCE = "NotInForce"
NO_ANSWER = "PluginMissing"

_BY_ROLLOUT = "Switches go by rollout."
_ASK_AGAIN = "Annotate kneekeeper.io/retune=<anything new> to have it tried again."


@dataclass(frozen=True)
class _Found:
    """What is wrong with a pod's plugin; a `definite` answer need not be waited for."""

    reason: str
    message: str
    definite: bool = False


def follow(
    obs: ProfileObservation, status: ServingProfileStatus, conditions: ProfileConditions, target: Target
) -> ServingProfileStatus:
    """The status with what is wrong with the plugin now, and the condition that tells how switches are made."""
    spec = obs.profile.spec
    if not allows_live_changes(spec):
        if conditions.get(ConditionType.LIVE_CHANGES) is not None:
            conditions.false(ConditionType.LIVE_CHANGES, "Disabled", "spec.updatePolicy.liveChanges is Disabled.")
        return changed(status, live_trouble=None)
    unfit = reason_by_rollout(spec, target)
    if unfit is not None:
        conditions.false(ConditionType.LIVE_CHANGES, unfit.reason, f"{unfit.message} {_BY_ROLLOUT}")
        return changed(status, live_trouble=None)
    status = changed(status, live_trouble=_trouble(obs, status, target))
    _tell(obs, status, conditions, target)
    return status


def _tell(obs: ProfileObservation, status: ServingProfileStatus, conditions: ProfileConditions, target: Target) -> None:
    live, trouble, recommendation = target.workload.live, status.live_trouble, status.recommendation
    if trouble is not None and not trouble.given_up and trouble.reason == NOT_IN_FORCE:
        conditions.unknown(ConditionType.LIVE_CHANGES, "Switching", trouble.message)
    elif trouble is not None:
        told = f"{trouble.message} {_BY_ROLLOUT} {_ASK_AGAIN}" if trouble.given_up else trouble.message
        conditions.false(ConditionType.LIVE_CHANGES, trouble.reason, told)
    elif live is not None and not live.stands:
        by = target.workload.last_writer or "somebody"
        conditions.false(
            ConditionType.LIVE_CHANGES,
            "WordsChanged",
            f"{by} changed the words that the plugin's engines are started with; the words hold.",
        )
    elif live is not None and obs.live:
        conditions.true(
            ConditionType.LIVE_CHANGES,
            "SetLive",
            f"Every pod says that it runs with {target.present}, started with {live.delivery.started}.",
        )
    elif live is not None:
        if conditions.get(ConditionType.LIVE_CHANGES) is None:
            conditions.unknown(ConditionType.LIVE_CHANGES, "NotRead", "No pod was asked yet.")
    elif recommendation is not None and recommendation.started_with is None:
        conditions.false(
            ConditionType.LIVE_CHANGES,
            "NotCertifiedLive",
            f"TuningRun {recommendation.run} certified it on an engine that was started with it; its condition "
            "LiveTuning says why. Switches go by rollout.",
        )
    else:
        conditions.unknown(
            ConditionType.LIVE_CHANGES,
            "NotDelivered",
            "The next rollout of a setting brings the plugin; later ones are set live.",
        )


def _trouble(obs: ProfileObservation, status: ServingProfileStatus, target: Target) -> LiveTrouble | None:
    before, live = status.live_trouble, target.workload.live
    if before is not None and (before.fingerprint != target.fingerprint or _tried_again(obs, before)):
        before = None
    if before is not None and before.given_up:
        return before
    if live is None or not live.stands:
        return None
    if obs.pods is None:
        return before
    found = _found(obs, target)
    if found is None:
        return None
    since = before.since if before is not None else obs.now
    waited_s = (obs.now - since).total_seconds()
    return LiveTrouble(
        reason=found.reason[:64],
        message=found.message[:1024],
        since=since,
        fingerprint=target.fingerprint,
        given_up=found.definite or waited_s >= CONFIRMED_WITHIN_S,
    )


def _tried_again(obs: ProfileObservation, trouble: LiveTrouble) -> bool:
    """Whether a person has asked for a run since, and it certified a setting live."""
    return any(
        run.spec.trigger == Trigger.REQUESTED
        and run.status.finished_at is not None
        and run.status.finished_at > trouble.since
        and any(c.verdict == Verdict.PASS and c.started_with is not None for c in run.status.certifications)
        for run in obs.runs
    )


def _found(obs: ProfileObservation, target: Target) -> _Found | None:
    """The first pod of the present template that does not say what is expected of it; a definite answer first."""
    live = target.workload.live
    present = [
        p.name for p in obs.pods or () if live is not None and p.delivery == live.delivery and p.name in obs.live
    ]
    found = [one for name in present if (one := _wrong(name, obs.live[name], target)) is not None]
    if _upgrade_takes_less(obs, target):
        found.append(_Found("StartTooHigh", "The new image does not start with what the plugin needs.", definite=True))
    return min(found, key=lambda one: not one.definite, default=None)


def _upgrade_takes_less(obs: ProfileObservation, target: Target) -> bool:
    """Whether new pods fail over a limit, which may be that of the pair that only the plugin needs."""
    upgrade = failed_upgrade(obs, target)
    return upgrade is not None and upgrade.failure.limit_hint is not None


def _wrong(pod: str, report: Report | Unreachable, target: Target) -> _Found | None:
    if isinstance(report, Unreachable):
        told = f"Pod {pod} does not say what it runs with: {report.why}. A NetworkPolicy may keep the operator out."
        return _Found(NO_ANSWER, told)
    if report.unsupported is not None or report.standing is None:
        refusal = report.unsupported
        told = refusal.message if refusal is not None else "it says nothing of its limits."
        return _Found(refusal.reason if refusal is not None else NO_ANSWER, f"Pod {pod}: {told}", definite=True)
    wanted = setting_of(report.standing.wanted)
    if wanted == target.present:
        return None
    return _Found(NOT_IN_FORCE, f"Pod {pod} runs with {wanted} and not yet with {target.present}.")


def ensure_limits(obs: ProfileObservation, status: ServingProfileStatus, target: Target) -> tuple[EnsureLimits, ...]:
    """The ConfigMap, where it is missing or holds nothing that an engine takes: with what was applied last."""
    live, name = target.workload.live, limits_name(obs.profile.metadata["name"])
    if live is None or not live.stands or not is_of_profile(obs, live) or not allows_live_changes(obs.profile.spec):
        return ()
    started = live.delivery.started
    if setting_in(live.limits, started) is not None:
        return ()
    applied = status.applied.setting if status.applied is not None else live.delivery.approved
    return (EnsureLimits(name, applied if is_within(applied, started) else live.delivery.approved),)


def is_under_way(obs: ProfileObservation, status: ServingProfileStatus) -> bool:
    """Whether something of the plugin is to be looked at again soon: a trouble that is not settled, a plugin that is to
    be taken out, or a ConfigMap that is to be made."""
    live, trouble = obs.workload.live if obs.workload is not None else None, status.live_trouble
    if trouble is not None:
        return live is not None or not trouble.given_up
    return live is not None and live.limits is None


def switches_live(
    obs: ProfileObservation, status: ServingProfileStatus, target: Target, recommendation: Recommendation
) -> bool:
    """Whether the recommendation is put in force without a restart: by the plugin that is there, on engines that were
    started as the certified one was."""
    live = target.workload.live
    return (
        _may_be_live(obs, status, target, recommendation)
        and live is not None
        and live.stands
        and is_of_profile(obs, live)
        and live.delivery.started == recommendation.started_with
    )


def fields_for(
    obs: ProfileObservation, status: ServingProfileStatus, target: Target, recommendation: Recommendation
) -> tuple[FieldChange, ...] | NotWritable:
    """What is written to put a recommendation in force; nothing where its words are written themselves."""
    live, name, setting = target.workload.live, limits_name(obs.profile.metadata["name"]), recommendation.setting
    if switches_live(obs, status, target, recommendation):
        assert live is not None  # else it would not switch
        if setting_in(live.limits, live.delivery.started) is None:
            return NotWritable("LimitsMissing", f"ConfigMap {name} is made first, with what is in force.")
        return switch_fields(name, live.limits or "", setting)
    started = recommendation.started_with
    if _may_be_live(obs, status, target, recommendation) and started is not None and obs.plugin_image is not None:
        words = words_with(target.container, started)
        if isinstance(words, Refusal):
            return NotWritable(words.reason, words.message)
        delivery = Delivery(target.container.name, name, started, setting)
        return delivery_fields(target.workload, target.container.env, words, delivery, obs.plugin_image)
    after = words_with(target.container, setting)
    if live is not None and not isinstance(after, Refusal):
        return removal_fields(target.workload, after, _delivered(status))
    return fields_with(target, setting, obs.profile.spec.update_policy.method)


def _may_be_live(
    obs: ProfileObservation, status: ServingProfileStatus, target: Target, recommendation: Recommendation
) -> bool:
    spec, trouble = obs.profile.spec, status.live_trouble
    return (
        recommendation.started_with is not None
        and allows_live_changes(spec)
        and reason_by_rollout(spec, target) is None
        and (trouble is None or not trouble.given_up)
    )


def is_of_profile(obs: ProfileObservation, live: LiveView) -> bool:
    """Whether the plugin follows this profile, and not another one of the same workload."""
    return live.delivery.config_map == limits_name(obs.profile.metadata["name"])


def take_out_if_due(
    obs: ProfileObservation, status: ServingProfileStatus, conditions: ProfileConditions, target: Target
) -> tuple[ServingProfileStatus, tuple[ProfileAction, ...]]:
    """A rollout without the plugin, whose words are what is in force: where live changes are not allowed any more, or
    do not work. Once: one that was rolled back is not begun again."""
    live, spec, words = target.workload.live, obs.profile.spec, target.container.words
    if live is None or not live.stands or spec.suspend:
        return status, ()
    if not target.workload.rolled_out and not _upgrade_takes_less(obs, target):
        return status, ()
    unfit = reason_by_rollout(spec, target)
    owned = unfit is not None and unfit.reason == OWNED_BY_OTHER
    given_up = status.live_trouble is not None and status.live_trouble.given_up
    unwanted = not allows_live_changes(spec) or unfit is not None or given_up
    tried = any(r.setting == target.present and r.fingerprint == target.fingerprint for r in status.rejected)
    if not unwanted or owned or tried:
        return status, ()
    fields = removal_fields(target.workload, words, _delivered(status))
    rollout = Rollout(
        step=RolloutStep.WRITE,
        setting=target.present,
        before=words,
        after=words,
        fields=list(fields),
        started_at=obs.now,
        generation=target.workload.generation,
    )
    message = f"Takes the live-tuning plugin out; {target.present} stays in force."
    conditions.false(ConditionType.APPLIED, "RollingOut", message)
    write = WriteWords(target.container.name, words, words, fields)
    return status.with_changes(rollout=rollout, watched=None), (write,)


def gives_up(status: ServingProfileStatus, rollout: Rollout) -> LiveTrouble | None:
    """Why a rollout that needs the plugin is not waited for any longer: the next one does without."""
    trouble, fields = status.live_trouble, rollout.fields
    needs_plugin = concerns_plugin(fields) and not takes_plugin_out(fields)
    return trouble if needs_plugin and trouble is not None and trouble.given_up else None


def _delivered(status: ServingProfileStatus) -> list[FieldChange]:
    return list(status.applied.fields) if status.applied is not None else []
