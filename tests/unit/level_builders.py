"""Ended load levels for tests of what is told of them."""

from __future__ import annotations

from kneekeeper.api.offered_load import Arrivals, Closed, Fixed, Open
from kneekeeper.api.stage import Evidence, Limits, Outcome, Samples, Slo, StageSpec, StageState, StageStatus, Target
from kneekeeper.domain.load_level import LoadLevel, load_level

NO_TARGET = Slo()


def samples_of(
    requests: int, *, slow: int = 0, failed: int = 0, broken_off: int = 0, ttft_s: float = 0.1, warmup_s: float = 0.0
) -> Samples:
    """Requests of 100 prompt and 11 output tokens at 20 ms each; the first `slow` take 5 s to their first token."""
    intended = [0.1 * i for i in range(requests)]
    first = [t + (5.0 if i < slow else ttft_s) for i, t in enumerate(intended)]
    return Samples(
        warmup_s=warmup_s,
        intended_s=intended,
        sent_s=intended,
        first_s=first,
        last_s=[t + 0.2 for t in first],
        prompt_tokens=[100] * requests,
        output_tokens=[11] * requests,
        first_chunk_tokens=[1] * requests,
        chunks=[11] * requests,
        outcome=[Outcome.OK] * (requests - failed - broken_off)
        + [Outcome.ERROR] * failed
        + [Outcome.ABORTED] * broken_off,
    )


def level_of(
    requests: int = 800,
    *,
    users: int | None = 8,
    rate: float = 10.0,
    slo: Slo = NO_TARGET,
    state: StageState = StageState.DONE,
    reason: str = "",
    message: str = "",
    slow: int = 0,
    failed: int = 0,
    broken_off: int = 0,
    warmup_s: float = 0.0,
) -> LoadLevel:
    """A closed-loop level, an open-loop one where `users` is None."""
    arrivals: Arrivals = Open(rate=rate) if users is None else Closed(users=users)
    name = f"rate-{rate:g}" if users is None else f"users-{users}"
    spec = StageSpec(
        id="level",
        target=Target(host="127.0.0.1", port=8000, model="model"),
        prompt_tokens=Fixed(value=100),
        output_tokens=Fixed(value=11),
        arrivals=arrivals,
        limits=Limits(min_requests=1, max_requests=max(1, requests), max_duration_s=60.0),
        slo=slo,
        seed=1,
    )
    status = StageStatus(
        id="level",
        state=state,
        reason=reason,
        message=message,
        elapsed_s=80.0,
        warmup_s=warmup_s,
        planned=requests,
        sent=requests,
        succeeded=requests - failed - broken_off,
        failed=failed,
        timed_out=0,
        in_flight=0,
        requests_per_s=10.0,
        output_tokens_per_s=110.0,
        mean_concurrency=float(users or 4),
        evidence=Evidence(send_lag_p99_s=0.001, loop_lag_p99_s=0.002, cpu_share=0.1, achieved_over_offered=1),
    )
    samples = samples_of(requests, slow=slow, failed=failed, broken_off=broken_off, warmup_s=warmup_s)
    return load_level(name, spec, status, samples)
