"""How a run ends: the outcome is fixed first, then everything it made is cleaned up."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from kneekeeper.api.tuning_run import RunOutcome, RunStep, TuningRunStatus, Verdict
from kneekeeper.domain.names import ANNOTATION_RETUNE
from kneekeeper.domain.observation import Obstacle, RunObservation, StageView
from kneekeeper.domain.plan.changes import changed

MAX_STAGES = 96
"""As many as a run's status holds."""


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


def cut_short(status: TuningRunStatus, outcome: RunOutcome, cause: str, message: str) -> TuningRunStatus:
    """The ended status of a run that cannot go on: what was certified before stands."""
    if not any(c.verdict == Verdict.PASS for c in status.certifications):
        return ended(status, outcome, cause, message)
    message = f"Certified; the present setting is not compared. {message}"
    return ended(status, RunOutcome.CERTIFIED, "PresentNotMeasured", message)


def blocked(status: TuningRunStatus, obstacle: Obstacle) -> TuningRunStatus:
    """The ended status of a run whose clone or agent cannot be made: it only gets better when somebody acts."""
    message = f"{obstacle.message} Then annotate the profile with {ANNOTATION_RETUNE}=<anything new>."
    return cut_short(status, RunOutcome.FAILED, obstacle.reason, message)


def waiting(status: TuningRunStatus, reason: str, message: str) -> TuningRunStatus:
    """The same step, with what it waits for."""
    return changed(status, waiting_for=reason, message=message[:1024])


def going_on(status: TuningRunStatus, step: RunStep, message: str) -> TuningRunStatus:
    """The next step."""
    return changed(status, step=step, waiting_for="", message=message[:1024])


def gpu_seconds(status: TuningRunStatus, now: datetime) -> int:
    """GPU time since the first engine start: the clone holds its GPUs from then on.

    Never less than before, whatever the clock does.
    """
    if status.plan is None or status.engine_since is None:
        return 0
    held_s = (now - status.engine_since).total_seconds()
    return max(status.cost.gpu_seconds, round(status.plan.gpus_per_replica * held_s))


def over_budget(status: TuningRunStatus, obs: RunObservation) -> TuningRunStatus | None:
    """The ended status when the budget is used up, in mid-stage too: the best proven setting stands.

    A stage that has ended is summed up first: its result was paid for.
    """
    view = obs.stage if isinstance(obs.stage, StageView) else None
    if status.plan is None or (view is not None and view.samples is not None):
        return None
    running_s = view.status.elapsed_s if view is not None and view.status is not None else 0.0
    budget = status.plan.profile_spec.probe.budget
    measured_s = status.cost.measure_seconds + running_s
    over = {
        name: f"{used:.0f} of {limit:.0f} {unit}"
        for name, used, limit, unit in (
            ("maxMeasureDuration", measured_s, budget.max_measure_duration, "s under load"),
            ("maxGPUSeconds", gpu_seconds(status, obs.now), budget.max_gpu_seconds, "GPU seconds"),
        )
        if used > limit
    }
    if not over and len(status.stages) > MAX_STAGES - 1:
        message = (
            f"The run has {len(status.stages)} stages, as many as its status holds. Look for other work on the node: "
            "stages are repeated where a machine is not quiet."
        )
        return cut_short(status, RunOutcome.INCONCLUSIVE, "BudgetExhausted", message)
    return budget_exhausted(status, over) if over else None


def budget_exhausted(status: TuningRunStatus, over: Mapping[str, str]) -> TuningRunStatus:
    """The ended status when something of the budget is used up: fields, each with how much of it."""
    used, fields = "; ".join(over.values()), " and spec.probe.budget.".join(over)
    message = f"The budget is used up ({used}); raise spec.probe.budget.{fields}."
    return cut_short(status, RunOutcome.INCONCLUSIVE, "BudgetExhausted", message)
