"""From what a user declares of the traffic to what the load agent draws."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kneekeeper.api.serving_profile import (
    ArrivalProcess,
    ArrivalSpec,
    LengthDistribution,
    ServingProfileSpec,
    TokenLengths,
)
from kneekeeper.api.stage import Fixed, Lengths, LogNormal, Slo, Uniform

_Z99 = 2.3263478740408408  # 99th percentile of the standard normal


@dataclass(frozen=True)
class Traffic:
    """Lengths and burstiness of the declared workload; `burstiness` None is constant gaps."""

    prompt_tokens: Lengths
    output_tokens: Lengths
    burstiness: float | None


def traffic_of(spec: ServingProfileSpec, max_model_len: int | None) -> Traffic:
    """The declared traffic, cut so that prompt and answer together fit the model's length.

    Raises ValueError where the workload is left out; profiles without one are not accepted yet.
    """
    workload = spec.workload
    if workload is None or workload.prompt_tokens is None or workload.output_tokens is None:
        raise ValueError("spec.workload needs promptTokens and outputTokens")
    output = lengths_of(workload.output_tokens, max_model_len)
    room = None if max_model_len is None else max(1, max_model_len - longest(output))
    return Traffic(lengths_of(workload.prompt_tokens, room), output, burstiness_of(workload.arrivals))


def burstiness_of(arrivals: ArrivalSpec) -> float | None:
    """The Gamma shape of the gaps: 1 is Poisson, None constant."""
    match arrivals.process:
        case ArrivalProcess.CONSTANT:
            return None
        case ArrivalProcess.GAMMA:
            return (arrivals.burstiness_percent or 100) / 100
        case _:
            return 1.0


def slo_of(spec: ServingProfileSpec) -> Slo:
    """The targets of one request."""
    return Slo(ttft_s=spec.slo.p99_ttft, tpot_s=spec.slo.p99_tpot, e2e_s=spec.slo.p99_e2e)


def lengths_of(declared: TokenLengths, longest_allowed: int | None) -> Lengths:
    """A log-normal is declared by mean m and 99th percentile q: ln q − ln m = z·sigma − sigma²/2.

    Of the two solutions the smaller sigma is meant. Beyond q/m = exp(z²/2) ≈ 15 none exists and the widest
    one is taken.
    """
    limit = longest_allowed or 1_000_000
    match declared.distribution:
        case LengthDistribution.FIXED:
            return Fixed(value=min(declared.value or 1, limit))
        case LengthDistribution.UNIFORM:
            high = min(declared.max or 1, limit)
            return Uniform(low=min(declared.min or 1, high), high=high)
        case LengthDistribution.LOG_NORMAL:
            mean, p99 = float(declared.mean or 1), float(declared.p99 or declared.mean or 1)
            sigma = _Z99 - math.sqrt(max(0.0, _Z99**2 - 2 * math.log(max(1.0, p99 / mean))))
            # Four standard deviations: beyond it a draw in 30,000 would decide how long a stage takes.
            widest = math.ceil(mean * math.exp(4 * sigma))
            return LogNormal(mean=mean, sigma=sigma, maximum=min(declared.max or widest, limit))


def longest(lengths: Lengths) -> int:
    """The longest draw, tokens."""
    match lengths:
        case Fixed():
            return lengths.value
        case Uniform():
            return lengths.high
        case LogNormal():
            return lengths.maximum
