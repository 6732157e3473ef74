"""One row for each run: why it was started, how far it is or how it ended, what it found and what it cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from kneekeeper.api.tuning_run import RunStep, TuningRun, Verdict
from kneekeeper.domain.views.fleet import Knee, Limits
from kneekeeper.domain.views.key import Key
from kneekeeper.domain.views.units import iso, rounded


@dataclass(frozen=True)
class RunRow:
    """A run at a glance. Rates are of one replica, in requests/s."""

    namespace: str
    name: str
    profile: str
    trigger: str
    step: str
    stage: str
    """In flight; empty where none is."""
    outcome: str
    """Empty while it goes on."""
    cause: str
    waiting_for: str
    message: str
    limits: Limits | None
    """What it proposed last."""
    promised_requests_per_second: float | None
    """Proven, with 20% to spare."""
    improvement_percent: int | None
    knee: Knee | None
    started_at: str | None
    finished_at: str | None
    duration_s: int | None
    """So far, while it goes on."""
    engine_starts: int
    gpu_seconds: int


def run_rows(runs: Iterable[TuningRun], now: datetime) -> list[RunRow]:
    """In the order of the runs."""
    return [_row(run, now) for run in runs]


def _row(run: TuningRun, now: datetime) -> RunRow:
    status, key = run.status, Key.of(run.metadata)
    proven = [each for each in status.certifications if each.verdict is Verdict.PASS]
    knee = status.fit.knee if status.fit is not None else None
    ended = status.finished_at or (None if status.step is RunStep.DONE else now)
    return RunRow(
        namespace=key.namespace,
        name=key.name,
        profile=run.spec.profile_name,
        trigger=run.spec.trigger.value,
        step=status.step.value,
        stage=status.current_stage.name if status.current_stage is not None else "",
        outcome=status.outcome.value if status.outcome is not None else "",
        cause=status.cause,
        waiting_for=status.waiting_for,
        message=status.message,
        limits=Limits.of(status.choices[-1].setting) if status.choices else None,
        promised_requests_per_second=rounded(proven[-1].promised_requests_per_second) if proven else None,
        improvement_percent=status.improvement_percent,
        knee=Knee(knee.concurrency, knee.lower, knee.upper) if knee is not None else None,
        started_at=iso(status.started_at),
        finished_at=iso(status.finished_at),
        duration_s=_between_s(status.started_at, ended),
        engine_starts=status.cost.engine_starts,
        gpu_seconds=status.cost.gpu_seconds,
    )


def _between_s(start: datetime | None, end: datetime | None) -> int | None:
    return None if start is None or end is None else round((end - start).total_seconds())
