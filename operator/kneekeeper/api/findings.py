"""What is wrong with a workload, in the status of its profile."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from kneekeeper.api.model import ApiModel, Count, ObjectName, Timestamp
from kneekeeper.api.quantities import Quantity


class FindingPhase(StrEnum):
    SUSPECTED = "Suspected"
    PRESENT = "Present"
    CLEARING = "Clearing"


class FindingValue(ApiModel):
    """One number that a finding rests on."""

    name: str = Field(max_length=64, description="What was measured.")
    value: Quantity = Field(description="The number; shares from 0 to 1.")
    unit: str = Field(default="", max_length=16, description="Empty for a plain number.")


class FindingStatus(ApiModel):
    """One thing that is wrong, with its evidence, on one pod or several."""

    reason: str = Field(max_length=32, description="What it is; see docs/diagnosis.md.")
    phase: FindingPhase = Field(
        description="Suspected: seen once. Present: seen twice in a row. Clearing: not seen for a while."
    )
    looks: Count = Field(description="How often in a row it was seen, or not seen while Clearing.")
    pod: ObjectName = Field(description="A pod that shows it.")
    pods: Count = Field(description="How many pods show it.")
    confidence: str = Field(max_length=16, description="High, Medium or Low.")
    message: str = Field(max_length=1024, description="For people.")
    next_step: str = Field(max_length=512, description="What to do.")
    evidence: list[FindingValue] = Field(default=[], max_length=8, description="The numbers.")
    missing: list[Annotated[str, Field(max_length=128)]] = Field(
        default=[], max_length=8, description="Metrics that would have made it surer."
    )
    since: Timestamp = Field(description="When it was first seen.")
