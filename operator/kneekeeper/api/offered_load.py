"""How long requests are and when they are sent, as a stage orders it. Times are seconds as floats."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


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


class Bin(WireModel):
    """Lengths from low to high, both included, all equally likely."""

    low: int = Field(ge=1, description="tokens")
    high: int = Field(ge=1, description="tokens")
    weight: int = Field(ge=1, le=1_000_000_000, description="relative to the other bins")

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.low > self.high:
            raise ValueError("low is above high; swap them")
        return self


class Empirical(WireModel):
    """Lengths drawn from a histogram. Bins may overlap and need no order."""

    distribution: Literal["Empirical"] = "Empirical"
    bins: tuple[Bin, ...] = Field(min_length=1, max_length=1024)


class FromTrace(WireModel):
    """The lengths of the requests of the agent's trace, prompt and answer together, none above `maximum`.

    `marginal` is what the trace holds as a whole, for those who plan without the trace.
    """

    distribution: Literal["Trace"] = "Trace"
    marginal: Empirical
    maximum: int = Field(ge=1, description="tokens")


Lengths = Annotated[Fixed | Uniform | LogNormal | Empirical | FromTrace, Field(discriminator="distribution")]


class Closed(WireModel):
    """`users` clients, each sends its next request when the last one ended and it has thought.

    Thinking takes exponentially distributed times with this mean; 0 is none.
    """

    process: Literal["Closed"] = "Closed"
    users: int = Field(ge=1, le=65_536)
    think_time_s: float = Field(default=0.0, ge=0, le=3600)


class Open(WireModel):
    """Requests are sent at drawn times, whatever the server answers.

    Gaps are Gamma distributed with mean 1/rate and shape `burstiness`: 1 is Poisson, below 1 is bursty.
    `burstiness` None means constant gaps.
    """

    process: Literal["Open"] = "Open"
    rate: float = Field(gt=0, le=10_000, description="requests per second")
    burstiness: float | None = Field(default=1.0, gt=0)


class Replay(WireModel):
    """Requests are sent as in the agent's trace, with the time axis stretched evenly: bursts stay what they are.

    Exactly one of both: `rate` gives the requests of the stage this mean rate, `speed` plays the trace so many
    times as fast as it was recorded.
    """

    process: Literal["Trace"] = "Trace"
    rate: float | None = Field(default=None, gt=0, le=10_000, description="requests per second")
    speed: float | None = Field(default=None, gt=0, le=10_000)

    @model_validator(mode="after")
    def _has_one_scale(self) -> Self:
        if (self.rate is None) == (self.speed is None):
            raise ValueError("give exactly one of rate and speed")
        return self


Arrivals = Annotated[Closed | Open | Replay, Field(discriminator="process")]
