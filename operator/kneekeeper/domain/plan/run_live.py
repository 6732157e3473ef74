"""Another setting on the engine that runs, without a restart; wherever that does not work, an engine is started."""

from __future__ import annotations

from dataclasses import dataclass

from kneekeeper.api.model import ConditionStatus, Setting
from kneekeeper.api.run_plan import RunPlan
from kneekeeper.api.tuning_run import TuningRunStatus
from kneekeeper.domain.actions import SetLimits
from kneekeeper.domain.live_environment import unknown_variables
from kneekeeper.domain.live_production import is_within
from kneekeeper.domain.live_settings import limits_of
from kneekeeper.domain.observation import PodPhase, PodView, RunObservation, StageView, Unreachable
from kneekeeper.domain.plan.changes import changed
from kneekeeper.domain.plan.conditions import ConditionType, set_condition
from kneekeeper.domain.plan.decisions import RunDecision
from kneekeeper.domain.plan.evaluate import ceiling_of
from kneekeeper.domain.plan.live_scope import is_tuned_live
from kneekeeper.domain.plan.run_clone import CloneReady, engine_container
from kneekeeper.domain.plan.run_end import waiting
from kneekeeper.livetune.limits import Limits

SET_LIVE = "SetLive"
NO_ANSWER = "PluginMissing"
LAPSED = "Lapsed"
NOT_DELIVERED = "NotDelivered"
_TICK_S = 1.0


@dataclass(frozen=True)
class NotLive:
    """An engine has to be started for the setting; where live tuning is allowed and failed, `status` says why."""

    status: TuningRunStatus


@dataclass(frozen=True)
class _Problem:
    reason: str
    message: str


def tune_live(obs: RunObservation, status: TuningRunStatus, setting: Setting) -> CloneReady | RunDecision | NotLive:
    """The engine that runs, with `setting`; a RunDecision sets it.

    A change that lapsed under a stage is not made again: the stage saw two settings, so an engine is started.
    """
    plan, clone, pod = status.plan, status.clone, obs.clone
    assert plan is not None  # frozen by Preflight
    if not is_tuned_live(plan) or clone is None or not is_within(setting, clone.setting):
        return NotLive(status)
    if setting == clone.setting and not is_as_production(status):
        return NotLive(status)  # it was started for it
    if pod is None or pod.deleting or pod.phase != PodPhase.RUNNING or pod.exit_code is not None:
        return NotLive(status)
    if isinstance(obs.live, Unreachable) and _under_load(obs, status):
        # An engine under load may answer late; what is set holds for a minute, and the stage's end is asked again.
        return RunDecision(
            waiting(status, "EngineSilent", f"Asks the engine again: {obs.live.why}."), next_tick_s=_TICK_S
        )
    wanted = limits_of(setting)
    problem = _problem(obs, plan, wanted)
    if problem is not None:
        return NotLive(_told(obs, status, ConditionStatus.FALSE, problem.reason, problem.message))
    return _set(obs, status, pod, setting, wanted)


def is_as_production(status: TuningRunStatus) -> bool:
    """Whether the engine that runs was started as production's are under live changes, and set live since."""
    plan, clone = status.plan, status.clone
    return (
        plan is not None and plan.live_start is not None and clone is not None and clone.setting == ceiling_of(status)
    )


def _set(
    obs: RunObservation, status: TuningRunStatus, pod: PodView, setting: Setting, wanted: Limits
) -> CloneReady | RunDecision | NotLive:
    assert status.clone is not None  # and obs.live is a report, both seen before
    assert obs.live is not None
    assert not isinstance(obs.live, Unreachable)
    if obs.live.standing is not None and obs.live.standing.wanted == wanted:
        message = f"{setting} is set live on the engine that was started with {status.clone.setting}."
        return CloneReady(_told(obs, status, ConditionStatus.TRUE, SET_LIVE, message), pod, setting)
    if status.current_stage is not None:
        message = f"{setting} lapsed under a stage, since the engine had not heard from the operator for a minute."
        return NotLive(_told(obs, status, ConditionStatus.FALSE, LAPSED, message))
    told = waiting(status, "SettingLimits", f"Sets {setting} on the engine that runs.")
    return RunDecision(told, (SetLimits(pod.ip, setting),), next_tick_s=_TICK_S)


def _under_load(obs: RunObservation, status: TuningRunStatus) -> bool:
    return status.current_stage is not None and isinstance(obs.stage, StageView) and obs.stage.samples is None


def _problem(obs: RunObservation, plan: RunPlan, wanted: Limits) -> _Problem | None:
    unknown = unknown_variables(engine_container(obs.workload, plan).env)
    if unknown:
        told = f"{' and '.join(unknown)} may be set by a source that is not read, so that the plugin is not added."
        return _Problem(NOT_DELIVERED, told)
    report = obs.live
    if report is None or isinstance(report, Unreachable):
        why = "it has no address yet" if report is None else report.why
        return _Problem(NO_ANSWER, f"The engine cannot be tuned live: {why}.")
    if report.unsupported is not None:
        return _Problem(report.unsupported.reason, report.unsupported.message)
    refusal = report.envelope.refusal(wanted) if report.envelope is not None else None
    return _Problem(refusal.reason, refusal.message) if refusal is not None else None


def _told(
    obs: RunObservation, status: TuningRunStatus, verdict: ConditionStatus, reason: str, message: str
) -> TuningRunStatus:
    if verdict is ConditionStatus.FALSE:
        message = f"{message} An engine is started for it instead."
    conditions = set_condition(
        status.conditions,
        ConditionType.LIVE_TUNING,
        verdict,
        reason,
        message,
        generation=int(obs.run.metadata.get("generation", 0)),
        now=obs.now,
    )
    return changed(status, conditions=conditions)
