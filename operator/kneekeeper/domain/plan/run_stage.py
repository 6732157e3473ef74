"""One stage on the agent: ordered, watched, stored. A dead agent loses the stage in flight only."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from kneekeeper.api.model import Setting
from kneekeeper.api.stage import StageSpec, StageState, Target
from kneekeeper.api.tuning_run import (
    CurrentStage,
    RunPlan,
    StageKind,
    StageSummary,
    TuningRunStatus,
    Verdict,
)
from kneekeeper.domain.actions import EnsureAgent, StartStage, StoreSamples
from kneekeeper.domain.certify import pass_floor
from kneekeeper.domain.ladder import StageOrder
from kneekeeper.domain.names import stage_id
from kneekeeper.domain.observation import EngineMetrics, PodView, RunObservation, StageView
from kneekeeper.domain.plan.decisions import RunDecision
from kneekeeper.domain.plan.requests import slo_of
from kneekeeper.domain.plan.run_clone import CloneReady
from kneekeeper.domain.plan.run_end import gpu_seconds, waiting
from kneekeeper.domain.summary import summarise

# Gauges freeze when a load is cut off; after this long the engine is taken for idle.
LONGEST_DRAIN_S = 30.0
STAGE_TICK_S = 2.0


@dataclass(frozen=True)
class StageDecided:
    """The stage ended and is summed up in `status`; its samples go into `evidence`."""

    status: TuningRunStatus
    summary: StageSummary
    evidence: tuple[StoreSamples, ...]


def run_stage(obs: RunObservation, ready: CloneReady, order: StageOrder) -> StageDecided | RunDecision:
    """Bring one stage to its end: a RunDecision says that it takes time yet."""
    status, plan = ready.status, ready.status.plan
    assert plan is not None  # frozen by Preflight
    current = status.current_stage
    if current is None or current.name != order.name:
        idle = _idle(obs, status, plan)
        if idle is not None:
            return idle
        current = CurrentStage(name=order.name, kind=order.kind, started_at=obs.now)
        status = status.with_changes(current_stage=current)
    assert status.clone is not None  # a ready clone is stored
    spec = stage_spec(plan, order, ready.pod, status.clone.setting)
    if obs.agent is None or not obs.agent.ready:
        return RunDecision(
            waiting(status, "StartingAgent", "Waits for the load agent."),
            (EnsureAgent(),),
            next_tick_s=STAGE_TICK_S,
        )
    view = obs.stage
    if not isinstance(view, StageView) or view.status is None or view.status.id != spec.id:
        return RunDecision(_telling(status, order), (StartStage(spec),), next_tick_s=STAGE_TICK_S)
    if view.status.state == StageState.RUNNING or view.samples is None:
        return RunDecision(_telling(status, order), next_tick_s=STAGE_TICK_S)
    summary = summarise(spec, view.status, view.samples, name=order.name, kind=order.kind, setting=status.clone.setting)
    cost = status.cost.with_changes(
        measure_seconds=status.cost.measure_seconds + round(view.status.elapsed_s),
        gpu_seconds=gpu_seconds(status, obs.now),
    )
    status = status.with_changes(
        stages=[*status.stages, summary], current_stage=None, last_stage_ended_at=obs.now, cost=cost
    )
    return StageDecided(status, summary, (StoreSamples(order.name, view.samples),))


def _telling(status: TuningRunStatus, order: StageOrder) -> TuningRunStatus:
    return status.with_changes(waiting_for="", message=f"Stage {order.name} runs.")


def _idle(obs: RunObservation, status: TuningRunStatus, plan: RunPlan) -> RunDecision | None:
    """Recovery between stages: the declared time has passed and the engine is empty."""
    since = status.last_stage_ended_at
    if since is None:
        return None
    passed_s = (obs.now - since).total_seconds()
    if passed_s < plan.profile_spec.probe.ladder.recovery:
        return RunDecision(status, next_tick_s=0.5)
    metrics = obs.clone_metrics
    empty = isinstance(metrics, EngineMetrics) and metrics.running + metrics.waiting == 0
    if empty or passed_s > LONGEST_DRAIN_S:
        return None
    return RunDecision(status, next_tick_s=1.0)


def stage_spec(plan: RunPlan, order: StageOrder, clone: PodView, setting: Setting) -> StageSpec:
    """The same order always gives the same spec, so that ordering it again after a crash changes nothing."""
    identity = stage_id(order.name, clone.uid)
    judged = order.kind in (StageKind.CERTIFY, StageKind.BASELINE)
    digest = hashlib.sha256(f"{plan.token}/{identity}".encode()).digest()
    return StageSpec(
        id=identity,
        target=Target(host=clone.ip, port=plan.port, root_path=plan.root_path, model=plan.model),
        prompt_tokens=order.prompt_tokens,
        output_tokens=order.output_tokens,
        arrivals=order.arrivals,
        limits=order.limits,
        slo=slo_of(plan.profile_spec),
        sequential=judged,
        min_pass_requests=pass_floor(setting.max_num_seqs) if judged else None,
        seed=int.from_bytes(digest[:6], "big"),
    )


def is_void(summary: StageSummary) -> bool:
    """Whether the stage says nothing of the engine."""
    return summary.verdict in (Verdict.INVALID, Verdict.VOID)
