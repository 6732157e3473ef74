"""One stage on the agent: ordered, watched, stored. A dead agent loses the stage in flight only."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

from kneekeeper.api.model import Setting
from kneekeeper.api.offered_load import Closed
from kneekeeper.api.run_plan import RunPlan
from kneekeeper.api.serving_profile import Scheme
from kneekeeper.api.stage import (
    TARGET_UNREACHABLE,
    Guard,
    PrefixSharing,
    PromptSource,
    StageSpec,
    StageState,
    Target,
    Tls,
)
from kneekeeper.api.tuning_run import CurrentStage, RunOutcome, StageKind, StageSummary, TuningRunStatus, Verdict
from kneekeeper.api.workload import Workload
from kneekeeper.domain.actions import DeleteAgent, EnsureAgent, RunAction, StartStage, StoreSamples
from kneekeeper.domain.agents import agents_for, agents_of
from kneekeeper.domain.certify import pass_floor
from kneekeeper.domain.engine_counters import (
    acceptance_fault,
    counters_of,
    counts_of_stage,
    hit_fault,
    restart_fault,
)
from kneekeeper.domain.ladder import StageOrder
from kneekeeper.domain.names import (
    AGENT_CA_FILE,
    AGENT_PORT,
    ANNOTATION_RETUNE,
    LABEL_ROLE,
    ROLE_AGENT,
    ROLE_CLONE,
    stage_id,
)
from kneekeeper.domain.observation import EngineMetrics, PodView, RunObservation, StageView, Unreachable
from kneekeeper.domain.patience import patience_s
from kneekeeper.domain.plan.changes import changed
from kneekeeper.domain.plan.decisions import RunDecision
from kneekeeper.domain.plan.requests import slo_of
from kneekeeper.domain.plan.run_clone import CloneReady
from kneekeeper.domain.plan.run_end import cut_short, gpu_seconds, waiting
from kneekeeper.domain.plan.run_helpers import helpers_of, wait_for_helpers
from kneekeeper.domain.plan.run_in_place import guard_of, interrupted_too_often, is_in_place, pause_s, with_users
from kneekeeper.domain.plan.throughput_runs import asks_for_throughput
from kneekeeper.domain.recovery import LONGEST_DRAIN_S, Recovery, recovery, wake_stage
from kneekeeper.domain.summary import summarise

STAGE_TICK_S = 2.0
# Beyond twice its own limit, since a dead agent makes it start anew once: for the agent's pod, and to drain.
STAGE_SLACK_S = 600.0
UNREACHABLE_STAGES = 2

UNCOUNTED = (
    "The engine's counters could not be read before or after the stage, so nothing shows that its load was the "
    "declared one. Let the operator reach the engine's /metrics."
)

_ABOUT_CERTIFICATES = "Compare the engine's certificate with spec.endpoint.serverName and spec.endpoint.caBundleRef. "

USUAL_BLOCK_TOKENS = 16
"""Of vLLM's KV blocks on CUDA, where its metrics do not tell."""


@dataclass(frozen=True)
class StageDecided:
    """The stage ended and is summed up in `status`; its samples go into `evidence`."""

    status: TuningRunStatus
    summary: StageSummary
    evidence: tuple[StoreSamples, ...] = ()
    actions: tuple[RunAction, ...] = ()

    def then(self, status: TuningRunStatus) -> RunDecision:
        """The decision that goes on with this status."""
        return RunDecision(status, self.actions, self.evidence, next_tick_s=0.5)


def run_stage(obs: RunObservation, ready: CloneReady, order: StageOrder) -> StageDecided | RunDecision:
    """Bring one stage to its end: a RunDecision says that it takes time yet."""
    status, plan = ready.status, ready.status.plan
    assert plan is not None  # frozen by Preflight
    current = status.current_stage
    if current is None or current.name != order.name:
        recovering = _recovering(obs, ready, plan)
        if recovering is not None:
            return recovering
        metrics = obs.clone_metrics if isinstance(obs.clone_metrics, EngineMetrics) else None
        current = CurrentStage(
            name=order.name,
            kind=order.kind,
            started_at=obs.now,
            block_tokens=metrics.block_tokens if metrics is not None else None,
            before=counters_of(metrics) if metrics is not None else None,
        )
        status = status.with_changes(current_stage=current)
    assert status.clone is not None  # a ready clone is stored
    guard = guard_of(plan, current)
    agents = agents_for(order.arrivals, min(agents_of(plan), obs.most_agents)) if guard is None else 1
    spec = stage_spec(plan, order, ready.pod, ready.setting, current.block_tokens, agents, guard)
    waited_s = (obs.now - current.started_at).total_seconds()
    late = waited_s > 2 * order.limits.max_duration_s + STAGE_SLACK_S
    if obs.agent is None or not obs.agent.ready:
        why = "" if obs.agent is None else obs.agent.unschedulable_message or obs.agent.waiting_reason
        if late:
            message = f"The load agent was not ready after {waited_s:.0f}s: {why or 'look at its Job and its pod'}."
            return RunDecision(cut_short(status, RunOutcome.FAILED, "NoLoadAgent", message))
        return RunDecision(
            waiting(status, "StartingAgent", f"Waits for the load agent. {why}".rstrip()),
            (EnsureAgent(),),
            next_tick_s=STAGE_TICK_S,
        )
    view = obs.stage
    if late and isinstance(view, Unreachable):
        message = (
            f"The operator could not reach the load agent for {waited_s:.0f}s ({view.why}). Look for a NetworkPolicy, "
            f"and let the operator reach port {AGENT_PORT} of pods with {LABEL_ROLE}={ROLE_AGENT}."
        )
        return RunDecision(cut_short(status, RunOutcome.FAILED, "AgentUnreachable", message))
    begun = isinstance(view, StageView) and view.status is not None and view.status.id == spec.id
    helpers = helpers_of(obs, spec)
    if not begun and len(helpers) < spec.agents - 1:
        return wait_for_helpers(obs, status, spec, tick_s=STAGE_TICK_S, late=late)
    if late and isinstance(view, StageView) and not begun and _is_first_go(status, current):
        # The operator may have been cut off from the API server for as long: the order never reached the agent.
        status = status.with_changes(current_stage=current.with_changes(started_at=obs.now))
        return RunDecision(_telling(status, order), (StartStage(spec, helpers),), next_tick_s=STAGE_TICK_S)
    if late and not (isinstance(view, StageView) and view.samples is not None):
        return _given_up(status, order, ready.setting, waited_s)
    if not isinstance(view, StageView) or view.status is None or view.status.id != spec.id:
        return RunDecision(_telling(status, order), (StartStage(spec, helpers),), next_tick_s=STAGE_TICK_S)
    if view.status.state == StageState.RUNNING or view.samples is None:
        return RunDecision(_telling(status, order), next_tick_s=STAGE_TICK_S)
    summary = summarise(spec, view.status, view.samples, name=order.name, kind=order.kind, setting=ready.setting)
    summary = _compared(plan, order, current, obs.clone_metrics, summary)
    cost = status.cost.with_changes(
        measure_seconds=status.cost.measure_seconds + round(view.status.elapsed_s),
        gpu_seconds=gpu_seconds(status, obs.now),
    )
    status = status.with_changes(
        stages=[*status.stages, summary], current_stage=None, last_stage_ended_at=obs.now, cost=cost
    )
    evidence = (StoreSamples(order.name, view.samples),)
    if is_in_place(plan) and (broken_off := interrupted_too_often(status)) is not None:
        return RunDecision(broken_off, (), evidence)
    if ready.pod.ready and _never_connects(status):
        return RunDecision(
            cut_short(status, RunOutcome.FAILED, "CloneUnreachable", _no_way(plan, summary)), (), evidence
        )
    return StageDecided(status, summary, evidence)


def _is_first_go(status: TuningRunStatus, current: CurrentStage) -> bool:
    """Whether the stage was decided on when the engine was ready for it, and not anew since."""
    ready_at = status.clone.ready_at if status.clone is not None else None
    since = max((at for at in (status.last_stage_ended_at, ready_at) if at is not None), default=None)
    return since is not None and (current.started_at - since).total_seconds() < STAGE_SLACK_S


def _compared(
    plan: RunPlan,
    order: StageOrder,
    current: CurrentStage,
    metrics: EngineMetrics | Unreachable | None,
    summary: StageSummary,
) -> StageSummary:
    """The summary with what the engine's own counters say; Invalid where they say that the stage was another
    workload than the declared one, or that the engine began anew in it."""
    counts = counts_of_stage(current.before, metrics if isinstance(metrics, EngineMetrics) else None)
    summary = summary.with_changes(
        prefix_cache_hit_percent=_percent(counts.hit_share), draft_acceptance_percent=_percent(counts.draft_acceptance)
    )
    if is_void(summary):
        return summary
    wanted, production = wanted_hits(plan.profile_spec.workload, order), plan.draft_acceptance_percent
    if current.before is None or not isinstance(metrics, EngineMetrics):
        fault = UNCOUNTED if wanted or production is not None else None
    else:
        accepted = None if production is None else production / 100
        fault = restart_fault(current.before, metrics)
        fault = fault or (None if wanted is None else hit_fault(wanted, counts.hit_share))
        fault = fault or acceptance_fault(accepted, counts.draft_acceptance)
    return summary if fault is None else summary.with_changes(verdict=Verdict.INVALID, message=fault)


def wanted_hits(workload: Workload | None, order: StageOrder) -> float | None:
    """The share of prompt tokens that the prefix cache should serve in a stage. Real prompts share what they
    share: that is compared with the declared share, where there is one."""
    if order.kinds.prompts is PromptSource.RANDOM:
        return order.kinds.hit_share
    declared = workload.prefix_cache_hit_percent if workload is not None else 0
    return declared / 100 if declared else None


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _never_connects(status: TuningRunStatus) -> bool:
    """The kubelet reaches the engine, the load agent did not, twice: once may be an engine that was just dying."""
    last = status.stages[-UNREACHABLE_STAGES:]
    return len(last) == UNREACHABLE_STAGES and all(stage.ended_by == TARGET_UNREACHABLE for stage in last)


def _no_way(plan: RunPlan, summary: StageSummary) -> str:
    certificate = "" if plan.scheme is Scheme.HTTP else _ABOUT_CERTIFICATES
    pods = "the serving pods" if is_in_place(plan) else f"pods with {LABEL_ROLE}={ROLE_CLONE}"
    return (
        f"The engine under test is ready, but the load agent cannot reach it: {summary.message} {certificate}Look "
        f"for a NetworkPolicy in the namespace, and let pods with {LABEL_ROLE}={ROLE_AGENT} reach port {plan.port} of "
        f"{pods}. Then annotate the profile with {ANNOTATION_RETUNE}=<anything new>."
    )


def _given_up(status: TuningRunStatus, order: StageOrder, setting: Setting, waited_s: float) -> StageDecided:
    """A stage that does not end says nothing of the engine. Its agent goes, since it may still be at it."""
    summary = StageSummary(
        name=order.name,
        kind=order.kind,
        setting=setting,
        users=order.arrivals.users if isinstance(order.arrivals, Closed) else None,
        offered_requests_per_second=None if isinstance(order.arrivals, Closed) else order.arrivals.rate,
        prompt_tokens_mean=0.0,
        output_tokens_mean=0.0,
        requests=0,
        duration=max(0.0, waited_s),
        requests_per_second=0.0,
        output_tokens_per_second=0.0,
        mean_concurrency=0.0,
        verdict=Verdict.INVALID,
        message=f"The load agent did not bring the stage to an end in {waited_s:.0f}s.",
    )
    status = status.with_changes(
        stages=[*status.stages, summary],
        current_stage=None,
        cost=status.cost.with_changes(measure_seconds=status.cost.measure_seconds + round(summary.duration)),
    )
    return StageDecided(status, summary, actions=(DeleteAgent(),))


def _telling(status: TuningRunStatus, order: StageOrder) -> TuningRunStatus:
    return changed(status, waiting_for="", message=f"Stage {order.name} runs.")


def _recovering(obs: RunObservation, ready: CloneReady, plan: RunPlan) -> RunDecision | None:
    """Time between stages, until the engine has recovered from the last one; None when it has. A serving pod is taken
    for idle only when it says so: what it works on may be users'."""
    status, shared = ready.status, is_in_place(plan)
    since = status.last_stage_ended_at
    if since is None and not shared:
        return None
    assert status.clone is not None  # a ready clone is stored
    passed_s = (obs.now - (since or status.clone.since)).total_seconds()
    pause = pause_s(status, plan)
    longest_s = math.inf if shared else LONGEST_DRAIN_S
    judged = recovery(obs.clone_metrics, passed_s=passed_s, pause_s=pause if since else 0.0, longest_s=longest_s)
    if shared and judged is not Recovery.OVER:
        status = with_users(obs, status, ready.pod)
    match judged:
        case Recovery.OVER:
            return None
        case Recovery.WAKE if obs.agent is not None and obs.agent.ready:
            again = f"-{minutes}" if (minutes := int(passed_s // 60)) else ""
            identity = stage_id(f"wake-{len(status.stages)}{again}", ready.pod.uid)
            return RunDecision(status, (StartStage(wake_stage(identity, _target(plan, ready.pod))),), next_tick_s=1.0)
        case _:
            asks = shared and (obs.agent is None or not obs.agent.ready)
            return RunDecision(status, (EnsureAgent(),) if asks else (), next_tick_s=1.0)


def _target(plan: RunPlan, clone: PodView) -> Target:
    return Target(host=clone.ip, port=plan.port, tls=_tls(plan), root_path=plan.root_path, model=plan.model)


def _tls(plan: RunPlan) -> Tls | None:
    """What the agent holds the engine's certificate against; None over plain HTTP."""
    endpoint = plan.profile_spec.endpoint
    if plan.scheme is Scheme.HTTP:
        return None
    bundle = "" if endpoint.ca_bundle_ref is None else AGENT_CA_FILE
    return Tls(server_name=endpoint.server_name or "", ca_file=bundle)


def stage_spec(
    plan: RunPlan,
    order: StageOrder,
    clone: PodView,
    setting: Setting,
    block_tokens: int | None = None,
    agents: int = 1,
    guard: Guard | None = None,
) -> StageSpec:
    """The same order always gives the same spec, so that ordering it again after a crash changes nothing."""
    identity = stage_id(order.name, clone.uid)
    judged = order.kind in (StageKind.CERTIFY, StageKind.BASELINE)
    judged = judged and not asks_for_throughput(plan.profile_spec)  # there the interval's width decides, not a target
    digest = hashlib.sha256(f"{plan.token}/{identity}".encode()).digest()
    floor = pass_floor(order.arrivals, slo_of(plan.profile_spec), setting.max_num_seqs)
    return StageSpec(
        id=identity,
        target=_target(plan, clone),
        prompt_tokens=order.prompt_tokens,
        output_tokens=order.output_tokens,
        arrivals=order.arrivals,
        limits=order.limits.model_copy(update={"request_timeout_s": _patience_s(plan, order)}),
        slo=slo_of(plan.profile_spec),
        sequential=judged,
        min_pass_requests=order.min_pass_requests or floor if judged else None,
        seed=int.from_bytes(digest[:6], "big"),
        classes=order.kinds.classes,
        prefix=_sharing(order, block_tokens),
        prompts=order.kinds.prompts,
        agents=agents,
        guard=guard,
    )


def _patience_s(plan: RunPlan, order: StageOrder) -> float:
    """That of the class which takes longest."""
    kinds = [(kind.slo, kind.output_tokens) for kind in order.kinds.classes]
    return max(patience_s(*kind) for kind in kinds or [(slo_of(plan.profile_spec), order.output_tokens)])


def _sharing(order: StageOrder, block_tokens: int | None) -> PrefixSharing | None:
    share = order.kinds.hit_share
    return PrefixSharing(hit_share=share, block_tokens=block_tokens or USUAL_BLOCK_TOKENS) if share > 0 else None


def is_void(summary: StageSummary) -> bool:
    """Whether the stage says nothing of the engine."""
    return summary.verdict in (Verdict.INVALID, Verdict.VOID)
