"""The step Sources: what the trace and the prompts hold, asked of the load agent before anything is started.

The operator reads neither: both may be of any size and prompts are secrets. A mistake in a file ends the run
here, before a replica is borrowed or a GPU is held.
"""

from __future__ import annotations

from kneekeeper.api.offered_load import Empirical
from kneekeeper.api.run_plan import RunPlan, SourceFacts, TraceFacts
from kneekeeper.api.serving_profile import ProbeTarget
from kneekeeper.api.sources import SourcesReport, SourceState, TraceReport
from kneekeeper.api.tuning_run import RunOutcome, RunStep, TuningRunStatus
from kneekeeper.api.workload import LengthBin, Workload
from kneekeeper.domain.actions import EnsureAgent
from kneekeeper.domain.observation import RunObservation, Unreachable
from kneekeeper.domain.plan.decisions import RunDecision
from kneekeeper.domain.plan.run_end import ended, going_on, waiting

SOURCES_TICK_S = 2.0

LONGEST_READ_S = 900.0
"""For the agent's pod to start with its volumes, and to read files of some ten million lines."""


def has_sources(workload: Workload | None) -> bool:
    """Whether there is a file to be read."""
    return workload is not None and (workload.trace_ref is not None or workload.prompts is not None)


def after_sources(plan: RunPlan) -> RunStep:
    """The step in which the run begins to take something; a passive one takes nothing and chooses."""
    first = {ProbeTarget.BORROW_REPLICA: RunStep.BORROW, ProbeTarget.PASSIVE: RunStep.CHOOSE}
    return first.get(plan.probe_target, RunStep.CEILING)


def read_sources(obs: RunObservation, status: TuningRunStatus) -> RunDecision:
    """Have the agent read its files, and store what it found in numbers."""
    plan = status.plan
    assert plan is not None  # frozen by Preflight
    if isinstance(obs.sources, SourcesReport) and obs.sources.state is SourceState.FAILED:
        return RunDecision(ended(status, RunOutcome.FAILED, "SourceUnreadable", obs.sources.message))
    if isinstance(obs.sources, SourcesReport) and obs.sources.state is SourceState.READY:
        facts = facts_of(obs.sources)
        missing = _missing(plan.profile_spec.workload, facts)
        if missing:
            return RunDecision(ended(status, RunOutcome.FAILED, "SourceUnreadable", missing))
        told = going_on(status.with_changes(sources=facts), after_sources(plan), "Starting the engine under test.")
        return RunDecision(told, next_tick_s=0.5)
    why = _why(obs)
    waited_s = (obs.now - status.started_at).total_seconds() if status.started_at is not None else 0.0
    if waited_s > LONGEST_READ_S:
        message = (
            f"The load agent had not read its files after {waited_s:.0f}s: {why} Look at its pod, and at the names in "
            "spec.workload.traceRef and spec.workload.prompts."
        )
        return RunDecision(ended(status, RunOutcome.FAILED, "SourceUnreadable", message))
    actions = (EnsureAgent(),) if obs.agent is None or not obs.agent.ready else ()
    return RunDecision(waiting(status, "ReadingSources", why), actions, next_tick_s=SOURCES_TICK_S)


def _why(obs: RunObservation) -> str:
    if obs.agent is None or not obs.agent.ready:
        why = "" if obs.agent is None else obs.agent.unschedulable_message or obs.agent.waiting_reason
        return f"The load agent is not ready. {why}".rstrip()
    if isinstance(obs.sources, Unreachable):
        return f"The load agent does not answer: {obs.sources.why}."
    return "The load agent reads the trace and the prompts."


def _missing(workload: Workload | None, facts: SourceFacts) -> str:
    assert workload is not None  # it has sources
    if workload.trace_ref is not None and facts.trace is None:
        return "The load agent has no trace mounted: it was made for an earlier profile. Start another run."
    if workload.prompts is not None and facts.prompts is None:
        return "The load agent has no prompts mounted: it was made for an earlier profile. Start another run."
    return ""


def facts_of(report: SourcesReport) -> SourceFacts:
    """The report as it is stored."""
    return SourceFacts(
        trace=None if report.trace is None else _trace_facts(report.trace),
        prompts=None if report.prompts is None else report.prompts.prompts,
    )


def _trace_facts(trace: TraceReport) -> TraceFacts:
    return TraceFacts(
        requests=trace.requests,
        left_out=trace.left_out,
        duration=trace.duration_s,
        gap_variation=trace.gap_variation,
        prompt_tokens=_bins(trace.prompt_tokens),
        output_tokens=_bins(trace.output_tokens),
    )


def _bins(lengths: Empirical) -> list[LengthBin]:
    return [LengthBin(min=each.low, max=each.high, weight=each.weight) for each in lengths.bins]
