"""How the engine may be measured, and what a measurement may cost."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from kneekeeper.api.model import ApiModel
from kneekeeper.api.quantities import Duration
from kneekeeper.api.rules import POSITIVE, Unique

Cron = Annotated[str, Field(max_length=100, pattern=r"^\S+( +\S+){4}$")]
TimeZone = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9_+/-]+$")]


class ProbeTarget(StrEnum):
    CLONE = "Clone"
    BORROW_REPLICA = "BorrowReplica"
    IN_PLACE = "InPlace"
    PASSIVE = "Passive"


class Ladder(ApiModel):
    """How the ramp climbs."""

    max_concurrency: int = Field(
        default=512,
        ge=2,
        le=16_384,
        description="The most concurrent requests that are tried; above 1024 by several load agents.",
    )
    max_stage_duration: Annotated[Duration, POSITIVE] = Field(
        default=120.0, description="An undecided stage ends here."
    )
    recovery: Annotated[Duration, POSITIVE] = Field(default=2.0, description="Idle time between stages.")
    control_tolerance_percent: int = Field(
        default=15, ge=1, le=100, description="How far repeated control stages may differ."
    )


class Budget(ApiModel):
    """What a run may cost; when it runs out, the best proven setting stands."""

    max_measure_duration: Annotated[Duration, POSITIVE] = Field(
        default=1800.0, description="Time under load, over all stages."
    )
    start_timeout: Annotated[Duration, POSITIVE] = Field(
        default=1800.0, description="How long one engine start may take."
    )
    max_restarts: int = Field(default=3, ge=1, le=20, description="Engine starts after the first.")
    max_gpu_seconds: int = Field(
        default=7200,
        ge=60,
        le=31_536_000,
        description="GPU seconds that the clones may hold, over all starts.",
    )


class Window(ApiModel):
    """When probes may run."""

    schedule: Cron = Field(description="When the window opens, as cron: minute hour day month weekday.")
    time_zone: TimeZone = Field(default="UTC", description="An IANA time zone.")
    duration: Annotated[Duration, POSITIVE] = Field(description="How long the window stays open.")


class CloneOptions(ApiModel):
    """What the clone of the serving pod keeps."""

    keep: Annotated[list[Annotated[str, Field(min_length=1, max_length=317)]], Unique()] = Field(
        default=[],
        max_length=32,
        description="Keys of labels and annotations that the clone carries over; all others are left off, "
        "so that nothing selects it.",
    )


class LiveTuning(StrEnum):
    DISABLED = "Disabled"
    ALLOWED = "Allowed"


class Probe(ApiModel):
    """How the engine may be measured; what `allow` does not list is never done."""

    allow: Annotated[list[ProbeTarget], Unique()] = Field(
        default=[ProbeTarget.CLONE],
        min_length=1,
        max_length=4,
        description="In order of preference. Clone: a copy of the pod on a spare GPU. BorrowReplica: the "
        "workload is scaled down by one, the clone uses the freed GPU, and the replica comes back. InPlace: "
        "a serving pod itself, inside the window, while it has no users; nothing is changed. Passive: production "
        "metrics alone. Listing is the consent.",
    )
    ladder: Ladder = Field(default=Ladder(), description="How the ramp climbs.")
    budget: Budget = Field(default=Budget(), description="What a run may cost.")
    window: Window | None = Field(
        default=None, description="When probes may run; left out, at any time. InPlace needs one."
    )
    clone: CloneOptions = Field(default=CloneOptions(), description="What the clone keeps.")
    allow_scale_up: bool = Field(default=False, description="Whether a clone may cause a node to be added.")
    live_tuning: LiveTuning = Field(
        default=LiveTuning.DISABLED,
        description="Allowed: the clone loads a vLLM plugin through PYTHONPATH that changes both limits without a "
        "restart, and the present setting is compared on the engine that certified the choice. Where that does not "
        "work, an engine is started for it as with Disabled.",
    )
