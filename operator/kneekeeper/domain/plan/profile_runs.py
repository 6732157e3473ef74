"""Whether a run is needed, and what a finished one means.

A run is needed for every new pair of (engine fingerprint, what the profile asks). The two limits are in
neither, so the operator's own rewrite, a rollback and a recommendation merged by hand never start one.
"""

from __future__ import annotations

import hashlib
import json

from kneekeeper.api.model import ApiModel
from kneekeeper.api.profile_status import EngineFacts, RunReference, ServingProfileStatus
from kneekeeper.api.serving_profile import RetuneTrigger, ServingProfileSpec
from kneekeeper.api.tuning_run import RunOutcome, RunStep, Trigger, TuningRun, measured_part
from kneekeeper.domain.actions import CreateRun, DeleteRun, ProfileAction
from kneekeeper.domain.names import ANNOTATION_RETUNE, run_name
from kneekeeper.domain.observation import ProfileObservation
from kneekeeper.domain.plan.conditions import ConditionType, ProfileConditions
from kneekeeper.domain.plan.recommendation import recommendation_of
from kneekeeper.domain.target import Target

MAX_RETRIES = 2

_RETUNE_TRIGGERS = {
    Trigger.IMAGE: RetuneTrigger.IMAGE,
    Trigger.MODEL: RetuneTrigger.MODEL,
    Trigger.ARGUMENTS: RetuneTrigger.ARGUMENTS,
    Trigger.HARDWARE: RetuneTrigger.HARDWARE,
}
# Ends that say nothing of the engine: the same question may be asked again.
_RETRIED = (RunOutcome.INCONCLUSIVE, RunOutcome.FAILED, RunOutcome.CANCELLED)


def advance(
    obs: ProfileObservation, status: ServingProfileStatus, conditions: ProfileConditions, target: Target
) -> tuple[ServingProfileStatus, tuple[ProfileAction, ...]]:
    """Digest finished runs, then start one if it is needed."""
    status = _digest(obs, status, target)
    active = next((r for r in obs.runs if r.status.step != RunStep.DONE), None)
    status = status.with_changes(active_run=active.metadata["name"] if active else None)
    actions: list[ProfileAction] = list(_forget_old(obs))
    if active is None and not obs.profile.spec.suspend:
        status, create = _start_if_needed(obs, status, target)
        actions.extend(create)
    _tell(obs, status, conditions, target, active)
    return status, tuple(actions)


def run_key(spec: ServingProfileSpec, fingerprint: str) -> str:
    """Two runs with the same key would measure the same thing."""
    parts = [p.to_resource() if isinstance(p, ApiModel) else str(p) for p in measured_part(spec)]
    text = json.dumps([fingerprint, parts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _digest(obs: ProfileObservation, status: ServingProfileStatus, target: Target) -> ServingProfileStatus:
    """Update the references from the runs themselves; take over the newest result."""
    by_name = {r.metadata["name"]: r for r in obs.runs}
    known = {r.name for r in status.runs}
    references = [_updated(r, by_name.get(r.name)) for r in status.runs]
    for name, run in by_name.items():
        if name not in known:  # made by hand, or its reference was lost with a status
            key = run_key(run.status.plan.profile_spec, run.status.plan.fingerprint) if run.status.plan else ""
            references.append(_updated(RunReference(name=name, trigger=run.spec.trigger, key=key), run))
    limit = obs.profile.spec.run_history_limit
    status = status.with_changes(runs=references[-max(limit, 1) :])
    finished = [r for r in obs.runs if r.status.step == RunStep.DONE and r.status.plan is not None]
    if not finished:
        return status
    newest = finished[-1]
    fit = newest.status.fit
    if fit is not None and fit.knee is not None:
        status = status.with_changes(knee=fit.knee)
    if newest.status.outcome == RunOutcome.CERTIFIED:
        return status.with_changes(recommendation=recommendation_of(newest, obs, target, status))
    if newest.status.outcome == RunOutcome.NO_IMPROVEMENT:
        applied = status.applied is not None and status.applied.setting == target.present
        return status if applied else status.with_changes(recommendation=None)
    return status


def _updated(reference: RunReference, run: TuningRun | None) -> RunReference:
    if run is None or run.status.step != RunStep.DONE:
        return reference
    return reference.with_changes(
        outcome=run.status.outcome or "", cause=run.status.cause, finished_at=run.status.finished_at
    )


def _needed(obs: ProfileObservation, status: ServingProfileStatus, target: Target) -> Trigger | None:
    asked = obs.profile.metadata.get("annotations", {}).get(ANNOTATION_RETUNE)
    if asked is not None and asked != status.handled_retune:
        return Trigger.REQUESTED
    key = run_key(obs.profile.spec, target.fingerprint)
    same = [r for r in status.runs if r.key == key]
    if same:
        return _retry(obs, same)
    trigger = _what_changed(obs, status, target)
    watched = _RETUNE_TRIGGERS.get(trigger)
    if watched is not None and watched not in obs.profile.spec.retune.on:
        return None
    return trigger


def _retry(obs: ProfileObservation, same: list[RunReference]) -> Trigger | None:
    last = same[-1]
    if last.finished_at is None or last.outcome not in _RETRIED:
        return None
    if last.cause == "Suspended":
        return Trigger.RETRY
    waited_s = (obs.now - last.finished_at).total_seconds()
    if len(same) > MAX_RETRIES or waited_s < obs.profile.spec.retune.min_interval:
        return None
    return Trigger.RETRY


def _what_changed(obs: ProfileObservation, status: ServingProfileStatus, target: Target) -> Trigger:
    measured = next((r for r in reversed(obs.runs) if r.status.plan is not None), None)
    if measured is None or measured.status.plan is None:
        return Trigger.NEW
    plan = measured.status.plan
    if plan.fingerprint == target.fingerprint:
        return Trigger.PROFILE
    if plan.image != target.container.image:
        return Trigger.IMAGE
    if plan.engine_model != target.arguments.model:
        return Trigger.MODEL
    facts: EngineFacts | None = status.engine
    if facts is not None and (plan.gpu_product, plan.gpus_per_replica) != (
        facts.gpu_product,
        target.container.gpus,
    ):
        return Trigger.HARDWARE
    return Trigger.ARGUMENTS


def _start_if_needed(
    obs: ProfileObservation, status: ServingProfileStatus, target: Target
) -> tuple[ServingProfileStatus, tuple[CreateRun, ...]]:
    """A run whose making was cut off after it was stored is made now, unless its question is out of date."""
    known = {run.metadata["name"] for run in obs.runs}
    unmade = next((r for r in status.runs if r.finished_at is None and r.name not in known), None)
    if unmade is not None and unmade.key == run_key(obs.profile.spec, target.fingerprint):
        return status.with_changes(active_run=unmade.name), (CreateRun(unmade.name, Trigger(unmade.trigger)),)
    if unmade is not None:
        status = status.with_changes(runs=[r for r in status.runs if r != unmade])
    trigger = _needed(obs, status, target)
    if trigger is None:
        return status, ()
    status, create = _start(obs, status, target, trigger)
    return status, (create,)


def _start(
    obs: ProfileObservation, status: ServingProfileStatus, target: Target, trigger: Trigger
) -> tuple[ServingProfileStatus, CreateRun]:
    """The name follows from what is asked and how often it was, so that a repeated start finds the first."""
    key = run_key(obs.profile.spec, target.fingerprint)
    asked = obs.profile.metadata.get("annotations", {}).get(ANNOTATION_RETUNE)
    count = sum(1 for r in status.runs if r.key == key)
    seed = f"{obs.profile.metadata['uid']}/{key}/{count}/{asked}"
    name = run_name(obs.profile.metadata["name"], hashlib.sha256(seed.encode()).hexdigest()[:8])
    reference = RunReference(name=name, trigger=trigger, key=key)
    status = status.with_changes(
        runs=[*status.runs, reference], active_run=name, handled_retune=asked or status.handled_retune
    )
    return status, CreateRun(name, trigger)


def _forget_old(obs: ProfileObservation) -> list[DeleteRun]:
    finished = [r for r in obs.runs if r.status.step == RunStep.DONE]
    excess = len(finished) - obs.profile.spec.run_history_limit
    return [DeleteRun(r.metadata["name"]) for r in finished[: max(0, excess)]]


def _tell(
    obs: ProfileObservation,
    status: ServingProfileStatus,
    conditions: ProfileConditions,
    target: Target,
    active: TuningRun | None,
) -> None:
    if status.active_run is not None:
        reason = (active.status.waiting_for or "Probing") if active else "Probing"
        message = active.status.message if active else f"TuningRun {status.active_run} starts."
        waits = bool(active and active.status.waiting_for in ("NoSpareGPU", "AnotherRun", "TargetRollingOut"))
        (conditions.false if waits else conditions.true)(ConditionType.PROBING, reason, message)
    elif obs.profile.spec.suspend:
        conditions.false(ConditionType.PROBING, "Suspended", "spec.suspend is set.")
    else:
        conditions.false(ConditionType.PROBING, "Idle", "")
    newest = next((r for r in reversed(obs.runs) if r.status.step == RunStep.DONE), None)
    recommendation = status.recommendation
    if recommendation is not None and recommendation.fingerprint == target.fingerprint:
        conditions.true(
            ConditionType.RECOMMENDED,
            "Certified",
            f"{recommendation.setting}: {recommendation.promised_requests_per_second:.3g} requests/s a replica, "
            f"bound by {recommendation.bound_by}. {recommendation.improvement}",
        )
    elif status.active_run is not None:
        conditions.unknown(ConditionType.RECOMMENDED, "Measuring", f"TuningRun {status.active_run} is under way.")
    elif newest is not None and newest.status.outcome == RunOutcome.NO_IMPROVEMENT:
        conditions.true(ConditionType.RECOMMENDED, newest.status.cause, newest.status.message)
    elif newest is not None and newest.status.outcome != RunOutcome.CERTIFIED:
        reason = newest.status.cause or "RunFailed"
        conditions.false(ConditionType.RECOMMENDED, reason, newest.status.message)
    elif recommendation is not None:
        message = "The engine changed; annotate kneekeeper.io/retune=<anything new> to measure it again."
        conditions.false(ConditionType.RECOMMENDED, "EngineChanged", message)
    elif conditions.get(ConditionType.RECOMMENDED) is None:
        conditions.unknown(ConditionType.RECOMMENDED, "NotMeasured", "No run has finished yet.")
