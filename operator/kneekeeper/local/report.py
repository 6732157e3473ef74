"""What a tuning run found, as a file for programs and as an exit code."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from pathlib import Path

import orjson

from kneekeeper.api.run_plan import RunPlan
from kneekeeper.api.tuning_run import Fit, RunOutcome, StageSummary, TuningRunStatus, Verdict
from kneekeeper.local.command import ServerCommand
from kneekeeper.local.state import TuneState
from kneekeeper.local.wording import for_tune


class ExitCode(IntEnum):
    """How `kneekeeper tune` ends."""

    CERTIFIED = 0
    FAILED = 1
    USAGE = 2
    INCONCLUSIVE = 3
    INTERRUPTED = 130


class Advice(StrEnum):
    """What to do with the command line."""

    SWITCH = "Switch"
    """The choice is shown to be better."""
    KEEP = "Keep"
    """The choice is proven, and not shown to be better than the present setting."""
    NOT_COMPARED = "NotCompared"
    """The choice is proven; how good the present setting is was not measured."""


@dataclass(frozen=True)
class ChoiceReport:
    """The certified setting. `requests_per_second` is the promised rate, proven with 20% to spare; of objective
    throughput, the requests that `output_tokens_per_second` make, the 95% lower bound of what was measured."""

    max_num_seqs: int
    max_num_batched_tokens: int
    requests_per_second: float
    output_tokens_per_second: float | None
    sustainable_requests_per_second: float
    bound_by: str
    command: str


@dataclass(frozen=True)
class StageReport:
    """One decided stage; times in seconds. P99 bounds (`…_upper_s`) are None below 299 requests."""

    name: str
    kind: str
    max_num_seqs: int
    max_num_batched_tokens: int
    users: int | None
    offered_requests_per_second: float | None
    requests: int
    failed: int
    misses: int | None
    duration_s: float
    requests_per_second: float
    output_tokens_per_second: float
    output_tokens_per_second_lower: float | None
    output_tokens_per_second_upper: float | None
    mean_concurrency: float
    p50_ttft_s: float | None
    p99_ttft_s: float | None
    p99_ttft_upper_s: float | None
    p50_tpot_s: float | None
    p99_tpot_s: float | None
    p99_tpot_upper_s: float | None
    p50_e2e_s: float | None
    p99_e2e_s: float | None
    p99_e2e_upper_s: float | None
    verdict: str | None
    message: str


@dataclass(frozen=True)
class FitReport:
    """The model behind the choice: X(N) = min(N / (alpha_s + beta_s N), cap) requests per second at N in flight."""

    verdict: str
    alpha_s: float | None
    beta_s: float | None
    cap_requests_per_second: float | None
    knee_concurrency: tuple[float, float, float] | None  # estimate, lower and upper end of its 90% interval
    tpot_boundary_concurrency: tuple[float, float, float] | None
    step_base_s: float | None
    step_per_sequence_s: float | None
    step_per_prefill_token_s: float | None
    kv_cache_tokens: int | None
    ramp_ended_by: str
    message: str


@dataclass(frozen=True)
class PresentReport:
    """The setting that the command had. `breaks_slo` is None where it was not compared."""

    max_num_seqs: int
    max_num_batched_tokens: int
    breaks_slo: bool | None


@dataclass(frozen=True)
class FailedStartReport:
    """A setting that the engine did not start or hold with."""

    max_num_seqs: int
    max_num_batched_tokens: int
    kind: str
    message: str


@dataclass(frozen=True)
class TuneReport:
    """Everything that a run found. `verdict` is that of the last certification: Pass, Fail or Inconclusive.

    `advice` is None where there is no choice.
    """

    verdict: str
    outcome: str
    cause: str
    message: str
    advice: Advice | None
    choice: ChoiceReport | None
    present: PresentReport | None
    engine_starts: int
    elapsed_s: float
    measure_s: int
    stages: tuple[StageReport, ...]
    fit: FitReport | None
    failed_starts: tuple[FailedStartReport, ...]

    def write(self, path: Path) -> None:
        """As indented JSON. Raises OSError."""
        path.write_bytes(orjson.dumps(self, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def report_of(state: TuneState, command: ServerCommand) -> TuneReport:
    """Sum up a run that is over."""
    status = state.status
    return TuneReport(
        verdict=verdict_of(status).value,
        outcome=(status.outcome or RunOutcome.INCONCLUSIVE).value,
        cause=status.cause,
        message=for_tune(status.message),
        advice=advice_of(status),
        choice=_choice(status, command),
        present=_present(status.plan, status),
        engine_starts=status.cost.engine_starts,
        elapsed_s=round(state.elapsed, 3),
        measure_s=status.cost.measure_seconds,
        stages=tuple(_stage(stage) for stage in status.stages),
        fit=None if status.fit is None else _fit(status.fit),
        failed_starts=tuple(
            FailedStartReport(f.setting.max_num_seqs, f.setting.max_num_batched_tokens, f.kind, for_tune(f.message))
            for f in status.clone_failures
        ),
    )


def verdict_of(status: TuningRunStatus) -> Verdict:
    """Pass where a setting was certified, whatever came of the comparison with the present one."""
    verdicts = [certification.verdict for certification in status.certifications]
    if Verdict.PASS in verdicts:
        return Verdict.PASS
    if status.outcome is RunOutcome.IMPOSSIBLE_SLO or (verdicts and verdicts[-1] is Verdict.FAIL):
        return Verdict.FAIL
    return Verdict.INCONCLUSIVE


def exit_code_of(status: TuningRunStatus) -> ExitCode:
    """Of a run that is over."""
    if verdict_of(status) is Verdict.PASS:
        return ExitCode.CERTIFIED
    return ExitCode.INCONCLUSIVE if status.outcome is RunOutcome.INCONCLUSIVE else ExitCode.FAILED


def advice_of(status: TuningRunStatus) -> Advice | None:
    """Of a run that is over; None where nothing was certified."""
    if verdict_of(status) is not Verdict.PASS:
        return None
    if status.outcome is RunOutcome.NO_IMPROVEMENT:
        return Advice.KEEP
    compared = status.outcome is RunOutcome.CERTIFIED and status.present_breaks_slo is not None
    return Advice.SWITCH if compared else Advice.NOT_COMPARED


def _choice(status: TuningRunStatus, command: ServerCommand) -> ChoiceReport | None:
    passed = [c for c in status.certifications if c.verdict is Verdict.PASS]
    if not passed:
        return None
    proven = passed[-1]
    chosen = next(choice for choice in status.choices if choice.attempt == proven.attempt)
    return ChoiceReport(
        max_num_seqs=proven.setting.max_num_seqs,
        max_num_batched_tokens=proven.setting.max_num_batched_tokens,
        requests_per_second=proven.promised_requests_per_second,
        output_tokens_per_second=proven.promised_output_tokens_per_second,
        sustainable_requests_per_second=chosen.sustainable_requests_per_second,
        bound_by=chosen.bound_by.value,
        command=command.line_with(proven.setting),
    )


def _present(plan: RunPlan | None, status: TuningRunStatus) -> PresentReport | None:
    if plan is None:
        return None
    present = plan.present
    return PresentReport(present.max_num_seqs, present.max_num_batched_tokens, status.present_breaks_slo)


def _stage(stage: StageSummary) -> StageReport:
    return StageReport(
        name=stage.name,
        kind=stage.kind.value,
        max_num_seqs=stage.setting.max_num_seqs,
        max_num_batched_tokens=stage.setting.max_num_batched_tokens,
        users=stage.users,
        offered_requests_per_second=stage.offered_requests_per_second,
        requests=stage.requests,
        failed=stage.failed,
        misses=stage.misses,
        duration_s=stage.duration,
        requests_per_second=stage.requests_per_second,
        output_tokens_per_second=stage.output_tokens_per_second,
        output_tokens_per_second_lower=stage.output_tokens_per_second_lower,
        output_tokens_per_second_upper=stage.output_tokens_per_second_upper,
        mean_concurrency=stage.mean_concurrency,
        p50_ttft_s=stage.p50_ttft,
        p99_ttft_s=stage.p99_ttft,
        p99_ttft_upper_s=stage.p99_ttft_upper,
        p50_tpot_s=stage.p50_tpot,
        p99_tpot_s=stage.p99_tpot,
        p99_tpot_upper_s=stage.p99_tpot_upper,
        p50_e2e_s=stage.p50_e2e,
        p99_e2e_s=stage.p99_e2e,
        p99_e2e_upper_s=stage.p99_e2e_upper,
        verdict=None if stage.verdict is None else stage.verdict.value,
        message=for_tune(stage.message),
    )


def _fit(fit: Fit) -> FitReport:
    knee, boundary = fit.knee, fit.tpot_boundary
    return FitReport(
        verdict=fit.verdict,
        alpha_s=fit.alpha,
        beta_s=fit.beta,
        cap_requests_per_second=fit.cap_requests_per_second,
        knee_concurrency=None if knee is None else (knee.concurrency, knee.lower, knee.upper),
        tpot_boundary_concurrency=None if boundary is None else (boundary.concurrency, boundary.lower, boundary.upper),
        step_base_s=fit.step_base,
        step_per_sequence_s=fit.step_per_sequence,
        step_per_prefill_token_s=fit.step_per_prefill_token,
        kv_cache_tokens=fit.kv_cache_tokens,
        ramp_ended_by=fit.ramp_ended_by,
        message=for_tune(fit.message),
    )
