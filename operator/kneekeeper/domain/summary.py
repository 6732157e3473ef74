"""One ended stage in a few numbers, as the run's status stores it."""

from __future__ import annotations

from kneekeeper.api.model import Setting
from kneekeeper.api.offered_load import Closed
from kneekeeper.api.stage import NOT_STEADY, Samples, StageSpec, StageState, StageStatus
from kneekeeper.api.tuning_run import StageKind, StageSummary, Verdict
from kneekeeper.domain.certify import CertifyResult, Claim, pass_floor
from kneekeeper.domain.mix_verdicts import summarise_classes, verdict_of_mix
from kneekeeper.domain.samples import Ints, StageData
from kneekeeper.domain.stats import Interval, quantile, quantile_upper_bound
from kneekeeper.domain.throughput import is_of_throughput, output_rate, proof_of

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
    Pass, Fail or Inconclusive for certifications and baselines, else absent. Where those have no target they prove a
    throughput, which has an interval then.
    """
    data = StageData.from_wire(samples).after_warmup()
    served = data.ok
    ttft_s, tpot_s, e2e_s = data.ttft_s[served], data.tpot_s[served], data.e2e_s[served]
    rate = output_rate(StageData.from_wire(samples)) if is_of_throughput(spec, kind) else None
    verdict, message, of_classes = _verdict(data, spec, status, kind, setting, rate)
    return StageSummary(
        name=name,
        kind=kind,
        setting=setting,
        users=spec.arrivals.users if isinstance(spec.arrivals, Closed) else None,
        offered_requests_per_second=_offered_rate(spec, samples),
        prompt_tokens_mean=_mean(data.prompt_tokens[served]),
        output_tokens_mean=_mean(data.output_tokens[served]),
        requests=len(data),
        failed=int((~served).sum()),
        duration=status.elapsed_s,
        requests_per_second=status.requests_per_s,
        output_tokens_per_second=status.output_tokens_per_s if rate is None else rate.estimate,
        output_tokens_per_second_lower=None if rate is None else rate.lower,
        output_tokens_per_second_upper=None if rate is None else rate.upper,
        mean_concurrency=status.mean_concurrency,
        p50_ttft=quantile(ttft_s, 0.5),
        p99_ttft=quantile(ttft_s, 0.99),
        p99_ttft_upper=quantile_upper_bound(ttft_s),
        p50_tpot=quantile(tpot_s, 0.5),
        p99_tpot=quantile(tpot_s, 0.99),
        p99_tpot_upper=quantile_upper_bound(tpot_s),
        p50_e2e=quantile(e2e_s, 0.5),
        p99_e2e=quantile(e2e_s, 0.99),
        p99_e2e_upper=quantile_upper_bound(e2e_s),
        misses=int(data.misses_of_mix(spec.slos).sum()),
        classes=summarise_classes(data, spec, of_classes),
        saturated=status.state is StageState.SATURATED,
        verdict=verdict,
        ended_by=status.reason[:_LONGEST_REASON],
        message=message[:_LONGEST_MESSAGE],
    )


def _offered_rate(spec: StageSpec, samples: Samples) -> float | None:
    """Requests per second of an open loop; a trace in its own time has that of the part that was played."""
    if isinstance(spec.arrivals, Closed):
        return None
    if spec.arrivals.rate is not None:
        return spec.arrivals.rate
    span_s = max(samples.intended_s, default=0.0) - min(samples.intended_s, default=0.0)
    return (len(samples.intended_s) - 1) / span_s if span_s > 0 else None


def _mean(tokens: Ints) -> float:
    return float(tokens.mean()) if tokens.size else 0.0


def _verdict(
    data: StageData, spec: StageSpec, status: StageStatus, kind: StageKind, setting: Setting, rate: Interval | None
) -> tuple[Verdict | None, str, tuple[CertifyResult, ...]]:
    if status.state in _NO_EVIDENCE:
        return Verdict.INVALID, status.message or status.reason or f"The stage ended as {status.state}.", ()
    if not len(data):
        room = "" if kind in _JUDGED else " Raise spec.probe.ladder.maxStageDuration."
        return Verdict.INVALID, f"No request was sent after warm-up.{room}", ()
    if kind not in _JUDGED:
        return None, status.message, ()
    if status.state is StageState.SATURATED:
        return Verdict.FAIL, status.message or "The backlog grew: the rate is more than the engine carries.", ()
    unsteady = status.message if status.reason == NOT_STEADY else ""
    if is_of_throughput(spec, kind):
        proof = proof_of(data, rate, spec.slo.availability, unsteady=unsteady)
        return proof.verdict, proof.message, ()
    floor = spec.min_pass_requests or pass_floor(spec.arrivals, spec.slo, setting.max_num_seqs)
    claim = Claim.PROMISED if kind is StageKind.CERTIFY else Claim.OFFERED
    result, of_classes = verdict_of_mix(data, spec, floor, unsteady=unsteady, claim=claim)
    return result.verdict, result.message, of_classes
