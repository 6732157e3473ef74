"""What a user says about the traffic, and what was promised for it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from kneekeeper.api.model import ApiModel, LocalReference
from kneekeeper.api.quantities import Duration
from kneekeeper.api.rules import Unique, between, rule

_LARGEST_P99_OVER_MEAN = 14
"""A log-normal's p99/mean is exp(z s - s^2/2), largest at s = z = 2.326: exp(z^2/2) = 14.97."""

TokenCount = Annotated[int, Field(ge=1, le=1_000_000)]


class SloTargets(ApiModel):
    """What users were promised. At least one latency target is set, unless the objective is Throughput."""

    p99_ttft: Annotated[Duration, between("1ms", "1h")] | None = Field(
        default=None, description="P99 time to first token, from the intended send time."
    )
    p99_tpot: Annotated[Duration, between("10us", "10m")] | None = Field(
        default=None,
        description="P99 time per output token: (last token - first token) / (output tokens - 1).",
    )
    p99_e2e: Annotated[Duration, between("1ms", "24h")] | None = Field(
        default=None, description="P99 time of a whole request."
    )
    availability_percent: int | None = Field(
        default=None,
        ge=50,
        le=100,
        description="Share of requests that must not fail, proven in certification and watched after a rollout. A "
        "failed request misses the P99 targets as well, of which 1% may be missed.",
    )

    def sets_a_latency_target(self) -> bool:
        return any(target is not None for target in (self.p99_ttft, self.p99_tpot, self.p99_e2e))


class LengthDistribution(StrEnum):
    FIXED = "Fixed"
    UNIFORM = "Uniform"
    LOG_NORMAL = "LogNormal"
    EMPIRICAL = "Empirical"
    TRACE = "Trace"


class LengthBin(ApiModel):
    """A bar of a histogram: lengths from min to max, all equally likely."""

    min: TokenCount = Field(description="The shortest, in tokens.")
    max: TokenCount = Field(description="The longest, in tokens.")
    weight: int = Field(ge=1, le=1_000_000_000, description="Requests in it, or any number in proportion to them.")

    @rule("self.min <= self.max", "min must not be above max")
    def _is_a_range(self) -> bool:
        return self.min <= self.max


class TokenLengths(ApiModel):
    """How many tokens a prompt or an answer has."""

    distribution: LengthDistribution = Field(
        default=LengthDistribution.LOG_NORMAL,
        description="Fixed takes value, Uniform min and max, LogNormal mean, p99 and perhaps max, Empirical bins; "
        "Trace takes prompt and answer together from workload.traceRef.",
    )
    value: TokenCount | None = Field(default=None, description="Fixed: the length.")
    min: TokenCount | None = Field(default=None, description="Uniform: the shortest.")
    max: TokenCount | None = Field(default=None, description="Uniform: the longest. Others: where draws are cut.")
    mean: TokenCount | None = Field(default=None, description="LogNormal: the mean.")
    p99: TokenCount | None = Field(default=None, description="LogNormal: the 99th percentile.")
    bins: Annotated[list[LengthBin], Field(min_length=1, max_length=64)] | None = Field(
        default=None, description="Empirical: a histogram."
    )

    @rule(
        "(self.distribution == 'Fixed') == has(self.value)",
        "Fixed needs value, the other distributions have none",
    )
    def _value_is_of_fixed(self) -> bool:
        return (self.distribution is LengthDistribution.FIXED) == (self.value is not None)

    @rule(
        "self.distribution == 'Uniform' ? has(self.min) && has(self.max) && self.min <= self.max : !has(self.min)",
        "Uniform needs min and max with min <= max, the other distributions have no min",
    )
    def _range_is_of_uniform(self) -> bool:
        if self.distribution is not LengthDistribution.UNIFORM:
            return self.min is None
        return self.min is not None and self.max is not None and self.min <= self.max

    @rule(
        "(self.distribution == 'Empirical') == has(self.bins)",
        "Empirical needs bins, the other distributions have none",
    )
    def _bins_are_of_empirical(self) -> bool:
        return (self.distribution is LengthDistribution.EMPIRICAL) == (self.bins is not None)

    @rule("self.distribution != 'Fixed' || !has(self.max)", "Fixed has no max")
    def _fixed_has_no_max(self) -> bool:
        return self.distribution is not LengthDistribution.FIXED or self.max is None

    @rule(
        "self.distribution == 'LogNormal' ? has(self.mean) && has(self.p99) && self.p99 >= self.mean"
        " : !has(self.mean) && !has(self.p99)",
        "LogNormal needs mean and p99 with p99 >= mean, the other distributions have neither",
    )
    def _mean_and_p99_are_of_log_normal(self) -> bool:
        if self.distribution is not LengthDistribution.LOG_NORMAL:
            return self.mean is None and self.p99 is None
        return self.mean is not None and self.p99 is not None and self.p99 >= self.mean

    @rule(
        f"!has(self.mean) || !has(self.p99) || self.p99 <= {_LARGEST_P99_OVER_MEAN} * self.mean",
        f"p99 may be at most {_LARGEST_P99_OVER_MEAN} times mean: no LogNormal is more skewed than 15",
    )
    def _log_normal_exists(self) -> bool:
        return self.mean is None or self.p99 is None or self.p99 <= _LARGEST_P99_OVER_MEAN * self.mean


class ArrivalProcess(StrEnum):
    POISSON = "Poisson"
    GAMMA = "Gamma"
    CONSTANT = "Constant"
    CLOSED = "Closed"
    TRACE = "Trace"


class TraceTime(StrEnum):
    """How the time axis of a replayed trace is treated."""

    RESCALED = "Rescaled"
    REAL_TIME = "RealTime"


class ArrivalSpec(ApiModel):
    """How requests arrive."""

    process: ArrivalProcess = Field(
        default=ArrivalProcess.POISSON,
        description="Poisson, Gamma (bursty) and Constant are open loop; Closed is a number of clients that "
        "wait for their answers; Trace replays workload.traceRef.",
    )
    burstiness_percent: int | None = Field(
        default=None, ge=1, le=10_000, description="Gamma: shape times 100; 100 is Poisson, below is bursty."
    )
    users: int | None = Field(default=None, ge=1, le=100_000, description="Closed: how many clients.")
    think_time: Annotated[Duration, between("1ms", "1h")] | None = Field(
        default=None, description="Closed: mean pause of a client between an answer and its next request."
    )
    trace_time: TraceTime | None = Field(
        default=None,
        description="Trace: Rescaled (the default) stretches the trace to each rate that is tried and keeps its "
        "bursts; RealTime asks whether the trace can be carried as it was recorded.",
    )

    @rule(
        "(self.process == 'Gamma') == has(self.burstinessPercent)",
        "Gamma needs burstinessPercent, the other processes have none",
    )
    def _burstiness_is_of_gamma(self) -> bool:
        return (self.process is ArrivalProcess.GAMMA) == (self.burstiness_percent is not None)

    @rule("(self.process == 'Closed') == has(self.users)", "Closed needs users, the other processes have none")
    def _users_are_of_closed(self) -> bool:
        return (self.process is ArrivalProcess.CLOSED) == (self.users is not None)

    @rule("!has(self.thinkTime) || self.process == 'Closed'", "only Closed has a thinkTime")
    def _think_time_is_of_closed(self) -> bool:
        return self.think_time is None or self.process is ArrivalProcess.CLOSED

    @rule("!has(self.traceTime) || self.process == 'Trace'", "only Trace has a traceTime")
    def _trace_time_is_of_trace(self) -> bool:
        return self.trace_time is None or self.process is ArrivalProcess.TRACE


class SourceRef(ApiModel):
    """Where prompts or a trace come from."""

    config_map_ref: LocalReference | None = Field(default=None, description="A ConfigMap.")
    persistent_volume_claim: LocalReference | None = Field(
        default=None, description="A volume, mounted read-only into the load agent."
    )

    @rule(
        "has(self.configMapRef) != has(self.persistentVolumeClaim)",
        "give exactly one of configMapRef and persistentVolumeClaim",
    )
    def _names_one_source(self) -> bool:
        return (self.config_map_ref is None) != (self.persistent_volume_claim is None)


class WorkloadClass(ApiModel):
    """One kind of request in a mix."""

    name: str = Field(min_length=1, max_length=63, description="Unique in the mix.")
    weight_percent: int = Field(ge=1, le=100, description="Its share of the requests.")
    prompt_tokens: TokenLengths = Field(description="Tokens of its prompts.")
    output_tokens: TokenLengths = Field(description="Tokens of its answers.")
    slo: SloTargets | None = Field(default=None, description="Its own targets; left out, those of the profile.")

    @rule(
        "self.promptTokens.distribution != 'Trace' && self.outputTokens.distribution != 'Trace'",
        "a class declares its lengths; a trace holds one kind of requests",
    )
    def _lengths_are_declared(self) -> bool:
        lengths = (self.prompt_tokens, self.output_tokens)
        return all(each.distribution is not LengthDistribution.TRACE for each in lengths)


class Workload(ApiModel):
    """What the traffic looks like; left out, it is learned from the target's own metrics."""

    prompt_tokens: TokenLengths | None = Field(default=None, description="Tokens of a prompt.")
    output_tokens: TokenLengths | None = Field(default=None, description="Tokens of an answer.")
    arrivals: ArrivalSpec = Field(default=ArrivalSpec(), description="How requests arrive.")
    prefix_cache_hit_percent: int = Field(
        default=0, ge=0, le=100, description="Share of prompt tokens that the prefix cache serves."
    )
    classes: Annotated[list[WorkloadClass], Unique(("name",))] = Field(
        default=[], max_length=8, description="A mix of kinds of requests, instead of one."
    )
    prompts: SourceRef | None = Field(default=None, description="Real prompts, one per line of JSON.")
    trace_ref: SourceRef | None = Field(default=None, description="Times and lengths to replay; needed by Trace.")

    @rule(
        "!has(self.classes) || size(self.classes) == 0 || self.classes.map(c, c.weightPercent).sum() == 100",
        "weightPercent of all classes must add up to 100",
    )
    def _weights_add_up(self) -> bool:
        return not self.classes or sum(kind.weight_percent for kind in self.classes) == 100

    @rule(
        "((has(self.arrivals) && self.arrivals.process == 'Trace')"
        " || (has(self.promptTokens) && self.promptTokens.distribution == 'Trace')"
        " || (has(self.outputTokens) && self.outputTokens.distribution == 'Trace')) == has(self.traceRef)",
        "arrivals and lengths of Trace need traceRef, others have none",
    )
    def _trace_has_a_source(self) -> bool:
        replayed = self.arrivals.process is ArrivalProcess.TRACE
        return (replayed or any(self._are_of_the_trace())) == (self.trace_ref is not None)

    @rule(
        "(has(self.promptTokens) && self.promptTokens.distribution == 'Trace')"
        " == (has(self.outputTokens) && self.outputTokens.distribution == 'Trace')",
        "lengths of Trace are pairs: declare both or neither",
    )
    def _trace_lengths_are_pairs(self) -> bool:
        prompt, output = self._are_of_the_trace()
        return prompt == output

    def _are_of_the_trace(self) -> tuple[bool, bool]:
        prompt, output = (
            each is not None and each.distribution is LengthDistribution.TRACE
            for each in (self.prompt_tokens, self.output_tokens)
        )
        return prompt, output
