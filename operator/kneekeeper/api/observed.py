"""What status tells of production, learned from its metrics alone: ranks, the fleet as a whole, and the traffic."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from kneekeeper.api.model import ApiModel, Count, ObjectName, Timestamp
from kneekeeper.api.quantities import Duration, Quantity
from kneekeeper.api.rules import Unique
from kneekeeper.api.workload import Workload

Percent = Annotated[int, Field(ge=0, le=100)]


class KneeSource(StrEnum):
    """Where a replica's knee comes from."""

    RUN = "Run"
    PRODUCTION = "Production"


class RankStatus(ApiModel):
    """One data-parallel rank of a replica; limits hold for each."""

    rank: str = Field(max_length=16, description="The label `engine` of its metrics.")
    knee_concurrency: Quantity | None = Field(default=None, description="Concurrent requests at its knee.")
    reached: Quantity = Field(description="The highest concurrency that lasted a quarter of an hour.")


class ScaleStatus(ApiModel):
    """All replicas together. Rates are requests/s."""

    replicas: Count = Field(description="Replicas whose metrics were seen.")
    needed_replicas: Count = Field(description="Replicas for the observed peak, as the router loads them.")
    peak_requests_per_second: Quantity = Field(description="The busiest five minutes of the last day.")
    capacity_requests_per_second: Quantity = Field(
        description="What all replicas carry together: their capacities over the router's imbalance."
    )
    imbalance_percent: int = Field(
        ge=100,
        le=100_000,
        description="Load of the replica that had most over its part, in the busiest tenth of the day; 100 is even.",
    )
    weakest_gpu_product: str = Field(
        default="", max_length=253, description="Replicas on unlike hardware: the one that limits all; else empty."
    )
    lost_percent: Percent | None = Field(
        default=None, description="Capacity lost where one set of arguments fits the weakest; absent on like hardware."
    )
    message: str = Field(default="", max_length=1024, description="For people.")


class Confidence(StrEnum):
    HIGH = "High"
    MEDIUM = "Medium"
    LOW = "Low"


class HourOfTraffic(ApiModel):
    """An hour of the day, averaged over the days that were seen."""

    hour: int = Field(ge=0, le=23, description="UTC.")
    requests_per_second: Quantity = Field(description="Of all replicas together.")
    prompt_tokens_mean: Quantity | None = Field(default=None, description="Exact; absent without requests.")
    output_tokens_mean: Quantity | None = Field(default=None, description="Exact; absent without requests.")
    prefix_cache_hit_percent: Percent | None = Field(
        default=None, description="Share of prompt tokens that the prefix cache served."
    )


class DayOfTraffic(ApiModel):
    """A day of the week."""

    day: int = Field(ge=0, le=6, description="0 is Monday, UTC.")
    requests_per_second: Quantity = Field(
        description="Of all replicas together, averaged over its hours that were seen."
    )


class ObservedWorkload(ApiModel):
    """The traffic as the target's own metrics tell it. It is the workload of profiles that declare none."""

    workload: Workload = Field(description="As a profile would declare it.")
    confidence: Confidence = Field(description="High, Medium or Low: from the requests and the hours that were seen.")
    requests: Count = Field(description="Requests that were seen.")
    seen: Duration = Field(description="Hours with traffic, added up.")
    until: Timestamp = Field(description="When it was last learned.")
    requests_per_second: Quantity = Field(description="Mean of all replicas together.")
    peak_requests_per_second: Quantity = Field(description="The busiest hour.")
    concurrency: Quantity | None = Field(
        default=None, description="Requests at a time in all replicas, in the busiest five minutes of the last day."
    )
    prompt_p99_lower: Count = Field(description="The 99th percentile of prompts lies above: a histogram's bound.")
    prompt_p99_upper: Count = Field(description="It is at most this long.")
    output_p99_lower: Count = Field(description="The 99th percentile of answers lies above.")
    output_p99_upper: Count = Field(description="It is at most this long.")
    hours: Annotated[list[HourOfTraffic], Unique(("hour",))] = Field(
        default=[], max_length=24, description="By hour of the day."
    )
    days: Annotated[list[DayOfTraffic], Unique(("day",))] = Field(
        default=[], max_length=7, description="By day of the week."
    )


class TrafficDrift(ApiModel):
    """The learned traffic is another one than the setting in use was certified for."""

    since: Timestamp = Field(description="When it was first seen.")
    run: ObjectName = Field(description="The TuningRun that certified for other traffic.")
    size_percent: int = Field(
        ge=0, le=1_000_000, description="How far what moved most has moved, of what is worth a run: 100 begins a drift."
    )
    message: str = Field(max_length=512, description="What moved most, for people.")
