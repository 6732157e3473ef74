"""The engine under test: started with a wanted setting, watched until it is ready, lowered when it fails."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kneekeeper.api.model import Setting
from kneekeeper.api.rollout import ContainerWords
from kneekeeper.api.run_plan import RunPlan
from kneekeeper.api.run_pods import CloneFailure, CloneState
from kneekeeper.api.tuning_run import RunOutcome, TuningRunStatus
from kneekeeper.domain.actions import DeleteClone, EnsureAgent, EnsureClone
from kneekeeper.domain.arguments import Refusal
from kneekeeper.domain.engines import valid_sequence_grid
from kneekeeper.domain.observation import (
    ContainerView,
    EngineMetrics,
    ObstacleReason,
    PodPhase,
    PodView,
    RunObservation,
    WorkloadView,
)
from kneekeeper.domain.plan.changes import changed
from kneekeeper.domain.plan.decisions import RunDecision
from kneekeeper.domain.plan.run_delivery import delivered_to
from kneekeeper.domain.plan.run_end import blocked, budget_exhausted, cut_short, waiting
from kneekeeper.domain.startup_failures import FailureKind, StartupFailure, classify
from kneekeeper.domain.target import present_setting, words_with

# A pod may outlive its budget by this much before Kubernetes ends it without the operator.
DEADLINE_SLACK_S = 600
# A pod that no node takes is waited for this long, since its GPU was free a moment ago; with allowScaleUp as
# long as a start may take.
UNSCHEDULED_S = 300.0

MAX_FAILURES = 16
"""As many as a run's status holds."""

# Why the kubelet or the cluster ended a pod, whatever its engine did.
_TAKEN_AWAY = ("DeadlineExceeded", "Evicted", "NodeLost", "NodeShutdown", "Preempting", "Shutdown", "Terminated")

# No setting of the two limits mends these.
_NOT_OF_THE_LIMITS = (
    FailureKind.NOT_INSTALLED,
    FailureKind.SERVICE_PORT_ENV,
    FailureKind.UNKNOWN_FLAG,
    FailureKind.INVALID_ARGUMENT,
    FailureKind.MODEL_LENGTH_TOO_LONG,
    FailureKind.MODEL_NOT_FOUND,
)


@dataclass(frozen=True)
class CloneDown:
    """The clone ended by itself: why, as far as its log says."""

    failure: StartupFailure
    was_ready: bool


@dataclass(frozen=True)
class CloneReady:
    """The clone serves with `setting`; `status` carries when it became ready."""

    status: TuningRunStatus
    pod: PodView
    setting: Setting


def want_clone(obs: RunObservation, status: TuningRunStatus, setting: Setting) -> CloneReady | CloneDown | RunDecision:
    """Bring the clone to `setting`: a RunDecision says that it takes time yet, or that the run cannot go on."""
    plan = status.plan
    assert plan is not None  # frozen by Preflight before any clone
    clone = status.clone
    if clone is None or clone.setting != setting:
        return start_clone(obs, status, setting)
    if obs.obstacle is not None:
        return RunDecision(blocked(status, obs.obstacle))
    pod = obs.clone if obs.clone is not None and not obs.clone.deleting else None
    if pod is None and clone.ready_at is None:
        return _wait(obs, status, plan, clone, "its pod is not there yet", UNSCHEDULED_S)
    if pod is None or _taken_away(pod):
        return start_clone(obs, status, setting)  # production comes first
    if pod.phase in (PodPhase.FAILED, PodPhase.SUCCEEDED) or pod.exit_code is not None:
        return CloneDown(classify(pod.log_tail), clone.ready_at is not None)
    # Once ready it is taken for ready: a probe that fails under load is for the stage to judge.
    if pod.ready or clone.ready_at is not None:
        clone = changed(clone, ready_at=clone.ready_at or obs.now)
        return CloneReady(changed(status, clone=with_cache_size(clone, obs)), pod, setting)
    budget, probe = plan.profile_spec.probe.budget, plan.profile_spec.probe
    if pod.unschedulable_message:
        allowed_s = budget.start_timeout if probe.allow_scale_up else min(UNSCHEDULED_S, budget.start_timeout)
        return _wait(obs, status, plan, clone, pod.unschedulable_message, allowed_s, queued=pod.queued)
    waited_s = (obs.now - clone.since).total_seconds()
    if waited_s > budget.start_timeout:
        failure = StartupFailure(
            FailureKind.UNKNOWN,
            None,
            f"The engine was not ready after {waited_s:.0f}s ({pod.waiting_reason or 'it was loading'}).",
            "Raise spec.probe.budget.startTimeout if it starts slowly.",
        )
        return CloneDown(failure, False)
    return _start_or_wait(
        obs, status, plan, clone, f"Waits for {setting} to start: {pod.waiting_reason or 'it loads'}."
    )


def with_cache_size(clone: CloneState, obs: RunObservation) -> CloneState:
    """The state with the size of the engine's KV cache, once it is told."""
    if clone.kv_cache_tokens is not None or not isinstance(obs.clone_metrics, EngineMetrics):
        return clone
    return changed(clone, kv_cache_tokens=obs.clone_metrics.kv_cache_tokens)


def _taken_away(pod: PodView) -> bool:
    """Whether the pod ended for another reason than its engine: evicted, or never admitted by its node."""
    ended = pod.phase == PodPhase.FAILED
    return ended and (pod.waiting_reason in _TAKEN_AWAY or (pod.exit_code is None and not pod.log_tail))


def _wait(
    obs: RunObservation,
    status: TuningRunStatus,
    plan: RunPlan,
    clone: CloneState,
    why: str,
    allowed_s: float,
    *,
    queued: bool = False,
) -> RunDecision:
    """Wait for a pod that runs nowhere, at most `allowed_s`: neither a replica nor a place is kept for nothing. One
    that Kueue has `queued` is told apart, as a refused quota is: it is for who runs the queue to act."""
    waited_s = (obs.now - clone.since).total_seconds()
    if waited_s > allowed_s:
        message = f"The engine under test had no place after {waited_s:.0f}s: {why}."
        cause = ObstacleReason.QUEUE_NOT_ADMITTED if queued else "EngineNotScheduled"
        return RunDecision(cut_short(status, RunOutcome.INCONCLUSIVE, cause, message))
    waits = f"Waits for {clone.setting} to start: {why}."
    decision = _start_or_wait(obs, status, plan, clone, waits)
    if queued and decision.status.outcome is None:
        return replace(decision, status=waiting(decision.status, ObstacleReason.QUEUE_NOT_ADMITTED, waits))
    return decision


def start_clone(obs: RunObservation, status: TuningRunStatus, setting: Setting) -> RunDecision:
    """Store that a new engine start is meant. Pods of earlier starts go, since they hold the GPU.

    The run ends where no restart is left.
    """
    plan, old = status.plan, status.clone
    assert plan is not None  # frozen by Preflight before any clone
    restarts, most = (old.start if old is not None else 0), plan.profile_spec.probe.budget.max_restarts
    if restarts > most:
        return RunDecision(budget_exhausted(status, {"maxRestarts": f"{most} of {most} restarts"}))
    clone = CloneState(start=restarts + 1, setting=setting, since=obs.now)
    status = status.with_changes(
        clone=clone,
        engine_since=status.engine_since or obs.now,
        cost=status.cost.with_changes(engine_starts=clone.start),
        current_stage=None,
        last_stage_ended_at=None,
    )
    return _start_or_wait(obs, status, plan, clone, f"Starts the engine with {setting}.")


def _start_or_wait(
    obs: RunObservation, status: TuningRunStatus, plan: RunPlan, clone: CloneState, message: str
) -> RunDecision:
    words = clone_words(engine_container(obs.workload, plan), plan, clone.setting)
    if isinstance(words, Refusal):
        return RunDecision(cut_short(status, RunOutcome.FAILED, words.reason, words.message))
    budget = plan.profile_spec.probe.budget
    ensure = EnsureClone(
        start=clone.start,
        container=plan.container,
        words=words,
        deadline_s=int(budget.start_timeout + budget.max_measure_duration) + DEADLINE_SLACK_S,
        live_tuning=delivered_to(engine_container(obs.workload, plan), plan),
    )
    left_over = tuple(DeleteClone(start) for start in obs.clone_starts if start != clone.start)
    return RunDecision(waiting(status, "StartingEngine", message), (*left_over, EnsureAgent(), ensure))


def engine_container(workload: WorkloadView | None, plan: RunPlan) -> ContainerView:
    """The engine's container in the workload's template."""
    assert workload is not None  # run.decide ends a run whose workload is gone
    return next(c for c in workload.containers if c.name == plan.container)


def clone_words(container: ContainerView, plan: RunPlan, setting: Setting) -> ContainerWords | Refusal:
    """The container's words with `setting`, a Refusal where the engine would not work with it.

    The present setting is started with the very words that stand, as long as they still declare it.
    """
    if setting == plan.present == present_setting(container):
        return container.words
    return words_with(container, setting)


def lower_ceiling(plan: RunPlan, failed: Setting, failure: StartupFailure) -> Setting | None:
    """The next ceiling after one that did not start: the limit that the log names, else both halved,
    and at last the present setting; None when that one failed too. At once the present setting where the
    failure has nothing to do with the limits."""
    if failed == plan.present:
        return None
    if failure.kind in _NOT_OF_THE_LIMITS:
        return plan.present
    sequences, tokens = failed.max_num_seqs, failed.max_num_batched_tokens
    if failure.limit_hint is not None and failure.limit_hint < sequences:
        sequences = failure.limit_hint
    else:
        sequences, tokens = sequences // 2, tokens // 2
    lowest = plan.bounds.lowest
    fitting = [n for n in valid_sequence_grid(max(1, sequences)) if n >= lowest.max_num_seqs]
    if not fitting or tokens < lowest.max_num_batched_tokens:
        return plan.present
    lowered = Setting(max_num_seqs=fitting[-1], max_num_batched_tokens=max(tokens, fitting[-1]))
    below_present = (
        lowered.max_num_seqs <= plan.present.max_num_seqs
        and lowered.max_num_batched_tokens <= plan.present.max_num_batched_tokens
    )
    return plan.present if below_present else lowered


def note_failure(status: TuningRunStatus, setting: Setting, failure: StartupFailure) -> TuningRunStatus:
    """The status with one more setting that did not start; the oldest go first when there are many."""
    entry = CloneFailure(setting=setting, kind=failure.kind, message=failure.message[:1024])
    return status.with_changes(clone_failures=[*status.clone_failures, entry][-MAX_FAILURES:])
