"""A run as it is shown: its stages as they are decided, the fit, what was tried, and before against after."""

from __future__ import annotations

from dataclasses import dataclass

from kneekeeper.api.profile_status import KneeEstimate
from kneekeeper.api.tuning_run import Certification, Choice, Fit, StageKind, StageSummary, TuningRun
from kneekeeper.domain.control import mark_void
from kneekeeper.domain.views.fleet import Knee, Limits, Targets, targets_of
from kneekeeper.domain.views.key import Key
from kneekeeper.domain.views.units import four_digits, iso, milliseconds, rounded


@dataclass(frozen=True)
class StageView:
    """One decided stage. `p99_…_upper_ms` is the 95% bound, None below 299 requests."""

    name: str
    kind: str
    limits: Limits
    users: int | None
    offered_requests_per_second: float | None
    requests: int
    failed: int
    misses: int | None
    duration_s: float
    requests_per_second: float
    output_tokens_per_second: float
    concurrency: float
    p50_ttft_ms: float | None
    p99_ttft_ms: float | None
    p99_ttft_upper_ms: float | None
    p50_tpot_ms: float | None
    p99_tpot_ms: float | None
    p99_tpot_upper_ms: float | None
    p50_e2e_ms: float | None
    p99_e2e_ms: float | None
    p99_e2e_upper_ms: float | None
    saturated: bool
    verdict: str | None
    message: str


@dataclass(frozen=True)
class StageInFlight:
    """What runs now."""

    name: str
    kind: str
    started_at: str


@dataclass(frozen=True)
class FitView:
    """X(N) = min(N / (alpha + beta N), cap) and what followed from it."""

    verdict: str
    message: str
    knee: Knee | None
    tpot_boundary: Knee | None
    alpha_ms: float | None
    beta_ms: float | None
    cap_requests_per_second: float | None
    kv_cache_tokens: int | None
    ramp_ended_by: str


@dataclass(frozen=True)
class ChoiceView:
    """What was proposed for certification."""

    attempt: int
    limits: Limits
    sustainable_requests_per_second: float
    bound_by: str
    message: str


@dataclass(frozen=True)
class CertificationView:
    """What was tried at 1.2 times its promise."""

    attempt: int
    limits: Limits
    offered_requests_per_second: float
    promised_requests_per_second: float
    verdict: str
    requests: int
    misses: int
    message: str


@dataclass(frozen=True)
class FailureView:
    """A setting that the engine did not start with."""

    limits: Limits
    kind: str
    message: str


@dataclass(frozen=True)
class RunView:
    """Everything that a run's status says, in milliseconds and requests/s."""

    namespace: str
    name: str
    profile: str
    trigger: str
    step: str
    outcome: str | None
    cause: str
    waiting_for: str
    message: str
    started_at: str | None
    finished_at: str | None
    slo: Targets | None
    present: Limits | None
    present_breaks_slo: bool | None
    present_promised_requests_per_second: float | None
    improvement_percent: int | None
    stage_in_flight: StageInFlight | None
    stages: tuple[StageView, ...]
    fit: FitView | None
    choices: tuple[ChoiceView, ...]
    certifications: tuple[CertificationView, ...]
    failures: tuple[FailureView, ...]
    before: StageView | None
    """The present setting under open-loop load; None where it was not measured."""
    after: StageView | None
    """The last certification's stage."""
    engine_starts: int
    gpu_seconds: int
    measure_seconds: int


def run_view(run: TuningRun) -> RunView:
    """The whole view. Stages between disagreeing controls are shown as void."""
    status, key = run.status, Key.of(run.metadata)
    plan = status.plan
    marked = status.stages
    if plan is not None:
        marked = list(mark_void(status.stages, plan.profile_spec.probe.ladder.control_tolerance_percent / 100))
    stages = tuple(_stage(stage) for stage in marked)
    current, slo = status.current_stage, plan.profile_spec.slo if plan is not None else None
    return RunView(
        namespace=key.namespace,
        name=key.name,
        profile=run.spec.profile_name,
        trigger=run.spec.trigger.value,
        step=status.step.value,
        outcome=status.outcome.value if status.outcome else None,
        cause=status.cause,
        waiting_for=status.waiting_for,
        message=status.message,
        started_at=iso(status.started_at),
        finished_at=iso(status.finished_at),
        slo=targets_of(slo) if slo else None,
        present=Limits.of(plan.present) if plan else None,
        present_breaks_slo=status.present_breaks_slo,
        present_promised_requests_per_second=rounded(status.present_promised_requests_per_second),
        improvement_percent=status.improvement_percent,
        stage_in_flight=StageInFlight(current.name, current.kind.value, iso(current.started_at) or "")
        if current
        else None,
        stages=stages,
        fit=_fit(status.fit) if status.fit else None,
        choices=tuple(_choice(choice) for choice in status.choices),
        certifications=tuple(_certification(each) for each in status.certifications),
        failures=tuple(FailureView(Limits.of(f.setting), f.kind, f.message) for f in status.clone_failures),
        before=_last(stages, StageKind.BASELINE),
        after=_last(stages, StageKind.CERTIFY),
        engine_starts=status.cost.engine_starts,
        gpu_seconds=status.cost.gpu_seconds,
        measure_seconds=status.cost.measure_seconds,
    )


def _last(stages: tuple[StageView, ...], kind: StageKind) -> StageView | None:
    return next((stage for stage in reversed(stages) if stage.kind == kind.value), None)


def _stage(stage: StageSummary) -> StageView:
    return StageView(
        name=stage.name,
        kind=stage.kind.value,
        limits=Limits.of(stage.setting),
        users=stage.users,
        offered_requests_per_second=rounded(stage.offered_requests_per_second),
        requests=stage.requests,
        failed=stage.failed,
        misses=stage.misses,
        duration_s=round(stage.duration, 1),
        requests_per_second=four_digits(stage.requests_per_second),
        output_tokens_per_second=four_digits(stage.output_tokens_per_second),
        concurrency=four_digits(stage.mean_concurrency),
        p50_ttft_ms=milliseconds(stage.p50_ttft),
        p99_ttft_ms=milliseconds(stage.p99_ttft),
        p99_ttft_upper_ms=milliseconds(stage.p99_ttft_upper),
        p50_tpot_ms=milliseconds(stage.p50_tpot),
        p99_tpot_ms=milliseconds(stage.p99_tpot),
        p99_tpot_upper_ms=milliseconds(stage.p99_tpot_upper),
        p50_e2e_ms=milliseconds(stage.p50_e2e),
        p99_e2e_ms=milliseconds(stage.p99_e2e),
        p99_e2e_upper_ms=milliseconds(stage.p99_e2e_upper),
        saturated=stage.saturated,
        verdict=stage.verdict.value if stage.verdict else None,
        message=stage.message,
    )


def _fit(fit: Fit) -> FitView:
    return FitView(
        verdict=fit.verdict,
        message=fit.message,
        knee=_knee(fit.knee),
        tpot_boundary=_knee(fit.tpot_boundary),
        alpha_ms=milliseconds(fit.alpha),
        beta_ms=milliseconds(fit.beta),
        cap_requests_per_second=rounded(fit.cap_requests_per_second),
        kv_cache_tokens=fit.kv_cache_tokens,
        ramp_ended_by=fit.ramp_ended_by,
    )


def _knee(estimate: KneeEstimate | None) -> Knee | None:
    return None if estimate is None else Knee(estimate.concurrency, estimate.lower, estimate.upper)


def _choice(choice: Choice) -> ChoiceView:
    return ChoiceView(
        choice.attempt,
        Limits.of(choice.setting),
        four_digits(choice.sustainable_requests_per_second),
        choice.bound_by.value,
        choice.message,
    )


def _certification(each: Certification) -> CertificationView:
    return CertificationView(
        each.attempt,
        Limits.of(each.setting),
        four_digits(each.offered_requests_per_second),
        four_digits(each.promised_requests_per_second),
        each.verdict.value,
        each.requests,
        each.misses,
        each.message,
    )
