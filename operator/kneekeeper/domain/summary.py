"""One ended stage in a few numbers, as the run's status stores it."""

from __future__ import annotations

from kneekeeper.api.model import Setting
from kneekeeper.api.stage import Closed, Open, Samples, StageSpec, StageState, StageStatus
from kneekeeper.api.tuning_run import StageKind, StageSummary, Verdict
from kneekeeper.domain.certify import pass_floor, verdict_of
from kneekeeper.domain.samples import Ints, StageData
from kneekeeper.domain.stats import quantile, quantile_upper_bound

_NO_EVIDENCE = (StageState.INVALID, StageState.FAILED, StageState.CANCELLED)
_JUDGED = (StageKind.CERTIFY, StageKind.BASELINE)
_LONGEST_MESSAGE = 512
_LONGEST_REASON = 64


def summarise(
    spec: StageSpec,
    status: StageStatus,
    samples: Samples,
    *,
    name: str,
    kind: StageKind,
    setting: Setting,
) -> StageSummary:
    """Sum up a stage that has ended.

    Latencies are those of requests that succeeded after warm-up; failed ones count as misses. The P99 bounds
    are absent below 299 such requests. The verdict is Invalid where the stage says nothing of the engine,
    Pass, Fail or Inconclusive for certifications and baselines, else absent.
    """
    data = StageData.from_wire(samples).after_warmup()
    served = data.ok
    ttft_s, tpot_s = data.ttft_s[served], data.tpot_s[served]
    verdict, message = _verdict(data, spec, status, kind, setting)
    return StageSummary(
        name=name,
        kind=kind,
        setting=setting,
        users=spec.arrivals.users if isinstance(spec.arrivals, Closed) else None,
        offered_requests_per_second=spec.arrivals.rate if isinstance(spec.arrivals, Open) else None,
        prompt_tokens_mean=_mean(data.prompt_tokens[served]),
        output_tokens_mean=_mean(data.output_tokens[served]),
        requests=len(data),
        failed=int((~served).sum()),
        duration=status.elapsed_s,
        requests_per_second=status.requests_per_s,
        output_tokens_per_second=status.output_tokens_per_s,
        mean_concurrency=status.mean_concurrency,
        p50_ttft=quantile(ttft_s, 0.5),
        p99_ttft=quantile(ttft_s, 0.99),
        p99_ttft_upper=quantile_upper_bound(ttft_s),
        p50_tpot=quantile(tpot_s, 0.5),
        p99_tpot=quantile(tpot_s, 0.99),
        p99_tpot_upper=quantile_upper_bound(tpot_s),
        misses=int(data.misses(spec.slo).sum()),
        saturated=status.state is StageState.SATURATED,
        verdict=verdict,
        ended_by=status.reason[:_LONGEST_REASON],
        message=message[:_LONGEST_MESSAGE],
    )


def _mean(tokens: Ints) -> float:
    return float(tokens.mean()) if tokens.size else 0.0


def _verdict(
    data: StageData, spec: StageSpec, status: StageStatus, kind: StageKind, setting: Setting
) -> tuple[Verdict | None, str]:
    if status.state in _NO_EVIDENCE:
        return Verdict.INVALID, status.message or status.reason or f"The stage ended as {status.state}."
    if not len(data):
        return Verdict.INVALID, "No request was sent after warm-up. Allow longer stages."
    if kind not in _JUDGED:
        return None, status.message
    if status.state is StageState.SATURATED:
        return Verdict.FAIL, status.message or "The backlog grew: the rate is more than the engine carries."
    floor = spec.min_pass_requests or pass_floor(setting.max_num_seqs)
    result = verdict_of(data, spec.slo, floor)
    return result.verdict, result.message
