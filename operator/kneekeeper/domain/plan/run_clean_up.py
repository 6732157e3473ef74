"""The last step: clone and agent go, a borrowed replica goes back, whatever happened before."""

from __future__ import annotations

from kneekeeper.api.tuning_run import RunStep, TuningRunStatus
from kneekeeper.domain.actions import DeleteAgent, DeleteClone, RunAction, ScaleWorkload
from kneekeeper.domain.observation import RunObservation
from kneekeeper.domain.plan.decisions import RunDecision
from kneekeeper.domain.plan.run_end import gpu_seconds


def clean_up(obs: RunObservation, status: TuningRunStatus) -> RunDecision:
    """Delete what is left; the run is Done once nothing is."""
    actions: list[RunAction] = []
    actions.extend(DeleteClone(start) for start in obs.clone_starts)
    if obs.agent_exists:
        actions.append(DeleteAgent())
    borrowed = status.borrowed
    stored = obs.run.status.step == RunStep.CLEAN_UP
    if borrowed is not None and borrowed.returned_at is None:
        give_back = ScaleWorkload(expected=borrowed.replicas_before - 1, wanted=borrowed.replicas_before)
        if obs.workload is not None and obs.workload.replicas == borrowed.replicas_before - 1:
            actions.append(give_back)
        elif stored:
            if obs.workload is not None and obs.workload.generation == borrowed.generation:
                actions.append(give_back)  # never taken, or read from an old answer: the write itself looks anew
            # Given back, or somebody else (a person, an autoscaler) has set replicas since: theirs stands.
            status = status.with_changes(borrowed=borrowed.with_changes(returned_at=obs.now))
    # The end is stored before it is believed: a tick that was cut off may still be scaling or starting something.
    if actions or not stored:
        return RunDecision(status, tuple(actions))
    cost = status.cost.with_changes(gpu_seconds=gpu_seconds(status, obs.now))
    return RunDecision(
        status.with_changes(step=RunStep.DONE, clone=None, finished_at=obs.now, cost=cost), next_tick_s=1.0
    )
