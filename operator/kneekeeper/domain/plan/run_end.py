"""How a run ends: the outcome is fixed first, then everything it made is cleaned up."""

from __future__ import annotations

from datetime import datetime

from kneekeeper.api.tuning_run import RunOutcome, RunStep, TuningRunStatus, Verdict


def ended(status: TuningRunStatus, outcome: RunOutcome, cause: str, message: str) -> TuningRunStatus:
    """The status from which only cleaning up is left."""
    return status.with_changes(
        step=RunStep.CLEAN_UP,
        outcome=outcome,
        cause=cause,
        message=message[:1024],
        waiting_for="",
        current_stage=None,
    )


def waiting(status: TuningRunStatus, reason: str, message: str) -> TuningRunStatus:
    """The same step, with what it waits for."""
    return status.with_changes(waiting_for=reason, message=message[:1024])


def going_on(status: TuningRunStatus, step: RunStep, message: str) -> TuningRunStatus:
    """The next step."""
    return status.with_changes(step=step, waiting_for="", message=message[:1024])


def gpu_seconds(status: TuningRunStatus, now: datetime) -> int:
    """GPU time since the first engine start: the clone holds its GPUs from then on."""
    if status.plan is None or status.engine_since is None:
        return 0
    return round(status.plan.gpus_per_replica * (now - status.engine_since).total_seconds())


def over_budget(status: TuningRunStatus, now: datetime) -> TuningRunStatus | None:
    """The ended status when the budget is used up: the best proven setting stands."""
    if status.plan is None:
        return None
    budget = status.plan.profile_spec.probe.budget
    used_gpu_seconds = gpu_seconds(status, now)
    restarts = max(0, status.cost.engine_starts - 1)
    over = [
        f"{name} {used:.0f} of {limit:.0f}"
        for name, used, limit in (
            ("maxMeasureDuration: seconds", status.cost.measure_seconds, budget.max_measure_duration),
            ("maxGPUSeconds:", used_gpu_seconds, budget.max_gpu_seconds),
            ("maxRestarts:", restarts, budget.max_restarts),
        )
        if used > limit
    ]
    if not over:
        return None
    message = f"The budget is used up ({'; '.join(over)})."
    proven = any(c.verdict == Verdict.PASS for c in status.certifications)
    if proven:
        return ended(
            status,
            RunOutcome.CERTIFIED,
            "PresentNotMeasured",
            f"{message} The present setting is not compared.",
        )
    return ended(
        status,
        RunOutcome.INCONCLUSIVE,
        "BudgetExhausted",
        f"{message} Nothing was certified; raise spec.probe.budget.",
    )
