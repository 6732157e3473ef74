"""Whether a run is needed, and what a finished one means.

A run is needed for every new pair of (engine fingerprint, what the profile asks). The two limits are in
neither, so the operator's own rewrite, a rollback and a recommendation merged by hand never start one.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime

from kneekeeper.api.model import ApiModel
from kneekeeper.api.profile_status import RunReference, ServingProfileStatus
from kneekeeper.api.serving_profile import ServingProfileSpec
from kneekeeper.api.tuning_run import RunOutcome, RunStep, Trigger, TuningRun, measured_part
from kneekeeper.domain.actions import CreateRun, DeleteRun, ProfileAction
from kneekeeper.domain.names import run_name
from kneekeeper.domain.observation import ProfileObservation
from kneekeeper.domain.plan.changes import changed
from kneekeeper.domain.plan.conditions import ConditionType, ProfileConditions
from kneekeeper.domain.plan.recommendation import recommendation_of
from kneekeeper.domain.plan.retuning import Hold, WantedRun, asked_for, hold_of, wanted_run
from kneekeeper.domain.target import Target

# What was asked is remembered longer than `runHistoryLimit` keeps the runs: else nobody counted the retries.
LEAST_REFERENCES, MOST_REFERENCES = 10, 99
# A run that waits for one of these has not touched anything yet.
_HELD_BACK = (
    "NoSpareGPU",
    "AnotherRun",
    "TargetRollingOut",
    "TargetScaledToZero",
    "ProductionBusy",
    "ProductionNotReadable",
    "OutsideWindow",
)


def advance(
    obs: ProfileObservation, status: ServingProfileStatus, conditions: ProfileConditions, target: Target
) -> tuple[ServingProfileStatus, tuple[ProfileAction, ...]]:
    """Digest finished runs, then start one if it is needed."""
    status = _digest(obs, status, target)
    active = next((r for r in obs.runs if r.status.step != RunStep.DONE), None)
    status = changed(status, active_run=active.metadata["name"] if active else None)
    actions: list[ProfileAction] = list(_forget_old(obs))
    hold: Hold | None = None
    if active is None and not obs.profile.spec.suspend:
        status, create, hold = _start_if_needed(obs, status, target)
        actions.extend(create)
    _tell(obs, status, conditions, target, active, hold)
    return status, tuple(actions)


def run_key(spec: ServingProfileSpec, fingerprint: str) -> str:
    """Two runs with the same key would measure the same thing."""
    parts = [p.to_resource() if isinstance(p, ApiModel) else str(p) for p in measured_part(spec)]
    text = json.dumps([fingerprint, parts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _digest(obs: ProfileObservation, status: ServingProfileStatus, target: Target) -> ServingProfileStatus:
    """Update the references from the runs themselves; take over the newest result for what is asked now."""
    by_name = {r.metadata["name"]: r for r in obs.runs}
    known = {r.name for r in status.runs}
    references = [_updated(r, by_name.get(r.name), obs.now) for r in status.runs]
    references += [  # made by hand, or its reference was lost with a status
        _updated(RunReference(name=name, trigger=run.spec.trigger, key=""), run, obs.now)
        for name, run in by_name.items()
        if name not in known
    ]
    status = changed(status, runs=_kept(references, status, obs.profile.spec.run_history_limit))
    finished = [r for r in obs.runs if r.status.step == RunStep.DONE]
    fits = [r.status.fit.knee for r in finished if r.status.fit is not None and r.status.fit.knee is not None]
    status = changed(status, knee=fits[-1] if fits else status.knee)
    answered = [
        r
        for r in finished
        if r.status.outcome in (RunOutcome.CERTIFIED, RunOutcome.NO_IMPROVEMENT) and _asks_the_same(r, obs, target)
    ]
    if answered and answered[-1].status.outcome == RunOutcome.CERTIFIED:
        return changed(status, recommendation=recommendation_of(answered[-1], obs, target, status))
    holds = _holds(status, run_key(obs.profile.spec, target.fingerprint))
    if answered and holds and status.recommendation is not None:
        plan = answered[-1].status.plan
        holds = plan is not None and plan.present == status.recommendation.setting
    return status if holds else changed(status, recommendation=None)


def _asks_the_same(run: TuningRun, obs: ProfileObservation, target: Target) -> bool:
    plan = run.status.plan
    return plan is not None and plan.fingerprint == target.fingerprint and plan.measures_the_same_as(obs.profile.spec)


def _holds(status: ServingProfileStatus, key: str) -> bool:
    """Whether the recommendation answers what is asked now: it was proven for this engine and these targets."""
    recommendation = status.recommendation
    return recommendation is not None and any(r.name == recommendation.run and r.key == key for r in status.runs)


def _kept(references: list[RunReference], status: ServingProfileStatus, limit: int) -> list[RunReference]:
    """The newest, and the one that the recommendation rests on."""
    # One more than the runs that are kept: a reference must outlive its run, and one more is under way.
    newest = references[-min(max(limit + 1, LEAST_REFERENCES), MOST_REFERENCES) :]
    recommended = status.recommendation.run if status.recommendation is not None else None
    return [r for r in references if r in newest or r.name == recommended]


def _updated(reference: RunReference, run: TuningRun | None, now: datetime) -> RunReference:
    """As the run itself tells: what it measures is settled by its plan, not by what it was started for."""
    if run is None or reference.finished_at is not None:
        return reference
    plan, status = run.status.plan, run.status
    if plan is not None:
        key = run_key(plan.profile_spec, plan.fingerprint)
        started_at = reference.started_at or status.started_at
        reference = changed(reference, key=key, fingerprint=plan.fingerprint, started_at=started_at)
    if status.step == RunStep.DONE:
        return changed(reference, outcome=status.outcome or "", cause=status.cause, finished_at=status.finished_at)
    if "deletionTimestamp" in run.metadata:
        # Soon it is gone and could not be told from one that was never made.
        return reference.with_changes(outcome=RunOutcome.CANCELLED, cause="Deleted", finished_at=now)
    return reference


def _start_if_needed(
    obs: ProfileObservation, status: ServingProfileStatus, target: Target
) -> tuple[ServingProfileStatus, tuple[CreateRun, ...], Hold | None]:
    """A run whose making was cut off after it was stored is made now, unless its question is out of date."""
    key = run_key(obs.profile.spec, target.fingerprint)
    known = {run.metadata["name"] for run in obs.runs}
    unmade = next((r for r in status.runs if r.finished_at is None and r.name not in known), None)
    if unmade is not None and unmade.key == key:
        return status.with_changes(active_run=unmade.name), (CreateRun(unmade.name, Trigger(unmade.trigger)),), None
    if unmade is not None:
        status = status.with_changes(runs=[r for r in status.runs if r != unmade])
    wanted = wanted_run(obs, status, target, key)
    hold = None if wanted is None else hold_of(obs, wanted)
    if wanted is None or hold is not None:
        return status, (), hold
    status, create = _start(obs, status, target, wanted)
    return status, (create,), None


def _start(
    obs: ProfileObservation, status: ServingProfileStatus, target: Target, wanted: WantedRun
) -> tuple[ServingProfileStatus, CreateRun]:
    """The name follows from what is asked and from the run before, so that a repeated start finds the first."""
    key, asked, trigger = run_key(obs.profile.spec, target.fingerprint), asked_for(obs), wanted.trigger
    last = status.runs[-1].name if status.runs else ""
    seed = f"{obs.profile.metadata['uid']}/{key}/{last}/{asked}"
    name = run_name(obs.profile.metadata["name"], hashlib.sha256(seed.encode()).hexdigest()[:8])
    reference = RunReference(name=name, trigger=trigger, key=key, fingerprint=target.fingerprint, started_at=obs.now)
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
    hold: Hold | None,
) -> None:
    if status.active_run is not None:
        reason = (active.status.waiting_for or "Probing") if active else "Probing"
        message = active.status.message if active else f"TuningRun {status.active_run} starts."
        waits = active is not None and active.status.waiting_for in _HELD_BACK
        (conditions.false if waits else conditions.true)(ConditionType.PROBING, reason, message)
    elif obs.profile.spec.suspend:
        conditions.false(ConditionType.PROBING, "Suspended", "spec.suspend is set.")
    elif hold is not None:
        conditions.false(ConditionType.PROBING, hold.reason, hold.message)
    else:
        conditions.false(ConditionType.PROBING, "Idle", "")
    _tell_recommended(obs, status, conditions, run_key(obs.profile.spec, target.fingerprint))


def _tell_recommended(
    obs: ProfileObservation, status: ServingProfileStatus, conditions: ProfileConditions, key: str
) -> None:
    recommendation = status.recommendation
    last = next((r for r in reversed(status.runs) if r.key == key and r.finished_at is not None), None)
    run = next((r for r in obs.runs if last is not None and r.metadata["name"] == last.name), None)
    told = run.status.message if run is not None else ""
    if recommendation is not None:
        conditions.true(
            ConditionType.RECOMMENDED,
            "Certified",
            f"{recommendation.setting}: {recommendation.promised_requests_per_second:.3g} requests/s a replica, "
            f"bound by {recommendation.bound_by}. {recommendation.improvement}",
        )
    elif status.active_run is not None:
        conditions.unknown(ConditionType.RECOMMENDED, "Measuring", f"TuningRun {status.active_run} is under way.")
    elif last is not None and last.outcome == RunOutcome.NO_IMPROVEMENT:
        conditions.true(ConditionType.RECOMMENDED, last.cause, told)
    elif last is not None and last.outcome != RunOutcome.CERTIFIED:
        conditions.false(ConditionType.RECOMMENDED, last.cause or "RunFailed", told or f"See TuningRun {last.name}.")
    elif status.runs:
        message = "The engine changed; annotate kneekeeper.io/retune=<anything new> to measure it again."
        conditions.false(ConditionType.RECOMMENDED, "EngineChanged", message)
    else:
        conditions.unknown(ConditionType.RECOMMENDED, "NotMeasured", "No run has finished yet.")
