"""A replica of the workload, taken for its GPU: with evidence, for a bounded time, and given back when it is needed.

`run_clean_up` gives it back.
"""

from __future__ import annotations

from kneekeeper.api.tuning_run import Borrowed, RunOutcome, RunStep, TuningRunStatus
from kneekeeper.domain.actions import ScaleWorkload
from kneekeeper.domain.observation import RunObservation
from kneekeeper.domain.plan.decisions import RunDecision
from kneekeeper.domain.plan.run_end import ended, going_on, waiting

# Scaling is tried again this long where it fails; longer, and it might be a fight with an autoscaler.
SCALING_S = 10.0
# Until the pod is gone: more than the usual grace periods of engines.
LEAVING_S = 900.0

_LEAVING = "ReplicaLeaving"


def borrow(obs: RunObservation, status: TuningRunStatus) -> RunDecision:
    """Take one replica out of service. That it is borrowed is stored before it is taken."""
    workload = obs.workload
    assert workload is not None  # run.decide ends a run whose workload is gone
    borrowed = status.borrowed
    if borrowed is None:
        borrowed = Borrowed(replicas_before=workload.replicas, taken_at=obs.now)
        status = status.with_changes(borrowed=borrowed)
    waited_s = (obs.now - borrowed.taken_at).total_seconds()
    if workload.replicas == borrowed.replicas_before:
        if status.waiting_for == _LEAVING or waited_s > SCALING_S:
            return _given_up(status, "ReplicasChanged", "The workload did not stay scaled down; it is left alone.")
        action = ScaleWorkload(expected=borrowed.replicas_before, wanted=borrowed.replicas_before - 1)
        return RunDecision(waiting(status, "Borrowing", "Scaling the workload down by one."), (action,))
    if workload.replicas != borrowed.replicas_before - 1:
        return _given_up(status, "ReplicasChanged", "Somebody else changed the replica count.")
    if workload.rolled_out:
        return RunDecision(going_on(status, RunStep.CEILING, "Starting the engine on the borrowed GPU."))
    if waited_s > LEAVING_S:
        return _given_up(status, "ReplicaStays", f"The borrowed replica was not gone after {waited_s:.0f}s.")
    return RunDecision(waiting(status, _LEAVING, "Waits until the borrowed replica is gone."))


def _given_up(status: TuningRunStatus, cause: str, message: str) -> RunDecision:
    return RunDecision(ended(status, RunOutcome.CANCELLED, cause, message))


def reason_to_return(obs: RunObservation, status: TuningRunStatus) -> tuple[str, str] | None:
    """Why the borrowed replica must go back at once, as cause and message: production comes first."""
    borrowed, workload = status.borrowed, obs.workload
    if borrowed is None or borrowed.returned_at is not None or workload is None:
        return None
    if (obs.production_waiting or 0) > workload.replicas:
        return "ProductionNeedsReplica", "Requests wait in production: the borrowed replica goes back."
    if status.step != RunStep.BORROW and workload.replicas >= borrowed.replicas_before:
        return "ReplicasChanged", "Somebody set the replica count while a replica was borrowed; the GPU is set free."
    if workload.ready_replicas < workload.replicas:
        return "ProductionNeedsReplica", "A serving pod is not ready: the borrowed replica goes back."
    return None
