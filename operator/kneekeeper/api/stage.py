"""The load agent's wire format: one stage as it is ordered, and as it stands.

The operator PUTs a `StageSpec`, polls `StageStatus`, and fetches `Samples` once the stage has ended.
All times are seconds as floats, counted from the stage's start on the agent's monotonic clock.
"""

from __future__ import annotations

import ipaddress
from enum import StrEnum
from typing import Self

from pydantic import Field, field_validator, model_validator

from kneekeeper.api.offered_load import Arrivals, FromTrace, Lengths, Replay, WireModel


class Endpoint(StrEnum):
    COMPLETIONS = "/v1/completions"
    CHAT = "/v1/chat/completions"


class Tls(WireModel):
    """The target speaks HTTPS, and proves who it is."""

    server_name: str = Field(default="", max_length=253, description="what its certificate is for; empty: its address")
    ca_file: str = Field(default="", description="the certificates to trust, in the agent's pod; empty: the system's")


class Target(WireModel):
    """The server under load. The API key, if any, is mounted into the agent's pod, never sent here."""

    host: str = Field(description="an IP address; names are refused")
    port: int = Field(ge=1, le=65535)
    tls: Tls | None = Field(default=None, description="left out: plain HTTP")
    root_path: str = Field(default="", pattern="^[!-~]*$", description="prefix of all paths, as URLs write it")
    model: str
    endpoint: Endpoint = Endpoint.COMPLETIONS
    token_id_low: int = Field(default=10, ge=0, description="prompts are drawn from [low, high]")
    token_id_high: int = Field(default=250, ge=1)

    @field_validator("host")
    @classmethod
    def _is_an_address(cls, host: str) -> str:
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise ValueError("host is not an IP address; give the pod's address, not a name") from None
        return host

    @model_validator(mode="after")
    def _prompts_differ(self) -> Self:
        if self.token_id_low >= self.token_id_high:
            raise ValueError("token_id_low must be below token_id_high, else all prompts are the same")
        return self


class Limits(WireModel):
    """When a stage ends. A stage that met `min_requests` and is steady ends; `max_*` end it in any case."""

    min_requests: int = Field(ge=1, description="completed requests after warm-up")
    min_token_gaps: int = Field(default=0, ge=0, description="inter-token gaps after warm-up")
    max_requests: int = Field(ge=1, le=1_000_000, description="requests that are sent, warm-up included")
    max_duration_s: float = Field(gt=0)
    request_timeout_s: float = Field(default=120.0, gt=0)


class Slo(WireModel):
    """Targets of one request, in seconds, of which at least one is set where an SLO is judged, and what of all requests
    must not fail."""

    ttft_s: float | None = Field(default=None, gt=0)
    tpot_s: float | None = Field(default=None, gt=0)
    e2e_s: float | None = Field(default=None, gt=0)
    availability: float | None = Field(
        default=None, ge=0.5, le=1, description="share of requests that must not fail; judged beside the targets"
    )

    @property
    def has_target(self) -> bool:
        """Whether any latency is promised."""
        return any(target is not None for target in (self.ttft_s, self.tpot_s, self.e2e_s))


class StageClass(WireModel):
    """One kind of request of a mix."""

    name: str = Field(min_length=1, max_length=63)
    weight: int = Field(ge=1, description="relative to the other classes")
    prompt_tokens: Lengths
    output_tokens: Lengths
    slo: Slo


class PrefixSharing(WireModel):
    """Prompts begin with whole blocks that others have, so that the prefix cache serves `hit_share` of all tokens."""

    hit_share: float = Field(gt=0, le=1, description="hit tokens / prompt tokens, over the whole stage")
    block_tokens: int = Field(ge=1, le=65_536, description="size of the engine's KV blocks")


class Guard(WireModel):
    """The target serves users: nothing is sent while one of their requests is there, and a stage into which one comes
    is broken off and Invalid. The agent watches for itself, whether an operator is alive or not."""

    until_s: float = Field(gt=0, description="Unix time at which the load ends, whatever was measured by then")


class PromptSource(StrEnum):
    RANDOM = "Random"  # token ids drawn from the target's range
    MOUNTED = "Mounted"  # the agent's own file of prompts


MOST_AGENTS = 16
"""Of one stage: the first one hears all others, and merges what they tell."""


class StageSpec(WireModel):
    """One load level."""

    id: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,62}[a-z0-9])?$")
    target: Target
    prompt_tokens: Lengths
    output_tokens: Lengths
    arrivals: Arrivals
    limits: Limits
    slo: Slo = Slo()
    sequential: bool = Field(
        default=False, description="end as soon as the sequential test on `slo` decides (certification)"
    )
    min_pass_requests: int | None = Field(
        default=None, ge=1, description="no PASS of a sequential stage on fewer; left out: the test's own floor"
    )
    seed: int = Field(ge=0, description="fixes lengths, gaps and prompts; never reuse one between stages")
    classes: tuple[StageClass, ...] = Field(
        default=(), max_length=8, description="a mix: each request is of one class and has its lengths and its SLO"
    )
    prefix: PrefixSharing | None = Field(default=None, description="left out: no two prompts share a token block")
    prompts: PromptSource = PromptSource.RANDOM
    agents: int = Field(default=1, ge=1, le=MOST_AGENTS, description="so many agents send it together, each its share")
    guard: Guard | None = Field(default=None, description="left out: nobody else uses the target")

    @model_validator(mode="after")
    def _one_agent_watches(self) -> Self:
        if self.guard is not None and self.agents > 1:
            raise ValueError("guard: what several agents have sent is not known at one moment; let one send all")
        return self

    @model_validator(mode="after")
    def _lengths_come_in_pairs(self) -> Self:
        pairs = [(self.prompt_tokens, self.output_tokens)]
        pairs += [(kind.prompt_tokens, kind.output_tokens) for kind in self.classes]
        if any(isinstance(prompt, FromTrace) != isinstance(output, FromTrace) for prompt, output in pairs):
            raise ValueError("lengths from the trace are pairs: take both from it, or neither")
        return self

    @property
    def slos(self) -> tuple[Slo, ...]:
        """What each class is held to, in the order of the classes; one where there is no mix."""
        return tuple(kind.slo for kind in self.classes) or (self.slo,)

    @property
    def needs_trace(self) -> bool:
        """Whether times or lengths come from the agent's trace."""
        lengths = [self.prompt_tokens, *(kind.prompt_tokens for kind in self.classes)]
        return isinstance(self.arrivals, Replay) or any(isinstance(each, FromTrace) for each in lengths)


class ShareOrder(WireModel):
    """What one agent asks of another: to send the `part`-th share of a stage, counted from 0."""

    stage: StageSpec
    part: int = Field(ge=1, lt=MOST_AGENTS)

    @model_validator(mode="after")
    def _is_a_part(self) -> Self:
        if self.part >= self.stage.agents:
            raise ValueError("part is not below the stage's agents")
        return self


class Helpers(WireModel):
    """The agents that send beside the one that is told, as their addresses (`10.0.0.7:8080`)."""

    addresses: tuple[str, ...] = Field(default=(), max_length=MOST_AGENTS - 1)


class StageState(StrEnum):
    RUNNING = "Running"
    DONE = "Done"  # enough requests, steady
    SATURATED = "Saturated"  # open loop: backlog grows; a result, not a failure
    INVALID = "Invalid"  # the client was late, slow or starved: no verdict from this stage
    FAILED = "Failed"  # the target does not answer; message says how
    CANCELLED = "Cancelled"


NOT_STEADY = "NotSteady"
"""The reason of a stage that was ended by its longest duration or its most requests before it was steady."""

TARGET_UNREACHABLE = "TargetUnreachable"
"""The reason of a stage that failed since not one connection to its target could be opened."""


USERS_SERVED = "UsersServed"
"""The reason of a guarded stage into which requests of users came, or that would have begun among them."""

METRICS_UNREADABLE = "MetricsUnreadable"
"""The reason of a guarded stage of whose engine it was not known whether it serves users."""

WINDOW_CLOSED = "WindowClosed"
"""The reason of a guarded stage that was broken off at its guard's time."""


class Evidence(WireModel):
    """How well the client itself did; a stage beyond the limits of `load.evidence` is Invalid."""

    send_lag_p99_s: float = Field(description="actual minus intended send time")
    loop_lag_p99_s: float = Field(description="lateness of a 20 ms timer in the sending process; the worst of several")
    cpu_share: float = Field(description="CPU seconds per second of the sending process; the most of several")
    achieved_over_offered: float = Field(description="sent / planned; 1 in a closed loop")


class StageStatus(WireModel):
    """How a stage stands. Counts cover the whole stage, rates only the part after warm-up."""

    id: str
    state: StageState
    reason: str = ""
    message: str = ""
    elapsed_s: float
    warmup_s: float = Field(description="cut from the front by MSER-5")
    planned: int
    sent: int
    succeeded: int
    failed: int
    timed_out: int
    in_flight: int
    requests_per_s: float
    output_tokens_per_s: float
    mean_concurrency: float
    evidence: Evidence


class Outcome(StrEnum):
    OK = "Ok"
    ERROR = "Error"
    TIMEOUT = "Timeout"
    ABORTED = "Aborted"  # the agent broke it off: saturation, cancellation, or longer than the drain


class Samples(WireModel):
    """One row per request that was sent, as parallel lists of equal length.

    `first_s` and `last_s` are NaN-free: for a request without a first token both are the time it ended.
    `first_chunk_tokens` came at `first_s`: 1 unless the server merged tokens, or several chunks were received at once.
    """

    warmup_s: float
    intended_s: list[float]
    sent_s: list[float]
    first_s: list[float]
    last_s: list[float]
    prompt_tokens: list[int]
    output_tokens: list[int]
    first_chunk_tokens: list[int]
    chunks: list[int]
    outcome: list[Outcome]
    request_class: list[int] = Field(default=[], description="index into the spec's classes; empty without a mix")
