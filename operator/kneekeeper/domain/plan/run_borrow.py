"""A replica of the workload, taken for its GPU: with evidence, for a bounded time, and given back when it is needed.

`run_clean_up` gives it back.
"""

from __future__ import annotations

from dataclasses import dataclass

from kneekeeper.api.model import Setting
from kneekeeper.api.quantities import counted
from kneekeeper.api.run_pods import Borrowed
from kneekeeper.api.tuning_run import RunOutcome, RunStep, TuningRunStatus
from kneekeeper.domain.actions import ScaleWorkload
from kneekeeper.domain.observation import ProductionLoad, RunObservation, Unreachable, WorkloadView
from kneekeeper.domain.plan.changes import changed
from kneekeeper.domain.plan.decisions import RunDecision
from kneekeeper.domain.plan.run_end import ended, going_on, waiting
from kneekeeper.domain.targets.ownership import RELEASE_TOOLS

# A scaling that was written and does not stand is tried again this long; longer, and it might be a fight with an
# autoscaler.
SCALING_S = 10.0
# Until the scaling is written and the pod is gone: more than the usual grace periods of engines.
LEAVING_S = 900.0

MOST_SHARE_OF_PEAK = 0.8
"""Of the known peak, on the replicas that stay: what is left is for bursts between two looks."""

UNSEEN_S = 30.0
"""A replica goes back when production could not be looked at for so long: a scrape may fail once, and what
happens meanwhile is not known."""

_LEAVING = "ReplicaLeaving"


@dataclass(frozen=True)
class NotToBorrow:
    """Why no replica is borrowed now; `reason` is what the run waits for, `message` names the next step."""

    reason: str
    message: str


def reason_not_to_borrow(obs: RunObservation, workload: WorkloadView, present: Setting) -> NotToBorrow | None:
    """None only where it was seen that the other replicas carry the load: nothing waits, and what runs is at most
    80% of their known peak. Metrics that cannot be read are no evidence."""
    load = obs.production
    owner = workload.owner
    if workload.made_by_controller or (owner is not None and owner.kind not in RELEASE_TOOLS):
        return NotToBorrow("OwnedReplicas", "the workload's controller sets its replicas, so none can be borrowed")
    if workload.replicas < 2:
        return NotToBorrow("NoSpareGPU", "a replica can only be borrowed from at least two")
    if not isinstance(load, ProductionLoad):
        return NotToBorrow(
            "ProductionNotReadable",
            f"no replica is borrowed while the serving pods' metrics cannot be read ({_why_unseen(obs)}): let the "
            "operator reach their port, or name a Prometheus in spec.metrics.prometheusRef",
        )
    if load.exhausted_budgets:
        return NotToBorrow(
            "DisruptionBudget",
            f"PodDisruptionBudget {', '.join(load.exhausted_budgets)} allows no serving pod to go, so no replica is "
            "borrowed: add a replica, or let the budget allow a disruption",
        )
    if load.waiting > 0:
        return NotToBorrow(
            "ProductionBusy",
            f"production has {counted(load.waiting, 'request')} waiting, so no replica is borrowed: add a replica, or "
            "wait until there is less load",
        )
    each, peak = load.running / (workload.replicas - 1), _peak(obs, present)
    if each > MOST_SHARE_OF_PEAK * peak:
        return NotToBorrow(
            "ProductionBusy",
            f"with one replica less each would work on {each:.3g} requests at once, more than "
            f"{MOST_SHARE_OF_PEAK:.0%} of the {peak:.3g} that it carries, so none is borrowed: add a replica, or wait "
            "until there is less load",
        )
    return None


def _peak(obs: RunObservation, present: Setting) -> float:
    """Requests that one replica works on at once at most: its limit, or the knee where that was measured and is
    lower, since beyond it they only take longer."""
    knee = obs.profile.status.knee if obs.profile is not None else None
    return float(present.max_num_seqs) if knee is None else min(present.max_num_seqs, knee.concurrency)


def _why_unseen(obs: RunObservation) -> str:
    return obs.production.why if isinstance(obs.production, Unreachable) else "they were not asked"


def borrow(obs: RunObservation, status: TuningRunStatus) -> RunDecision:
    """Take one replica out of service. That it is borrowed is stored before it is taken."""
    workload = obs.workload
    assert workload is not None  # run.decide ends a run whose workload is gone
    borrowed, plan = status.borrowed, status.plan
    assert plan is not None  # frozen by Preflight
    if borrowed is None:
        refusal = reason_not_to_borrow(obs, workload, plan.present)
        if refusal is not None:  # since Preflight looked; it looks again
            status = status.with_changes(step=RunStep.PREFLIGHT, plan=None)
            return RunDecision(waiting(status, refusal.reason, f"Nothing was touched: {refusal.message}."))
        borrowed = Borrowed(replicas_before=workload.replicas, generation=workload.generation, taken_at=obs.now)
        status = status.with_changes(borrowed=borrowed)
    waited_s = (obs.now - borrowed.taken_at).total_seconds()
    if workload.replicas == borrowed.replicas_before:
        scaled = workload.generation != borrowed.generation  # every change of the replicas makes a new one
        if scaled and (status.waiting_for == _LEAVING or waited_s > SCALING_S):
            return _given_up(status, "ReplicasChanged", "The workload did not stay scaled down; it is left alone.")
        if waited_s > LEAVING_S:
            message = (
                f"The workload could not be scaled down in {waited_s:.0f}s; what the API server answers is in the "
                "operator's log."
            )
            return _given_up(status, "NotScaled", message)
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


def look_at_production(obs: RunObservation, status: TuningRunStatus) -> TuningRunStatus:
    """The status with since when production has not been seen, while a replica is borrowed."""
    borrowed = status.borrowed
    if borrowed is None or borrowed.returned_at is not None:
        return status
    unseen_since = None if isinstance(obs.production, ProductionLoad) else borrowed.unseen_since or obs.now
    return changed(status, borrowed=changed(borrowed, unseen_since=unseen_since))


def reason_to_return(obs: RunObservation, status: TuningRunStatus) -> tuple[str, str] | None:
    """Why the borrowed replica must go back at once, as cause and message: production comes first."""
    borrowed, workload, load, plan = status.borrowed, obs.workload, obs.production, status.plan
    if borrowed is None or borrowed.returned_at is not None or workload is None or plan is None:
        return None
    # One for each may be seen between its arrival and the engine's next step.
    if isinstance(load, ProductionLoad) and load.waiting > workload.replicas:
        return "ProductionNeedsReplica", "Requests wait in production: the borrowed replica goes back."
    if isinstance(load, ProductionLoad) and load.running > workload.replicas * _peak(obs, plan.present):
        return "ProductionNeedsReplica", "Production works beyond its known peak: the borrowed replica goes back."
    unseen_s = (obs.now - borrowed.unseen_since).total_seconds() if borrowed.unseen_since is not None else 0.0
    if unseen_s > UNSEEN_S:
        return (
            "ProductionNotReadable",
            f"The serving pods' metrics could not be read for {unseen_s:.0f}s ({_why_unseen(obs)}): the borrowed "
            "replica goes back. Let the operator reach their port, or name a Prometheus in spec.metrics.prometheusRef.",
        )
    # Every change of the replicas makes a new generation: what is as it was before was read from an old answer.
    is_later = workload.generation != borrowed.generation
    if status.step != RunStep.BORROW and is_later and workload.replicas >= borrowed.replicas_before:
        return "ReplicasChanged", "Somebody set the replica count while a replica was borrowed; the GPU is set free."
    if workload.ready_replicas < workload.replicas:
        return "ProductionNeedsReplica", "A serving pod is not ready: the borrowed replica goes back."
    return None
