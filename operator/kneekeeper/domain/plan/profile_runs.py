"""Whether a run is needed, and what a finished one means.

A run is needed for every new question (`questions.py`): that of the hours which are now before those of others.
"""

from __future__ import annotations

import hashlib
from datetime import datetime

from kneekeeper.api.profile_status import KneeEstimate, Recommendation, RunReference, ServingProfileStatus
from kneekeeper.api.stage import USERS_SERVED
from kneekeeper.api.tuning_run import RunOutcome, RunStep, Trigger, TuningRun, Verdict
from kneekeeper.domain.actions import CreateRun, DeleteRun, ProfileAction
from kneekeeper.domain.names import run_name
from kneekeeper.domain.observation import ObstacleReason, ProfileObservation
from kneekeeper.domain.plan.changes import changed
from kneekeeper.domain.plan.conditions import ConditionType, ProfileConditions
from kneekeeper.domain.plan.profile_schedule import setting_per_question
from kneekeeper.domain.plan.profile_traffic import NOT_LEARNED
from kneekeeper.domain.plan.questions import RECOMMENDED, Question, run_key
from kneekeeper.domain.plan.recommendation import promise_of, recommendation_of
from kneekeeper.domain.plan.retuning import (
    MAX_RETRIES,
    Hold,
    WantedRun,
    asked_for,
    hold_of,
    wanted_ahead,
    wanted_run,
)
from kneekeeper.domain.plan.run_passive import PREDICTED
from kneekeeper.domain.production_choice import Lack
from kneekeeper.domain.target import Target

# What was asked is remembered longer than `runHistoryLimit` keeps the runs: else nobody counted the retries.
LEAST_REFERENCES, MOST_REFERENCES = 10, 99
# A run that waits for one of these touches nothing meanwhile.
_HELD_BACK = (
    "NoSpareGPU",
    "FleetBudget",
    "AnotherRun",
    "TargetRollingOut",
    "TargetScaledToZero",
    "DisruptionBudget",
    "ProductionBusy",
    "ProductionNotReadable",
    "OutsideWindow",
    "PresentBelowBounds",
    USERS_SERVED,
    *Lack,
    *ObstacleReason,
    NOT_LEARNED,
)


def advance(
    obs: ProfileObservation,
    status: ServingProfileStatus,
    conditions: ProfileConditions,
    target: Target,
    questions: tuple[Question, ...],
) -> tuple[ServingProfileStatus, tuple[ProfileAction, ...]]:
    """Digest finished runs, then start one for the first question if it is needed."""
    status = _digest(obs, status, target, questions)
    active = next((r for r in obs.runs if r.status.step != RunStep.DONE), None)
    status = changed(status, active_run=active.metadata["name"] if active else None)
    actions: list[ProfileAction] = list(_forget_old(obs, target, questions))
    hold: Hold | None = None
    if active is None and not obs.profile.spec.suspend:
        status, create, hold = _start_if_needed(obs, status, target, questions[0])
        actions.extend(create)
    _tell(obs, status, conditions, active, hold)
    _tell_recommended(obs, status, conditions, questions[0].key)
    return status, tuple(actions)


def measure_ahead(
    obs: ProfileObservation,
    status: ServingProfileStatus,
    conditions: ProfileConditions,
    target: Target,
    questions: tuple[Question, ...],
) -> tuple[ServingProfileStatus, tuple[ProfileAction, ...]]:
    """A run for other hours than these, where nothing else is under way or asked for."""
    asked = asked_for(obs)
    waits = asked is not None and asked != status.handled_retune
    if status.active_run is not None or obs.profile.spec.suspend or waits:
        return status, ()
    for question in questions[1:]:
        wanted = wanted_ahead(obs, status, target, question)
        hold = None if wanted is None else hold_of(obs, wanted)
        if wanted is not None and hold is None:
            status, create = _start(obs, status, target, wanted, question)
            _tell(obs, status, conditions, None, None)
            return status, (create,)
    return status, ()


def _digest(
    obs: ProfileObservation, status: ServingProfileStatus, target: Target, questions: tuple[Question, ...]
) -> ServingProfileStatus:
    """Update the references from the runs themselves; take over the newest result for what is asked now."""
    by_name = {r.metadata["name"]: r for r in obs.runs}
    known = {r.name for r in status.runs}
    references = [_updated(r, by_name.get(r.name), obs.now) for r in status.runs]
    references += [  # made by hand, or its reference was lost with a status
        _updated(RunReference(name=name, trigger=run.spec.trigger, key=""), run, obs.now)
        for name, run in by_name.items()
        if name not in known
    ]
    status = changed(status, runs=_kept(references, status, obs.profile.spec.run_history_limit, questions))
    finished = [r for r in obs.runs if r.status.step == RunStep.DONE]
    fits = _knees([r for r in finished if questions[0].is_measured_by(r, target)]) or _knees(finished)
    status = changed(status, knee=fits[-1] if fits else status.knee)
    if status.schedule is not None:
        settings = setting_per_question(obs.runs, target, questions)
        status = changed(status, schedule=changed(status.schedule, settings=settings))
    return _with_recommendation(obs, status, target, questions[0])


def _knees(runs: list[TuningRun]) -> list[KneeEstimate]:
    return [r.status.fit.knee for r in runs if r.status.fit is not None and r.status.fit.knee is not None]


def _with_recommendation(
    obs: ProfileObservation, status: ServingProfileStatus, target: Target, question: Question
) -> ServingProfileStatus:
    answers = [r for r in obs.runs if question.is_answered_by(r, target)]
    last = answers[-1] if answers else None
    plan = last.status.plan if last is not None else None
    if last is not None and plan is not None:
        # What a run found no better than the setting that stood then is still better proven than another hour's.
        other_hours = bool(obs.profile.spec.schedules) and target.present != plan.present
        if last.status.outcome in RECOMMENDED or other_hours or _proves(last, status.recommendation):
            return changed(status, recommendation=recommendation_of(last, obs, target, status))
    holds = _holds(status, question.key)
    if plan is not None and holds and status.recommendation is not None:
        holds = plan.present == status.recommendation.setting
    return status if holds else changed(status, recommendation=None)


def _proves(run: TuningRun, predicted: Recommendation | None) -> bool:
    """Whether the run certified what was only predicted and is in force by now, since its user put it there."""
    if predicted is None or predicted.is_certified:
        return False
    return any(c.verdict == Verdict.PASS and c.setting == predicted.setting for c in run.status.certifications)


def _holds(status: ServingProfileStatus, key: str) -> bool:
    """Whether the recommendation answers what is asked now: it was proven for this engine and these targets."""
    recommendation = status.recommendation
    return recommendation is not None and any(r.name == recommendation.run and r.key == key for r in status.runs)


def _kept(
    references: list[RunReference], status: ServingProfileStatus, limit: int, questions: tuple[Question, ...]
) -> list[RunReference]:
    """The newest, the one that the recommendation rests on, and of each question as many as its tries."""
    recommended = status.recommendation.run if status.recommendation is not None else None
    asked = [r for q in questions for r in [r for r in references if r.key == q.key][-1 - MAX_RETRIES :]]
    # One more than the runs that are kept: a reference must outlive its run, and one more is under way.
    newest = references[-min(max(limit + 1, LEAST_REFERENCES), MOST_REFERENCES - len(asked)) :]
    return [r for r in references if r in newest or r in asked or r.name == recommended]


def _updated(reference: RunReference, run: TuningRun | None, now: datetime) -> RunReference:
    """As the run itself tells: what it measures is settled by its plan, not by what it was started for."""
    if run is None or reference.finished_at is not None:
        return reference
    plan, status = run.status.plan, run.status
    if plan is not None:
        key = run_key(plan.asked_spec, plan.fingerprint)
        started_at = reference.started_at or status.started_at
        reference = changed(reference, key=key, fingerprint=plan.fingerprint, started_at=started_at)
    if status.step == RunStep.DONE:
        return changed(reference, outcome=status.outcome or "", cause=status.cause, finished_at=status.finished_at)
    if "deletionTimestamp" in run.metadata:
        # Soon it is gone and could not be told from one that was never made.
        return reference.with_changes(outcome=RunOutcome.CANCELLED, cause="Deleted", finished_at=now)
    return reference


def _start_if_needed(
    obs: ProfileObservation, status: ServingProfileStatus, target: Target, question: Question
) -> tuple[ServingProfileStatus, tuple[CreateRun, ...], Hold | None]:
    """A run whose making was cut off after it was stored is made now, unless its question is out of date."""
    known = {run.metadata["name"] for run in obs.runs}
    unmade = next((r for r in status.runs if r.finished_at is None and r.name not in known), None)
    if unmade is not None and unmade.key == question.key:
        create = CreateRun(unmade.name, Trigger(unmade.trigger), question.entry)
        return status.with_changes(active_run=unmade.name), (create,), None
    if unmade is not None:
        status = status.with_changes(runs=[r for r in status.runs if r != unmade])
    wanted = wanted_run(obs, status, target, question)
    hold = None if wanted is None else hold_of(obs, wanted)
    if wanted is None or hold is not None:
        return status, (), hold
    status, create = _start(obs, status, target, wanted, question)
    return status, (create,), None


def _start(
    obs: ProfileObservation, status: ServingProfileStatus, target: Target, wanted: WantedRun, question: Question
) -> tuple[ServingProfileStatus, CreateRun]:
    """The name follows from what is asked and from the run before, so that a repeated start finds the first."""
    key, asked, trigger = question.key, asked_for(obs), wanted.trigger
    last = status.runs[-1].name if status.runs else ""
    seed = f"{obs.profile.metadata['uid']}/{key}/{last}/{asked}"
    name = run_name(obs.profile.metadata["name"], hashlib.sha256(seed.encode()).hexdigest()[:8])
    reference = RunReference(name=name, trigger=trigger, key=key, fingerprint=target.fingerprint, started_at=obs.now)
    status = status.with_changes(
        runs=[*status.runs, reference], active_run=name, handled_retune=asked or status.handled_retune
    )
    return status, CreateRun(name, trigger, question.entry)


def _forget_old(obs: ProfileObservation, target: Target, questions: tuple[Question, ...]) -> list[DeleteRun]:
    """With schedules the newest answer to each question stays: at its hour it is written again."""
    finished = [r for r in obs.runs if r.status.step == RunStep.DONE]
    excess = max(0, len(finished) - obs.profile.spec.run_history_limit)
    if obs.profile.spec.schedules:
        answers = [[r for r in finished if q.is_answered_by(r, target)][-1:] for q in questions]
        finished = [r for r in finished if [r] not in answers]
    return [DeleteRun(r.metadata["name"]) for r in finished[:excess]]


def _tell(
    obs: ProfileObservation,
    status: ServingProfileStatus,
    conditions: ProfileConditions,
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


def _tell_recommended(
    obs: ProfileObservation, status: ServingProfileStatus, conditions: ProfileConditions, key: str
) -> None:
    recommendation = status.recommendation
    last = next((r for r in reversed(status.runs) if r.key == key and r.finished_at is not None), None)
    run = next((r for r in obs.runs if last is not None and r.metadata["name"] == last.name), None)
    told = run.status.message if run is not None else ""
    if recommendation is not None and not recommendation.is_certified:
        conditions.true(
            ConditionType.RECOMMENDED,
            PREDICTED,
            f"{recommendation.setting}, bound by {recommendation.bound_by}. {recommendation.improvement}",
        )
    elif recommendation is not None:
        conditions.true(
            ConditionType.RECOMMENDED,
            "Certified",
            f"{recommendation.setting}: {promise_of(recommendation)}, bound by {recommendation.bound_by}. "
            f"{recommendation.improvement}",
        )
    elif status.active_run is not None and not _is_for_other_hours(obs, status, key):
        conditions.unknown(ConditionType.RECOMMENDED, "Measuring", f"TuningRun {status.active_run} is under way.")
    elif last is not None and last.outcome == RunOutcome.NO_IMPROVEMENT:
        conditions.true(ConditionType.RECOMMENDED, last.cause, told)
    elif last is not None and last.outcome not in RECOMMENDED:
        conditions.false(ConditionType.RECOMMENDED, last.cause or "RunFailed", told or f"See TuningRun {last.name}.")
    elif status.runs:
        message = "The engine changed; annotate kneekeeper.io/retune=<anything new> to measure it again."
        conditions.false(ConditionType.RECOMMENDED, "EngineChanged", message)
    else:
        conditions.unknown(ConditionType.RECOMMENDED, "NotMeasured", "No run has finished yet.")


def _is_for_other_hours(obs: ProfileObservation, status: ServingProfileStatus, key: str) -> bool:
    """Whether the run under way asks another question of the profile's schedules."""
    keys = [r.key for r in status.runs if r.name == status.active_run]
    return bool(obs.profile.spec.schedules) and keys not in ([""], [key])
