"""One load level of a probe in numbers: what was offered, what came back, and whether the targets held."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kneekeeper.api.offered_load import Closed, Open
from kneekeeper.api.stage import NOT_STEADY, Outcome, Samples, StageSpec, StageState, StageStatus
from kneekeeper.api.tuning_run import Verdict
from kneekeeper.domain.certify import pass_floor, verdict_of
from kneekeeper.domain.critical_load import critical_load_doubt
from kneekeeper.domain.samples import Floats, StageData
from kneekeeper.domain.stats import quantile, quantile_upper_bound


@dataclass(frozen=True)
class Latency:
    """Of the requests that succeeded after warm-up, in seconds; `p99_upper_s` is None below 299 of them."""

    mean_s: float | None
    p50_s: float | None
    p90_s: float | None
    p99_s: float | None
    p99_upper_s: float | None


@dataclass(frozen=True)
class LoadLevel:
    """A level that has ended. `verdict` is None where no target was set and it was measured; Void where the server
    stopped answering: its misses say nothing of the load.

    `requests` and all numbers are of what was meant to be sent after warm-up; before that the server was still filling
    up. `requests_to_decide` is how many more of them an Inconclusive would take, 0 for the other verdicts.
    """

    name: str
    users: int | None
    offered_requests_per_s: float | None
    state: StageState
    warmup_requests: int  # sent before that, and counted in nothing else
    requests: int  # failed and broken off ones included
    failed: int
    broken_off: int  # by this client, when the level ended before their answers did
    misses: int
    duration_s: float
    warmup_s: float
    requests_per_s: float
    output_tokens_per_s: float
    mean_concurrency: float
    ttft: Latency
    tpot: Latency
    e2e: Latency
    verdict: Verdict | None
    requests_to_decide: int
    message: str
    send_lag_p99_s: float
    loop_lag_p99_s: float
    cpu_share: float
    achieved_over_offered: float


def load_level(name: str, spec: StageSpec, status: StageStatus, samples: Samples) -> LoadLevel:
    """Sum up a stage that has ended, also one that was broken off: what was measured until then counts."""
    everything = StageData.from_wire(samples)
    data = everything.after_warmup()
    verdict, to_decide, message = _verdict(spec, status, data)
    arrivals, ok = spec.arrivals, data.ok
    broken_off = sum(
        outcome is Outcome.ABORTED and intended_s >= samples.warmup_s
        for outcome, intended_s in zip(samples.outcome, samples.intended_s, strict=True)
    )
    return LoadLevel(
        name=name,
        users=arrivals.users if isinstance(arrivals, Closed) else None,
        offered_requests_per_s=arrivals.rate if isinstance(arrivals, Open) else None,
        state=status.state,
        warmup_requests=len(everything) - len(data),
        requests=len(data),
        failed=int((~ok).sum()) - broken_off,
        broken_off=broken_off,
        misses=int(data.misses(spec.slo).sum()),
        duration_s=status.elapsed_s,
        warmup_s=status.warmup_s,
        requests_per_s=status.requests_per_s,
        output_tokens_per_s=status.output_tokens_per_s,
        mean_concurrency=status.mean_concurrency,
        ttft=_latency(data.ttft_s[ok]),
        tpot=_latency(data.tpot_s[ok]),
        e2e=_latency(data.e2e_s[ok]),
        verdict=verdict,
        requests_to_decide=to_decide,
        message=message,
        send_lag_p99_s=status.evidence.send_lag_p99_s,
        loop_lag_p99_s=status.evidence.loop_lag_p99_s,
        cpu_share=status.evidence.cpu_share,
        achieved_over_offered=status.evidence.achieved_over_offered,
    )


def verdict_of_levels(levels: list[LoadLevel]) -> Verdict | None:
    """Of all levels together: the worst of them, where a Fail that was seen counts more than what was not seen.

    None where nothing was judged.
    """
    verdicts = {level.verdict for level in levels}
    for worst in (Verdict.FAIL, Verdict.INVALID, Verdict.VOID, Verdict.INCONCLUSIVE, Verdict.PASS):
        if worst in verdicts:
            return worst
    return None


def _verdict(spec: StageSpec, status: StageStatus, data: StageData) -> tuple[Verdict | None, int, str]:
    """With how many more requests would decide, and why."""
    if status.state is StageState.INVALID:
        return Verdict.INVALID, 0, status.message or status.reason
    if status.state is StageState.FAILED:
        return Verdict.VOID, 0, status.message or status.reason
    judged = any(target is not None for target in (spec.slo.ttft_s, spec.slo.tpot_s, spec.slo.e2e_s))
    if not judged:
        return None, 0, status.message
    if status.state is StageState.SATURATED:
        return Verdict.FAIL, 0, status.message or "The backlog grew: the rate is more than the server carries."
    floor = spec.min_pass_requests or pass_floor(spec.arrivals, spec.slo)
    if not len(data):
        return Verdict.INCONCLUSIVE, floor, f"No request was sent after warm-up. {status.message}".rstrip()
    unsteady = status.message if status.reason == NOT_STEADY else critical_load_doubt(data, spec.arrivals)
    result = verdict_of(data, spec.slo, floor, unsteady=unsteady)
    return result.verdict, result.requests_to_decide, result.message


def _latency(seconds: Floats) -> Latency:
    known = seconds[np.isfinite(seconds)]
    return Latency(
        mean_s=float(known.mean()) if known.size else None,
        p50_s=quantile(known, 0.5),
        p90_s=quantile(known, 0.9),
        p99_s=quantile(known, 0.99),
        p99_upper_s=quantile_upper_bound(known),
    )


@dataclass(frozen=True)
class Delivered:
    """What the client saw in a level, from its first request to its last, warm-up included."""

    succeeded: int
    not_succeeded: int  # failed, timed out or broken off: what the server counted of them is not known
    prompt_tokens: int
    output_tokens: int
    ttft_mean_s: float | None  # from the actual send time, as the server can see it


def delivered(samples: Samples) -> Delivered:
    """Totals over all requests of a stage."""
    ok = np.asarray([outcome is Outcome.OK for outcome in samples.outcome], dtype=np.bool_)
    ttft_s = np.asarray(samples.first_s, dtype=np.float64) - np.asarray(samples.sent_s, dtype=np.float64)
    return Delivered(
        succeeded=int(ok.sum()),
        not_succeeded=int((~ok).sum()),
        prompt_tokens=int(np.asarray(samples.prompt_tokens, dtype=np.int64)[ok].sum()),
        output_tokens=int(np.asarray(samples.output_tokens, dtype=np.int64)[ok].sum()),
        ttft_mean_s=float(ttft_s[ok].mean()) if ok.any() else None,
    )
