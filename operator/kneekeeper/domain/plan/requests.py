"""From what a user declares of the traffic to what the load agent draws."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kneekeeper.api.offered_load import Bin, Empirical, Fixed, FromTrace, Lengths, LogNormal, Uniform
from kneekeeper.api.run_plan import SourceFacts
from kneekeeper.api.serving_profile import (
    ArrivalProcess,
    ArrivalSpec,
    LengthDistribution,
    ServingProfileSpec,
    SloTargets,
    TokenLengths,
    Workload,
    WorkloadClass,
)
from kneekeeper.api.stage import PromptSource, Slo, StageClass
from kneekeeper.api.workload import LengthBin, TraceTime
from kneekeeper.domain.lengths import cut, longest_tokens, mixture
from kneekeeper.domain.request_kinds import ALIKE, RequestKinds, Timing

_Z99 = 2.3263478740408408  # 99th percentile of the standard normal
_NO_LIMIT = 1_000_000


class TrafficUnknown(ValueError):
    """The workload does not say what is needed, or its trace was not read yet."""


@dataclass(frozen=True)
class Traffic:
    """The declared workload. The lengths are those of all requests, of a mix as a histogram; `burstiness` is the
    shape of the gaps' Gamma distribution and None for constant gaps."""

    prompt_tokens: Lengths
    output_tokens: Lengths
    burstiness: float | None
    timing: Timing = Timing.DRAWN
    kinds: RequestKinds = ALIKE


def traffic_of(spec: ServingProfileSpec, max_model_len: int | None, sources: SourceFacts | None = None) -> Traffic:
    """The declared traffic, cut so that prompt and answer together fit the model's length.

    `sources` is what the load agent found in the trace, where there is one. Raises TrafficUnknown where the
    workload is left out and was not learned either.
    """
    workload = spec.workload
    if workload is None:
        raise TrafficUnknown("spec.workload needs promptTokens and outputTokens, or classes")
    kinds = RequestKinds(
        classes=tuple(_class_of(kind, spec.slo, max_model_len) for kind in workload.classes),
        hit_share=0.0 if workload.prompts is not None else workload.prefix_cache_hit_percent / 100,
        prompts=PromptSource.RANDOM if workload.prompts is None else PromptSource.MOUNTED,
    )
    if kinds.classes:
        prompt: Lengths = mixture([(kind.weight, kind.prompt_tokens) for kind in kinds.classes])
        output: Lengths = mixture([(kind.weight, kind.output_tokens) for kind in kinds.classes])
    else:
        prompt, output = _lengths_of_both(workload.prompt_tokens, workload.output_tokens, max_model_len, sources)
    replayed = workload.arrivals.process is ArrivalProcess.TRACE
    timing = Timing.REPLAYED if replayed else Timing.DRAWN
    return Traffic(prompt, output, burstiness_of(workload.arrivals, sources), timing, kinds)


def _class_of(kind: WorkloadClass, slo: SloTargets, max_model_len: int | None) -> StageClass:
    prompt, output = _lengths_of_both(kind.prompt_tokens, kind.output_tokens, max_model_len, None)
    targets = _targets(kind.slo or slo)
    return StageClass(
        name=kind.name, weight=kind.weight_percent, prompt_tokens=prompt, output_tokens=output, slo=targets
    )


def _lengths_of_both(
    prompt: TokenLengths | None, output: TokenLengths | None, max_model_len: int | None, sources: SourceFacts | None
) -> tuple[Lengths, Lengths]:
    """An answer keeps its length, and a prompt has the room that the longest answer leaves. In a trace one long
    answer must not take the room of all prompts: answers have at most half."""
    if prompt is None or output is None:
        raise TrafficUnknown("spec.workload needs promptTokens and outputTokens, or classes")
    if LengthDistribution.TRACE in (prompt.distribution, output.distribution):
        if sources is None or sources.trace is None:
            raise TrafficUnknown("the trace was not read yet")
        trace, limit = sources.trace, max_model_len or _NO_LIMIT
        half = limit if max_model_len is None else max(1, limit // 2)
        answers: Lengths = _of_trace(trace.output_tokens, min(half, output.max or _NO_LIMIT))
        room = limit if max_model_len is None else max(1, limit - longest_tokens(answers))
        return _of_trace(trace.prompt_tokens, min(room, prompt.max or _NO_LIMIT)), answers
    answers = lengths_of(output, max_model_len)
    room = _NO_LIMIT if max_model_len is None else max(1, max_model_len - longest_tokens(answers))
    return lengths_of(prompt, room), answers


def _of_trace(bins: list[LengthBin], maximum: int) -> FromTrace:
    return FromTrace(marginal=_histogram(bins), maximum=maximum)


def burstiness_of(arrivals: ArrivalSpec, sources: SourceFacts | None = None) -> float | None:
    """The Gamma shape of the gaps: 1 is Poisson, None constant. That of a trace has the trace's variation.

    The gaps of a closed loop follow from the answers; for an open loop that stands in for it they are constant,
    since a closed loop queues no more than its own users.
    """
    match arrivals.process:
        case ArrivalProcess.CONSTANT | ArrivalProcess.CLOSED:
            return None
        case ArrivalProcess.GAMMA:
            return (arrivals.burstiness_percent or 100) / 100
        case ArrivalProcess.TRACE if sources is not None and sources.trace is not None:
            variation = sources.trace.gap_variation
            return 1 / variation if variation > 0 else None
        case _:
            return 1.0


def slo_of(spec: ServingProfileSpec) -> Slo:
    """The targets of one request; a class of a mix may have others (`slos_of`)."""
    return _targets(spec.slo)


def slos_of(spec: ServingProfileSpec) -> tuple[Slo, ...]:
    """The targets of each class of a mix, in order; one where there is no mix."""
    classes = spec.workload.classes if spec.workload is not None else []
    return tuple(_targets(kind.slo or spec.slo) for kind in classes) or (slo_of(spec),)


def _targets(slo: SloTargets) -> Slo:
    percent = slo.availability_percent
    availability = None if percent is None else percent / 100
    return Slo(ttft_s=slo.p99_ttft, tpot_s=slo.p99_tpot, e2e_s=slo.p99_e2e, availability=availability)


def lengths_of(declared: TokenLengths, longest_allowed: int | None) -> Lengths:
    """A log-normal is declared by mean m and 99th percentile q: ln q − ln m = z·sigma − sigma²/2.

    Of the two solutions the smaller sigma is meant. Beyond q/m = exp(z²/2) ≈ 15 none exists and the widest
    one is taken. Raises TrafficUnknown for lengths of a trace: those come in pairs.
    """
    limit = min(longest_allowed or _NO_LIMIT, declared.max or _NO_LIMIT)
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
        case LengthDistribution.EMPIRICAL:
            return cut(_histogram(declared.bins or []), limit)
        case LengthDistribution.TRACE:
            raise TrafficUnknown("lengths of a trace come in pairs, prompt and answer")


def _histogram(bins: list[LengthBin]) -> Empirical:
    return Empirical(bins=tuple(Bin(low=each.min, high=each.max, weight=each.weight) for each in bins))


def is_real_time(workload: Workload | None) -> bool:
    """Whether a trace is asked to be carried as it was recorded, at no other rate."""
    return workload is not None and workload.arrivals.trace_time is TraceTime.REAL_TIME
