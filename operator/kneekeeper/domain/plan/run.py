"""One experiment, step by step.

Preflight → (Sources) → (Borrow) → Ceiling → Ramp → Choose → Certify → Baseline → CleanUp.

`decide` is called every few seconds with what is stored and what is seen. Steps that need no waiting follow
each other in one call's status only when nothing outside has to happen between them.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

from kneekeeper.api.model import Condition, ConditionStatus
from kneekeeper.api.serving_profile import ProbeTarget
from kneekeeper.api.tuning_run import RunOutcome, RunStep, TuningRunStatus
from kneekeeper.domain.observation import RunObservation
from kneekeeper.domain.plan import (
    run_borrow,
    run_clean_up,
    run_in_place,
    run_measure,
    run_passive,
    run_prediction,
    run_preflight,
    run_sources,
)
from kneekeeper.domain.plan.changes import changed
from kneekeeper.domain.plan.conditions import ConditionType, set_condition
from kneekeeper.domain.plan.decisions import RunDecision
from kneekeeper.domain.plan.questions import ANSWERS
from kneekeeper.domain.plan.run_borrow import look_at_production, reason_to_return
from kneekeeper.domain.plan.run_end import cut_short, ended
from kneekeeper.domain.schedules import specs_asked
from kneekeeper.domain.target import Target, resolve
from kneekeeper.domain.windows import is_open

FINISHED_TICK_S = 300.0


def decide(obs: RunObservation) -> RunDecision:
    """The next status and actions of this run.

    Whatever goes wrong in here ends the run: a bug must not keep a borrowed replica or a GPU.
    """
    status = obs.run.status
    if status.step == RunStep.DONE:
        return RunDecision(status, next_tick_s=FINISHED_TICK_S, release=True)
    if status.started_at is None:
        status = status.with_changes(started_at=obs.now)
    try:
        decision = _advance(obs, status)
    except Exception as error:
        if status.step == RunStep.CLEAN_UP:
            raise
        status = cut_short(status, RunOutcome.FAILED, "InternalError", _report(error))
        decision = run_clean_up.clean_up(obs, status)
    return replace(decision, status=_with_condition(obs, decision.status))


def _report(error: Exception) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"A bug in kneekeeper, please report it: {type(error).__name__} in {place.name} "
        f"({PurePath(place.filename).name}:{place.lineno}): {error}"
    )


def _advance(obs: RunObservation, status: TuningRunStatus) -> RunDecision:
    if status.step != RunStep.CLEAN_UP:
        status = look_at_production(obs, status)
        stop, needed = _reason_to_stop(obs, status), reason_to_return(obs, status)
        if stop is not None:
            status = ended(status, RunOutcome.CANCELLED, *stop)
        elif needed is not None:
            status = cut_short(status, RunOutcome.CANCELLED, *needed)
    return _step(obs, status)


def _step(obs: RunObservation, status: TuningRunStatus) -> RunDecision:
    match status.step:
        case RunStep.PREFLIGHT:
            return run_preflight.preflight(obs, status)
        case RunStep.SOURCES:
            return run_sources.read_sources(obs, status)
        case RunStep.BORROW:
            return run_borrow.borrow(obs, status)
        case RunStep.CEILING:
            return run_measure.ceiling(obs, status)
        case RunStep.RAMP:
            return run_measure.ramp(obs, status)
        case RunStep.CHOOSE:
            passive = status.plan is not None and status.plan.probe_target is ProbeTarget.PASSIVE
            return (run_passive.choose_from_production if passive else run_measure.choose_setting)(obs, status)
        case RunStep.CERTIFY:
            return run_measure.certify(obs, status)
        case RunStep.BASELINE:
            in_place = status.plan is not None and run_in_place.is_in_place(status.plan)
            return (run_prediction.compare_in_place if in_place else run_measure.baseline)(obs, status)
        case _:
            return run_clean_up.clean_up(obs, status)


def _reason_to_stop(obs: RunObservation, status: TuningRunStatus) -> tuple[str, str] | None:
    if obs.deleting:
        return "Deleted", "The run was deleted."
    if obs.profile_problem:
        return "ProfileNotUnderstood", obs.profile_problem
    if obs.profile is None:
        return "ProfileGone", f"ServingProfile {obs.run.spec.profile_name} does not exist."
    if obs.profile.metadata.get("deletionTimestamp"):
        return "ProfileGone", f"ServingProfile {obs.run.spec.profile_name} is being deleted."
    if obs.profile.spec.suspend:
        return "Suspended", "The profile is suspended."
    plan = status.plan
    if plan is None:
        return None
    window = plan.profile_spec.probe.window
    if window is not None and not is_open(window, obs.now):
        return "WindowClosed", "spec.probe.window closed during the run; it is started anew in the next one."
    if not any(plan.measures_the_same_as(asked) for asked in specs_asked(obs.profile.spec)):
        return "ProfileChanged", "The profile changed during the run; a new run follows."
    if obs.workload is None:
        return "TargetGone", "The workload does not exist any more."
    # The digest is that of the planned reference: another reference is another engine until its pods run.
    target = resolve(obs.workload, plan.profile_spec.target_ref, plan.gpu_product, plan.image_digest)
    if not isinstance(target, Target):
        return "TargetChanged", target.message
    if target.container.name != plan.container:
        return "TargetChanged", f"Container {plan.container} became {target.container.name} during the run."
    if target.container.image != plan.image or target.fingerprint != plan.fingerprint:
        return "TargetChanged", "Image, model or arguments changed during the run; a new run follows."
    return None


def _with_condition(obs: RunObservation, status: TuningRunStatus) -> TuningRunStatus:
    generation = int(obs.run.metadata.get("generation", 0))
    if status.step == RunStep.DONE:
        good = status.outcome in ANSWERS
        verdict, reason = (ConditionStatus.TRUE if good else ConditionStatus.FALSE), status.cause
    else:
        verdict, reason = ConditionStatus.UNKNOWN, status.waiting_for or f"{status.step}"
    conditions = set_condition(
        _with_warning(obs, status),
        ConditionType.SUCCEEDED,
        verdict,
        reason,
        status.message,
        generation=generation,
        now=obs.now,
    )
    return changed(status, conditions=conditions, observed_generation=generation)


def _with_warning(obs: RunObservation, status: TuningRunStatus) -> Sequence[Condition]:
    """What drawn prompts misjudge is said for as long as the run is there: its numbers are then a rough guide."""
    told = status.plan.unrepresentative if status.plan is not None else ""
    if not told:
        return status.conditions
    return set_condition(
        status.conditions,
        ConditionType.PROMPTS_REPRESENTATIVE,
        ConditionStatus.FALSE,
        run_preflight.UNREPRESENTATIVE_PROMPTS,
        told,
        generation=int(obs.run.metadata.get("generation", 0)),
        now=obs.now,
    )
