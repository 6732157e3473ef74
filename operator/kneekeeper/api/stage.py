"""The load agent's wire format: one stage as it is ordered, and as it stands.

The operator PUTs a `StageSpec`, polls `StageStatus`, and fetches `Samples` once the stage has ended.
All times are seconds as floats, counted from the stage's start on the agent's monotonic clock.
"""

from __future__ import annotations

import ipaddress
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator


class WireModel(BaseModel):
    """Strict and frozen: an unknown field is an error, never dropped."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Fixed(WireModel):
    """Every request has the same length."""

    distribution: Literal["Fixed"] = "Fixed"
    value: int = Field(ge=1, description="tokens")


class Uniform(WireModel):
    """Lengths drawn evenly from low to high, both included."""

    distribution: Literal["Uniform"] = "Uniform"
    low: int = Field(ge=1, description="tokens")
    high: int = Field(ge=1, description="tokens")

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.low > self.high:
            raise ValueError("low is above high; swap them")
        return self


class LogNormal(WireModel):
    """Lengths drawn from a log-normal, given by its mean and sigma of the logarithm, cut to [1, maximum]."""

    distribution: Literal["LogNormal"] = "LogNormal"
    mean: float = Field(ge=1, description="tokens")
    sigma: float = Field(ge=0, le=3)
    maximum: int = Field(ge=1, description="tokens")


Lengths = Annotated[Fixed | Uniform | LogNormal, Field(discriminator="distribution")]


class Closed(WireModel):
    """`users` clients, each sends its next request when the last one ended."""

    process: Literal["Closed"] = "Closed"
    users: int = Field(ge=1, le=4096)


class Open(WireModel):
    """Requests are sent at drawn times, whatever the server answers.

    Gaps are Gamma distributed with mean 1/rate and shape `burstiness`: 1 is Poisson, below 1 is bursty.
    `burstiness` None means constant gaps.
    """

    process: Literal["Open"] = "Open"
    rate: float = Field(gt=0, le=10_000, description="requests per second")
    burstiness: float | None = Field(default=1.0, gt=0)


Arrivals = Annotated[Closed | Open, Field(discriminator="process")]


class Endpoint(StrEnum):
    COMPLETIONS = "/v1/completions"
    CHAT = "/v1/chat/completions"


class Target(WireModel):
    """The server under load. The API key, if any, is mounted into the agent's pod, never sent here."""

    host: str = Field(description="an IP address; names are refused")
    port: int = Field(ge=1, le=65535)
    root_path: str = ""
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
    """Targets of one request, in seconds; at least one is set where an SLO is judged."""

    ttft_s: float | None = Field(default=None, gt=0)
    tpot_s: float | None = Field(default=None, gt=0)
    e2e_s: float | None = Field(default=None, gt=0)


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


class StageState(StrEnum):
    RUNNING = "Running"
    DONE = "Done"  # enough requests, steady
    SATURATED = "Saturated"  # open loop: backlog grows; a result, not a failure
    INVALID = "Invalid"  # the client was late, slow or starved: no verdict from this stage
    FAILED = "Failed"  # the target does not answer; message says how
    CANCELLED = "Cancelled"


class Evidence(WireModel):
    """How well the client itself did; a stage beyond the limits of `load.evidence` is Invalid."""

    send_lag_p99_s: float = Field(description="actual minus intended send time")
    loop_lag_p99_s: float = Field(description="lateness of a 20 ms timer in the sending process")
    cpu_share: float = Field(description="CPU seconds per second of the sending process")
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
    `first_chunk_tokens` is 1 unless the server merged tokens.
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
