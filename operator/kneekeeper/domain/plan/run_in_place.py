"""A serving pod itself as the engine under test, while it has no users.

Nothing is made, written, scaled or restarted, so nothing has to be given back, whoever dies: the load is all there is,
and the load agent ends that by itself (`load/guard.py`). docs/adr/0010-probing-a-serving-pod.md tells why.
"""

from __future__ import annotations

from dataclasses import dataclass

from kneekeeper.api.model import Setting
from kneekeeper.api.quantities import counted
from kneekeeper.api.run_plan import RunPlan, SettingBounds
from kneekeeper.api.run_pods import CloneState
from kneekeeper.api.serving_profile import ProbeTarget
from kneekeeper.api.stage import METRICS_UNREADABLE, USERS_SERVED, WINDOW_CLOSED, Guard
from kneekeeper.api.tuning_run import CurrentStage, RunOutcome, TuningRunStatus
from kneekeeper.domain.actions import DeleteAgent
from kneekeeper.domain.observation import EngineMetrics, PodPhase, PodView, RunObservation
from kneekeeper.domain.plan.changes import changed
from kneekeeper.domain.plan.decisions import RunDecision
from kneekeeper.domain.plan.run_clone import CloneReady, engine_container, with_cache_size
from kneekeeper.domain.plan.run_end import blocked, ended, waiting
from kneekeeper.domain.target import present_setting
from kneekeeper.domain.windows import closes_at

PAUSE_S = 30.0
"""After a stage that users broke off: where one came, others may follow."""

MOST_INTERRUPTED = 3
"""Stages in a row. More would be load on a pod that has users."""

MOST_PODS = 3
"""A run is no reason to follow pods that others replace all the time."""

SERVING_ENGINE_ENDED = "ServingEngineEnded"
SERVING_POD_NOT_READY = "ServingPodNotReady"
NEVER_AGAIN = (SERVING_ENGINE_ENDED, SERVING_POD_NOT_READY)
"""Ends in which users were harmed, it may be by the load: only a person starts another run."""

_LOOKING_S = 5.0
_INTERRUPTED = (USERS_SERVED, METRICS_UNREADABLE)


@dataclass(frozen=True)
class NotInPlace:
    """Why no serving pod can be measured; `message` names the next step."""

    reason: str
    message: str


def is_in_place(plan: RunPlan) -> bool:
    """Whether the run measures a serving pod itself."""
    return plan.probe_target is ProbeTarget.IN_PLACE


def reason_not_in_place(present: Setting, bounds: SettingBounds) -> NotInPlace | None:
    """The pod is never started anew, so nothing above the present setting is seen: it has to lie inside the bounds."""
    low = bounds.lowest
    if present.max_num_seqs >= low.max_num_seqs and present.max_num_batched_tokens >= low.max_num_batched_tokens:
        return None
    return NotInPlace(
        "PresentBelowBounds",
        f"a serving pod is measured as it runs, and its {present} lies below spec.parameters, which begin at {low}: "
        "lower their min",
    )


def guard_of(plan: RunPlan, current: CurrentStage) -> Guard | None:
    """What ends a stage's load by itself; None where the engine is the run's own. The same whenever it is asked."""
    window = plan.profile_spec.probe.window
    if not is_in_place(plan) or window is None:
        return None
    return Guard(until_s=closes_at(window, current.started_at).timestamp())


def want_serving_pod(obs: RunObservation, status: TuningRunStatus) -> CloneReady | RunDecision:
    """The serving pod that is measured: a RunDecision says that there is none yet, or that it is let alone."""
    plan, workload, state, pod = status.plan, obs.workload, status.clone, obs.clone
    assert plan is not None  # frozen by Preflight
    assert workload is not None  # run.decide ends a run whose workload is gone
    if obs.obstacle is not None:
        return RunDecision(blocked(status, obs.obstacle))
    if present_setting(engine_container(workload, plan)) != plan.present:
        edited = "The workload's limits were changed during the run. Annotate kneekeeper.io/retune to measure it anew."
        return _let_alone(status, RunOutcome.CANCELLED, "TargetChanged", edited)
    pinned = state is not None and state.serving_pod != ""
    if pod is None or pod.deleting or pod.phase is not PodPhase.RUNNING or (pinned and pod.uid != _uid_of(state)):
        return _without_pod(obs, status, plan, pinned)
    if state is None or not pinned:
        if not pod.ready or not workload.rolled_out:
            return _looking(
                status, "TargetRollingOut", "Waits until the workload has rolled out and a serving pod is ready."
            )
        state = CloneState(
            start=1 if state is None else state.start,
            setting=plan.present,
            since=obs.now,
            ready_at=obs.now,
            serving_pod=pod.uid,
            serving_pod_restarts=pod.restarts,
        )
    if pod.restarts > state.serving_pod_restarts or pod.exit_code is not None:
        died = f"The engine of serving pod {pod.name} ended during the run: it gets no more load. Its log says why."
        return _let_alone(status, RunOutcome.FAILED, SERVING_ENGINE_ENDED, died)
    if not pod.ready:
        unready = (
            f"Serving pod {pod.name} is not ready any more: it gets no more load. Raise the timeout of its readiness "
            "probe where a full engine answers it too late."
        )
        return _let_alone(status, RunOutcome.FAILED, SERVING_POD_NOT_READY, unready)
    return CloneReady(changed(status, clone=with_cache_size(state, obs)), pod, plan.present)


def _uid_of(state: CloneState | None) -> str:
    return "" if state is None else state.serving_pod


def _without_pod(obs: RunObservation, status: TuningRunStatus, plan: RunPlan, pinned: bool) -> RunDecision:
    """Another pod took the place of the measured one, or soon will: the engine is the same, and it is warmed up anew.
    The agent goes at once: its load must not follow an address to whoever gets that."""
    state = status.clone
    if state is None or not pinned:
        return _looking(status, "ServingPodMissing", "Waits for a serving pod that runs.")
    if state.start >= MOST_PODS:
        message = f"{MOST_PODS} serving pods went away in mid-run, each while it was measured. Look for what ends them."
        return _let_alone(status, RunOutcome.INCONCLUSIVE, "ServingPodsReplaced", message)
    state = CloneState(start=state.start + 1, setting=plan.present, since=obs.now)
    status = status.with_changes(clone=state, current_stage=None, last_stage_ended_at=None)
    told = waiting(status, "ServingPodReplaced", "The serving pod went away; waits for the one that takes its place.")
    return RunDecision(told, (DeleteAgent(),), next_tick_s=_LOOKING_S)


def _looking(status: TuningRunStatus, reason: str, message: str) -> RunDecision:
    return RunDecision(waiting(status, reason, message), next_tick_s=_LOOKING_S)


def _let_alone(status: TuningRunStatus, outcome: RunOutcome, cause: str, message: str) -> RunDecision:
    return RunDecision(ended(status, outcome, cause, message), (DeleteAgent(),))


def pause_s(status: TuningRunStatus, plan: RunPlan) -> float:
    """The least time until the next stage."""
    interrupted = bool(status.stages) and status.stages[-1].ended_by in _INTERRUPTED
    return max(PAUSE_S if interrupted else 0.0, plan.profile_spec.probe.ladder.recovery)


def with_users(obs: RunObservation, status: TuningRunStatus, pod: PodView) -> TuningRunStatus:
    """The status of a run that waits until its pod has no users, as far as that is why."""
    metrics = obs.clone_metrics
    if not isinstance(metrics, EngineMetrics):
        return waiting(status, METRICS_UNREADABLE, f"Waits until the metrics of serving pod {pod.name} can be read.")
    inside = metrics.running + metrics.waiting
    if inside == 0:
        return status
    message = f"Serving pod {pod.name} works on {counted(inside, 'request')} of users: waits until it has none."
    return waiting(status, USERS_SERVED, message)


def interrupted_too_often(status: TuningRunStatus) -> TuningRunStatus | None:
    """The ended status where the last stages were broken off; None where the run goes on."""
    last = status.stages[-MOST_INTERRUPTED:]
    if last and last[-1].ended_by == WINDOW_CLOSED:
        closed = "spec.probe.window closed during the run; it is started anew in the next one."
        return ended(status, RunOutcome.CANCELLED, WINDOW_CLOSED, closed)
    if len(last) < MOST_INTERRUPTED or any(stage.ended_by not in _INTERRUPTED for stage in last):
        return None
    message = (
        f"{MOST_INTERRUPTED} stages in a row were broken off: {last[-1].message} Choose a spec.probe.window in which "
        "the workload has no users."
    )
    cause = USERS_SERVED if last[-1].ended_by == USERS_SERVED else METRICS_UNREADABLE
    return ended(status, RunOutcome.INCONCLUSIVE, cause, message)
