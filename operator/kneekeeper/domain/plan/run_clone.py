"""The engine under test: started with a wanted setting, watched until it is ready, lowered when it fails."""

from __future__ import annotations

from dataclasses import dataclass

from kneekeeper.api.model import Setting
from kneekeeper.api.profile_status import ContainerWords
from kneekeeper.api.tuning_run import CloneFailure, CloneState, RunPlan, TuningRunStatus
from kneekeeper.domain.actions import DeleteClone, EnsureAgent, EnsureClone, RunAction
from kneekeeper.domain.engines import valid_sequence_grid
from kneekeeper.domain.observation import (
    ContainerView,
    EngineMetrics,
    PodPhase,
    PodView,
    RunObservation,
    WorkloadView,
)
from kneekeeper.domain.plan.decisions import RunDecision
from kneekeeper.domain.plan.run_end import waiting
from kneekeeper.domain.startup_failures import FailureKind, StartupFailure, classify
from kneekeeper.domain.target import words_with

# A pod may outlive its budget by this much before Kubernetes ends it without the operator.
DEADLINE_SLACK_S = 600


@dataclass(frozen=True)
class CloneDown:
    """The clone ended by itself: why, as far as its log says."""

    failure: StartupFailure
    was_ready: bool


@dataclass(frozen=True)
class CloneReady:
    """The clone serves with the wanted setting; `status` carries when it became ready."""

    status: TuningRunStatus
    pod: PodView


def want_clone(obs: RunObservation, status: TuningRunStatus, setting: Setting) -> CloneReady | CloneDown | RunDecision:
    """Bring the clone to `setting`: a RunDecision says that it takes time yet."""
    plan = status.plan
    assert plan is not None  # frozen by Preflight before any clone
    clone = status.clone
    if clone is None or clone.setting != setting:
        return start_clone(obs, status, setting)
    pod = obs.clone
    if pod is None or pod.deleting:
        if clone.ready_at is not None and pod is None:
            return start_clone(obs, status, setting)  # evicted, or deleted by somebody: production comes first
        message = f"Waits for {setting} to start."
        return RunDecision(waiting(status, "StartingEngine", message), _starting(obs, plan, clone))
    if pod.phase in (PodPhase.FAILED, PodPhase.SUCCEEDED) or pod.exit_code is not None:
        return CloneDown(classify(pod.log_tail), clone.ready_at is not None)
    if pod.ready:
        if clone.ready_at is None:
            clone = clone.with_changes(ready_at=obs.now)
        if clone.kv_cache_tokens is None and isinstance(obs.clone_metrics, EngineMetrics):
            clone = clone.with_changes(kv_cache_tokens=obs.clone_metrics.kv_cache_tokens)
        return CloneReady(status.with_changes(clone=clone), pod)
    waited_s = (obs.now - clone.since).total_seconds()
    if waited_s > plan.profile_spec.probe.budget.start_timeout:
        failure = StartupFailure(
            FailureKind.UNKNOWN,
            None,
            f"The engine was not ready after {waited_s:.0f}s.",
            "Raise spec.probe.budget.startTimeout if it starts slowly.",
        )
        return CloneDown(failure, False)
    why = pod.unschedulable_message or pod.waiting_reason or "it is loading"
    return RunDecision(
        waiting(status, "StartingEngine", f"Waits for {setting} to start: {why}."),
        _starting(obs, plan, clone),
    )


def start_clone(obs: RunObservation, status: TuningRunStatus, setting: Setting) -> RunDecision:
    """Store that a new engine start is meant. Pods of earlier starts go, since they hold the GPU."""
    plan, old = status.plan, status.clone
    assert plan is not None  # frozen by Preflight before any clone
    clone = CloneState(start=(old.start if old is not None else 0) + 1, setting=setting, since=obs.now)
    status = status.with_changes(
        clone=clone,
        engine_since=status.engine_since or obs.now,
        cost=status.cost.with_changes(engine_starts=clone.start),
        current_stage=None,
        last_stage_ended_at=None,
    )
    message = f"Starts the engine with {setting}."
    return RunDecision(waiting(status, "StartingEngine", message), _starting(obs, plan, clone))


def _starting(obs: RunObservation, plan: RunPlan, clone: CloneState) -> tuple[RunAction, ...]:
    container = engine_container(obs.workload, plan)
    budget = plan.profile_spec.probe.budget
    ensure = EnsureClone(
        start=clone.start,
        container=plan.container,
        words=clone_words(container, plan, clone.setting),
        deadline_s=int(budget.start_timeout + budget.max_measure_duration) + DEADLINE_SLACK_S,
    )
    left_over = tuple(DeleteClone(start) for start in obs.clone_starts if start != clone.start)
    return (*left_over, EnsureAgent(), ensure)


def engine_container(workload: WorkloadView | None, plan: RunPlan) -> ContainerView:
    """The engine's container in the workload's template."""
    assert workload is not None  # run.decide ends a run whose workload is gone
    return next(c for c in workload.containers if c.name == plan.container)


def clone_words(container: ContainerView, plan: RunPlan, setting: Setting) -> ContainerWords:
    """The container's words with `setting`; the present setting is started with the very words that stand."""
    if setting == plan.present:
        return container.words
    words = words_with(container, setting)
    assert isinstance(words, ContainerWords)  # Preflight has rewritten these words once before
    return words


def lower_ceiling(plan: RunPlan, failed: Setting, failure: StartupFailure) -> Setting | None:
    """The next ceiling after one that did not start: the limit that the log names, else both halved,
    and at last the present setting; None when that one failed too."""
    if failed == plan.present:
        return None
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
    """The status with one more setting that did not start."""
    entry = CloneFailure(setting=setting, kind=failure.kind, message=f"{failure.summary} {failure.next_step}"[:1024])
    return status.with_changes(clone_failures=[*status.clone_failures, entry])
