"""Runs of objective Throughput: the load that keeps an engine full, and the choice against the present setting.

Nothing is held to a latency. Both settings meet the same closed loop: the users that the workload declares, else a
quarter more than the larger setting runs at a time. What is promised is the lower bound of what was measured, and an
improvement is that bound over the upper one of the present setting.
"""

from __future__ import annotations

import math

from kneekeeper.api.offered_load import Closed
from kneekeeper.api.run_plan import RunPlan
from kneekeeper.api.serving_profile import ArrivalProcess, Objective, ServingProfileSpec
from kneekeeper.api.stage import Limits
from kneekeeper.api.tuning_run import (
    Certification,
    Choice,
    RunOutcome,
    StageKind,
    StageSummary,
    TuningRunStatus,
    Verdict,
)
from kneekeeper.domain.agents import STREAMS_PER_AGENT, agents_of
from kneekeeper.domain.improvement import Improvement, with_improvement
from kneekeeper.domain.plan.run_end import ended
from kneekeeper.domain.throughput import gain_percent, mean_output_tokens, rate_of, told_rate

SATURATING = 1.25
"""Users over the sequences of the larger setting: somebody always waits for a place."""

LEAST_REQUESTS = 300
REQUESTS_PER_USER = 12
"""After warm-up: a throughput's interval rests on windows as long as a request stays, and needs a dozen of them."""

ROOM = 3
"""A stage that is not steady goes on for so many times the requests."""


def asks_for_throughput(spec: ServingProfileSpec) -> bool:
    """Whether the most tokens are asked for, and no latency."""
    return spec.objective is Objective.THROUGHPUT


def declared_users(spec: ServingProfileSpec) -> int | None:
    """The clients of a declared closed loop; None where there are as many as the engine takes."""
    workload = spec.workload
    closed = workload is not None and workload.arrivals.process is ArrivalProcess.CLOSED
    return workload.arrivals.users if workload is not None and closed else None


def full_load(plan: RunPlan, choice: Choice) -> Closed:
    """The closed loop that choice and present setting meet alike; never more users than may be tried."""
    declared = declared_users(plan.profile_spec)
    carried = agents_of(plan) * STREAMS_PER_AGENT
    if declared is not None and plan.profile_spec.workload is not None:
        return Closed(users=min(declared, carried), think_time_s=plan.profile_spec.workload.arrivals.think_time or 0.0)
    wanted = math.ceil(SATURATING * max(choice.setting.max_num_seqs, plan.present.max_num_seqs))
    return Closed(users=min(wanted, plan.profile_spec.probe.ladder.max_concurrency, carried))


def full_limits(users: int, rate: float) -> Limits:
    """When a stage of so many users ends; `rate` is that of the requests, as it is expected."""
    least = max(LEAST_REQUESTS, REQUESTS_PER_USER * users)
    most = ROOM * least
    return Limits(min_requests=least, max_requests=most, max_duration_s=max(60.0, 1.5 * most / rate))


def certification_of_throughput(choice: Choice, stage: StageSummary, stages: list[StageSummary]) -> Certification:
    """What the stage proves: of tokens the lower bound, as requests of the run's mean length."""
    rate = rate_of(stage)
    lower = rate.lower if rate is not None else 0.0
    return Certification(
        attempt=choice.attempt,
        setting=choice.setting,
        offered_requests_per_second=stage.requests_per_second,
        promised_requests_per_second=lower / max(1.0, mean_output_tokens(_of_the_workload(stages))),
        promised_output_tokens_per_second=lower,
        offered_users=stage.users,
        verdict=stage.verdict or Verdict.INCONCLUSIVE,
        requests=stage.requests,
        misses=stage.failed,
        message=stage.message,
    )


def _of_the_workload(stages: list[StageSummary]) -> list[StageSummary]:
    kinds = (StageKind.RAMP, StageKind.OPEN, StageKind.CERTIFY, StageKind.BASELINE)
    return [stage for stage in stages if stage.kind in kinds and stage.requests]


def compared(plan: RunPlan, status: TuningRunStatus, proven: Certification, stage: StageSummary) -> TuningRunStatus:
    """The ended run: by how much the choice makes more tokens than the present setting did in `stage`."""
    certified = next(s for s in reversed(status.stages) if s.kind is StageKind.CERTIFY)
    choice, present = rate_of(certified), rate_of(stage)
    asked = plan.profile_spec.update_policy.min_improvement_percent
    if stage.verdict is Verdict.FAIL:
        message = f"{proven.setting} makes {certified.message} With the present {plan.present} {stage.message}"
        shown = Improvement(True, asked, None)
        return ended(with_improvement(status, shown), RunOutcome.CERTIFIED, "Certified", message)
    if choice is None or present is None or stage.verdict is not Verdict.PASS:
        message = f"The present {plan.present} could not be compared: {stage.message}"
        return ended(status, RunOutcome.CERTIFIED, "PresentNotMeasured", message)
    gain = gain_percent(choice, present)
    both = f"{proven.setting} makes {told_rate(choice)}, the present {plan.present} {told_rate(present)}"
    if gain < max(asked, 1):
        message = (
            f"{both}, both with {stage.users} users: a gain of spec.updatePolicy.minImprovementPercent ({asked}%) is "
            "not shown."
        )
        return ended(status, RunOutcome.NO_IMPROVEMENT, "ImprovementNotShown", message)
    message = f"{both}, both with {stage.users} users: at least {gain}% more."
    return ended(with_improvement(status, Improvement(False, gain, None)), RunOutcome.CERTIFIED, "Certified", message)
