"""The load agents that send a stage beside the first one: all of them are there before it begins."""

from __future__ import annotations

from kneekeeper.api.stage import StageSpec
from kneekeeper.api.tuning_run import RunOutcome, TuningRunStatus
from kneekeeper.domain.actions import EnsureAgent
from kneekeeper.domain.names import AGENT_PORT
from kneekeeper.domain.observation import RunObservation
from kneekeeper.domain.plan.decisions import RunDecision
from kneekeeper.domain.plan.run_end import cut_short, waiting


def helpers_of(obs: RunObservation, spec: StageSpec) -> tuple[str, ...]:
    """Where the helpers of a stage are, as far as they are ready."""
    ready = [pod.ip for pod in obs.helpers if pod.ready and pod.ip]
    return tuple(f"[{ip}]:{AGENT_PORT}" if ":" in ip else f"{ip}:{AGENT_PORT}" for ip in ready[: spec.agents - 1])


def wait_for_helpers(
    obs: RunObservation, status: TuningRunStatus, spec: StageSpec, *, tick_s: float, late: bool
) -> RunDecision:
    """Wait until all are ready; the Job replaces those that are lost. `late`: they do not come any more."""
    reasons = [pod.unschedulable_message or pod.waiting_reason for pod in obs.helpers if not pod.ready]
    why = next((reason for reason in reasons if reason), "")
    message = f"{1 + len(helpers_of(obs, spec))} of {spec.agents} load agents are ready. {why}".rstrip()
    if late:
        message = f"{message} Make room for all, or lower spec.probe.ladder.maxConcurrency."
        return RunDecision(cut_short(status, RunOutcome.FAILED, "NoLoadAgent", message))
    return RunDecision(waiting(status, "StartingAgent", message), (EnsureAgent(),), next_tick_s=tick_s)
